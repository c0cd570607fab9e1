//! The whole login of a client, from its first byte, in any pieces.
#![no_main]

use arbitrary::Arbitrary;
use auth::{Account, Decoy, Dice, Form, Method, Secret};
use libfuzzer_sys::fuzz_target;
use session::login::{AuthPlan, ClientLogin, Encryption, Policy, Step};

#[derive(Arbitrary, Debug)]
struct Play {
    method: u8,
    tls: bool,
    pieces: Vec<Vec<u8>>,
}

fuzz_target!(|play: Play| {
    let method = [Method::Plain, Method::Md5, Method::Scram][usize::from(play.method % 3)];
    let decoy = Decoy::new([7; 32], 1, Form::Scram);
    let encryption = if play.tls { Encryption::Offered } else { Encryption::Denied };
    let (mut login, mut out) = (ClientLogin::new(encryption), Vec::new());
    let ignored = ["options".to_owned(), "extra_float_digits".to_owned()];
    for piece in &play.pieces {
        let mut step = login.hear(piece, &mut out);
        loop {
            step = match step {
                Step::More => break,
                Step::Startup(facts) => {
                    assert!(!facts.user.is_empty() && facts.database.len() <= 63);
                    let _ = Policy { extra: &[], ignored: &ignored, follows: true }.settings(&facts);
                    let account = Account::Secret(Secret::parse(b"a secret nobody guesses"));
                    let dice = Dice { nonce: [3; 18], md5_salt: [1, 2, 3, 4] };
                    {
                        let channel = auth::Channel::Open;
                        login.admit(AuthPlan { method, account, channel, dice }, &decoy, &mut out)
                    }
                }
                Step::Derive(job) if job.iterations() <= 4096 => login.derived(&job.run(), &mut out),
                Step::Secure { .. } => {
                    login.secured();
                    break;
                }
                Step::Accept(_) => panic!("let in without the password: {play:?}"),
                Step::Derive(_) | Step::Refer(_) | Step::Cancel { .. } | Step::Refuse(_) => return,
            };
        }
        assert!(out.len() < 1 << 20, "a login that talks for ever");
    }
});
