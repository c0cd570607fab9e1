//! What workers, and the slow side, tell each other.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use admin::{Facts, Refusal};
use auth::{Derived, JobKey};
use config::Database;
use io::{Ends, Waker};
use pool::{Calling, PoolId, WorkerId};

use crate::dial::Traveller;
use crate::ears::Word;
use crate::names::{Resolution, Sought};
use crate::order::Order;
use crate::peers::Parcel;
use crate::world::About;

/// One letter. Every letter stands for one socket, server, order or answer that exists, so the
/// boxes are bounded by those.
pub enum Mail<S> {
    /// A client that dialled in at the acceptor, dealt to this worker.
    Client { socket: S, ends: Ends },
    /// A server that another worker hands over.
    Server(Box<Traveller<S>>),
    /// Worker `from` has clients waiting in `pool`, and saw idle servers here.
    Nudge { pool: PoolId, from: WorkerId },
    /// There was nothing to give in `pool`.
    NoIdle { pool: PoolId, from: WorkerId },
    /// The bank calls.
    Call { pool: PoolId, calling: Calling },
    /// Someone wants the query of this key's client cancelled.
    Cancel { pid: u32, key: Box<[u8]>, asker: Asker },
    /// What became of it: the asker's connection can be closed.
    Cancelled { asker: Asker },
    /// The query of somebody else's client is to be cancelled: to be carried to that process.
    Parcel(Parcel),
    /// The console, on worker `from`, wants facts or something done.
    Order { order: Order, ask: Option<Ask> },
    /// What was done.
    Answer { ask: Ask, answer: Answer },
    /// A host name's addresses, or why there are none.
    Resolved { name: Arc<str>, resolution: Resolution },
    /// The same, from the worker that had asked to one that waits for it. None is nowhere.
    Found { sought: Sought, name: Arc<str>, addresses: Vec<IpAddr> },
    /// A host name means other addresses than before.
    Moved { name: Arc<str> },
    /// A zone's serial number, if somebody knew it.
    Serial { zone: String, serial: Option<u32> },
    /// Whether a password is right, for the login that asked; or why not, for the log.
    Vouched { party: Party, verdict: Result<(), String> },
    /// What was found out about a client that is logging in; `None` where there is no such name.
    Learnt { party: Party, about: About, name: Option<Box<str>> },
    /// About listening in `pool`.
    Ear { pool: PoolId, word: Word },
    /// A client of the database `by` ended the one in this slot that was given this pid.
    End { slot: u32, pid: u32, by: Arc<Database> },
    /// Keys derived from a password, for the login that asked.
    Derived { party: Party, key: Option<JobKey>, derived: Derived },
}

/// Whom a letter of the slow side is for. Slots are used again, ids never: a stale letter finds
/// another id and is thrown away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Party {
    Client { slot: u32, id: u64 },
    Server { slot: u32, id: u64 },
}

/// The connection on which a CancelRequest came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asker {
    pub worker: WorkerId,
    pub slot: u32,
    pub id: u64,
}

/// One question of a worker to all, by its number there.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ask {
    pub from: WorkerId,
    pub number: u64,
}

/// What comes back.
pub enum Answer {
    Done,
    Facts(Box<Facts>),
    /// What the admin is told instead.
    Failed(Refusal),
    /// KILL_CLIENT found its client here, or not.
    Found(bool),
}

/// A worker's letter box: anyone may put letters in.
pub struct LetterBox<S> {
    sender: Sender<Mail<S>>,
    waker: Waker,
}

impl<S> LetterBox<S> {
    /// A box that wakes its owner by `waker`, and the owner's end of it.
    pub fn new(waker: Waker) -> (Self, Receiver<Mail<S>>) {
        let (sender, receiver) = channel();
        (Self { sender, waker }, receiver)
    }

    /// Put `mail` in and wake the owner. A worker that is gone takes no mail, and the process is
    /// on its way out then.
    pub fn put(&self, mail: Mail<S>) {
        if self.sender.send(mail).is_ok() {
            self.waker.wake();
        }
    }
}
