//! How long to look for the next event before sleeping.
//!
//! To be woken takes a sleeper longer than most of what it is woken for. Where one client talks to one server and nobody
//! else to anybody, each waits for the other in turn, and the delay that a pooler adds is that of being woken twice. So
//! while that goes on, and at a pace that makes it worth while, the driver looks for what comes next for a moment before
//! it sleeps. What it looked for in vain is learnt from at once: a processor that spins is one that a server lacks.
//! With more clients there is nothing to be gained: somebody else's event ends the sleep, or there is none.

use std::time::Duration;

use crate::{Conn, Done};

/// So many quick answers in a row, and the next is looked for.
const QUICK: u32 = 4;
/// As many at most, when it was often looked in vain.
const QUICK_MAX: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Pace {
    /// How long to look; zero is not at all.
    limit: Duration,
    /// Those of whom the last two events were, the latest first.
    latest: [Option<Conn>; 2],
    /// Events in a row that came from the two in turn, and soon.
    quick: u32,
    /// So many are wanted.
    wanted: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { limit: Duration::ZERO, latest: [None; 2], quick: 0, wanted: QUICK }
    }

    /// Look for so long, if there is a processor to look with while the others work. What was learnt with another limit is
    /// forgotten.
    pub(crate) fn tune(&mut self, limit: Duration) {
        let limit = if has_company() { limit } else { Duration::ZERO };
        if limit != self.limit {
            *self = Self { limit, ..Self::new() };
        }
    }

    /// How long to look before sleeping.
    pub(crate) fn look(&self) -> Duration {
        if self.quick >= self.wanted { self.limit } else { Duration::ZERO }
    }

    /// A turn is over: so long it waited, and this it brought.
    pub(crate) fn turned<S>(&mut self, done: &[Done<S>], waited: Duration) {
        let alone = match done {
            _ if self.limit.is_zero() => return,
            [Done::Received { conn, .. }] => Some(*conn),
            _ => None,
        };
        self.brought(alone, waited);
    }

    /// As [`Pace::turned`], of a turn that brought bytes of `alone` and nothing else, or anything else.
    fn brought(&mut self, alone: Option<Conn>, waited: Duration) {
        let [last, last_but_one] = self.latest;
        let in_turn = alone.is_some() && alone == last_but_one && alone != last;
        self.latest = [alone, last];
        let looked = !self.look().is_zero();
        // A sleeper is woken late: what took it twice as long might have been seen in time.
        let soon = waited <= if looked { self.limit } else { 2 * self.limit };
        match (looked, in_turn && soon) {
            (true, true) => self.wanted = (self.wanted / 2).max(QUICK),
            (false, true) => self.quick = self.quick.saturating_add(1),
            (true, false) => {
                self.quick = 0;
                self.wanted = (self.wanted * 2).min(QUICK_MAX);
            }
            (false, false) => self.quick = 0,
        }
    }
}

/// Whether this machine has more than one processor.
fn has_company() -> bool {
    // SAFETY: it takes a number and returns one.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) > 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);
    const QUICKLY: Duration = Duration::from_micros(20);
    const CLIENT: Option<Conn> = Some(Conn(1));
    const SERVER: Option<Conn> = Some(Conn(2));

    fn pace() -> Pace {
        Pace { limit: LIMIT, ..Pace::new() }
    }

    fn play(pace: &mut Pace, times: u32, waited: Duration) {
        for _ in 0..times {
            pace.brought(CLIENT, waited);
            pace.brought(SERVER, waited);
        }
    }

    #[test]
    fn two_in_turn_and_soon_are_looked_for() {
        let mut pace = pace();
        assert_eq!(pace.look(), Duration::ZERO);
        play(&mut pace, 3, LIMIT + QUICKLY);
        assert_eq!(pace.look(), LIMIT);
        play(&mut pace, 100, QUICKLY);
        assert_eq!(pace.look(), LIMIT);
    }

    #[test]
    fn a_third_or_two_at_once_are_not() {
        let mut pace = pace();
        play(&mut pace, 100, QUICKLY);
        pace.brought(Some(Conn(3)), QUICKLY);
        assert_eq!(pace.look(), Duration::ZERO);
        play(&mut pace, 100, QUICKLY);
        pace.brought(None, QUICKLY);
        assert_eq!(pace.look(), Duration::ZERO);
    }

    #[test]
    fn one_who_goes_on_alone_is_not() {
        let mut pace = pace();
        (0..100).for_each(|_| pace.brought(SERVER, QUICKLY));
        assert_eq!(pace.look(), Duration::ZERO);
    }

    #[test]
    fn slow_ones_are_not() {
        let mut pace = pace();
        play(&mut pace, 100, 3 * LIMIT);
        assert_eq!(pace.look(), Duration::ZERO);
    }

    #[test]
    fn what_is_looked_for_in_vain_is_looked_for_ever_more_rarely() {
        let mut pace = pace();
        let mut vain = 0;
        for _ in 0..100_000 {
            vain += u32::from(!pace.look().is_zero());
            pace.brought(CLIENT, LIMIT + QUICKLY);
            vain += u32::from(!pace.look().is_zero());
            pace.brought(SERVER, LIMIT + QUICKLY);
        }
        assert!((8..250).contains(&vain), "{vain}");
        play(&mut pace, QUICK_MAX, QUICKLY);
        pace.brought(None, 3 * LIMIT);
        play(&mut pace, 2 * QUICK, QUICKLY);
        assert_eq!(pace.look(), LIMIT, "and as before, once it was found again");
    }

    #[test]
    fn another_limit_begins_anew() {
        if !has_company() {
            return;
        }
        let mut pace = Pace::new();
        pace.tune(LIMIT);
        for _ in 0..1000 {
            play(&mut pace, QUICK, QUICKLY);
            pace.brought(None, LIMIT);
        }
        pace.tune(LIMIT);
        play(&mut pace, QUICK, QUICKLY);
        assert_eq!(pace.look(), Duration::ZERO, "the same again changes nothing");
        pace.tune(2 * LIMIT);
        play(&mut pace, QUICK, QUICKLY);
        assert_eq!(pace.look(), 2 * LIMIT);
    }

    #[test]
    fn a_limit_of_nothing_is_off() {
        let mut pace = Pace::new();
        for conn in [1, 2].repeat(100) {
            let bytes = crate::Buf::from(vec![0]);
            pace.turned::<()>(&[Done::Received { conn: Conn(conn), bytes }], Duration::ZERO);
        }
        assert_eq!(pace.look(), Duration::ZERO);
    }
}
