//! The simple protocol: what is understood, and what is said about the rest.

use admin::{Answer, Command, Console, Next, Refusal, Role, Shutdown, View};

use crate::talk::{Talk, string};

fn ran(text: &str) -> Option<Command> {
    let mut talk = Talk::new(Role::Admin);
    talk.query(text);
    talk.ran.pop()
}

fn error(text: &str) -> String {
    let mut talk = Talk::new(Role::Admin);
    let heard = talk.query(text);
    assert_eq!(talk.ran, [], "{text} was carried out");
    assert_eq!((heard.len(), heard[heard.len() - 1].as_str()), (2, "Z I"), "{text}: {heard:?}");
    let message = heard[0].strip_prefix("E SERROR C08P01 M");
    message.unwrap_or_else(|| panic!("{text}: {heard:?}")).to_owned()
}

fn some(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[test]
fn commands_are_understood() {
    let set = |key: &str, value: &str| Command::Set { key: key.into(), value: value.into() };
    for (text, command) in [
        ("SHOW POOLS", Command::Show(View::Pools)),
        (" show\tpools ; ", Command::Show(View::Pools)),
        ("select \"Pools\"", Command::Show(View::Pools)),
        ("sHoW\r\n/* all /* of */ them */ pools -- please", Command::Show(View::Pools)),
        ("PAUSE", Command::Pause(None)),
        ("PAUSE \"\"", Command::Pause(None)),
        ("PAUSE shop;", Command::Pause(some("shop"))),
        ("PAUSE Shop", Command::Pause(some("Shop"))),
        ("PAUSE \"my-db\"", Command::Pause(some("my-db"))),
        ("PAUSE \"a\"\"b; c\"", Command::Pause(some("a\"b; c"))),
        ("RESUME", Command::Resume(None)),
        ("RESUME shop", Command::Resume(some("shop"))),
        ("SUSPEND", Command::Suspend),
        ("DISABLE shop", Command::Disable("shop".into())),
        ("ENABLE shop", Command::Enable("shop".into())),
        ("RECONNECT", Command::Reconnect(None)),
        ("RECONNECT shop", Command::Reconnect(some("shop"))),
        ("KILL", Command::Kill(None)),
        ("KILL shop", Command::Kill(some("shop"))),
        ("KILL_CLIENT 18446744073709551615", Command::KillClient(u64::MAX)),
        ("RELOAD", Command::Reload),
        ("SHUTDOWN", Command::Shutdown(Shutdown::Immediate)),
        ("shutdown wait_for_servers", Command::Shutdown(Shutdown::Servers)),
        ("SHUTDOWN WAIT_FOR_CLIENTS", Command::Shutdown(Shutdown::Clients)),
        ("WAIT_CLOSE", Command::WaitClose(None)),
        ("WAIT_CLOSE shop", Command::WaitClose(some("shop"))),
        ("SET stats_period = 10", set("stats_period", "10")),
        ("set stats_period=10;", set("stats_period", "10")),
        ("SET stats_period to '10'", set("stats_period", "10")),
        ("SET admin_users = 'ann, o''brian'", set("admin_users", "ann, o'brian")),
        ("SET stats_users = ''", set("stats_users", "")),
        ("SET \"pool_mode\" TO \"session\"", set("pool_mode", "session")),
    ] {
        assert_eq!(ran(text), Some(command), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_repeated() {
    for text in [
        "FOO",
        "SHOW",
        "SHOW foo",
        "SHOW POOLS now",
        "SHOW POOLS; SHOW CLIENTS",
        "SHOW POOLS;;",
        "SELECT 1",
        "SELECT version()",
        "SELECT $1",
        "RELOAD now",
        "SUSPEND shop",
        "SHUTDOWN tomorrow",
        "SET",
        "SET stats_period",
        "SET stats_period 10",
        "SET stats_period = 1 2",
        "SET stats_period = 1.5",
        "SET 'stats_period' = 1",
        "PAUSE 'shop'",
        "PAUSE \"shop",
        "PAUSE my-db",
        "PAUSE /* shop",
        "BEGIN; COMMIT",
        "COMMIT AND CHAIN",
        "ROLLBACK TO SAVEPOINT a",
        "DEALLOCATE",
        "HELP",
        &format!("BEGIN{}", " READ".repeat(30)),
    ] {
        assert_eq!(error(text), format!("invalid command '{text}', use SHOW HELP;"));
    }
}

#[test]
fn what_cannot_be_done_is_refused_at_once() {
    for (text, message) in [
        ("DISABLE", "a database is required"),
        ("ENABLE", "a database is required"),
        ("PAUSE pgbouncer", "cannot pause admin db: pgbouncer"),
        ("KILL pgbouncer", "cannot kill admin db: pgbouncer"),
        ("RECONNECT pgbouncer", "cannot reconnect admin db: pgbouncer"),
        ("WAIT_CLOSE pgbouncer", "cannot wait in admin db: pgbouncer"),
        ("DISABLE pgbouncer", "cannot disable admin db: pgbouncer"),
        ("ENABLE pgbouncer", "cannot enable admin db: pgbouncer"),
        ("RESUME pgbouncer", "database pgbouncer is not paused"),
        ("KILL_CLIENT", "invalid client pointer supplied"),
        ("KILL_CLIENT abc", "invalid client pointer supplied"),
        ("KILL_CLIENT 18446744073709551616", "invalid client pointer supplied"),
        ("ABCDEFGHIJKLMNOP", "bad arguments"),
        (&format!("PAUSE {}", "x".repeat(64)), "bad arguments"),
        (&format!("SET a = '{}'", "x".repeat(256)), "bad arguments"),
        (&format!("SET {} = 1", "x".repeat(64)), "bad arguments"),
        ("SET \"\" = 1", "bad arguments"),
    ] {
        assert_eq!(error(text), message, "{text}");
    }
    assert!(ran(&format!("PAUSE {}", "x".repeat(63))).is_some());
    assert!(ran(&format!("SET a = '{}'", "x".repeat(255))).is_some());
}

#[test]
fn commands_are_answered_with_their_names() {
    for (text, tag) in [
        ("PAUSE", "C PAUSE"),
        ("RESUME", "C RESUME"),
        ("SUSPEND", "C SUSPEND"),
        ("DISABLE a", "C DISABLE"),
        ("ENABLE a", "C ENABLE"),
        ("RECONNECT", "C RECONNECT"),
        ("KILL", "C KILL"),
        ("KILL_CLIENT 1", "C KILL_CLIENT"),
        ("RELOAD", "C RELOAD"),
        ("SHUTDOWN WAIT_FOR_CLIENTS", "C SHUTDOWN"),
        ("WAIT_CLOSE", "C WAIT_CLOSE"),
        ("SET stats_period TO '10'", "C SET stats_period=10"),
    ] {
        assert_eq!(Talk::new(Role::Admin).query(text), [tag, "Z I"]);
    }
}

#[test]
fn what_the_worker_says_reaches_the_client() {
    let mut console = Console::new(Role::Admin);
    let mut answer = |answer: Answer<'_>| {
        let mut out = Vec::new();
        let next = console.message(b'Q', &string("PAUSE shop"), &mut out);
        assert_eq!(next, Next::Run(Command::Pause(some("shop"))));
        assert_eq!(console.awaits(), Some(&Command::Pause(some("shop"))));
        assert!(out.is_empty());
        console.answer(&answer, &mut out);
        assert_eq!(console.awaits(), None);
        out.escape_ascii().to_string().replace("\\x00", " ")
    };
    let heard = answer(Answer::Refused(Refusal::NoSuchDatabase("shop".into())));
    assert!(heard.contains("SERROR C08P01 Mno such database: shop "), "{heard}");
    let heard = answer(Answer::Refused(Refusal::ReloadFailed));
    assert!(heard.contains("CF0000 MRELOAD failed, see logs for additional details"), "{heard}");
    let heard = answer(Answer::DoneBut("well"));
    assert!(heard.contains("SNOTICE C00000 Mwell") && heard.contains("PAUSE"), "{heard}");
}

#[test]
fn refusals_read_as_pgbouncers() {
    let shop = || "shop".to_owned();
    for (refusal, text) in [
        (Refusal::SetFailed, "SET failed"),
        (Refusal::DatabaseNotPaused(shop()), "database shop is not paused"),
        (Refusal::NotPaused, "pooler is not paused/suspended"),
        (Refusal::AlreadyPaused, "already suspended/paused"),
        (Refusal::ClientNotFound, "client not found"),
        (Refusal::ShuttingDown, "pooler is shutting down"),
        (Refusal::SuspendWithPaused, "cannot suspend with paused databases"),
    ] {
        assert_eq!((refusal.to_string().as_str(), refusal.code()), (text, "08P01"));
    }
}

#[test]
fn a_long_nonsense_is_not_repeated_in_full() {
    let said = "é".repeat(100_000);
    let heard = Talk::new(Role::Stats).query(&said);
    assert!(heard[0].len() < 1_000 && heard[0].contains("éé"), "{}", heard[0].len());
}

#[test]
fn drivers_habits_are_answered() {
    let mut talk = Talk::new(Role::Stats);
    let notice = "N SNOTICE C00000 MSET ignored";
    assert_eq!(talk.query("SET DateStyle TO 'ISO'"), [notice, "C SET", "Z I"]);
    assert_eq!(talk.query("SET extra_float_digits = 3"), [notice, "C SET", "Z I"]);
    for (name, value) in [
        ("client_encoding", "UTF-8"),
        ("default_transaction_isolation", "read committed"),
        ("standard_conforming_strings", "on"),
        ("datestyle", "ISO"),
        ("timezone", "GMT"),
        ("transaction_read_only", "off"),
    ] {
        let heard = talk.query(&format!("SHOW {}", name.to_uppercase()));
        assert_eq!(heard, [&format!("T {name}:25/-1/0"), &format!("D {value}"), "C SHOW", "Z I"]);
    }
    assert_eq!(talk.query("DISCARD ALL"), ["C DISCARD ALL", "Z I"]);
    assert_eq!(talk.query("UNLISTEN *;"), ["C UNLISTEN", "Z I"]);
    assert!(talk.ran.is_empty());
}

/// lib/pq looks whether BEGIN began something, and hangs up if not.
#[test]
fn a_block_is_remembered() {
    let mut talk = Talk::new(Role::Stats);
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY";
    assert_eq!(talk.query(begin), ["C BEGIN", "Z T"]);
    assert_eq!(talk.query("SHOW VERSION").last().map(String::as_str), Some("Z T"));
    assert_eq!(talk.query("nonsense").last().map(String::as_str), Some("Z T"));
    assert_eq!(talk.query("ROLLBACK"), ["C ROLLBACK", "Z I"]);
    assert_eq!(talk.query("START TRANSACTION"), ["C START TRANSACTION", "Z T"]);
    assert_eq!(talk.query("END"), ["C COMMIT", "Z I"]);
}

#[test]
fn nothing_is_an_empty_query() {
    for text in ["", " ", ";", "-- ping", "/* */ ; -- "] {
        assert_eq!(Talk::new(Role::Stats).query(text), ["I", "Z I"], "{text}");
    }
}

#[test]
fn help_is_a_notice_with_the_commands_in_its_detail() {
    let heard = Talk::new(Role::Stats).query("SHOW HELP");
    assert!(heard[0].starts_with("N SNOTICE C00000 MConsole usage D\n\tSHOW "), "{heard:?}");
    assert!(heard[0].contains("\n\tKILL_CLIENT id\n\t"), "{heard:?}");
    assert_eq!(heard[1..], ["C SHOW", "Z I"]);
}

#[test]
fn terminate_and_what_does_not_belong_here_end_the_conversation() {
    let mut console = Console::new(Role::Admin);
    let mut out = Vec::new();
    assert_eq!(console.message(b'X', b"", &mut out), Next::Close);
    assert!(out.is_empty());
    assert_eq!(console.message(b'F', b"", &mut out), Next::Close);
    assert!(out.starts_with(b"E"));
}

#[test]
fn the_log_says_what_was_ordered() {
    let issued = |command: Command| command.issued();
    assert_eq!(issued(Command::Pause(None)), some("PAUSE command issued"));
    assert_eq!(issued(Command::Kill(some("shop"))), some("KILL 'shop' command issued"));
    assert_eq!(issued(Command::Show(View::Pools)), None);
}
