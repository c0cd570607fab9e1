//! Howdah, a PostgreSQL connection pooler: many riders, one elephant.

mod args;
mod doors;
mod identity;
mod load;
mod outside;
mod sink;
mod steward;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use config::{Diff, Disk, FdLimit};
use worker::Level;

use crate::args::{Options, Task};
use crate::identity::PidFile;
use crate::sink::{Pen, Sink};
use crate::steward::{Ears, Start, Steward};

/// Set for the process that goes on in the background.
const DAEMON: &str = "HOWDAH_DAEMON";

fn main() -> ExitCode {
    let program = std::env::args().next().unwrap_or_default();
    let name =
        Path::new(&program).file_name().map_or_else(|| "howdah".into(), |n| n.to_string_lossy());
    match args::read(std::env::args_os().skip(1)) {
        Ok(Task::Version) => {
            print!("{}", args::version());
            ExitCode::SUCCESS
        }
        Ok(Task::Help) => {
            print!("{}", args::help(&name));
            ExitCode::SUCCESS
        }
        Ok(Task::Check { file }) => check(&file),
        Ok(Task::Run(options)) => run(&options),
        Err(misuse) => {
            eprintln!("{name}: {misuse}\nTry \"{name} --help\" for more information.");
            ExitCode::FAILURE
        }
    }
}

fn check(file: &str) -> ExitCode {
    let report = config::check(file, &Disk, FdLimit::read(&Disk));
    print!("{report}");
    if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> ExitCode {
    let in_background = std::env::var_os(DAEMON).is_some();
    let sink = Sink::new(!options.quiet && !in_background);
    let mut pen = Pen::new(sink.clone());
    if options.takeover {
        pen.say(
            Level::Fatal,
            format_args!(
                "-R is not supported: start the new process beside the old one with so_reuseport, \
                 then SIGTERM the old one, which goes when its clients have gone"
            ),
        );
        return ExitCode::FAILURE;
    }
    match prepare(options, &sink, &mut pen, in_background) {
        Ok(Prepared::Parent) => ExitCode::SUCCESS,
        Ok(Prepared::Ready(start, pid_file)) => match Steward::start(*start, sink, pen) {
            Ok(steward) => {
                tell_parent(in_background);
                let code = steward.run();
                drop(pid_file);
                ExitCode::from(code)
            }
            Err(text) => give_up(&mut Pen::new(Sink::new(true)), &text),
        },
        Err(text) => give_up(&mut pen, &text),
    }
}

fn give_up(pen: &mut Pen, text: &str) -> ExitCode {
    pen.say(Level::Fatal, format_args!("{text}"));
    ExitCode::FAILURE
}

/// How far the start has come.
enum Prepared {
    /// The process in the background is up; this one may go.
    Parent,
    Ready(Box<Start>, Option<PidFile>),
}

/// Everything before the workers start.
fn prepare(
    options: &Options,
    sink: &std::sync::Arc<Sink>,
    pen: &mut Pen,
    in_background: bool,
) -> Result<Prepared, String> {
    sink.verbose(options.verbose);
    let Some(mut config) = load::config(&options.file, pen) else {
        return Err("cannot load config file".to_owned());
    };
    config.settings.conffile.get_or_insert_with(|| options.file.clone());
    let settings = &config.settings;
    if options.daemon && settings.pidfile.is_empty() {
        return Err("daemon needs pidfile configured".to_owned());
    }
    if options.daemon && settings.logfile.is_empty() {
        return Err("daemon needs logfile configured".to_owned());
    }
    if options.daemon && !in_background {
        return go_to_background().map(|()| Prepared::Parent);
    }
    let user = options.user.clone().or_else(|| settings.user.clone());
    if let Some(user) = user.filter(|user| !user.is_empty()) {
        identity::become_user(&user)?;
    }
    if identity::is_root() {
        return Err("PgBouncer should not run as root; nor should its successor: give it a user \
                    by -u, or by the setting `user`"
            .to_owned());
    }
    sink.verbose(options.verbose.max(settings.verbose));
    sink.reopen(&settings.logfile)
        .map_err(|error| format!("cannot open log file '{}': {error}", settings.logfile))?;
    let pid_file = PidFile::write(&settings.pidfile)?;
    // Cancels, lookups and the rings themselves come on top of what is counted.
    identity::raise_fd_limit(config.fds_expected(1) + 256);
    if let Some(limit) = FdLimit::read(&Disk) {
        let (soft, hard, max) = (limit.soft, limit.hard, settings.max_client_conn);
        let use_max = config.fds_expected(1);
        pen.say(
            Level::Log,
            format_args!(
                "kernel file descriptor limit: {soft} (hard: {hard}); max_client_conn: {max}, \
                 max expected fd use: {use_max}"
            ),
        );
    }
    // Before anybody can know that we are there: a signal that finds no ear ends the process.
    let ears = Ears::open()?;
    let mut told = Vec::new();
    let doors = doors::open(settings, &mut told);
    for text in told {
        pen.say(Level::Warning, format_args!("{text}"));
    }
    let doors = doors?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| format!("no random numbers: {error}"))?;
    let site = load::site(config, Diff::default(), None, secret, pen);
    pen.say(
        Level::Log,
        format_args!(
            "process up: {}, Howdah {}, libevent none (epoll), adns: getaddrinfo, tls: none",
            admin::VERSION_COMPAT,
            env!("CARGO_PKG_VERSION")
        ),
    );
    let file = options.file.clone();
    let verbose = options.verbose;
    let start = Start { site, doors, ears, file, secret, verbose };
    Ok(Prepared::Ready(Box::new(start), pid_file))
}

/// `-d`: the program is started once more, apart from this terminal, and waited for until it
/// listens or fails. Starting anew, rather than forking, is safe whatever threads there are.
fn go_to_background() -> Result<(), String> {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;

    let fail = |error: std::io::Error| format!("cannot go to the background: {error}");
    let program = std::env::current_exe().map_err(fail)?;
    let mut args = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args).env(DAEMON, "1").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(fail)?;
    let mut ready = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut ready).map_err(fail)?;
    }
    if ready.is_empty() { Err("the daemon did not start; see its log".to_owned()) } else { Ok(()) }
}

/// The process in the background listens: the one that started it may go.
fn tell_parent(in_background: bool) {
    use std::io::Write as _;

    if !in_background {
        return;
    }
    // A session of its own: the terminal's end is not its end.
    let _ = nix::unistd::setsid();
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(b"1").and_then(|()| stdout.flush());
    // From here on nobody listens to what it says but the log.
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}
