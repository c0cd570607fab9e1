//! Sockets of a real kernel: opening, naming, tuning.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvFlags, Shutdown, SocketFlags, accept_with};
use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};

use crate::tls::Seal;
use crate::{Address, Ends, Tuning};

/// An open socket, listening or connected, on its way into a driver or between two of them.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Came out of a driver by `detach`: its options are set.
    tuned: bool,
    /// Whoever dialled in by TCP is on this machine.
    nearby: bool,
    /// Listens, and other processes may do so on the same port.
    pub(crate) shares_port: bool,
    /// The TLS session that is spoken on it.
    seal: Option<Box<Seal>>,
}

impl Socket {
    /// Who is at the two ends. Fails where the peer has already gone.
    pub fn ends(&self) -> io::Result<Ends> {
        ends(self.as_fd())
    }

    /// Somebody dialled in. `fd` is non-blocking already. `None`: a client that has gone already is nobody's.
    pub(crate) fn accepted(fd: OwnedFd) -> Option<(Self, Ends)> {
        let ends = ends(fd.as_fd()).ok()?;
        let nearby = ends.peer.is_loopback();
        Some((Self { fd, tuned: false, nearby, shares_port: false, seal: None }, ends))
    }

    pub(crate) fn detached(fd: OwnedFd) -> Self {
        Self { fd, tuned: true, nearby: false, shares_port: false, seal: None }
    }

    pub(crate) fn sealed(self, seal: Option<Box<Seal>>) -> Self {
        Self { seal, ..self }
    }

    /// The TLS session that came with it.
    pub(crate) fn take_seal(&mut self) -> Option<Box<Seal>> {
        self.seal.take()
    }

    /// The file descriptor, with the options that `tuning` asks for.
    pub(crate) fn tuned(self, tuning: &Tuning) -> OwnedFd {
        if !self.tuned {
            tune(self.fd.as_fd(), tuning, self.nearby);
        }
        self.fd
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

impl From<OwnedFd> for Socket {
    /// The socket becomes non-blocking.
    fn from(fd: OwnedFd) -> Self {
        // Cannot fail on an open socket; and if it did, io_uring does not mind.
        let _ = SockRef::from(&fd).set_nonblocking(true);
        Self { fd, tuned: false, nearby: false, shares_port: false, seal: None }
    }
}

macro_rules! from_std {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Socket {
            fn from(socket: $kind) -> Self {
                Self::from(OwnedFd::from(socket))
            }
        }
    )*};
}

from_std!(TcpListener, TcpStream, UnixListener, UnixStream, socket2::Socket);

/// A TCP listener on `address`, v4 or v6; a v6 one takes no v4 clients.
pub fn listen_tcp(address: SocketAddr, backlog: u32, reuse_port: bool) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Without it, a restarted pooler could not bind while old connections linger in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(Socket { shares_port: reuse_port, ..listen(socket, backlog)? })
}

/// A unix listener at `path`, or in the abstract namespace if it starts with `@`.
///
/// A socket file that a dead process left behind is removed; one that somebody listens at is an
/// error. `mode` and `group` (a gid) are given to the file where they are said.
pub fn listen_unix(
    path: &Path,
    backlog: u32,
    mode: Option<u32>,
    group: Option<u32>,
) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = unix_address(path)?;
    if is_abstract(path) {
        socket.bind(&address)?;
        return listen(socket, backlog);
    }
    remove_stale(path, &address)?;
    socket.bind(&address)?;
    if let Some(gid) = group {
        std::os::unix::fs::chown(path, None, Some(gid))?;
    }
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    // Nobody can dial before this, so nobody gets in before the mode is right.
    listen(socket, backlog)
}

fn listen(socket: socket2::Socket, backlog: u32) -> io::Result<Socket> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

fn is_abstract(path: &Path) -> bool {
    path.as_os_str().as_bytes().first() == Some(&b'@')
}

/// As the kernel writes it: an abstract name begins with a zero byte.
fn unix_address(path: &Path) -> io::Result<SockAddr> {
    if !is_abstract(path) {
        return SockAddr::unix(path);
    }
    let mut name = path.as_os_str().as_bytes().to_vec();
    if let Some(first) = name.first_mut() {
        *first = 0;
    }
    SockAddr::unix(std::ffi::OsStr::from_bytes(&name))
}

/// Remove the socket file of a listener that is no more.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    let Ok(file) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Ok(()); // bind says that the address is in use, and it is right
    }
    let dial = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    dial.set_nonblocking(true)?; // a full backlog must not block us: it too means somebody is there
    match dial.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Not one that somebody put there since.
            match std::fs::symlink_metadata(path) {
                Ok(now) if now.st_ino() == file.st_ino() => std::fs::remove_file(path),
                _ => Ok(()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "unix socket is in use")),
    }
}

/// A new socket for dialling `to`, and the address as the kernel writes it.
pub(crate) fn for_dialling(to: &Address, tuning: &Tuning) -> io::Result<(OwnedFd, SockAddr)> {
    let address = match to {
        Address::Inet(address) => SockAddr::from(*address),
        Address::Unix(path) => unix_address(path)?,
    };
    let socket = socket2::Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let fd = OwnedFd::from(socket);
    tune(fd.as_fd(), tuning, to.is_loopback());
    Ok((fd, address))
}

/// Set what `tuning` asks for. What the kernel refuses stays as it was: a connection with the
/// system's keepalive is better than none.
fn tune(fd: BorrowedFd<'_>, tuning: &Tuning, nearby: bool) {
    let socket = SockRef::from(&fd);
    if socket.set_tcp_nodelay(true).is_err() {
        return; // a unix socket has none of these options
    }
    if nearby {
        // Within one machine there is no path to be sparing of, and where the system's way is to measure and pace
        // (BBR), each message pays for it. This one is always there, and does next to nothing.
        let _ = socket.set_tcp_congestion(b"reno");
    }
    if tuning.keepalive && socket.set_keepalive(true).is_ok() {
        let mut keepalive = TcpKeepalive::new();
        if tuning.keepidle_s > 0 {
            keepalive = keepalive.with_time(Duration::from_secs(tuning.keepidle_s.into()));
        }
        if tuning.keepintvl_s > 0 {
            keepalive = keepalive.with_interval(Duration::from_secs(tuning.keepintvl_s.into()));
        }
        if tuning.keepcnt > 0 {
            keepalive = keepalive.with_retries(tuning.keepcnt);
        }
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
    if tuning.user_timeout_ms > 0 {
        let timeout = Duration::from_millis(tuning.user_timeout_ms.into());
        let _ = socket.set_tcp_user_timeout(Some(timeout));
    }
    if tuning.socket_buffer > 0 {
        let bytes = tuning.socket_buffer as usize;
        let _ = socket.set_recv_buffer_size(bytes);
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// More than the kernel ever keeps in a backlog.
const BACKLOG_MAX: usize = 1 << 16;

/// Those whom the kernel has connected by `fd`, and whom closing it would reset.
pub(crate) fn backlog(fd: BorrowedFd<'_>) -> impl Iterator<Item = (Socket, Ends)> {
    let next = move |_| accept_with(fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok();
    (0..BACKLOG_MAX).map_while(next).filter_map(Socket::accepted)
}

/// How long clients who send nothing are held back at most, as PgBouncer has it.
const DEFER_ACCEPT_S: libc::c_int = 45;

/// Set what `tuning` asks of a socket that listens. A unix socket knows none of it.
pub(crate) fn tune_listener(fd: BorrowedFd<'_>, shares_port: bool, tuning: &Tuning) {
    let leaving = tuning.turn_away && shares_port;
    let defer = if tuning.defer_accept && !leaving { DEFER_ACCEPT_S } else { 0 };
    // SAFETY: the option is an int.
    unsafe { set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &defer) };
    if leaving {
        turn_away(fd);
    }
}

/// Let nobody new in by `fd`: the kernel drops the first packet of whoever dials, who dials again within
/// a second and by then finds another process on the port. Those it has begun to connect still come in. Had
/// we closed at once, it would have reset them, and all it had connected already.
fn turn_away(fd: BorrowedFd<'_>) {
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const SYN_OR_ACK: u32 = 0x12;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The packet begins with the TCP header.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS_AT),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN_OR_ACK),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the option is a sock_fprog, whose steps outlive the call; the kernel copies them.
    unsafe { set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) };
}

/// Where it fails, the socket stays as it was, and does.
///
/// # Safety
/// `T` is what the kernel reads for this option.
unsafe fn set_option<T>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is as long as we say.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
}

/// Who is at the two ends of `fd`.
pub(crate) fn ends(fd: BorrowedFd<'_>) -> io::Result<Ends> {
    let socket = SockRef::from(&fd);
    let peer = address(&socket.peer_addr()?)?;
    let local = address(&socket.local_addr()?)?;
    let credentials =
        if peer.is_unix() { rustix::net::sockopt::socket_peercred(fd).ok() } else { None };
    Ok(Ends {
        peer,
        local,
        uid: credentials.map(|known| known.uid.as_raw()),
        pid: credentials.and_then(|known| u32::try_from(known.pid.as_raw_nonzero().get()).ok()),
    })
}

/// Most that is read of a connection that takes nothing more.
const REMAINS_MAX: usize = 1 << 20;
const PIECE: usize = 16 * 1024;

/// What came in on `fd` before sending on it failed: a server says why it hangs up, and resets.
pub(crate) fn remains(fd: BorrowedFd<'_>) -> impl Iterator<Item = Vec<u8>> {
    let mut pieces = 0..REMAINS_MAX / PIECE;
    std::iter::from_fn(move || {
        pieces.next()?;
        let mut piece = vec![0; PIECE];
        let (_, length) = rustix::net::recv(fd, &mut piece[..], RecvFlags::DONTWAIT).ok()?;
        piece.truncate(length);
        (length > 0).then_some(piece)
    })
}

/// All was sent; close `fd` in a way that it also arrives.
pub(crate) fn say_goodbye(fd: &OwnedFd) {
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
    // Closing with something unread resets the connection, which may overtake what was sent.
    let mut piece = [0; PIECE];
    for _ in 0..REMAINS_MAX / PIECE {
        match rustix::net::recv(fd, &mut piece, RecvFlags::DONTWAIT) {
            Ok((_, 1..)) => {}
            _ => return,
        }
    }
}

/// An error of `accept` that concerns one client only, or nobody: accept the next.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::ECANCELED
                | libc::EINTR
                | libc::EAGAIN
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
        )
    )
}

fn address(raw: &SockAddr) -> io::Result<Address> {
    if let Some(address) = raw.as_socket() {
        return Ok(Address::Inet(address));
    }
    if !raw.is_unix() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "neither IP nor unix socket"));
    }
    let path = match (raw.as_pathname(), raw.as_abstract_namespace()) {
        (Some(path), _) => path.to_path_buf(),
        (None, Some(name)) => {
            let name = [b"@", name].concat();
            PathBuf::from(<std::ffi::OsStr as OsStrExt>::from_bytes(&name))
        }
        (None, None) => PathBuf::new(),
    };
    Ok(Address::Unix(path))
}
