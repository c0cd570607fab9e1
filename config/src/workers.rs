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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_asked_for_or_as_there_are_cores() {
        let settings = Settings::default();
        assert_eq!(workers(&Settings { workers: 3, ..settings.clone() }), 3);
        let cores = thread::available_parallelism().expect("this machine knows its cores");
        assert_eq!(workers(&settings), cores.get());
    }
}
