//! The servers of one pool on one worker, each in one place.

use core::ops::{Index, IndexMut};

use crate::register::{At, List, Register};
use crate::{ClientId, Instant, ServerId, WorkerId};

/// Where a server can be: the columns of SHOW POOLS. A server is in exactly one place, and the
/// counts are the lengths of the places.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// On the way to its first `ReadyForQuery`.
    Connecting,
    /// Ready to be linked. Longest idle first.
    Idle,
    /// Idle for longer than `server_check_delay`: to be checked before it is linked. Longest idle first.
    Used,
    /// Under `server_reset_query` or `server_check_query`.
    Testing,
    /// A client's.
    Linked,
    /// Free, but a cancel request sent for what ran on it may still arrive.
    Canceled,
    /// Promised to another worker, and not mailed yet.
    Leaving,
}

/// How many wait, and how many servers are where.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    pub waiting: u32,
    pub connecting: u32,
    pub idle: u32,
    pub used: u32,
    pub testing: u32,
    pub linked: u32,
    pub canceled: u32,
    pub leaving: u32,
}

/// What the pool knows of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) place: Place,
    /// Whose it is, while linked.
    pub(crate) client: Option<ClientId>,
    /// The worker that counts on it: it is leaving, or will leave as soon as its check succeeds.
    pub(crate) target: Option<WorkerId>,
    /// Cancel requests sent for it whose connections are not closed yet.
    pub(crate) cancels: u32,
    pub(crate) epoch: u32,
    /// When it was dialled.
    pub(crate) opened_at: Instant,
    /// When it last came to rest.
    pub(crate) since: Instant,
    /// It has been linked at least once.
    pub(crate) has_served: bool,
    /// What its session is set to, as a number: equal ones are.
    pub(crate) flavour: u32,
}

/// All servers of one pool on one worker.
#[derive(Debug)]
pub(crate) struct Servers {
    register: Register<Server>,
    places: [List; PLACES],
}

const PLACES: usize = Place::Leaving as usize + 1;

impl Servers {
    pub(crate) const fn new() -> Self {
        Self { register: Register::new(), places: [List::new(); PLACES] }
    }

    pub(crate) fn len(&self) -> u32 {
        self.register.len()
    }

    pub(crate) fn find(&self, server: ServerId) -> Option<At> {
        self.register.find(server.0)
    }

    pub(crate) fn id(&self, at: At) -> ServerId {
        ServerId(self.register.number(at))
    }

    pub(crate) fn add(&mut self, id: ServerId, server: Server) -> At {
        self.register.insert(id.0, server, &mut self.places[server.place as usize])
    }

    pub(crate) fn remove(&mut self, at: At) -> Server {
        let place = self.register[at].place;
        self.register.remove(at, &mut self.places[place as usize])
    }

    /// The only way from one place to another.
    pub(crate) fn shift(&mut self, at: At, to: Place) {
        let from = self.register[at].place;
        self.register.unhook(at, &mut self.places[from as usize]);
        self.register.append(at, &mut self.places[to as usize]);
        self.register[at].place = to;
    }

    pub(crate) fn count(&self, place: Place) -> u32 {
        self.places[place as usize].len()
    }

    pub(crate) fn first(&self, place: Place) -> Option<At> {
        self.places[place as usize].first()
    }

    pub(crate) fn last(&self, place: Place) -> Option<At> {
        self.places[place as usize].last()
    }

    /// Those in `place`, whoever came first first.
    pub(crate) fn oldest(&self, place: Place) -> impl Iterator<Item = At> {
        self.register.iter(&self.places[place as usize])
    }

    /// Those in `place`, whoever came last first.
    pub(crate) fn newest(&self, place: Place) -> impl Iterator<Item = At> {
        self.register.iter_back(&self.places[place as usize])
    }

    pub(crate) fn next(&self, at: At) -> Option<At> {
        self.register.next(at)
    }

    pub(crate) fn iter(&self, place: Place) -> impl Iterator<Item = &Server> {
        self.register.iter(&self.places[place as usize]).map(|at| &self.register[at])
    }

    /// Idle servers, whether to be checked first or not.
    pub(crate) fn at_rest(&self) -> u32 {
        self.count(Place::Idle) + self.count(Place::Used)
    }

    /// The one that has been idle longest.
    pub(crate) fn longest_idle(&self) -> Option<At> {
        self.first(Place::Used).or_else(|| self.first(Place::Idle))
    }

    pub(crate) fn counts(&self, waiting: u32) -> Counts {
        Counts {
            waiting,
            connecting: self.count(Place::Connecting),
            idle: self.count(Place::Idle),
            used: self.count(Place::Used),
            testing: self.count(Place::Testing),
            linked: self.count(Place::Linked),
            canceled: self.count(Place::Canceled),
            leaving: self.count(Place::Leaving),
        }
    }

    pub(crate) fn invariants(&self) {
        assert_eq!(
            self.places.iter().map(List::len).sum::<u32>(),
            self.len(),
            "a server is nowhere"
        );
        for place in Place::ALL {
            for server in self.iter(place) {
                assert_eq!(server.place, place, "a server is in two minds about where it is");
                assert_eq!(
                    server.client.is_some(),
                    place == Place::Linked,
                    "linked is: has a client"
                );
                let may_leave = matches!(place, Place::Testing | Place::Leaving);
                assert!(server.target.is_none() || may_leave, "a server in {place:?} was promised");
                assert!(server.target.is_some() || place != Place::Leaving, "leaving for nowhere");
                let free = matches!(place, Place::Idle | Place::Used | Place::Leaving);
                assert!(server.cancels == 0 || !free, "a cancel could hit the next client");
                assert!(server.cancels > 0 || place != Place::Canceled, "waits for no cancel");
            }
        }
        let rest = self.iter(Place::Used).chain(self.iter(Place::Idle)).map(|server| server.since);
        assert!(rest.is_sorted(), "the idle are out of order");
    }
}

impl Place {
    const ALL: [Self; PLACES] = [
        Self::Connecting,
        Self::Idle,
        Self::Used,
        Self::Testing,
        Self::Linked,
        Self::Canceled,
        Self::Leaving,
    ];
}

impl Index<At> for Servers {
    type Output = Server;
    fn index(&self, at: At) -> &Server {
        &self.register[at]
    }
}

impl IndexMut<At> for Servers {
    fn index_mut(&mut self, at: At) -> &mut Server {
        &mut self.register[at]
    }
}
