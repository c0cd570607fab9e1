//! The control threads: one makes keys, one asks for host names, one asks who vouches for
//! a password.

use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use auth::{Derived, Job};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select_biased};
use tokio::sync::mpsc;

use crate::names::{Names, Nowhere, Question, Sources};
use crate::vouch::{Verdict, Vouchers};

/// The slow side, as long as it is not stopped or dropped.
pub struct Control {
    mailbox: Mailbox,
    /// Nothing is ever sent: when it is dropped, the threads go home.
    open: Option<Sender<Never>>,
    keys: Option<JoinHandle<()>>,
    names: Option<Names>,
}

enum Never {}

impl Control {
    /// Starts the threads. Fails if the kernel has none to give.
    pub fn start(limits: Limits, sources: Sources) -> io::Result<Self> {
        let (open, closed) = bounded(0);
        let (derive, derivations) = bounded::<Derivation>(limits.derivations);
        let keys = {
            let work = move |Derivation { job, reply }| reply(job.run());
            spawn("keys".into(), move || serve(&derivations, &closed, work))?
        };
        let (names, ask) = Names::start(sources, limits.lookups)?;
        let vouchers = Vouchers::start(ask.clone())?;
        let mailbox = Mailbox { derive, ask, vouchers };
        Ok(Self { mailbox, open: Some(open), keys: Some(keys), names: Some(names) })
    }

    /// Where work is put in, from any thread.
    #[must_use]
    pub fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Finishes the derivation at hand, and drops all else unanswered.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.open.take());
        drop(self.names.take());
        if let Some(keys) = self.keys.take() {
            // What panics in there is caught there.
            let _ = keys.join();
        }
    }
}

/// How much the slow side takes on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most derivations in line. One takes a millisecond or more.
    pub derivations: usize,
    /// Most host names in line.
    pub lookups: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { derivations: 1024, lookups: 1024 }
    }
}

/// Where work is put in. What is refused is dropped, and its `reply` never called.
#[derive(Clone)]
pub struct Mailbox {
    derive: Sender<Derivation>,
    ask: mpsc::Sender<Question>,
    vouchers: Vouchers,
}

impl Mailbox {
    /// Has `job` done; `reply` is called on another thread, and should only pass the outcome on.
    pub fn derive(
        &self,
        job: Job,
        reply: impl FnOnce(Derived) + Send + 'static,
    ) -> Result<(), Refused> {
        put(&self.derive, Derivation { job, reply: Box::new(reply) })
    }

    /// Has somebody else look at a password.
    pub fn vouch(
        &self,
        case: auth::vouch::Case,
        reply: impl FnOnce(Verdict) + Send + 'static,
    ) -> Result<(), Refused> {
        self.vouchers.put(case, reply)
    }

    /// Asks for the addresses of `host`, which may be an address itself. There is at least one if
    /// it does not fail; none comes twice.
    pub fn look_up(
        &self,
        host: &str,
        reply: impl FnOnce(Result<Vec<IpAddr>, Nowhere>) + Send + 'static,
    ) -> Result<(), Refused> {
        self.ask(Question::Addresses { host: host.into(), reply: Box::new(reply) })
    }

    /// Asks for the serial number of `zone`, which changes with what is in it.
    pub fn serial(
        &self,
        zone: &str,
        reply: impl FnOnce(Option<u32>) + Send + 'static,
    ) -> Result<(), Refused> {
        self.ask(Question::Serial { zone: zone.into(), reply: Box::new(reply) })
    }

    fn ask(&self, question: Question) -> Result<(), Refused> {
        self.ask.try_send(question).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refused::Full,
            mpsc::error::TrySendError::Closed(_) => Refused::Stopped,
        })
    }
}

/// Work that was not taken on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// The line is at its limit.
    Full,
    /// The slow side has been stopped.
    Stopped,
}

struct Derivation {
    job: Job,
    reply: Box<dyn FnOnce(Derived) + Send>,
}

fn put<T>(line: &Sender<T>, work: T) -> Result<(), Refused> {
    line.try_send(work).map_err(|error| match error {
        TrySendError::Full(_) => Refused::Full,
        TrySendError::Disconnected(_) => Refused::Stopped,
    })
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(work)
}

/// One thread's life.
fn serve<T>(line: &Receiver<T>, closed: &Receiver<Never>, work: impl Fn(T)) {
    loop {
        let next = select_biased! {
            recv(closed) -> _ => return,
            recv(line) -> next => next,
        };
        let Ok(next) = next else { return };
        // A reply that panics costs its own answer, and not everyone's after it.
        let _ = catch_unwind(AssertUnwindSafe(|| work(next)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use auth::{Account, Claim, ClientAuth, Decoy, Dice, Form, Method, Secret, Step};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// What a client's password, held against a verifier, gives to do.
    fn job() -> Job {
        let verifier = Secret::parse(
            b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
              WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        );
        let claim = Claim {
            method: Method::Plain,
            user: b"ann",
            account: Account::Secret(verifier),
            channel: auth::Channel::Open,
        };
        let dice = Dice { nonce: [1; 18], md5_salt: [2; 4] };
        let decoy = Decoy::new([3; 32], 4096, Form::Scram);
        let (mut auth, _) = ClientAuth::start(claim, &decoy, dice);
        match auth.answer(b"pencil\0") {
            Step::Derive(job) => job,
            other => panic!("nothing to derive: {other:?}"),
        }
    }

    #[test]
    fn keys_and_names_are_answered() {
        let control = Control::start(Limits::default(), Sources::default()).expect("threads");
        let (done, seen) = bounded(2);
        let keys = done.clone();
        control
            .mailbox()
            .derive(job(), move |_| keys.send("keys").expect("awaited"))
            .expect("room");
        assert_eq!(seen.recv_timeout(PATIENCE), Ok("keys"));

        let (names, found) = bounded(1);
        let reply = move |result| names.send(result).expect("awaited");
        control.mailbox().look_up("127.0.0.1", reply).expect("room");
        let found = found.recv_timeout(PATIENCE).expect("answered").expect("an address");
        assert_eq!(found, [IpAddr::from([127, 0, 0, 1])]);
    }

    /// What exceeds the line is refused at once, and after the end everything is.
    #[test]
    fn the_line_has_an_end() {
        let limits = Limits { derivations: 1, ..Limits::default() };
        let control = Control::start(limits, Sources::default()).expect("threads");
        let mailbox = control.mailbox();
        let (let_go, held) = bounded::<()>(0);
        mailbox.derive(job(), move |_| _ = held.recv()).expect("room");
        // One held, one in line; how soon they are taken is the thread's affair.
        while mailbox.derive(job(), |_| {}) != Err(Refused::Full) {
            thread::yield_now();
        }
        drop(let_go);
        control.stop();
        assert_eq!(mailbox.derive(job(), |_| {}), Err(Refused::Stopped));
        assert_eq!(mailbox.look_up("db", |_| {}), Err(Refused::Stopped));
    }

    #[test]
    fn a_reply_that_panics_costs_only_itself() {
        let control = Control::start(Limits::default(), Sources::default()).expect("threads");
        control.mailbox().derive(job(), |_| panic!("on purpose")).expect("room");
        let (done, seen) = bounded(1);
        control.mailbox().derive(job(), move |_| done.send(()).expect("awaited")).expect("room");
        assert_eq!(seen.recv_timeout(PATIENCE), Ok(()));
    }
}
