//! Time as a number the caller passes in.

pub use core::time::Duration;

/// Nanoseconds since the process started; the same clock on every worker.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Instant(pub u64);

impl Instant {
    /// The instant `wait` from now, or the end of time.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(nanos(wait)))
    }

    /// The instant `wait` ago, or the beginning of time.
    #[must_use]
    pub fn before(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(wait)))
    }

    /// How long ago `earlier` was; zero if it is yet to come.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// 64 bits of nanoseconds last for 584 years. (`as_nanos` would reckon with 128, which is felt.)
fn nanos(wait: Duration) -> u64 {
    wait.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(wait.subsec_nanos()))
}
