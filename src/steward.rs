//! The main thread: starts the workers, hears signals, reads files again, and ends it all.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admin::Refusal;
use config::{Config, Diff, Settings};
use control::{Callers, Control, Sources};
use io::{Kind, Socket, Waker};
use pool::WorkerId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use worker::{Answer, Ask, Commons, LetterBox, Level, Mail, Order, Shutdown, Site, Tls, Worker};

use crate::doors::Door;
use crate::law::Law;
use crate::load;
use crate::outside::Outside;
use crate::sink::{Pen, Sink};
use crate::systemd;

/// Something for the main thread.
pub(crate) enum Task {
    Signal(i32),
    Reload {
        ask: Option<Ask>,
    },
    Set {
        ask: Ask,
        key: String,
        value: String,
    },
    Shutdown {
        how: Shutdown,
    },
    /// A worker has nothing more to wait for.
    Finished {
        worker: WorkerId,
    },
    /// A worker answers the roll call.
    Present {
        worker: WorkerId,
        clients: u32,
        servers: u32,
    },
    /// The averages of a period are there.
    Stats {
        line: String,
    },
    /// A worker's thread is over.
    Gone {
        worker: WorkerId,
        panicked: bool,
    },
}

/// The process, once it runs.
pub(crate) struct Steward {
    tasks: Receiver<Task>,
    commons: Arc<Commons<Socket>>,
    site: Arc<Site>,
    file: String,
    secret: [u8; 32],
    sink: Arc<Sink>,
    pen: Pen,
    finished: Vec<bool>,
    shutdown: Option<Shutdown>,
    roll: RollCall,
    running: usize,
    threads: Vec<JoinHandle<()>>,
    /// Unix socket files to be removed at the end.
    paths: Vec<std::path::PathBuf>,
    /// Verbosity of the command line.
    verbose: u32,
    _control: Control,
}

/// What the command line and the files said.
pub(crate) struct Start {
    pub(crate) site: Site,
    pub(crate) doors: Vec<Door>,
    pub(crate) ears: Ears,
    pub(crate) file: String,
    pub(crate) secret: [u8; 32],
    pub(crate) verbose: u32,
}

fn random_number() -> Result<u64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

impl Steward {
    /// Start everything.
    pub(crate) fn start(start: Start, sink: Arc<Sink>, mut pen: Pen) -> Result<Self, String> {
        let Start { site, doors, ears, file, secret, verbose } = start;
        let (sender, tasks) = channel();
        let sources = sources(&site.config.settings.resolv_conf);
        let control = Control::start(control::Limits::default(), sources)
            .map_err(|error| format!("cannot start the control threads: {error}"))?;
        let callers = Callers::start()
            .map_err(|error| format!("cannot start the control threads: {error}"))?;
        ears.listen(&sender)?;
        let site = Arc::new(site);
        let count = config::workers(&site.config.settings);
        let kind = match site.config.settings.io_driver {
            config::IoDriver::Auto => Kind::Auto,
            config::IoDriver::IoUring => Kind::IoUring,
            config::IoDriver::Readiness => Kind::Readiness,
        };
        let opened = open_drivers(count, kind)?;
        let name = opened.first().map_or("", |opened| opened.name);
        let (boxes, inboxes): (Vec<_>, Vec<_>) =
            opened.iter().map(|opened| LetterBox::new(opened.waker.clone())).unzip();
        let commons = Arc::new(Commons::new(boxes, random_number()?, session::read));
        let paths = doors.iter().filter_map(|door| door.path.clone()).collect();
        let mut doors = Some(doors);
        let epoch = Instant::now();
        let mut threads = Vec::new();
        for (index, (opened, inbox)) in opened.into_iter().zip(inboxes).enumerate() {
            let me = WorkerId(u16::try_from(index).unwrap_or(0));
            let outside = Outside {
                start: epoch,
                pen: Pen::new(sink.clone()),
                mailbox: control.mailbox(),
                callers: callers.clone(),
                steward: sender.clone(),
                commons: commons.clone(),
            };
            let doors = if index == 0 { doors.take() } else { None };
            let work = Work {
                me,
                outside,
                commons: commons.clone(),
                inbox,
                site: site.clone(),
                doors: doors.unwrap_or_default(),
            };
            // The thread that opened the driver is the one that runs it.
            if opened.go.send(work).is_err() {
                return Err("a worker thread died at its start".to_owned());
            }
            threads.push(opened.thread);
        }
        pen.say(Level::Log, format_args!("{count} workers, io driver {name}"));
        derive_ahead(&site, &commons);
        let finished = vec![false; count];
        Ok(Self {
            tasks,
            commons,
            site,
            file,
            secret,
            sink,
            pen,
            finished,
            shutdown: None,
            roll: RollCall::new(count, systemd::watchdog()),
            running: count,
            threads,
            paths,
            verbose,
            _control: control,
        })
    }

    /// Serve until the end. The exit code.
    pub(crate) fn run(mut self) -> u8 {
        loop {
            let Some(task) = self.next_task() else {
                self.call_the_roll();
                continue;
            };
            match task {
                Task::Present { worker, clients, servers } => {
                    self.present(worker, clients, servers);
                }
                Task::Stats { line } if self.shutdown.is_none() => systemd::status(&line),
                // How far the shutdown is says more.
                Task::Stats { .. } => {}
                Task::Signal(signal) => self.signal(signal),
                Task::Reload { ask } => self.reload(ask),
                Task::Set { ask, key, value } => self.set(ask, &key, &value),
                Task::Shutdown { how } => self.shut_down(how),
                Task::Finished { worker } => self.finished(worker),
                Task::Gone { worker, panicked } => {
                    if panicked {
                        let text = format_args!("worker {} died of a bug; giving up", worker.0);
                        self.pen.say(Level::Fatal, text);
                        return 1;
                    }
                    self.running -= 1;
                    if self.running == 0 {
                        break;
                    }
                }
            }
        }
        for thread in self.threads.drain(..) {
            // What a thread died of was said when it died.
            let _ = thread.join();
        }
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
        0
    }

    /// What comes next; nothing when it is time to call the roll.
    fn next_task(&self) -> Option<Task> {
        match self.roll.due(self.waits()) {
            // The workers and the ears hold the other end as long as we live.
            None => self.tasks.recv().ok(),
            Some(due) => {
                self.tasks.recv_timeout(due.saturating_duration_since(Instant::now())).ok()
            }
        }
    }

    /// Whether somebody wants to know how far a shutdown is.
    fn waits(&self) -> bool {
        self.shutdown.is_some_and(|how| how != Shutdown::Immediate)
    }

    fn call_the_roll(&mut self) {
        if self.roll.begin() {
            self.tell_all(&Order::RollCall);
        }
    }

    fn present(&mut self, worker: WorkerId, clients: u32, servers: u32) {
        let Some((clients, servers)) = self.roll.answer(worker, clients, servers) else { return };
        if self.roll.watchdog.is_some() {
            systemd::alive();
        }
        if self.waits() && self.finished.iter().any(|finished| !finished) {
            let text = format!("shutting down, {clients} clients and {servers} busy servers left");
            self.pen.say(Level::Log, format_args!("{text}"));
            systemd::status(&text);
        }
    }

    fn signal(&mut self, signal: i32) {
        let leaving = self.shutdown.is_some();
        match signal {
            SIGHUP => {
                self.pen.say(Level::Log, format_args!("got SIGHUP, re-reading config"));
                self.reload(None);
            }
            SIGTERM if leaving => {
                self.pen
                    .say(Level::Log, format_args!("got SIGTERM while shutting down, fast exit"));
                self.shut_down(Shutdown::Immediate);
            }
            SIGTERM => {
                let text =
                    format_args!("got SIGTERM, shutting down, waiting for all clients disconnect");
                self.pen.say(Level::Log, text);
                self.shut_down(Shutdown::WaitForClients);
            }
            SIGINT if leaving => {
                self.pen.say(Level::Log, format_args!("got SIGINT while shutting down, fast exit"));
                self.shut_down(Shutdown::Immediate);
            }
            SIGINT => {
                let text = format_args!(
                    "got SIGINT, shutting down, waiting for all servers connections to be released"
                );
                self.pen.say(Level::Log, text);
                self.shut_down(Shutdown::WaitForServers);
            }
            SIGQUIT => {
                self.pen.say(Level::Log, format_args!("got SIGQUIT, fast exit"));
                self.shut_down(Shutdown::Immediate);
            }
            SIGUSR1 if leaving => {
                self.pen.say(Level::Log, format_args!("got SIGUSR1 while shutting down, ignoring"));
            }
            SIGUSR1 => {
                self.pen.say(Level::Log, format_args!("got SIGUSR1, pausing all activity"));
                self.tell_all(&Order::Pause(None));
            }
            SIGUSR2 if leaving => {
                self.pen.say(Level::Log, format_args!("got SIGUSR2 while shutting down, ignoring"));
            }
            SIGUSR2 => {
                self.pen.say(Level::Log, format_args!("got SIGUSR2, continuing from PAUSE"));
                self.tell_all(&Order::Resume(None));
            }
            _ => {}
        }
    }

    fn shut_down(&mut self, how: Shutdown) {
        if self.shutdown.is_none() {
            systemd::stopping();
        }
        self.shutdown = Some(how);
        self.tell_all(&Order::Shutdown(how));
        if self.waits() {
            self.call_the_roll();
        }
    }

    fn finished(&mut self, worker: WorkerId) {
        if let Some(finished) = self.finished.get_mut(usize::from(worker.0)) {
            *finished = true;
        }
        if !self.finished.iter().all(|finished| *finished) {
            return;
        }
        let text = match self.shutdown {
            Some(Shutdown::WaitForClients) => "client connections dropped, exiting",
            Some(Shutdown::WaitForServers) => "server connections dropped, exiting",
            Some(Shutdown::Immediate) | None => return,
        };
        self.pen.say(Level::Log, format_args!("{text}"));
        self.shut_down(Shutdown::Immediate);
    }

    /// RELOAD and SIGHUP: everything is read and checked first, and a bad file changes nothing.
    fn reload(&mut self, ask: Option<Ask>) {
        systemd::reloading();
        let answer = self.read_again();
        systemd::ready();
        self.answer(ask, answer);
    }

    fn read_again(&mut self) -> Answer {
        let file = self.site.config.settings.conffile.clone().unwrap_or_else(|| self.file.clone());
        let Some(fresh) = load::config(&file, &mut self.pen) else {
            return self.reload_failed();
        };
        let (config, diff) = config::reload(&self.site.config, fresh);
        let kept = diff.kept.clone();
        let (tls, good) = load::tls(&config, &self.site.tls, &mut self.pen);
        if !self.move_over(config, diff, tls) {
            return self.reload_failed();
        }
        for kept in kept {
            let text = format_args!("{kept} was changed in the file; only a restart changes it");
            self.pen.say(Level::Warning, text);
        }
        if good { Answer::Done } else { Answer::Failed(Refusal::ReloadFailed) }
    }

    fn reload_failed(&mut self) -> Answer {
        self.pen.say(Level::Error, format_args!("RELOAD failed, the old configuration stays"));
        let site = self.site.clone();
        self.set_sink(&site.config.settings);
        Answer::Failed(Refusal::ReloadFailed)
    }

    fn set(&mut self, ask: Ask, key: &str, value: &str) {
        let mut config: Config = self.site.config.clone();
        match config::set_runtime(&mut config, key, value) {
            Ok(()) => {
                // As in PgBouncer, the log alone says what is wrong with a key or a certificate: often
                // it takes a second SET to put it right.
                let tls = if key.contains("_tls") {
                    load::tls(&config, &self.site.tls, &mut self.pen).0
                } else {
                    self.site.tls.clone()
                };
                let done = self.move_over(config, Diff::default(), tls);
                let failed = Answer::Failed(Refusal::SetFailed);
                self.answer(Some(ask), if done { Answer::Done } else { failed });
            }
            Err(problem) => {
                self.pen.say(Level::Error, format_args!("SET {key}: {problem}"));
                self.answer(Some(ask), Answer::Failed(Refusal::SetFailed));
            }
        }
    }

    /// Everybody goes by `config` from now on. False, and nothing is changed, where there are to be rules
    /// and they cannot be read.
    fn move_over(&mut self, config: Config, diff: Diff, tls: Tls) -> bool {
        let law = match Law::load(&config, &mut self.pen) {
            Ok(law) => law,
            Err(why) => {
                self.pen.say(Level::Error, format_args!("{why}"));
                return false;
            }
        };
        self.set_sink(&config.settings);
        self.sink.verbose(self.verbose.max(config.settings.verbose));
        let site = load::site(config, law, diff, Some(&self.site), tls, self.secret, &mut self.pen);
        crate::identity::raise_fd_limit(crate::fds_wanted(&site.config, site.userlist.len()));
        self.site = Arc::new(site);
        self.tell_all(&Order::Site(self.site.clone()));
        derive_ahead(&self.site, &self.commons);
        true
    }

    /// The log as the settings want it; its file is opened anew, for somebody may have moved it away.
    fn set_sink(&mut self, settings: &Settings) {
        let mut told = Vec::new();
        let opened = self.sink.set(settings, &mut told);
        for text in told {
            self.pen.say(Level::Warning, format_args!("{text}"));
        }
        if let Err(text) = opened {
            self.pen.say(Level::Error, format_args!("{text}; the old one is kept"));
        }
    }

    /// The answer follows the order to all in every worker's box, so whoever gets it finds the new
    /// configuration in force where it asked.
    fn answer(&self, ask: Option<Ask>, answer: Answer) {
        if let Some(ask) = ask {
            self.commons.mail(ask.from, Mail::Answer { ask, answer });
        }
    }

    fn tell_all(&self, order: &Order) {
        self.commons.order(order, None);
    }
}

/// How often a waiting shutdown says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Asks all workers at once whether they are there, and what they have. Who does not answer holds up
/// the next call, and with it the watchdog.
struct RollCall {
    /// Clients and busy servers of each, as far as it has answered.
    answers: Vec<Option<(u32, u32)>>,
    is_under_way: bool,
    last: Instant,
    watchdog: Option<Duration>,
}

impl RollCall {
    fn new(workers: usize, watchdog: Option<Duration>) -> Self {
        let answers = vec![None; workers];
        Self { answers, is_under_way: false, last: Instant::now(), watchdog }
    }

    /// When the next one begins.
    fn due(&self, waits: bool) -> Option<Instant> {
        let progress = waits.then_some(PROGRESS);
        let every = [progress, self.watchdog].into_iter().flatten().min()?;
        (!self.is_under_way).then(|| self.last + every)
    }

    /// Whether it begins: one that waits for an answer goes on.
    fn begin(&mut self) -> bool {
        if self.is_under_way {
            return false;
        }
        self.is_under_way = true;
        self.last = Instant::now();
        self.answers.fill(None);
        true
    }

    /// All clients and busy servers, once everybody has answered.
    fn answer(&mut self, worker: WorkerId, clients: u32, servers: u32) -> Option<(u32, u32)> {
        *self.answers.get_mut(usize::from(worker.0))? = Some((clients, servers));
        let all = self.answers.iter().try_fold((0, 0), |(clients, servers), answer| {
            answer.map(|(more, busy)| (clients + more, servers + busy))
        })?;
        self.is_under_way = false;
        Some(all)
    }
}

/// Have the SCRAM keys of plain passwords ready before anybody logs in, on a thread that nobody waits
/// for: a first login would take milliseconds longer than all others, and a wrong password for a
/// user who has none behind him longer than one for a user who does not exist.
fn derive_ahead(site: &Arc<Site>, commons: &Arc<Commons<Socket>>) {
    use config::AuthType::{Hba, ScramSha256};

    if !matches!(site.config.settings.auth_type, ScramSha256 | Hba) {
        return;
    }
    let (site, commons) = (site.clone(), commons.clone());
    let derive = move || {
        for (user, secret) in site.userlist.users() {
            let Some(job) = site.decoy.ahead(user, secret) else { continue };
            let key = job.key();
            if commons.memory().derived(key).is_none() {
                commons.memory().keep_derived(key, job.run());
            }
        }
    };
    // Without it, logins only derive their keys themselves.
    let _ = thread::Builder::new().name("keys-ahead".to_owned()).spawn(derive);
}

/// Where host names are looked up.
fn sources(resolv_conf: &str) -> Sources {
    let usual = Sources::default();
    if resolv_conf.is_empty() {
        usual
    } else {
        Sources { resolv_conf: resolv_conf.into(), ..usual }
    }
}

/// What a worker thread needs to begin.
struct Work {
    me: WorkerId,
    outside: Outside,
    commons: Arc<Commons<Socket>>,
    inbox: Receiver<Mail<Socket>>,
    site: Arc<Site>,
    doors: Vec<Door>,
}

/// A worker thread that has its driver, and waits for its work.
struct Opened {
    waker: Waker,
    name: &'static str,
    go: Sender<Work>,
    thread: JoinHandle<()>,
}

/// One thread per worker, each with a driver of its own: an io_uring belongs to the thread that
/// opened it.
fn open_drivers(count: usize, kind: Kind) -> Result<Vec<Opened>, String> {
    let mut opened = Vec::new();
    for index in 0..count {
        let (tell, told) = channel();
        let (go, work) = channel::<Work>();
        let thread = thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || match io::open(kind) {
                Err(error) => drop(tell.send(Err(error))),
                Ok((driver, name)) => {
                    let _ = tell.send(Ok((io::Driver::waker(&driver), name)));
                    if let Ok(work) = work.recv() {
                        serve(driver, work);
                    }
                }
            })
            .map_err(|error| format!("cannot start a worker thread: {error}"))?;
        let (waker, name) = match told.recv() {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(format!("cannot open the io driver: {error}")),
            Err(_) => return Err("a worker thread died at its start".to_owned()),
        };
        opened.push(Opened { waker, name, go, thread });
    }
    Ok(opened)
}

/// A worker's whole life.
fn serve(driver: io::AnyDriver, work: Work) {
    let Work { me, outside, commons, inbox, site, doors } = work;
    let steward = outside.steward.clone();
    let life = std::panic::AssertUnwindSafe(move || {
        let mut worker = Worker::new(driver, outside, me, commons, inbox, site);
        for door in doors {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&door.socket);
            worker.listen(door.socket, door.name, door.is_unix, fd);
        }
        while !worker.is_stopped() {
            worker.turn();
        }
    });
    let panicked = std::panic::catch_unwind(life).is_err();
    let _ = steward.send(Task::Gone { worker: me, panicked });
}

/// Catches signals from early on, and passes them on once there is somebody to hear them.
pub(crate) struct Ears(Signals);

impl Ears {
    pub(crate) fn open() -> Result<Self, String> {
        Signals::new([SIGHUP, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE])
            .map(Self)
            .map_err(|error| format!("cannot hear signals: {error}"))
    }

    fn listen(mut self, tasks: &Sender<Task>) -> Result<(), String> {
        let tasks = tasks.clone();
        let hear = move || {
            for signal in self.0.forever() {
                if tasks.send(Task::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        let spawned = thread::Builder::new().name("signals".to_owned()).spawn(hear);
        spawned.map(drop).map_err(|error| format!("cannot hear signals: {error}"))
    }
}
