//! The real world around a worker: the system's clock and dice, the log, the slow side.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use control::{Callers, Mailbox, Nowhere};
use io::Socket;
use jiff::Zoned;
use pool::Instant;
use worker::{About, Commons, Errand, Log, Mail, Resolution, World};

use crate::sink::Pen;
use crate::steward::Task;

/// What a worker thread has of the world.
pub(crate) struct Outside {
    pub(crate) start: std::time::Instant,
    pub(crate) pen: Pen,
    pub(crate) mailbox: Mailbox,
    pub(crate) callers: Callers,
    pub(crate) steward: Sender<Task>,
    pub(crate) commons: Arc<Commons<Socket>>,
}

impl World for Outside {
    fn now(&mut self) -> Instant {
        Instant(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall_us(&mut self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn dice(&mut self, bytes: &mut [u8]) {
        // Without random keys anybody could cancel anybody: better no pooler than that one.
        getrandom::fill(bytes).expect("the system's random source works");
    }

    fn zone(&mut self) -> (i32, String) {
        let now = Zoned::now();
        (now.offset().seconds(), now.strftime("%Z").to_string())
    }

    fn log(&mut self) -> &mut dyn Log {
        &mut self.pen
    }

    fn errand(&mut self, errand: Errand) {
        let commons = self.commons.clone();
        match errand {
            Errand::Derive { worker, party, job } => {
                let key = job.key();
                let back = move |derived| {
                    commons.mail(worker, Mail::Derived { party, key, derived });
                };
                // Where too many are in line already, this login goes on waiting and is turned
                // away by its timeout.
                let _ = self.mailbox.derive(job, back);
            }
            Errand::Vouch { worker, party, case } => {
                let back = self.commons.clone();
                let reply = move |verdict| commons.mail(worker, Mail::Vouched { party, verdict });
                if self.mailbox.vouch(case, reply).is_err() {
                    let verdict = Err("too many are being asked about".to_owned());
                    back.mail(worker, Mail::Vouched { party, verdict });
                }
            }
            Errand::Resolve { worker, name } => {
                let (back, host) = (self.commons.clone(), name.clone());
                let reply = move |found| {
                    let resolution = match found {
                        Ok(addresses) => Resolution::Addresses(addresses),
                        Err(Nowhere::NoSuchHost) => Resolution::NoSuchHost,
                        Err(Nowhere::Unanswered(why)) => Resolution::Unanswered(why),
                    };
                    commons.mail(worker, Mail::Resolved { name, resolution });
                };
                if self.mailbox.look_up(&host, reply).is_err() {
                    let why = "too many lookups under way".to_owned();
                    let resolution = Resolution::Unanswered(why);
                    back.mail(worker, Mail::Resolved { name: host, resolution });
                }
            }
            Errand::Serial { worker, zone } => {
                let (back, name) = (self.commons.clone(), zone.clone());
                let reply = move |serial| commons.mail(worker, Mail::Serial { zone, serial });
                if self.mailbox.serial(&name, reply).is_err() {
                    back.mail(worker, Mail::Serial { zone: name, serial: None });
                }
            }
            Errand::Learn { worker, party, about } => {
                let back = move |name: Option<String>| {
                    let name = name.map(String::into_boxed_str);
                    commons.mail(worker, Mail::Learnt { party, about, name });
                };
                // Where too many are in line already, this login, too, waits for its timeout: without
                // an answer, nobody knows which rule is its.
                let _ = match about {
                    About::Host(address) => self.callers.host_name(address, back),
                    About::Account(uid) => self.callers.account(uid, back),
                };
            }
            // The steward outlives the workers.
            Errand::Reload { ask } => drop(self.steward.send(Task::Reload { ask: Some(ask) })),
            Errand::Set { ask, key, value } => {
                drop(self.steward.send(Task::Set { ask, key, value }));
            }
            Errand::Shutdown { how } => drop(self.steward.send(Task::Shutdown { how })),
            Errand::Finished { worker } => drop(self.steward.send(Task::Finished { worker })),
            Errand::Present { worker, clients, servers } => {
                drop(self.steward.send(Task::Present { worker, clients, servers }));
            }
            Errand::Stats { line } => drop(self.steward.send(Task::Stats { line })),
        }
    }
}
