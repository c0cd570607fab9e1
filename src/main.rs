//! Howdah, a PostgreSQL connection pooler: many riders, one elephant.

mod args;
mod doors;
mod entrypoint;
mod identity;
mod inherited;
mod law;
mod lines;
mod load;
mod outlet;
mod outside;
mod ping;
mod sink;
mod steward;
mod syslog;
mod systemd;
mod tls;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use config::{Config, Diff, Disk, FdLimit, Problem};
use worker::Level;

use crate::args::{Options, Task};
use crate::identity::PidFile;
use crate::law::Law;
use crate::sink::{Pen, Sink};
use crate::steward::{Ears, Start, Steward};

/// Set for the process that goes on in the background.
const DAEMON: &str = "HOWDAH_DAEMON";

fn main() -> ExitCode {
    let program = std::env::args().next().unwrap_or_default();
    let name =
        Path::new(&program).file_name().map_or_else(|| "howdah".into(), |n| n.to_string_lossy());
    // Before anything else: such a process is there for one question only.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == pam::ARGUMENT) {
        return pam::child().into();
    }
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
        Ok(Task::Ping { file }) => tell(ping::ping(&file)),
        Ok(Task::Entrypoint { command }) => entrypoint::run(command),
        Ok(Task::Run(options)) => run(&options),
        Err(misuse) => {
            eprintln!("{name}: {misuse}\nTry \"{name} --help\" for more information.");
            ExitCode::FAILURE
        }
    }
}

fn check(file: &str) -> ExitCode {
    let mut report = config::check(file, &Disk, FdLimit::read(&Disk), load::users);
    if report.errors.is_empty()
        && let Ok(config) = config::load(file, &Disk)
    {
        law::check(&config.settings, &mut report);
        report.errors.extend(load::ldap_flaw(&config.settings).map(Problem::new));
        report.errors.extend(identity::flaws(&config.settings).into_iter().map(Problem::new));
        report.warnings.extend(doors::unknown(&config.settings).into_iter().map(Problem::new));
        report.warnings.extend(syslog::flaw(&config.settings).map(Problem::new));
        let mut warnings = Vec::new();
        let (_, errors) = tls::set_up(&config, &worker::Tls::default(), &mut warnings);
        report.warnings.extend(warnings.into_iter().map(Problem::new));
        report.errors.extend(errors.iter().map(|error| Problem::new(error.to_string())));
    }
    print!("{report}");
    if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> ExitCode {
    let in_background = std::env::var_os(DAEMON).is_some();
    if options.daemon && !in_background {
        // Whatever is to be said is said by the process that goes on.
        return go_to_background();
    }
    let sink = Sink::new(!options.quiet);
    log_panics(&sink);
    let mut pen = Pen::new(sink.clone());
    let code = start(options, &sink, &mut pen, in_background);
    sink.drain();
    code
}

fn start(options: &Options, sink: &Arc<Sink>, pen: &mut Pen, in_background: bool) -> ExitCode {
    if options.takeover {
        return give_up(
            pen,
            "-R is not supported: start the new process beside the old one with so_reuseport, or \
             let systemd hold the sockets; then SIGTERM the old one, which goes when its clients \
             have gone",
        );
    }
    if in_background {
        // A session of its own: the terminal's end is not its end.
        let _ = nix::unistd::setsid();
    }
    let (start, pid_file) = match prepare(options, sink, pen) {
        Ok(prepared) => prepared,
        Err(text) => return give_up(pen, &text),
    };
    match Steward::start(start, sink.clone(), Pen::new(sink.clone())) {
        Ok(steward) => {
            if in_background {
                tell_parent(sink);
            }
            systemd::ready();
            let code = steward.run();
            drop(pid_file);
            ExitCode::from(code)
        }
        Err(text) => give_up(pen, &text),
    }
}

fn give_up(pen: &mut Pen, text: &str) -> ExitCode {
    pen.say(Level::Fatal, format_args!("{text}"));
    ExitCode::FAILURE
}

/// A thread that dies of a bug says so in the log, which a daemon has when it has nothing else.
fn log_panics(sink: &Arc<Sink>) {
    let sink = sink.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let current = std::thread::current();
        let name = current.name().unwrap_or("a thread");
        let mut pen = Pen::new(sink.clone());
        pen.say(Level::Fatal, format_args!("{name}: {panic}"));
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|wanted| wanted != "0") {
            let trace = std::backtrace::Backtrace::force_capture();
            pen.say(Level::Fatal, format_args!("{trace}"));
        }
    }));
}

/// Everything before the workers start.
fn prepare(
    options: &Options,
    sink: &Sink,
    pen: &mut Pen,
) -> Result<(Start, Option<PidFile>), String> {
    sink.verbose(options.verbose);
    let Some(mut config) = load::config(&options.file, pen) else {
        return Err("cannot load config file".to_owned());
    };
    config.settings.conffile.get_or_insert_with(|| options.file.clone());
    let settings = &config.settings;
    if options.daemon && settings.pidfile.is_empty() {
        return Err("daemon needs pidfile configured".to_owned());
    }
    if options.daemon && settings.logfile.is_empty() && !settings.syslog {
        return Err("daemon needs logfile configured".to_owned());
    }
    // Before root is given up: only root may raise the hard limit.
    let users = load::count_users(settings);
    identity::raise_fd_limit(fds_wanted(&config, users));
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
    let mut told = Vec::new();
    let opened = sink.set(settings, &mut told);
    for text in told.drain(..) {
        pen.say(Level::Warning, format_args!("{text}"));
    }
    opened?;
    let pid_file = PidFile::write(&settings.pidfile)?;
    tell_fd_limit(&config, users, pen);
    // Before anybody can know that we are there: a signal that finds no ear ends the process.
    let ears = Ears::open()?;
    let (tls, good) = load::tls(&config, &worker::Tls::default(), pen);
    if !good {
        return Err("TLS setup failed".to_owned());
    }
    let law = Law::load(&config, pen)?;
    // Last of what may fail: nobody is to knock at a door that nobody will open.
    let doors = doors::open(settings, &mut told);
    for text in told {
        pen.say(Level::Warning, format_args!("{text}"));
    }
    let doors = doors?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| format!("no random numbers: {error}"))?;
    let site = load::site(config, law, Diff::default(), None, tls, secret, pen);
    pen.say(
        Level::Log,
        format_args!(
            "process up: {}, Howdah {}, libevent none (epoll), adns: hickory, tls: rustls",
            admin::VERSION_COMPAT,
            env!("CARGO_PKG_VERSION")
        ),
    );
    let file = options.file.clone();
    let verbose = options.verbose;
    let start = Start { site, doors, ears, file, secret, verbose };
    Ok((start, pid_file))
}

/// Cancels, lookups, logs and the rings themselves come on top of what is counted.
pub(crate) fn fds_wanted(config: &Config, users: usize) -> u64 {
    config.fds_expected(users) + 256
}

/// How many descriptors there are and how many it may take, and a warning where they cannot be enough.
fn tell_fd_limit(config: &Config, users: usize, pen: &mut Pen) {
    let Some(limit) = FdLimit::read(&Disk) else { return };
    let (soft, hard, max) = (limit.soft, limit.hard, config.settings.max_client_conn);
    let expected = config.fds_expected(users);
    pen.say(
        Level::Log,
        format_args!(
            "kernel file descriptor limit: {soft} (hard: {hard}); max_client_conn: {max}, max \
             expected fd use: {expected}"
        ),
    );
    if soft < expected {
        pen.say(
            Level::Warning,
            format_args!(
                "{soft} file descriptors are fewer than the {expected} that max_client_conn and the \
                 pools may take: raise the limit (ulimit -n, LimitNOFILE=), or lower the settings"
            ),
        );
    }
}

/// `-d`: the program is started once more, apart from this terminal, and waited for until it
/// listens or fails. Starting anew, rather than forking, is safe whatever threads there are.
fn go_to_background() -> ExitCode {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;

    let spawn = || {
        let mut args = std::env::args_os();
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(name) = args.next() {
            command.arg0(name);
        }
        command.args(args).env(DAEMON, "1").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut ready = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut ready)?;
        }
        Ok(!ready.is_empty())
    };
    match spawn() {
        Ok(true) => ExitCode::SUCCESS,
        // It said why.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let error: std::io::Error = error;
            eprintln!("cannot go to the background: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The process in the background listens: the one that started it may go, and from here on nobody
/// listens to what is said but the log.
fn tell_parent(sink: &Sink) {
    use std::io::Write as _;

    sink.leave_stderr();
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(b"1").and_then(|()| stdout.flush());
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // The one that waits goes with the end of stdout: that is the last of it.
        let _ = rustix::stdio::dup2_stderr(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
