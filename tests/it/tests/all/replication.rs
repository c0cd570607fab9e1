//! Replication connections pass through, one to one.

use std::process::Output;

use harness::postgres::{PASSWORD, tool};
use harness::say::{self, query};
use harness::{Postgres, Setup, World, eventually, place};

fn replicating() -> (&'static Postgres, String, harness::Howdah) {
    let postgres = Postgres::shared();
    let db = postgres.database();
    // A base backup asks for a database of the name "replication".
    let setup = Setup::new().set("default_pool_size", 3).database("shop", &postgres.target(&db));
    let howdah = setup.database("replication", &postgres.target(&db)).start();
    (postgres, db, howdah)
}

fn must(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn identify_system() {
    howdah_only!("of 1.23");
    let (postgres, _, howdah) = replicating();
    let direct = harness::Login::new(postgres.address(), "repl", PASSWORD, "postgres")
        .parameter("replication", "true");
    let system = direct.enter().query("IDENTIFY_SYSTEM").column();
    for kind in ["true", "on", "yes", "1", "database"] {
        let mut client =
            howdah.login("repl", PASSWORD, "shop").parameter("replication", kind).enter();
        assert_eq!(client.query("IDENTIFY_SYSTEM").column(), system, "{kind}");
        client.leave();
    }
    let conninfo =
        format!("host=127.0.0.1 port={} user=repl dbname=shop replication=database", howdah.port());
    let output = tool("psql").args([&conninfo, "-Atc", "IDENTIFY_SYSTEM"]).output().expect("psql");
    assert!(must(&output).starts_with(&system[0]));
    eventually("each had a server of its own, which went with it", || {
        howdah.rows("SHOW SERVERS", &[("user", "repl")], "state").is_empty()
    });
}

#[test]
fn a_replication_connection_is_never_shared() {
    howdah_only!("of 1.23");
    let (_, db, howdah) = replicating();
    let login = howdah.login("repl", PASSWORD, "shop");
    let mut walsender = login.clone().parameter("replication", "database").enter();
    let mut ordinary = login.enter();
    assert_eq!(walsender.value("SELECT current_database()"), db);
    walsender.run("SET work_mem = '7MB'");
    assert_eq!(walsender.value("SHOW work_mem"), "7MB", "a session, whatever the pool's mode");
    assert_eq!(ordinary.value("SHOW work_mem"), "4MB");
    let kinds = howdah.rows("SHOW CLIENTS", &[("user", "repl")], "replication");
    assert!(
        kinds.contains(&"logical".to_owned()) && kinds.contains(&"none".to_owned()),
        "{kinds:?}"
    );
}

#[test]
fn every_startup_parameter_passes() {
    howdah_only!("of 1.23");
    let (_, _, howdah) = replicating();
    let login = howdah.login("repl", PASSWORD, "shop").parameter("replication", "database");
    let mut client =
        login.parameter("options", "-c work_mem=9MB").parameter("extra_float_digits", "2").enter();
    assert_eq!(client.value("SHOW work_mem"), "9MB");
    assert_eq!(client.value("SHOW extra_float_digits"), "2");
}

#[test]
fn a_refusal_is_told() {
    howdah_only!("of 1.23");
    let (_, _, howdah) = replicating();
    let refused =
        howdah.login("app", PASSWORD, "shop").parameter("replication", "database").attempt();
    assert!(refused.err().expect("app may not replicate").error().severity() == "FATAL");
    let mut ordinary = howdah.login("app", PASSWORD, "shop").enter();
    assert_eq!(ordinary.value("SELECT 'not hurt'"), "not hurt");
}

#[test]
fn copy_both() {
    howdah_only!("of 1.23");
    let (_, _, howdah) = replicating();
    let mut client =
        howdah.login("repl", PASSWORD, "shop").parameter("replication", "true").enter();
    let system = client.run("IDENTIFY_SYSTEM").rows().remove(0);
    let (timeline, position) =
        (system[1].clone().expect("a timeline"), system[2].clone().expect("a position"));
    client.send(&query(&format!("START_REPLICATION PHYSICAL {position} TIMELINE {timeline}")));
    assert_eq!(client.until(b'W').tags(), "W");
    // A status update that asks for an answer: a keepalive must come back.
    let update = [b"r".as_slice(), &[0; 32], &[1]].concat();
    for _ in 0..5 {
        client.send(&say::copy_data(&update));
        while client.message().body.first() != Some(&b'k') {}
    }
    client.send(&say::copy_done());
    assert_eq!(client.until_ready().status(), Some('I'));
    assert_eq!(client.run("IDENTIFY_SYSTEM").count(b'D'), 1);
}

#[test]
fn a_base_backup() {
    howdah_only!("of 1.23");
    let (postgres, _, howdah) = replicating();
    let said = must(&tool("pg_basebackup").arg("--version").output().expect("pg_basebackup"));
    if !said.contains(&format!(") {}.", postgres.version())) {
        println!("a server of another version refuses {said}");
        return;
    }
    let folder = place::folder("backup").join("data");
    let output = tool("pg_basebackup")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &howdah.port().to_string(),
            "-U",
            "repl",
            "-X",
            "fetch",
            "--no-sync",
            "-c",
            "fast",
        ])
        .args(["-d", "dbname=shop", "-D"])
        .arg(&folder)
        .output()
        .expect("pg_basebackup");
    must(&output);
    assert!(folder.join("PG_VERSION").exists());
    let _gone = std::fs::remove_dir_all(folder);
}

#[test]
fn it_counts_towards_the_pools_size() {
    howdah_only!("of 1.23");
    let world = World::with(1, |setup| setup.set("query_wait_timeout", 5));
    let login = world.howdah.login("repl", PASSWORD, "shop");
    login.enter().run("SELECT 1");
    // The idle server of the pool makes room.
    let mut walsender = login.clone().parameter("replication", "database").enter();
    walsender.run("SELECT 1");
    assert!(world.servers() <= 1, "{}", world.servers());
    assert!(world.howdah.log().contains("closing because: evicted"));
    walsender.leave();
    assert_eq!(login.enter().value("SELECT 1"), "1");
}
