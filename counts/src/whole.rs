//! A worker with all its rooms, once around and around.

use std::fmt;
use std::sync::Arc;

use auth::{Decoy, Form, Userlist};
use config::Diff;
use pool::{Instant, WorkerId};
use rig::script::Workload;
use session::Tracked;
use worker::{Commons, Errand, LetterBox, Level, Log, Site, Tls, Worker, World};

use crate::far::{Far, Socket};

const INI: &str = "\
[databases]
bench = host=127.0.0.1 port=5432 dbname=bench

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 6432
auth_type = trust
auth_file = users
pool_mode = transaction
default_pool_size = 20
log_connections = 0
log_disconnections = 0
";

/// More clients than servers, as in the benchmark.
const CLIENTS: usize = 50;
/// Of the clock, at each look: about what a transaction takes.
const MOMENT_NS: u64 = 10_000;

/// `count` transactions of `workload`, all clients at once.
pub(crate) fn run(workload: Workload, count: usize) {
    let far = Far::new(workload.script(), CLIENTS);
    let (letter_box, inbox) = LetterBox::new(io::Driver::waker(&far));
    let commons = Arc::new(Commons::new(vec![letter_box], 7, session::read));
    let world = Outside { now: 1_000_000_000, dice: 1, log: Nowhere };
    let mut worker = Worker::new(far, world, WorkerId(0), commons, inbox, Arc::new(site()));
    worker.listen(Socket, "127.0.0.1:6432".to_owned(), false, 0);
    // Everybody in, and every server open.
    for _ in 0..1_000 {
        worker.turn();
    }
    worker.driver.allowed = count;
    worker.driver.begin();
    let mut turns = 0;
    while worker.driver.finished < count {
        worker.turn();
        turns += 1;
        assert!(turns < 100 * count + 10_000, "it stands still");
    }
}

fn site() -> Site {
    let (userlist, _) = Userlist::parse(b"\"bench\" \"bench\"\n");
    let config = config::parse(INI).expect("a good configuration");
    Site {
        config,
        userlist,
        directory: None,
        rules: Arc::default(),
        maps: Arc::default(),
        tracked: Arc::new(Tracked::default()),
        decoy: Arc::new(Decoy::new([3; 32], 1, Form::Plain)),
        tls: Tls::default(),
        diff: Diff::default(),
        generation: 1,
        uid: 0,
    }
}

/// Time and dice that are the same in every run.
struct Outside {
    now: u64,
    dice: u64,
    log: Nowhere,
}

struct Nowhere;

impl Log for Nowhere {
    fn wants(&self, _: Level) -> bool {
        false
    }

    fn line(&mut self, _: Level, _: fmt::Arguments<'_>) {}

    fn flush(&mut self) {}
}

impl World for Outside {
    fn now(&mut self) -> Instant {
        self.now += MOMENT_NS;
        Instant(self.now)
    }

    fn wall_us(&mut self) -> i64 {
        1_700_000_000_000_000 + (self.now / 1_000) as i64
    }

    fn dice(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.dice >> 56) as u8;
        }
    }

    fn zone(&mut self) -> (i32, String) {
        (0, "UTC".to_owned())
    }

    fn log(&mut self) -> &mut dyn Log {
        &mut self.log
    }

    fn errand(&mut self, _: Errand) {}
}
