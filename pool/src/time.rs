//! Time as a number the caller passes in.

pub use core::time::Duration;

/// Nanoseconds since the process started; the same clock on every worker.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Instant(pub u64);

impl Instant {
    /// The instant `wait` from now, or the end of time.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The instant `wait` ago, or the beginning of time.
    #[must_use]
    pub fn before(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it is yet to come.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
