//! Whole logins: a client against us, and us against a server, which here is us again.

use auth::{
    Accepted, Account, Answer, Ask, Channel, Claim, ClientAuth, ClientKeys, Credentials, Decoy,
    Dice, Fault, Form, Job, Method, Secret, ServerAuth, Step, Why,
};

const USER: &[u8] = b"user";
const METHODS: [Method; 5] =
    [Method::Any, Method::Trust, Method::Plain, Method::Md5, Method::Scram];

/// Of the password `pencil` (RFC 7677).
const VERIFIER: &[u8] = b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
/// `md5('pencil' || 'user')`
const MD5: &[u8] = b"md520c46e3762c864548e296b33c3406aa9";

fn stored(text: &[u8]) -> Account {
    Account::Secret(Secret::parse(text))
}

fn typed(text: &[u8]) -> Credentials {
    Credentials::new(Some(&Secret::parse(text)), None)
}

/// A test should not take a minute: 4096 iterations only where a verifier has them.
fn decoy(form: Form) -> Decoy {
    Decoy::new([7; 32], 4096, form)
}

/// How a login ended, and what went over the wire: the sender and each body's length.
#[derive(Debug)]
struct Talk {
    client: Result<Option<ClientKeys>, Why>,
    server: Result<(), Option<Fault>>,
    sizes: Vec<(char, usize)>,
    /// The data of the one question SCRAM asks.
    question: Vec<u8>,
    jobs: Vec<(u32, bool)>,
}

impl Talk {
    fn is_in(&self) -> bool {
        assert_eq!(self.client.is_ok(), self.server.is_ok(), "{self:?}");
        self.client.is_ok()
    }
}

fn body(code: i32, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes(), data].concat()
}

fn question(ask: &Ask) -> Vec<u8> {
    match ask {
        Ask::Cleartext => body(3, b""),
        Ask::Md5 { salt } => body(5, salt),
        Ask::Sasl { mechanisms } => {
            body(10, [mechanisms.join("\0").as_bytes(), b"\0\0"].concat().as_slice())
        }
        Ask::SaslContinue(data) => body(11, data),
    }
}

fn run(job: Job, jobs: &mut Vec<(u32, bool)>) -> auth::Derived {
    jobs.push((job.iterations(), job.key().is_some()));
    job.run()
}

/// Has the two sides talk until one of them is done.
fn talk(method: Method, account: Account, credentials: Credentials, decoy: &Decoy) -> Talk {
    let mut server = ServerAuth::new(USER, credentials, Channel::Open, &[1; 18]);
    let dice = Dice { nonce: [2; 18], md5_salt: [3; 4] };
    let (mut client, mut step) = ClientAuth::start(
        Claim { method, user: USER, account, channel: Channel::Open },
        decoy,
        dice,
    );
    let mut talk = Talk {
        client: Err(Why::Unasked),
        server: Err(None),
        sizes: vec![],
        question: vec![],
        jobs: vec![],
    };
    for _ in 0..10 {
        let ask = match step {
            Step::Ask(ask) => ask,
            Step::Derive(job) => {
                step = client.derived(&run(job, &mut talk.jobs));
                continue;
            }
            Step::Refer(_) => panic!("nobody else is asked"),
            Step::Accept(Accepted { sasl_final, keys, .. }) => {
                talk.client = Ok(keys);
                if let Some(data) = sasl_final {
                    talk.sizes.push(('R', data.len()));
                    assert!(matches!(server.asked(&body(12, &data)), Answer::Wait));
                }
                assert!(matches!(server.asked(&body(0, b"")), Answer::Done));
                talk.server = Ok(());
                return talk;
            }
            Step::Refuse(why) => {
                talk.client = Err(why);
                return talk;
            }
        };
        let message = question(&ask);
        talk.sizes.push(('R', message.len()));
        if let Ask::SaslContinue(data) = ask {
            talk.question = data;
        }
        let mut answer = server.asked(&message);
        if let Answer::Derive(job) = answer {
            answer = server.derived(&run(job, &mut talk.jobs));
        }
        step = match answer {
            Answer::Send(body) => {
                talk.sizes.push(('p', body.len()));
                client.answer(&body)
            }
            Answer::Failed(fault) => {
                talk.server = Err(Some(fault));
                return talk;
            }
            other => panic!("unexpected {other:?}"),
        };
    }
    panic!("no end: {talk:?}");
}

/// Every method, every form a secret is stored in, every form of what the other side has.
#[test]
fn the_right_password_gets_in_where_it_can() {
    let keys = talk(Method::Scram, stored(VERIFIER), typed(b"pencil"), &decoy(Form::Scram));
    let keys = keys.client.expect("the right password").expect("SCRAM leaves keys");
    for method in METHODS {
        for (name, secret) in [("plain", &b"pencil"[..]), ("md5", MD5), ("scram", VERIFIER)] {
            for (have, credentials) in [
                ("plain", typed(b"pencil")),
                ("md5", typed(MD5)),
                ("keys", Credentials::new(None, Some(&keys.clone().into()))),
                ("verifier", typed(VERIFIER)),
                ("nothing", Credentials::Nothing),
            ] {
                let want = matches!(
                    (method, name, have),
                    (Method::Any | Method::Trust, ..)
                        | (Method::Plain, _, "plain")
                        | (Method::Md5, "plain" | "md5", "plain" | "md5")
                        | (Method::Md5, "scram", "plain" | "keys")
                        | (Method::Scram, "plain", "plain")
                        | (Method::Scram, "scram", "plain" | "keys")
                );
                let talk = talk(method, stored(secret), credentials, &decoy(Form::Scram));
                assert_eq!(talk.is_in(), want, "{method:?}, {name} stored, {have}: {talk:?}");
            }
        }
    }
}

/// CVE-2025-46801: some tuple of settings let anyone in. None here does.
#[test]
fn a_wrong_password_never_gets_in() {
    let other = talk(Method::Scram, stored(b"other"), typed(b"other"), &decoy(Form::Plain));
    let other = other.client.expect("right there").expect("keys");
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        for form in [Form::Plain, Form::Md5, Form::Scram] {
            for account in [
                stored(b"pencil"),
                stored(MD5),
                stored(VERIFIER),
                stored(b""),
                Account::WithoutSecret,
                Account::Unknown,
            ] {
                for credentials in [
                    typed(b"pencil "),
                    typed(b"x"),
                    typed(&[b'x'; 65_531]),
                    typed(b"md500000000000000000000000000000000"),
                    Credentials::new(None, Some(&other.clone().into())),
                    Credentials::Plain(auth::Password::new(b"")),
                    // The verifier's own text, as if it were the password.
                    Credentials::Plain(auth::Password::new(VERIFIER)),
                    Credentials::Plain(auth::Password::new(MD5)),
                ] {
                    let talk = talk(method, account.clone(), credentials, &decoy(form));
                    assert!(!talk.is_in(), "{method:?} {account:?} {form:?}");
                }
            }
        }
    }
}

/// Users that do not exist, or cannot log in this way, go through what a real one goes through.
#[test]
fn nobody_learns_who_exists() {
    for (method, secret, form) in [
        (Method::Plain, &b"pencil"[..], Form::Plain),
        (Method::Plain, MD5, Form::Md5),
        (Method::Plain, VERIFIER, Form::Scram),
        (Method::Md5, b"pencil", Form::Plain),
        (Method::Md5, MD5, Form::Md5),
        (Method::Md5, VERIFIER, Form::Scram),
        (Method::Scram, VERIFIER, Form::Scram),
        (Method::Scram, b"pencil", Form::Plain),
    ] {
        let decoy = decoy(form);
        let real = talk(method, stored(secret), typed(b"wrong"), &decoy);
        let mut others = vec![Account::Unknown, Account::WithoutSecret, stored(b"")];
        if method == Method::Scram {
            others.push(stored(MD5));
        }
        for other in others {
            let fake = talk(method, other, typed(b"wrong"), &decoy);
            assert_eq!(real.sizes, fake.sizes, "{method:?}, {form:?}");
            assert_eq!(real.client.as_ref().err(), fake.client.as_ref().err());
        }
    }
}

/// Asked twice, a decoy gives the same salt; another user's differs, and so does another process'.
#[test]
fn a_decoy_does_not_change_its_mind() {
    let salt = |key: u8, user: &[u8], account| {
        let decoy = Decoy::new([key; 32], 4096, Form::Scram);
        let dice = Dice { nonce: [2; 18], md5_salt: [3; 4] };
        let claim = Claim { method: Method::Scram, user, account, channel: Channel::Open };
        let (mut client, _) = ClientAuth::start(claim, &decoy, dice);
        match client.answer(b"SCRAM-SHA-256\0\0\0\0\x09n,,n=,r=x") {
            Step::Ask(Ask::SaslContinue(data)) => String::from_utf8(data).expect("text"),
            other => panic!("{other:?}"),
        }
    };
    let once = salt(7, b"ann", Account::Unknown);
    assert_eq!(once, salt(7, b"ann", Account::Unknown));
    assert_eq!(once, salt(7, b"ann", stored(b"secret")), "a plain secret is salted as a decoy is");
    assert_ne!(once, salt(7, b"bob", Account::Unknown));
    assert_ne!(once, salt(8, b"ann", Account::Unknown));
    assert!(once.ends_with("==,i=4096") && once.len() == 61, "as a verifier of PostgreSQL: {once}");
}

/// What may be remembered: our own passwords, and never past a change of the password.
#[test]
fn derivations_are_remembered_by_all_that_counts() {
    let key = |user: &[u8], secret: &[u8], data: &[u8]| {
        let mut server = ServerAuth::new(user, typed(secret), Channel::Open, &[1; 18]);
        server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
        match server.asked(&body(11, data)) {
            Answer::Derive(job) => job.key().expect("our own password"),
            other => panic!("{other:?}"),
        }
    };
    let one = b"r=AQEBAQEBAQEBAQEBAQEBAQEBx,s=c2FsdA==,i=1";
    let same = key(USER, b"pencil", one);
    assert_eq!(same, key(USER, b"pencil", b"r=AQEBAQEBAQEBAQEBAQEBAQEByy,s=c2FsdA==,i=1"));
    assert_ne!(same, key(b"ann", b"pencil", one));
    assert_ne!(same, key(USER, b"pencil2", one));
    assert_ne!(same, key(USER, b"pencil", b"r=AQEBAQEBAQEBAQEBAQEBAQEBx,s=c2FsdA==,i=2"));
    assert_ne!(same, key(USER, b"pencil", b"r=AQEBAQEBAQEBAQEBAQEBAQEBx,s=c2FsdDI=,i=1"));

    let plain = talk(Method::Plain, stored(VERIFIER), typed(b"x"), &decoy(Form::Scram));
    assert_eq!(plain.jobs, [(4096, false)], "a guess is not worth remembering");
    let scram = talk(Method::Scram, stored(b"pencil"), typed(b"pencil"), &decoy(Form::Scram));
    assert_eq!(scram.jobs, [(4096, true), (4096, true)]);
}
