//! What the io_uring driver knows of one connection.

use std::os::fd::OwnedFd;

use super::files::Filed;
use crate::outbox::Place;

/// One connection. What it has to send lies elsewhere, and what it receives is nowhere kept, so
/// an idle one is no more than this.
#[derive(Debug)]
pub(super) struct Link {
    /// `None` only where even opening a socket failed, or in a free slot.
    pub(super) fd: Option<OwnedFd>,
    /// Tells completions for this connection from late ones for its predecessors in the slot.
    pub(super) generation: u32,
    pub(super) outbox: Place,
    /// The error number that ended it in both directions, or 0.
    pub(super) fault: i32,
    pub(super) stage: Stage,
    pub(super) receiving: Flying,
    pub(super) sending: Sending,
    pub(super) dialling: Flying,
    pub(super) filed: Filed,
    /// It has yet to be dialled.
    pub(super) to_dial: bool,
    pub(super) paused: bool,
    /// `Ended` was said.
    pub(super) ended: bool,
    /// Its break was said too.
    pub(super) broken: bool,
    /// The kernel's buffer was full: until all is sent, have the kernel wait for room.
    pub(super) slow: bool,
    /// Went above high water, and has not come down to low water since.
    pub(super) crowded: bool,
    /// Is in the list of those to settle.
    pub(super) unsettled: bool,
}

const _: () = assert!(size_of::<Link>() <= 64, "ten thousand idle clients must cost nothing");

/// What the worker wants of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Free,
    Open,
    Detaching,
    Finishing,
    Aborting,
}

/// An order that stays with the kernel until it is done or called off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flying {
    No,
    Yes,
    /// Called off, and not yet back.
    CalledOff,
}

/// The one send that may be in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sending {
    No,
    /// It is done when the kernel has taken the order, and only a failure is reported.
    AtOnce,
    /// The kernel waits for room and reports when it is done.
    Slowly,
    /// Called off, and not yet back.
    CalledOff,
}

impl Link {
    pub(super) fn new(fd: Option<OwnedFd>, generation: u32) -> Self {
        Self {
            fd,
            generation,
            outbox: Place::NONE,
            fault: 0,
            stage: Stage::Open,
            receiving: Flying::No,
            sending: Sending::No,
            dialling: Flying::No,
            filed: Filed::No(0),
            to_dial: false,
            paused: false,
            ended: false,
            broken: false,
            slow: false,
            crowded: false,
            unsettled: false,
        }
    }

    /// The worker still listens to what it says.
    pub(super) fn is_heard(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Detaching) && !self.ended
    }

    /// The worker may still queue something.
    pub(super) fn takes_bytes(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Detaching) && self.fault == 0
    }

    pub(super) fn is_up(&self) -> bool {
        !self.to_dial && self.dialling == Flying::No
    }

    pub(super) fn wants_bytes(&self) -> bool {
        self.stage == Stage::Open && self.is_up() && !self.paused && !self.ended && self.fault == 0
    }

    /// The kernel holds nothing of it.
    pub(super) fn at_rest(&self) -> bool {
        self.receiving == Flying::No && self.sending == Sending::No && self.dialling == Flying::No
    }
}
