//! Who gets in: every way to ask for a password, every form of a stored secret, every method of the server.

use harness::login::Refused;
use harness::postgres::PASSWORD;
use harness::say::{self, query};
use harness::{Login, Postgres, Raw, Setup, Subject, World, subject, took};
use postgres_protocol::authentication::md5_hash;

/// How a secret is stored in the userlist.
const STORED: [&str; 3] = ["plain", "md5", "scram"];
/// How the server asks. A role of the cluster is named after the server's method and the form of the secret.
const SERVERS: [&str; 4] = ["trust", "password", "md5", "scram"];

/// Whether a client that knows the password gets past the pooler.
fn client_gets_in(auth_type: &str, stored: &str) -> bool {
    match auth_type {
        "scram-sha-256" => stored != "md5",
        _ => true,
    }
}

/// Whether the pooler then gets past the server.
fn pooler_gets_in(auth_type: &str, stored: &str, server: &str) -> bool {
    match (server, stored) {
        ("trust", _) | (_, "plain") => true,
        ("md5", "md5") => true,
        // The keys come from the client's own login, by SCRAM or with the password itself.
        ("scram", "scram") => auth_type != "trust",
        _ => false,
    }
}

fn matrix(auth_type: &str) {
    let postgres = Postgres::shared();
    let db = postgres.database();
    let mut boss = postgres.superuser(&db);
    let mut setup =
        Setup::new().set("auth_type", auth_type).database("shop", &postgres.target(&db));
    setup = setup.set("server_login_retry", "0.1").set("query_wait_timeout", 5);
    for server in SERVERS {
        for stored in STORED {
            let user = format!("{server}_{stored}");
            let secret = match stored {
                "plain" => PASSWORD.to_owned(),
                // md5_hash is for the wire; this is its first half, with "md5" before it.
                "md5" => boss.value(&format!("SELECT 'md5' || md5('{PASSWORD}{user}')")),
                _ if server == "scram" => boss
                    .value(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{user}'")),
                _ => boss.value("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'"),
            };
            setup = setup.secret(&user, &secret);
        }
    }
    let howdah = setup.start();
    let mut wrong = Vec::new();
    for server in SERVERS {
        for stored in STORED {
            let login = howdah.login(&format!("{server}_{stored}"), PASSWORD, "shop");
            let expected =
                client_gets_in(auth_type, stored) && pooler_gets_in(auth_type, stored, server);
            let outcome =
                login.attempt().map(|mut client| client.query("SELECT 1").count(b'D') == 1);
            if *outcome.as_ref().unwrap_or(&false) != expected {
                wrong.push(format!(
                    "{stored} to {server}: expected {expected}, got {:?}",
                    outcome.err()
                ));
            }
            let let_in = login.password("wrong").attempt().is_ok();
            if let_in && auth_type != "trust" {
                wrong.push(format!("{stored} to {server}: the wrong password was accepted"));
            }
        }
    }
    assert!(wrong.is_empty(), "auth_type {auth_type}:\n{}", wrong.join("\n"));
}

#[test]
fn auth_type_trust() {
    // With a verifier and nobody who proves to know the password, there are no keys for the server.
    matrix("trust");
}

#[test]
fn auth_type_plain() {
    matrix("plain");
}

#[test]
fn auth_type_md5() {
    matrix("md5");
}

#[test]
fn auth_type_scram() {
    matrix("scram-sha-256");
}

#[test]
fn auth_type_any() {
    let world = World::with(1, |setup| {
        setup
            .set("auth_type", "any")
            .database_also("shop", &format!("user=app password={PASSWORD}"))
    });
    let mut anybody = world.howdah.login("nobody-knows", "", "shop").enter();
    assert_eq!(anybody.value("SELECT current_user"), "app");
}

#[test]
fn keys_of_a_clients_login_serve_later_connections() {
    let postgres = Postgres::shared();
    let db = postgres.database();
    let verifier = postgres
        .superuser(&db)
        .value("SELECT rolpassword FROM pg_authid WHERE rolname = 'scram_scram'");
    let howdah = Setup::new()
        .database("shop", &postgres.target(&db))
        .secret("scram_scram", &verifier)
        .start();
    let mut client = howdah.login("scram_scram", PASSWORD, "shop").enter();
    for _ in 0..3 {
        assert_eq!(client.value("SELECT current_user"), "scram_scram");
        howdah.order("RECONNECT");
    }
    assert!(howdah.login("scram_scram", "wrong", "shop").attempt().is_err());
    assert_eq!(client.value("SELECT 1"), "1");
}

/// Error text and tags of a refusal, with the name taken out.
fn refusal(login: &Login) -> (String, Vec<(u8, String)>) {
    let Refused(reply) = login.attempt().err().expect("refused");
    let fields = reply.error().expect("an error").0;
    let nameless =
        fields.into_iter().map(|(code, text)| (code, text.replace(&login.user, "USER"))).collect();
    (reply.tags(), nameless)
}

#[test]
fn f02_an_unknown_user_looks_like_a_wrong_password() {
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let world = World::with(1, |setup| setup.set("auth_type", auth_type));
        let known = refusal(&world.login().password("wrong"));
        let unknown = refusal(&world.howdah.login("stranger", "wrong", "shop"));
        assert_eq!(known, unknown, "{auth_type}");
        let nowhere = refusal(&world.howdah.login("stranger", "wrong", "nowhere"));
        assert_eq!(
            known, nowhere,
            "{auth_type}: whether a database exists is for those who are let in"
        );
    }
}

#[test]
fn f02_an_unknown_user_always_gets_the_same_salt() {
    howdah_only!("others may do as they like");
    let world = World::pool(1);
    let salt = |user: &str| {
        let Refused(reply) =
            world.howdah.login(user, "wrong", "shop").attempt().err().expect("refused");
        let first = String::from_utf8_lossy(&reply.0[1].body).into_owned();
        first
            .split(',')
            .filter(|part| part.starts_with("s=") || part.starts_with("i="))
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(
        salt("stranger"),
        salt("stranger"),
        "a salt that changes tells that the user is not known"
    );
    assert_ne!(salt("stranger"), salt("other"));
}

#[test]
fn f02_an_unknown_user_takes_as_long_as_a_wrong_password() {
    howdah_only!("the yardstick tells them apart");
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let world = World::with(1, |setup| setup.set("auth_type", auth_type));
        let time = |login: &Login| took(|| assert!(login.attempt().is_err())).0;
        let login = |user: &str| world.howdah.login(user, "wrong", "shop");
        let (stranger, known) = (login("stranger"), login("app"));
        // By turns, so that whatever else the machine does befalls both. The busier it is, the worse
        // single figures; the best of a few rounds is what matters.
        let round = |_| {
            let mut times: [Vec<_>; 2] = [Vec::new(), Vec::new()];
            for _ in 0..100 {
                times[0].push(time(&stranger));
                times[1].push(time(&known));
            }
            let [stranger, known] = times.map(|mut times| {
                times.sort();
                times[times.len() / 2].as_secs_f64()
            });
            (stranger / known).max(known / stranger)
        };
        let ratio = (0..5).map(round).fold(f64::MAX, f64::min);
        assert!(ratio < 1.25, "{auth_type}: {ratio}");
    }
}

#[test]
fn texts_of_refusals() {
    howdah_only!("texts are of 1.25");
    let world = World::pool(1);
    let error = world.login().password("wrong").attempt().err().expect("refused").error();
    assert_eq!(
        (error.severity(), error.code(), error.text()),
        ("FATAL", "08P01", "SASL authentication failed")
    );
    let error = world.login().database("nowhere").attempt().err().expect("refused").error();
    assert_eq!((error.severity(), error.code()), ("FATAL", "08P01"));
    assert!(error.text().starts_with("no such database: nowhere"), "{error:?}");
    let world = World::with(1, |setup| setup.set("auth_type", "md5"));
    let error = world.login().password("wrong").attempt().err().expect("refused").error();
    assert_eq!(error.text(), "password authentication failed");
}

#[test]
fn a_server_says_what_is_wrong_in_its_own_words() {
    howdah_only!("the yardstick changes the SQLSTATE");
    let world = World::pool(1);
    let target = format!("host=127.0.0.1 port={} dbname=never_created", world.postgres.port());
    let howdah = Setup::new().database("gone", &target).start();
    let error = howdah.login("app", PASSWORD, "gone").attempt().err().expect("refused").error();
    assert_eq!((error.severity(), error.code()), ("FATAL", "3D000"));
    assert_eq!(error.text(), "database \"never_created\" does not exist");
}

#[test]
fn passwords_and_names_of_every_kind() {
    let long = "p".repeat(900);
    let odd = [
        ("quo\"te", "se\"cret"),
        ("bläh", "pässwörd"),
        ("with space", " "),
        ("long", long.as_str()),
        ("semi;colon", "#;="),
    ];
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let world = World::with(1, |setup| {
            let setup = setup
                .set("auth_type", auth_type)
                .database_also("shop", &format!("user=app password={PASSWORD}"));
            odd.iter().fold(setup, |setup, (user, secret)| setup.secret(user, secret))
        });
        for (user, secret) in odd {
            let login = world.howdah.login(user, secret, "shop");
            assert_eq!(login.enter().value("SELECT 1"), "1", "{auth_type} {user}");
            assert!(login.password("x").attempt().is_err(), "{auth_type} {user}");
        }
    }
}

#[test]
fn f05_passwords_of_65530_characters() {
    howdah_only!("newer than 1.25");
    let long = "l".repeat(65_530);
    for auth_type in ["plain", "scram-sha-256"] {
        let world = World::with(1, |setup| {
            setup
                .set("auth_type", auth_type)
                .set("pkt_buf", 75)
                .secret("long", &long)
                .database_also("shop", &format!("user=app password={PASSWORD}"))
        });
        assert_eq!(world.howdah.login("long", &long, "shop").enter().value("SELECT 1"), "1");
        assert!(world.howdah.login("long", &long[1..], "shop").attempt().is_err());
    }
}

#[test]
fn an_empty_password_lets_nobody_in() {
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let world = World::with(1, |setup| setup.set("auth_type", auth_type).secret("hollow", ""));
        for password in ["", "x"] {
            assert!(
                world.howdah.login("hollow", password, "shop").attempt().is_err(),
                "{auth_type} {password:?}"
            );
        }
    }
}

#[test]
fn a_userlist_is_reread_by_reload() {
    let mut world = World::with(1, |setup| {
        setup.database_also("shop", &format!("user=app password={PASSWORD}"))
    });
    assert!(world.howdah.login("newcomer", "welcome", "shop").attempt().is_err());
    world.howdah.reload(|setup| setup.secret("newcomer", "welcome"));
    assert_eq!(world.howdah.login("newcomer", "welcome", "shop").enter().value("SELECT 1"), "1");
}

#[test]
fn every_message_before_login_is_survived() {
    let mut world = World::pool(1);
    for tag in 0..=255_u8 {
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        client.send(&world.login().startup());
        client.message();
        client.send(&say::message(tag, b"\0\0\0\x05whatever\0"));
        client.send(&query("SELECT 1"));
        client.until_closed();
    }
    world.howdah.must_live();
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn scram_messages_that_lie() {
    howdah_only!("the yardstick waits for more");
    let mut world = World::pool(1);
    let sasl = |body: &[u8]| say::message(b'p', body);
    let first = |length: i32, text: &[u8]| {
        sasl(&[b"SCRAM-SHA-256\0", length.to_be_bytes().as_slice(), text].concat())
    };
    let lies = [
        first(i32::MAX, b"n,,n=,r=abc"),
        first(i32::MIN, b"n,,n=,r=abc"),
        first(-1, b""),
        first(5, b"n,,n=,r=abc"),
        first(0, b""),
        first(1_000_000, b"n,,n=,r=abc"),
        first(11, b"y,,n=,r=abc"),
        first(24, b"p=tls-server-end-point,,"),
        first(200, &[b'r'; 200]),
        sasl(b"SCRAM-SHA-256-PLUS\0\0\0\0\x0bn,,n=,r=abc"),
        sasl(b"SCRAM-SHA-256"),
        sasl(b""),
        sasl(&[0xff; 1000]),
    ];
    for lie in lies {
        for then in [&b"c=biws,r=abc,p=AAAA"[..], b"", b"c=biws,r=,p=", &[b'='; 3000]] {
            let mut client = Raw::open(&world.howdah.address()).expect("it listens");
            client.send(&world.login().startup());
            client.message();
            client.send(&lie);
            client.send(&sasl(then));
            let reply = client.until_closed();
            assert_eq!(reply.count(b'Z'), 0);
        }
    }
    world.howdah.must_live();
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn an_md5_answer_cannot_be_replayed() {
    let world = World::with(1, |setup| setup.set("auth_type", "md5"));
    let salt = |client: &mut Raw| -> [u8; 4] {
        client.send(&world.login().startup());
        client.message().body[4..8].try_into().expect("a salt")
    };
    let mut first = Raw::open(&world.howdah.address()).expect("it listens");
    let answer = md5_hash(b"app", PASSWORD.as_bytes(), salt(&mut first));
    let mut second = Raw::open(&world.howdah.address()).expect("it listens");
    salt(&mut second);
    second.send(&say::message(b'p', &say::text(&answer)));
    assert_eq!(second.until_closed().count(b'Z'), 0);
    if subject() == Subject::Howdah {
        first.send(&say::message(b'p', &say::text(&answer)));
        assert!(first.until_ready().error().is_none());
    }
}
