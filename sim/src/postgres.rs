//! The servers: logins, sessions, cancel requests, and all that can go wrong with them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use auth::{Account, Ask, Claim, ClientAuth, Decoy, Form, Step};
use wire::tag::client as tag;
use wire::write::server as say;
use wire::{Report, Startup, Status};

use crate::bytes::Bytes;
use crate::dice::Dice;
use crate::engine::{Engine, Stop};
use crate::net::{End, LinkId, Net};
use crate::news::{Desk, News};
use crate::script::{self, Ident, Text};
use crate::secrets;
use crate::trace;
use crate::weather::{PoolMode, Weather};

/// All servers together.
pub(crate) struct Cluster {
    net: Rc<RefCell<Net>>,
    dice: Dice,
    pub(crate) news: Rc<RefCell<News>>,
    pub(crate) backends: Vec<Backend>,
    /// Dials that are never answered.
    hanging: Vec<LinkId>,
    /// Cancels that applications asked for, by client.
    pub(crate) asked: BTreeMap<u32, u32>,
    /// Cancels that struck, by client.
    struck: BTreeMap<u32, u32>,
    next_pid: u32,
    /// Faults may happen.
    pub(crate) is_rough: bool,
    /// The pooler resets every session before another client gets it.
    resets: bool,
    /// As PostgreSQL, they send only when they must: when a batch is over, or a Flush asks for it.
    buffers: bool,
    pub(crate) served: u64,
}

/// One process of the server.
pub(crate) struct Backend {
    pub(crate) link: LinkId,
    stage: Stage,
    inbox: Bytes,
    outbox: Bytes,
    pub(crate) pid: u32,
    key: Vec<u8>,
    /// Hang up when all is sent.
    leaving: bool,
    /// Says no more, and reads no more.
    mute: bool,
    auth: Option<Box<ClientAuth>>,
    pub(crate) user: Vec<u8>,
    pub(crate) database: Vec<u8>,
}

enum Stage {
    Startup,
    Login,
    Session(Box<Session>),
    /// A cancel request, that strikes at this time.
    Cancel {
        pid: u32,
        key: Vec<u8>,
        at: u64,
    },
    Over,
}

struct Session {
    engine: Engine,
    /// Who spoke last.
    owner: Option<u32>,
    /// It may hold what its owner left, until a reset.
    stained: bool,
    /// Somebody began something without saying who he is.
    unclaimed: bool,
    /// The pooler has put on settings of its own, for one Parse.
    is_dressed: bool,
    /// It has begun to set the session for its next client.
    is_setting: bool,
    /// What runs ends at this time.
    wakes: u64,
    /// It thinks about the next message until then.
    thinks: Option<u64>,
    thought: bool,
    /// Said, and not sent yet.
    unsent: Bytes,
}

impl Cluster {
    pub(crate) fn new(net: Rc<RefCell<Net>>, dice: Dice, weather: &Weather) -> Self {
        let resets = weather.mode == PoolMode::Session || weather.resets_always;
        Self {
            net,
            dice,
            news: Rc::default(),
            backends: Vec::new(),
            hanging: Vec::new(),
            asked: BTreeMap::new(),
            struck: BTreeMap::new(),
            next_pid: 1,
            is_rough: true,
            resets,
            buffers: weather.buffers,
            served: 0,
        }
    }

    /// Something happens at the servers, or nothing.
    pub(crate) fn act(&mut self, weather: &Weather, now: u64) {
        let dialled = self.net.borrow().dialled.clone();
        let open: Vec<LinkId> =
            dialled.into_iter().filter(|id| !self.hanging.contains(id)).collect();
        if !open.is_empty() && self.dice.one_in(2) {
            let id = *self.dice.pick(&open);
            return self.answer(id, weather);
        }
        if self.backends.is_empty() {
            return;
        }
        let at = self.dice.under(self.backends.len());
        if self.tend(at, weather, now) {
            let backend = self.backends.swap_remove(at);
            self.net.borrow_mut().leave(backend.link, End::Eof);
        }
    }

    /// With faults off, whoever hangs is answered.
    pub(crate) fn clear_up(&mut self) {
        self.is_rough = false;
        self.hanging.clear();
        for backend in &mut self.backends {
            if std::mem::take(&mut backend.mute) {
                backend.leaving = true;
                backend.stage = Stage::Over;
            }
        }
    }

    fn fault(&mut self, rate: u32) -> bool {
        self.is_rough && self.dice.one_in(rate)
    }

    fn answer(&mut self, id: LinkId, weather: &Weather) {
        self.net.borrow_mut().dialled.retain(|other| *other != id);
        if self.fault(weather.rates.dial_hangs) {
            self.hanging.push(id);
            self.net.borrow_mut().dialled.push(id);
            return;
        }
        let accepts = !self.fault(weather.rates.dial_refused);
        self.net.borrow_mut().answer(id, accepts);
        if !accepts {
            self.net.borrow_mut().leave(id, End::Eof);
            return;
        }
        let pid = self.next_pid;
        self.next_pid += 1;
        self.backends.push(Backend {
            link: id,
            stage: Stage::Startup,
            inbox: Bytes::default(),
            outbox: Bytes::default(),
            pid,
            key: Vec::new(),
            leaving: false,
            mute: false,
            auth: None,
            user: Vec::new(),
            database: Vec::new(),
        });
    }

    /// One backend does something. Returns whether it is gone.
    fn tend(&mut self, at: usize, weather: &Weather, now: u64) -> bool {
        if self.backends[at].mute {
            return self.is_hung_up_on(at);
        }
        if !self.backends[at].leaving && self.fault(weather.rates.server_dies) {
            return self.die(at);
        }
        let backend = &mut self.backends[at];
        if !backend.outbox.is_empty() {
            let mut net = self.net.borrow_mut();
            let room = net.room(backend.link);
            let count = weather.wire.piece(&mut self.dice, backend.outbox.len().min(room));
            net.write(backend.link, &backend.outbox.as_slice()[..count]);
            backend.outbox.skip(count);
            if !backend.outbox.is_empty() {
                // It does not read while it cannot write.
                drop(net);
                return self.is_hung_up_on(at);
            }
            return false;
        }
        if backend.leaving {
            return true;
        }
        if let Stage::Session(session) = &mut backend.stage {
            if session.engine.is_running() && !session.engine.is_copying() {
                if session.wakes > now {
                    return self.is_hung_up_on(at);
                }
                let stop = session.engine.wake();
                self.went(at, 0, stop, now);
                return false;
            }
            if weather.listens() && session.engine.has_news() && self.dice.one_in(3) {
                self.tell_news(at);
                return false;
            }
            if self.dice.one_in(weather.rates.noise) {
                self.make_noise(at);
                return false;
            }
        }
        if let Stage::Cancel { pid, key, at: time } = &self.backends[at].stage {
            if *time > now {
                return false;
            }
            let (pid, key) = (*pid, key.clone());
            self.strike(pid, &key, now);
            return true;
        }
        if self.has_message(at) { self.hear(at, weather, now) } else { self.read(at, weather) }
    }

    fn read(&mut self, at: usize, weather: &Weather) -> bool {
        let backend = &mut self.backends[at];
        let mut net = self.net.borrow_mut();
        let count = weather.wire.piece(&mut self.dice, 8192);
        net.read(backend.link, count, &mut backend.inbox).is_some()
    }

    /// A busy server finds out sooner or later that its client is gone.
    fn is_hung_up_on(&mut self, at: usize) -> bool {
        let backend = &mut self.backends[at];
        let mut net = self.net.borrow_mut();
        let gone = net.is_closed(backend.link)
            && net.read(backend.link, usize::MAX, &mut Bytes::default()).is_some();
        gone && self.dice.one_in(4)
    }

    fn has_message(&self, at: usize) -> bool {
        let backend = &self.backends[at];
        match backend.stage {
            Stage::Startup => {
                matches!(wire::first_packet(backend.inbox.as_slice()),
                    Ok(Some(len)) if backend.inbox.len() >= len)
            }
            _ => backend.inbox.whole().is_some(),
        }
    }

    /// A server that dies: at once, or with a word, or in the middle of one.
    fn die(&mut self, at: usize) -> bool {
        let backend = &mut self.backends[at];
        match self.dice.under(4) {
            0 => {
                let link = self.backends.swap_remove(at).link;
                self.net.borrow_mut().leave(link, End::Reset);
                return false;
            }
            1 => return true,
            2 => {
                fatal(
                    backend.outbox.end(),
                    b"57P01",
                    b"terminating connection due to administrator command",
                );
                backend.leaving = true;
            }
            _ => {
                let keep = self.dice.under(backend.outbox.len() + 1);
                let rest = backend.outbox.take(keep);
                backend.outbox.clear();
                backend.outbox.push(&rest);
                backend.leaving = true;
            }
        }
        backend.stage = Stage::Over;
        backend.leaving = true;
        false
    }

    /// A session that is idle says what was notified meanwhile.
    fn tell_news(&mut self, at: usize) {
        let backend = &mut self.backends[at];
        let Stage::Session(session) = &mut backend.stage else { return };
        session.engine.tell_news();
        session.unsent.push(&session.engine.out);
        session.engine.out.clear();
        session.unsent.pour(usize::MAX, &mut backend.outbox);
    }

    /// What servers say unasked.
    fn make_noise(&mut self, at: usize) {
        let on = self.dice.one_in(2);
        let backend = &mut self.backends[at];
        if let Stage::Session(session) = &mut backend.stage {
            session.unsent.pour(usize::MAX, &mut backend.outbox);
        }
        let out = backend.outbox.end();
        match self.dice.under(3) {
            0 => notice(out),
            1 => {
                let value: &[u8] = if on { b"on" } else { b"off" };
                say::parameter_status(out, b"in_hot_standby", value);
            }
            _ => wire::write::message(out, wire::tag::server::NOTIFICATION, |out| {
                out.extend_from_slice(NEWS);
            }),
        }
    }

    /// One message, or as much of a login.
    fn hear(&mut self, at: usize, weather: &Weather, now: u64) -> bool {
        match &self.backends[at].stage {
            Stage::Startup => self.start(at, weather, now),
            Stage::Login => self.log_in(at, weather),
            Stage::Session(_) => return self.serve(at, weather, now),
            Stage::Cancel { .. } | Stage::Over => {}
        }
        false
    }

    fn start(&mut self, at: usize, weather: &Weather, now: u64) {
        let backend = &mut self.backends[at];
        let len = wire::first_packet(backend.inbox.as_slice()).expect("ours").expect("whole");
        let packet = backend.inbox.take(len);
        match Startup::read(&packet) {
            Ok(Startup::CancelRequest { pid, key }) => {
                let delay = self.dice.under(20_000_000) as u64;
                backend.stage = Stage::Cancel { pid, key: key.to_vec(), at: now + delay };
            }
            Ok(Startup::V3 { minor, parameters }) => {
                for (name, value) in parameters {
                    match name {
                        b"user" => backend.user = value.to_vec(),
                        b"database" => backend.database = value.to_vec(),
                        other => panic!("unexpected startup parameter {other:?}"),
                    }
                }
                let long = minor >= 2 && weather.long_keys;
                if minor >= 2 && !long {
                    say::negotiate(backend.outbox.end(), 3 << 16, std::iter::empty::<&[u8]>());
                }
                let backend = &mut self.backends[at];
                backend.key = vec![0; if long { 32 } else { 4 }];
                let pid = backend.pid.to_be_bytes();
                backend.key[..4].copy_from_slice(&pid);
                backend.stage = Stage::Login;
                self.begin_login(at, weather);
            }
            Ok(Startup::SslRequest) => self.backends[at].outbox.end().push(b'N'),
            other => panic!("a server was greeted with {other:?}"),
        }
    }

    fn begin_login(&mut self, at: usize, weather: &Weather) {
        if self.fault(weather.rates.login_hangs) {
            self.backends[at].mute = true;
            return;
        }
        if self.fault(weather.rates.login_fails) {
            let reasons: [(&[u8], &[u8]); 3] = [
                (b"53300", b"sorry, too many clients already"),
                (b"57P03", b"the database system is starting up"),
                (b"28P01", b"password authentication failed for you"),
            ];
            let (code, text) = *self.dice.pick(&reasons);
            let backend = &mut self.backends[at];
            fatal(backend.outbox.end(), code, text);
            (backend.leaving, backend.stage) = (true, Stage::Over);
            return;
        }
        let backend = &mut self.backends[at];
        let secret = secrets::secret(weather.logins.stored, &backend.user);
        let claim = Claim {
            method: weather.logins.servers,
            user: &backend.user,
            account: Account::Secret(secret),
            channel: auth::Channel::Open,
        };
        let mut dice = auth::Dice { nonce: [0; 18], md5_salt: [0; 4] };
        self.dice.fill(&mut dice.nonce);
        self.dice.fill(&mut dice.md5_salt);
        let decoy = Decoy::new([7; 32], 1, Form::Scram);
        let (auth, step) = ClientAuth::start(claim, &decoy, dice);
        backend.auth = Some(Box::new(auth));
        self.login_step(at, step, weather);
    }

    fn log_in(&mut self, at: usize, weather: &Weather) {
        let backend = &mut self.backends[at];
        let len = backend.inbox.whole().expect("looked at before");
        let message = backend.inbox.take(len);
        assert_eq!(message[0], tag::PASSWORD, "the pooler must answer the login's question");
        let auth = backend.auth.as_mut().expect("a login is under way");
        let step = auth.answer(&message[5..]);
        self.login_step(at, step, weather);
    }

    fn login_step(&mut self, at: usize, mut step: Step, weather: &Weather) {
        let noisy = self.dice.one_in(weather.rates.noise.min(3));
        let backend = &mut self.backends[at];
        loop {
            let out = backend.outbox.end();
            step = match step {
                Step::Ask(Ask::Cleartext) => return say::authentication_cleartext(out),
                Step::Ask(Ask::Md5 { salt }) => return say::authentication_md5(out, salt),
                Step::Ask(Ask::Sasl { .. }) => {
                    return say::authentication_sasl(out, &[auth::SCRAM_SHA_256.as_bytes()]);
                }
                Step::Ask(Ask::SaslContinue(data)) => {
                    return say::authentication_sasl_continue(out, &data);
                }
                Step::Derive(job) => {
                    let derived = secrets::derive(job);
                    backend.auth.as_mut().expect("a login is under way").derived(&derived)
                }
                Step::Refer(_) => panic!("nobody else is asked"),
                Step::Refuse(why) => panic!("the pooler cannot log in: {why}"),
                Step::Accept(accepted) => {
                    if let Some(data) = accepted.sasl_final {
                        say::authentication_sasl_final(out, &data);
                    }
                    break;
                }
            };
        }
        backend.welcome(weather, &self.news, noisy);
    }

    /// One message of a session.
    fn serve(&mut self, at: usize, weather: &Weather, now: u64) -> bool {
        let backend = &mut self.backends[at];
        let Stage::Session(session) = &mut backend.stage else { return false };
        let len = backend.inbox.whole().expect("looked at before");
        let first = backend.inbox.as_slice()[0];
        match session.thinks {
            Some(until) if until > now => return false,
            Some(_) => session.thinks = None,
            None if !session.thought
                && matches!(first, tag::QUERY | tag::EXECUTE | tag::FUNCTION_CALL)
                && !session.engine.is_skipping()
                && self.dice.one_in(weather.rates.server_thinks) =>
            {
                session.thinks = Some(now + self.dice.under(30_000_000) as u64);
                session.thought = true;
                return false;
            }
            None => {}
        }
        session.thought = false;
        let message = backend.inbox.take(len);
        if first == tag::TERMINATE {
            return true;
        }
        trace::message(format_args!("     server {} hears", backend.pid), first, &message[5..]);
        session.check(first, &message[5..], self.resets);
        self.served += 1;
        let sets = session.engine.is_limited() && sets(first, &message[5..]);
        let stop = if sets && !session.engine.is_skipping() && self.dice.one_in(3) {
            session.engine.cancel_message(first)
        } else {
            session.engine.message(first, &message[5..])
        };
        self.went(at, first, stop, now);
        false
    }

    /// What came of a message with this tag, or of waiting.
    fn went(&mut self, at: usize, tag: u8, stop: Stop, now: u64) {
        let backend = &mut self.backends[at];
        let Stage::Session(session) = &mut backend.stage else { return };
        let engine = &mut session.engine;
        session.unsent.push(&engine.out);
        engine.out.clear();
        let urgent = std::mem::take(&mut engine.is_urgent);
        let ends = matches!(tag, tag::SYNC | tag::FLUSH | tag::COPY_DONE | tag::COPY_FAIL);
        let simple = matches!(tag, tag::QUERY | tag::FUNCTION_CALL | 0) && stop == Stop::Ready;
        let must = urgent || ends || simple || engine.is_copying() || stop == Stop::Dead;
        if must || !self.buffers || session.unsent.len() > 8192 {
            session.unsent.pour(usize::MAX, &mut backend.outbox);
        }
        match stop {
            Stop::Ready => {}
            Stop::Slow { ms } => session.wakes = now + u64::from(ms) * 1_000_000,
            Stop::Dead => (backend.leaving, backend.stage) = (true, Stage::Over),
        }
    }

    /// A cancel request takes effect: on what runs at this moment, if anything does.
    fn strike(&mut self, pid: u32, key: &[u8], now: u64) {
        let found = self.backends.iter().position(|b| b.pid == pid && b.key == key);
        let Some(at) = found else { return };
        let backend = &mut self.backends[at];
        let Stage::Session(session) = &mut backend.stage else { return };
        if session.engine.is_running() && !session.engine.is_copying() {
            assert!(!session.engine.runs_own(), "I6: a cancel struck a query of the pooler's own");
            let who = session.engine.runs_for().map(|who| who.client).or(session.owner);
            let stop = session.engine.cancel();
            self.struck(who);
            return self.went(at, 0, stop, now);
        }
        if session.thinks.is_none() {
            return;
        }
        // It strikes what is thought about: that begins with an error, and that is all.
        let len = backend.inbox.whole().expect("it is what is thought about");
        let message = backend.inbox.take(len);
        (session.thinks, session.thought) = (None, false);
        let own = message[0] == tag::QUERY && heard(message[0], &message[5..]) == Heard::Own;
        assert!(!own, "I6: a cancel struck a query of the pooler's own");
        session.check(message[0], &message[5..], self.resets);
        // An empty query does not say whose it is, nor what the pooler says in front of a request. Its client will notice.
        let who = session.owner.filter(|_| !session.unclaimed);
        let stop = session.engine.cancel_message(message[0]);
        self.struck(who);
        self.went(at, 0, stop, now);
    }

    fn struck(&mut self, who: Option<u32>) {
        let Some(who) = who else { return };
        let struck = self.struck.entry(who).or_insert(0);
        *struck += 1;
        let asked = self.asked.get(&who).copied().unwrap_or(0);
        assert!(*struck <= asked, "I6: a cancel struck client {who}, who asked for {asked}");
    }

    /// The backend at the far end of a link.
    pub(crate) fn at(&self, link: LinkId) -> Option<&Backend> {
        self.backends.iter().find(|backend| backend.link == link)
    }
}

impl Backend {
    fn welcome(&mut self, weather: &Weather, news: &Rc<RefCell<News>>, noisy: bool) {
        let desk = Desk::new(news.clone(), &self.database, self.pid);
        let engine =
            Engine::new(&String::from_utf8_lossy(&self.user), &[], weather.reports_at_once)
                .with_counts(weather.counts_changes)
                .with_desk(desk);
        let out = self.outbox.end();
        say::authentication_ok(out);
        if noisy {
            notice(out);
        }
        say::parameter_status(out, b"server_version", b"18.0");
        say::parameter_status(out, b"in_hot_standby", b"off");
        for (name, value) in engine.parameters() {
            say::parameter_status(out, name.as_bytes(), value);
        }
        say::backend_key_data(out, self.pid, &self.key);
        if noisy {
            notice(out);
        }
        say::ready_for_query(out, Status::Idle);
        self.stage = Stage::Session(Box::new(Session {
            engine,
            owner: None,
            stained: false,
            unclaimed: false,
            is_dressed: false,
            is_setting: false,
            wakes: 0,
            thinks: None,
            thought: false,
            unsent: Bytes::default(),
        }));
    }

    /// Whether nobody's traces are in it, as far as a server that is free must be clean.
    pub(crate) fn is_clean(&self) -> bool {
        match &self.stage {
            // Whole messages that came in are on their way still.
            Stage::Session(_) if self.inbox.whole().is_some() => true,
            Stage::Session(session) => {
                session.engine.is_clean() && !session.engine.is_tied() && self.inbox.is_empty()
            }
            // It dies, and the pooler has not heard.
            _ => true,
        }
    }
}

/// Whose a message is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Heard {
    Own,
    Of(Ident),
    Unknown,
}

fn heard(tag: u8, body: &[u8]) -> Heard {
    let who = match tag {
        tag::QUERY => match script::text(body.strip_suffix(b"\0").unwrap_or(body)) {
            Text::Own(_) => return Heard::Own,
            Text::Script { who, .. } => who,
            Text::Empty => None,
            Text::Garbled => panic!("I1: a garbled query: {:?}", String::from_utf8_lossy(body)),
        },
        tag::BIND => crate::engine::bound(body),
        tag::FUNCTION_CALL | tag::COPY_DATA => {
            let end = body.iter().position(|byte| *byte == b' ').expect("a name and a blank");
            let who = Ident::read(&body[..end]);
            assert!(who.is_some(), "I1: garbled {tag}: {:?}", String::from_utf8_lossy(body));
            who
        }
        _ => None,
    };
    who.map_or(Heard::Unknown, Heard::Of)
}

/// Whether it is one of those by which the pooler sets a session for a client.
fn sets(tag: u8, body: &[u8]) -> bool {
    match tag {
        tag::PARSE => begins_to_set(tag, body),
        // Struck in there, a hub is lost.
        tag::QUERY if body.starts_with(b"RESET SESSION AUTHORIZATION;RESET ALL") => false,
        tag::QUERY if heard(tag, body) == Heard::Own => {
            [&b"SET "[..], b"RESET ", b"SELECT pg_catalog.set_config("]
                .iter()
                .any(|begin| body.starts_with(begin))
        }
        _ => false,
    }
}

fn begins_to_set(tag: u8, body: &[u8]) -> bool {
    tag == tag::PARSE && wire::Parse::read(body).is_ok_and(|parse| parse.query == b"BEGIN")
}

impl Session {
    /// Whether the pooler is at it, or has failed to, so that nothing else is run now. Whoever speaks behind
    /// that finds a transaction that has failed, or is skipped.
    fn is_being_set(&mut self) -> bool {
        let is_over = self.is_setting && self.engine.is_clean();
        self.is_setting &= !is_over;
        self.is_setting
    }

    /// I1: nobody speaks in somebody else's transaction, batch, COPY or session.
    fn check(&mut self, tag: u8, body: &[u8], resets: bool) {
        let is_being_set = self.is_being_set();
        if begins_to_set(tag, body) {
            assert!(self.engine.is_clean(), "I1: the pooler begins in what {:?} does", self.owner);
            self.is_setting = true;
            return;
        }
        match heard(tag, body) {
            Heard::Of(who) if is_being_set => {
                let runs =
                    !self.engine.is_skipping() && self.engine.status() == Status::Transaction;
                assert!(!runs, "I1: {who} speaks in the pooler's transaction");
            }
            Heard::Unknown if is_being_set => {}
            Heard::Own => {
                // A savepoint is undone before its client says more; a transaction is ended that is the pooler's own.
                let puts_on = body.starts_with(b"SAVEPOINT ") && self.owner.is_some();
                let takes_off =
                    std::mem::take(&mut self.is_dressed) && body.starts_with(b"ROLLBACK");
                let may = self.engine.is_clean() || puts_on || takes_off || is_being_set;
                assert!(may, "I1: the pooler speaks in the transaction of {:?}", self.owner);
                self.is_dressed = puts_on || body.starts_with(b"BEGIN ISOLATION LEVEL");
                if body.starts_with(b"DISCARD ALL") {
                    (self.owner, self.stained) = (None, false);
                }
            }
            Heard::Of(who) if self.is_dressed => {
                panic!("I1: {who} speaks in the pooler's settings")
            }
            Heard::Of(who) if self.owner == Some(who.client) => self.unclaimed = false,
            Heard::Of(who) => {
                let fresh = self.engine.is_clean() || self.unclaimed;
                assert!(fresh, "I1: {who} speaks in the midst of what {:?} does", self.owner);
                assert!(
                    !(resets && self.stained),
                    "I1: {who} finds the session of {:?}",
                    self.owner
                );
                (self.owner, self.stained, self.unclaimed) = (Some(who.client), true, false);
            }
            // A Parse comes before the Bind that says whose it is.
            Heard::Unknown => self.unclaimed |= self.engine.is_clean(),
        }
    }
}

/// The body of every notification, which comes from a session that is none of ours.
pub(crate) const NEWS: &[u8] = b"\0\x3f\xff\xf7news\0\0";

fn notice(out: &mut Vec<u8>) {
    let report = Report {
        severity: b"NOTICE",
        with_v: true,
        code: b"00000",
        message: b"unasked",
        ..Report::default()
    };
    say::notice_response(out, &report);
}

fn fatal(out: &mut Vec<u8>, code: &[u8], message: &[u8]) {
    let report = Report { severity: b"FATAL", with_v: true, code, message, ..Report::default() };
    say::error_response(out, &report);
}
