//! Cancel keys of our own: random, unlike all others here, and telling which worker gave them.

use io::Driver;
use session::login::key_len;

use crate::client::CancelKey;
use crate::worker::Worker;
use crate::world::World;

impl<D: Driver, W: World> Worker<D, W> {
    /// A key for the client in `slot`, which speaks protocol 3.`minor`.
    pub(crate) fn new_key(&mut self, slot: u32, minor: u16) -> CancelKey {
        let mut secret = vec![0; key_len(minor)].into_boxed_slice();
        self.world.dice(&mut secret);
        let workers = u32::from(self.commons.workers());
        loop {
            let mut dice = [0; 4];
            self.world.dice(&mut dice);
            // A pid is positive, and the worker is its rest by their number.
            let dice = u32::from_le_bytes(dice) >> 2;
            let pid = dice - dice % workers + u32::from(self.me.0);
            if pid > workers && !self.pids.contains_key(&pid) {
                self.pids.insert(pid, slot);
                return CancelKey { pid, secret };
            }
        }
    }

    /// The worker that gave a key with this pid.
    pub(crate) fn worker_of(&self, pid: u32) -> pool::WorkerId {
        let workers = u32::from(self.commons.workers());
        pool::WorkerId(u16::try_from(pid % workers).unwrap_or(0))
    }
}
