//! Who dials us, as far as the system knows: the name of a client's host, the account of a process.
//! The system may ask a name server, or a directory, and take its time.

use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crossbeam_channel::{Sender, TrySendError, bounded};
use nix::unistd::{Uid, User};

use crate::Refused;

/// Most questions in line.
const QUESTIONS_MAX: usize = 1024;

/// Each thread can be held up by one dead name server.
const THREADS: usize = 2;

/// Where questions about callers are put in, from any thread. The threads end with the last copy.
#[derive(Clone)]
pub struct Callers(Sender<Box<dyn FnOnce() + Send>>);

impl Callers {
    /// Starts the threads. Fails if the kernel has none to give.
    pub fn start() -> io::Result<Self> {
        let (sender, questions) = bounded::<Box<dyn FnOnce() + Send>>(QUESTIONS_MAX);
        for number in 0..THREADS {
            let questions = questions.clone();
            let work = move || {
                for question in questions {
                    // One that panics costs its own answer, and not everyone's after it.
                    let _ = catch_unwind(AssertUnwindSafe(question));
                }
            };
            // Not waited for at the end: it may hang in the system's library.
            thread::Builder::new().name(format!("callers-{number}")).spawn(work)?;
        }
        Ok(Self(sender))
    }

    /// The name of the host at `address`, if that name has the address among its own: whoever runs
    /// the reverse zone of an address could otherwise call it what he likes.
    pub fn host_name(
        &self,
        address: IpAddr,
        reply: impl FnOnce(Option<String>) + Send + 'static,
    ) -> Result<(), Refused> {
        self.put(Box::new(move || reply(host_name(address))))
    }

    /// The name of the system's account `uid`.
    pub fn account(
        &self,
        uid: u32,
        reply: impl FnOnce(Option<String>) + Send + 'static,
    ) -> Result<(), Refused> {
        self.put(Box::new(move || reply(account(uid))))
    }

    fn put(&self, question: Box<dyn FnOnce() + Send>) -> Result<(), Refused> {
        self.0.try_send(question).map_err(|error| match error {
            TrySendError::Full(_) => Refused::Full,
            TrySendError::Disconnected(_) => Refused::Stopped,
        })
    }
}

fn host_name(address: IpAddr) -> Option<String> {
    let address = address.to_canonical();
    let name = dns_lookup::lookup_addr(&address).ok()?;
    // A host without a name is called by its address.
    if name.is_empty() || name.parse::<IpAddr>().is_ok() {
        return None;
    }
    let mut own = dns_lookup::lookup_host(&name).ok()?;
    own.any(|found| found.to_canonical() == address).then_some(name)
}

fn account(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn questions_about_callers_are_answered() {
        let callers = Callers::start().expect("threads");
        let (tell, told) = bounded(1);
        let reply = tell.clone();
        callers.account(0, move |name| reply.send(name).expect("awaited")).expect("room");
        let patience = Duration::from_secs(20);
        assert_eq!(told.recv_timeout(patience), Ok(Some("root".to_owned())));
        // What it is called, and whether at all, is the machine's affair; that it is answered is ours.
        let reply = move |name| tell.send(name).expect("awaited");
        callers.host_name(Ipv4Addr::LOCALHOST.into(), reply).expect("room");
        let name = told.recv_timeout(patience).expect("an answer");
        assert!(name.is_none_or(|name| !name.is_empty()));
    }
}
