//! A suite as its own runner plays it, and what came of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use harness::{place, postgres};

use crate::run::{Run, Suite, Word};
use crate::stage::Stage;

#[derive(Debug, Default)]
pub struct Outcome {
    pub passed: Vec<String>,
    pub failed: Vec<String>,
    /// Why not everything was played.
    pub cut_short: Option<String>,
    /// Where regression.diffs and the results are.
    pub kept: PathBuf,
}

impl Outcome {
    #[must_use]
    pub fn total(&self) -> usize {
        self.passed.len() + self.failed.len()
    }

    /// From what pg_regress prints: `test boolean ... ok 31 ms`, indented and without the first word within a group.
    fn note(&mut self, line: &str) {
        let Some((name, verdict)) = line.split_once(" ... ") else { return };
        let name = name.trim().trim_start_matches("test ").trim();
        let verdict = verdict.trim_start();
        if name.is_empty() || name.contains(' ') {
            return;
        }
        if verdict.starts_with("ok") {
            self.passed.push(name.into());
        } else if verdict.to_ascii_lowercase().starts_with("failed") {
            self.failed.push(name.into());
        }
    }
}

/// # Panics
/// When the suite cannot be started.
#[must_use]
pub fn play(run: &Run, stage: &Stage) -> Outcome {
    let home = match run.suite {
        Suite::Regress => stage.suites.join("regress"),
        Suite::Isolation => stage.suites.join("isolation"),
    };
    let folder = place::folder("suite");
    // Copied, since the server's user reads and writes there and need not be able to enter our own folders.
    copy(&stage.suites, &folder);
    let input = folder.join(home.file_name().expect("a folder"));
    let output = folder.join("output");
    let made = place::command("mkdir").arg(&output).status();
    assert!(made.is_ok_and(|status| status.success()), "mkdir {}", output.display());
    let said = folder.join("said");
    let mut child = command(run, stage, &input, &output)
        .stdin(Stdio::null())
        .stdout(File::create(&said).expect("our own folder"))
        .stderr(File::options().append(true).open(&said).expect("the same file"))
        .spawn()
        .expect("pg_regress starts");
    let ended = await_end(run, &mut child, &said);
    let mut outcome = Outcome::default();
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    for line in said.lines() {
        outcome.note(line);
    }
    match ended {
        None => outcome.cut_short = Some(format!("not done after {} minutes", run.minutes)),
        Some(_) if outcome.total() > 0 => {}
        Some(status) => outcome.cut_short = Some(format!("{status}: {said}")),
    }
    outcome.kept = keep(run, stage, &output, &said);
    outcome
}

fn command(run: &Run, stage: &Stage, input: &Path, output: &Path) -> Command {
    let (program, schedule) = match run.suite {
        Suite::Regress => ("pg_regress", "parallel_schedule"),
        Suite::Isolation => ("pg_isolation_regress", "isolation_schedule"),
    };
    // After so many seconds the isolation tester cancels a step: five minutes for each, if left to itself.
    let isolation_timeout = std::env::var("PGISOLATIONTIMEOUT").unwrap_or_else(|_| "10".into());
    let argument = |name: &str, value: &Path| format!("--{name}={}", value.display());
    let mut command = place::command(input.join(program));
    command
        .current_dir(output)
        .env("PGSSLMODE", "disable")
        .env("PGGSSENCMODE", "disable")
        .env("PGISOLATIONTIMEOUT", &isolation_timeout)
        .arg(argument("inputdir", input))
        .arg(argument("outputdir", output))
        .arg(argument("dlpath", &input.with_file_name("regress")))
        .arg(argument("bindir", postgres::bin("psql").parent().expect("a folder")))
        .args(["--host=127.0.0.1", "--user=postgres", "--use-existing"])
        .arg(format!("--port={}", stage.address().port()))
        .arg(format!("--dbname={}", run.suite.database()));
    if let Some(at_once) = run.at_once {
        command.arg(format!("--max-connections={at_once}"));
    }
    if run.tests.is_empty() {
        let schedule = run.schedule.clone().unwrap_or_else(|| input.join(schedule));
        command.arg(argument("schedule", &schedule));
    }
    command.args(&run.tests);
    command
}

/// `None` when it had to be ended. Tests that hang are ended one by one before that, since pg_regress would wait for ever.
fn await_end(run: &Run, child: &mut Child, said: &Path) -> Option<ExitStatus> {
    let deadline = Instant::now() + Duration::from_secs(60 * u64::from(run.minutes));
    let patience = Duration::from_secs(u64::from(run.patience));
    let mut heard = (Instant::now(), 0);
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return Some(status);
        }
        let length = std::fs::metadata(said).map_or(0, |file| file.len());
        if length > heard.1 {
            heard = (Instant::now(), length);
        }
        if Instant::now() > deadline {
            end(child.id(), None);
            let _status = child.wait();
            return None;
        }
        if heard.0.elapsed() > patience {
            eprintln!("nothing was heard for {} s: what runs is ended", run.patience);
            end(child.id(), Some(&["psql", "isolationtester"]));
            heard.0 = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Ends the processes of a group, all or those of these names.
fn end(group: u32, names: Option<&[&str]>) {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(status) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // pid (name) state parent group …
        let Some((head, tail)) = status.rsplit_once(") ") else { continue };
        let name = head.split_once('(').map_or("", |(_, name)| name);
        let theirs = tail.split(' ').nth(2).and_then(|group| group.parse().ok());
        if theirs == Some(group) && names.is_none_or(|names| names.contains(&name)) {
            let _gone = Command::new("kill").arg(entry.file_name()).status();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for suite in ["regress", "isolation"] {
        let copied = Command::new("cp").arg("-r").arg(from.join(suite)).arg(to).status();
        assert!(copied.is_ok_and(|status| status.success()), "cp of {suite}");
    }
    if let Some(servant) = *place::SERVANT {
        let owner = format!("{}:{}", servant.uid, servant.gid);
        let owned = Command::new("chown").arg("-R").arg(owner).arg(to).status();
        assert!(owned.is_ok_and(|status| status.success()), "chown of the suites");
    }
}

/// What is looked at afterwards outlives the stage: the differences, the results, the logs.
fn keep(run: &Run, stage: &Stage, output: &Path, said: &str) -> PathBuf {
    let words = [run.suite.into_word(), run.through.into_word(), run.mode_word()];
    let name = format!("{}-{}", words.join("-"), run.neighbours);
    // …/conformance/postgresql-15.18/src/test
    let kept = stage.suites.ancestors().nth(3).expect("conformance/fetch put it there");
    let kept = kept.join("runs").join(name);
    let _none = std::fs::remove_dir_all(&kept);
    std::fs::create_dir_all(&kept).expect("a folder under target");
    let kept_file = |name: &str, text: &[u8]| std::fs::write(kept.join(name), text).expect("ours");
    kept_file("said", said.as_bytes());
    kept_file("postgres.log", stage.postgres.log().as_bytes());
    if let Some(pooler) = &stage.pooler {
        kept_file("pooler.log", pooler.log().as_bytes());
    }
    for part in ["regression.diffs", "regression.out", "output_iso", "results"] {
        if output.join(part).exists() {
            let copied = Command::new("cp").arg("-r").arg(output.join(part)).arg(&kept).status();
            assert!(copied.is_ok_and(|status| status.success()), "cp of {part}");
        }
    }
    kept
}
