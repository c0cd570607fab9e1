//! How many workers to start.

use std::num::NonZeroUsize;
use std::thread;

use crate::Settings;

/// The workers to start: `workers`, or where that is 0 the cores this process may use.
///
/// The standard library honours both the affinity mask and a cgroup's CPU quota, so a container
/// limited to two cores on a host of sixty-four gets two workers.
#[must_use]
pub fn workers(settings: &Settings) -> usize {
    match settings.workers {
        0 => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        n => n as usize,
    }
}
