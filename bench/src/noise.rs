//! The machine's noise: how much of it was not ours while we measured.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Shares of the time, from 0 to 1 and up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// Taken by the machine under this virtual one.
    pub steal: f64,
    /// Spent by processes that are no part of the run, in cores.
    pub foreign: f64,
    /// How much longer a fixed piece of work took than it ever did.
    pub slowdown: f64,
}

impl Noise {
    /// A sample this noisy is taken again.
    #[must_use]
    pub fn is_loud(&self) -> bool {
        self.loudness() > 1.0
    }

    /// The worst of the three, each in units of what is still tolerated.
    #[must_use]
    pub fn loudness(&self) -> f64 {
        (self.steal / 0.01).max(self.foreign / 0.05).max(self.slowdown / 0.08)
    }
}

impl std::fmt::Display for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { steal, foreign, slowdown } = self;
        let percent = [steal, foreign, slowdown].map(|share| share * 100.0);
        let [steal, foreign, slowdown] = percent;
        write!(f, "steal {steal:.1} %, others {foreign:.1} %, slowdown {slowdown:.1} %")
    }
}

/// All cores' time since boot.
#[derive(Clone, Copy)]
pub struct Machine {
    pub at: Instant,
    pub busy: Duration,
    pub steal: Duration,
}

/// `/proc/stat` counts in these, whatever the kernel's own tick (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

impl Machine {
    pub fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("/proc is needed to measure")?;
        let all = stat.lines().next().unwrap_or_default();
        let field: Vec<u32> = all.split_whitespace().skip(1).flat_map(str::parse).collect();
        let at = Instant::now();
        // user, nice, system, idle, iowait, irq, softirq, steal, …
        let [user, nice, system, _, _, irq, softirq, steal, ..] = field[..] else {
            anyhow::bail!("/proc/stat has no cpu line");
        };
        let busy = TICK * (user + nice + system + irq + softirq);
        Ok(Self { at, busy, steal: TICK * steal })
    }
}

/// A fixed piece of work, and the best time it ever took.
#[derive(Default)]
pub struct Calibration {
    best: Option<Duration>,
}

impl Calibration {
    /// Does the work once; says how much longer than at best it took.
    pub fn slowdown(&mut self) -> f64 {
        let took = (0..5).map(|_| spin()).min().unwrap_or_default();
        let best = self.best.map_or(took, |best| best.min(took));
        self.best = Some(best);
        took.as_secs_f64() / best.as_secs_f64() - 1.0
    }

    /// Waits until the machine has little else to do, but not for ever.
    pub fn await_quiet(&self, patience: Duration) -> anyhow::Result<()> {
        let since = Instant::now();
        while since.elapsed() < patience {
            let from = Machine::now()?;
            std::thread::sleep(Duration::from_millis(300));
            let to = Machine::now()?;
            let busy = (to.busy - from.busy).as_secs_f64() / (to.at - from.at).as_secs_f64();
            if busy < 0.1 {
                break;
            }
        }
        Ok(())
    }
}

/// About ten milliseconds of arithmetic that cannot be guessed away.
fn spin() -> Duration {
    let since = Instant::now();
    let mut x = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..5_000_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
    since.elapsed()
}
