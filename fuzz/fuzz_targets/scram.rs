//! Both sides of the password exchanges, against anything a peer may send. Nobody gets in without
//! the password.
#![no_main]

use arbitrary::Arbitrary;
use auth::{Account, Channel, Claim, ClientAuth, Credentials, Decoy, Dice, Form, Method, Password, Secret};
use auth::{Answer, ServerAuth, Step};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Play {
    method: u8,
    form: u8,
    known: bool,
    channel: u8,
    messages: Vec<Vec<u8>>,
    requests: Vec<Vec<u8>>,
}

const STORED: [&[u8]; 3] = [
    b"correct horse battery staple",
    b"md50123456789abcdef0123456789abcdef",
    b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
];

fuzz_target!(|play: Play| {
    client(&play);
    server(&play);
});

fn channel(which: u8) -> Channel {
    match which % 3 {
        0 => Channel::Open,
        1 => Channel::Tls { end_point: None },
        _ => Channel::Tls { end_point: Some([9; 32].into()) },
    }
}

fn client(play: &Play) {
    let method = [Method::Plain, Method::Md5, Method::Scram][usize::from(play.method % 3)];
    let stored = Secret::parse(STORED[usize::from(play.form % 3)]);
    let account = if play.known { Account::Secret(stored) } else { Account::Unknown };
    let decoy = Decoy::new([7; 32], 1, Form::Scram);
    let dice = Dice { nonce: [3; 18], md5_salt: [1, 2, 3, 4] };
    let (mut auth, mut step) = ClientAuth::start(Claim { method, user: b"ann", account, channel: channel(play.channel) }, &decoy, dice);
    for message in &play.messages {
        step = match step {
            Step::Ask(_) => auth.answer(message),
            Step::Derive(job) if job.iterations() <= 4096 => auth.derived(&job.run()),
            Step::Derive(_) | Step::Refer(_) | Step::Refuse(_) => return,
            Step::Accept(_) => panic!("let in without the password: {play:?}"),
        };
    }
}

fn server(play: &Play) {
    let secret = Secret::Plain(Password::new(b"ours"));
    let mut auth = ServerAuth::new(b"ann", Credentials::new(Some(&secret), None), channel(play.channel), &[5; 18]);
    for request in &play.requests {
        match auth.asked(request) {
            Answer::Derive(job) if job.iterations() <= 4096 => drop(auth.derived(&job.run())),
            Answer::Failed(_) | Answer::Derive(_) => return,
            Answer::Send(_) | Answer::Wait | Answer::Done => {}
        }
    }
}
