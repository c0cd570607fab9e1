//! SCRAM pass-through: where only a verifier is stored, a client's own login opens the servers.

use harness::login::Refused;
use harness::postgres::{PASSWORD, Stop};
use harness::{Howdah, Login, Postgres, Setup, eventually};

/// A cluster of its own, with a role that has the same password on every one and a salt of its own.
fn cluster() -> Postgres {
    let postgres = Postgres::start("");
    let mut boss = postgres.superuser("postgres");
    boss.run("CREATE ROLE ann LOGIN PASSWORD 'of-ann'");
    boss.run(&format!("CREATE ROLE asker LOGIN SUPERUSER PASSWORD '{PASSWORD}'"));
    postgres
}

fn verifier(postgres: &Postgres) -> String {
    let sql = "SELECT rolpassword FROM pg_authid WHERE rolname = 'ann'";
    postgres.superuser("postgres").value(sql)
}

fn setup() -> Setup {
    Setup::new().set("server_login_retry", "0.2").set("query_wait_timeout", 10)
}

/// The message, and the detail behind it.
fn refused(login: &Login) -> (String, String) {
    let Refused(reply) = login.attempt().err().expect("refused");
    let error = reply.error().expect("an error");
    (error.text().to_owned(), error.field(b'D').to_owned())
}

fn servers(howdah: &Howdah) -> usize {
    howdah.rows("SHOW SERVERS", &[("user", "ann")], "id").len()
}

#[test]
fn f01_keys_open_servers_after_reconnects_kills_and_restarts() {
    let postgres = cluster();
    for auth_type in ["scram-sha-256", "md5", "plain"] {
        let howdah = setup()
            .set("auth_type", auth_type)
            .set("min_pool_size", 3)
            .database("shop", &postgres.target("postgres"))
            .secret("ann", &verifier(&postgres))
            .start();
        let mut client = howdah.login("ann", "of-ann", "shop").enter();
        assert_eq!(client.value("SELECT current_user"), "ann");
        eventually("min_pool_size is kept", || servers(&howdah) == 3);
        for order in ["RECONNECT", "KILL shop", "RECONNECT shop"] {
            howdah.order(order);
            if order.starts_with("KILL") {
                howdah.order("RESUME shop");
                client = howdah.login("ann", "of-ann", "shop").enter();
            }
            assert_eq!(client.value("SELECT current_user"), "ann", "{auth_type}: {order}");
        }
        // The client stays, and says nothing.
        postgres.stop(Stop::Fast);
        postgres.restart();
        eventually("they come back by themselves", || servers(&howdah) == 3);
        howdah.signal(rustix::process::Signal::HUP);
        assert_eq!(client.value("SELECT current_user"), "ann", "{auth_type}");
    }
}

#[test]
fn f01_another_salt_cannot_work_and_says_so() {
    let (one, other) = (cluster(), cluster());
    let howdah = setup()
        .database("one", &one.target("postgres"))
        .database("other", &other.target("postgres"))
        .secret("ann", &verifier(&one))
        .start();
    assert!(howdah.login("ann", "of-ann", "one").attempt().is_ok());
    for _ in 0..2 {
        let login = howdah.login("ann", "of-ann", "other");
        let (text, detail) = refused(&login);
        if !text.contains("cached error") {
            assert_eq!(text, "wrong password type");
            assert!(detail.contains("another salt or iteration count"), "{detail}");
        }
        assert!(text.contains("wrong password type"), "{text}");
    }
    assert!(howdah.log().contains("another salt or iteration count"), "the log says why");
    assert!(howdah.login("ann", "of-ann", "one").attempt().is_ok(), "the first still works");
}

#[test]
fn f01_each_server_gets_the_keys_that_fit_its_verifier() {
    let (one, other) = (cluster(), cluster());
    assert_ne!(verifier(&one), verifier(&other));
    let howdah = setup()
        .set("auth_user", "asker")
        .secret("asker", PASSWORD)
        .database("one", &one.target("postgres"))
        .database("other", &other.target("postgres"))
        .start();
    let mut clients = ["one", "other"].map(|name| howdah.login("ann", "of-ann", name).enter());
    for _ in 0..3 {
        for client in &mut clients {
            assert_eq!(client.value("SELECT current_user"), "ann");
        }
        howdah.order("RECONNECT");
    }
}

#[test]
fn f01_a_password_of_the_line_goes_before_a_verifier_of_the_file() {
    let postgres = cluster();
    let target = postgres.target("postgres");
    let howdah = setup()
        .set("auth_user", "asker")
        .secret("asker", PASSWORD)
        .secret("ann", &verifier(&postgres))
        .database("forced", &format!("{target} user=ann password=of-ann"))
        .start();
    // Nobody has logged in as ann here; and her password is not the asker's.
    let mut client = howdah.login("app", PASSWORD, "forced").enter();
    assert_eq!(client.value("SELECT current_user"), "ann");
    howdah.order("RECONNECT");
    assert_eq!(client.value("SELECT current_user"), "ann");
    let text = refused(&howdah.login("nobody", "x", "forced")).0;
    assert_eq!(text, "SASL authentication failed", "the asker got in by its own password");
}

#[test]
fn f07_a_wrong_password_for_the_server_is_tried_once_per_retry() {
    let postgres = cluster();
    let howdah = setup()
        .set("server_login_retry", 600)
        .database("shop", &postgres.target("postgres"))
        .secret("ann", "not-hers")
        .start();
    for turn in 0..20 {
        let text = refused(&howdah.login("ann", "not-hers", "shop")).0;
        let told = "password authentication failed for user \"ann\"";
        assert!(text.contains(told), "{turn}: {text}");
        // Neither a pool that goes and comes back nor a RELOAD begins anew.
        if turn % 5 == 0 {
            howdah.order("RELOAD");
        }
    }
    let log = postgres.log();
    let tries = log.matches("FATAL:  password authentication failed for user \"ann\"").count();
    assert!((1..=2).contains(&tries), "{tries} tries");
}

#[test]
fn f05_long_passwords_to_servers() {
    howdah_only!("newer than 1.25");
    let postgres = cluster();
    let long = "l".repeat(65_530);
    let mut boss = postgres.superuser("postgres");
    for (name, encryption, group) in [
        ("long_scram", "scram-sha-256", ""),
        ("long_md5", "md5", "IN ROLE by_md5"),
        ("long_plain", "scram-sha-256", "IN ROLE by_password"),
    ] {
        boss.run(&format!("SET password_encryption = '{encryption}'"));
        boss.run(&format!("CREATE ROLE {name} LOGIN PASSWORD '{long}' {group}"));
        let howdah = setup()
            .set("pkt_buf", 75)
            .database("shop", &postgres.target("postgres"))
            .secret(name, &long)
            .start();
        let mut client = howdah.login(name, &long, "shop").enter();
        assert_eq!(client.value("SELECT current_user"), name);
    }
}
