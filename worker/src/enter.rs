//! Clients coming in: accepted, dealt, asked who they are, let in.

use std::sync::Arc;

use auth::{Account, Decoy, Dice, Form, Method, Secret};
use io::{Address, Buf, Driver, Ends, Listener};
use pool::PoolId;
use session::login::{AuthPlan, ClientLogin, Facts, Policy, Proof, Replication, Step};
use session::{Asked, ClientSide, Vars};

use crate::client::{Card, Client, Name, State, WaitingFor};
use crate::desk::Desk;
use crate::end::Why;
use crate::inquiry::Question;
use crate::log::Level;
use crate::mail::{Mail, Party};
use crate::method::{Learnt, Way};
use crate::secure::Handshake;
use crate::slot;
use crate::worker::{Role, Worker};
use crate::world::{Errand, World};

/// A client that is logging in.
pub(crate) struct Entering {
    pub(crate) login: ClientLogin,
    /// What it said it wants.
    pub(crate) wish: Option<Box<Wish>>,
    /// How it must prove itself, once that is known.
    pub(crate) way: Option<Way>,
    /// What was asked about it.
    pub(crate) question: Option<Question>,
    /// It is shaking hands.
    pub(crate) handshake: Option<Handshake>,
    /// It waits for the end of a SUSPEND.
    pub(crate) parked: bool,
}

impl Entering {
    pub(crate) fn is_securing(&self) -> bool {
        self.handshake.is_some()
    }

    /// What the client said beyond its login.
    pub(crate) fn leftover(&mut self) -> Vec<u8> {
        self.login.leftover()
    }
}

/// What a client asks for in its startup packet, and what it will get once it has proved itself.
pub(crate) struct Wish {
    pub(crate) facts: Facts,
    /// Tracked parameters.
    asked: Asked,
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) outcome: Outcome,
    /// Its secret, where that was looked up, or its password, where somebody else has judged it.
    pub(crate) secret: Option<Secret>,
    /// It was looked up, and there is no such user.
    pub(crate) unknown: bool,
    /// It is a process of our own user, which asks for the console as its owner.
    pub(crate) owner: bool,
    /// What was found out for the rules.
    pub(crate) learnt: Learnt,
}

/// Where a client goes once it has proved itself. Who has not must not learn it.
pub(crate) enum Outcome {
    Pool,
    Console(admin::Role),
    Refusal(String),
}

impl<D: Driver, W: World> Worker<D, W> {
    pub(crate) fn accepted(&mut self, listener: Listener, socket: D::Socket, ends: Ends) {
        self.door_opened(listener);
        let worker = self.commons.deal();
        if worker == self.me {
            self.client_came(socket, ends);
        } else {
            self.commons.mail(worker, Mail::Client { socket, ends });
        }
    }

    /// A client that this worker will serve.
    pub(crate) fn client_came(&mut self, socket: D::Socket, ends: Ends) {
        let conn = self.driver.adopt(socket);
        self.commons.census().clients += 1;
        let encryption = self.encryption_for(&ends);
        let (id, wall_us) = (self.commons.socket_id(), self.world.wall_us());
        let card = Card::new(id, ends.into(), self.now, wall_us);
        let login = ClientLogin::new(encryption);
        let (wish, way, question, handshake, parked) = (None, None, None, None, false);
        let entering = Box::new(Entering { login, wish, way, question, handshake, parked });
        let entry = slot(self.clients.insert(Client {
            conn,
            reading: true,
            pool: PoolId(u32::MAX),
            state: State::Login(entering),
            side: ClientSide::new(Vars::new(&self.site.tracked)),
            held: Vec::new(),
            leaving: false,
            proving: false,
            since: self.now,
            began: self.now,
            card: Box::new(card),
            ear: None,
        }));
        self.clients_max = self.clients_max.max(self.clients.len());
        self.set_role(conn, Role::Client(entry));
    }

    pub(crate) fn client_logs_in(&mut self, slot: u32, bytes: Buf) {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return };
        if let Some(handshake) = &entering.handshake {
            let direct = handshake.direct;
            return self.client_was_early(slot, direct, bytes);
        }
        let mut out = Vec::new();
        let step = entering.login.hear(&bytes, &mut out);
        self.login_goes_on(slot, step, out);
    }

    /// Keys were derived for a client's login.
    pub(crate) fn client_derived(&mut self, slot: u32, derived: &auth::Derived) {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return };
        let mut out = Vec::new();
        let step = entering.login.derived(derived, &mut out);
        self.login_goes_on(slot, step, out);
    }

    pub(crate) fn login_goes_on(&mut self, slot: u32, mut step: Step, mut out: Vec<u8>) {
        loop {
            self.send_to_client(slot, &out);
            out.clear();
            step = match step {
                Step::More => return,
                Step::Secure { beginning } => return self.secure_client(slot, beginning),
                Step::Cancel { pid, key } => return self.cancel_requested(slot, pid, &key),
                Step::Accept(proof) => return self.proved(slot, proof),
                Step::Refuse(_) if planted::is("anybody-enters") => {
                    return self.proved(slot, Proof::default());
                }
                Step::Refuse(refusal) => {
                    self.doubt_answer(slot);
                    self.log_login_failure(slot);
                    let text =
                        if self.is_unknown(slot) { "no such user".into() } else { refusal.text };
                    return self.client_leaves(slot, Why::Told(text));
                }
                Step::Startup(facts) => {
                    if let Err(text) = self.wish(slot, *facts) {
                        return self.client_leaves(slot, Why::Text(text.into()));
                    }
                    if self.park(slot) {
                        return;
                    }
                    // What it depends on may have to be found out first.
                    let Some(way) = self.choose_way(slot) else { return };
                    self.ask_by(slot, way, &mut out)
                }
                Step::Refer(password) => return self.refer(slot, password),
                Step::Derive(job) => {
                    let known = self.commons.memory().derived(job.key());
                    let Some(derived) = known else {
                        let party = Party::Client { slot, id: self.clients[slot as usize].card.id };
                        let worker = self.me;
                        return self.world.errand(Errand::Derive { worker, party, job });
                    };
                    self.step(slot, |login, _| login.derived(&derived, &mut out))
                }
            };
        }
    }

    /// How a client must prove itself is known, after something had to be found out for it.
    pub(crate) fn way_chosen(&mut self, slot: u32, way: Way) {
        let mut out = Vec::new();
        let step = self.ask_by(slot, way, &mut out);
        self.login_goes_on(slot, step, out);
    }

    /// The first question to a client that must prove itself in this `way`.
    fn ask_by(&mut self, slot: u32, way: Way, out: &mut Vec<u8>) -> Step {
        let method = way.method();
        if let State::Login(entering) = &mut self.clients[slot as usize].state {
            entering.way = Some(way);
        }
        if !method.needs_account() {
            return self.ask(slot, method, Account::Unknown, out);
        }
        match self.account(slot) {
            Some(account) => self.ask(slot, method, account, out),
            None => Step::More,
        }
    }

    /// What is known of the user that `slot` says it is has been found out.
    pub(crate) fn account_found(&mut self, slot: u32, account: Account) {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return };
        let Some(method) = entering.way.as_ref().map(Way::method) else { return };
        let mut out = Vec::new();
        let step = self.ask(slot, method, account, &mut out);
        self.login_goes_on(slot, step, out);
    }

    /// Whether `slot` says that it is somebody who was looked up and does not exist. It is not told.
    fn is_unknown(&self, slot: u32) -> bool {
        let State::Login(entering) = &self.clients[slot as usize].state else { return false };
        entering.wish.as_ref().is_some_and(|wish| wish.unknown)
    }

    fn ask(&mut self, slot: u32, method: Method, account: Account, out: &mut Vec<u8>) -> Step {
        let mut dice = Dice { nonce: Default::default(), md5_salt: [0; 4] };
        self.world.dice(&mut dice.nonce);
        self.world.dice(&mut dice.md5_salt);
        let channel = self.channel(slot);
        let plan = AuthPlan { method, account, channel, dice };
        let decoy = self.decoy(slot);
        self.step(slot, |login, _| login.admit(plan, &decoy, out))
    }

    /// What stands in for a user who does not exist looks like those who do: of the servers', if
    /// they are asked.
    fn decoy(&self, slot: u32) -> Arc<Decoy> {
        let asked = matches!(
            &self.clients[slot as usize].state,
            State::Login(entering) if entering.question.is_some()
        );
        if !asked {
            return self.site.decoy.clone();
        }
        let form = self.commons.memory().looked_up_form.unwrap_or(Form::Scram);
        Arc::new(self.site.decoy.with_form(form))
    }

    fn step(
        &mut self,
        slot: u32,
        go: impl FnOnce(&mut ClientLogin, &crate::site::Site) -> Step,
    ) -> Step {
        match &mut self.clients[slot as usize].state {
            State::Login(entering) => go(&mut entering.login, &self.site),
            _ => Step::More,
        }
    }

    /// A client said who it is and what it wants. Refused, where the reason gives nothing away.
    fn wish(&mut self, slot: u32, facts: Facts) -> Result<(), String> {
        let site = self.site.clone();
        let user: Arc<str> = String::from_utf8_lossy(&facts.user).into();
        let database: Arc<str> = String::from_utf8_lossy(&facts.database).into();
        let known = site.config.database(&database);
        let card = &mut self.clients[slot as usize].card;
        let ends = card.ends.open();
        let own_uid = ends.uid == Some(site.uid) && matches!(ends.peer, Address::Unix(_));
        let console = *database == *admin::CONSOLE;
        let called = (known.is_some() || console).then(|| database.clone());
        card.name = Some(Arc::new(Name { database: called, user: user.clone() }));
        card.replication = facts.replication;
        self.log_login_attempt(slot, &database, &user);

        let role = if console { site.role(&user, own_uid) } else { admin::Role::Nobody };
        if self.is_too_late(slot) && role != admin::Role::Admin {
            return Err("pooler is shutting down".to_owned());
        }
        let settings = &site.config.settings;
        if role != admin::Role::Admin && self.commons.census().clients > settings.max_client_conn {
            return Err("no more connections allowed (max_client_conn)".to_owned());
        }
        let policy = Policy {
            extra: &settings.track_extra_parameters,
            ignored: &settings.ignore_startup_parameters,
            follows: settings.track_session_state,
        };
        let asked = match facts.replication {
            _ if console => name_only(&facts),
            Replication::None => policy.settings(&facts).map_err(|bad| bad.to_string())?,
            Replication::Physical | Replication::Logical => Asked::default(),
        };
        let outcome = match (&known, console) {
            (_, true) if role == admin::Role::Nobody => Outcome::Refusal("not allowed".to_owned()),
            (_, true) => Outcome::Console(role),
            (None, _) => Outcome::Refusal(format!("no such database: {database}")),
            (Some(_), _) if self.standing.marks(&database).disabled => {
                Outcome::Refusal(format!("database \"{database}\" is disabled"))
            }
            (Some(_), _) => Outcome::Pool,
        };
        let owner = console && own_uid && *user == *admin::CONSOLE;
        if let State::Login(entering) = &mut self.clients[slot as usize].state {
            let (secret, unknown, learnt) = (None, false, Learnt::default());
            let wish =
                Wish { facts, asked, database, user, outcome, secret, unknown, owner, learnt };
            entering.wish = Some(Box::new(wish));
        }
        Ok(())
    }

    /// A client is who it says it is.
    fn proved(&mut self, slot: u32, proof: Proof) {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return };
        let Some(mut wish) = entering.wish.take() else { return };
        if let Some(password) = proof.password {
            wish.secret = Some(Secret::Plain(password));
        }
        if let Some(keys) = proof.keys {
            self.commons.memory().client_keys.entry(wish.user.clone()).or_default().add(keys);
        }
        match &wish.outcome {
            Outcome::Refusal(text) => self.client_leaves(slot, Why::Text(text.clone().into())),
            Outcome::Console(role) => {
                let mut said = wish.asked.vars;
                self.add_host_to_name(slot, &mut said);
                self.open_desk(slot, *role, &said);
            }
            Outcome::Pool => self.enter_pool(slot, &wish),
        }
    }

    fn open_desk(&mut self, slot: u32, role: admin::Role, said: &[(String, Vec<u8>)]) {
        let columns = if self.site.config.settings.console_old_columns {
            admin::Columns::AndOld
        } else {
            admin::Columns::Todays
        };
        self.give_key(slot, 0);
        let mut out = Vec::new();
        let key = &self.clients[slot as usize].card.key;
        wire::write::server::authentication_ok(&mut out);
        admin::welcome(&mut out);
        wire::write::server::backend_key_data(&mut out, key.pid, key.secret());
        self.say_at_login(&mut out);
        wire::write::server::ready_for_query(&mut out, wire::Status::Idle);
        let client = &mut self.clients[slot as usize];
        client.since = self.now;
        for (name, value) in said {
            client.side.vars.set(name.as_bytes(), value);
        }
        self.console_stats.total.client_login_count += 1;
        let before = std::mem::replace(
            &mut client.state,
            State::Console(Box::new(Desk::new(role, columns))),
        );
        self.commons.census().clients -= 1;
        self.clients[slot as usize].card.exempt = true;
        self.send_to_client(slot, &out);
        if let State::Login(mut entering) = before {
            self.admin_said(slot, &entering.leftover());
        }
    }

    fn enter_pool(&mut self, slot: u32, wish: &Wish) {
        let site = self.site.clone();
        let made = !site.config.databases.contains_key(&*wish.database)
            && !self.autodbs.contains_key(&wish.database);
        if made {
            let text = format_args!("registered new auto-database: {}", wish.database);
            self.log_client(slot, Level::Log, text);
        }
        let Some(database) = self.database_of(&wish.database) else {
            return self.client_leaves(
                slot,
                Why::Text(format!("no such database: {}", wish.database).into()),
            );
        };
        if let Err(text) = self.take_in(wish, &database) {
            return self.client_leaves(slot, Why::text(text));
        }
        let pool_user: Arc<str> =
            database.user.as_deref().map_or_else(|| wish.user.clone(), Arc::from);
        let pool = self.room_for(&wish.database, &pool_user, &database);
        if let (Some(secret), true) = (&wish.secret, pool_user == wish.user) {
            self.commons.memory().secrets.insert(pool, secret.clone());
        }
        self.give_key(slot, wish.facts.minor);
        let name = Name { database: Some(wish.database.clone()), user: wish.user.clone() };
        let client = &mut self.clients[slot as usize];
        client.card.name = Some(self.names.share(Arc::new(name)));
        if let Some(rare) = &mut client.card.rare {
            rare.tls = None;
        }
        client.card.counted = true;
        if let Some(Some(room)) = self.rooms.get_mut(pool.0 as usize) {
            room.clients += 1;
        }
        client.pool = pool;
        client.since = self.now;
        if wish.facts.replication != Replication::None {
            return self.replicate(slot, &wish.facts);
        }
        let mut asked = wish.asked.clone();
        self.add_host_to_name(slot, &mut asked.vars);
        let asked = self.share_asked(asked);
        let proven = asked.as_ref().is_none_or(|asked| self.proven(slot, asked).is_some());
        self.clients[slot as usize].side.asked = asked;
        self.recall_welcome(pool);
        if proven && self.room(pool).is_some_and(|room| room.welcome.is_some()) {
            return self.let_in(slot);
        }
        // Nobody knows yet what its servers are like: the first login tells.
        let client = &mut self.clients[slot as usize];
        let State::Login(mut entering) =
            std::mem::replace(&mut client.state, State::Waiting(WaitingFor::Welcome))
        else {
            return;
        };
        client.held = entering.leftover();
        self.stand_in_line(slot);
        self.carry_out();
    }

    /// One client more, or why there is none.
    fn take_in(&self, wish: &Wish, database: &config::Database) -> Result<(), &'static str> {
        let config = &self.site.config;
        let row = config.user(&wish.user).map(AsRef::as_ref);
        let db_max = config.max_db_client_connections(database, row);
        let user_max = config.max_user_client_connections(database, row);
        let mut census = self.commons.census();
        if db_max.is_some_and(|max| census.of_database(&wish.database) >= max.get()) {
            return Err("client connections exceeded (max_db_client_connections)");
        }
        if user_max.is_some_and(|max| census.of_user(&wish.user) >= max.get()) {
            return Err("client connections exceeded (max_user_client_connections)");
        }
        census.enter(&wish.database, &wish.user);
        Ok(())
    }

    /// What servers of a pool are like may be known from another worker.
    fn recall_welcome(&mut self, pool: PoolId) {
        if let Some(Some(room)) = self.rooms.get_mut(pool.0 as usize)
            && room.welcome.is_none()
            && !planted::is("welcome-not-recalled")
        {
            room.welcome = self.commons.memory().welcomes.get(&pool).cloned();
        }
    }

    /// The last words of a login: parameters, key, ready.
    pub(crate) fn let_in(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        let pool = client.pool;
        let asked = client.side.asked.clone();
        let proof = asked.as_ref().and_then(|asked| self.proven(slot, asked));
        let long = asked.as_ref().and_then(|asked| long_name(&asked.vars)).map(<[u8]>::to_vec);
        let asked = match (asked, &proof) {
            (Some(asked), Some(proof)) => self.share_asked(spelled(&asked, &proof.vars)),
            (asked, _) => asked,
        };
        self.clients[slot as usize].side.asked.clone_from(&asked);
        let state = proof.and_then(|proof| proof.state).or_else(|| self.baseline(pool));
        // The server that tells may have been logged in to elsewhere, and moved here since.
        self.recall_welcome(pool);
        let Some(Some(room)) = self.rooms.get_mut(pool.0 as usize) else { return };
        let Some(welcome) = room.welcome.clone() else { return };
        room.counters.client_login_count += 1;
        let database = room.database.clone();
        self.commons.pids.is_user(self.clients[slot as usize].side.pid, &room.user);
        let forced = [
            ("client_encoding", &database.client_encoding),
            ("DateStyle", &database.datestyle),
            ("TimeZone", &database.timezone),
        ];
        let forced = forced.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let mut vars = welcome.vars.clone();
        for (name, value) in asked.iter().flat_map(|asked| &asked.vars) {
            if !is_same_encoding(name, value, &vars) {
                vars.set(name.as_bytes(), &welcome.in_full(name, value));
            }
        }
        for (name, value) in forced {
            vars.set(name.as_bytes(), value.as_bytes());
        }
        let client = &mut self.clients[slot as usize];
        let mut out = Vec::new();
        wire::write::server::authentication_ok(&mut out);
        if let Some(name) = long {
            tell_of_name(&name, &mut out);
        }
        welcome.write(&vars, state.as_deref(), &mut out);
        let key = &client.card.key;
        wire::write::server::backend_key_data(&mut out, key.pid, key.secret());
        client.side.vars = self.vars.share(vars);
        client.side.state = state;
        client.since = self.now;
        let mut held = std::mem::take(&mut client.held);
        if let State::Login(mut entering) = std::mem::replace(&mut client.state, State::Idle) {
            held = entering.leftover();
        }
        self.say_at_login(&mut out);
        wire::write::server::ready_for_query(&mut out, wire::Status::Idle);
        self.send_to_client(slot, &out);
        if !held.is_empty() {
            self.client_said(slot, held.into());
        }
    }

    fn say_at_login(&self, out: &mut Vec<u8>) {
        let text = &self.site.config.settings.login_notify_message;
        if !text.is_empty() {
            wire::write::server::notice_response(out, &crate::end::notice(text.as_bytes()));
        }
    }

    /// `application_name_add_host`
    fn add_host_to_name(&self, slot: u32, settings: &mut Vec<(String, Vec<u8>)>) {
        if !self.site.config.settings.application_name_add_host {
            return;
        }
        let client = &self.clients[slot as usize];
        let host = crate::log::place(&client.card.ends.open());
        let index = settings.iter().position(|(name, _)| name == "application_name");
        let name = index.map_or(Vec::new(), |index| settings.remove(index).1);
        let name = if name.is_empty() { b"app".to_vec() } else { name };
        let value = [&name[..], b" - ", host.as_bytes()].concat();
        settings.push(("application_name".to_owned(), value));
    }
}

/// What the console makes of startup parameters: it takes them all, and shows by which name its user goes.
fn name_only(facts: &Facts) -> Asked {
    let name = facts.application_name();
    let vars = name.map(|name| ("application_name".to_owned(), name.to_vec()));
    Asked { vars: vars.into_iter().collect(), ..Asked::default() }
}

/// Whether a setting asked for is the encoding that servers have anyway, spelled in another way: PostgreSQL compares letters and
/// digits only, and reports its own spelling.
fn is_same_encoding(name: &str, value: &[u8], vars: &Vars) -> bool {
    let letters = |text: &[u8]| -> Vec<u8> {
        text.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect()
    };
    name.eq_ignore_ascii_case("client_encoding")
        && vars.value(b"client_encoding").is_some_and(|known| letters(known) == letters(value))
}

/// What PostgreSQL keeps of a name.
const NAME_MAX: usize = 63;

/// The `application_name` asked for, if PostgreSQL keeps only a part of it. What is not plain text it changes as well, each version in its way:
/// that is left as it is.
fn long_name(vars: &[(String, Vec<u8>)]) -> Option<&[u8]> {
    let (_, value) = vars.iter().find(|(name, _)| name == "application_name")?;
    let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte));
    (is_plain && value.len() > NAME_MAX).then_some(value)
}

/// `asked`, as servers spell it: these are theirs.
fn spelled(asked: &Asked, theirs: &[(String, Vec<u8>)]) -> Asked {
    let mut asked = asked.clone();
    let is_long = long_name(&asked.vars).is_some();
    for (name, value) in &mut asked.vars {
        if let Some((_, known)) = theirs.iter().find(|(known, _)| known == name) {
            value.clone_from(known);
        } else if is_long && name == "application_name" {
            value.truncate(NAME_MAX);
        }
    }
    asked
}

/// As PostgreSQL says it.
fn tell_of_name(name: &[u8], out: &mut Vec<u8>) {
    let short = name.get(..NAME_MAX).unwrap_or(name);
    let text = [b"identifier \"", name, b"\" will be truncated to \"", short, b"\""].concat();
    let report = wire::Report { code: b"42622", with_v: true, ..crate::end::notice(&text) };
    wire::write::server::notice_response(out, &report);
}
