//! The applications: they ask, and check every byte of every answer.
//!
//! What an application expects comes from a session of the model server that it has all to itself.
//! Its messages are given to that session when an answer comes that they may have brought about, so
//! what chance decides (did the cancel strike?) is seen from the answer, and checked in the next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use auth::ServerAuth;
use wire::tag::{client, server};
use wire::{ErrorFields, Status, write};

use crate::bytes::Bytes;
use crate::dice::Dice;
use crate::engine::{CANCELED, Engine, SETTABLE, Stop, Value};
use crate::login;
use crate::net::{End, LinkId, Net};
use crate::news::News;
use crate::requests::Requests;
use crate::trace;
use crate::weather::Weather;

/// One client.
pub(crate) struct Application {
    pub(crate) id: u32,
    pub(crate) link: LinkId,
    net: Rc<RefCell<Net>>,
    dice: Dice,
    stage: Stage,
    minor: u16,
    pub(crate) user: &'static str,
    pub(crate) database: String,
    wrong_password: bool,
    auth: Option<Box<ServerAuth>>,
    /// To be written.
    outbox: Bytes,
    /// How much of it ever was.
    written: u64,
    composed: u64,
    inbox: Bytes,
    /// What was said and is not accounted for.
    said: VecDeque<Said>,
    oracle: Engine,
    /// How much of the oracle's words was heard.
    heard: usize,
    /// Parameters told at login.
    told: usize,
    pub(crate) key: Option<(u32, Vec<u8>)>,
    pub(crate) cancels: u32,
    pub(crate) canceled: u32,
    requests: Requests,
    news: Rc<RefCell<News>>,
    /// The notes before this one were heard, as far as they had to be.
    news_heard: usize,
    /// Those before this one were there when it asked what it is answered now.
    news_due: usize,
    /// No more requests but those that end what is under way.
    pub(crate) winding_up: bool,
    /// It said goodbye, in words or not.
    leaving: bool,
    /// It was told to go.
    goodbye: Option<String>,
    pub(crate) answers: u64,
    /// Reads nothing for so many chances.
    stalls: u32,
    /// Says nothing for so many.
    rests: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// It asked for encryption, and waits for the `N`.
    Asking,
    Login,
    Session,
    Gone,
}

struct Said {
    tag: u8,
    body: Vec<u8>,
    /// It begins to be sent when more is written than this.
    start: u64,
    /// It is all sent when so much is written.
    end: u64,
    /// Notifications there were by then.
    notes: usize,
}

impl Application {
    pub(crate) fn new(
        id: u32,
        link: LinkId,
        net: Rc<RefCell<Net>>,
        news: Rc<RefCell<News>>,
        mut dice: Dice,
        weather: &Weather,
    ) -> Self {
        let user = ["ann", "bob"][dice.under(weather.users)];
        let database = format!("db{}", dice.under(weather.databases));
        let asked = asked_for(&mut dice, weather);
        let oracle = Engine::new(user, &asked, weather.reports_at_once);
        let mut app = Self {
            id,
            link,
            net,
            stage: Stage::Login,
            minor: *dice.pick(&[0, 2]),
            user,
            database,
            wrong_password: weather.logins.clients != "trust"
                && weather.logins.clients != "any"
                && dice.one_in(weather.rates.wrong_password),
            auth: None,
            outbox: Bytes::default(),
            written: 0,
            composed: 0,
            inbox: Bytes::default(),
            said: VecDeque::new(),
            oracle,
            heard: 0,
            told: 0,
            key: None,
            cancels: 0,
            canceled: 0,
            requests: Requests::new(id, dice.between(0, if weather.listens() { 80 } else { 30 })),
            news,
            news_heard: 0,
            news_due: 0,
            winding_up: false,
            leaving: false,
            goodbye: None,
            answers: 0,
            stalls: 0,
            rests: 0,
            dice,
        };
        if app.dice.one_in(5) {
            app.stage = Stage::Asking;
            app.compose(write::client::ssl_request);
        } else {
            app.introduce();
        }
        app
    }

    /// The startup packet. It asks for what the oracle's session began with.
    fn introduce(&mut self) {
        let defaults = Engine::new(self.user, &[], false);
        let differs = self.oracle.parameters().zip(defaults.parameters());
        let asked: Vec<(Vec<u8>, Vec<u8>)> = differs
            .filter(|((_, mine), (_, default))| mine != default)
            .map(|((name, mine), _)| (name.as_bytes().to_vec(), mine.to_vec()))
            .collect();
        let (user, database, minor) = (self.user, self.database.clone(), self.minor);
        self.compose(|out| {
            let names = [(&b"user"[..], user.as_bytes()), (b"database", database.as_bytes())];
            let asked = asked.iter().map(|(name, value)| (&name[..], &value[..]));
            write::client::startup(out, minor, names.into_iter().chain(asked));
        });
        self.stage = Stage::Login;
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Logged in.
    pub(crate) fn is_in(&self) -> bool {
        self.stage == Stage::Session && self.goodbye.is_none() && !self.leaving
    }

    /// Something was asked and not yet answered.
    pub(crate) fn is_waiting(&self) -> bool {
        let asks = |said: &Said| {
            !matches!(
                said.tag,
                client::COPY_DATA | client::COPY_DONE | client::COPY_FAIL | client::FLUSH
            )
        };
        self.said.iter().any(asks) || self.oracle.is_running() || self.heard < self.oracle.out.len()
    }

    /// It does something, or nothing.
    pub(crate) fn act(&mut self, weather: &Weather) {
        if self.stage == Stage::Gone {
            return;
        }
        if !self.winding_up && self.dice.one_in(weather.rates.client_dies) {
            let how = if self.dice.one_in(2) { End::Reset } else { End::Eof };
            return self.leave(how);
        }
        match self.dice.under(3) {
            0 => self.write(weather),
            1 => self.read(weather),
            _ => {
                self.read(weather);
                self.say_more(weather);
                self.write(weather);
            }
        }
    }

    fn write(&mut self, weather: &Weather) {
        if self.outbox.is_empty() || self.stage == Stage::Gone {
            return;
        }
        let mut net = self.net.borrow_mut();
        let room = net.room(self.link);
        let count = weather.wire.piece(&mut self.dice, self.outbox.len().min(room));
        net.write(self.link, &self.outbox.as_slice()[..count]);
        self.outbox.skip(count);
        self.written += count as u64;
        // Some close their side behind the goodbye. They may wait in vain: while what they asked for
        // stands in line, the pooler takes them for gone.
        let closes = !weather.is_calm() && self.dice.one_in(2);
        if self.leaving && self.outbox.is_empty() && closes {
            net.half_close(self.link);
        }
    }

    fn read(&mut self, weather: &Weather) {
        if self.stalls > 0 && !self.winding_up {
            self.stalls -= 1;
            return;
        }
        if self.dice.one_in(weather.rates.client_stalls) {
            self.stalls = 20;
        }
        let count = weather.wire.piece(&mut self.dice, 65_536);
        let end = self.net.borrow_mut().read(self.link, count, &mut self.inbox);
        if self.stage == Stage::Asking && self.inbox.as_slice().first() == Some(&b'E') {
            // It took too long to ask.
            self.stage = Stage::Login;
        }
        if self.stage == Stage::Asking && !self.inbox.is_empty() {
            assert_eq!(self.inbox.take(1), b"N", "asked for encryption");
            self.introduce();
        }
        while let Some(len) = self.inbox.whole() {
            let message = self.inbox.take(len);
            self.hear(&message, weather);
        }
        if let Some(end) = end {
            self.hung_up_on(end, weather);
        }
    }

    fn leave(&mut self, how: End) {
        self.stage = Stage::Gone;
        self.net.borrow_mut().leave(self.link, how);
    }

    /// The pooler hung up.
    fn hung_up_on(&mut self, end: End, weather: &Weather) {
        if self.stage == Stage::Gone {
            return;
        }
        if weather.is_calm() {
            assert!(
                self.leaving || self.goodbye.is_some(),
                "client {} was hung up on ({end:?}) in the midst of its conversation",
                self.id
            );
            // What came before the goodbye is answered first.
            assert!(
                !self.leaving || self.is_answered(weather),
                "client {} said goodbye, and the answer it was owed never came",
                self.id
            );
        }
        self.leave(End::Eof);
    }

    /// Whether all that was said up to the goodbye got its answer.
    fn is_answered(&mut self, weather: &Weather) -> bool {
        if !self.requests.ends_answered(weather) {
            return true;
        }
        while let Some(said) = self.said.pop_front() {
            if self.oracle.message(said.tag, &said.body) != Stop::Ready {
                return false;
            }
        }
        self.heard == self.oracle.out.len()
    }

    // ---- Listening.

    fn hear(&mut self, message: &[u8], weather: &Weather) {
        self.answers += 1;
        let (tag, body) = (message[0], &message[5..]);
        trace::message(format_args!("           client {} hears", self.id), tag, body);
        assert!(
            self.goodbye.is_none(),
            "client {} heard {:?} after the last word",
            self.id,
            char::from(tag)
        );
        if tag == server::ERROR && ErrorFields::new(body).severity() == b"FATAL" {
            return self.told_to_go(message, weather);
        }
        match self.stage {
            Stage::Login => self.hear_at_login(tag, body),
            Stage::Session => self.hear_in_session(tag, message, weather),
            Stage::Asking | Stage::Gone => {}
        }
    }

    fn told_to_go(&mut self, message: &[u8], weather: &Weather) {
        let fields = ErrorFields::new(&message[5..]);
        let text = String::from_utf8_lossy(fields.message()).into_owned();
        let by_server = fields.field(b'V').is_some() && fields.code() == b"57P01";
        let mine = self.requests.may_be_refused(&text);
        assert!(
            mine || self.wrong_password && text.ends_with("authentication failed")
                || crate::excuses::excuses(&text, by_server, weather),
            "client {} was told to go: {}",
            self.id,
            show(message)
        );
        self.goodbye = Some(text);
    }

    fn hear_at_login(&mut self, tag: u8, body: &[u8]) {
        match tag {
            server::AUTHENTICATION => self.authenticate(body),
            server::PARAMETER_STATUS => {
                let status = wire::ParameterStatus::read(body).expect("well formed");
                let mut known = self.oracle.parameters();
                if let Some((name, value)) = known.find(|(name, _)| name.as_bytes() == status.name)
                {
                    let got = String::from_utf8_lossy(status.value);
                    let want = String::from_utf8_lossy(value);
                    assert_eq!(got, want, "client {} was told another {name}", self.id);
                    self.told += 1;
                }
            }
            server::BACKEND_KEY_DATA => {
                let key = wire::BackendKey::read(body).expect("well formed");
                let len = if self.minor >= 2 { 32 } else { 4 };
                assert_eq!(key.key.len(), len, "a key of protocol 3.{}", self.minor);
                self.key = Some((key.pid, key.key.to_vec()));
            }
            server::READY_FOR_QUERY => {
                assert!(!self.wrong_password, "client {} got in with a wrong password", self.id);
                assert!(self.key.is_some(), "let in without a key");
                assert_eq!(self.told, SETTABLE.len(), "parameters are missing at login");
                self.stage = Stage::Session;
            }
            server::NOTICE => {}
            other => panic!("client {} heard {:?} at login", self.id, char::from(other)),
        }
    }

    fn authenticate(&mut self, body: &[u8]) {
        let mut out = Vec::new();
        login::answer(
            &mut self.auth,
            self.user,
            self.wrong_password,
            &mut self.dice,
            body,
            &mut out,
        );
        self.compose(|to| to.extend_from_slice(&out));
    }

    fn hear_in_session(&mut self, tag: u8, message: &[u8], weather: &Weather) {
        let body = &message[5..];
        match tag {
            server::NOTIFICATION if body == crate::postgres::NEWS => return,
            server::NOTIFICATION => return self.hear_news(body),
            server::NOTICE => {
                let text = ErrorFields::new(body).message();
                if text == b"unasked" || text.ends_with(b"client being queued") {
                    return;
                }
            }
            server::PARAMETER_STATUS => {
                let status = wire::ParameterStatus::read(body).expect("well formed");
                if status.name == b"in_hot_standby" {
                    return;
                }
            }
            _ => {}
        }
        let canceled = tag == server::ERROR
            && ErrorFields::new(body).code() == CANCELED
            && ErrorFields::new(body).message().starts_with(b"canceling");
        while self.heard == self.oracle.out.len() {
            self.expect_more(canceled, message);
        }
        self.allow_for_a_failed_transaction(tag, body, weather);
        let expected = &self.oracle.out[self.heard..];
        let len = u32::from_be_bytes(expected[1..5].try_into().expect("four")) as usize + 1;
        assert!(
            message == &expected[..len],
            "client {} heard {}, expected {}; left {:?}",
            self.id,
            show(message),
            show(&expected[..len]),
            self.said.iter().map(|said| char::from(said.tag)).collect::<String>(),
        );
        if tag == server::READY_FOR_QUERY && body == b"I" {
            self.has_heard_all();
        }
        self.heard += len;
        if self.heard == self.oracle.out.len() {
            self.heard = 0;
            self.oracle.out.clear();
        }
        self.requests.heard(tag, body);
    }

    /// A notification: of those it has to hear, the next one.
    fn hear_news(&mut self, body: &[u8]) {
        let news = self.news.borrow();
        let (id, shown) = (self.id, String::from_utf8_lossy(body));
        let Some(number) = news.which(body) else {
            panic!("client {id} hears half a word, or what nobody notified: {shown}")
        };
        let next = news.due(id, self.database.as_bytes(), self.news_heard, number + 1);
        assert!(
            next == Some(number),
            "client {id} hears notification {number}, where {next:?} was to come: {shown}"
        );
        self.news_heard = number + 1;
    }

    /// What had been notified when it asked, it hears before it is answered.
    fn has_heard_all(&mut self) {
        if self.cancels > 0 {
            // It may have been taken out of the line: then no server was asked.
            return;
        }
        let news = self.news.borrow();
        let missed = news.due(self.id, self.database.as_bytes(), self.news_heard, self.news_due);
        assert!(missed.is_none(), "client {} never heard notification {missed:?}", self.id);
    }

    /// In a failed transaction a statement cannot be prepared, and so not be described, on a server
    /// that does not have it yet. Directly it could have been.
    fn allow_for_a_failed_transaction(&mut self, tag: u8, body: &[u8], weather: &Weather) {
        if tag == server::ERROR
            && ErrorFields::new(body).code() == b"25P02"
            && weather.rewrites()
            && self.oracle.status() == Status::Failed
            && self.oracle.out[self.heard] == server::PARAMETER_DESCRIPTION
        {
            (self.heard, self.oracle.out) = (0, Vec::new());
            self.oracle.refuse_describe();
        }
    }

    /// Let the oracle say one thing more.
    fn expect_more(&mut self, canceled: bool, message: &[u8]) {
        if self.oracle.is_running() && !self.oracle.is_copying() {
            if canceled {
                self.oracle.cancel();
                return self.was_canceled();
            }
            self.oracle.wake();
            return;
        }
        let Some(said) = self.said.pop_front() else {
            panic!("client {} heard {}, and expected nothing", self.id, show(message))
        };
        // Whether the statement of a Bind can be had may be known before its last parameter.
        self.news_due = self.news_due.max(said.notes);
        let from = if said.tag == client::BIND { said.start } else { said.end };
        assert!(from <= self.written, "client {} was answered before it asked", self.id);
        let extended = matches!(
            said.tag,
            client::PARSE | client::BIND | client::DESCRIBE | client::CLOSE | client::EXECUTE
        );
        let strikes = extended || matches!(said.tag, client::QUERY | client::FUNCTION_CALL);
        if canceled && strikes && !self.oracle.is_skipping() {
            self.oracle.cancel_message(said.tag);
            return self.was_canceled();
        }
        // Should the server die of it, what it says before is still to be heard.
        let _ = self.oracle.message(said.tag, &said.body);
    }

    fn was_canceled(&mut self) {
        self.canceled += 1;
        assert!(
            self.canceled <= self.cancels,
            "I6: client {} was cancelled, and asked for {} cancels",
            self.id,
            self.cancels
        );
    }

    // ---- Speaking.

    fn compose(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let before = self.outbox.len();
        fill(self.outbox.end());
        self.composed += (self.outbox.len() - before) as u64;
    }

    fn say(&mut self, bytes: &[u8]) {
        let notes = self.news.borrow().len();
        let (mut scanner, mut rest) = (wire::Scanner::default(), bytes);
        while let Some(piece) = scanner.next(&mut rest).expect("our own") {
            let end = self.composed + (bytes.len() - rest.len()) as u64;
            trace::message(format_args!("client {} says", self.id), piece.tag, piece.body);
            if piece.tag != client::TERMINATE {
                let start = end - piece.body.len() as u64 - 5;
                self.said.push_back(Said {
                    tag: piece.tag,
                    body: piece.body.to_vec(),
                    start,
                    end,
                    notes,
                });
            }
        }
        self.compose(|out| out.extend_from_slice(bytes));
    }

    /// Think of something to ask, unless enough is under way.
    fn say_more(&mut self, weather: &Weather) {
        let enough = self.said.len() > weather.pipeline * 8;
        // What is skipped is never answered: only a Sync brings things on again.
        if !self.is_in() || enough && !self.winding_up && !self.dice.one_in(20) {
            return;
        }
        if weather.pipeline == 1 && self.is_waiting() && !self.requests.is_free_to_pipeline() {
            return;
        }
        if self.rests > 0 && !self.winding_up {
            self.rests -= 1;
            return;
        }
        if weather.listens() && self.dice.one_in(3) {
            // Whoever listens has little else to do.
            self.rests = self.dice.under(12);
        }
        let mut out = Vec::new();
        let idle = !self.is_waiting();
        self.leaving = self.requests.next(&mut self.dice, weather, self.winding_up, idle, &mut out);
        self.say(&out);
    }

    /// What it waits for, for a person.
    pub(crate) fn describe(&self) -> String {
        let said: String = self.said.iter().map(|said| char::from(said.tag)).collect();
        format!(
            "client {} (link {}, {:?}, {:?}): said {said:?}, {} bytes not written, expects {} bytes{}{}",
            self.id,
            self.link.0,
            self.stage,
            self.oracle.status(),
            self.outbox.len(),
            self.oracle.out.len() - self.heard,
            if self.oracle.is_running() { ", something runs" } else { "" },
            if self.leaving { ", said goodbye" } else { "" },
        )
    }
}

fn asked_for(dice: &mut Dice, weather: &Weather) -> Vec<(usize, Value)> {
    // A RESET within a transaction leads to the server's values, and not to these: a known difference.
    let resets = weather.follows() && weather.rates.forgets > 0;
    if resets || !dice.one_in(weather.rates.sets) {
        return Vec::new();
    }
    let at = dice.under(SETTABLE.len());
    vec![(at, Rc::from(*dice.pick(crate::requests::VALUES[at])))]
}

fn show(message: &[u8]) -> String {
    let body = String::from_utf8_lossy(&message[5..]);
    let body: String = body.chars().take(200).collect();
    format!("{:?} {:?}", char::from(message[0]), body)
}
