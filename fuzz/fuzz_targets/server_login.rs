//! Our login to a server that may say anything, in any pieces.
#![no_main]

use arbitrary::Arbitrary;
use auth::{Credentials, Password, Secret};
use libfuzzer_sys::fuzz_target;
use session::login::{Opening, Replication, ServerLogin, ServerStep};

#[derive(Arbitrary, Debug)]
struct Play {
    minor: bool,
    pieces: Vec<Vec<u8>>,
}

fuzz_target!(|play: Play| {
    let secret = Secret::Plain(Password::new(b"ours"));
    let opening = Opening {
        user: b"ann",
        database: b"shop",
        replication: Replication::None,
        minor: if play.minor { 2 } else { 0 },
        parameters: &[],
        credentials: Credentials::new(Some(&secret), None),
        channel: auth::Channel::Open,
    };
    let mut out = Vec::new();
    let mut login = ServerLogin::start(opening, &[5; 18], &mut out);
    for piece in &play.pieces {
        let mut step = login.hear(piece, &mut out);
        loop {
            step = match step {
                ServerStep::More => break,
                ServerStep::Derive(job) if job.iterations() <= 4096 => {
                    login.derived(&job.run(), &mut out)
                }
                ServerStep::Failed(failure) => {
                    let mut told = Vec::new();
                    failure.tell(&mut told);
                    assert_eq!(failure.sqlstate().len(), 5);
                    return;
                }
                ServerStep::Derive(_) | ServerStep::Ready(_) => return,
            };
        }
    }
});
