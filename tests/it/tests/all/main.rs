//! Howdah from outside, one story per test. A file is a subject; the test of a bug class bears its number.

/// Ends a test early where the yardstick lacks what is tested.
macro_rules! howdah_only {
    ($why:literal) => {
        if harness::subject() == harness::Subject::PgBouncer {
            println!("for Howdah only: {}", $why);
            return;
        }
    };
}

mod cancel;
mod chatter;
mod console;
mod containers;
mod copying;
mod fit;
mod grounds;
mod hba;
mod incidents;
mod lifecycle;
mod limits;
mod listen;
mod loans;
mod logging;
mod logins;
mod long;
mod lookups;
mod million;
mod modes;
mod names;
mod others;
mod parameters;
mod passing;
mod peers;
mod pins;
mod prepared;
mod processes;
mod regain;
mod relay;
mod replication;
mod report;
mod resources;
mod running;
mod sequences;
mod signals;
mod smoke;
mod sockets;
mod stale;
mod standin;
mod startup;
mod state;
mod statements;
mod systemd;
mod timers;
mod tls;
mod told;
mod twins;
mod unset;
mod views;
mod vouching;
mod workers;
