//! How another thread gets a driver out of its sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::Wake;

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// An eventfd that is written only when the driver sleeps: otherwise a flag does, as the driver
/// looks at it in every turn. It is watched edge-triggered, so it is never read either.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicU8,
    fd: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU8::new(AWAKE), fd })
    }

    /// The driver is about to wait. False if it must not, as somebody rang.
    pub(crate) fn lie_down(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The driver is up. True if somebody rang since the last time it was asked.
    pub(crate) fn answer(&self) -> bool {
        // Only we leave AWAKE for ASLEEP, so nothing is missed but a ring that the next turn sees.
        self.state.load(Ordering::Relaxed) != AWAKE
            && self.state.swap(AWAKE, Ordering::AcqRel) == RUNG
    }
}

impl Wake for Bell {
    fn wake(&self) {
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            // Fails only when the counter is full, and then it has long been rung.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_sleep_keeps_it_awake() {
        let bell = Bell::new().expect("an eventfd");
        bell.wake();
        bell.wake();
        assert!(!bell.lie_down());
        assert!(bell.answer() && !bell.answer());
        assert!(bell.lie_down());
        assert!(!bell.answer(), "woke by itself");
    }
}
