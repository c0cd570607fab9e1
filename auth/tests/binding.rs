//! SCRAM bound to its channel: what either side does, whatever the other believes or somebody in
//! between has changed.

use auth::{
    Account, Answer, Ask, Certificate, Channel, Claim, ClientAuth, Credentials, Decoy, Dice, Fault,
    Form, Method, Secret, ServerAuth, Step, Unproved, Why, end_point,
};

/// Of the password `pencil` (RFC 7677).
const VERIFIER: &[u8] = b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

const HASH: [u8; 32] = [9; 32];

fn tls(hash: Option<&[u8]>) -> Channel {
    Channel::Tls { end_point: hash.map(Into::into) }
}

/// What went over the wire, and how it ended.
#[derive(Debug)]
struct Talk {
    offered: String,
    /// The mechanism and the header that were chosen.
    chosen: String,
    outcome: Result<(), Why>,
    fault: Option<Fault>,
}

/// `ours` is what the server side knows of the channel, `theirs` what the client side does. `between` may
/// change the list of what is offered.
fn talk(ours: Channel, theirs: Channel, between: impl FnOnce(String) -> String) -> Talk {
    let account = Account::Secret(Secret::parse(VERIFIER));
    let claim = Claim { method: Method::Scram, user: b"user", account, channel: ours };
    let dice = Dice { nonce: [2; 18], md5_salt: [3; 4] };
    let (mut server, step) =
        ClientAuth::start(claim, &Decoy::new([7; 32], 4096, Form::Scram), dice);
    let credentials = Credentials::new(Some(&Secret::parse(b"pencil")), None);
    let mut client = ServerAuth::new(b"user", credentials, theirs, &[1; 18]);
    let Step::Ask(Ask::Sasl { mechanisms }) = step else { panic!("{step:?}") };
    let offered = between(mechanisms.join(" "));
    let mut talk =
        Talk { offered: offered.clone(), chosen: String::new(), outcome: Ok(()), fault: None };
    let list = format!("{}\0\0", offered.replace(' ', "\0"));
    let first = match client.asked(&[&10_i32.to_be_bytes(), list.as_bytes()].concat()) {
        Answer::Send(first) => first,
        Answer::Failed(fault) => {
            talk.fault = Some(fault);
            return talk;
        }
        other => panic!("{other:?}"),
    };
    let text = String::from_utf8_lossy(&first).into_owned();
    let (mechanism, rest) = text.split_once('\0').expect("a mechanism");
    let header = rest[4..].split_once(",n=").expect("a header").0;
    talk.chosen = format!("{mechanism} {header}");
    let question = match server.answer(&first) {
        Step::Ask(Ask::SaslContinue(question)) => question,
        Step::Refuse(why) => {
            talk.outcome = Err(why);
            return talk;
        }
        other => panic!("{other:?}"),
    };
    let Answer::Derive(job) = client.asked(&[&11_i32.to_be_bytes(), &question[..]].concat()) else {
        panic!("nothing to derive")
    };
    let Answer::Send(last) = client.derived(&job.run()) else { panic!("no proof") };
    match server.answer(&last) {
        Step::Accept(accepted) => {
            let last = accepted.sasl_final.expect("SCRAM ends so");
            let done = client.asked(&[&12_i32.to_be_bytes(), &last[..]].concat());
            assert!(matches!(done, Answer::Wait), "{done:?}");
        }
        Step::Refuse(why) => talk.outcome = Err(why),
        other => panic!("{other:?}"),
    }
    talk
}

#[test]
fn both_bind_where_both_can() {
    let both = talk(tls(Some(&HASH)), tls(Some(&HASH)), |offer| offer);
    assert_eq!(both.offered, "SCRAM-SHA-256-PLUS SCRAM-SHA-256");
    assert_eq!(both.chosen, "SCRAM-SHA-256-PLUS p=tls-server-end-point,");
    assert_eq!(both.outcome, Ok(()));
}

/// F6: it is not offered without TLS, nor where nobody could say what to bind to.
#[test]
fn f06_binding_is_offered_only_where_there_is_something_to_bind_to() {
    for ours in [Channel::Open, tls(None)] {
        for (theirs, header) in [(Channel::Open, "n,"), (tls(None), "n,"), (tls(Some(&HASH)), "y,")]
        {
            let talk = talk(ours.clone(), theirs, |offer| offer);
            assert_eq!(talk.offered, "SCRAM-SHA-256");
            assert_eq!(talk.chosen, format!("SCRAM-SHA-256 {header}"));
            assert_eq!(talk.outcome, Ok(()));
        }
    }
    // A client over TLS that cannot bind says so, and is let in.
    let cannot = talk(tls(Some(&HASH)), tls(None), |offer| offer);
    assert_eq!((&*cannot.chosen, cannot.outcome), ("SCRAM-SHA-256 n,", Ok(())));
}

/// F6: somebody in between who takes the offer away is found out, since the client says what it saw.
#[test]
fn f06_a_downgrade_is_noticed() {
    let talk = talk(tls(Some(&HASH)), tls(Some(&HASH)), |_| "SCRAM-SHA-256".into());
    assert_eq!(talk.chosen, "SCRAM-SHA-256 y,");
    assert_eq!(talk.outcome, Err(Why::Sasl(Unproved::Downgrade)));
    assert_eq!(Why::Sasl(Unproved::Downgrade).text(), "SCRAM channel binding negotiation error");
}

/// Somebody in between has a certificate of his own: the proof is made for another one than ours.
#[test]
fn a_proof_for_another_certificate_is_worth_nothing() {
    for theirs in [&[8; 32][..], &HASH[..31], &[9; 33], &[]] {
        let talk = talk(tls(Some(&HASH)), tls(Some(theirs)), |offer| offer);
        assert!(matches!(talk.outcome, Err(Why::Sasl(Unproved::Broken(_)))), "{talk:?}");
    }
}

/// A proxy next to us ends the server's TLS: the server offers to bind to what we do not have.
#[test]
fn a_server_that_offers_binding_where_we_have_none_is_answered_without() {
    for theirs in [Channel::Open, tls(None)] {
        let talk = talk(tls(Some(&HASH)), theirs, |offer| offer);
        assert_eq!((&*talk.chosen, talk.outcome), ("SCRAM-SHA-256 n,", Ok(())));
    }
    let only = talk(tls(Some(&HASH)), tls(None), |_| "SCRAM-SHA-256-PLUS".into());
    assert_eq!(only.fault, Some(Fault::NoMechanism));
}

/// The mechanism says one thing, the header another.
#[test]
fn a_mechanism_and_its_header_must_agree() {
    let open = |channel: Channel, mechanism: &str, header: &str| {
        let account = Account::Secret(Secret::parse(VERIFIER));
        let claim = Claim { method: Method::Scram, user: b"user", account, channel };
        let dice = Dice { nonce: [2; 18], md5_salt: [3; 4] };
        let (mut server, _) = ClientAuth::start(claim, &Decoy::new([7; 32], 1, Form::Scram), dice);
        let first = format!("{header}n=,r=abc");
        let len = i32::try_from(first.len()).expect("short").to_be_bytes();
        let body = [mechanism.as_bytes(), b"\0", &len, first.as_bytes()].concat();
        matches!(server.answer(&body), Step::Ask(_))
    };
    let (plus, plain) = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256");
    for (mechanism, header, bindable, open_fits) in [
        (plus, "p=tls-server-end-point,,", true, false),
        (plus, "p=tls-unique,,", false, false),
        (plus, "p=,,", false, false),
        (plus, "n,,", false, false),
        (plus, "y,,", false, false),
        (plain, "p=tls-server-end-point,,", false, false),
        (plain, "n,,", true, true),
        (plain, "y,,", false, true),
        ("SCRAM-SHA-1", "n,,", false, false),
        ("", "n,,", false, false),
    ] {
        let bound = open(tls(Some(&HASH)), mechanism, header);
        let unbound = open(Channel::Open, mechanism, header);
        assert_eq!((bound, unbound), (bindable, open_fits), "{mechanism} {header}");
    }
}

/// Made by OpenSSL, and hashed by it.
#[test]
fn certificates_are_hashed_by_their_own_function() {
    let hex = |hash: Option<Box<[u8]>>| {
        let hash = hash?;
        Some(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let ecdsa = include_bytes!("certificates/ecdsa384.der");
    assert_eq!(
        hex(end_point(ecdsa)).as_deref(),
        Some(
            "04fb1ffc67b99b7022a6c8b0181944f6204fb2187ffec6ee5dd545df5dd3c65d3f317579e557e6db517c04a57b97fef4"
        )
    );
    assert_eq!(
        hex(end_point(include_bytes!("certificates/rsa1.der"))).as_deref(),
        Some("f94bc5f6bbdd42f0166d80ac38c4a06542c81f8ee9b5882b9fe948655b01a5ea"),
        "SHA-1 is too weak"
    );
    assert_eq!(
        hex(end_point(include_bytes!("certificates/pss256.der"))).as_deref(),
        Some("f265eeac9a9ca894ba24686ff0952e69f5faa2363363adc894636b0d803577ed")
    );
    assert_eq!(end_point(include_bytes!("certificates/ed.der")), None, "it has no function");
    for end in 0..ecdsa.len() {
        assert_eq!(end_point(&ecdsa[..end]), None);
        assert_eq!(Certificate::read(&ecdsa[..end]), None);
    }
}

#[test]
fn a_certificate_says_whom_it_is_made_out_to() {
    let ann = Certificate::read(include_bytes!("certificates/ecdsa384.der")).expect("read");
    assert_eq!(ann.common_name.as_deref(), Some("ann"));
    assert_eq!(ann.distinguished_name, "CN=ann,OU=keepers,O=Zoo\\, Inc.");
}

/// A name with a zero byte in it could pass for another where strings end there.
#[test]
fn a_name_with_a_zero_byte_is_no_name() {
    let mut der = include_bytes!("certificates/ecdsa384.der").to_vec();
    let at = der.windows(3).rposition(|window| window == b"ann").expect("the subject's name");
    der[at + 1] = 0;
    let found = Certificate::read(&der);
    assert_eq!(found.and_then(|found| found.common_name), None);
}
