//! auth_query: users who are in no file are asked for.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use harness::login::Refused;
use harness::postgres::PASSWORD;
use harness::{Howdah, Login, Postgres, Setup, World, eventually};

/// A database with users of its own, and a role that may ask about them.
struct Town {
    postgres: &'static Postgres,
    db: String,
    asker: String,
}

impl Town {
    fn new() -> Self {
        let postgres = Postgres::shared();
        let db = postgres.database();
        let asker = format!("{db}_asker");
        let town = Self { postgres, db, asker };
        town.run(&format!("CREATE ROLE {} LOGIN SUPERUSER PASSWORD '{PASSWORD}'", town.asker));
        town
    }

    fn run(&self, sql: &str) {
        self.postgres.superuser(&self.db).run(sql);
    }

    /// A user with a name of this database's, and with these attributes.
    fn user(&self, name: &str, attributes: &str) -> String {
        let name = format!("{}_{name}", self.db);
        self.run(&format!("CREATE ROLE {name} {attributes}"));
        name
    }

    fn setup(&self) -> Setup {
        Setup::new()
            .set("auth_user", &self.asker)
            .secret(&self.asker, PASSWORD)
            .set("server_login_retry", "0.1")
            .database("shop", &self.postgres.target(&self.db))
    }

    fn start(&self) -> Howdah {
        self.setup().start()
    }

    /// How often the query was run.
    fn lookups(&self) -> usize {
        let is_lookup = |line: &&String| line.contains("pg_authid") && line.contains("execute");
        self.postgres.lines(&self.db).iter().filter(is_lookup).count()
    }
}

fn refused(login: &Login) -> String {
    let Refused(reply) = login.attempt().err().expect("refused");
    reply.error().expect("an error").text().to_owned()
}

#[test]
fn a_user_of_the_server_is_let_in_and_is_itself_there() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'of-ann'");
    let howdah = town.start();
    let mut client = howdah.login(&ann, "of-ann", "shop").enter();
    assert_eq!(client.value("SELECT current_user || session_user"), format!("{ann}{ann}"));
    assert_eq!(refused(&howdah.login(&ann, "wrong", "shop")), "SASL authentication failed");
    // What it has is what the file would have given: its keys open further servers.
    howdah.order("RECONNECT");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn every_way_to_ask_fits_every_form_of_secret() {
    let town = Town::new();
    let scram = town.user("scram", "LOGIN PASSWORD 'word'");
    town.run("SET password_encryption = 'md5'; CREATE ROLE by_md5_town LOGIN PASSWORD 'word' IN ROLE by_md5");
    let md5 = "by_md5_town";
    for (auth_type, in_scram, in_md5) in
        [("plain", true, true), ("md5", true, true), ("scram-sha-256", true, false)]
    {
        let howdah = town.setup().set("auth_type", auth_type).start();
        for (user, expected) in [(scram.as_str(), in_scram), (md5, in_md5)] {
            let entered = howdah.login(user, "word", "shop").attempt();
            let answered = entered.map(|mut client| client.value("SELECT current_user"));
            match answered {
                Ok(name) => assert!(expected && name == user, "{auth_type}: {user} is {name}"),
                Err(refused) => assert!(!expected, "{auth_type}: {user}: {refused:?}"),
            }
            assert!(howdah.login(user, "other", "shop").attempt().is_err(), "{auth_type} {user}");
        }
    }
    town.run("DROP ROLE by_md5_town");
}

/// A function with OUT parameters gives one row whatever it finds.
#[test]
fn a_row_of_nulls_is_about_nobody() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'of-ann'");
    town.run(
        "CREATE FUNCTION public.one_row(name text, OUT u name, OUT p text) LANGUAGE sql SECURITY DEFINER AS $$
           SELECT rolname, rolpassword FROM pg_authid WHERE rolname = name $$",
    );
    let howdah = town.setup().set("auth_query", "SELECT * FROM public.one_row($1)").start();
    assert_eq!(howdah.login(&ann, "of-ann", "shop").enter().value("SELECT 1"), "1");
    let wrong = refused(&howdah.login(&ann, "wrong", "shop"));
    assert_eq!(refused(&howdah.login("nobody-there", "of-ann", "shop")), wrong);
    eventually("it is told why", || {
        howdah.log().contains("nobody-there@") && howdah.log().contains("because: no such user")
    });
    town.run("DROP FUNCTION public.one_row");
}

#[test]
fn cve_2015_6817_an_unknown_user_is_nobody() {
    let town = Town::new();
    for auth_type in ["trust", "plain", "md5", "scram-sha-256"] {
        let howdah = town.setup().set("auth_type", auth_type).start();
        let login = howdah.login("nobody-there", PASSWORD, "shop");
        let unknown = login.attempt().err().expect("refused").error().text().to_owned();
        if auth_type != "trust" {
            let ann = town.user(&format!("ann_{}", auth_type.len()), "LOGIN PASSWORD 'x'");
            let wrong = refused(&howdah.login(&ann, "wrong", "shop"));
            assert_eq!(unknown, wrong, "{auth_type}: it cannot be told from a wrong password");
        }
        eventually("the log knows", || {
            howdah.log().contains("nobody-there@") && howdah.log().contains("because: no such user")
        });
    }
}

#[test]
fn cve_2025_2291_who_may_not_log_in_there_may_not_here() {
    let town = Town::new();
    let expired = town.user("expired", "LOGIN PASSWORD 'p' VALID UNTIL '2001-01-01'");
    let later = town.user("later", "LOGIN PASSWORD 'p' VALID UNTIL '2401-01-01'");
    let barred = town.user("barred", "NOLOGIN PASSWORD 'p'");
    let bare = town.user("bare", "LOGIN");
    let empty = town.user("empty", "LOGIN PASSWORD ''");
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let howdah = town.setup().set("auth_type", auth_type).start();
        for (user, password) in
            [(&expired, "p"), (&barred, "p"), (&bare, "p"), (&bare, ""), (&empty, "")]
        {
            let login = howdah.login(user, password, "shop");
            assert!(login.attempt().is_err(), "{auth_type}: {user} with \"{password}\"");
        }
        assert!(howdah.login(&later, "p", "shop").attempt().is_ok(), "{auth_type}");
        let gone = town.user("gone", "LOGIN PASSWORD 'p'");
        assert!(howdah.login(&gone, "p", "shop").attempt().is_ok(), "{auth_type}");
        town.run(&format!("DROP ROLE {gone}"));
        assert!(howdah.login(&gone, "p", "shop").attempt().is_err(), "{auth_type}: dropped");
    }
}

#[test]
fn a_changed_password_holds_at_once() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'word-0'");
    let howdah = town.start();
    for turn in 0..5 {
        let (new, old) = (format!("word-{turn}"), format!("word-{}", turn + 1));
        assert!(howdah.login(&ann, &new, "shop").attempt().is_ok(), "{turn}");
        assert!(howdah.login(&ann, &old, "shop").attempt().is_err(), "{turn}");
        town.run(&format!("ALTER ROLE {ann} PASSWORD '{old}'"));
        let mut client = howdah.login(&ann, &old, "shop").enter();
        howdah.order("RECONNECT");
        assert_eq!(client.value("SELECT 1"), "1", "and its servers are logged in to with it");
    }
    // A user who was missing a moment ago is there once it is made.
    let name = format!("{}_bob", town.db);
    assert!(howdah.login(&name, "p", "shop").attempt().is_err());
    town.user("bob", "LOGIN PASSWORD 'p'");
    assert!(howdah.login(&name, "p", "shop").attempt().is_ok());
}

/// The client brings a search_path, and leaves one; the lookup that follows on the same server sees neither.
#[test]
fn cve_2025_12819_nothing_of_a_clients_is_on_the_connection_that_asks() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'right'");
    let evil = "CREATE SCHEMA evil; \
        CREATE FUNCTION evil.lookup(name text, OUT u text, OUT p text) LANGUAGE sql AS $$SELECT name, 'evil'$$; \
        CREATE FUNCTION public.lookup(name text, OUT u text, OUT p text) LANGUAGE sql AS \
            $$SELECT rolname, rolpassword FROM pg_catalog.pg_authid WHERE rolname = name$$; \
        CREATE FUNCTION evil.always(name, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; \
        CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = text, PROCEDURE = evil.always)";
    town.run(evil);
    let query = "SELECT * FROM lookup($1)";
    // One server only, shared with clients that log in as whoever asks.
    let howdah = town
        .setup()
        .set("auth_query", query)
        .set("pool_mode", "transaction")
        .set("workers", 1)
        .set("track_extra_parameters", "search_path")
        // Else the temporary table would keep the only server.
        .own("track_session_state", 0)
        .set("default_pool_size", 1)
        .database("forced", &format!("{} user={}", town.postgres.target(&town.db), town.asker))
        .database_also("shop", "auth_dbname=forced")
        .start();
    let login = howdah.login(&town.asker, PASSWORD, "forced");
    for (name, value) in
        [("search_path", "evil, pg_catalog"), ("options", "-c search_path=evil,pg_catalog")]
    {
        let mut client = login.clone().parameter(name, value).enter();
        client.run("SET search_path = evil, public, pg_catalog");
        client.run("CREATE TEMP TABLE IF NOT EXISTS pg_authid (rolname name, rolpassword text)");
        client.run(&format!("INSERT INTO pg_temp.pg_authid VALUES ('{ann}', 'evil')"));
        client.run("SET ROLE app");
        assert!(howdah.login(&ann, "evil", "shop").attempt().is_err(), "{name}");
        assert!(howdah.login(&ann, "right", "shop").attempt().is_ok(), "{name}");
    }
    // A default of the role's is the admin's word, and holds.
    town.run(&format!("ALTER ROLE {} SET search_path = evil", town.asker));
    howdah.order("RECONNECT");
    assert!(howdah.login(&ann, "evil", "shop").attempt().is_ok());
}

#[test]
fn the_connect_query_still_holds_after_a_lookup() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town
        .setup()
        .set("default_pool_size", 1)
        .set("workers", 1)
        // What the asker sets is left on the server, to be cleaned away before a lookup.
        .own("track_session_state", 0)
        .database_also("shop", "connect_query='SET statement_timeout = 12345'")
        .start();
    let mut asker = howdah.login(&town.asker, PASSWORD, "shop").enter();
    for _ in 0..3 {
        assert_eq!(asker.value("SHOW statement_timeout"), "12345ms");
        asker.run("SET lock_timeout = 1");
        assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
        assert_eq!(asker.value("SHOW lock_timeout"), "0");
    }
    assert_eq!(howdah.rows("SHOW SERVERS", &[("user", &town.asker)], "id").len(), 1);
}

#[test]
fn prepared_statements_of_clients_outlive_a_lookup() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.setup().set("default_pool_size", 1).set("workers", 1).start();
    let mut asker = howdah.login(&town.asker, PASSWORD, "shop").enter();
    use harness::say;
    let make = [say::parse("s", "SELECT 41 + $1::int"), say::sync()].concat();
    assert_eq!(asker.ask(&make).tags(), "1Z");
    for _ in 0..3 {
        assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
        let run = [say::bind("", "s", &["1"]), say::execute("", 0), say::sync()].concat();
        assert_eq!(asker.ask(&run).column(), ["42"]);
        // Nor does anybody find the query that was asked.
        let steal = [say::bind("", "", &["postgres"]), say::execute("", 0), say::sync()].concat();
        assert_eq!(asker.ask(&steal).code(), "26000");
    }
}

#[test]
fn f03_what_is_wrong_with_the_query_is_logged_and_not_told() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let stories = [
        (
            "SELECT u, p FROM missing WHERE u = $1",
            "ERROR S: error in auth_query: ERROR: relation \"missing\" does not exist",
        ),
        ("SELECT rolname FROM pg_roles WHERE rolname = $1", "two columns"),
        ("SELECT rolname, rolpassword, 1 FROM pg_authid WHERE rolname = $1", "two columns"),
        ("SET lock_timeout = 1", "ERROR S: error in auth_query"),
        ("SELECT 1/0, $1", "division by zero"),
    ];
    for (query, line) in stories {
        let howdah = town.setup().set("auth_query", query).set("workers", 1).start();
        for _ in 0..3 {
            let login = howdah.login(&ann, "p", "shop");
            assert_eq!(refused(&login), "bouncer config error", "{query}");
        }
        eventually(line, || howdah.log().contains(line));
        assert!(howdah.rows("SHOW SERVERS", &[("user", &town.asker)], "id").len() <= 1, "{query}");
        assert!(howdah.login("app", PASSWORD, "shop").attempt().is_ok(), "{query}");
    }
}

#[test]
fn f03_each_database_asks_in_its_own_way() {
    let (town, other) = (Town::new(), Town::new());
    town.run("CREATE TABLE folk (u text, p text); INSERT INTO folk VALUES ('app9', 'nine')");
    other.run("CREATE TABLE folk (u text, p text); INSERT INTO folk VALUES ('app9', 'ten')");
    let query = "auth_query='SELECT u, p FROM folk WHERE u = $1'";
    let howdah = Setup::new()
        .secret(&town.asker, PASSWORD)
        .secret(&other.asker, PASSWORD)
        .database(
            "here",
            &format!("{} auth_user={} {query}", town.postgres.target(&town.db), town.asker),
        )
        .database(
            "there",
            &format!("{} auth_user={} {query}", other.postgres.target(&other.db), other.asker),
        )
        .database(
            "elsewhere",
            &format!(
                "{} auth_user={} {query} auth_dbname=there",
                town.postgres.target(&town.db),
                other.asker
            ),
        )
        .database("nowhere", &town.postgres.target(&town.db))
        .database("astray", &format!("auth_dbname=nosuch auth_user={}", town.asker))
        .start();
    // Whether the server then lets app9 in is not asked here: that comes after.
    let says = |password: &str, database: &str| refused(&howdah.login("app9", password, database));
    let beyond = "password authentication failed for user \"app9\"";
    assert_eq!(says("nine", "here"), beyond);
    assert_eq!(says("nine", "there"), "SASL authentication failed");
    assert_eq!(says("ten", "there"), beyond);
    assert_eq!(says("ten", "elsewhere"), beyond);
    assert_eq!(says("ten", "nowhere"), "SASL authentication failed");
    assert_eq!(says("ten", "astray"), "bouncer config error");
    let line = "(nodb)/(nouser)@127.0.0.1";
    let text = "authentication database \"nosuch\" is not configured.";
    let told = |log: &str| log.lines().any(|l| l.contains(line) && l.ends_with(text));
    eventually("the log names the database", || told(&howdah.log()));
}

#[test]
fn f03_the_console_is_nobodys_auth_dbname() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.setup().set("admin_users", format!("boss, {ann}")).start();
    assert_eq!(refused(&howdah.login(&ann, "p", "pgbouncer")), "bouncer config error");
    let text = "cannot use the reserved \"pgbouncer\" database as an auth_dbname";
    eventually("the log says why", || howdah.log().contains(text));
    // With a database to ask in, admins may be users of the server; pgdog#1053: by their password only.
    let howdah =
        town.setup().set("admin_users", format!("boss, {ann}")).set("auth_dbname", "shop").start();
    let mut admin = howdah.login(&ann, "p", "pgbouncer").enter();
    assert!(!admin.query("SHOW VERSION").column().is_empty());
    assert_eq!(refused(&howdah.login(&ann, "q", "pgbouncer")), "SASL authentication failed");
    assert_eq!(refused(&howdah.login("nobody", "p", "pgbouncer")), "SASL authentication failed");
    assert_eq!(refused(&howdah.login(&town.asker, PASSWORD, "pgbouncer")), "not allowed");
    for place in ["auth_dbname", "x"] {
        let setup = match place {
            "x" => town.setup().database_also("shop", "auth_dbname=pgbouncer"),
            name => town.setup().set(name, "pgbouncer"),
        };
        assert!(setup.try_start().is_err(), "{place}");
    }
}

#[test]
fn f03_auth_dbname_may_be_one_that_star_makes() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let (db, port) = (town.db.clone(), town.postgres.port());
    let howdah = town
        .setup()
        .database("*", &format!("host=127.0.0.1 port={port}"))
        .set("auth_dbname", &db)
        .start();
    assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
    assert_eq!(
        howdah.rows("SHOW POOLS", &[("database", &db), ("user", &town.asker)], "user").len(),
        1
    );
}

#[test]
fn f03_replication_clients_are_looked_up_too() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN REPLICATION PASSWORD 'p'");
    let howdah = town.start();
    for kind in ["database", "true"] {
        let login = howdah.login(&ann, "p", "shop").parameter("replication", kind);
        let mut client = login.enter();
        assert_eq!(client.query("IDENTIFY_SYSTEM").count(b'D'), 1, "{kind}");
        client.leave();
        assert!(login.password("wrong").attempt().is_err());
    }
}

#[test]
fn f03_a_slow_query_ends_with_the_login_timeout() {
    let town = Town::new();
    let query = "SELECT $1::text, 'x' FROM pg_sleep(60)";
    let howdah = town.setup().set("auth_query", query).set("client_login_timeout", 1).start();
    let login = howdah.login("somebody", "x", "shop");
    assert_eq!(refused(&login), "client_login_timeout");
    howdah.order("SET client_login_timeout = 60");
    // Users of the file do not wait behind it, nor is anything left counted.
    let mut app = howdah.login("app", PASSWORD, "shop").enter();
    assert_eq!(app.value("SELECT 1"), "1");
    // And with a limit for queries, it ends there.
    let howdah = town.setup().set("auth_query", query).set("query_timeout", 1).start();
    assert_eq!(refused(&howdah.login("somebody", "x", "shop")), "bouncer config error");
}

#[test]
fn f03_a_dead_server_is_told_of_and_comes_back() {
    let postgres = Postgres::start("");
    let mut boss = postgres.superuser("postgres");
    boss.run("CREATE ROLE ann LOGIN PASSWORD 'p'; CREATE ROLE asker LOGIN SUPERUSER PASSWORD 'p'");
    let howdah = Setup::new()
        .set("auth_user", "asker")
        .secret("asker", "p")
        .set("server_login_retry", "0.2")
        .database("shop", &postgres.target("postgres"))
        .start();
    assert!(howdah.login("ann", "p", "shop").attempt().is_ok());
    howdah.order("SET query_wait_timeout = 2");
    drop(boss);
    // Not at once: the roles would be lost, for nothing is synchronous there.
    postgres.stop(harness::postgres::Stop::Fast);
    assert!(howdah.login("ann", "p", "shop").attempt().is_err());
    postgres.restart();
    eventually("ann is let in again", || howdah.login("ann", "p", "shop").attempt().is_ok());
}

#[test]
fn f03_the_asker_counts_within_its_pool() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.setup().set("default_pool_size", 1).start();
    let mut asker = howdah.login(&town.asker, PASSWORD, "shop").enter();
    asker.run("BEGIN");
    howdah.order("SET query_wait_timeout = 1");
    // The one server of its pool is taken.
    assert_eq!(refused(&howdah.login(&ann, "p", "shop")), "query_wait_timeout");
    asker.run("COMMIT");
    howdah.order("SET query_wait_timeout = 120");
    assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
}

#[test]
fn f03_a_wrong_password_of_the_asker_is_not_hammered() {
    let town = Town::new();
    let howdah = town.setup().secret(&town.asker, "wrong").set("server_login_retry", 600).start();
    for _ in 0..20 {
        let text = refused(&howdah.login("somebody", "x", "shop"));
        assert!(text.contains("password authentication failed for user"), "{text}");
    }
    let failed = format!("FATAL:  password authentication failed for user \"{}\"", town.asker);
    let lines = town.postgres.lines(&town.db);
    assert_eq!(lines.iter().filter(|line| line.contains(&failed)).count(), 1);
}

#[test]
fn a_storm_of_logins_asks_little() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.setup().set("auth_type", "md5").set("max_client_conn", 1000).start();
    assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
    let before = town.lookups();
    let start = Barrier::new(100);
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                start.wait();
                assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
            });
        }
    });
    let asked = town.lookups() - before;
    assert!((1..=70).contains(&asked), "{asked} queries for 100 logins");
}

#[test]
fn a_paused_pool_keeps_who_logs_in_waiting() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.start();
    assert!(howdah.login(&ann, "p", "shop").attempt().is_ok());
    howdah.order("PAUSE");
    thread::scope(|scope| {
        let entering = scope.spawn(|| howdah.login(&ann, "p", "shop").enter().value("SELECT 1"));
        eventually("somebody waits", || {
            howdah.cell("SHOW POOLS", &[("user", &town.asker)], "cl_waiting") == "1"
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!entering.is_finished());
        howdah.order("RESUME");
        assert_eq!(entering.join().expect("no panic"), "1");
    });
}

/// Behaviours: clients let in through auth_query count, and what fails does not.
#[test]
fn limits_count_who_was_looked_up_and_forget_who_failed() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah =
        town.setup().set("max_user_client_connections", 2).set("max_client_conn", 5).start();
    for _ in 0..20 {
        assert!(howdah.login(&ann, "wrong", "shop").attempt().is_err());
        assert!(howdah.login("nobody", "wrong", "shop").attempt().is_err());
    }
    let login = howdah.login(&ann, "p", "shop");
    let (one, two) = (login.enter(), login.enter());
    let text = "client connections exceeded (max_user_client_connections)";
    assert_eq!(refused(&login), text);
    drop((one, two));
    eventually("their places are free", || login.attempt().is_ok());
}

#[test]
fn min_pool_size_is_kept_with_a_secret_that_was_looked_up() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.setup().set("min_pool_size", 3).set("default_pool_size", 5).start();
    let mut client = howdah.login(&ann, "p", "shop").enter();
    assert_eq!(client.value("SELECT 1"), "1");
    let which = [("database", "shop"), ("user", ann.as_str())];
    eventually("three servers", || howdah.rows("SHOW SERVERS", &which, "id").len() == 3);
    howdah.order("RECONNECT");
    eventually("three others", || howdah.rows("SHOW SERVERS", &which, "id").len() == 3);
}

#[test]
fn exactly_one_negotiation_when_a_lookup_stands_between() {
    let town = Town::new();
    let ann = town.user("ann", "LOGIN PASSWORD 'p'");
    let howdah = town.start();
    let login = howdah.login(&ann, "p", "shop").minor(9).parameter("_pq_.strange", "1");
    let mut raw = harness::Raw::open(&login.address).expect("open");
    raw.send(&login.startup());
    assert_eq!(raw.message().tag, b'v');
    assert_eq!(raw.message().tag, b'R');
}

#[test]
fn names_are_data() {
    let town = Town::new();
    let howdah = town.start();
    for name in ["' OR true --", "a\"b", "$1", "x; DROP TABLE x", "\u{1F418}", "\\", "%"] {
        assert_eq!(
            refused(&howdah.login(name, "p", "shop")),
            "SASL authentication failed",
            "{name}"
        );
        town.run(&format!("CREATE ROLE \"{}\" LOGIN PASSWORD 'p'", name.replace('"', "\"\"")));
        let mut client = howdah.login(name, "p", "shop").enter();
        assert_eq!(client.value("SELECT current_user"), name);
        town.run(&format!("DROP ROLE \"{}\"", name.replace('"', "\"\"")));
    }
    let world = World::pool(1);
    assert!(world.howdah.login("\u{1F418}", "x", "shop").attempt().is_err());
}
