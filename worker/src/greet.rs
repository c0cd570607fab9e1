//! Servers: the login, and what is run before the first use.

use std::mem;
use std::sync::Arc;

use auth::{Channel, Credentials, Derived, Nonce, Secret};
use io::{Buf, Driver, Ends};
use pool::ServerId;
use session::login::{Failure, Greeting, Opening, ServerLogin, ServerStep};
use session::{Own, ServerSide};

use crate::log::Level;
use crate::mail::Party;
use crate::room::Room;
use crate::server::{Slot, State};
use crate::welcome::Welcome;
use crate::worker::Worker;
use crate::world::{Errand, World};

impl<D: Driver, W: World> Worker<D, W> {
    /// The kernel connected us.
    pub(crate) fn server_connected(&mut self, entry: u32, ends: Box<Ends>) {
        let Some(server) = self.servers.get_mut(entry as usize) else { return };
        if !matches!(server.state, State::Connecting) {
            return;
        }
        let from = crate::log::address(&ends.local);
        server.ends = Some(ends);
        server.since = self.now;
        self.server_is_there(entry);
        if self.site.config.settings.log_connections {
            self.log_server(
                entry,
                Level::Log,
                format_args!("new connection to server (from {from})"),
            );
        }
        self.approach_server(entry);
    }

    /// Nothing stands between us and the server: introduce ourselves.
    pub(crate) fn introduce(&mut self, entry: u32) {
        let mut nonce = Nonce::default();
        self.world.dice(&mut nonce);
        let server = &self.servers[entry as usize];
        let Some(Some(room)) = self.rooms.get(server.pool.0 as usize) else { return };
        let credentials = self.credentials(room);
        let channel = match server.suite {
            Some(_) => Channel::Tls { end_point: server.end_point.clone() },
            None => Channel::Open,
        };
        let wish = server.replica.as_deref();
        let parameters = wish.map(|wish| wish.parameters.as_slice()).unwrap_or_default();
        let parameters: Vec<(&[u8], &[u8])> =
            parameters.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let opening = Opening {
            user: room.user.as_bytes(),
            database: room.database.server_name().as_bytes(),
            replication: wish.map_or(session::login::Replication::None, |wish| wish.kind),
            minor: 2,
            parameters: &parameters,
            credentials,
            channel,
        };
        let mut out = Vec::new();
        let login = ServerLogin::start(opening, &nonce, &mut out);
        self.servers[entry as usize].state = State::Login(Box::new(login));
        self.send_to_server(entry, &out);
    }

    fn credentials(&self, room: &Room) -> Credentials {
        let forced = room.database.user.as_deref() == Some(&*room.user);
        if let (true, Some(password)) = (forced, &room.database.password) {
            let secret = Secret::parse(password.0.as_bytes());
            return Credentials::new(Some(&secret), None);
        }
        let memory = self.commons.memory();
        let keys = memory.client_keys.get(&room.user);
        let listed = self.site.userlist.secret(room.user.as_bytes());
        Credentials::new(listed.or_else(|| memory.secrets.get(&room.pool.id())), keys)
    }

    pub(crate) fn server_logs_in(&mut self, entry: u32, bytes: &Buf) {
        let State::Login(login) = &mut self.servers[entry as usize].state else { return };
        let mut out = Vec::new();
        let step = login.hear(bytes, &mut out);
        self.server_login_goes_on(entry, step, out);
    }

    /// Keys were derived for a login of ours.
    pub(crate) fn server_derived(&mut self, entry: u32, derived: &Derived) {
        let State::Login(login) = &mut self.servers[entry as usize].state else { return };
        let mut out = Vec::new();
        let step = login.derived(derived, &mut out);
        self.server_login_goes_on(entry, step, out);
    }

    fn server_login_goes_on(&mut self, entry: u32, mut step: ServerStep, mut out: Vec<u8>) {
        loop {
            self.send_to_server(entry, &out);
            out.clear();
            step = match step {
                ServerStep::More => return,
                ServerStep::Ready(greeting) => return self.server_greets(entry, greeting),
                ServerStep::Failed(failure) => return self.server_refuses(entry, &failure),
                ServerStep::Derive(job) => {
                    let known = self.commons.memory().derived(job.key());
                    let Some(derived) = known else {
                        let party =
                            Party::Server { slot: entry, id: self.servers[entry as usize].id };
                        let worker = self.me;
                        return self.world.errand(Errand::Derive { worker, party, job });
                    };
                    let State::Login(login) = &mut self.servers[entry as usize].state else {
                        return;
                    };
                    login.derived(&derived, &mut out)
                }
            };
        }
    }

    fn server_refuses(&mut self, entry: u32, failure: &Failure) {
        let text = failure.to_string();
        if self.site.config.settings.log_pooler_errors {
            self.log(Level::Error, format_args!("S: login failed: {text}"));
            let text = text.replacen(": ", " ", 1);
            self.log(Level::Warning, format_args!("server login failed: {text}"));
        }
        let mut error = Vec::new();
        failure.tell(&mut error);
        let body: Arc<[u8]> = error.get(5..).unwrap_or_default().into();
        self.login_fails(entry, "login failed", Some(body));
    }

    /// A server is logged in.
    fn server_greets(&mut self, entry: u32, greeting: Greeting) {
        let Greeting { parameters, key, leftover, .. } = greeting;
        let welcome = Welcome::new(&self.site.tracked, parameters);
        let server = &mut self.servers[entry as usize];
        let id = server.pool;
        server.side = ServerSide::new(welcome.vars.clone());
        server.side.superuser = welcome.value(b"is_superuser") == Some(b"on");
        server.side.trail.habit = self.commons.memory().habits.entry(id).or_default().clone();
        server.state = State::Ready;
        server.since = self.now;
        if let Some((pid, key)) = key {
            let place = server.address.as_ref().map_or_else(String::new, crate::log::address);
            server.side.voice = Some(self.commons.pids.voice(pid, place));
            server.pid = pid;
            server.key = key.into();
        }
        if server.replica.is_some() {
            self.tell_bank(entry);
            return self.replica_ready(entry, &welcome, &leftover);
        }
        self.keep_welcome(id, welcome);
        if !leftover.is_empty() {
            self.server_said(entry, leftover.into());
            // It may have said that it is going already.
            if !self.is_ready(entry) && !planted::is("dead-at-birth") {
                return;
            }
        }
        let query = self.room(id).and_then(|room| room.database.connect_query.clone());
        match query {
            Some(query) if !query.is_empty() => self.run_own(entry, Own::Connect, query.as_bytes()),
            _ => self.server_is_ready(entry),
        }
    }

    /// New clients are told what the newest server said.
    fn keep_welcome(&mut self, id: pool::PoolId, welcome: Welcome) {
        let Some(Some(room)) = self.rooms.get_mut(id.0 as usize) else { return };
        if room.welcome.as_deref() == Some(&welcome) {
            return;
        }
        let welcome = Arc::new(welcome);
        room.welcome = Some(welcome.clone());
        self.commons.memory().welcomes.insert(id, welcome);
    }

    /// `entry` is logged in, and its connect_query done.
    pub(crate) fn server_is_ready(&mut self, entry: u32) {
        self.tell_bank(entry);
        let (server, now) = (&self.servers[entry as usize], self.now);
        let (id, flavour) = (server.pool, server.side.flavour());
        self.with_pool(id, |pool, out| {
            pool.flavour(ServerId(entry), flavour);
            pool.opened(ServerId(entry), now, out);
        });
    }

    fn tell_bank(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        server.slot = Slot::Open;
        let pool = server.pool;
        let mut calls = Vec::new();
        self.commons.bank().logged_in(pool, &mut calls);
        self.deliver(calls);
    }

    /// `server_check_query`, on a server that has not been used for long.
    pub(crate) fn check_server(&mut self, entry: u32) {
        if !self.is_ready(entry) {
            return;
        }
        match self.site.config.settings.check_query().map(str::to_owned) {
            Some(query) => self.run_own(entry, Own::Check, query.as_bytes()),
            None => self.release(entry),
        }
    }

    /// Run a query of our own; what comes of it arrives as [`session::Heard`].
    pub(crate) fn run_own(&mut self, entry: u32, own: Own, query: &[u8]) {
        let mut out = Vec::new();
        // A cancel of what ran before may still strike whatever runs now.
        let in_danger = self.is_being_canceled(entry);
        let server = &mut self.servers[entry as usize];
        server.since = self.now;
        server.own = Some(own);
        if in_danger {
            return;
        }
        // What is said next sets the limit as well.
        if own == Own::Set || own == Own::Ear && server.step == crate::ears::Step::Hub {
            server.side.lift(&mut out);
        }
        server.side.own(own, query, &mut out);
        self.send_to_server(entry, &out);
    }

    /// A query of ours is done.
    pub(crate) fn own_done(&mut self, entry: u32, own: Own, error: Option<&[u8]>) {
        let server = &mut self.servers[entry as usize];
        server.own = None;
        let cancel_behind = !server.side.is_behind_ours() && mem::take(&mut server.cancel_behind);
        if let Some(body) = error {
            let text = String::from_utf8_lossy(wire::ErrorFields::new(body).message()).into_owned();
            let what = match own {
                Own::Connect | Own::Reconnect => "connect_query",
                Own::Check => "server_check_query",
                Own::Reset => "server_reset_query",
                Own::Set | Own::Ahead => "client settings",
                Own::Clean => "DISCARD ALL",
                Own::Lookup => "auth_query",
                Own::Probe => "session probe",
                Own::Ear => "listening",
                Own::Prepare => "PREPARE",
                Own::Lend | Own::Dress => "statement names",
                Own::Lift => "time limit",
                Own::Regain => "settings after a RESET",
            };
            self.log_server(entry, Level::Warning, format_args!("{what} failed: {text}"));
            return self.own_failed(entry, own, body);
        }
        match own {
            Own::Connect if self.follows(entry) => self.ask_baseline(entry),
            Own::Connect => self.server_is_ready(entry),
            Own::Reset => {
                self.was_reset(entry);
                self.release(entry);
            }
            Own::Check => self.release(entry),
            Own::Set => {
                self.was_set(entry);
                self.vars_set(entry);
            }
            Own::Clean => {
                self.servers[entry as usize].side.trail.discarded();
                self.cleaned(entry);
            }
            Own::Reconnect => {
                let baseline = self.baseline(self.servers[entry as usize].pool);
                self.servers[entry as usize].side.trail.state = baseline;
                self.look_up(entry);
            }
            // Their answers are more than that they are done.
            Own::Ear => self.ear_heard(entry),
            Own::Ahead | Own::Regain | Own::Lend | Own::Dress => {
                if own == Own::Ahead {
                    self.was_set(entry);
                }
                if cancel_behind {
                    self.cancel_on(entry, None);
                }
            }
            Own::Lookup | Own::Probe | Own::Prepare | Own::Lift => {}
        }
    }

    fn own_failed(&mut self, entry: u32, own: Own, error: &[u8]) {
        match own {
            // Whoever comes next would find it as it was left, or it does not even answer.
            Own::Check | Own::Reset => self.server_dies(entry, "reset query failed"),
            Own::Connect => self.login_fails(entry, "connect_query failed", None),
            Own::Set | Own::Ahead => self.vars_refused(entry, error),
            Own::Regain => self.settings_lost(entry, error),
            Own::Clean | Own::Reconnect | Own::Lookup => self.server_dies(entry, "unclean server"),
            Own::Ear => self.ear_failed(entry),
            Own::Probe | Own::Prepare | Own::Lend | Own::Dress | Own::Lift => {}
        }
    }

    pub(crate) fn release(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        server.since = self.now;
        let (id, now, flavour) = (server.pool, self.now, server.side.flavour());
        self.with_pool(id, |pool, out| {
            pool.flavour(ServerId(entry), flavour);
            pool.release(ServerId(entry), now, out);
        });
    }

    /// The server's socket said goodbye, or never said anything.
    pub(crate) fn server_ended(&mut self, entry: u32, error: Option<&std::io::Error>) {
        let Some(server) = self.servers.get(entry as usize) else { return };
        match server.state {
            State::Closing | State::Moving(_) => {}
            State::Resolving | State::Connecting => {
                if let Some(error) = error {
                    let at = server.address.as_ref().map_or_else(String::new, crate::log::address);
                    self.log(Level::Warning, format_args!("connect to {at} failed: {error}"));
                }
                self.place_fails(entry, "connect failed");
            }
            State::Asking if error.is_none() => {
                self.server_not_secured(entry, "server hung up on the request for TLS");
            }
            State::Securing => self.server_handshake_failed(entry, error),
            State::Asking | State::Login(_) => {
                self.login_fails(entry, "server conn crashed?", None);
            }
            // A replication client's goodbye went through, and was answered by hanging up.
            State::Ready if server.replica.is_some() && error.is_none() => {
                self.server_dies(entry, "server connection closed");
            }
            State::Ready | State::Leaving(_) => {
                if !self.ended_unset(entry, error.is_some()) {
                    self.server_dies(entry, "server conn crashed?");
                }
            }
        }
    }
}
