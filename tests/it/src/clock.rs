//! How long things take, and how late the machine was with other things meanwhile: on a busy one that is nobody's fault.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::world::took;

/// How long something took, and for how long of that a thread that wanted to run was kept from it.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub time: Duration,
    pub hiccup: Duration,
}

impl Measured {
    /// Whether it took less than this many seconds, had the machine kept time. What waits for several others is late by each.
    #[must_use]
    pub fn within(&self, limit: f64) -> bool {
        self.time.as_secs_f64() < limit + 2.0 * self.hiccup.as_secs_f64()
    }
}

pub fn timed<T>(work: impl FnOnce() -> T) -> (Measured, T) {
    LazyLock::force(&WATCH);
    let start = Instant::now();
    let (time, result) = took(work);
    (Measured { time, hiccup: late_since(start) }, result)
}

/// A thread that sleeps for one tick after the other, and when it woke up last.
struct Watch {
    woke: Instant,
    /// When it woke up late, and by how much.
    hiccups: Vec<(Instant, Duration)>,
}

const TICK: Duration = Duration::from_millis(5);
/// Less than this is a scheduler's everyday work.
const LATE: Duration = Duration::from_millis(20);

static WATCH: LazyLock<Mutex<Watch>> = LazyLock::new(|| {
    thread::spawn(|| {
        loop {
            thread::sleep(TICK);
            let (mut watch, now) = (look(), Instant::now());
            let late = now.duration_since(watch.woke).saturating_sub(TICK);
            if late > LATE {
                watch.hiccups.push((now, late));
            }
            watch.woke = now;
        }
    });
    Mutex::new(Watch { woke: Instant::now(), hiccups: Vec::new() })
});

fn look() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late_since(start: Instant) -> Duration {
    let watch = look();
    // The thread may be late just now, and not have told.
    let now = watch.woke.elapsed().saturating_sub(TICK);
    let told = watch.hiccups.iter().rev().take_while(|(woke, _)| *woke > start);
    told.map(|(_, late)| *late).sum::<Duration>() + if now > LATE { now } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hiccup_counts_while_it_lasts_and_afterwards() {
        let slow = |limit: f64| {
            let (time, ()) = timed(|| {
                // Nobody else may look at the watch meanwhile: its thread is late.
                let _stopped = look();
                thread::sleep(Duration::from_millis(300));
            });
            assert!(time.time >= Duration::from_millis(300));
            assert!(time.hiccup >= Duration::from_millis(200), "{time:?}");
            assert!(time.within(limit), "{time:?}");
        };
        slow(0.1);
        slow(0.1);
        let (time, ()) = timed(|| thread::sleep(Duration::from_millis(1)));
        assert!(!time.within(0.0) || time.hiccup > LATE, "{time:?}");
    }
}
