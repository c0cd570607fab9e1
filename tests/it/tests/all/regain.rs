//! What a client asked for at login is what a RESET leads back to: at once, and as PostgreSQL would tell of it.

use harness::login::Login;
use harness::postgres::PASSWORD;
use harness::say::{bind, execute, parse, query, sync};
use harness::{Raw, World};

const ASKED: [(&str, &str); 5] = [
    ("DateStyle", "Postgres, MDY"),
    ("TimeZone", "PST8PDT"),
    ("client_encoding", "LATIN1"),
    ("application_name", "it's"),
    (
        "options",
        "-c IntervalStyle=postgres_verbose -c extra_float_digits=0 -c search_path=a,public -c work_mem=7MB",
    ),
];

const SHOWN: [&str; 8] = [
    "DateStyle",
    "TimeZone",
    "client_encoding",
    "application_name",
    "IntervalStyle",
    "extra_float_digits",
    "search_path",
    "work_mem",
];

/// To something else.
const CHANGE: &str = "SET DateStyle = German; SET TimeZone = 'Asia/Tokyo'; SET client_encoding = UTF8; \
    SET application_name = 'x'; SET IntervalStyle = iso_8601; SET extra_float_digits = 3; \
    SET search_path = b; SET work_mem = '9MB'";

fn login(login: Login) -> Raw {
    ASKED.iter().fold(login, |login, (name, value)| login.parameter(name, value)).enter()
}

/// What a request makes the client hear of its parameters, and what they are then. When a server
/// that reports late tells of what we set, the order is its own.
fn after(
    raw: &mut Raw,
    request: &[u8],
    readies: usize,
) -> (Vec<(String, String)>, Vec<String>, String) {
    raw.send(request);
    let reply = raw.until_readies(readies);
    let mut told: Vec<_> = reply.of(b'S').map(harness::reply::Message::parameter).collect();
    told.sort();
    let mut is = |name| {
        let shown = raw.query(&format!("SHOW {name}"));
        shown.error().map_or_else(|| shown.value(), |error| error.code().to_owned())
    };
    let is = SHOWN.into_iter().map(&mut is).collect();
    (told, is, reply.tags().replace('S', ""))
}

fn extended(sql: &str, name: &str) -> Vec<u8> {
    [parse(name, sql), bind("", name, &[]), execute("", 0), sync()].concat()
}

/// The same is done directly and through the pooler.
fn compare(mode: &str, steps: &[(Vec<u8>, usize)]) {
    let world = World::with(1, |setup| setup.set("pool_mode", mode));
    world.direct().run("CREATE SCHEMA a; CREATE SCHEMA b");
    let mut direct = login(Login::new(world.postgres.address(), "app", PASSWORD, &world.db));
    let mut ours = login(world.login());
    for (request, readies) in steps {
        let [expected, seen] = [&mut direct, &mut ours].map(|raw| after(raw, request, *readies));
        let text = String::from_utf8_lossy(request);
        assert_eq!(seen, expected, "{mode}: {text}");
    }
}

const RESETS: [&str; 12] = [
    "RESET DateStyle",
    "SET TimeZone TO DEFAULT",
    "SET TIME ZONE LOCAL",
    "RESET client_encoding",
    "reset IntervalStyle; reset application_name",
    "RESET search_path",
    "/* so */ SET SESSION extra_float_digits TO DEFAULT",
    "SET work_mem TO DEFAULT; SELECT 1",
    "RESET ALL",
    "RESET TimeZone; SELECT 1/0",
    "RESET work_mem; SET work_mem = '11MB'",
    "RESET ROLE; RESET SESSION AUTHORIZATION",
];

#[test]
fn in_session_mode_a_reset_leads_back_to_what_was_asked_for() {
    howdah_only!("it leads to the server's default");
    let mut steps = Vec::new();
    for reset in RESETS.into_iter().chain(["DISCARD ALL"]) {
        steps.extend([(query(CHANGE), 1), (query(reset), 1)]);
        if !reset.contains(';') {
            steps.extend([(query(CHANGE), 1), (extended(reset, ""), 1)]);
        }
    }
    // Prepared now, run later; and the unnamed statement stays where it is.
    steps.push(([parse("r", "RESET TimeZone"), parse("", "RESET DateStyle"), sync()].concat(), 1));
    steps.push(([bind("", "r", &[]), execute("", 0), sync()].concat(), 1));
    steps.push((query(CHANGE), 1));
    steps.push((extended("RESET DateStyle", ""), 1));
    steps.push(([bind("", "", &[]), execute("", 0), sync()].concat(), 1));
    compare("session", &steps);
}

#[test]
fn so_it_does_within_a_transaction() {
    howdah_only!("it leads to the server's default");
    for mode in ["session", "transaction"] {
        let mut steps = Vec::new();
        for reset in RESETS {
            for end in ["COMMIT", "ROLLBACK"] {
                steps.extend([(query(CHANGE), 1), (query("BEGIN"), 1), (query(reset), 1)]);
                steps.push((query(end), 1));
            }
            steps.push((query(CHANGE), 1));
            steps.push(([query("BEGIN"), query(reset), query("COMMIT")].concat(), 3));
        }
        let local = [
            "BEGIN",
            "SET LOCAL TimeZone TO DEFAULT",
            "SAVEPOINT a",
            "RESET ALL",
            "ROLLBACK TO a",
            "COMMIT",
        ];
        steps.push((query(CHANGE), 1));
        steps.extend(local.map(|sql| (query(sql), 1)));
        compare(mode, &steps);
    }
}

#[test]
fn in_transaction_mode_a_reset_leads_back_to_what_was_asked_for() {
    howdah_only!("it leads to the server's default");
    let mut steps = Vec::new();
    for reset in RESETS.into_iter().chain(["DISCARD ALL"]) {
        steps.extend([(query(CHANGE), 1), (query(reset), 1)]);
    }
    let world = World::pool(1);
    let mut direct = login(Login::new(world.postgres.address(), "app", PASSWORD, &world.db));
    let mut ours = login(world.login());
    // What it hears, and when, is another story: see the parameters' own.
    for (request, readies) in &steps {
        let [expected, seen] = [&mut direct, &mut ours].map(|raw| after(raw, request, *readies).1);
        assert_eq!(seen, expected, "{}", String::from_utf8_lossy(request));
    }
}

/// What comes in the same flight, too, is done with what was asked for.
#[test]
fn what_is_said_behind_a_reset_finds_what_was_asked_for() {
    howdah_only!("it finds the server's default");
    let world = World::pool(1);
    world.direct().run("CREATE SCHEMA a; CREATE SCHEMA b");
    let mut direct = login(Login::new(world.postgres.address(), "app", PASSWORD, &world.db));
    let mut ours = login(world.login());
    let shown = || SHOWN.iter().map(|name| query(&format!("SHOW {name}")));
    let mut compare = |flight: &[u8], readies: usize| {
        let [expected, seen] = [&mut direct, &mut ours].map(|raw| {
            raw.send(flight);
            let reply = raw.until_readies(readies);
            let values: Vec<_> = reply.rows();
            (values, reply.tags().replace('S', ""))
        });
        assert_eq!(seen, expected, "{}", String::from_utf8_lossy(flight));
    };
    for reset in RESETS.into_iter().chain(["DISCARD ALL"]) {
        let mut resets = vec![query(reset)];
        if !reset.contains(';') {
            resets.push(extended(reset, ""));
        }
        for said in resets {
            let shows: Vec<u8> = shown().flatten().collect();
            let readies = 1 + SHOWN.len();
            compare(&query(CHANGE), 1);
            compare(&[&said[..], &shows].concat(), readies);
            compare(&shows, SHOWN.len());
            // Behind a request that changes it, and in front of a transaction.
            let flight = [&query(CHANGE), &said, &query("BEGIN"), &shows[..], &query("ROLLBACK")];
            compare(&flight.concat(), readies + 3);
            compare(&shows, SHOWN.len());
            let prepared = [parse("p", "SHOW search_path"), bind("", "p", &[]), execute("", 0)];
            let flight = [&said[..], &prepared.concat(), &sync()].concat();
            compare(&query(CHANGE), 1);
            compare(&flight, 2);
            compare(&query("DEALLOCATE ALL"), 1);
        }
    }
}

/// And what one has reset is nothing to another on its server.
#[test]
fn what_one_resets_is_given_back_to_nobody_else() {
    howdah_only!("it leads to the server's default");
    let world = World::pool(1);
    world.direct().run("CREATE SCHEMA a; CREATE SCHEMA b");
    let enter = || world.login().parameter("options", "-c search_path=a -c work_mem=7MB").enter();
    let (mut ann, mut bob) = (enter(), enter());
    for reset in ["RESET ALL", "RESET ALL; BEGIN", "RESET search_path; SELECT 1"] {
        bob.run("SET search_path = b; SET work_mem = '9MB'");
        ann.run("SET search_path = b");
        ann.run(reset);
        if reset.ends_with("BEGIN") {
            ann.run("ROLLBACK");
        }
        assert_eq!(bob.value("SHOW search_path"), "b", "{reset}");
        assert_eq!(bob.value("SHOW work_mem"), "9MB", "{reset}");
    }
}
