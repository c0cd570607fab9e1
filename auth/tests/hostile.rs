//! Peers that mean harm, or cannot speak: every one of them is refused, and nothing else happens.

use auth::{
    Account, Answer, Ask, Channel, Claim, ClientAuth, Credentials, Decoy, Dice, Fault, Form,
    ITERATIONS_MAX, Method, Password, Secret, ServerAuth, Step, Why,
};

const VERIFIER: &[u8] = b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
/// Our nonce of eighteen ones.
const OURS: &str = "AQEBAQEBAQEBAQEBAQEBAQEB";

fn client(method: Method) -> ClientAuth {
    let account = Account::Secret(Secret::parse(VERIFIER));
    let dice = Dice { nonce: [1; 18], md5_salt: [3; 4] };
    let claim = Claim { method, user: b"user", account, channel: Channel::Open };
    ClientAuth::start(claim, &Decoy::new([7; 32], 4096, Form::Scram), dice).0
}

fn server(secret: &[u8]) -> ServerAuth {
    ServerAuth::new(b"user", Credentials::Plain(Password::new(secret)), Channel::Open, &[1; 18])
}

fn body(code: i32, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes(), data].concat()
}

fn initial(len: u32, data: &[u8]) -> Vec<u8> {
    [b"SCRAM-SHA-256\0", &len.to_be_bytes()[..], data].concat()
}

fn failed(answer: Answer) -> Fault {
    match answer {
        Answer::Failed(fault) => fault,
        other => panic!("not refused: {other:?}"),
    }
}

/// CVE-2026-6664: a length near the end of the numbers overflowed the check.
#[test]
fn lengths_of_an_initial_response_are_not_believed() {
    let data = b"n,,n=,r=nonce";
    let right = u32::try_from(data.len()).expect("short");
    assert!(matches!(client(Method::Scram).answer(&initial(right, data)), Step::Ask(_)));
    for len in [
        0,
        1,
        right - 1,
        right + 1,
        0x7fff_fffb,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0000 + right,
        0xffff_fffe,
        0xffff_ffff,
    ] {
        let step = client(Method::Scram).answer(&initial(len, data));
        assert!(matches!(step, Step::Refuse(Why::Sasl(_))), "{len:x}: {step:?}");
    }
}

#[test]
fn an_initial_response_cut_anywhere_is_refused() {
    let whole = initial(13, b"n,,n=,r=nonce");
    for end in 0..whole.len() {
        let step = client(Method::Scram).answer(&whole[..end]);
        assert!(matches!(step, Step::Refuse(Why::Sasl(_))), "{end}: {step:?}");
    }
    for mechanism in ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-1", "", "scram-sha-256", "PLAIN"] {
        let body = [mechanism.as_bytes(), b"\0\0\0\0\x0dn,,n=,r=nonce"].concat();
        assert!(matches!(client(Method::Scram).answer(&body), Step::Refuse(Why::Sasl(_))));
    }
}

/// The client's last message, with any one byte changed, cut or added, is worth nothing.
#[test]
fn a_proof_with_a_flaw_is_no_proof() {
    let last = |flaw: &dyn Fn(&mut Vec<u8>)| {
        let (mut client, mut server) = (client(Method::Scram), server(b"pencil"));
        let Answer::Send(first) = server.asked(&body(10, b"SCRAM-SHA-256\0\0")) else { panic!() };
        let Step::Ask(Ask::SaslContinue(data)) = client.answer(&first) else { panic!() };
        let Answer::Derive(job) = server.asked(&body(11, &data)) else { panic!() };
        let Answer::Send(mut last) = server.derived(KEYS.get_or_init(|| job.run())) else {
            panic!()
        };
        flaw(&mut last);
        client.answer(&last)
    };
    assert!(matches!(last(&|_| {}), Step::Accept(_)), "without a flaw");
    let len = "c=biws,r=,p=".len() + 2 * OURS.len() + 44;
    for at in 0..len {
        let step = last(&|message| message[at] ^= 1);
        assert!(matches!(step, Step::Refuse(Why::Sasl(_))), "changed at {at}: {step:?}");
        let step = last(&|message| message.truncate(at));
        assert!(matches!(step, Step::Refuse(Why::Sasl(_))), "cut at {at}: {step:?}");
        let step = last(&|message| message.insert(at, b'A'));
        assert!(matches!(step, Step::Refuse(Why::Sasl(_))), "added at {at}: {step:?}");
    }
    assert!(matches!(last(&|message| message.push(0)), Step::Refuse(Why::Sasl(_))));
}

static KEYS: std::sync::OnceLock<auth::Derived> = std::sync::OnceLock::new();

#[test]
fn a_password_is_one_string() {
    for bad in [&b""[..], b"pencil", b"pen\0cil\0", b"\0\0", b"pencil\0x"] {
        let step = client(Method::Plain).answer(bad);
        assert!(matches!(step, Step::Refuse(Why::Malformed)), "{bad:?}: {step:?}");
    }
}

#[test]
fn nobody_speaks_out_of_turn() {
    let mut over = client(Method::Plain);
    let Step::Derive(job) = over.answer(b"pencil\0") else { panic!() };
    assert!(matches!(over.answer(b"pencil\0"), Step::Refuse(Why::Unasked)), "while deriving");
    let keys = job.run();
    assert!(matches!(over.derived(&keys), Step::Refuse(Why::Unasked)), "after the end");
    assert!(matches!(client(Method::Trust).answer(b"x\0"), Step::Refuse(Why::Unasked)));
    assert!(matches!(client(Method::Scram).derived(&keys), Step::Refuse(Why::Unasked)));
    assert_eq!(failed(server(b"x").derived(&keys)).text(), "server authentication failed");
}

/// CVE-2026-6665: a long nonce ran over the end of a buffer.
#[test]
fn a_nonce_of_any_length_is_answered() {
    for len in [1, 2, 18, 24, 1000, 65_536, 1 << 20] {
        let mut server = server(b"pencil");
        server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
        let question = format!("r={OURS}{},s=c2FsdA==,i=1", "x".repeat(len));
        let Answer::Derive(job) = server.asked(&body(11, question.as_bytes())) else {
            panic!("{len}")
        };
        let Answer::Send(answer) = server.derived(&job.run()) else { panic!("{len}") };
        assert_eq!(answer.len(), "c=biws,r=,p=".len() + OURS.len() + len + 44);
    }
}

#[test]
fn a_server_that_asks_nonsense_is_left() {
    let ours = OURS;
    for question in [
        String::new(),
        format!("r={ours},s=c2FsdA==,i=1"),
        "r=x,s=c2FsdA==,i=1".into(),
        format!("r=x{ours},s=c2FsdA==,i=1"),
        format!("r={ours}\u{e9},s=c2FsdA==,i=1"),
        format!("r={ours} x,s=c2FsdA==,i=1"),
        format!("r={ours}x,s=,i=1"),
        format!("r={ours}x,s=!!,i=1"),
        format!("r={ours}x,s=c2FsdA==,i=0"),
        format!("r={ours}x,s=c2FsdA==,i=-1"),
        format!("r={ours}x,s=c2FsdA==,i="),
        format!("r={ours}x,s=c2FsdA==,i=4294967297"),
        format!("r={ours}x,s=c2FsdA=="),
        format!("s=c2FsdA==,r={ours}x,i=1"),
        format!("m=x,r={ours}x,s=c2FsdA==,i=1"),
        format!("r={ours}x,s=c2FsdA==,i=1,"),
        format!("r={ours}x,s=c2FsdA==,i=1\0"),
    ] {
        let mut server = server(b"pencil");
        server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
        let fault = failed(server.asked(&body(11, question.as_bytes())));
        assert!(matches!(fault, Fault::Malformed(_)), "{question:?}: {fault}");
    }
    let mut server = server(b"pencil");
    server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
    let most = ITERATIONS_MAX + 1;
    let question = format!("r={ours}x,s=c2FsdA==,i={most}");
    assert_eq!(failed(server.asked(&body(11, question.as_bytes()))), Fault::Iterations(most));
}

/// Whoever lets us in without proving that it knows the password may be anyone.
#[test]
fn a_server_must_prove_itself_once_it_began() {
    let begun = || {
        let mut server = server(b"pencil");
        server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
        server
    };
    let sent = || {
        let mut server = begun();
        let question = format!("r={OURS}x,s=c2FsdA==,i=1");
        let Answer::Derive(job) = server.asked(&body(11, question.as_bytes())) else { panic!() };
        assert!(matches!(server.derived(&job.run()), Answer::Send(_)));
        server
    };
    assert_eq!(failed(begun().asked(&body(0, b""))), Fault::OutOfOrder { code: 0 });
    assert_eq!(failed(begun().asked(&body(12, b"v="))), Fault::OutOfOrder { code: 12 });
    assert_eq!(failed(begun().asked(&body(3, b""))), Fault::OutOfOrder { code: 3 });
    assert_eq!(failed(sent().asked(&body(0, b""))), Fault::OutOfOrder { code: 0 });
    let wrong = format!("v={}", "A".repeat(43) + "=");
    assert_eq!(failed(sent().asked(&body(12, wrong.as_bytes()))), Fault::Impostor);
    for bad in [&b""[..], b"v=", b"v=AAAA", b"e=other-error", b"x=1", b"v"] {
        assert!(matches!(failed(sent().asked(&body(12, bad))), Fault::Malformed(_)), "{bad:?}");
    }
}

#[test]
fn methods_we_do_not_speak_are_named() {
    for code in [1, 2, 4, 6, 7, 8, 9, 13, 999, i32::MAX, -1, i32::MIN] {
        assert_eq!(failed(server(b"x").asked(&body(code, b""))), Fault::Unsupported { code });
    }
    assert!(failed(server(b"x").asked(&body(7, b""))).to_string().contains("GSSAPI"));
    for short in [&b""[..], b"\0", b"\0\0\0"] {
        assert!(matches!(failed(server(b"x").asked(short)), Fault::Malformed(_)));
    }
    for salt in [&b""[..], b"abc", b"abcde"] {
        assert!(matches!(failed(server(b"x").asked(&body(5, salt))), Fault::Malformed(_)));
    }
    for offer in
        [&b""[..], b"\0", b"SCRAM-SHA-256-PLUS\0\0", b"OAUTHBEARER\0\0", b"\0SCRAM-SHA-256\0"]
    {
        assert_eq!(failed(server(b"x").asked(&body(10, offer))), Fault::NoMechanism, "{offer:?}");
    }
    let both = body(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    assert!(matches!(server(b"x").asked(&both), Answer::Send(_)));
}

/// What we have does not fit what is asked: say which, for whoever must mend it.
#[test]
fn credentials_that_cannot_answer_say_so() {
    let ask = |credentials, body: &[u8]| {
        failed(ServerAuth::new(b"user", credentials, Channel::Open, &[1; 18]).asked(body))
    };
    let md5 = Secret::parse(b"md500000000000000000000000000000000");
    let verifier = Secret::parse(VERIFIER);
    let sasl = body(10, b"SCRAM-SHA-256\0\0");
    for (secret, body) in [
        (Some(&md5), &sasl),
        (Some(&md5), &body(3, b"")),
        (Some(&verifier), &sasl),
        (Some(&verifier), &body(5, b"salt")),
        (None, &body(3, b"")),
        (None, &sasl),
    ] {
        let fault = ask(Credentials::new(secret, None), body);
        assert_eq!(fault.text(), "wrong password type", "{fault}");
    }
    let fault = ask(Credentials::new(Some(&verifier), None), &sasl);
    assert!(fault.to_string().contains("no client has logged in with SCRAM"), "{fault}");
}

/// Keys that a client left fit one verifier. Elsewhere they would only burn a login attempt.
#[test]
fn keys_of_another_verifier_are_not_tried() {
    let (mut ours, mut theirs) = (client(Method::Scram), server(b"pencil"));
    let Answer::Send(first) = theirs.asked(&body(10, b"SCRAM-SHA-256\0\0")) else { panic!() };
    let Step::Ask(Ask::SaslContinue(data)) = ours.answer(&first) else { panic!() };
    let Answer::Derive(job) = theirs.asked(&body(11, &data)) else { panic!() };
    let Answer::Send(last) = theirs.derived(&job.run()) else { panic!() };
    let Step::Accept(accepted) = ours.answer(&last) else { panic!() };
    let keys = accepted.keys.expect("SCRAM leaves keys");

    for (salt, iterations, fits) in [
        ("W22ZaJ0SNY7soEsUEjb6gQ==", 4096, true),
        ("W22ZaJ0SNY7soEsUEjb6gQ==", 4097, false),
        ("W22ZaJ0SNY7soEsUEjb6gg==", 4096, false),
    ] {
        let credentials =
            Credentials::new(Some(&Secret::parse(VERIFIER)), Some(&keys.clone().into()));
        let mut server = ServerAuth::new(b"user", credentials, Channel::Open, &[1; 18]);
        server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
        let question = format!("r={OURS}x,s={salt},i={iterations}");
        match server.asked(&body(11, question.as_bytes())) {
            Answer::Send(_) => assert!(fits),
            Answer::Failed(Fault::OtherVerifier) => assert!(!fits),
            other => panic!("{other:?}"),
        }
    }
}

/// Noise from a numbered sequence: whatever comes, the answer is no, and nothing breaks.
#[test]
fn noise_is_refused() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..20_000 {
        let len = usize::try_from(next() % 80).expect("small");
        let alphabet = b"nyp,=rcsiv:\0\x01AQEB/+1234n,,n=,r=\xff\xc3";
        let pick = |dice: u64| alphabet[usize::try_from(dice).unwrap_or(0) % alphabet.len()];
        let noise: Vec<_> = (0..len).map(|_| pick(next() >> 33)).collect();
        let mut client = client(Method::Scram);
        if let Step::Ask(_) = client.answer(&initial(u32::try_from(len).expect("small"), &noise)) {
            assert!(matches!(client.answer(&noise), Step::Refuse(_)));
        }
        let mut server = server(b"x");
        server.asked(&body(10, b"SCRAM-SHA-256\0\0"));
        assert!(matches!(server.asked(&body(11, &noise)), Answer::Failed(_)));
        let mut server = self::server(b"x");
        assert!(!matches!(server.asked(&noise), Answer::Derive(_)));
    }
}
