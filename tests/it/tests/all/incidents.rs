//! Security incidents that poolers have had, of logins and names: each cause once more, and what must come of it.

use std::fmt::Write as _;

use harness::postgres::PASSWORD;
use harness::{Howdah, Login, Raw, World, place, say};

/// The user `user` with the password `sesame`, as it may be stored.
fn forms(world: &World, user: &str) -> [(&'static str, String); 3] {
    let mut boss = world.direct();
    let md5 = boss.value(&format!("SELECT 'md5' || md5('{PASSWORD}{user}')"));
    let scram = boss.value("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'");
    [("plain", PASSWORD.to_owned()), ("md5", md5), ("scram", scram)]
}

/// Both doors of a pooler.
fn doors(howdah: &Howdah, user: &str, password: &str, database: &str) -> [Login; 2] {
    let tcp = howdah.login(user, password, database);
    [Login::new(howdah.socket(), user, password, database), tcp]
}

/// CVE-2025-46801: some combination of settings asked nobody for anything. Here every method, by auth_type and by a
/// rule, with every form of a secret, at either door, for a database and for the console.
#[test]
fn a_wrong_password_gets_in_by_no_combination() {
    let world = World::pool(1);
    let target = format!("{} user=app password={PASSWORD}", world.postgres.target(&world.db));
    let folder = place::folder("law");
    let rule = |method: &str| {
        let path = folder.join(method);
        place::write(&path, &format!("local all all {method}\nhost all all all {method}\n"));
        path.display().to_string()
    };
    let mut wrong = String::new();
    for (auth_type, by_rule) in [
        ("plain", None),
        ("md5", None),
        ("scram-sha-256", None),
        ("hba", Some("password")),
        ("hba", Some("md5")),
        ("hba", Some("scram-sha-256")),
        ("hba", Some("reject")),
        ("hba", Some("cert")),
        ("hba", Some("md6")),
    ] {
        let mut setup = harness::Setup::new().set("auth_type", auth_type).database("shop", &target);
        if let Some(method) = by_rule {
            setup = setup.set("auth_hba_file", rule(method));
        }
        let mut admins = vec!["boss".to_owned()];
        for (form, secret) in forms(&world, "x") {
            setup = setup.secret(&format!("u_{form}"), &secret);
            admins.push(format!("u_{form}"));
        }
        let howdah = setup.set("admin_users", admins.join(",")).start();
        for user in ["u_plain", "u_md5", "u_scram", "stranger"] {
            for database in ["shop", "pgbouncer"] {
                for password in ["wrong", ""] {
                    for login in doors(&howdah, user, password, database) {
                        if login.attempt().is_ok() {
                            let how = by_rule.unwrap_or(auth_type);
                            let _ =
                                writeln!(wrong, "{how}: {user} to {database} with {password:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "let in:\n{wrong}");
}

/// pgdog#1053: with another method in force, the console asked for nothing.
#[test]
fn the_console_asks_as_the_method_does() {
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let world = World::with(1, |setup| setup.set("auth_type", auth_type));
        for login in doors(&world.howdah, "boss", "wrong", "pgbouncer") {
            assert!(login.attempt().is_err(), "{auth_type}");
        }
        for login in doors(&world.howdah, "boss", PASSWORD, "pgbouncer") {
            assert!(login.attempt().is_ok(), "{auth_type}");
        }
        let nobody = world.howdah.login("app", PASSWORD, "pgbouncer").attempt();
        assert_eq!(nobody.err().expect("not an admin").error().text(), "not allowed");
    }
}

/// CVE-2012-4575: a name from the network longer than somebody had thought.
#[test]
fn names_of_every_length_are_survived() {
    let mut world = World::with(1, |setup| setup.database("*", "host=127.0.0.1 port=1"));
    for length in [0, 1, 63, 64, 127, 128, 129, 255, 256, 1000, 4095, 4096, 8192, 9990, 65_535] {
        let name = "n".repeat(length);
        for (user, database, other) in [
            (&*name, "shop", ""),
            ("app", &*name, ""),
            (&*name, &*name, ""),
            ("app", "shop", &*name),
        ] {
            let mut login = world.howdah.login(user, PASSWORD, database);
            if !other.is_empty() {
                login = login.parameter("application_name", other).parameter(other, "x");
            }
            let mut client = Raw::open(&world.howdah.address()).expect("it listens");
            client.send(&login.startup());
            client.half_close();
            client.until_closed();
        }
    }
    world.howdah.must_live();
    assert_eq!(world.client().value("SELECT 1"), "1");
}

/// CVE-2015-4054: a message that nobody expected, in each of the states before a client is let in.
#[test]
fn every_message_in_every_state_before_login_is_survived() {
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let mut world = World::with(1, |setup| setup.set("auth_type", auth_type));
        let login = world.login();
        // Nothing said; asked for encryption; asked who it is; in the midst of SCRAM.
        for state in 0..4 {
            for tag in [0, 1, 127, 255].into_iter().chain(*b"QPBEDCHSXFdcfpRZ") {
                let mut client = Raw::open(&world.howdah.address()).expect("it listens");
                if state == 1 {
                    client.send(&[0, 0, 0, 8, 4, 210, 22, 47]);
                    client.swallow(1, harness::seconds(20.0));
                }
                if state >= 2 {
                    client.send(&login.startup());
                    client.message();
                }
                if state == 3 {
                    let first = b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc";
                    client.send(&say::message(b'p', first));
                }
                client.send(&say::message(tag, b"\0\0\0\x05whatever\0"));
                client.half_close();
                let reply = client.until_closed();
                assert_eq!(reply.count(b'Z'), 0, "{auth_type} {state} {tag}");
            }
        }
        world.howdah.must_live();
        assert_eq!(world.client().value("SELECT 1"), "1");
    }
}

/// CVE-2023-22332: passwords in what is shown or logged.
#[test]
fn no_secret_is_logged() {
    let folder = place::folder("law");
    let rules = "local all all ldap ldapserver=x ldapbindpasswd hush-option\n\
        host all all all ldap ldapserver=127.0.0.1 ldapport=1 ldapbasedn=x ldapbinddn=y ldapbindpasswd=hush-bind\n";
    place::write(&folder.join("hba"), rules);
    let world = World::with(1, |setup| {
        setup
            .set("auth_type", "hba")
            .set("auth_hba_file", folder.join("hba").display())
            .set("verbose", 2)
            .secret("plain", "hush-plain")
            .database_also("shop", "user=app password=hush-forced")
    });
    for login in doors(&world.howdah, "plain", "hush-typed", "shop") {
        assert!(login.attempt().is_err());
    }
    let text = world.howdah.log() + &world.howdah.said();
    assert!(text.contains("auth_hba_file"), "the bad line is named: {text}");
    assert!(!text.contains("hush"), "{text}");
}
