//! Inquiries: the secret of a user who is in no file, asked of a server by `auth_query`, and the roles
//! that a user belongs to.
//!
//! An inquiry stands in a pool's line as a client would. All who log in as the same user wait for
//! one inquiry, but only for one whose query was sent after they came: what was changed before
//! somebody came must hold for it. So each has the answer that it would have got alone, and a storm
//! of a thousand logins costs a handful of queries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use auth::{Account, Membership, Secret};
use io::Driver;
use pool::{ClientId, Duration, Instant, PoolId};
use session::{Found, Own};

use crate::client::State;
use crate::end::Why;
use crate::enter::Outcome;
use crate::log::{Level, Side, Subject};
use crate::worker::Worker;
use crate::world::World;

/// One inquiry, from its place in line to its answer.
pub(crate) struct Inquiry {
    question: Question,
    /// The server that works on it; `None` while it is in line.
    server: Option<u32>,
    since: Instant,
    /// Clients that wait for the answer.
    askers: Vec<Asker>,
    /// Clients that came after the query was sent.
    late: Vec<Asker>,
}

/// A client that waits for an answer: slots are used again, ids never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Asker {
    slot: u32,
    id: u64,
}

/// What is asked, of which servers, about whom.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Question {
    pub(crate) pool: PoolId,
    pub(crate) user: Arc<str>,
    pub(crate) topic: Topic,
}

/// What is asked about somebody.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Topic {
    /// By this query.
    Secret(Arc<str>),
    /// To which of these it belongs.
    Roles(Arc<[Box<str>]>),
}

/// What is known then.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Account(Account),
    Roles(Membership),
}

/// An inquiry's number in its pool's line: those of clients are slots, and never come near. They are
/// not used again before all have been, so that an order for one that is gone meets no other.
const NUMBERS: u32 = 1 << 31;

/// Whose place in line this is, if it is not a client's.
pub(crate) fn index(number: u32) -> Option<u32> {
    number.checked_sub(NUMBERS)
}

/// What a client is told when it cannot be found out who it is. The log says more.
const TROUBLE: &str = "bouncer config error";

/// Longest secret, in bytes: a client could not send a longer password.
const SECRET_MAX: usize = 65_535;

/// When nobody waits for an answer any more, it may still take this long.
const UNASKED: Duration = Duration::from_secs(15);

/// Answers that were given, in all workers together. They are used only while so many log in as one
/// user that queries would do harm; until then everybody's secret is asked for afresh, so that a
/// change of it takes effect at once.
#[derive(Default)]
pub(crate) struct Answers(BTreeMap<Question, Answered>);

struct Answered {
    /// Logins since then.
    logins: u32,
    since: Instant,
    /// And when it was asked for.
    answer: Option<(Answer, Instant)>,
}

/// Within this time ...
const WINDOW: Duration = Duration::from_secs(1);
/// ... so many logins as one user are a storm: what follows is answered from memory,
const STORM: u32 = 32;
/// if the answer is not older than this,
const FOUND_FOR: Duration = Duration::from_secs(1);
/// or than this if there was no such user.
const MISSED_FOR: Duration = Duration::from_millis(250);

/// More answers than this are not kept.
const ANSWERS_MAX: usize = 10_000;

impl Answers {
    /// Somebody asks: the answer, if it may be given from memory.
    pub(crate) fn recall(&mut self, question: &Question, now: Instant) -> Option<Answer> {
        if self.0.len() >= ANSWERS_MAX && !self.0.contains_key(question) {
            self.0.retain(|_, answered| now.since(answered.since) < WINDOW);
            if self.0.len() >= ANSWERS_MAX {
                self.0.clear();
            }
        }
        let new = || Answered { logins: 0, since: now, answer: None };
        let answered = self.0.entry(question.clone()).or_insert_with(new);
        if now.since(answered.since) >= WINDOW {
            (answered.logins, answered.since) = (0, now);
        }
        answered.logins += 1;
        let (answer, asked_at) = answered.answer.as_ref()?;
        let missed = matches!(answer, Answer::Account(Account::Unknown));
        let life = if missed { MISSED_FOR } else { FOUND_FOR };
        let fresh = now.since(*asked_at) < life;
        (answered.logins > STORM && fresh).then(|| answer.clone())
    }

    fn keep(&mut self, question: &Question, answer: &Answer, asked_at: Instant) {
        if let Some(answered) = self.0.get_mut(question) {
            answered.answer = Some((answer.clone(), asked_at));
        }
    }

    /// It was perhaps not true any more.
    fn doubt(&mut self, question: &Question) {
        if let Some(answered) = self.0.get_mut(question) {
            answered.answer = None;
        }
    }
}

/// Why no answer can be had.
pub(crate) enum Trouble {
    /// In the configuration: the log gets this line.
    Config(String),
    /// The database may not be used now.
    Disabled(String),
}

impl<D: Driver, W: World> Worker<D, W> {
    /// What is known of the user that `slot` says it is. `None`: that is being asked, and
    /// [`Worker::account_found`] follows, or it has been turned away.
    pub(crate) fn account(&mut self, slot: u32) -> Option<Account> {
        let State::Login(entering) = &self.clients[slot as usize].state else { return None };
        let wish = entering.wish.as_deref()?;
        if let Some(secret) = self.site.userlist.secret(&wish.facts.user) {
            return Some(Account::Secret(secret.clone()));
        }
        let question = match self.question(slot) {
            Ok(Some(question)) => question,
            Ok(None) => return Some(Account::Unknown),
            Err(trouble) => {
                self.tell_trouble(slot, &trouble);
                return None;
            }
        };
        let recalled = self.commons.memory().answers.recall(&question, self.now);
        if let State::Login(entering) = &mut self.clients[slot as usize].state {
            entering.question = Some(question.clone());
        }
        match recalled {
            Some(Answer::Account(account)) => {
                self.note_account(slot, &account);
                Some(account)
            }
            Some(Answer::Roles(_)) | None => {
                self.inquire(slot, question);
                None
            }
        }
    }

    /// How the secret of the user of `slot` is asked for; nothing where nobody is set to ask for it.
    fn question(&mut self, slot: u32) -> Result<Option<Question>, Trouble> {
        let State::Login(entering) = &self.clients[slot as usize].state else { return Ok(None) };
        let Some(wish) = entering.wish.as_deref() else { return Ok(None) };
        let (user, asked) = (wish.user.clone(), wish.database.clone());
        let database = if *asked == *admin::CONSOLE { None } else { self.database_of(&asked) };
        let own = database.as_deref().and_then(|database| database.auth_query.as_deref());
        let query = own.unwrap_or(&self.site.config.settings.auth_query);
        let topic = Topic::Secret(query.into());
        Ok(self.asker(slot)?.map(|pool| Question { pool, user, topic }))
    }

    /// Whose servers are asked about the user of `slot`: those of `auth_user`, if it is set.
    pub(crate) fn asker(&mut self, slot: u32) -> Result<Option<PoolId>, Trouble> {
        let site = self.site.clone();
        let settings = &site.config.settings;
        let State::Login(entering) = &self.clients[slot as usize].state else { return Ok(None) };
        let Some(wish) = entering.wish.as_deref() else { return Ok(None) };
        let console =
            matches!(wish.outcome, Outcome::Console(_)) || *wish.database == *admin::CONSOLE;
        // PostgreSQL has no user whose name is not text.
        if str::from_utf8(&wish.facts.user).is_err() {
            return Ok(None);
        }
        let asked = wish.database.clone();
        let database = if console { None } else { self.database_of(&asked) };
        // Of a database that does not exist there is nobody to ask, and no sign of that to give.
        if database.is_none() && !console {
            return Ok(None);
        }
        let own = |pick: fn(&config::Database) -> &Option<String>| {
            database.as_deref().and_then(|database| pick(database).as_deref())
        };
        let asker = own(|db| &db.auth_user).or(settings.auth_user.as_deref());
        let Some(asker) = asker.filter(|asker| !asker.is_empty()) else { return Ok(None) };
        let place = own(|db| &db.auth_dbname).or(settings.auth_dbname.as_deref());
        let place: Arc<str> = place.map_or(asked, Arc::from);
        if *place == *admin::CONSOLE {
            let name = admin::CONSOLE;
            let text = format!("cannot use the reserved \"{name}\" database as an auth_dbname");
            return Err(Trouble::Config(text));
        }
        let Some(database) = self.database_of(&place) else {
            let text = format!("authentication database \"{place}\" is not configured.");
            return Err(Trouble::Config(text));
        };
        if self.standing.marks(&place).disabled {
            let text = format!("authentication database \"{place}\" is disabled");
            return Err(Trouble::Disabled(text));
        }
        Ok(Some(self.room_for(&place, &asker.into(), &database)))
    }

    pub(crate) fn tell_trouble(&mut self, slot: u32, trouble: &Trouble) {
        let (Trouble::Config(text) | Trouble::Disabled(text)) = trouble;
        // Who it is, is not known yet: that is how people's parsers of logs know this line.
        let card = &self.clients[slot as usize].card;
        let (side, id) = (Side::Client, card.id);
        let subject =
            Subject { side, id, database: None, user: None, ends: Some(&card.ends.open()) };
        self.world.log().line(Level::Error, format_args!("{subject} {text}"));
        self.client_leaves(slot, Why::text(TROUBLE));
    }

    /// `slot` waits for the answer to `question`.
    pub(crate) fn inquire(&mut self, slot: u32, question: Question) {
        let asker = Asker { slot, id: self.clients[slot as usize].card.id };
        let known = self.inquiry_ids.get(&question).copied();
        if let Some(inquiry) = known.and_then(|index| self.inquiries.get_mut(&index)) {
            match inquiry.server {
                None => inquiry.askers.push(asker),
                Some(_) => inquiry.late.push(asker),
            }
            return;
        }
        self.begin_inquiry(question, vec![asker]);
    }

    fn begin_inquiry(&mut self, question: Question, askers: Vec<Asker>) {
        let (pool, now) = (question.pool, self.now);
        let late = Vec::new();
        let inquiry =
            Inquiry { question: question.clone(), server: None, since: now, askers, late };
        let index = self.next_inquiry;
        // The last number is no inquiry's: it stands for a hub.
        self.next_inquiry = (index + 1) % (NUMBERS - 1);
        self.inquiries.insert(index, inquiry);
        self.inquiry_ids.insert(question, index);
        self.with_pool(pool, |pool, out| pool.acquire(ClientId(NUMBERS | index), now, out));
        self.carry_out();
    }

    /// The pool gave an inquiry a server. Either may have gone since it did.
    pub(crate) fn link_inquiry(&mut self, index: u32, entry: u32) {
        let (now, ready) = (self.now, self.is_ready(entry));
        let inquiry = self.inquiries.get_mut(&index);
        let Some(inquiry) = inquiry.filter(|inquiry| inquiry.server.is_none()) else {
            if ready {
                self.release(entry);
            }
            return;
        };
        let (pool, number) = (inquiry.question.pool, ClientId(NUMBERS | index));
        if !ready {
            return self.with_pool(pool, |pool, out| pool.acquire(number, now, out));
        }
        inquiry.server = Some(entry);
        inquiry.since = now;
        let server = &mut self.servers[entry as usize];
        server.client = Some(number);
        server.since = now;
        // What a client left there must have no say in who is let in: a search_path that leads to
        // another function, a temporary table, a role.
        if mem::take(&mut server.touched) {
            self.run_own(entry, Own::Clean, b"DISCARD ALL");
        } else {
            self.look_up(entry);
        }
    }

    /// The server is as it was after its login, but for its connect_query.
    pub(crate) fn cleaned(&mut self, entry: u32) {
        let pool = self.servers[entry as usize].pool;
        let query = self.room(pool).and_then(|room| room.database.connect_query.clone());
        match query.filter(|query| !query.is_empty()) {
            Some(query) => self.run_own(entry, Own::Reconnect, query.as_bytes()),
            None => self.look_up(entry),
        }
    }

    /// Send the query.
    pub(crate) fn look_up(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        let inquiry = server.client.and_then(|client| index(client.0));
        let inquiry = inquiry.and_then(|index| self.inquiries.get(&index));
        let Some(inquiry) = inquiry else { return self.release(entry) };
        let mut out = Vec::new();
        let user = &inquiry.question.user;
        let query = match &inquiry.question.topic {
            Topic::Secret(query) => Cow::Borrowed(&**query),
            Topic::Roles(roles) => Cow::Owned(auth::roles::query(roles)),
        };
        server.own = Some(Own::Lookup);
        server.since = self.now;
        server.side.look_up(query.as_bytes(), user.as_bytes(), &mut out);
        self.send_to_server(entry, &out);
    }

    /// The query was answered.
    pub(crate) fn looked_up(&mut self, entry: u32, error: Option<&[u8]>, found: &Found) {
        let server = &mut self.servers[entry as usize];
        let number = server.client.take();
        server.own = None;
        if server.side.is_spoilt() || server.side.in_transaction() {
            self.server_dies(entry, "unclean server");
        } else if error.is_some() {
            // An error leaves the query behind as the unnamed statement; a simple query drops it.
            self.free_server(entry);
            self.run_own(entry, Own::Check, b";");
        } else {
            self.release(entry);
        }
        let Some(index) = number.and_then(|number| index(number.0)) else { return };
        let Some(inquiry) = self.inquiries.get(&index) else { return };
        let Question { user, topic, .. } = &inquiry.question;
        let (answer, what) = match topic {
            Topic::Secret(_) => (account(user, found).map(Answer::Account), "auth_query"),
            Topic::Roles(roles) => {
                (roles_in(roles, found).map(Answer::Roles), "the query for the roles of a user")
            }
        };
        let answer = error.map_or(answer, |body| Err(told(body)));
        match answer {
            Ok(answer) => self.inquiry_done(index, &Ok(answer)),
            Err(text) => {
                self.log(Level::Error, format_args!("S: error in {what}: {text}"));
                self.inquiry_done(index, &Err(Why::text(TROUBLE)));
            }
        }
    }

    /// The server of an inquiry is gone.
    pub(crate) fn inquiry_lost_server(&mut self, index: u32) {
        self.inquiry_done(index, &Err(Why::text(TROUBLE)));
    }

    /// The pool has no server for an inquiry.
    pub(crate) fn inquiry_refused(&mut self, index: u32, why: Why) {
        self.inquiry_done(index, &Err(why));
    }

    /// All who wait for an inquiry hear of it; who came late is asked for anew.
    fn inquiry_done(&mut self, index: u32, result: &Result<Answer, Why>) {
        let Some(inquiry) = self.inquiries.remove(&index) else { return };
        let Inquiry { question, since, askers, late, .. } = inquiry;
        self.inquiry_ids.remove(&question);
        if let Ok(answer) = result {
            let mut memory = self.commons.memory();
            memory.answers.keep(&question, answer, since);
            if let Answer::Account(Account::Secret(secret)) = answer {
                memory.looked_up_form = Some(secret.form());
            }
        }
        if !late.is_empty() {
            self.begin_inquiry(question, late);
        }
        for Asker { slot, id } in askers {
            let client = self.clients.get(slot as usize);
            if client.is_none_or(|client| client.card.id != id) {
                continue;
            }
            match result {
                Ok(Answer::Account(account)) => {
                    self.note_account(slot, account);
                    self.account_found(slot, account.clone());
                }
                Ok(Answer::Roles(roles)) => self.roles_found(slot, roles.clone()),
                Err(why) => self.client_leaves(slot, why.clone()),
            }
        }
    }

    /// The server that `slot` will be logged in to needs the secret too, and the log the truth.
    fn note_account(&mut self, slot: u32, account: &Account) {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return };
        let Some(wish) = entering.wish.as_deref_mut() else { return };
        match account {
            Account::Unknown => wish.unknown = true,
            Account::WithoutSecret => {}
            Account::Secret(secret) => wish.secret = Some(secret.clone()),
        }
    }

    /// `slot` did not prove itself by what we know; perhaps that is no longer true.
    pub(crate) fn doubt_answer(&mut self, slot: u32) {
        let State::Login(entering) = &self.clients[slot as usize].state else { return };
        if let Some(question) = &entering.question {
            self.commons.memory().answers.doubt(question);
        }
    }

    /// A client that was logging in goes.
    pub(crate) fn asker_left(&mut self, slot: u32, question: &Question) {
        let Some(index) = self.inquiry_ids.get(question).copied() else { return };
        let Some(inquiry) = self.inquiries.get_mut(&index) else { return };
        inquiry.askers.retain(|asker| asker.slot != slot);
        inquiry.late.retain(|asker| asker.slot != slot);
        // What a server works on is better finished than cut off.
        if inquiry.askers.is_empty() && inquiry.server.is_none() {
            let Some(inquiry) = self.inquiries.remove(&index) else { return };
            self.inquiry_ids.remove(&inquiry.question);
            let number = ClientId(NUMBERS | index);
            self.with_pool(inquiry.question.pool, |pool, out| pool.forget(number, out));
        }
    }

    /// Inquiries that nobody waits for, or that take longer than a query may.
    pub(crate) fn tick_inquiries(&mut self) {
        let mut late = Vec::new();
        for inquiry in self.inquiries.values() {
            let Some(server) = inquiry.server else { continue };
            let terms = self.room(inquiry.question.pool).and_then(|room| room.terms.query);
            let unasked = inquiry.askers.is_empty() && inquiry.late.is_empty();
            let past = |limit: Duration| inquiry.since.after(limit) <= self.now;
            if unasked && past(UNASKED) {
                late.push((server, "auth_query takes too long"));
            } else if terms.is_some_and(past) {
                late.push((server, "query timeout"));
            }
        }
        for (server, reason) in late {
            self.server_dies(server, reason);
        }
    }
}

/// What the answer to an `auth_query` says of `user`; or what is wrong with it.
fn account(user: &str, found: &Found) -> Result<Account, String> {
    let columns = found.columns.unwrap_or(0);
    if columns != 2 {
        return Err(format!("it must give two columns, the user and the secret, not {columns}"));
    }
    let Some(row) = &found.row else { return Ok(Account::Unknown) };
    let broken = |_| "it cannot be read".to_owned();
    let mut row = wire::DataRow::read(row).map_err(broken)?;
    let mut next = || row.next().transpose().map(Option::flatten).map_err(broken);
    // Nobody becomes somebody else by it. NULL is nobody: functions that return one row always say so.
    if next()?.is_none_or(|name| name != user.as_bytes()) {
        return Ok(Account::Unknown);
    }
    match next()? {
        None => Ok(Account::WithoutSecret),
        Some(secret) if secret.len() > SECRET_MAX => Err("the secret is too long".to_owned()),
        Some(secret) => Ok(Account::Secret(Secret::parse(secret))),
    }
}

/// What the answer says of the roles of a user.
fn roles_in(asked: &Arc<[Box<str>]>, found: &Found) -> Result<Membership, String> {
    let broken = || "it cannot be read".to_owned();
    let mut row = wire::DataRow::read(found.row.as_deref().ok_or_else(broken)?)
        .map_err(|_| broken())?
        .skip(1);
    match row.next().and_then(Result::ok).ok_or_else(broken)? {
        None => Ok(Membership::none(asked.clone())),
        Some(numbers) => Membership::read(asked.clone(), numbers).ok_or_else(broken),
    }
}

/// An error of the server's, for the log.
fn told(body: &[u8]) -> String {
    let fields = wire::ErrorFields::new(body);
    let severity = String::from_utf8_lossy(fields.severity());
    format!("{severity}: {}", String::from_utf8_lossy(fields.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(user: &str) -> Question {
        Question { pool: PoolId(1), user: user.into(), topic: Topic::Secret("q".into()) }
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn row(values: &[Option<&[u8]>]) -> Found {
        let mut body = u16::try_from(values.len()).expect("few").to_be_bytes().to_vec();
        for value in values {
            match value {
                None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
                Some(value) => {
                    let len = i32::try_from(value.len()).expect("short");
                    body.extend_from_slice(&len.to_be_bytes());
                    body.extend_from_slice(value);
                }
            }
        }
        Found { columns: Some(2), row: Some(body.into()) }
    }

    #[test]
    fn an_answer_is_used_again_in_a_storm_only() {
        let mut answers = Answers::default();
        let ann = question("ann");
        for login in 0..STORM {
            assert!(answers.recall(&ann, at(0)).is_none(), "login {login} is asked for");
            answers.keep(&ann, &Answer::Account(Account::WithoutSecret), at(0));
        }
        assert!(answers.recall(&ann, at(10)).is_some(), "the storm is there");
        assert!(answers.recall(&question("bob"), at(10)).is_none(), "bob has none");
        answers.doubt(&ann);
        assert!(answers.recall(&ann, at(20)).is_none(), "somebody's password did not fit");
        answers.keep(&ann, &Answer::Account(Account::WithoutSecret), at(20));
        assert!(answers.recall(&ann, at(30)).is_some());
        assert!(answers.recall(&ann, at(1030)).is_none(), "the storm is over");
    }

    #[test]
    fn a_missing_user_is_missed_for_less_time() {
        let mut answers = Answers::default();
        let ann = question("ann");
        for _ in 0..=STORM {
            answers.recall(&ann, at(0));
            answers.keep(&ann, &Answer::Account(Account::Unknown), at(0));
        }
        assert!(answers.recall(&ann, at(249)).is_some());
        assert!(answers.recall(&ann, at(251)).is_none());
    }

    #[test]
    fn answers_are_bounded() {
        let mut answers = Answers::default();
        for user in 0..3 * ANSWERS_MAX {
            answers.recall(&question(&user.to_string()), at(0));
            assert!(answers.0.len() <= ANSWERS_MAX);
        }
    }

    #[test]
    fn only_two_columns_about_the_user_are_an_answer() {
        let none = Found { columns: Some(2), row: None };
        assert!(matches!(account("ann", &none), Ok(Account::Unknown)));
        let null = row(&[Some(b"ann"), None]);
        assert!(matches!(account("ann", &null), Ok(Account::WithoutSecret)));
        let good = row(&[Some(b"ann"), Some(b"secret")]);
        assert!(matches!(account("ann", &good), Ok(Account::Secret(Secret::Plain(_)))));
        let other = row(&[Some(b"bob"), Some(b"secret")]);
        assert!(matches!(account("ann", &other), Ok(Account::Unknown)), "nobody becomes bob");
        for nobody in [row(&[None, None]), row(&[None, Some(b"secret")])] {
            assert!(matches!(account("ann", &nobody), Ok(Account::Unknown)), "{nobody:?}");
        }
        let long = vec![b'x'; SECRET_MAX + 1];
        let cut = Found { columns: Some(2), row: Some([0, 2, 0, 0, 0, 9, b'a'].into()) };
        for bad in [
            Found::default(),
            Found { columns: Some(1), row: None },
            Found { columns: Some(3), row: None },
            row(&[Some(b"ann"), Some(&long)]),
            cut,
        ] {
            assert!(account("ann", &bad).is_err(), "{bad:?}");
        }
    }
}
