//! The extended protocol, as drivers speak it.

use admin::{ConfigRow, DnsZoneFacts, Facts, Role, StatsFacts};
use metrics::{Counters, History};

use crate::talk::{Talk, string};

const STATE: [&str; 3] = ["D active|yes", "D paused|no", "D suspended|no"];

/// Parse, Bind, Describe, Execute, Sync in one go, with the unnamed ones: pgjdbc, psycopg, node-pg.
#[test]
fn a_view_all_at_once() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("", "SHOW STATE").bind("", "", &[]).describe(b'P', "").execute("", 0);
    let heard = talk.sync();
    assert_eq!(heard[..3], ["1", "2", "T key:25/-1/0 value:25/-1/0"]);
    assert_eq!(heard[3..6], STATE);
    assert_eq!(heard[6..], ["C SHOW", "Z I"]);
}

/// Prepared and described under a name first, executed later, and closed: asyncpg, pgx.
#[test]
fn a_view_in_two_steps() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("s1", "show version").describe(b'S', "s1");
    assert_eq!(talk.sync(), ["1", "t \\x00\\x00", "T version:25/-1/0", "Z I"]);
    for _ in 0..2 {
        talk.bind("", "s1", &[1]).execute("", 0);
        assert_eq!(talk.sync(), ["2", "D PgBouncer 1.25.2", "C SHOW", "Z I"]);
    }
    assert_eq!(talk.close(b'S', "s1").sync(), ["3", "Z I"]);
    let heard = talk.bind("", "s1", &[]).sync();
    assert_eq!(heard, ["E SERROR C26000 Mprepared statement \"s1\" does not exist", "Z I"]);
}

#[test]
fn a_command_has_no_rows() {
    let mut talk = Talk::new(Role::Admin);
    talk.parse("", "PAUSE shop").describe(b'S', "").bind("p", "", &[]).describe(b'P', "p");
    let heard = talk.execute("p", 0).sync();
    assert_eq!(heard, ["1", "t \\x00\\x00", "n", "2", "n", "C PAUSE", "Z I"]);
    assert_eq!(talk.ran.len(), 1);
}

/// What only the console itself knows goes the same way.
#[test]
fn habits_and_nothing_at_all() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("", "SET timezone = 'UTC'").bind("", "", &[]).execute("", 1);
    assert_eq!(talk.sync(), ["1", "2", "N SNOTICE C00000 MSET ignored", "C SET", "Z I"]);
    talk.parse("", "SHOW datestyle").bind("", "", &[]).describe(b'P', "").execute("", 0);
    assert_eq!(talk.sync(), ["1", "2", "T datestyle:25/-1/0", "D ISO", "C SHOW", "Z I"]);
    talk.parse("", "").bind("", "", &[]).describe(b'P', "").execute("", 0);
    assert_eq!(talk.sync(), ["1", "2", "n", "I", "Z I"]);
    talk.parse("", "BEGIN").bind("", "", &[]).execute("", 0);
    assert_eq!(talk.sync(), ["1", "2", "C BEGIN", "Z T"]);
    talk.parse("", "CLOSE ALL").bind("", "", &[]).execute("", 0);
    assert_eq!(talk.sync(), ["1", "2", "C CLOSE CURSOR ALL", "Z T"]);
    talk.parse("", "SHOW HELP").bind("", "", &[]).describe(b'P', "").execute("", 0);
    let heard = talk.sync();
    assert!(heard[3].starts_with("N SNOTICE"), "{heard:?}");
    assert_eq!(heard[4..], ["C SHOW", "Z T"]);
}

#[test]
fn integers_and_numerics_come_in_binary_where_asked_for() {
    let mut talk = Talk::new(Role::Stats);
    talk.facts.dns_zones.insert("local".into(), DnsZoneFacts { serial: 258, count: 7 });
    talk.parse("", "SHOW DNS_ZONES").bind("", "", &[0, 1, 1]).describe(b'P', "").execute("", 0);
    let heard = talk.sync();
    assert_eq!(heard[2], "T zonename:25/-1/0 serial:20/8/1 count:23/4/1");
    let serial = "\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02";
    assert_eq!(heard[3], format!("D local|{serial}|\\x00\\x00\\x00\\x07"));

    let total = Counters { server_assignment_count: 10_002, ..Counters::default() };
    talk.facts.stats.insert("shop".into(), StatsFacts { total, history: History::default() });
    talk.parse("", "SHOW STATS_TOTALS").bind("", "", &[1]).execute("", 0);
    let heard = talk.sync();
    let zero = ["\\x00"; 8].concat();
    let count = "\\x00\\x02\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x01\\x00\\x02";
    assert_eq!(heard[2], format!("D shop|{count}{}", format!("|{zero}").repeat(11)));
}

/// pgjdbc with a fetch size: in a block, its portal lives on.
#[test]
fn rows_come_in_portions() {
    let mut talk = Talk::new(Role::Stats);
    talk.query("BEGIN");
    talk.parse("", "SHOW STATE").bind("c", "", &[]).execute("c", 2);
    assert_eq!(talk.sync(), ["1", "2", STATE[0], STATE[1], "s", "Z T"]);
    assert_eq!(talk.execute("c", 2).sync(), [STATE[2], "C SHOW", "Z T"]);
    assert_eq!(talk.execute("c", 2).sync(), ["C SHOW", "Z T"]);
    assert_eq!(talk.query("COMMIT"), ["C COMMIT", "Z I"]);
    let heard = talk.execute("c", 2).sync();
    assert_eq!(heard, ["E SERROR C34000 Mportal \"c\" does not exist", "Z I"]);
}

/// As in PostgreSQL, a limit just reached does not tell that it is the end.
#[test]
fn a_limit_of_all_rows_suspends_once_more() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("", "SHOW STATE").bind("", "", &[]).execute("", 3).execute("", -1);
    assert_eq!(talk.sync()[2..], [STATE[0], STATE[1], STATE[2], "s", "C SHOW", "Z I"]);
}

/// A portal shows what was when it was first executed.
#[test]
fn portions_do_not_mix_two_answers() {
    let row = |key| ConfigRow { key, value: None, default: None, changeable: true };
    let mut talk = Talk::new(Role::Stats);
    talk.facts = Facts { config: vec![row("a"), row("b")], ..Facts::default() };
    talk.parse("", "SHOW CONFIG").bind("", "", &[]).execute("", 1);
    talk.facts = Facts { config: vec![row("c"), row("d")], ..Facts::default() };
    let heard = talk.execute("", 0).sync();
    assert_eq!(heard[2..], ["D a|NULL|NULL|yes", "s", "D b|NULL|NULL|yes", "C SHOW", "Z I"]);
    assert_eq!(talk.ran.len(), 1);
}

#[test]
fn without_a_block_portals_end_at_sync() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("", "SHOW STATE").bind("c", "", &[]).sync();
    assert_eq!(talk.execute("c", 0).sync()[0], "E SERROR C34000 Mportal \"c\" does not exist");
}

/// What was sent believing that all goes well must not be done, not even a simple query.
#[test]
fn after_an_error_everything_waits_for_sync() {
    let mut talk = Talk::new(Role::Admin);
    talk.parse("", "nonsense").bind("", "", &[]).execute("", 0);
    talk.parse("", "KILL").bind("", "", &[]).execute("", 0).say(b'Q', &string("KILL"));
    let heard = talk.sync();
    assert_eq!(heard, ["E SERROR C08P01 Minvalid command 'nonsense', use SHOW HELP;", "Z I"]);
    assert!(talk.ran.is_empty());
    assert_eq!(talk.query("KILL"), ["C KILL", "Z I"]);
}

#[test]
fn a_command_is_done_once_for_each_bind() {
    let mut talk = Talk::new(Role::Admin);
    let heard = talk.parse("", "RELOAD").bind("p", "", &[]).execute("p", 0).execute("p", 0).sync();
    let error = "E SERROR C55000 Mportal \"p\" cannot be run";
    assert_eq!(heard, ["1", "2", "C RELOAD", error, "Z I"]);
    assert_eq!(talk.ran.len(), 1);
}

#[test]
fn names_in_use_and_names_that_are_not() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("s", "SHOW STATE").sync();
    let heard = talk.parse("s", "SHOW STATE").sync();
    assert_eq!(heard, ["E SERROR C42P05 Mprepared statement \"s\" already exists", "Z I"]);
    let heard = talk.bind("p", "s", &[]).bind("p", "s", &[]).sync();
    assert_eq!(heard, ["2", "E SERROR C42P03 Mcursor \"p\" already exists", "Z I"]);
    assert_eq!(talk.bind("", "s", &[]).bind("", "s", &[]).sync(), ["2", "2", "Z I"]);
    assert_eq!(talk.describe(b'S', "x").sync()[0][..16], *"E SERROR C26000 ");
    assert_eq!(talk.describe(b'P', "x").sync()[0][..16], *"E SERROR C34000 ");
    // Closing what is not there is no error, and the two kinds do not know each other.
    assert_eq!(talk.close(b'S', "x").close(b'P', "s").sync(), ["3", "3", "Z I"]);
    assert_eq!(talk.describe(b'S', "s").sync()[0], "t \\x00\\x00");
}

#[test]
fn deallocate_drops_the_names() {
    let mut talk = Talk::new(Role::Stats);
    for text in ["DEALLOCATE s", "DEALLOCATE PREPARE s", "DEALLOCATE ALL", "DISCARD ALL"] {
        talk.parse("s", "SHOW STATE").sync();
        assert_eq!(talk.query(text)[0][..2], *"C ");
        assert_eq!(talk.describe(b'S', "s").sync()[0][..16], *"E SERROR C26000 ", "{text}");
    }
    assert_eq!(talk.query("DEALLOCATE s")[0][..16], *"E SERROR C26000 ");
}

#[test]
fn there_are_no_parameters() {
    let mut talk = Talk::new(Role::Admin);
    let error = "E SERROR C0A000 Mthe admin console takes no parameters";
    assert_eq!(talk.parse("", "KILL_CLIENT $1").sync(), [error, "Z I"]);
    talk.parse("", "SHOW STATE");
    // One parameter, which is NULL.
    let body = [string(""), string(""), vec![0, 0, 0, 1, 255, 255, 255, 255, 0, 0]].concat();
    let heard = talk.say(b'B', &body).sync();
    assert_eq!(heard[1][..16], *"E SERROR C08P01 ", "{heard:?}");
}

#[test]
fn formats_that_do_not_fit() {
    let mut talk = Talk::new(Role::Stats);
    talk.parse("s", "SHOW STATE").sync();
    let error = "E SERROR C08P01 Mbind message has 3 result formats but query has 2 columns";
    assert_eq!(talk.bind("", "s", &[0, 0, 0]).sync(), [error, "Z I"]);
    let error = "E SERROR C22023 Munsupported format code: 7";
    assert_eq!(talk.bind("", "s", &[7]).sync(), [error, "Z I"]);
    // A command has no columns; one format for all of none is fine.
    talk.parse("c", "COMMIT").bind("", "c", &[1]).execute("", 0);
    assert_eq!(talk.sync(), ["1", "2", "C COMMIT", "Z I"]);
}

/// A client that prepares for ever is stopped, and the names it has go on working.
#[test]
fn names_are_counted() {
    let mut talk = Talk::new(Role::Stats);
    let mut refused = 0;
    for at in 0..1_100 {
        let heard = talk.parse(&format!("s{at}"), "SHOW STATE").sync();
        refused += usize::from(heard[0] == "E SERROR C54000 Mtoo many prepared statements");
    }
    assert_eq!(refused, 100);
    let mut portals = 0;
    for at in 0..40 {
        talk.bind(&format!("p{at}"), "s0", &[]);
        portals += talk.heard().iter().filter(|line| *line == "2").count();
    }
    assert_eq!(portals, 32);
    talk.sync();
    let long = "x".repeat(256);
    assert_eq!(talk.parse(&long, "SHOW STATE").sync()[0], "E SERROR C54000 Mname too long");
}

/// As in PostgreSQL: who mixes both protocols keeps only what has a name.
#[test]
fn a_simple_query_ends_the_unnamed_ones() {
    let mut talk = Talk::new(Role::Stats);
    talk.query("BEGIN");
    talk.parse("", "SHOW STATE").parse("s", "SHOW STATE").bind("", "", &[]).bind("p", "s", &[]);
    talk.sync();
    talk.query("SHOW VERSION");
    assert_eq!(talk.describe(b'S', "").sync()[0][..16], *"E SERROR C26000 ");
    assert_eq!(talk.describe(b'P', "").sync()[0][..16], *"E SERROR C34000 ");
    assert_eq!(talk.describe(b'S', "s").sync()[0], "t \\x00\\x00");
    assert_eq!(talk.describe(b'P', "p").sync()[0], "T key:25/-1/0 value:25/-1/0");
}
