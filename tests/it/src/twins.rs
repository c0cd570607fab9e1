//! Twins: a client of the pooler and a client of PostgreSQL who live the same random life, statement by statement, and
//! compare what they hear. Others do the same beside them on the same few servers.
//!
//! What must differ is masked, as the [`oracle`](crate::oracle) does it; notifications are compared by themselves, as they may
//! come at any time between transactions.

mod rare;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::login::Login;
use crate::oracle::mask;
use crate::raw::{Heard, PATIENCE, Raw};
use crate::reply::{Message, Reply};
use crate::say;
use crate::world::Dice;

/// What both databases hold before anybody comes; once for each pair there is [`own`] as well.
pub const FURNITURE: &str = "\
CREATE FUNCTION put(name text, value text, here boolean) RETURNS text LANGUAGE plpgsql AS \
 $$ BEGIN RETURN set_config(name, value, here); END $$;
CREATE FUNCTION got(name text) RETURNS text LANGUAGE sql STABLE AS \
 $$ SELECT coalesce(current_setting(name, true), '') $$;
CREATE FUNCTION inside() RETURNS text LANGUAGE plpgsql SET work_mem = '77MB' AS \
 $$ BEGIN RETURN current_setting('work_mem'); END $$;
CREATE FUNCTION makes_temporary() RETURNS void LANGUAGE plpgsql AS \
 $$ BEGIN CREATE TEMPORARY TABLE IF NOT EXISTS made (i int); INSERT INTO made VALUES (1); END $$;
CREATE FUNCTION fails_after(name text, value text) RETURNS void LANGUAGE plpgsql AS \
 $$ BEGIN PERFORM set_config(name, value, false); RAISE EXCEPTION 'as asked'; END $$;
CREATE PROCEDURE commits(name text, value text) LANGUAGE plpgsql AS \
 $$ BEGIN PERFORM set_config(name, value, false); COMMIT; PERFORM set_config(name, value || '0', false); ROLLBACK; END $$;
CREATE SCHEMA one; CREATE SCHEMA two;
CREATE TABLE one.place AS SELECT 'one' AS name; CREATE TABLE two.place AS SELECT 'two'::varchar(9) AS name;
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
 $$ BEGIN PERFORM set_config('work_mem', '33MB', false); RETURN new; END $$;
CREATE TABLE one.deed (i int); CREATE TABLE two.deed (i int);
CREATE TRIGGER fires BEFORE INSERT ON two.deed FOR EACH ROW EXECUTE FUNCTION fires();
CREATE FUNCTION be(name text) RETURNS void LANGUAGE plpgsql AS \
 $$ BEGIN PERFORM set_config('app.who', name, false); END $$;
CREATE FUNCTION who() RETURNS text LANGUAGE sql AS \
 $$ SELECT coalesce(nullif(current_setting('app.who', true), ''), 'nobody') $$;
CREATE FUNCTION seldom() RETURNS trigger LANGUAGE plpgsql AS \
 $$ BEGIN IF new.i > 2 THEN PERFORM public.be('deed ' || new.i); END IF; \
 IF new.i = 7 THEN SET work_mem = '34MB'; END IF; RETURN new; END $$;
CREATE TRIGGER seldom BEFORE INSERT ON one.deed FOR EACH ROW EXECUTE FUNCTION seldom();
SET check_function_bodies = off;
CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql AS 'SELECT 2 * i';
CREATE FUNCTION brief(name text) RETURNS text LANGUAGE plpgsql AS \
 $$ BEGIN SET LOCAL work_mem = '35MB'; PERFORM set_config('search_path', name, true); RETURN name; END $$;
CREATE FUNCTION deeds(j int) RETURNS bigint LANGUAGE sql AS \
 $$ INSERT INTO deed VALUES (j); SELECT public.twice(count(*)::int)::bigint FROM deed WHERE i < 0 $$;
CREATE FUNCTION named() RETURNS text LANGUAGE sql AS 'SELECT name::text FROM place';
RESET check_function_bodies;
CREATE OPERATOR <=> (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int);
GRANT ALL ON SCHEMA public, one, two TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA one, two TO PUBLIC;
";

/// The same for another database: there the same words mean other things.
#[must_use]
pub fn other_furniture() -> String {
    FURNITURE.replace("two.", "three.").replace("one.", "two.").replace("three.", "one.")
}

/// Roles that every twin may be.
pub const ROLES: &str = "\
DO $$ BEGIN
 IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'twin_a') THEN
  CREATE ROLE twin_a; CREATE ROLE \"twin \"\"B\"; GRANT twin_a, \"twin \"\"B\" TO app;
 END IF;
END $$";

/// What one pair has to itself.
#[must_use]
pub fn own(me: usize) -> String {
    format!(
        "CREATE TABLE own_{me} (i int, t text); CREATE SEQUENCE seq_{me}; \
         ALTER TABLE own_{me} OWNER TO app; GRANT ALL ON own_{me}, seq_{me} TO PUBLIC;"
    )
}

/// Settings, with values that work; a value begins with ' where it is a string.
const SETTINGS: &[(&str, &[&str])] = &[
    ("work_mem", &["'3MB'", "5000", "'64kB'"]),
    ("statement_timeout", &["'1h'", "7200000", "0"]),
    ("lock_timeout", &["'2min'", "0", "'90s'"]),
    (
        "search_path",
        &[
            "one",
            "two",
            "two, one, public",
            "''",
            "'$user', public",
            "'a,b', one",
            "\"we\"\"ird\", two",
        ],
    ),
    ("DateStyle", &["ISO", "German", "'SQL, DMY'", "'Postgres, MDY'"]),
    ("IntervalStyle", &["postgres", "iso_8601", "sql_standard"]),
    ("TimeZone", &["UTC", "'Europe/Zurich'", "'-03:30'", "'America/New_York'"]),
    ("extra_float_digits", &["0", "3", "-4"]),
    ("bytea_output", &["escape", "hex"]),
    ("enable_seqscan", &["off", "on", "true", "0"]),
    ("default_transaction_isolation", &["'repeatable read'", "'read committed'"]),
    ("default_transaction_read_only", &["on", "off"]),
    ("client_min_messages", &["warning", "notice", "error"]),
    ("standard_conforming_strings", &["on", "off"]),
    ("escape_string_warning", &["off", "on"]),
    ("backslash_quote", &["on", "safe_encoding"]),
    ("application_name", &["'one'", "'it''s'", "''", "'ann \\ bob'"]),
    ("client_encoding", &["UTF8", "LATIN1"]),
    ("lc_numeric", &["'C'"]),
    ("geqo_seed", &["0.25", "0.125"]),
    ("random_page_cost", &["1.1", "3"]),
    ("xmloption", &["document", "content"]),
    // Not quote_all_identifiers: functions that a process compiled earlier keep their names as they were.
    ("row_security", &["on", "off"]),
    ("local_preload_libraries", &["'x'"]),
    ("work_memory", &["1"]),
    ("max_connections", &["5"]),
    ("log_statement", &["'none'"]),
];

/// Custom settings and values that are hard to quote.
const CUSTOM: &[&str] = &["app.x", "app.tenant", "My.Name", "a.b.c"];
const HARD: &[&str] = &[
    "plain",
    "it's",
    "",
    "a\\b",
    "x'; SET work_mem TO 1; --",
    "\"quoted\"",
    "ü→€",
    "a, b",
    "$$x$$",
    "E'\\n'",
    " ",
];

/// What shows how a session is set.
const LOOKS: &[&str] = &[
    "SELECT timestamptz '2021-02-03 04:05:06+00', interval '1 day 2 hours -3 minutes', 0.1::float8 + 0.2, '\\x00ff'::bytea",
    "SELECT current_user, session_user, current_schema, current_schemas(false)",
    "SELECT name FROM place",
    "SELECT name, setting FROM pg_settings WHERE name IN ('work_mem', 'statement_timeout', 'search_path', 'DateStyle', 'role', \
     'enable_seqscan', 'default_transaction_isolation', 'default_transaction_read_only', 'geqo_seed', 'lock_timeout', \
     'bytea_output', 'application_name', 'TimeZone', 'transaction_isolation', 'transaction_read_only', 'row_security') ORDER BY 1",
    "SELECT 'a\\b' AS back, E'c\\\\d' AS slash",
    "SELECT to_char(1234.5, '9G999D9'), 'é' < 'f'",
    "SELECT count(*), max(i) FROM own",
    "SHOW search_path",
    "SHOW \"TimeZone\"",
    "SHOW transaction_read_only",
    "SHOW role",
    "SELECT current_setting('work_mem'), current_setting('nosuch', true)",
    "SELECT 1/0",
    "SELECT nonsense",
    "",
    "SELECT inside()",
    "SELECT * FROM own ORDER BY i, t LIMIT 3",
    "SELECT pg_advisory_unlock(4711)",
    "EXPLAIN (COSTS OFF) SELECT i FROM own ORDER BY i",
];

/// Statements for a name of the protocol or of SQL, with how many parameters they take.
const PREPARED: &[(&str, usize)] = &[
    ("SELECT name FROM place", 0),
    ("SELECT $1::text || current_setting('work_mem')", 1),
    ("SELECT $1::int + $2::int", 2),
    ("INSERT INTO own VALUES ($1::int, 'prepared')", 1),
    ("SELECT count(*) FROM own WHERE i > $1::int", 1),
    ("SELECT current_user, $1::text", 1),
    ("SELECT set_config('work_mem', $1, false)", 1),
    ("SELECT set_config($1, $2, false)", 2),
    ("SELECT nonsense", 0),
    ("SET enable_seqscan = off", 0),
    ("BEGIN", 0),
    ("COMMIT", 0),
    ("SELECT 10 / ($1::int - 3)", 1),
    ("INSERT INTO deed VALUES ($1)", 1),
];

/// One subject of the life.
struct Topic {
    name: &'static str,
    weight: usize,
    act: fn(&mut Life) -> Act,
}

const TOPICS: &[Topic] = &[
    Topic { name: "looks", weight: 14, act: look },
    Topic { name: "settings", weight: 14, act: set },
    Topic { name: "roles", weight: 3, act: role },
    Topic { name: "custom", weight: 5, act: custom },
    Topic { name: "functions", weight: 4, act: function },
    Topic { name: "transactions", weight: 14, act: transaction },
    Topic { name: "data", weight: 8, act: data },
    Topic { name: "protocol", weight: 10, act: protocol_statement },
    Topic { name: "prepare", weight: 5, act: sql_statement },
    Topic { name: "crossing", weight: 2, act: crossing },
    Topic { name: "temporary", weight: 5, act: temporary },
    Topic { name: "cursors", weight: 4, act: cursor },
    Topic { name: "locks", weight: 3, act: lock },
    Topic { name: "sequences", weight: 3, act: sequence },
    Topic { name: "channels", weight: 3, act: channel },
    Topic { name: "discards", weight: 2, act: discard },
    Topic { name: "copying", weight: 2, act: copy },
    Topic { name: "several", weight: 4, act: several },
    Topic { name: "pipelines", weight: 5, act: pipeline },
    Topic { name: "batches", weight: 4, act: batch },
    Topic { name: "disguises", weight: 4, act: rare::disguise },
    Topic { name: "changes", weight: 2, act: rare::change },
    Topic { name: "standing", weight: 3, act: rare::standing },
    Topic { name: "portals", weight: 3, act: rare::portal },
    Topic { name: "calls", weight: 1, act: rare::call },
    Topic { name: "lengths", weight: 1, act: rare::length },
    Topic { name: "large objects", weight: 1, act: rare::large_object },
    Topic { name: "dice", weight: 1, act: rare::seed },
    Topic { name: "copying by messages", weight: 1, act: rare::copy },
    Topic { name: "medleys", weight: 4, act: rare::medley },
];

/// What is said before anything is heard, and how many ReadyForQuery answer it.
struct Act {
    what: String,
    bytes: Vec<u8>,
    readies: usize,
}

impl Act {
    fn query(sql: &str) -> Self {
        Self { what: sql.to_owned(), bytes: say::query(sql), readies: 1 }
    }

    fn then(mut self, next: &Self) -> Self {
        let _infallible = write!(self.what, " | {}", next.what);
        self.bytes.extend_from_slice(&next.bytes);
        self.readies += next.readies;
        self
    }
}

/// A pair in the middle of its life.
pub struct Life {
    dice: Dice,
    me: usize,
    direct: Raw,
    pooled: Raw,
    /// As the last ReadyForQuery of the direct one said.
    status: char,
    story: VecDeque<String>,
    statements: u64,
    noted: [Vec<Vec<u8>>; 2],
    topics: Vec<&'static Topic>,
    /// What the startup packet asked for: a RESET of it within a transaction is a known difference.
    asked: Option<&'static str>,
    /// Something is said before the answer to what was said last.
    hurries: bool,
}

/// Where a life is lived: the ways in to both, and what it is about.
pub struct Place {
    pub direct: Login,
    pub pooled: Login,
    /// Subjects to leave out.
    pub without: Vec<String>,
}

impl Life {
    /// # Panics
    /// When one of the two cannot enter.
    #[must_use]
    pub fn begin(place: &Place, me: usize, seed: u64) -> Self {
        let mut dice = Dice::from(seed);
        let mut logins = [place.direct.clone(), place.pooled.clone()];
        let asked = [
            None,
            None,
            Some(("work_mem", "9MB")),
            Some(("search_path", "two")),
            Some(("options", "-c geqo_seed=0.5")),
        ];
        let asked = *dice.pick(&asked);
        if let Some((name, value)) = asked {
            logins = logins.map(|login| login.parameter(name, value));
        }
        let [direct, pooled] = logins.map(|login| login.enter());
        let topics = TOPICS
            .iter()
            .filter(|topic| !place.without.iter().any(|name| name == topic.name))
            .flat_map(|topic| std::iter::repeat_n(topic, topic.weight))
            .collect();
        let asked = asked.map(|(name, _)| if name == "options" { "geqo_seed" } else { name });
        Self {
            dice,
            me,
            direct,
            pooled,
            status: 'I',
            story: VecDeque::from([format!("seed {seed}, asked for {asked:?}")]),
            statements: 0,
            noted: [Vec::new(), Vec::new()],
            topics,
            asked,
            hurries: false,
        }
    }

    /// Lives for so many statements, and leaves. How many there were.
    ///
    /// # Panics
    /// At the first difference, with the story that led to it.
    pub fn live(mut self, statements: u64) -> u64 {
        while self.statements < statements {
            let topic = *self.dice.pick(&self.topics);
            let act = (topic.act)(&mut self);
            self.act(&act);
        }
        if self.status != 'I' {
            self.act(&Act::query("ROLLBACK"));
        }
        self.act(&Act::query("SELECT 'the end'"));
        let deadline = Instant::now() + PATIENCE;
        while self.noted[1].len() < self.noted[0].len() && Instant::now() < deadline {
            self.take_notes(Duration::from_millis(20));
        }
        assert!(
            self.noted[0] == self.noted[1],
            "other notifications after {:#?}: {:?}",
            self.story,
            self.noted
        );
        self.statements
    }

    fn take_notes(&mut self, patience: Duration) {
        if let Heard::Message(message) = self.pooled.hear(patience) {
            assert_eq!(message.tag, b'A', "after {:#?} unasked {message:?}", self.story);
            self.noted[1].push(message.body[4..].to_vec());
        }
    }

    fn act(&mut self, act: &Act) {
        self.statements += act.readies as u64;
        self.story.push_back(format!("{} {}", self.status, act.what));
        if self.story.len() > 400 {
            self.story.remove(1);
        }
        self.direct.send(&act.bytes);
        let expected = self.direct.until_readies(act.readies);
        if self.one_in(8) {
            self.pooled.send_torn(&act.bytes, &mut self.dice);
        } else {
            self.pooled.send(&act.bytes);
        }
        let mut heard = Reply::default();
        let mut left = act.readies;
        while left > 0 {
            match self.pooled.hear(PATIENCE) {
                Heard::Message(message) => {
                    left -= usize::from(message.tag == b'Z');
                    heard.0.push(message);
                }
                other => panic!(
                    "after {:#?} {other:?} instead of an answer like {expected:?}, with {heard:?}",
                    self.story
                ),
            }
        }
        self.status = expected.status().unwrap_or('I');
        let [expected, heard] =
            [(0, expected), (1, heard)].map(|(at, reply)| self.keep_notes(at, reply));
        assert!(
            heard == expected,
            "after {:#?}\nPostgreSQL said {}: {expected:#?}\nthe pooler said {}: {heard:#?}",
            self.story,
            expected.tags(),
            heard.tags()
        );
    }

    /// Notifications apart; the rest masked.
    fn keep_notes(&mut self, at: usize, reply: Reply) -> Reply {
        let (notes, rest): (Vec<Message>, Vec<Message>) =
            reply.0.into_iter().partition(|message| message.tag == b'A');
        self.noted[at].extend(notes.into_iter().map(|note| note.body[4..].to_vec()));
        let mut reply = mask(Reply(rest));
        // The pooler says it in PostgreSQL's words, but not in which line of its source.
        for message in reply.0.iter_mut().filter(|message| message.tag == b'E') {
            if message.fields().text() == "cached plan must not change result type" {
                let parts = message.body.split(|byte| *byte == 0);
                let told: Vec<&[u8]> = parts.filter(|part| !part.starts_with(b"L")).collect();
                message.body = told.join(&0);
            }
        }
        reply
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *self.dice.pick(from)
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.dice.below(many) == 0
    }

    /// Where a statement says `own`, this pair's table is meant.
    fn mine(&self, sql: &str) -> String {
        sql.replace("own", &format!("own_{}", self.me))
    }

    /// A text without parameters, by the simple or the extended protocol.
    fn say(&mut self, sql: &str) -> Act {
        let sql = self.mine(sql);
        match self.dice.below(4) {
            0 => Act {
                bytes: [say::extended(&sql, &[]), say::sync()].concat(),
                what: format!("extended: {sql}"),
                readies: 1,
            },
            1 => Act {
                bytes: [
                    say::parse("", &sql),
                    say::describe_statement(""),
                    say::sync(),
                    say::bind("", "", &[]),
                    say::execute("", 0),
                    say::sync(),
                ]
                .concat(),
                what: format!("parsed, then bound: {sql}"),
                readies: 2,
            },
            _ => Act::query(&sql),
        }
    }
}

fn look(life: &mut Life) -> Act {
    let sql = life.pick(LOOKS);
    life.say(sql)
}

fn set(life: &mut Life) -> Act {
    let (name, values) = life.pick(SETTINGS);
    let value = life.pick(values);
    let plain = value.trim_matches('\'').replace("''", "'").replace('\'', "''");
    let known = life.asked.is_some_and(|asked| asked == name);
    let safe = life.asked.is_none() || life.status == 'I' && !life.hurries;
    let sql = match life.dice.below(17) {
        0 => format!("SET {name} = {value}"),
        1 => format!("set session {name} to {value}"),
        2 => format!("SET LOCAL {name} TO {value}"),
        3 if safe || !known => format!("RESET {name}"),
        4 if safe || !known => format!("SET {name} TO DEFAULT"),
        5 if safe && life.one_in(3) => "RESET ALL".to_owned(),
        6 => format!("/* a comment */ SeT -- another\n {name} = {value};"),
        7 => format!("SELECT set_config('{name}', '{plain}', false)"),
        8 => format!("SELECT set_config('{name}', '{plain}', true)"),
        9 => format!("DO $$ BEGIN SET {name} = {value}; END $$"),
        10 => format!("DO $$ BEGIN PERFORM set_config('{name}', '{plain}', false); END $$"),
        11 => format!("SELECT put('{name}', '{plain}', false)"),
        12 => {
            let spelling = [
                "SET TIME ZONE 'Asia/Tokyo'",
                "SET TIME ZONE LOCAL",
                "SET TIME ZONE -7",
                "SET NAMES 'UTF8'",
                "SET NAMES 'LATIN1'",
            ];
            life.pick(&spelling).to_owned()
        }
        13 => {
            let spelling = [
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
                "SET TRANSACTION READ ONLY",
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            ];
            life.pick(&spelling).to_owned()
        }
        14 => {
            let plain = value.trim_matches('\'').replace("''", "'");
            let bytes = [
                say::extended(
                    "SELECT set_config($1, $2, $3::bool)",
                    &[name, &plain, life.pick(&["f", "t"])],
                ),
                say::sync(),
            ];
            return Act {
                what: format!("bound set_config of {name} to {plain}"),
                bytes: bytes.concat(),
                readies: 1,
            };
        }
        15 => format!("SHOW {name}"),
        _ => format!("SET {name} = {value}; SELECT 1"),
    };
    life.say(&sql)
}

fn role(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "SET ROLE twin_a",
        "SET ROLE \"twin \"\"B\"",
        "SET ROLE nobody_there",
        "SET LOCAL ROLE twin_a",
        "RESET ROLE",
        "SET ROLE NONE",
        "SET SESSION AUTHORIZATION DEFAULT",
        "SET SESSION AUTHORIZATION app2",
        "SELECT set_config('role', 'twin_a', false)",
        "SELECT current_user, session_user",
    ]);
    life.say(sql)
}

fn custom(life: &mut Life) -> Act {
    let (name, value) = (life.pick(CUSTOM), life.pick(HARD));
    let quoted = value.replace('\'', "''");
    let sql = match life.dice.below(6) {
        0 if !value.contains('\\') => format!("SET {name} = '{quoted}'"),
        1 if !value.contains('\\') => format!("SELECT set_config('{name}', '{quoted}', false)"),
        2 => format!("RESET {name}"),
        3 => {
            let bytes =
                [say::extended("SELECT set_config($1, $2, false)", &[name, value]), say::sync()];
            return Act {
                what: format!("bound {name} to {value}"),
                bytes: bytes.concat(),
                readies: 1,
            };
        }
        4 => format!("SELECT got('{name}')"),
        _ => format!("SELECT coalesce(current_setting('{name}', true), '')"),
    };
    life.say(&sql)
}

fn function(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "SELECT put('work_mem', '11MB', false), got('work_mem')",
        "SELECT put('work_mem', '12MB', true)",
        "SELECT inside(), got('work_mem')",
        "SELECT fails_after('work_mem', '13MB')",
        "CALL commits('geqo_seed', '0.3')",
        "SELECT put('app.x', 'from a function', false)",
        "SELECT be('ann')",
        "SELECT public.be('bob'), public.who()",
        "SELECT who()",
        "SELECT public.who()",
        "SELECT public.twice(1)",
        "SELECT public.twice(2)",
        "SELECT 1 WHERE public.twice(2) OPERATOR(public.<=>) 4",
        "SELECT public.named()",
        "SELECT public.named()",
        "SELECT public.brief('one'), public.named()",
        "SELECT public.deeds(1)",
        "SELECT public.deeds(2), public.twice(3)",
        "SELECT public.deeds(3)",
        "SELECT public.deeds(7)",
        "SELECT makes_temporary()",
        "SELECT count(*) FROM made",
        "DROP TABLE made",
        "DO $$ BEGIN BEGIN PERFORM set_config('work_mem', '14MB', false); RAISE 'no'; EXCEPTION WHEN OTHERS THEN NULL; END; END $$",
    ]);
    life.say(sql)
}

fn transaction(life: &mut Life) -> Act {
    let sql = if life.status == 'I' {
        life.pick(&[
            "BEGIN",
            "BEGIN",
            "START TRANSACTION READ ONLY",
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "begin /* work */ work",
            "COMMIT",
            "SAVEPOINT a",
            "BEGIN; SET work_mem = '21MB'; COMMIT",
            "BEGIN; SET work_mem = '22MB'; ROLLBACK",
        ])
    } else {
        life.pick(&[
            "COMMIT",
            "COMMIT",
            "END",
            "ROLLBACK",
            "ROLLBACK",
            "ABORT",
            "COMMIT AND CHAIN",
            "ROLLBACK AND CHAIN",
            "SAVEPOINT a",
            "SAVEPOINT b",
            "RELEASE a",
            "ROLLBACK TO a",
            "ROLLBACK TO SAVEPOINT b",
            "BEGIN",
        ])
    };
    life.say(sql)
}

fn data(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "INSERT INTO own VALUES (1, 'a'), (2, 'b') RETURNING i",
        "UPDATE own SET t = 'c' WHERE i = 1",
        "DELETE FROM own WHERE i = 2",
        "TRUNCATE own",
        "SELECT i, t FROM own ORDER BY i, t LIMIT 5",
        "SELECT generate_series(1, 20)",
        "WITH a AS (INSERT INTO own VALUES (7, current_setting('application_name')) RETURNING t) SELECT t FROM a",
        "INSERT INTO deed VALUES (1)",
        "INSERT INTO deed VALUES (3)",
        "INSERT INTO one.deed VALUES (7)",
        "INSERT INTO deed VALUES (1) RETURNING current_setting('work_mem')",
    ]);
    life.say(sql)
}

fn parameters(life: &mut Life, count: usize) -> Vec<&'static str> {
    let first = life.pick(&["3", "17", "work_mem", "nonsense", "geqo_seed"]);
    let second = life.pick(&["5", "8MB", "0.75"]);
    [first, second][..count].to_vec()
}

fn protocol_statement(life: &mut Life) -> Act {
    let name = life.pick(&["s1", "s2", "s3", ""]);
    let (text, count) = life.pick(PREPARED);
    let given = life.dice.below(3).min(2);
    let values = parameters(life, given);
    let text = life.mine(text);
    let (what, messages) = match life.dice.below(7) {
        0 => (format!("parse {name} as {text}"), vec![say::parse(name, &text)]),
        // In a failed transaction it is known of which types parameters are only where somebody had asked before.
        1 if life.status != 'E' && !life.hurries => {
            (format!("describe {name}"), vec![say::describe_statement(name)])
        }
        2 => (format!("close {name}"), vec![say::close_statement(name)]),
        3 => {
            let values = parameters(life, count);
            (
                format!("close, parse, bind, run {name} as {text} with {values:?}"),
                vec![
                    say::close_statement(name),
                    say::parse(name, &text),
                    say::bind("", name, &values),
                    say::describe_portal(""),
                    say::execute("", 0),
                ],
            )
        }
        _ => (
            format!("bind, run {name} with {values:?}"),
            vec![say::bind("", name, &values), say::describe_portal(""), say::execute("", 0)],
        ),
    };
    Act { what, bytes: [messages.concat(), say::sync()].concat(), readies: 1 }
}

fn sql_statement(life: &mut Life) -> Act {
    let name = life.pick(&["p1", "p2", "\"p 3\""]);
    let (text, count) = life.pick(PREPARED);
    let text = life.mine(text);
    let sql = match life.dice.below(6) {
        0 | 1 => format!("PREPARE {name} AS {text}"),
        2 => format!("DEALLOCATE {name}"),
        3 if life.one_in(4) => "DEALLOCATE ALL".to_owned(),
        _ if count == 0 => format!("EXECUTE {name}"),
        _ => {
            let values: Vec<String> =
                parameters(life, count).iter().map(|value| format!("'{value}'")).collect();
            format!("EXECUTE {name} ({})", values.join(", "))
        }
    };
    life.say(&sql)
}

/// SQL and protocol about the same names.
fn crossing(life: &mut Life) -> Act {
    match life.dice.below(6) {
        4 => life.say("SELECT name, from_sql FROM pg_prepared_statements ORDER BY 1"),
        5 => {
            let name = life.pick(&["s1", "s3", ""]);
            let look = "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql";
            let bytes = [
                say::close_statement(name),
                say::parse(name, look),
                say::bind("", name, &[]),
                say::execute("", 0),
                say::sync(),
            ];
            Act { what: format!("count by {name}"), bytes: bytes.concat(), readies: 1 }
        }
        0 => {
            let sql = life.pick(&[
                "EXECUTE s1",
                "EXECUTE s2 ('3')",
                "DEALLOCATE s1",
                "DEALLOCATE s3",
                "PREPARE s2 AS SELECT 1",
            ]);
            life.say(sql)
        }
        1 => Act {
            what: "bind, run p1".to_owned(),
            bytes: [say::bind("", "p1", &[]), say::execute("", 0), say::sync()].concat(),
            readies: 1,
        },
        2 => Act {
            what: "describe p2".to_owned(),
            bytes: [say::describe_statement("p2"), say::sync()].concat(),
            readies: 1,
        },
        _ => Act {
            what: "close p2".to_owned(),
            bytes: [say::close_statement("p2"), say::sync()].concat(),
            readies: 1,
        },
    }
}

fn temporary(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "CREATE TEMP TABLE t (i int)",
        "CREATE TEMPORARY TABLE t ON COMMIT DROP AS SELECT 5 AS i",
        "CREATE TEMP TABLE u (i int) ON COMMIT DELETE ROWS",
        "SELECT 6 AS i INTO TEMP t",
        "CREATE TEMP VIEW v AS SELECT 1 AS i",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO u VALUES (1)",
        "SELECT count(*) FROM t",
        "SELECT count(*) FROM u",
        "SELECT * FROM v",
        "DROP TABLE t",
        "DROP TABLE IF EXISTS t, u",
        "DROP VIEW IF EXISTS v",
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE pg_temp.t (i int)",
    ]);
    life.say(sql)
}

fn cursor(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 9)",
        "DECLARE c CURSOR FOR SELECT generate_series(1, 9)",
        "DECLARE d SCROLL CURSOR WITH HOLD FOR SELECT current_setting('work_mem')",
        "FETCH 2 FROM c",
        "FETCH ALL FROM d",
        "MOVE 1 IN c",
        "CLOSE c",
        "CLOSE d",
        "CLOSE ALL",
        "SELECT name, is_holdable FROM pg_cursors WHERE name <> '' ORDER BY 1",
    ]);
    life.say(sql)
}

fn lock(life: &mut Life) -> Act {
    let key = 100 * life.me + life.dice.below(3);
    let sql = life.pick(&[
        "SELECT pg_try_advisory_lock(KEY)",
        "SELECT pg_advisory_lock(KEY)",
        "SELECT pg_try_advisory_lock_shared(KEY)",
        "SELECT pg_advisory_unlock(KEY)",
        "SELECT pg_advisory_unlock(KEY)",
        "SELECT pg_advisory_unlock_shared(KEY)",
        "SELECT pg_advisory_unlock_all()",
        "SELECT pg_try_advisory_xact_lock(KEY)",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ]);
    life.say(&sql.replace("KEY", &key.to_string()))
}

fn sequence(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "SELECT nextval('SEQ')",
        "SELECT nextval('SEQ'), currval('SEQ'), lastval()",
        "SELECT setval('SEQ', 50)",
        "SELECT currval('SEQ')",
        "SELECT lastval()",
        "DISCARD SEQUENCES",
    ]);
    life.say(&sql.replace("'SEQ'", &format!("'seq_{}'", life.me)))
}

fn channel(life: &mut Life) -> Act {
    let name = format!("channel_{}_{}", life.me, life.dice.below(3));
    let sql = match life.dice.below(7) {
        0 | 1 => format!("LISTEN {name}"),
        2 => format!("UNLISTEN {name}"),
        3 if life.one_in(2) => "UNLISTEN *".to_owned(),
        4 => format!("NOTIFY {name}, '{}'", life.statements),
        5 => format!("SELECT pg_notify('{name}', '{}')", life.statements),
        _ => "SELECT channel FROM pg_listening_channels() AS channel ORDER BY 1".to_owned(),
    };
    life.say(&sql)
}

fn discard(life: &mut Life) -> Act {
    let whole = life.status == 'I' || life.asked.is_none();
    let sql = match life.dice.below(4) {
        0 if whole => "DISCARD ALL",
        1 => "DISCARD TEMP",
        2 => "DISCARD PLANS",
        _ => "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *",
    };
    Act::query(sql)
}

fn copy(life: &mut Life) -> Act {
    let out = life.mine("COPY own TO STDOUT");
    if life.one_in(2) {
        return Act::query(&out);
    }
    let into = life.mine("COPY own FROM STDIN");
    let end = if life.one_in(3) { say::copy_fail("changed my mind") } else { say::copy_done() };
    let bytes = [say::query(&into), say::copy_data(b"8\tcopied\n"), end].concat();
    Act { what: into, bytes, readies: 1 }
}

/// Several statements in one simple query.
fn several(life: &mut Life) -> Act {
    let count = 2 + life.dice.below(3);
    let texts: Vec<&str> = (0..count)
        .map(|_| {
            life.pick(&[
                "SELECT 1",
                "SET work_mem = '31MB'",
                "SET LOCAL work_mem = '32MB'",
                "BEGIN",
                "COMMIT",
                "ROLLBACK",
                "SELECT 1/0",
                "SHOW work_mem",
                "SET search_path = one",
                "SELECT name FROM place",
                "CREATE TEMP TABLE IF NOT EXISTS t (i int)",
                "DROP TABLE IF EXISTS t",
                "PREPARE p1 AS SELECT 5",
                "DEALLOCATE ALL",
            ])
        })
        .collect();
    Act::query(&texts.join("; "))
}

/// Several requests without waiting for an answer.
fn pipeline(life: &mut Life) -> Act {
    const SUBJECTS: [fn(&mut Life) -> Act; 5] = [look, set, transaction, protocol_statement, data];
    let count = 2 + life.dice.below(3);
    life.hurries = true;
    let first = life.pick(&SUBJECTS)(life);
    let all = (1..count).fold(first, |act, _| {
        let next = life.pick(&SUBJECTS)(life);
        act.then(&next)
    });
    life.hurries = false;
    all
}

/// Several statements with one Sync.
fn batch(life: &mut Life) -> Act {
    let (mut what, mut messages) = (Vec::new(), Vec::new());
    if life.one_in(2) {
        let sql = life.pick(&["BEGIN", "BEGIN", "COMMIT", "ROLLBACK", "SELECT 1"]);
        messages.push(say::extended(sql, &[]));
        what.push(sql.to_owned());
    }
    for _ in 0..1 + life.dice.below(3) {
        let name = life.pick(&["s1", "s2", "s3", ""]);
        let (text, count) = life.pick(PREPARED);
        let given = if life.one_in(4) { life.dice.below(3) } else { count };
        let (text, values) = (life.mine(text), parameters(life, given));
        if life.one_in(3) {
            messages.extend([say::close_statement(name), say::parse(name, &text)]);
            what.push(format!("close, parse {name} as {text}"));
        }
        messages.extend([say::bind("", name, &values), say::execute("", 0)]);
        what.push(format!("bind, run {name} with {values:?}"));
    }
    messages.push(say::sync());
    Act { what: what.join(", "), bytes: messages.concat(), readies: 1 }
}
