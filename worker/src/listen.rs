//! Doors: listening sockets, and resting when the system has no more file descriptors.

use io::{Driver, Listener};
use pool::{Duration, Instant};

use crate::log::Level;
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
    resting_since: Option<Instant>,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// Listen on `socket`. Only the acceptor, worker 0, is given any.
    pub fn listen(&mut self, socket: D::Socket, name: String, is_unix: bool) {
        self.log(Level::Log, format_args!("listening on {name}"));
        let listener = self.driver.listen(socket);
        self.doors.push((listener, Door { name, is_unix, resting_since: None }));
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

    pub(crate) fn tick_doors(&mut self) {
        let now = self.now;
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
