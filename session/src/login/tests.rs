//! Whole logins, and what can go wrong in them. The two sides talk to each other where they can.

use std::collections::VecDeque;

use auth::{Account, Channel, Credentials, Decoy, Dice, Form, Method, Password, Secret};
use wire::{ErrorFields, Scanner, Status, tag, write};

use super::*;

/// Of the password `pencil` (RFC 7677), with few iterations.
const PLAIN: &[u8] = b"pencil";
const VERIFIER: &[u8] = b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn decoy() -> Decoy {
    Decoy::new([7; 32], 16, Form::Scram)
}

fn plan(method: Method, secret: &[u8]) -> AuthPlan {
    let account = Account::Secret(Secret::parse(secret));
    let channel = Channel::Open;
    AuthPlan { method, account, channel, dice: Dice { nonce: [2; 18], md5_salt: [3; 4] } }
}

fn opening(minor: u16, credentials: Credentials) -> Opening<'static> {
    Opening {
        user: b"ann",
        database: b"shop",
        replication: Replication::None,
        minor,
        parameters: &[(b"application_name", b"till"), (b"client_encoding", b"UTF8")],
        credentials,
        channel: Channel::Open,
    }
}

fn plain(password: &[u8]) -> Credentials {
    Credentials::Plain(Password::new(password))
}

/// The tags of the messages in `bytes`.
fn tags(mut bytes: &[u8]) -> String {
    let (mut scanner, mut tags) = (Scanner::default(), String::new());
    while let Some(piece) = scanner.next(&mut bytes).expect("our own") {
        assert!(piece.is_whole(), "half a message");
        tags.push(char::from(piece.tag));
    }
    tags
}

/// The one error in `bytes`, after other messages: its fields.
fn error(bytes: &[u8]) -> Vec<(char, String)> {
    let mut rest = bytes;
    let mut scanner = Scanner::default();
    while let Some(piece) = scanner.next(&mut rest).expect("our own") {
        if piece.tag == tag::server::ERROR {
            assert!(rest.is_empty(), "it is the last");
            let text = |(kind, value)| (char::from(kind), String::from_utf8_lossy(value).into());
            return ErrorFields::new(piece.body).map(text).collect();
        }
    }
    panic!("no error in {bytes:?}")
}

fn fatal_fields(text: &str) -> Vec<(char, String)> {
    vec![('S', "FATAL".into()), ('C', "08P01".into()), ('M', text.into())]
}

/// Has a client of ours log in to a server of ours, `size` bytes at a time, and pipelines `tail`.
fn log_in(plan: AuthPlan, opening: Opening<'_>, size: usize) -> (Step, ServerStep) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let mut server = ServerLogin::start(opening, &[1; 18], &mut up);
    let mut client = ClientLogin::new(Encryption::Denied);
    let (mut plan, mut client_end) = (Some(plan), None);
    let (mut to_client, mut to_server) = (VecDeque::from(up), VecDeque::new());
    for _ in 0..2_000_000 {
        let mut out = Vec::new();
        let bytes: Vec<u8> = to_client.drain(..size.min(to_client.len())).collect();
        let mut step = client.hear(&bytes, &mut out);
        loop {
            step = match step {
                Step::Startup(facts) => {
                    assert_eq!((&*facts.user, &*facts.database), (&b"ann"[..], &b"shop"[..]));
                    assert_eq!(facts.application_name(), Some(&b"till"[..]));
                    client.admit(plan.take().expect("asked once"), &decoy(), &mut out)
                }
                Step::Derive(job) => client.derived(&job.run(), &mut out),
                Step::More => break,
                Step::Secure { .. } => panic!("no TLS was offered"),
                end => break client_end = client_end.or(Some(end)),
            }
        }
        if matches!(client_end, Some(Step::Accept(_))) && down.is_empty() {
            let parameters = [(&b"server_version"[..], &b"18.0"[..]), (b"TimeZone", b"UTC")];
            welcome(&mut down, parameters, 99, &[5; 32], Some(b"hello"));
            out.extend_from_slice(&down);
        }
        to_server.extend(out);
        let (bytes, mut out) =
            (to_server.drain(..size.min(to_server.len())).collect::<Vec<u8>>(), vec![]);
        let mut step = server.hear(&bytes, &mut out);
        if let ServerStep::Derive(job) = step {
            step = server.derived(&job.run(), &mut out);
        }
        to_client.extend(out);
        if !matches!(step, ServerStep::More) {
            return (client_end.unwrap_or(Step::More), step);
        }
    }
    panic!("no end")
}

/// However the bytes are cut, and however one logs in, the outcome is the same.
#[test]
fn a_login_survives_any_segmentation() {
    for size in [1, 2, 3, 5, 7, 64, usize::MAX] {
        for minor in [0, 2] {
            for (method, secret) in [
                (Method::Any, PLAIN),
                (Method::Trust, PLAIN),
                (Method::Plain, PLAIN),
                (Method::Plain, VERIFIER),
                (Method::Md5, PLAIN),
                (Method::Md5, VERIFIER),
                (Method::Scram, PLAIN),
                (Method::Scram, VERIFIER),
            ] {
                let case = format!("{method:?}, 3.{minor}, cut every {size}");
                let (client, server) =
                    log_in(plan(method, secret), opening(minor, plain(PLAIN)), size);
                let Step::Accept(Proof { keys, .. }) = client else { panic!("{case}: {client:?}") };
                // Whoever proves a password against a verifier leaves keys, by SCRAM or in the clear.
                let leaves = method == Method::Scram || secret == VERIFIER;
                assert_eq!(keys.is_some(), leaves, "{case}");
                let ServerStep::Ready(greeting) = server else { panic!("{case}: {server:?}") };
                assert_eq!(greeting.key, Some((99, vec![5; 32])));
                assert_eq!(greeting.minor, minor);
                let parameters = [(&b"server_version"[..], &b"18.0"[..]), (b"TimeZone", b"UTC")];
                assert!(greeting.parameters.iter().map(|(n, v)| (&**n, &**v)).eq(parameters));
                assert_eq!(greeting.leftover, b"");
            }
        }
    }
}

#[test]
fn a_wrong_password_is_told_in_three_fields() {
    for size in [1, usize::MAX] {
        for (method, text) in [
            (Method::Plain, "password authentication failed"),
            (Method::Md5, "password authentication failed"),
            (Method::Scram, "SASL authentication failed"),
        ] {
            let (client, server) = log_in(plan(method, PLAIN), opening(0, plain(b"wrong")), size);
            let Step::Refuse(refusal) = client else { panic!("{client:?}") };
            assert_eq!(refusal.text, text);
            let ServerStep::Failed(failure) = server else { panic!("{server:?}") };
            assert_eq!(failure.to_string(), format!("FATAL: {text}"));
            let mut out = vec![];
            failure.tell(&mut out);
            assert_eq!(error(&out), fatal_fields(text));
        }
    }
}

// The client's side.

fn startup(minor: u16, parameters: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = vec![];
    write::client::startup(&mut out, minor, parameters.iter().copied());
    out
}

fn untagged(code: u32, rest: &[u8]) -> Vec<u8> {
    let len = u32::try_from(rest.len() + 8).expect("short");
    [&len.to_be_bytes(), &code.to_be_bytes(), rest].concat()
}

/// What a fresh login says to `bytes`, all at once and one by one.
fn first(bytes: &[u8]) -> (Step, Vec<u8>) {
    let mut out = vec![];
    let step = ClientLogin::new(Encryption::Denied).hear(bytes, &mut out);
    (step, out)
}

fn refused(bytes: &[u8], text: &str) {
    let (step, out) = first(bytes);
    let Step::Refuse(refusal) = step else { panic!("{bytes:?}: {step:?}") };
    assert_eq!(refusal.text, text);
    assert_eq!(error(&out), fatal_fields(text));

    let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
    let end = bytes.iter().map(|byte| login.hear(&[*byte], &mut out));
    let Some(Step::Refuse(slow)) = end.into_iter().find(|step| !matches!(step, Step::More)) else {
        panic!("{bytes:?} one by one")
    };
    // A header that is refused at its first byte has only that byte to show.
    assert_eq!(slow.text.split(':').next(), refusal.text.split(':').next());
}

fn facts(bytes: &[u8]) -> Facts {
    match first(bytes).0 {
        Step::Startup(facts) => *facts,
        other => panic!("{other:?}"),
    }
}

/// libpq asks for GSS, then for TLS, then goes on without.
#[test]
fn encryption_is_denied_once_each() {
    let (ssl, gss) = (untagged(wire::SSL_CODE, b""), untagged(wire::GSS_CODE, b""));
    let ann = startup(0, &[(b"user", b"ann")]);
    for requests in [vec![], vec![&ssl], vec![&gss], vec![&gss, &ssl], vec![&ssl, &gss]] {
        let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
        for request in &requests {
            assert!(matches!(login.hear(request, &mut out), Step::More));
        }
        assert_eq!(out, vec![b'N'; requests.len()]);
        assert!(matches!(login.hear(&ann, &mut out), Step::Startup(_)));
    }
    for twice in [&ssl, &gss] {
        let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
        assert!(matches!(login.hear(twice, &mut out), Step::More));
        assert!(matches!(login.hear(twice, &mut out), Step::Refuse(_)));
    }
}

/// CVE-2021-3935: what was sent before the answer must not pass for encrypted.
#[test]
fn bytes_behind_a_request_for_encryption_are_refused() {
    for code in [wire::SSL_CODE, wire::GSS_CODE] {
        for tail in [&b"x"[..], &startup(0, &[(b"user", b"ann")])] {
            let (step, out) = first(&[&untagged(code, b""), tail].concat());
            assert!(matches!(step, Step::Refuse(_)), "{step:?}");
            assert_eq!(out[0], b'E', "and no N before");
        }
    }
}

/// What a login with TLS on offer makes of `bytes`.
fn first_offered(encryption: Encryption, bytes: &[u8]) -> (ClientLogin, Step, Vec<u8>) {
    let (mut login, mut out) = (ClientLogin::new(encryption), vec![]);
    let step = login.hear(bytes, &mut out);
    (login, step, out)
}

#[test]
fn tls_is_said_yes_to_once() {
    let request = untagged(wire::SSL_CODE, b"");
    let (mut login, step, mut out) = first_offered(Encryption::Offered, &request);
    assert!(matches!(step, Step::Secure { beginning: None }), "{step:?}");
    assert_eq!(out, b"S");
    login.secured();
    out.clear();
    let step = login.hear(&request, &mut out);
    assert!(matches!(step, Step::Refuse(_)), "{step:?}: TLS within TLS");
}

/// CVE-2021-3935: what came before the handshake must not count as encrypted.
#[test]
fn plain_bytes_do_not_pass_for_encrypted_ones() {
    let request = untagged(wire::SSL_CODE, b"");
    let tail = startup(0, &[(b"user", b"ann")]);
    let (_, step, out) = first_offered(Encryption::Offered, &[&request[..], &tail].concat());
    assert!(matches!(step, Step::Refuse(_)), "{step:?}");
    assert_eq!(out[0], b'E', "and no S before");

    let (mut login, _, mut out) = first_offered(Encryption::Offered, &request);
    out.clear();
    let step = login.hear(&tail, &mut out);
    assert!(matches!(step, Step::Refuse(_)), "{step:?}");
    assert_eq!(out, b"", "nobody there understands a word");
}

#[test]
fn tls_may_begin_without_asking() {
    let hello = b"\x16\x03\x01\x02\0\x01";
    let (mut login, step, out) = first_offered(Encryption::Offered, hello);
    assert!(matches!(step, Step::Secure { beginning: Some(bytes) } if bytes == hello));
    assert_eq!(out, b"");
    login.secured();
    let step = login.hear(hello, &mut vec![]);
    assert!(matches!(step, Step::Refuse(_)), "{step:?}: TLS within TLS");
}

#[test]
fn who_must_have_tls_and_does_not_ask_is_told() {
    let hello = startup(0, &[(b"user", b"ann")]);
    let (_, step, out) = first_offered(Encryption::Required, &hello);
    assert!(matches!(step, Step::Refuse(refusal) if refusal.text == "SSL required"));
    assert_eq!(out[0], b'E');
    let cancel = untagged(wire::CANCEL_CODE, &[0, 0, 0, 9, 1, 1, 1, 1]);
    let (_, step, _) = first_offered(Encryption::Required, &cancel);
    assert!(matches!(step, Step::Cancel { .. }), "old clients cancel in the clear: {step:?}");
}

#[test]
fn tls_without_asking_is_refused_without_a_word() {
    let (step, out) = first(b"\x16\x03\x01\x02\0\x01");
    assert!(matches!(step, Step::Refuse(refusal) if refusal.text.contains("TLS")));
    assert_eq!(out, b"");
}

#[test]
fn a_cancel_request_shows_its_key() {
    for key in [&[1; 4][..], &[2; 32], &[3; 256]] {
        let packet = untagged(wire::CANCEL_CODE, &[&9_u32.to_be_bytes(), key].concat());
        let (step, out) = first(&packet);
        assert!(matches!(step, Step::Cancel { pid: 9, key: shown } if shown == key));
        assert_eq!(out, b"");
    }
}

/// One NegotiateProtocolVersion, and only where there is something to say.
#[test]
fn protocol_versions_are_negotiated_once() {
    for (minor, option, spoken, negotiated) in [
        (0, false, 0, false),
        (1, false, 0, true),
        (2, false, 2, false),
        (3, false, 2, true),
        (9999, false, 2, true),
        (0, true, 0, true),
        (2, true, 2, true),
        (9999, true, 2, true),
    ] {
        let mut parameters = vec![(&b"user"[..], &b"ann"[..])];
        if option {
            parameters.extend([(&b"_pq_.x"[..], &b"1"[..]), (b"_pq_.y", b"2")]);
        }
        let (step, out) = first(&startup(minor, &parameters));
        let Step::Startup(facts) = step else { panic!("{step:?}") };
        assert_eq!(facts.minor, spoken, "3.{minor}");
        assert_eq!(facts.parameters, []);
        assert_eq!(tags(&out), if negotiated { "v" } else { "" }, "3.{minor} {option}");
        if negotiated {
            let told = wire::Negotiate::read(&out[5..]).expect("our own");
            assert_eq!(told.version, 3 << 16 | u32::from(spoken));
            assert_eq!(told.unknown.count(), if option { 2 } else { 0 });
        }
    }
    refused(&untagged(2 << 16, &[0; 288]), "old V2 protocol not supported");
    refused(&untagged(4 << 16, b"user\0ann\0\0"), "unsupported frontend protocol 4.0");
    refused(&untagged(0, b""), "unsupported frontend protocol 0.0");
}

#[test]
fn names_are_neither_missing_nor_long() {
    let name = |len| vec![b'x'; len];
    refused(&startup(0, &[]), "no username supplied");
    refused(&startup(0, &[(b"database", b"shop")]), "no username supplied");
    refused(&startup(0, &[(b"user", b"")]), "no username supplied");
    for len in [128, 1000, 9_900] {
        refused(&startup(0, &[(b"user", &name(len))]), "username too long");
    }
    for len in [64, 9_900] {
        let packet = startup(0, &[(b"user", b"ann"), (b"database", &name(len))]);
        refused(&packet, "database name too long");
    }
    let longest = facts(&startup(0, &[(b"user", &name(127)), (b"database", &name(63))]));
    assert_eq!((longest.user.len(), longest.database.len()), (127, 63));
    // 64 kB of a name: no such packet is even begun.
    let (step, _) = first(&startup(0, &[(b"user", &name(65_536))])[..4]);
    assert!(
        matches!(step, Step::Refuse(refusal) if refusal.text == "bad packet header: '0001000f'")
    );
}

#[test]
fn who_leaves_before_logging_in_is_told_nothing() {
    let (step, out) = first(b"X\0\0\0\x04");
    assert!(matches!(step, Step::Refuse(refusal) if refusal.text == "client close request"));
    assert_eq!(out, b"");
}

#[test]
fn first_packets_that_are_none_are_refused() {
    refused(&[0, 0, 0, 3], "bad packet header: '00000003'");
    refused(&[0, 0, 39, 21], "bad packet header: '00002715'");
    refused(b"Q\0\0\0\x0dselect 1\0", "bad packet header: '510000000d73656c'");
    refused(b"GET / HTTP/1.1\r\n", "bad packet header: '474554202f204854'");
    for rest in [&b""[..], b"user\0ann\0", b"user\0", b"user", b"user\0ann\0\0x", b"\0\0"] {
        refused(&untagged(3 << 16, rest), "invalid startup packet layout");
    }
    refused(&untagged(wire::SSL_CODE, b"x"), "invalid startup packet layout");
    refused(&untagged(wire::CANCEL_CODE, b"short"), "invalid startup packet layout");
    for byte in (1..=255).filter(|byte| *byte != wire::TLS_HANDSHAKE) {
        assert!(matches!(first(&[byte]).0, Step::Refuse(_)), "{byte}");
    }
}

#[test]
fn the_last_of_a_repeated_parameter_counts() {
    let facts = facts(&startup(
        0,
        &[
            (b"user", b"eve"),
            (b"TimeZone", b"UTC"),
            (b"user", b"ann"),
            (b"timezone", b"CET"),
            (b"application_name", b"one"),
            (b"application_name", b"two"),
            (b"options", b"-c datestyle=ISO -c TimeZone=EET"),
        ],
    ));
    assert_eq!((&*facts.user, &*facts.database), (&b"ann"[..], &b"ann"[..]));
    assert_eq!(facts.application_name(), Some(&b"two"[..]));
    assert_eq!(facts.parameters.len(), 5, "all are kept, in order");
    let settings =
        Policy { extra: &[], ignored: &[], follows: false }.settings(&facts).expect("all tracked");
    let want = [("DateStyle", "ISO"), ("TimeZone", "CET"), ("application_name", "two")];
    let want = want.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    let vars = &settings.vars;
    assert!(vars.len() == 3 && want.iter().all(|pair| vars.contains(pair)), "{vars:?}");
}

/// What a pooler cannot keep per client, it must not seem to grant.
#[test]
fn parameters_nobody_tracks_are_refused_unless_ignored() {
    let settings = |parameter: (&[u8], &[u8]), extra: &[&str], ignored: &[&str]| {
        let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let facts = facts(&startup(0, &[(b"user", b"ann"), parameter]));
        let (extra, ignored) = (own(extra), own(ignored));
        let settings = Policy { extra: &extra, ignored: &ignored, follows: false }.settings(&facts);
        settings.map(|asked| asked.vars.len()).map_err(|unsupported| unsupported.to_string())
    };
    let digits = (&b"extra_float_digits"[..], &b"2"[..]);
    let refusal = Err("unsupported startup parameter: extra_float_digits".to_string());
    assert_eq!(settings(digits, &[], &[]), refusal);
    assert_eq!(settings(digits, &[], &["options"]), refusal, "that is for the inside of options");
    assert_eq!(settings(digits, &[], &["Extra_Float_Digits"]), Ok(0));
    assert_eq!(settings((b"intervalstyle", b"iso_8601"), &["IntervalStyle"], &[]), Ok(1));

    let path = (&b"options"[..], &b"-c search_path=x"[..]);
    let refusal = Err("unsupported startup parameter in options: search_path".to_string());
    assert_eq!(settings(path, &[], &[]), refusal);
    assert_eq!(settings(path, &[], &["options"]), Ok(0));
    assert_eq!(settings(path, &[], &["search_path"]), Ok(0));
    assert_eq!(settings(path, &["search_path"], &[]), Ok(1));

    let text = "unsupported options startup parameter: only '-c config=val' and '--config=val' \
                are allowed";
    assert_eq!(settings((b"options", b"-d 5"), &[], &["options"]), Err(text.into()));
}

#[test]
fn replication_is_read_as_postgres_reads_it() {
    for (value, want) in [
        ("database", Replication::Logical),
        ("true", Replication::Physical),
        ("ON", Replication::Physical),
        ("y", Replication::Physical),
        ("1", Replication::Physical),
        ("off", Replication::None),
        ("f", Replication::None),
        ("0", Replication::None),
    ] {
        let packet = startup(0, &[(b"user", b"ann"), (b"replication", value.as_bytes())]);
        assert_eq!(facts(&packet).replication, want, "{value}");
    }
    for value in ["", "o", "databas", "2", "truely"] {
        let packet = startup(0, &[(b"user", b"ann"), (b"replication", value.as_bytes())]);
        refused(&packet, &format!("invalid value for parameter \"replication\": \"{value}\""));
    }
}

/// A login that has asked for something by `method`.
fn asked(method: Method) -> ClientLogin {
    let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
    login.hear(&startup(0, &[(b"user", b"ann")]), &mut out);
    assert!(matches!(login.admit(plan(method, PLAIN), &decoy(), &mut out), Step::More));
    assert_eq!(tags(&out), "R");
    login
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    write::message(&mut out, tag, |out| out.extend_from_slice(body));
    out
}

/// CVE-2015-4054: a message in the wrong place took the process down.
#[test]
fn every_message_in_every_state_is_refused_cleanly() {
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        for tag in 0..=255 {
            for body in [&b""[..], b"\0", b"x\0", b"SCRAM-SHA-256\0\0\0\0\x03n,,"] {
                let mut out = vec![];
                let step = asked(method).hear(&message(tag, body), &mut out);
                assert!(matches!(step, Step::Refuse(_)), "{method:?} {tag} {body:?}: {step:?}");
                let silent = tag == tag::client::TERMINATE;
                assert_eq!(tags(&out), if silent { "" } else { "E" });
            }
        }
        for len in [0_u32, 1, 3, 0x8000_0000, u32::MAX] {
            let header = [&b"p"[..], &len.to_be_bytes()].concat();
            let step = asked(method).hear(&header, &mut vec![]);
            let text = "bad packet header";
            assert!(matches!(step, Step::Refuse(refusal) if refusal.text.starts_with(text)));
        }
    }
}

/// Messages that come while the worker still looks the user up wait for their turn.
#[test]
fn an_early_message_waits() {
    for (early, want) in [(&b"p\0\0\0\x0bpencil\0"[..], true), (b"Q\0\0\0\x05\0", false)] {
        let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
        let packet = [&startup(0, &[(b"user", b"ann")]), early, b"S\0\0\0\x04"].concat();
        assert!(matches!(login.hear(&packet, &mut out), Step::Startup(_)));
        assert!(matches!(login.hear(b"", &mut out), Step::More));
        let step = login.admit(plan(Method::Plain, PLAIN), &decoy(), &mut out);
        assert_eq!(matches!(step, Step::Accept(_)), want, "{step:?}");
        if want {
            assert_eq!(login.leftover(), b"S\0\0\0\x04");
            assert_eq!(login.leftover(), b"", "given out once");
        }
    }
}

/// Passwords of 64 kB, in any pieces; one byte more is told so before it is sent.
#[test]
fn long_passwords_fit() {
    let password = vec![b'x'; MESSAGE_MAX - 1];
    let mut packet = vec![];
    write::client::password(&mut packet, &password);
    for size in [1, 4096, usize::MAX] {
        let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
        login.hear(&startup(0, &[(b"user", b"ann")]), &mut out);
        let _ = login.admit(plan(Method::Plain, &password), &decoy(), &mut out);
        let steps: Vec<_> = packet
            .chunks(size.min(packet.len()))
            .map(|piece| login.hear(piece, &mut out))
            .collect();
        let (last, before) = steps.split_last().expect("pieces");
        assert!(matches!(last, Step::Accept(_)) && before.iter().all(|s| matches!(s, Step::More)));
    }
    let mut out = vec![];
    let too_long = [&b"p"[..], &65_540_u32.to_be_bytes()].concat();
    assert!(matches!(asked(Method::Scram).hear(&too_long, &mut out), Step::Refuse(_)));
    assert_eq!(error(&out), fatal_fields("password too long"));
}

/// Whoever floods a login that is waiting for us is turned away, not stored.
#[test]
fn a_flood_is_not_kept() {
    let (mut login, mut out) = (ClientLogin::new(Encryption::Denied), vec![]);
    login.hear(&startup(0, &[(b"user", b"ann")]), &mut out);
    let flood = vec![0; 65_536];
    let end = (0..10).map(|_| login.hear(&flood, &mut out)).find(|s| !matches!(s, Step::More));
    assert!(matches!(end, Some(Step::Refuse(_))), "{end:?}");
}

#[test]
fn a_welcome_is_in_order() {
    let mut out = vec![];
    welcome(&mut out, [(&b"TimeZone"[..], &b"UTC"[..])], 7, &[1; 4][..key_len(0)], Some(b"hi"));
    assert_eq!(tags(&out), "RSKNZ");
    out.clear();
    welcome(&mut out, [], 7, &[1; 32][..key_len(2)], None);
    assert_eq!(tags(&out), "RKZ");
}

// The server's side.

fn server(credentials: Credentials) -> ServerLogin {
    ServerLogin::start(opening(2, credentials), &[1; 18], &mut vec![])
}

fn said(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![];
    build(&mut out);
    out
}

fn ok() -> Vec<u8> {
    said(write::server::authentication_ok)
}

fn ready() -> Vec<u8> {
    said(|out| write::server::ready_for_query(out, Status::Idle))
}

fn key(len: usize) -> Vec<u8> {
    said(|out| write::server::backend_key_data(out, 9, &vec![1; len]))
}

fn negotiate(version: u32) -> Vec<u8> {
    said(|out| write::server::negotiate(out, version, []))
}

fn heard(parts: &[&[u8]]) -> ServerStep {
    server(plain(b"x")).hear(&parts.concat(), &mut vec![])
}

fn greeted(parts: &[&[u8]]) -> Greeting {
    match heard(parts) {
        ServerStep::Ready(greeting) => greeting,
        other => panic!("{other:?}"),
    }
}

fn broken(parts: &[&[u8]]) -> Failure {
    match heard(parts) {
        ServerStep::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_opening_says_who_and_what() {
    let mut out = vec![];
    let replication = Replication::Logical;
    let opening = Opening { replication, ..opening(2, plain(b"x")) };
    let _ = ServerLogin::start(opening, &[1; 18], &mut out);
    let Ok(wire::Startup::V3 { minor: 2, parameters }) = wire::Startup::read(&out) else {
        panic!("{out:?}")
    };
    assert!(parameters.eq([
        (&b"user"[..], &b"ann"[..]),
        (b"database", b"shop"),
        (b"replication", b"database"),
        (b"application_name", b"till"),
        (b"client_encoding", b"UTF8"),
    ]));
}

/// Some servers have no key to give (D8), some a long one.
#[test]
fn a_server_may_have_any_key_or_none() {
    assert_eq!(greeted(&[&ok(), &ready()]).key, None);
    for len in [4, 32, 256] {
        assert_eq!(greeted(&[&ok(), &key(len), &ready()]).key, Some((9, vec![1; len])));
    }
    for len in [0, 3, 257] {
        assert!(matches!(broken(&[&ok(), &key(len)]), Failure::Protocol(_)));
    }
}

#[test]
fn a_server_that_speaks_less_is_followed() {
    assert_eq!(greeted(&[&ok(), &ready()]).minor, 2);
    assert_eq!(greeted(&[&negotiate(3 << 16), &ok(), &ready()]).minor, 0);
    for version in [0, 2 << 16, 3 << 16 | 2, 3 << 16 | 9999, 4 << 16, u32::MAX] {
        broken(&[&negotiate(version)]);
    }
    broken(&[&negotiate(3 << 16), &negotiate(3 << 16)]);
    broken(&[&ok(), &negotiate(3 << 16)]);
    let mut old = ServerLogin::start(opening(0, plain(b"x")), &[1; 18], &mut vec![]);
    let step = old.hear(&negotiate(3 << 16), &mut vec![]);
    assert!(matches!(step, ServerStep::Failed(_)), "nothing less than 3.0 was offered: {step:?}");
}

/// B15: notices, settings and notifications in between, and what comes right behind the end.
#[test]
fn a_talkative_server_is_listened_to() {
    let report = wire::Report { message: b"psst", ..wire::Report::default() };
    let notice = said(|out| write::server::notice_response(out, &report));
    let setting =
        |value: &[u8]| said(|out| write::server::parameter_status(out, b"TimeZone", value));
    let notification = message(tag::server::NOTIFICATION, b"\0\0\0\x01chat\0hi\0");
    let greeting = greeted(&[
        &notice,
        &ok(),
        &notice,
        &setting(b"UTC"),
        &notification,
        &key(4),
        &setting(b"CET"),
        &ready(),
        &notice,
    ]);
    assert_eq!(greeting.parameters, [(b"TimeZone".to_vec(), b"CET".to_vec())]);
    assert_eq!(greeting.leftover, notice);

    let flood = said(|out| (0..100_000).for_each(|_| write::server::notice_response(out, &report)));
    let mut login = server(plain(b"x"));
    let mut end = ServerStep::More;
    for piece in flood.chunks(16_384) {
        end = login.hear(piece, &mut vec![]);
        if !matches!(end, ServerStep::More) {
            break;
        }
    }
    assert!(matches!(end, ServerStep::Failed(Failure::Protocol(_))), "{end:?}");
}

#[test]
fn every_message_out_of_place_fails_the_login() {
    let anywhere = [tag::server::ERROR, tag::server::NOTICE];
    for tag in 0..=255 {
        let stray = message(tag, b"");
        if !anywhere.contains(&tag) {
            broken(&[&stray]);
            if tag != tag::server::NOTIFICATION {
                broken(&[&ok(), &stray]);
            }
            broken(&[&said(write::server::authentication_cleartext), &stray]);
        }
    }
    broken(&[&ready()]);
    broken(&[&key(4)]);
    broken(&[&said(|out| write::server::parameter_status(out, b"a", b"b"))]);
    broken(&[&ok(), &ok()]);
    for status in [Status::Transaction, Status::Failed] {
        broken(&[&ok(), &said(|out| write::server::ready_for_query(out, status))]);
    }
    for len in [0_u32, 3, 70_000, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        broken(&[b"R", &len.to_be_bytes()]);
    }
    broken(&[b"HTTP/1.1 400 Bad Request\r\n\r\n"]);
}

/// CVE-2026-6666: an error without SQLSTATE took the process down. Whatever is missing, the
/// client hears a whole error.
#[test]
fn an_error_with_anything_missing_is_told_whole() {
    for (body, code, text) in [
        (&b"SFATAL\0VFATAL\0C3D000\0Mno such\0Dx\0\0"[..], "3D000", "no such"),
        (b"SFATAL\0C28P01\0Mwrong\0\0", "28P01", "wrong"),
        (b"SFATAL\0Mwrong\0\0", "08P01", "wrong"),
        (b"SFATAL\0C\0Mwrong\0\0", "08P01", "wrong"),
        (b"SFATAL\0C1\xff\0Mwrong\0\0", "08P01", "wrong"),
        (b"C28P01\0Mwrong\0\0", "28P01", "wrong"),
        (b"SFATAL\0C28P01\0\0", "28P01", "server login failed"),
        (b"SFATAL\0C28P01\0M\0\0", "28P01", "server login failed"),
        (b"SFATAL\0C28P01\0Mwrong\0", "28P01", "wrong"),
        (b"SFATAL\0C28P01\0Mwrong", "28P01", "server login failed"),
        (b"S", "08P01", "server login failed"),
        (b"\0", "08P01", "server login failed"),
        (b"", "08P01", "server login failed"),
    ] {
        for before in [&b""[..], &ok()] {
            let failure = broken(&[before, &message(tag::server::ERROR, body)]);
            assert_eq!(failure, Failure::Server { body: body.to_vec() });
            let mut out = vec![];
            failure.tell(&mut out);
            let want = vec![('S', "FATAL".into()), ('C', code.into()), ('M', text.into())];
            assert_eq!(error(&out), want, "{body:?}");
            assert!(failure.to_string().ends_with(text));
        }
    }
}

/// E12: wherever the server falls silent, the login waits, and whoever counts the time decides.
#[test]
fn a_silent_server_is_waited_for() {
    let mut login = server(plain(b"x"));
    let whole = [&ok()[..], &key(4), &ready()].concat();
    let (last, before) = whole.split_last().expect("bytes");
    for byte in before {
        assert!(matches!(login.hear(&[*byte], &mut vec![]), ServerStep::More));
    }
    assert!(matches!(login.hear(&[*last], &mut vec![]), ServerStep::Ready(_)));
    assert!(matches!(login.hear(b"more", &mut vec![]), ServerStep::More), "it is over");
}

/// What comes while keys are being derived is kept in order; a long nonce is refused, not stored.
#[test]
fn a_server_that_hurries_or_swells_does_no_harm() {
    let mut login = server(plain(b"pencil"));
    let mut out = vec![];
    let offer = said(|out| write::server::authentication_sasl(out, &[b"SCRAM-SHA-256"]));
    assert!(matches!(login.hear(&offer, &mut out), ServerStep::More));
    assert_eq!(tags(&out), "p");
    let question = b"r=AQEBAQEBAQEBAQEBAQEBAQEBx,s=c2FsdA==,i=1";
    let question = said(|out| write::server::authentication_sasl_continue(out, question));
    let error = message(tag::server::ERROR, b"SFATAL\0C57P01\0Mbye\0\0");
    let ServerStep::Derive(job) = login.hear(&[question, error].concat(), &mut out) else {
        panic!("nothing to derive")
    };
    assert!(matches!(login.hear(b"", &mut out), ServerStep::More));
    let step = login.derived(&job.run(), &mut out);
    assert!(matches!(step, ServerStep::Failed(Failure::Server { .. })), "{step:?}");

    let swollen = [&b"R"[..], &(1_u32 << 20).to_be_bytes()].concat();
    broken(&[&offer, &swollen]);
}
