//! Each client to a server of its own: the smallest thing that uses a driver as the worker does.
//!
//! ```text
//! forward <auto|io_uring|readiness> [clients] [rounds]
//! ```
//!
//! starts a second process in which that many clients each send a message of 100 bytes that many
//! times through this one to a server that answers, and prints what one such round trip cost here.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use io::{Address, AnyDriver, Conn, Done, Driver, Kind, Socket, Tuning};
use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn std::error::Error>;

const MESSAGE: usize = 100;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    match args.first().map(String::as_str) {
        Some("load") => load(&args[1].parse::<SocketAddr>()?.into(), number(2, 0), number(3, 0)),
        kind => {
            let kind = match kind {
                Some("io_uring") => Kind::IoUring,
                Some("readiness") => Kind::Readiness,
                _ => Kind::Auto,
            };
            measure(kind, number(1, 50), number(2, 10_000))
        }
    }
}

/// Forward what the other process sends, and say what it cost.
fn measure(kind: Kind, clients: usize, rounds: usize) -> Result<(), Failure> {
    let (driver, name) = io::open(kind)?;
    let socket = io::listen_tcp("127.0.0.1:0".parse()?, 1024, false)?;
    let at = address(&socket)?;
    let mut load = Command::new(std::env::current_exe()?)
        .args(["load", &at.to_string(), &clients.to_string(), &rounds.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(load.stdout.take().ok_or("no output")?);
    let mut server = String::new();
    said.read_line(&mut server)?;

    let waker = driver.waker();
    let over = std::thread::spawn(move || {
        let _ = said.read_to_end(&mut Vec::new());
        waker.wake();
    });
    let mut forwarder = Forwarder::new(driver, server.trim().parse::<SocketAddr>()?.into());
    forwarder.driver.listen(socket);
    let begun = (Instant::now(), clock_gettime(ClockId::ProcessCPUTime));
    let turns = forwarder.run();
    let used = clock_gettime(ClockId::ProcessCPUTime) - begun.1;
    let wall = begun.0.elapsed();
    let trips = (clients * rounds) as f64;
    let used = used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3;
    println!(
        "{name}: {clients} clients, {:.2} us CPU, {:.2} us wall, {:.3} turns per round trip",
        used / trips,
        wall.as_micros() as f64 / trips,
        turns as f64 / trips,
    );
    over.join().map_err(|_| "the watcher fell")?;
    load.wait()?;
    Ok(())
}

fn address(socket: &Socket) -> Result<SocketAddr, Failure> {
    let address = socket2::SockRef::from(socket).local_addr()?;
    Ok(address.as_socket().ok_or("no address")?)
}

struct Forwarder {
    driver: AnyDriver,
    to: Address,
    /// By connection: the other one.
    partners: Vec<Option<Conn>>,
    high_water: usize,
}

impl Forwarder {
    fn new(driver: AnyDriver, to: Address) -> Self {
        let high_water = Tuning::default().high_water;
        Self { driver, to, partners: Vec::new(), high_water }
    }

    /// Until somebody wakes the driver. Says how often it went around.
    fn run(&mut self) -> usize {
        let mut done = Vec::new();
        for turns in 1.. {
            self.driver.turn(Some(Duration::from_secs(10)), &mut done);
            for done in done.drain(..) {
                if matches!(done, Done::Woken) {
                    return turns;
                }
                self.forward(done);
            }
        }
        0
    }

    fn forward(&mut self, done: Done<Socket>) {
        match done {
            Done::Received { conn, bytes } => {
                if let Some(partner) = self.partner(conn) {
                    self.driver.send(partner, bytes);
                    if self.driver.unsent(partner) > self.high_water {
                        self.driver.pause(conn);
                    }
                }
            }
            Done::Drained { conn } => {
                if let Some(partner) = self.partner(conn) {
                    self.driver.resume(partner);
                }
            }
            Done::Accepted { socket, .. } => {
                let client = self.driver.adopt(socket);
                let server = self.driver.connect(&self.to);
                self.pair(client, server);
            }
            Done::Ended { conn, .. } => {
                if let Some(partner) = self.partner(conn) {
                    self.driver.finish(partner);
                }
                self.driver.abort(conn);
            }
            Done::Closed { conn } => {
                if let Some(partner) = self.partners[conn.0 as usize].take() {
                    self.partners[partner.0 as usize] = None;
                }
            }
            Done::AcceptFailed { listener, .. } => self.driver.listen_again(listener),
            Done::Connected { .. } | Done::Secured { .. } | Done::Detached { .. } | Done::Woken => {
            }
        }
    }

    fn partner(&self, conn: Conn) -> Option<Conn> {
        self.partners[conn.0 as usize]
    }

    fn pair(&mut self, one: Conn, other: Conn) {
        let needed = one.0.max(other.0) as usize + 1;
        if self.partners.len() < needed {
            self.partners.resize(needed, None);
        }
        self.partners[one.0 as usize] = Some(other);
        self.partners[other.0 as usize] = Some(one);
    }
}

/// The other process: clients, and the server they talk to.
fn load(through: &Address, clients: usize, rounds: usize) -> Result<(), Failure> {
    let socket = io::listen_tcp("127.0.0.1:0".parse()?, 1024, false)?;
    println!("{}", address(&socket)?);
    std::thread::spawn(move || answer(socket));
    let (mut driver, _) = io::open(Kind::Auto)?;
    let mut left = vec![rounds; clients];
    let mut heard = vec![0; clients];
    for _ in 0..clients {
        let conn = driver.connect(through);
        assert!((conn.0 as usize) < clients, "slots are dense");
    }
    let (mut done, mut busy) = (Vec::new(), clients);
    while busy > 0 {
        driver.turn(None, &mut done);
        for done in done.drain(..) {
            match done {
                Done::Connected { conn, .. } => driver.write(conn, &[b'q'; MESSAGE]),
                Done::Received { conn, bytes } => {
                    let at = conn.0 as usize;
                    heard[at] += bytes.len();
                    if heard[at] < MESSAGE {
                        continue;
                    }
                    heard[at] = 0;
                    left[at] -= 1;
                    match left[at] {
                        0 => busy -= 1,
                        _ => driver.write(conn, &[b'q'; MESSAGE]),
                    }
                }
                Done::Ended { conn, error } => return Err(format!("{conn:?} {error:?}").into()),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A server that says back what it hears.
fn answer(socket: Socket) {
    let Ok((mut driver, _)) = io::open(Kind::Auto) else { return };
    driver.listen(socket);
    let mut done = Vec::new();
    loop {
        driver.turn(None, &mut done);
        for done in done.drain(..) {
            match done {
                Done::Accepted { socket, .. } => drop(driver.adopt(socket)),
                Done::Received { conn, bytes } => driver.send(conn, bytes),
                Done::Ended { conn, .. } => driver.abort(conn),
                _ => {}
            }
        }
    }
}
