//! One run: a whole world, decided by a seed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use auth::{Decoy, Form, Userlist};
use config::{Config, Diff};
use pool::{Instant, WorkerId};
use session::Tracked;
use wire::write;
use worker::{
    Answer, Ask, Audit, Commons, Errand, LetterBox, Level, Log, Mail, Order, Resolution, Shutdown,
    Site, Tls, Worker, World,
};

use crate::admin::Admin;
use crate::application::Application;
use crate::bytes::Bytes;
use crate::checks::{self, Checks};
use crate::dice::Dice;
use crate::net::{End, Kernel, LinkId, Net, Socket};
use crate::postgres::Cluster;
use crate::script;
use crate::secrets;
use crate::trace;
use crate::weather::{Cut, Weather};

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub steps: u64,
    /// Messages that servers were sent.
    pub served: u64,
    /// Messages that applications were sent, each as expected.
    pub answers: u64,
}

/// Play the run of `seed`, with about `steps` steps before everybody is asked to come to an end.
///
/// # Panics
///
/// Where anything is not as it must be.
pub fn play(seed: u64, steps: u64) -> Outcome {
    let mut play = Play::new(seed);
    for _ in 0..steps {
        play.step();
    }
    play.wind_up();
    play.outcome()
}

/// Listening came to the simulator later than most: it has dice of its own, so that seeds that once failed mean
/// what they meant.
const EARS: u64 = 0x6561_72d6;
/// As did time limits.
const LIMITS: u64 = 0x6c69_6d74;

type Errands = Rc<RefCell<VecDeque<Errand>>>;

/// The world around one worker.
struct Outside {
    clock: Rc<Cell<u64>>,
    dice: Dice,
    errands: Errands,
    log: Sink,
}

/// Where log lines go: nowhere, unless somebody looks.
struct Sink {
    is_read: bool,
    clock: Rc<Cell<u64>>,
    worker: usize,
}

impl Log for Sink {
    fn wants(&self, _: Level) -> bool {
        self.is_read
    }

    fn line(&mut self, level: Level, text: std::fmt::Arguments<'_>) {
        if self.is_read {
            let ms = self.clock.get() as f64 / 1e6;
            println!("{ms:12.3} w{} {} {text}", self.worker, level.word());
        }
    }

    fn flush(&mut self) {}
}

impl World for Outside {
    fn now(&mut self) -> Instant {
        Instant(self.clock.get())
    }

    fn wall_us(&mut self) -> i64 {
        1_700_000_000_000_000 + (self.clock.get() / 1000) as i64
    }

    fn dice(&mut self, bytes: &mut [u8]) {
        self.dice.fill(bytes);
    }

    fn zone(&mut self) -> (i32, String) {
        (0, "UTC".to_owned())
    }

    fn log(&mut self) -> &mut dyn Log {
        &mut self.log
    }

    fn errand(&mut self, errand: Errand) {
        self.errands.borrow_mut().push_back(errand);
    }
}

/// A connection on which an application cancels its query.
struct Canceler {
    link: LinkId,
    outbox: Bytes,
    inbox: Bytes,
}

struct Play {
    dice: Dice,
    weather: Weather,
    clock: Rc<Cell<u64>>,
    net: Rc<RefCell<Net>>,
    commons: Arc<Commons<Socket>>,
    site: Arc<Site>,
    edition: u32,
    workers: Vec<Worker<Kernel, Outside>>,
    errands: Errands,
    cluster: Cluster,
    applications: Vec<Application>,
    next_application: u32,
    admins: Vec<Admin>,
    cancelers: Vec<Canceler>,
    checks: Checks,
    winding_up: bool,
    /// Workers that have nothing more to wait for.
    finished: usize,
    steps: u64,
    answers: u64,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let weather = Weather::of(&mut dice)
            .with_ears(&mut Dice::new(seed ^ EARS))
            .with_limits(&mut Dice::new(seed ^ LIMITS));
        let traced = trace::is_on();
        if traced {
            println!("{weather:#?}");
        }
        let net = Net::new(weather.workers, weather.wire.clone(), dice.split());
        let net = Rc::new(RefCell::new(net));
        let clock = Rc::new(Cell::new(1_000_000));
        let boxes = (0..weather.workers).map(|at| LetterBox::new(net.borrow().waker(at)));
        let (boxes, inboxes): (Vec<_>, Vec<_>) = boxes.unzip();
        let commons = Arc::new(Commons::new(boxes, 7, script::read));
        let config = config::parse(&weather.config(0)).expect("a good configuration");
        let site = Arc::new(site(config, Diff::default(), &weather));
        let errands = Errands::default();
        let mut workers = Vec::new();
        for (at, inbox) in inboxes.into_iter().enumerate() {
            let driver = Kernel { net: net.clone(), worker: at };
            let door = driver.door();
            let log = Sink { is_read: traced, clock: clock.clone(), worker: at };
            let (dice, errands) = (dice.split(), errands.clone());
            let world = Outside { clock: clock.clone(), dice, errands, log };
            let me = WorkerId(at as u16);
            let mut worker = Worker::new(driver, world, me, commons.clone(), inbox, site.clone());
            if at == 0 {
                worker.listen(door, "127.0.0.1:6432".to_owned(), false, 0);
            }
            workers.push(worker);
        }
        let cluster = Cluster::new(net.clone(), dice.split(), &weather);
        Self {
            dice,
            weather,
            clock,
            net,
            commons,
            site,
            edition: 0,
            workers,
            errands,
            cluster,
            applications: Vec::new(),
            next_application: 1,
            admins: Vec::new(),
            cancelers: Vec::new(),
            checks: Checks::default(),
            winding_up: false,
            finished: 0,
            steps: 0,
            answers: 0,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome { steps: self.steps, served: self.cluster.served, answers: self.answers }
    }

    fn step(&mut self) {
        self.steps += 1;
        self.pass(self.dice.clone().under(2000) as u64);
        let [workers, applications, servers, clock, admins] = self.weather.pace;
        let mut roll =
            self.dice.under((workers + applications + servers + clock + admins) as usize);
        for (actor, pace) in self.weather.pace.into_iter().enumerate() {
            if roll < pace as usize {
                return match actor {
                    0 => self.turn(),
                    1 => self.application(),
                    2 => self.cluster.act(&self.weather, self.clock.get()),
                    3 => self.time(),
                    _ => self.admin(),
                };
            }
            roll -= pace as usize;
        }
    }

    fn pass(&mut self, ns: u64) {
        self.clock.set(self.clock.get() + ns);
    }

    fn turn(&mut self) {
        let at = self.dice.under(self.workers.len());
        self.workers[at].turn();
        if self.dice.one_in(6) {
            self.look();
        }
    }

    fn audits(&self) -> Vec<Audit> {
        self.workers.iter().map(Worker::audit).collect()
    }

    fn look(&mut self) {
        let audits = self.audits();
        let mut net = self.net.borrow_mut();
        self.checks.look(audits, &mut net, &self.cluster, &self.commons, &self.weather);
    }

    // ---- Applications.

    fn application(&mut self) {
        let wanted = self.weather.applications;
        if !self.winding_up && self.applications.len() < wanted && self.dice.one_in(4) {
            return self.dial();
        }
        if !self.cancelers.is_empty() && self.dice.one_in(3) {
            return self.canceler();
        }
        if self.applications.is_empty() {
            return;
        }
        let at = self.dice.under(self.applications.len());
        self.applications[at].act(&self.weather);
        if self.applications[at].is_gone() {
            let gone = self.applications.swap_remove(at);
            self.answers += gone.answers;
        } else if !self.winding_up && self.dice.one_in(self.weather.rates.cancels) {
            self.cancel(at);
        }
    }

    fn dial(&mut self) {
        let Some(link) = self.net.borrow_mut().dial() else { return };
        let id = self.next_application;
        self.next_application += 1;
        let (net, news, dice) = (self.net.clone(), self.cluster.news.clone(), self.dice.split());
        self.applications.push(Application::new(id, link, net, news, dice, &self.weather));
        if self.dice.one_in(self.weather.rates.accept_fails) {
            self.net.borrow_mut().run_out_of_files(1);
        }
    }

    /// An application asks for a cancel, with the right key as a rule.
    fn cancel(&mut self, at: usize) {
        let app = &mut self.applications[at];
        let Some((pid, mut key)) = app.key.clone() else { return };
        let Some(link) = self.net.borrow_mut().dial() else { return };
        if self.dice.one_in(5) {
            let last = key.len() - 1;
            key[last] ^= 1;
        } else {
            app.cancels += 1;
            *self.cluster.asked.entry(app.id).or_insert(0) += 1;
        }
        let mut outbox = Bytes::default();
        write::client::cancel_request(outbox.end(), pid, &key);
        self.cancelers.push(Canceler { link, outbox, inbox: Bytes::default() });
    }

    fn canceler(&mut self) {
        let at = self.dice.under(self.cancelers.len());
        let canceler = &mut self.cancelers[at];
        let mut net = self.net.borrow_mut();
        let room = net.room(canceler.link);
        let count = self.weather.wire.piece(&mut self.dice, canceler.outbox.len().min(room));
        net.write(canceler.link, &canceler.outbox.as_slice()[..count]);
        canceler.outbox.skip(count);
        let ended = net.read(canceler.link, 100, &mut canceler.inbox).is_some();
        assert!(
            canceler.inbox.is_empty() || self.weather.timeouts || self.weather.orders.kills,
            "a cancel was answered: {:?}",
            String::from_utf8_lossy(canceler.inbox.as_slice())
        );
        let tired = self.dice.one_in(100);
        if ended || tired {
            let link = self.cancelers.swap_remove(at).link;
            net.leave(link, if tired { End::Reset } else { End::Eof });
        }
    }

    // ---- Admins.

    fn admin(&mut self) {
        if !self.winding_up && self.admins.len() < self.weather.admins && self.dice.one_in(4) {
            let Some(link) = self.net.borrow_mut().dial() else { return };
            self.admins.push(Admin::new(link, self.net.clone(), self.dice.split()));
            return;
        }
        if self.admins.is_empty() {
            return;
        }
        let at = self.dice.under(self.admins.len());
        self.admins[at].act(&self.weather);
        if self.admins[at].is_gone {
            self.admins.swap_remove(at);
        }
    }

    // ---- Time, and the slow side.

    fn time(&mut self) {
        let ns = self.dice.under(self.weather.tick_ns) as u64;
        self.pass(ns);
        if self.dice.one_in(self.weather.rates.leaps) {
            let most = if self.weather.timeouts { 3_000_000_000 } else { 200_000_000 };
            let ns = self.dice.under(most) as u64;
            self.pass(ns);
        }
        self.errand();
    }

    fn errand(&mut self) {
        let Some(errand) = self.errands.borrow_mut().pop_front() else { return };
        match errand {
            Errand::Derive { worker, party, job } => {
                let key = job.key();
                let derived = secrets::derive(job);
                self.commons.mail(worker, Mail::Derived { party, key, derived });
            }
            Errand::Vouch { worker, party, .. } => {
                let verdict = Err("nobody is to be asked here".to_owned());
                self.commons.mail(worker, Mail::Vouched { party, verdict });
            }
            Errand::Resolve { worker, name } => {
                let resolution = self.resolution();
                self.commons.mail(worker, Mail::Resolved { name, resolution });
            }
            Errand::Serial { worker, zone } => {
                let serial = Some(self.dice.under(3) as u32).filter(|serial| *serial > 0);
                self.commons.mail(worker, Mail::Serial { zone, serial });
            }
            Errand::Learn { party, about, worker } => {
                self.commons.mail(worker, Mail::Learnt { party, about, name: None });
            }
            Errand::Reload { ask } => {
                self.edition += 1;
                let fresh = config::parse(&self.weather.config(self.edition));
                let fresh = fresh.expect("a good configuration");
                let (config, diff) = config::reload(&self.site.config, fresh);
                self.move_over(config, diff, ask);
            }
            Errand::Set { ask, key, value } => {
                let mut config = self.site.config.clone();
                config::set_runtime(&mut config, &key, &value).expect("a good value");
                self.move_over(config, Diff::default(), ask);
            }
            Errand::Shutdown { .. } | Errand::Present { .. } | Errand::Stats { .. } => {}
            Errand::Finished { .. } => self.finished += 1,
        }
    }

    /// Some of four addresses, or none where dialling may fail as well.
    fn resolution(&mut self) -> Resolution {
        if self.weather.rates.dial_refused > 0 && !self.winding_up && self.dice.one_in(5) {
            return match self.dice.one_in(2) {
                true => Resolution::NoSuchHost,
                false => Resolution::Unanswered("nobody knows".to_owned()),
            };
        }
        let (first, count) = (self.dice.under(4), 1 + self.dice.under(3));
        let ip = |at| std::net::IpAddr::from([10, 0, 0, ((first + at) % 4) as u8]);
        Resolution::Addresses((0..count).map(ip).collect())
    }

    fn move_over(&mut self, config: Config, diff: Diff, ask: Ask) {
        let fresh = site(config, diff, &self.weather);
        let generation = self.site.generation + 1;
        self.site = Arc::new(Site { generation, ..fresh });
        let order = Order::Site(self.site.clone());
        self.commons.order(&order, None);
        self.commons.mail(ask.from, Mail::Answer { ask, answer: Answer::Done });
    }

    // ---- The end.

    /// Liveness: with the faults off and time running, everybody is answered and goes.
    fn wind_up(&mut self) {
        self.settle();
        self.winding_up = true;
        self.cluster.clear_up();
        for app in &mut self.applications {
            app.winding_up = true;
        }
        for mut admin in std::mem::take(&mut self.admins) {
            admin.leave();
        }
        self.weather.pace = [30, 30, 30, 3, 10];
        // What was sent byte by byte would take for ever.
        (self.weather.wire.cut, self.weather.wire.buffer) = (Cut::Whole, 65_536);
        self.net.borrow_mut().wire = self.weather.wire.clone();
        self.tidy_up();
        let limit = self.steps + 300_000;
        while !(self.applications.is_empty() && self.admins.is_empty() && self.cancelers.is_empty())
        {
            self.step();
            if self.steps.is_multiple_of(64) {
                self.pass(5_000_000);
            }
            // Again and again, for what an admin said who has left may only be read by now.
            if self.steps.is_multiple_of(8192) && self.admins.is_empty() {
                self.tidy_up();
            }
            if self.steps > limit {
                self.give_up();
            }
        }
        for round in 0..200 {
            if round > 0 && checks::is_given_back(&self.audits()) {
                break;
            }
            for _ in 0..500 {
                self.turn();
                self.cluster.act(&self.weather, self.clock.get());
                self.errand();
                self.pass(500_000);
                self.steps += 1;
            }
        }
        self.look();
        let audits = self.audits();
        assert!(
            checks::is_given_back(&audits),
            "something is left: {audits:?}\n{}",
            self.net.borrow().describe()
        );
        self.shut_down();
    }

    /// With nobody there, a shutdown that waits has nothing to wait for.
    fn shut_down(&mut self) {
        let how = *self.dice.pick(&[Shutdown::WaitForClients, Shutdown::WaitForServers]);
        self.commons.order(&Order::Shutdown(how), None);
        for _ in 0..5000 {
            if self.finished == self.workers.len() {
                return;
            }
            self.turn();
            self.cluster.act(&self.weather, self.clock.get());
            self.errand();
            self.pass(500_000);
        }
        panic!("{how:?}: {} of {} workers finished", self.finished, self.workers.len());
    }

    fn tidy_up(&mut self) {
        let link = self.net.borrow_mut().dial().expect("the door is open");
        let tidy = Admin::new(link, self.net.clone(), self.dice.split());
        self.admins.push(tidy.that_tidies_up(&self.weather));
    }

    fn give_up(&self) -> ! {
        let left: Vec<_> = self.applications.iter().map(Application::describe).collect();
        let held: Vec<_> = self.audits().iter().map(|audit| format!("{audit:?}")).collect();
        panic!(
            "{} clients, {} admins and {} cancels have no end:\n{}\n{}\n{}",
            left.len(),
            self.admins.len(),
            self.cancelers.len(),
            left.join("\n"),
            held.join("\n"),
            self.net.borrow().describe(),
        );
    }

    /// All mail is read and answered, while nobody else does anything: then nobody waits by an
    /// idle server.
    fn settle(&mut self) {
        for _ in 0..1000 {
            for at in 0..self.workers.len() {
                self.workers[at].turn();
            }
            if self.net.borrow().is_idle() {
                break;
            }
        }
        if self.net.borrow().is_idle() {
            checks::nobody_waits_by_an_idle_server(&self.audits());
        }
    }
}

/// Servers are asked whether they speak TLS, and do not.
fn tls() -> Tls {
    let wish = tls::Wish {
        prefix: "server_tls",
        mode: tls::Mode::Prefer,
        key_file: "",
        cert_file: "",
        ca_file: "",
        protocols: "secure",
        ciphers: "default",
        tls13_ciphers: "",
        ecdhcurve: "auto",
        dheparams: "auto",
    };
    let read = |_: &str| unreachable!("no file was named");
    let outward = tls::Outward::set_up(&wish, &read, &mut Vec::new()).expect("a good wish");
    Tls { outward: outward.into(), ..Tls::default() }
}

fn site(config: Config, diff: Diff, weather: &Weather) -> Site {
    let (userlist, flaws) = Userlist::parse(secrets::userlist(weather.logins.stored).as_bytes());
    assert!(flaws.is_empty(), "a good userlist");
    let tracked = Tracked::new(config.settings.track_extra_parameters.iter().map(String::as_str));
    let decoy = Arc::new(Decoy::new([3; 32], 1, Form::Plain));
    let (rules, maps, directory) = (Arc::default(), Arc::default(), None);
    let (tracked, tls) = (Arc::new(tracked), tls());
    let (generation, uid) = (1, 0);
    Site { config, userlist, rules, maps, directory, tracked, decoy, tls, diff, generation, uid }
}
