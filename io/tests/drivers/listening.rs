//! Those who dial in.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use io::{Address, Driver, Kind, Tuning};
use socket2::SockRef;

use crate::world::{OnBytes, World, anywhere, over_each};

#[test]
fn both_ends_know_each_other() {
    over_each(|world| {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = io::listen_tcp(address.parse().unwrap(), 10, true).unwrap();
            let to = SockRef::from(&socket).local_addr().unwrap().as_socket().unwrap();
            let listener = world.driver.listen(socket);
            let conn = world.connect(&to.into());
            world.until("accepted", |world| !world.accepted.is_empty());
            let (at, _, theirs) = world.accepted.remove(0);
            world.until("connected", |world| world.said(conn).connected.is_some());
            let ours = world.said(conn).connected.clone().unwrap();

            assert_eq!(at, listener);
            assert_eq!((&ours.peer, &ours.local), (&theirs.local, &theirs.peer));
            assert_eq!((ours.peer, theirs.uid), (Address::Inet(to), None));
            world.driver.unlisten(listener);
            world.until_quiet();
            assert_eq!(TcpStream::connect(to).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
    });
}

fn echo_over_unix(world: &mut World, name: &str, mut client: impl FnMut() -> UnixStream) {
    world.on_bytes = OnBytes::Echo;
    let mut far = client();
    world.until("accepted", |world| !world.accepted.is_empty());
    let (_, socket, ends) = world.accepted.remove(0);
    assert_eq!(ends.local, Address::Unix(name.into()));
    assert_eq!(ends.uid, Some(rustix::process::getuid().as_raw()));
    assert_eq!(ends.pid, Some(std::process::id()));
    let near = world.adopt(socket);
    far.write_all(b"hello").unwrap();
    world.until("hello", |world| world.said(near).count == 5);
    world.turn(Duration::ZERO);
    let mut back = [0; 5];
    far.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");

    world.on_bytes = OnBytes::Note;
    let conn = world.connect(&Address::Unix(name.into()));
    world.until("connected", |world| world.said(conn).connected.is_some());
    let ends = world.said(conn).connected.clone().unwrap();
    assert_eq!((ends.peer, ends.pid), (Address::Unix(name.into()), Some(std::process::id())));
}

#[test]
fn a_unix_socket_by_path() {
    over_each(|world| {
        let place = std::env::temp_dir().join(format!("io-{}-{}", std::process::id(), world.name));
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join("socket");
        // A dead process left this behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = io::listen_unix(&path, 10, Some(0o640), Some(0)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let again = io::listen_unix(&path, 10, None, None).unwrap_err();
        assert_eq!(
            (again.kind(), again.to_string().as_str()),
            (ErrorKind::AddrInUse, "unix socket is in use")
        );
        world.driver.listen(socket);
        // To find out that somebody listens, one has to dial.
        world.until("the one who tried", |world| !world.accepted.is_empty());
        world.accepted.clear();
        echo_over_unix(world, path.to_str().unwrap(), || UnixStream::connect(&path).unwrap());
        // What is no socket is not removed.
        let file = place.join("file");
        std::fs::write(&file, "precious").unwrap();
        assert_eq!(
            io::listen_unix(&file, 10, None, None).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        std::fs::remove_dir_all(&place).unwrap();
    });
}

#[test]
fn a_unix_socket_in_the_abstract() {
    over_each(|world| {
        let name = format!("io-{}-{}", std::process::id(), world.name);
        let at_name = format!("@{name}");
        let socket = io::listen_unix(&PathBuf::from(&at_name), 10, None, None).unwrap();
        assert!(io::listen_unix(&PathBuf::from(&at_name), 10, None, None).is_err());
        world.driver.listen(socket);
        echo_over_unix(world, &at_name, || {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap()
        });
    });
}

#[test]
fn who_says_nothing_is_not_accepted_where_that_is_asked_for() {
    over_each(|world| {
        world.driver.tune(&Tuning { defer_accept: true, ..Tuning::default() });
        let socket = io::listen_tcp(anywhere(), 10, false).unwrap();
        let to = SockRef::from(&socket).local_addr().unwrap().as_socket().unwrap();
        world.driver.listen(socket);
        let (mut speaks, _silent) =
            (TcpStream::connect(to).unwrap(), TcpStream::connect(to).unwrap());
        speaks.write_all(b"x").unwrap();
        world.until("one is accepted", |world| !world.accepted.is_empty());
        let (_, _, ends) = world.accepted.remove(0);
        assert_eq!(ends.peer, Address::Inet(speaks.local_addr().unwrap()));
        world.driver.tune(&Tuning::default());
        let late = TcpStream::connect(to).unwrap();
        world.until("another is", |world| !world.accepted.is_empty());
        let (_, _, ends) = world.accepted.remove(0);
        assert_eq!(ends.peer, Address::Inet(late.local_addr().unwrap()));
    });
}

/// Two listen on a port, and one goes: whoever it was given is accepted, whoever dials after that gets
/// through to the other, and nobody is reset.
#[test]
fn whoever_dials_while_one_of_two_goes_finds_the_other() {
    over_each(|world| {
        let stays = io::listen_tcp(anywhere(), 100, true).unwrap();
        let to = SockRef::from(&stays).local_addr().unwrap().as_socket().unwrap();
        let listener = world.driver.listen(io::listen_tcp(to, 100, true).unwrap());
        let before: Vec<_> = (0..20).map(|_| TcpStream::connect(to).unwrap()).collect();
        world.driver.tune(&Tuning { turn_away: true, ..Tuning::default() });
        let dialling: Vec<_> =
            (0..20).map(|_| std::thread::spawn(move || TcpStream::connect(to).unwrap())).collect();
        for _ in 0..5 {
            world.turn(Duration::from_millis(20));
        }
        world.driver.unlisten(listener);
        world.until_quiet();
        let after: Vec<_> = dialling.into_iter().map(|thread| thread.join().unwrap()).collect();
        let here: Vec<_> = world.accepted.drain(..).map(|(_, _, ends)| ends.peer).collect();
        let stays = std::net::TcpListener::from(std::os::fd::OwnedFd::from(stays));
        let mut there = Vec::new();
        while let Ok((_, peer)) = stays.accept() {
            there.push(Address::Inet(peer));
        }
        let known = |client: &TcpStream, list: &[Address]| {
            list.contains(&Address::Inet(client.local_addr().unwrap()))
        };
        assert!(after.iter().all(|client| known(client, &there)));
        assert!(before.iter().all(|client| known(client, &there) != known(client, &here)));
        assert!(!here.is_empty(), "the kernel gave none of 20 to the one that goes");
    });
}

#[test]
fn tuning_reaches_the_socket() {
    over_each(|world| {
        world.driver.tune(&Tuning {
            keepidle_s: 77,
            keepintvl_s: 7,
            keepcnt: 3,
            user_timeout_ms: 12_345,
            socket_buffer: 65_536,
            ..Tuning::default()
        });
        let (near, _far) = crate::world::tcp_pair();
        let watch = near.try_clone().unwrap();
        world.adopt(near);
        let socket = SockRef::from(&watch);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 77);
        assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 7);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap().unwrap().as_millis(), 12_345);
        assert_eq!(socket.send_buffer_size().unwrap(), 2 * 65_536);
    });
}

/// Both a client's connection and one that was dialled, where the peer is on this machine.
#[test]
fn nothing_is_paced_within_one_machine() {
    over_each(|world| {
        let listener = io::listen_tcp("127.0.0.1:0".parse().unwrap(), 8, false).unwrap();
        let here = SockRef::from(&listener).local_addr().unwrap().as_socket().unwrap();
        world.driver.listen(listener);
        let dialled = world.connect(&Address::Inet(here));
        world.until("a client", |world| !world.accepted.is_empty());
        let (_, socket, _) = world.accepted.pop().unwrap();
        let accepted = world.adopt(socket);
        world.until("up", |world| world.said(dialled).connected.is_some());
        for conn in [dialled, accepted] {
            // SAFETY: the driver has it open.
            let fd = unsafe { BorrowedFd::borrow_raw(world.driver.fd(conn).unwrap()) };
            let way = SockRef::from(&fd).tcp_congestion().unwrap();
            assert!(way.starts_with(b"reno"), "{}", way.escape_ascii());
        }
    });
}

/// Out of file descriptors, in a process of its own because the limit is the process's.
#[test]
fn running_out_of_descriptors() {
    let myself = std::env::current_exe().unwrap();
    let child = Command::new(myself)
        .args(["listening::out_of_descriptors", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
}

/// Accepting fails, is said once, and rests; with descriptors free again, it goes on.
#[test]
#[ignore = "run by running_out_of_descriptors"]
fn out_of_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(100); // io_uring remembers what it was when it began to accept
    setrlimit(Resource::Nofile, limit).unwrap();
    for kind in [Kind::IoUring, Kind::Readiness] {
        let mut world = World::new(kind);
        let socket = io::listen_tcp(anywhere(), 100, false).unwrap();
        let to = SockRef::from(&socket).local_addr().unwrap().as_socket().unwrap();
        let listener = world.driver.listen(socket);
        let before: Vec<_> = (0..10).map(|_| TcpStream::connect(to).unwrap()).collect();
        world.until("accepted", |world| world.accepted.len() == 10);

        let late: Vec<_> = (0..2).map(|_| TcpStream::connect(to).unwrap()).collect();
        let open = || std::fs::File::open("/dev/null").ok();
        let hoard: Vec<_> = std::iter::from_fn(open).collect();
        world.until("a failure", |world| !world.refused.is_empty());
        world.until_quiet();
        assert_eq!(world.refused.len(), 1, "once");
        assert_eq!(world.refused[0].0, listener);
        assert_eq!(world.refused[0].1.raw_os_error(), Some(libc::EMFILE));

        world.driver.listen_again(listener);
        world.until("another failure", |world| world.refused.len() == 2);
        let failed = world.connect(&to.into());
        world.until("the end", |world| world.said(failed).ended.is_some());
        drop(hoard);
        world.driver.listen_again(listener);
        world.until("the late ones", |world| world.accepted.len() == 12);
        drop((before, late));
    }
}
