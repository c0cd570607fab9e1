//! The console: its commands, who may give them, and what they answer.

use harness::postgres::PASSWORD;
use harness::say::{bind, describe_portal, execute, extended, parse, query, sync};
use harness::{Heard, Raw, Reply, Setup, Subject, World, eventually, seconds, subject};

fn watcher(world: &World) -> Raw {
    world.howdah.login("watcher", PASSWORD, "pgbouncer").enter()
}

fn error_of(reply: &Reply) -> String {
    let error = reply.error().unwrap_or_else(|| panic!("no error in {reply:?}"));
    assert_eq!(error.severity(), "ERROR");
    assert_eq!(reply.status(), Some('I'));
    error.text().to_owned()
}

#[test]
fn the_welcome() {
    let world = World::pool(1);
    let welcome = &world.howdah.admin().welcome;
    let parameters: Vec<_> = welcome.of(b'S').map(harness::Message::parameter).collect();
    let names: Vec<_> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "server_version",
        "client_encoding",
        "server_encoding",
        "DateStyle",
        "TimeZone",
        "standard_conforming_strings",
        "is_superuser",
    ];
    assert_eq!(names, expected);
    assert!(parameters[0].1.ends_with("/bouncer"), "{}", parameters[0].1);
    let values: Vec<_> = parameters[1..].iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["UTF8", "UTF8", "ISO", "GMT", "on", "on"]);
    assert!(welcome.tags().ends_with("SKZ"), "{}", welcome.tags());
}

#[test]
fn who_may_do_what() {
    howdah_only!("commands and errors are of 1.25");
    let world = World::pool(1);
    for user in ["app", "app2"] {
        let refused =
            world.howdah.login(user, PASSWORD, "pgbouncer").attempt().err().expect("refused");
        assert_eq!(refused.error().text(), "not allowed");
    }
    let mut watcher = watcher(&world);
    let orders = [
        "PAUSE",
        "PAUSE shop",
        "RESUME",
        "RESUME shop",
        "DISABLE shop",
        "ENABLE shop",
        "KILL",
        "KILL shop",
        "KILL_CLIENT 1",
        "RECONNECT",
        "RECONNECT shop",
        "SUSPEND",
        "RELOAD",
        "SHUTDOWN",
        "SHUTDOWN WAIT_FOR_CLIENTS",
        "WAIT_CLOSE",
        "SET verbose = 0",
        "SHOW FDS",
    ];
    for order in orders {
        let reply = watcher.query(order);
        assert_eq!(error_of(&reply), "admin access needed", "{order}");
        assert_eq!(reply.code(), "08P01");
    }
    for view in [
        "STATS",
        "POOLS",
        "CLIENTS",
        "SERVERS",
        "DATABASES",
        "CONFIG",
        "USERS",
        "LISTS",
        "MEM",
        "VERSION",
        "HELP",
    ] {
        assert_eq!(watcher.run(&format!("SHOW {view}")).command(), "SHOW", "{view}");
    }
    assert_eq!(world.client().value("SELECT 'nothing happened'"), "nothing happened");
}

#[test]
fn no_secret_is_shown() {
    let world = World::with(1, |setup| {
        setup
            .secret("app", "kept-secret")
            .database_also("shop", &format!("user=app2 password={PASSWORD}"))
            .set("verbose", if subject() == Subject::Howdah { 2 } else { 0 })
    });
    let _client = world.login().password("kept-secret").enter();
    for view in
        ["CONFIG", "DATABASES", "USERS", "CLIENTS", "SERVERS", "POOLS", "SOCKETS", "LISTS", "MEM"]
    {
        let reply = format!("{:?}", world.howdah.order(&format!("SHOW {view}")).rows());
        assert!(!reply.contains("kept-secret") && !reply.contains(PASSWORD), "{view}");
    }
    assert!(!world.howdah.log().contains("kept-secret") && !world.howdah.log().contains(PASSWORD));
}

#[test]
fn what_it_does_not_understand() {
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    for nonsense in [
        "MAKE coffee",
        "SHOW",
        "SHOW COFFEE",
        "SELECT 1",
        "PAUSE shop now",
        "\u{1F418}",
        "'",
        "SET a",
        "FROB;;",
    ] {
        let reply = admin.query(nonsense);
        let error =
            reply.error().unwrap_or_else(|| panic!("{nonsense:?} was understood: {reply:?}"));
        assert_eq!((error.severity(), error.code()), ("ERROR", "08P01"), "{nonsense}");
        assert_eq!(reply.status(), Some('I'));
    }
    assert_eq!(
        error_of(&admin.query("MAKE coffee")),
        "invalid command 'MAKE coffee', use SHOW HELP;"
    );
    assert_eq!(
        admin.run("show Version ;").count(b'D'),
        1,
        "letters of either case, and a semicolon"
    );
}

#[test]
fn select_is_show() {
    howdah_only!("not yet in 1.18");
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    assert_eq!(admin.run("SELECT VERSION").rows(), admin.run("SHOW VERSION").rows());
}

#[test]
fn help() {
    let world = World::pool(1);
    let reply = world.howdah.order("SHOW HELP");
    assert_eq!((reply.tags().as_str(), reply.command().as_str()), ("NCZ", "SHOW"));
    let notice = reply.0[0].fields();
    assert_eq!((notice.severity(), notice.text()), ("NOTICE", "Console usage"));
    assert!(notice.field(b'D').contains("RECONNECT"));
}

#[test]
fn drivers_settings_are_humoured() {
    howdah_only!("not yet in 1.18");
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    let settings = [
        "client_encoding",
        "default_transaction_isolation",
        "standard_conforming_strings",
        "datestyle",
        "timezone",
    ];
    let values = ["UTF-8", "read committed", "on", "ISO", "GMT"];
    for (setting, value) in settings.into_iter().zip(values) {
        assert_eq!(admin.run(&format!("SHOW {setting}")).value(), value);
        let reply = admin.run(&format!("SET {setting} = 'x'"));
        assert_eq!(reply.of(b'N').next().expect("a notice").fields().text(), "SET ignored");
    }
}

#[test]
fn the_extended_protocol_works_here_too() {
    howdah_only!("PgBouncer refuses it");
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    let direct = admin.run("SHOW DATABASES");
    let reply = admin.ask(&[extended("SHOW DATABASES", &[]), sync()].concat());
    assert_eq!(reply.rows(), direct.rows());
    assert_eq!(reply.names(), direct.names());
    let set = [
        parse("s", "SET verbose = 0"),
        bind("", "s", &[]),
        describe_portal(""),
        execute("", 0),
        sync(),
    ]
    .concat();
    assert_eq!(admin.ask(&set).tags(), "12nCZ");
    let bad = [extended("MAKE coffee", &[]), extended("SHOW VERSION", &[]), sync()].concat();
    let reply = admin.ask(&bad);
    assert_eq!(
        (reply.count(b'E'), reply.count(b'D')),
        (1, 0),
        "the rest is skipped to the Sync: {reply:?}"
    );
    assert_eq!(admin.run("SHOW VERSION").count(b'D'), 1);
}

#[test]
fn pause_waits_for_what_runs_and_holds_what_comes() {
    let world = World::pool(3);
    let (mut busy, mut later, mut admin) = (world.client(), world.client(), world.howdah.admin());
    later.run("SELECT 1");
    busy.run("BEGIN");
    admin.send(&query("PAUSE shop"));
    assert!(matches!(admin.hear(seconds(0.5)), Heard::Quiet), "a transaction is open");
    later.send(&query("SELECT 'held'"));
    busy.run("SELECT 1");
    busy.run("COMMIT");
    assert_eq!(admin.until_ready().command(), "PAUSE");
    assert!(matches!(later.hear(seconds(0.3)), Heard::Quiet));
    eventually("all servers are closed", || world.servers() == 0);
    assert_eq!(world.howdah.cell("SHOW DATABASES", &[("name", "shop")], "paused"), "1");
    assert_eq!(admin.run("RESUME shop").command(), "RESUME");
    assert_eq!(later.until_ready().column(), ["held"]);
}

#[test]
fn pause_of_everything() {
    let world = World::pool(2);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    client.run("SELECT 1");
    assert_eq!(admin.run("PAUSE").command(), "PAUSE");
    assert_eq!(error_of(&admin.query("PAUSE")), "already suspended/paused");
    client.send(&query("SELECT 'held'"));
    assert!(matches!(client.hear(seconds(0.3)), Heard::Quiet));
    if subject() == Subject::Howdah {
        assert_eq!(world.howdah.cell("SHOW STATE", &[("key", "paused")], "value"), "yes");
    }
    assert_eq!(error_of(&admin.query("SUSPEND")), "already suspended/paused");
    assert_eq!(admin.run("RESUME").command(), "RESUME");
    assert_eq!(client.until_ready().column(), ["held"]);
    assert_eq!(error_of(&admin.query("RESUME")), "pooler is not paused/suspended");
    assert_eq!(error_of(&admin.query("RESUME shop")), "database shop is not paused");
}

/// What is paused by its name, and what with all others, are two things.
#[test]
fn pauses_by_name_and_of_everything() {
    let world = World::pool(2);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    let mut says = |command: &str| {
        let reply = admin.query(command);
        reply.error().map_or_else(|| reply.command(), |error| error.text().to_owned())
    };
    for (command, answer) in [
        ("PAUSE shop", "PAUSE"),
        ("PAUSE shop", "PAUSE"),
        ("RESUME", "pooler is not paused/suspended"),
        ("SUSPEND", "cannot suspend with paused databases"),
        ("PAUSE", "PAUSE"),
        ("PAUSE shop", "already suspended/paused"),
        ("RESUME", "RESUME"),
    ] {
        assert_eq!(says(command), answer, "{command}");
    }
    client.send(&query("SELECT 'held'"));
    assert!(matches!(client.hear(seconds(0.3)), Heard::Quiet), "it was paused by its name");
    for (command, answer) in [
        ("PAUSE", "PAUSE"),
        ("RESUME shop", "RESUME"),
        ("RESUME shop", "database shop is not paused"),
    ] {
        assert_eq!(says(command), answer, "{command}");
    }
    assert!(matches!(client.hear(seconds(0.3)), Heard::Quiet), "so is everything");
    assert_eq!(says("RESUME"), "RESUME");
    assert_eq!(client.until_ready().column(), ["held"]);
}

/// `*` makes a database for who pauses it, and none for who says that something is over.
#[test]
fn what_was_never_there_is_neither_resumed_nor_enabled() {
    let howdah = Setup::new().database("*", "host=127.0.0.1 port=1").start();
    let mut admin = howdah.admin();
    for (command, answer) in [
        ("RESUME never", "no such database: never"),
        ("ENABLE never", "no such database: never"),
        ("DISABLE made", "DISABLE"),
        ("ENABLE made", "ENABLE"),
        ("PAUSE made_too", "PAUSE"),
        ("RESUME made_too", "RESUME"),
        ("RESUME made_too", "database made_too is not paused"),
    ] {
        let reply = admin.query(command);
        let got = reply.error().map_or_else(|| reply.command(), |error| error.text().to_owned());
        assert_eq!(got, answer, "{command}");
    }
}

/// It is a client like others: by its name, and in the statistics.
#[test]
fn the_console_is_counted() {
    let world = World::pool(1);
    let login = world.howdah.login("boss", PASSWORD, "pgbouncer");
    let mut admin = login.parameter("application_name", "watcher").enter();
    let clients = admin.query("SHOW CLIENTS").table();
    let is_named = |row: &Vec<(String, String)>| {
        row.iter().any(|(name, value)| name == "application_name" && value == "watcher")
    };
    assert_eq!(clients.iter().filter(|row| is_named(row)).count(), 1);
    let mut counted = || -> [u64; 2] {
        let stats = admin.query("SHOW STATS").table();
        let row = stats.iter().find(|row| row.iter().any(|(_, value)| value == "pgbouncer"));
        let row = row.expect("a row of the console's");
        ["total_xact_count", "total_query_count"].map(|wanted| {
            let found = row.iter().find(|(name, _)| name == wanted);
            found.expect("a column").1.parse().expect("a number")
        })
    };
    let (before, after) = (counted(), counted());
    assert_eq!(after, before.map(|count| count + 1));
}

#[test]
fn a_pause_ends_when_its_administrator_gives_up() {
    let world = World::pool(1);
    let (mut busy, mut later, mut admin) = (world.client(), world.client(), world.howdah.admin());
    busy.run("BEGIN");
    admin.send(&query("PAUSE"));
    assert!(matches!(admin.hear(seconds(0.3)), Heard::Quiet));
    admin.cancel();
    if subject() == Subject::Howdah {
        admin.until_ready();
        admin.send(&query("PAUSE"));
        assert!(matches!(admin.hear(seconds(0.3)), Heard::Quiet));
        admin.reset();
    }
    busy.run("COMMIT");
    assert_eq!(later.run("SELECT 'served'").column(), ["served"]);
}

#[test]
fn names_of_databases_in_commands() {
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    for command in ["PAUSE", "RESUME", "DISABLE", "ENABLE", "KILL", "RECONNECT", "WAIT_CLOSE"] {
        let text = error_of(&admin.query(&format!("{command} nowhere")));
        assert_eq!(text, "no such database: nowhere", "{command}");
    }
    let verbs =
        [("PAUSE", "pause"), ("DISABLE", "disable"), ("KILL", "kill"), ("RECONNECT", "reconnect")];
    for (command, verb) in verbs {
        let text = error_of(&admin.query(&format!("{command} pgbouncer")));
        assert_eq!(text, format!("cannot {verb} admin db: pgbouncer"));
    }
    for command in ["DISABLE", "ENABLE"] {
        assert_eq!(error_of(&admin.query(command)), "a database is required");
    }
}

#[test]
fn disable_and_enable() {
    let world = World::pool(1);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    assert_eq!(admin.run("DISABLE shop").command(), "DISABLE");
    let error = world.login().attempt().err().expect("refused").error();
    assert_eq!((error.severity(), error.code()), ("FATAL", "08P01"));
    assert!(error.text().contains("is disabled"), "{error:?}");
    if subject() == Subject::Howdah {
        assert_eq!(error.text(), "database \"shop\" is disabled");
    }
    assert_eq!(client.value("SELECT 'who is in stays in'"), "who is in stays in");
    assert_eq!(world.howdah.cell("SHOW DATABASES", &[("name", "shop")], "disabled"), "1");
    assert_eq!(admin.run("ENABLE shop").command(), "ENABLE");
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn kill_drops_everybody_and_leaves_the_database_paused() {
    let world = World::pool(2);
    let (mut busy, mut idle, mut admin) = (world.client(), world.client(), world.howdah.admin());
    busy.run("BEGIN");
    assert_eq!(admin.run("KILL shop").command(), "KILL");
    busy.until_closed();
    idle.until_closed();
    eventually("its servers are closed", || world.servers() == 0);
    assert_eq!(world.howdah.cell("SHOW DATABASES", &[("name", "shop")], "paused"), "1");
    admin.run("RESUME shop");
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn kill_client() {
    howdah_only!("of 1.24");
    let world = World::pool(2);
    let (mut victim, mut other) =
        (world.login().parameter("application_name", "victim").enter(), world.client());
    victim.run("BEGIN");
    let mut admin = world.howdah.admin();
    let id = world.howdah.cell("SHOW CLIENTS", &[("application_name", "victim")], "id");
    assert_eq!(admin.run(&format!("KILL_CLIENT {id}")).command(), "KILL_CLIENT");
    assert_eq!(victim.fatal().text(), "admin forced disconnect");
    assert_eq!(other.value("SELECT 1"), "1");
    assert_eq!(error_of(&admin.query(&format!("KILL_CLIENT {id}"))), "client not found");
    assert_eq!(error_of(&admin.query("KILL_CLIENT one")), "invalid client pointer supplied");
}

#[test]
fn killing_oneself_is_answered() {
    howdah_only!("PgBouncer exits");
    let mut world = World::pool(1);
    let mut login = world.howdah.login("boss", PASSWORD, "pgbouncer");
    login = login.parameter("application_name", "lonely");
    let mut admin = login.enter();
    let id = world.howdah.cell("SHOW CLIENTS", &[("application_name", "lonely")], "id");
    assert_eq!(admin.query(&format!("KILL_CLIENT {id}")).command(), "KILL_CLIENT");
    admin.until_closed();
    world.howdah.must_live();
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn reconnect_renews_every_server_without_hurting_anyone() {
    let world = World::pool(2);
    let (mut busy, mut idle, mut admin) = (world.client(), world.client(), world.howdah.admin());
    let old = busy.value("BEGIN; SELECT pg_backend_pid()");
    let idle_pid = idle.value("SELECT pg_backend_pid()");
    assert_eq!(admin.run("RECONNECT shop").command(), "RECONNECT");
    assert_ne!(idle.value("SELECT pg_backend_pid()"), idle_pid);
    assert_eq!(busy.value("SELECT pg_backend_pid()"), old, "not in the middle of a transaction");
    let mut waiting = world.howdah.admin();
    waiting.send(&query("WAIT_CLOSE shop"));
    assert!(matches!(waiting.hear(seconds(0.5)), Heard::Quiet), "one old server is left");
    busy.run("COMMIT");
    assert_eq!(waiting.until_ready().command(), "WAIT_CLOSE");
    assert_ne!(busy.value("SELECT pg_backend_pid()"), old);
    assert_eq!(admin.run("WAIT_CLOSE").command(), "WAIT_CLOSE", "nothing to wait for");
}

#[test]
fn suspend_stops_everything_until_resume() {
    let world = World::pool(2);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    client.run("SELECT 1");
    assert_eq!(admin.run("SUSPEND").command(), "SUSPEND");
    client.send(&query("SELECT 'after'"));
    assert!(matches!(client.hear(seconds(0.5)), Heard::Quiet));
    assert_eq!(admin.run("RESUME").command(), "RESUME");
    assert_eq!(client.until_ready().column(), ["after"]);
}

/// Who comes meanwhile waits, and loses no time of its login by it; who wants the console gets in, and can end it.
#[test]
fn who_comes_during_a_suspend_waits_for_its_end() {
    let world = World::with(2, |setup| setup.set("client_login_timeout", 1));
    let mut admin = world.howdah.admin();
    assert_eq!(admin.run("SUSPEND").command(), "SUSPEND");
    std::thread::scope(|scope| {
        let comer = scope.spawn(|| world.client().value("SELECT 'in'"));
        eventually("it has come", || world.howdah.log().contains("login attempt: db=shop"));
        std::thread::sleep(seconds(2.0));
        assert!(!comer.is_finished(), "nothing is served");
        let mut other = world.howdah.admin();
        assert_eq!(other.value("SHOW VERSION"), admin.value("SHOW VERSION"));
        assert_eq!(other.run("RESUME").command(), "RESUME");
        assert_eq!(comer.join().expect("no panic"), "in");
    });
}

#[test]
fn suspend_ends_with_its_administrator() {
    let world = World::pool(2);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    assert_eq!(admin.run("SUSPEND").command(), "SUSPEND");
    client.send(&query("SELECT 'after'"));
    assert!(matches!(client.hear(seconds(0.3)), Heard::Quiet));
    admin.leave();
    assert_eq!(client.until_ready().column(), ["after"]);
}

#[test]
fn set() {
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    let value = |key: &str| world.howdah.cell("SHOW CONFIG", &[("key", key)], "value");
    for (command, key, expected) in [
        ("SET query_wait_timeout = 33", "query_wait_timeout", "33"),
        ("SET query_wait_timeout TO 34", "query_wait_timeout", "34"),
        ("set query_wait_timeout='35';", "query_wait_timeout", "35"),
        ("SET server_reset_query = 'SELECT ''x'''", "server_reset_query", "SELECT 'x'"),
        ("SET pool_mode = session", "pool_mode", "session"),
    ] {
        let reply = admin.run(command);
        assert!(reply.command().starts_with("SET"), "{reply:?}");
        assert_eq!(value(key), expected);
    }
    if subject() == Subject::Howdah {
        assert_eq!(admin.run("SET query_wait_timeout = 36").command(), "SET query_wait_timeout=36");
    }
    for bad in
        ["SET query_wait_timeout = soon", "SET no_such_thing = 1", "SET pool_mode = carousel"]
    {
        assert_eq!(error_of(&admin.query(bad)), "SET failed", "{bad}");
    }
    let port = value("listen_port");
    admin.query("SET listen_port = 1");
    assert_eq!(value("listen_port"), port, "it cannot be changed while running");
}

#[test]
fn set_is_forgotten_by_reload() {
    let world = World::pool(1);
    let mut admin = world.howdah.admin();
    admin.run("SET query_wait_timeout = 33");
    assert_eq!(admin.run("RELOAD").command(), "RELOAD");
    assert_eq!(world.howdah.cell("SHOW CONFIG", &[("key", "query_wait_timeout")], "value"), "120");
}

#[test]
fn shutdown_at_once() {
    let mut world = World::pool(1);
    let mut client = world.client();
    client.run("BEGIN");
    let mut admin = world.howdah.admin();
    admin.send(&query("SHUTDOWN"));
    assert_eq!(world.howdah.ended().code(), Some(0));
    client.until_closed();
    eventually("no server is left", || world.servers() == 0);
}

#[test]
fn shutdown_that_waits_for_servers() {
    howdah_only!("of 1.23");
    let mut world = World::pool(2);
    let (mut busy, mut idle, mut admin) = (world.client(), world.client(), world.howdah.admin());
    busy.run("BEGIN");
    admin.send(&query("SHUTDOWN WAIT_FOR_SERVERS"));
    eventually("nobody is let in", || Raw::open(&world.howdah.address()).is_err());
    idle.send(&query("SELECT 1"));
    assert_eq!(idle.fatal().text(), "server shutting down");
    assert_eq!(busy.run("COMMIT").tags(), "CZ");
    assert_eq!(world.howdah.ended().code(), Some(0));
}

#[test]
fn shutdown_that_waits_for_clients() {
    howdah_only!("of 1.23");
    let mut world = World::pool(2);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    admin.send(&query("SHUTDOWN WAIT_FOR_CLIENTS"));
    eventually("nobody is let in", || Raw::open(&world.howdah.address()).is_err());
    for _ in 0..3 {
        assert_eq!(client.run("SELECT 1").tags(), "TDCZ", "who is in is served");
    }
    let mut back_door = world.howdah.login("boss", PASSWORD, "pgbouncer");
    back_door.address = world.howdah.socket();
    assert_eq!(error_of(&back_door.enter().query("RESUME")), "pooler is shutting down");
    client.leave();
    drop(admin);
    assert_eq!(world.howdah.ended().code(), Some(0));
}

#[test]
fn auth_type_any_gives_the_rights_of_a_watcher() {
    let world = World::with(1, |setup| {
        setup
            .set("auth_type", "any")
            .unset("admin_users")
            .unset("stats_users")
            .database_also("shop", &format!("user=app password={PASSWORD}"))
    });
    let mut somebody = world.howdah.login("somebody", "", "pgbouncer").enter();
    assert_eq!(somebody.run("SHOW VERSION").count(b'D'), 1);
    assert_eq!(error_of(&somebody.query("PAUSE")), "admin access needed");
}

#[test]
fn it_works_without_any_database() {
    let howdah = Setup::new().start();
    assert_eq!(howdah.order("SHOW VERSION").count(b'D'), 1);
    assert_eq!(howdah.order("SHOW POOLS").command(), "SHOW");
}
