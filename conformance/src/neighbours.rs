//! Clients who live beside the suite on the same database and user, and find their session as they would a new one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use harness::{Heard, Login, Raw, Reply, say, seconds};

use crate::run::{Mode, Run, Through};
use crate::stage::Stage;

/// Everything that a session can have and a new one has not: what, which, how. Names are qualified, since the
/// search_path might be somebody else's.
const LOOK: &str = "\
SELECT 'setting', name, setting FROM pg_catalog.pg_settings \
 WHERE source = 'session' AND name NOT LIKE 'transaction\\_%' \
UNION ALL SELECT 'statement', name, statement FROM pg_catalog.pg_prepared_statements WHERE from_sql \
UNION ALL SELECT 'cursor', name, statement FROM pg_catalog.pg_cursors WHERE name <> '' \
UNION ALL SELECT 'lock', classid || '.' || objid, mode FROM pg_catalog.pg_locks \
 WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid() \
UNION ALL SELECT 'channel', channel, '' FROM pg_catalog.pg_listening_channels() AS channel \
UNION ALL SELECT 'temporary', relname, relkind::text FROM pg_catalog.pg_class \
 WHERE relnamespace = pg_catalog.pg_my_temp_schema() \
UNION ALL SELECT 'role', session_user || ' as ' || current_user, '' \
 WHERE session_user <> 'postgres' OR current_user <> 'postgres' \
UNION ALL SELECT 'custom', name, pg_catalog.current_setting(name, true) \
 FROM pg_catalog.unnest('{custom.my_guc,plpgsql.extra_foo_warnings,nosuch.setting,app.tenant}'::text[]) AS name \
 WHERE pg_catalog.current_setting(name, true) IS NOT NULL";

/// What every setting is. One that somebody has set to what it is anyway is clean.
const SETTINGS: &str = "SELECT 'setting', name, setting FROM pg_catalog.pg_settings";

/// How long they rest between two transactions, so as to leave something of the machine to the suite.
const REST: Duration = Duration::from_millis(5);

/// Between two looks: what they do otherwise.
const WORK: [&str; 3] = ["BEGIN", "SELECT pg_catalog.count(*) FROM pg_catalog.pg_am", "COMMIT"];

pub struct Neighbours {
    leaving: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Findings>>,
}

#[derive(Debug, Default)]
pub struct Findings {
    neighbours: u32,
    transactions: u64,
    /// How often the connection was lost or refused.
    lost: u64,
    /// How often something was found that was not theirs.
    dirty: BTreeMap<String, u64>,
}

impl Findings {
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn find(&mut self, what: String) {
        *self.dirty.entry(what).or_default() += 1;
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found: u64 = self.dirty.values().sum();
        writeln!(
            f,
            "{} neighbours: {found} dirty findings in {} transactions, {} connections lost",
            self.neighbours, self.transactions, self.lost
        )?;
        let mut worst: Vec<_> = self.dirty.iter().collect();
        worst.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (what, count) in worst.iter().take(20) {
            writeln!(f, "  {count:>8}  {what}")?;
        }
        if worst.len() > 20 {
            writeln!(f, "            and {} more kinds", worst.len() - 20)?;
        }
        Ok(())
    }
}

impl Neighbours {
    #[must_use]
    pub fn move_in(run: &Run, stage: &Stage) -> Self {
        let leaving = Arc::new(AtomicBool::new(false));
        // What a new session with the same startup packet has.
        let login = login(stage, run);
        let direct = Login { address: stage.postgres.address(), ..login.clone() };
        let clean = look(&mut direct.enter(), SETTINGS).unwrap_or_default();
        let stays = run.mode == Mode::Transaction && run.through != Through::Direct;
        let threads = (0..run.neighbours).map(|_| {
            let leaving = Arc::clone(&leaving);
            let (login, clean) = (login.clone(), clean.clone());
            std::thread::spawn(move || live(&login, &clean, stays, &leaving))
        });
        Self { threads: threads.collect(), leaving }
    }

    /// # Panics
    /// When one of them did.
    #[must_use]
    pub fn move_out(self) -> Findings {
        self.leaving.store(true, Ordering::Relaxed);
        let mut all = Findings::default();
        for thread in self.threads {
            let one = thread.join().expect("a neighbour does not panic");
            all.neighbours += 1;
            all.transactions += one.transactions;
            all.lost += one.lost;
            for (what, count) in one.dirty {
                *all.dirty.entry(what).or_default() += count;
            }
        }
        all
    }
}

fn login(stage: &Stage, run: &Run) -> Login {
    Login::new(stage.address(), "postgres", "", run.suite.database())
        .parameter("application_name", "neighbour")
        .parameter("client_encoding", "UTF8")
}

/// Where sessions are pooled, a neighbour who stays would only ever see its own: it comes anew for each transaction.
fn live(login: &Login, clean: &[[String; 3]], stays: bool, leaving: &AtomicBool) -> Findings {
    let mut findings = Findings::default();
    let mut home: Option<Raw> = None;
    while !leaving.load(Ordering::Relaxed) {
        let Some(mut raw) = home.take().or_else(|| login.attempt().ok()) else {
            findings.lost += 1;
            std::thread::sleep(10 * REST);
            continue;
        };
        findings.transactions += 1;
        match look(&mut raw, LOOK) {
            Ok(found) => {
                for [what, which, how] in found.iter().filter(|row| !clean.contains(row)) {
                    let how = how.chars().take(60).collect::<String>();
                    findings.find(format!("{what} {which} {how}").trim_end().to_owned());
                }
            }
            Err(Trouble::Lost) => {
                findings.lost += 1;
                continue;
            }
            Err(Trouble::Error(error)) => findings.find(error),
        }
        std::thread::sleep(REST);
        if work(&mut raw, &mut findings).is_none() {
            findings.lost += 1;
            continue;
        }
        if stays {
            home = Some(raw);
        } else {
            raw.leave();
        }
    }
    findings
}

/// `None` when the connection was lost.
fn work(raw: &mut Raw, findings: &mut Findings) -> Option<()> {
    for sql in WORK {
        let reply = ask(raw, sql)?;
        if let Some(error) = reply.error() {
            findings.find(format!("error {} {}", error.code(), error.text()));
        }
    }
    Some(())
}

#[derive(Debug)]
enum Trouble {
    Lost,
    Error(String),
}

fn look(raw: &mut Raw, sql: &str) -> Result<Vec<[String; 3]>, Trouble> {
    let reply = ask(raw, sql).ok_or(Trouble::Lost)?;
    if let Some(error) = reply.error() {
        return Err(Trouble::Error(format!("error {} {}", error.code(), error.text())));
    }
    let cells = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        [(); 3].map(|()| cells.next().unwrap_or_default())
    };
    Ok(reply.rows().into_iter().map(cells).collect())
}

/// Unlike the harness' own way of asking, it survives the end of the connection: the suites end backends.
fn ask(raw: &mut Raw, sql: &str) -> Option<Reply> {
    raw.try_send(&say::query(sql)).ok()?;
    let mut reply = Reply::default();
    loop {
        match raw.hear(seconds(60.0)) {
            Heard::Message(message) => {
                let ready = message.tag == b'Z';
                reply.0.push(message);
                if ready {
                    return Some(reply);
                }
            }
            Heard::Closed | Heard::Quiet => return None,
        }
    }
}
