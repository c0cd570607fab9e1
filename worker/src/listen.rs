//! Doors: listening sockets, and resting when the system has no more file descriptors.

use io::{Driver, Listener};
use pool::{Duration, Instant};

use crate::log::Level;
use crate::order::Shutdown;
use crate::worker::Worker;
use crate::world::World;

/// How long a listener rests after `accept` failed.
const REST: Duration = Duration::from_secs(5);

/// The same, once a connection has been closed meanwhile.
const SHORT_REST: Duration = Duration::from_millis(100);

/// A listening socket of the acceptor.
pub(crate) struct Door {
    /// As in the log: `127.0.0.1:6432`, `unix:/tmp/.s.PGSQL.6432`.
    pub(crate) name: String,
    pub(crate) is_unix: bool,
    /// For SHOW FDS.
    pub(crate) fd: i32,
    resting_since: Option<Instant>,
    /// The process is on its way out, and this is still open for those who are coming in.
    leaving_since: Option<Instant>,
}

/// How long a door that others have too is kept open. The kernel has connected clients who have said
/// nothing yet (`tcp_defer_accept`); no longer held back, they come in when it next asks after them, which it
/// does after a second.
const STAY_OPEN: Duration = Duration::from_millis(1200);

/// Then, how long for those whom it is connecting: a round trip or two. Whoever dials meanwhile is let in
/// elsewhere when it dials again, a second later.
const LAST_CALL: Duration = Duration::from_millis(400);

impl<D: Driver, W: World> Worker<D, W> {
    /// Listen on `socket`, whose descriptor has the number `fd`. Only the acceptor, worker 0, is given any.
    pub fn listen(&mut self, socket: D::Socket, name: String, is_unix: bool, fd: i32) {
        self.log(Level::Log, format_args!("listening on {name}"));
        let listener = self.driver.listen(socket);
        self.doors
            .push((listener, Door { name, is_unix, fd, resting_since: None, leaving_since: None }));
    }

    pub(crate) fn door_opened(&mut self, listener: Listener) {
        if let Some((_, door)) = self.doors.iter_mut().find(|(known, _)| *known == listener) {
            door.resting_since = None;
        }
    }

    /// Out of file descriptors, as a rule. Those who are in go on being served; those who knock
    /// wait in the kernel's backlog.
    pub(crate) fn accept_failed(&mut self, listener: Listener, error: &std::io::Error) {
        let now = self.now;
        let Some((_, door)) = self.doors.iter_mut().find(|(known, _)| *known == listener) else {
            return;
        };
        door.resting_since = Some(now);
        let name = door.name.clone();
        self.log(Level::Error, format_args!("accept() failed on {name}: {error}"));
    }

    /// No new clients, but admins, who may want to watch: the unix socket stays for them.
    pub(crate) fn close_doors(&mut self) {
        let now = self.now;
        for (_, door) in self.doors.iter_mut().filter(|(_, door)| !door.is_unix) {
            door.leaving_since.get_or_insert(now);
        }
        // Where others listen on the same port, whoever has been connected is served, and not reset.
        if !self.site.config.settings.so_reuseport {
            self.shut_doors(|_| true);
        }
    }

    /// Close those doors that are to be closed, where it is time.
    fn shut_doors(&mut self, is_time: impl Fn(Instant) -> bool) {
        for (listener, door) in std::mem::take(&mut self.doors) {
            if door.leaving_since.is_some_and(&is_time) {
                self.driver.unlisten(listener);
                self.log(Level::Log, format_args!("stopped listening on {}", door.name));
            } else {
                self.doors.push((listener, door));
            }
        }
    }

    /// Whether a client comes when the pooler is on its way out. Where other processes are on the same
    /// port, it could not know that this was the wrong one, and is served like the others we wait for.
    pub(crate) fn is_too_late(&self, slot: u32) -> bool {
        let served = self.standing.shutdown == Some(Shutdown::WaitForClients)
            && self.site.config.settings.so_reuseport
            && !self.clients[slot as usize].card.ends.is_unix()
            && !self.standing.finished;
        self.standing.shutdown.is_some() && !served
    }

    /// The stations of a door's end.
    fn tick_leaving(&mut self) {
        let now = self.now;
        if self.standing.shutdown.is_none() || self.me.0 != 0 {
            return;
        }
        let passed = |after: Duration| move |since: Instant| since.after(after) <= now;
        let leaving = || self.doors.iter().filter_map(|(_, door)| door.leaving_since);
        if leaving().next().is_none() {
            // Whom the driver had accepted by then has been dealt out by now.
            return self.commons.shut_doors();
        }
        if leaving().any(passed(STAY_OPEN)) && self.turning_away.is_none() {
            self.turning_away = Some(now);
            self.tune();
        }
        // From then on it is reckoned: however late this worker is, there is a last call.
        if self.turning_away.is_some_and(passed(LAST_CALL)) {
            self.shut_doors(|_| true);
        }
    }

    pub(crate) fn tick_doors(&mut self) {
        let now = self.now;
        self.tick_leaving();
        // Somebody left: his descriptor is free, and whoever knocks need not wait any longer.
        let rest = if std::mem::take(&mut self.closed_some) { SHORT_REST } else { REST };
        for (listener, door) in &mut self.doors {
            if door.resting_since.is_some_and(|since| since.after(rest) <= now) {
                door.resting_since = None;
                self.driver.listen_again(*listener);
            }
        }
    }
}
