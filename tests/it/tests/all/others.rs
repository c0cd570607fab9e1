//! What a client does to others on purpose: it ends their sessions, it drops the database that they were in.

use harness::postgres::PASSWORD;
use harness::say::{bind, describe_portal, execute, extended, parse, parse_typed, sync};
use harness::{Raw, World, eventually, say};

fn pid(client: &Raw) -> u32 {
    let key = client.key.as_deref().expect("a BackendKeyData");
    u32::from_be_bytes(*key.first_chunk().expect("a pid"))
}

/// Nobody's process has the pid of a client that has no server. It can be ended all the same.
#[test]
fn a_client_without_a_server_can_be_ended() {
    howdah_only!("a pid means nothing there");
    let world = World::pool(1);
    let (mut ann, mut bob) = (world.client(), world.client());
    let anns = pid(&ann);
    ann.run("SELECT 1");
    let reply = bob.run(&format!("SELECT 'so', pg_terminate_backend({anns})"));
    assert_eq!(reply.rows(), [[Some("so".to_owned()), Some("t".to_owned())]]);
    assert_eq!(reply.count(b'N'), 0, "nobody warns of it");
    let error = ann.fatal();
    assert_eq!((error.severity(), error.code()), ("FATAL", "57P01"));
    assert_eq!(error.text(), "terminating connection due to administrator command");
    // Who is gone is nobody, as PostgreSQL says; who hears the last word is about to go.
    eventually("it is gone", || {
        let reply = bob.query(&format!("SELECT pg_terminate_backend({anns})"));
        (reply.value().as_str(), reply.count(b'N')) == ("f", 1)
    });
}

/// However the message comes that says whom, and whoever keeps statements apart.
#[test]
fn whom_a_message_in_pieces_means_is_understood() {
    howdah_only!("a pid means nothing there");
    for mode in ["transaction", "session"] {
        let world = World::with(3, |setup| setup.set("pool_mode", mode));
        let mut bob = world.client();
        bob.ask(&[parse("end", "SELECT pg_terminate_backend($1)"), sync()].concat());
        let text = |pid: &str| format!("SELECT pg_terminate_backend({pid})");
        for way in ["a statement prepared before", "a parameter", "a text", "a Query"] {
            let mut ann = world.client();
            ann.run("SELECT 1");
            let pid = pid(&ann).to_string();
            let bytes = match way {
                "a Query" => say::query(&text(&pid)),
                "a text" => [extended(&text(&pid), &[]), sync()].concat(),
                "a parameter" => [extended(&text("$1"), &[&pid]), sync()].concat(),
                _ => [bind("", "end", &[&pid]), execute("", 0), sync()].concat(),
            };
            let at = bytes.windows(pid.len()).position(|part| part == pid.as_bytes());
            bob.send_cut(&bytes, at.expect("it stands there") + 2);
            let reply = bob.until_readies(1);
            assert_eq!((reply.value().as_str(), reply.count(b'N')), ("t", 0), "{mode}, {way}");
            assert_eq!(ann.fatal().code(), "57P01", "{mode}, {way}");
        }
    }
}

/// As connection pools do it, to several at once: one of them at work, and one that is none of ours.
#[test]
fn several_clients_are_ended_at_once() {
    howdah_only!("a pid means nothing there");
    let world = World::pool(2);
    let (mut ann, mut bob, mut eve) = (world.client(), world.client(), world.client());
    ann.run("SELECT 1");
    eve.run("BEGIN");
    let pids = [pid(&ann), pid(&eve), 999_999_999];
    let sql = "SELECT pg_terminate_backend(n) FROM unnest($1::int[]) n";
    let mut array: Vec<u8> = [1_u32, 0, 23, 3, 1].into_iter().flat_map(u32::to_be_bytes).collect();
    array.extend(pids.into_iter().flat_map(|pid| [4, pid]).flat_map(u32::to_be_bytes));
    let mut body = b"\0s\0\0\x01\0\x01\0\x01".to_vec();
    body.extend(u32::try_from(array.len()).expect("short").to_be_bytes());
    body.extend_from_slice(&array);
    body.extend_from_slice(&[0, 1, 0, 1]);
    let mut bytes = parse_typed("s", sql, &[]);
    bytes.extend(say::message(b'B', &body));
    bytes.extend(describe_portal(""));
    bytes.extend(execute("", 0));
    bytes.extend(sync());
    let reply = bob.ask(&bytes);
    assert!(reply.error().is_none(), "{:?}", reply.error());
    let sent: Vec<Option<String>> = reply.rows().into_iter().flatten().collect();
    assert_eq!(sent, ["\u{1}", "\u{1}", "\0"].map(|cell| Some(cell.to_owned())));
    for client in [&mut ann, &mut eve] {
        assert_eq!(client.fatal().code(), "57P01");
    }
}

/// To be cancelled while one does nothing does no harm.
#[test]
fn a_client_that_does_nothing_is_cancelled_in_vain() {
    howdah_only!("a pid means nothing there");
    let world = World::pool(1);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("SELECT 1");
    let reply = bob.run(&format!("SELECT pg_cancel_backend({})", pid(&ann)));
    assert_eq!((reply.value().as_str(), reply.count(b'N')), ("t", 0));
    assert_eq!(ann.value("SELECT 1"), "1");
}

/// Between being asked about and being struck a client gives its server back: that is nobody's to be struck on, and the client
/// is ended all the same.
#[test]
fn a_signal_is_for_whom_it_was_meant() {
    howdah_only!("it strikes whoever has that server by then");
    let world = World::pool(2);
    let mut root = world.direct();
    let ways = [
        ("SELECT pg_terminate_backend(PID)", true),
        ("SELECT pg_terminate_backend($1)", true),
        ("SELECT count(pg_terminate_backend(PID))", false),
        ("SELECT pg_cancel_backend(PID)", false),
    ];
    for (sql, ends) in ways {
        root.run("SELECT pg_advisory_lock(7)");
        let (mut ann, mut bob, mut eve) = (world.client(), world.client(), world.client());
        ann.run("BEGIN");
        let anns = pid(&ann).to_string();
        let mut bytes = say::query("SELECT pg_advisory_xact_lock(7)");
        bytes.extend(if sql.contains("$1") {
            [extended(sql, &[&anns]), sync()].concat()
        } else {
            say::query(&sql.replace("PID", &anns))
        });
        bob.send(&bytes);
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'";
        eventually("he waits", || root.value(waits) == "1");
        ann.run("COMMIT");
        eve.run("BEGIN");
        root.run("SELECT pg_advisory_unlock(7)");
        let reply = bob.until_readies(2);
        assert!(reply.error().is_none(), "{sql}: {reply:?}");
        for _ in 0..3 {
            assert_eq!(eve.value("SELECT 1"), "1", "{sql}");
        }
        if ends {
            assert_eq!(
                (reply.rows().last(), reply.count(b'N')),
                (Some(&vec![Some("t".to_owned())]), 0)
            );
            assert_eq!(ann.fatal().code(), "57P01", "{sql}");
        } else {
            assert_eq!(ann.value("SELECT 1"), "1", "{sql}");
        }
    }
}

/// As in PostgreSQL, others' sessions are not anybody's to end.
#[test]
fn only_ones_own_are_ended() {
    howdah_only!("a pid means nothing there");
    let world = World::pool(2);
    let mut root = world.direct();
    let role = format!("{}_guest", world.db);
    root.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"));
    let mut howdah = world.howdah;
    howdah.reload(|setup| setup.secret(&role, "secret"));
    let mut ann = howdah.login("app", PASSWORD, "shop").enter();
    let mut guest = howdah.login(&role, "secret", "shop").enter();
    ann.run("SELECT 1");
    let reply = guest.query(&format!("SELECT pg_terminate_backend({})", pid(&ann)));
    assert_eq!((reply.value().as_str(), reply.count(b'N')), ("f", 1));
    assert_eq!(ann.value("SELECT 1"), "1");
    drop(guest);
    drop(howdah);
    root.run(&format!("DROP ROLE {role}"));
}

/// A superuser ends whom it likes, in the role that it is in: in another it is none.
#[test]
fn a_superuser_ends_anybody() {
    howdah_only!("a pid means nothing there");
    let postgres = harness::Postgres::shared();
    let socket =
        format!("host={} port={} dbname=postgres", postgres.folder().display(), postgres.port());
    let world = World::with(2, |setup| {
        setup.database("mart", &socket).database("root", &format!("{socket} user=postgres"))
    });
    let [mut ann, mut root] =
        ["mart", "root"].map(|name| world.howdah.login("app", PASSWORD, name).enter());
    ann.run("SELECT 1");
    let end = format!("SELECT pg_terminate_backend({})", pid(&ann));
    root.run("SET ROLE pg_monitor");
    assert_eq!(root.value(&end), "f");
    assert_eq!(ann.value("SELECT 1"), "1");
    root.run("RESET ROLE");
    assert_eq!(root.value(&end), "t");
    assert_eq!(ann.fatal().code(), "57P01");
}

/// A database can be dropped and renamed once its clients have gone, as if they had taken their servers along. And made:
/// that it was not there is forgotten at once.
#[test]
fn servers_that_lie_idle_hold_no_database_back() {
    howdah_only!("there they do");
    let postgres = harness::Postgres::shared();
    let (db, new) = (postgres.database(), format!("{}_new", postgres.database()));
    let at = |name: &str| {
        let folder = postgres.folder().display();
        format!("host={folder} port={} dbname={name} user=postgres", postgres.port())
    };
    let world = World::with(3, |setup| {
        setup
            .database("root", &at("postgres"))
            .database("old", &at(&db))
            .database("new", &at(&new))
            .set("server_login_retry", 600)
    });
    let login = |name: &str| world.howdah.login("app", PASSWORD, name);
    let mut root = login("root").enter();
    let visit = |name: &str| {
        let (mut one, mut two) = (login(name).enter(), login(name).enter());
        one.run("BEGIN");
        two.run("SELECT 1");
        one.run("COMMIT");
    };
    visit("old");
    assert!(postgres.backends(&db) > 0);
    assert_eq!(login("new").attempt().err().expect("not there").error().code(), "3D000");
    root.run(&format!("CREATE DATABASE {new} TEMPLATE {db}"));
    visit("new");
    root.run(&format!("DROP DATABASE {new}"));
    // What its servers said at login is known, so it is the first query that finds nobody there.
    let mut late = login("new").enter();
    late.send(&say::query("SELECT 1"));
    assert_eq!(late.fatal().code(), "3D000");
    visit("old");
    root.run(&format!("ALTER DATABASE {db} RENAME TO {new}"));
    visit("new");
    root.run(&format!("DROP DATABASE {new}"));
}
