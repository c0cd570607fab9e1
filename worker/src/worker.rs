//! One core's loop: what is done, what it means, what to do about it.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use admin::StatsFacts;
use auth::{Derived, JobKey};
use config::Database;
use io::{Buf, Conn, Done, Driver, Listener, Tuning};
use pool::{Action, Duration, Instant, PoolId, WorkerId};
use session::{Asked, Flow, Links, Statements, Vars};
use slab::Slab;

use crate::ask::Asks;
use crate::cancel::Canceller;
use crate::client::{Client, Name};
use crate::commons::Commons;
use crate::inquiry::{Inquiry, Question};
use crate::listen::Door;
use crate::mail::{Mail, Party};
use crate::order::{Shutdown, Standing};
use crate::peers::Peers;
use crate::room::Room;
use crate::server::Server;
use crate::shared::Shared;
use crate::site::Site;
use crate::world::World;

/// How often what has a deadline is looked at.
const TICK: Duration = Duration::from_millis(50);

/// Room is made for no more clients than this beforehand: some 24 MB of addresses.
const ROOM_MAX: usize = 1 << 17;

/// One core: its clients, its servers, its part of every pool. Nothing here is shared with another
/// core; what is, stands in [`Commons`].
pub struct Worker<D: Driver, W> {
    pub driver: D,
    pub world: W,
    pub(crate) me: WorkerId,
    pub(crate) commons: Arc<Commons<D::Socket>>,
    pub(crate) inbox: Receiver<Mail<D::Socket>>,
    pub(crate) site: Arc<Site>,
    pub(crate) now: Instant,
    next_tick: Instant,
    /// Who is at the other end of each connection, by its slot in the driver.
    pub(crate) roles: Vec<Role>,
    pub(crate) clients: Slab<Client>,
    /// The most there ever were at once: so many places have been used.
    pub(crate) clients_max: usize,
    pub(crate) servers: Slab<Server>,
    pub(crate) cancellers: Slab<Canceller>,
    /// Secrets being asked for, and which question is which.
    pub(crate) inquiries: BTreeMap<u32, Inquiry>,
    pub(crate) next_inquiry: u32,
    pub(crate) inquiry_ids: BTreeMap<Question, u32>,
    /// This worker's part of each pool, by the bank's number.
    pub(crate) rooms: Vec<Option<Box<Room>>>,
    pub(crate) room_ids: BTreeMap<(Arc<str>, Arc<str>), PoolId>,
    /// The pools that have a server or somebody in line, and those that had until just now.
    pub(crate) awake: Vec<PoolId>,
    /// Which of them is looked at next.
    pub(crate) next_awake: usize,
    /// Where in `rooms` the next look at what is not urgent begins.
    pub(crate) next_room: usize,
    pub(crate) statements: Statements,
    /// Which server each client has, for all workers to see.
    pub(crate) links: Arc<Links>,
    pub(crate) flow: Flow,
    /// What the pools ordered and is yet to be carried out.
    pub(crate) orders: VecDeque<(PoolId, Action)>,
    pub(crate) out: Vec<Action>,
    done: Vec<Done<D::Socket>>,
    /// What of it does not come from a server.
    later: Vec<Done<D::Socket>>,
    /// Connections to servers for which an end, or what may be a last word, is still to be looked at in this turn.
    dying: Vec<Conn>,
    pub(crate) doors: Vec<(Listener, Door)>,
    /// Since then, whoever dials is left to the other processes on the port.
    pub(crate) turning_away: Option<Instant>,
    pub(crate) asks: Asks,
    /// How often SHOW SESSION_REPORT began anew.
    pub(crate) report_number: u64,
    pub(crate) standing: Standing,
    /// There are so many clients that some have keys by whose numbers others are known.
    pub(crate) keys_doubled: bool,
    pub(crate) peers: Peers,
    /// Databases made from `*`.
    pub(crate) autodbs: BTreeMap<Arc<str>, Arc<Database>>,
    /// What was counted by pools that are no more.
    pub(crate) former: BTreeMap<String, StatsFacts>,
    pub(crate) console_stats: StatsFacts,
    pub(crate) stats_turned: u64,
    pub(crate) next_maintenance: Instant,
    pub(crate) next_zone_check: Instant,
    pub(crate) high_water: usize,
    /// Orders are being carried out: what they bring about joins the queue.
    pub(crate) carrying: bool,
    /// A connection was closed since the doors were last looked at.
    pub(crate) closed_some: bool,
    /// What a client just said, on its way to the server that it may be given at once.
    pub(crate) fresh: Option<(u32, Buf)>,
    /// Memory for what waits.
    pub(crate) spare: Vec<Vec<u8>>,
    /// What clients asked for at login, for all who ask for the same.
    pub(crate) asked: Shared<Arc<Asked>>,
    /// As whom clients came.
    pub(crate) names: Shared<Arc<Name>>,
    /// What clients are set to when they are let in.
    pub(crate) vars: Shared<Vars>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Role {
    #[default]
    Nobody,
    Client(u32),
    Server(u32),
    /// A connection on which we cancel something.
    Canceller(u32),
    /// A connection on which we send a cancel request on to a peer.
    Messenger(u32),
}

impl<D: Driver, W: World> Worker<D, W> {
    pub fn new(
        driver: D,
        mut world: W,
        me: WorkerId,
        commons: Arc<Commons<D::Socket>>,
        inbox: Receiver<Mail<D::Socket>>,
        site: Arc<Site>,
    ) -> Self {
        let now = world.now();
        let statements = Statements::new(commons.statements.clone(), commons.read)
            .with_pids(commons.pids.clone());
        let links = commons.pids.links(me.0);
        let mut worker = Self {
            driver,
            world,
            me,
            commons,
            inbox,
            now,
            next_tick: now,
            roles: Vec::new(),
            clients: Slab::new(),
            clients_max: 0,
            servers: Slab::new(),
            cancellers: Slab::new(),
            inquiries: BTreeMap::new(),
            next_inquiry: 0,
            inquiry_ids: BTreeMap::new(),
            rooms: Vec::new(),
            room_ids: BTreeMap::new(),
            awake: Vec::new(),
            next_awake: 0,
            next_room: 0,
            statements,
            links,
            flow: Flow::default(),
            orders: VecDeque::new(),
            out: Vec::new(),
            done: Vec::new(),
            later: Vec::new(),
            dying: Vec::new(),
            doors: Vec::new(),
            turning_away: None,
            asks: Asks::default(),
            report_number: 0,
            standing: Standing::default(),
            keys_doubled: false,
            peers: Peers::default(),
            autodbs: BTreeMap::new(),
            former: BTreeMap::new(),
            console_stats: StatsFacts::default(),
            stats_turned: 0,
            next_maintenance: now,
            next_zone_check: now,
            high_water: Tuning::default().high_water,
            carrying: false,
            closed_some: false,
            fresh: None,
            spare: Vec::new(),
            asked: Shared::of_arcs(),
            names: Shared::of_arcs(),
            vars: Shared::new(Vars::is_alone),
            site,
        };
        worker.make_room();
        worker.tune();
        worker.open_forced_rooms();
        worker
    }

    /// Once around.
    pub fn turn(&mut self) {
        let wait = self.next_tick.since(self.now);
        let mut done = mem::take(&mut self.done);
        self.driver.turn(Some(wait), &mut done);
        self.now = self.world.now();
        // Servers first: one that has just said that it goes must not be given to a client whose
        // words came in with that.
        let mut later = mem::take(&mut self.later);
        let mut dying = mem::take(&mut self.dying);
        dying.clear();
        dying.extend(done.iter().filter_map(|event| self.last_word(event)));
        self.dying = dying;
        for event in done.drain(..) {
            if self.is_of_server(&event) {
                if !self.dying.is_empty()
                    && let Some(conn) = self.last_word(&event)
                    && let Some(index) = self.dying.iter().position(|dying| *dying == conn)
                {
                    self.dying.swap_remove(index);
                }
                self.happened(event);
            } else {
                later.push(event);
            }
        }
        for event in later.drain(..) {
            self.happened(event);
        }
        self.later = later;
        self.done = done;
        if self.now >= self.next_tick {
            self.next_tick = self.now.after(TICK);
            self.tick();
        }
        self.world.log().flush();
    }

    /// Whether this worker was told to stop at once.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.standing.shutdown == Some(Shutdown::Immediate)
    }

    fn read_mail(&mut self) {
        while let Ok(mail) = self.inbox.try_recv() {
            self.read(mail);
            self.carry_out();
        }
    }

    fn read(&mut self, mail: Mail<D::Socket>) {
        let now = self.now;
        match mail {
            Mail::Client { socket, ends } => self.client_came(socket, ends),
            Mail::Server(traveller) => self.server_arrived(*traveller),
            Mail::Nudge { pool, from } => {
                self.with_pool(pool, |pool, out| pool.nudged(from, now, out));
            }
            Mail::NoIdle { pool, from } => {
                self.with_pool(pool, |pool, out| pool.no_idle(from, now, out));
            }
            Mail::Call { pool, calling } => self.called(pool, calling),
            Mail::Cancel { pid, key, asker } => self.cancel(pid, &key, asker),
            Mail::Parcel(parcel) => self.carry(parcel),
            Mail::Cancelled { asker } => self.asker_may_go(asker),
            Mail::End { slot, pid, by } => self.end_client(slot, pid, &by),
            Mail::Order { order, ask } => self.ordered(order, ask),
            Mail::Answer { ask, answer } => self.answered(ask.number, answer),
            Mail::Resolved { name, resolution } => self.resolved(&name, &resolution),
            Mail::Found { sought, name, addresses } => self.host_found(sought, &name, addresses),
            Mail::Moved { name } => self.host_moved(&name),
            Mail::Serial { zone, serial } => self.serial_came(&zone, serial),
            Mail::Vouched { party: Party::Client { slot, id }, verdict } => {
                if self.clients.get(slot as usize).is_some_and(|client| client.card.id == id) {
                    self.vouched(slot, verdict);
                }
            }
            Mail::Vouched { party: Party::Server { .. }, .. } => {}
            Mail::Learnt { party, about, name } => self.learnt(party, about, name),
            Mail::Ear { pool, word } => self.told(pool, word),
            Mail::Derived { party, key, derived } => self.derived(party, key, &derived),
        }
    }

    /// Keys came back from the slow side: remember them, and go on with the login that asked.
    fn derived(&mut self, party: Party, key: Option<JobKey>, derived: &Derived) {
        self.commons.memory().keep_derived(key, derived.clone());
        match party {
            Party::Client { slot, id } => {
                if self.clients.get(slot as usize).is_some_and(|client| client.card.id == id) {
                    self.client_derived(slot, derived);
                }
            }
            Party::Server { slot, id } => {
                if self.servers.get(slot as usize).is_some_and(|server| server.id == id) {
                    self.server_derived(slot, derived);
                }
            }
        }
    }

    /// Have addresses for as many clients as may come, which take no memory before they do. A table that grows moves, all
    /// of it at once, and leaves behind a hole as large as itself that the allocator has no use for.
    pub(crate) fn make_room(&mut self) {
        let limit = self.site.config.settings.max_client_conn as usize;
        let wanted = limit.min(ROOM_MAX);
        self.clients.reserve(wanted.saturating_sub(self.clients.len()));
        self.roles.reserve(wanted.saturating_sub(self.roles.len()));
    }

    /// The socket options and water marks of the configuration.
    pub(crate) fn tune(&mut self) {
        let settings = &self.site.config.settings;
        let tuning = Tuning {
            keepalive: settings.tcp_keepalive,
            keepidle_s: settings.tcp_keepidle,
            keepintvl_s: settings.tcp_keepintvl,
            keepcnt: settings.tcp_keepcnt,
            user_timeout_ms: settings.tcp_user_timeout,
            socket_buffer: settings.tcp_socket_buffer,
            defer_accept: settings.tcp_defer_accept != 0 && self.standing.shutdown.is_none(),
            turn_away: self.turning_away.is_some(),
            busy_poll: Duration::from_micros(settings.busy_poll.into()),
            ..Tuning::default()
        };
        self.high_water = tuning.high_water;
        self.driver.tune(&tuning);
    }

    /// The server, if this is its end, or begins as its last word would.
    fn last_word(&self, event: &Done<D::Socket>) -> Option<Conn> {
        let conn = match event {
            Done::Received { conn, bytes } if bytes.first() == Some(&wire::tag::server::ERROR) => {
                *conn
            }
            Done::Ended { conn, .. } => *conn,
            _ => return None,
        };
        matches!(self.role(conn), Role::Server(_)).then_some(conn)
    }

    /// Whether `entry`, which is free, has gone: what it says beyond its answers is a farewell.
    pub(crate) fn is_dying(&self, entry: u32) -> bool {
        if self.dying.is_empty() {
            return false;
        }
        let conn = self.servers.get(entry as usize).and_then(|server| server.conn);
        conn.is_some_and(|conn| self.dying.contains(&conn))
    }

    fn is_of_server(&self, event: &Done<D::Socket>) -> bool {
        let (Done::Received { conn, .. } | Done::Ended { conn, .. } | Done::Secured { conn, .. }) =
            event
        else {
            return false;
        };
        matches!(self.role(*conn), Role::Server(_))
    }

    fn happened(&mut self, event: Done<D::Socket>) {
        match event {
            Done::Received { conn, bytes } => match self.role(conn) {
                Role::Client(slot) => self.client_said(slot, bytes),
                Role::Server(slot) => self.server_said(slot, bytes),
                Role::Canceller(slot) => self.canceller_heard(slot, &bytes),
                Role::Messenger(_) | Role::Nobody => {}
            },
            Done::Secured { conn, sealed } => match self.role(conn) {
                Role::Client(slot) => self.client_secured(slot, *sealed),
                Role::Server(slot) => self.server_secured(slot, &sealed),
                Role::Canceller(slot) => self.canceller_secured(slot, &sealed),
                Role::Messenger(_) | Role::Nobody => {}
            },
            Done::Drained { conn } => match self.role(conn) {
                Role::Client(slot) => self.client_drained(slot),
                Role::Server(slot) => self.server_drained(slot),
                Role::Canceller(_) | Role::Messenger(_) | Role::Nobody => {}
            },
            Done::Accepted { listener, socket, ends } => self.accepted(listener, socket, *ends),
            Done::AcceptFailed { listener, error } => self.accept_failed(listener, &error),
            Done::Connected { conn, ends } => match self.role(conn) {
                Role::Server(slot) => self.server_connected(slot, ends),
                Role::Canceller(slot) => self.canceller_connected(slot),
                Role::Messenger(slot) => self.messenger_connected(slot),
                Role::Client(_) | Role::Nobody => {}
            },
            Done::Ended { conn, error } => match self.role(conn) {
                Role::Client(slot) => self.client_ended(slot, error.as_ref()),
                Role::Server(slot) => self.server_ended(slot, error.as_ref()),
                Role::Canceller(slot) => self.canceller_ended(slot),
                Role::Messenger(slot) => self.messenger_ended(slot, error.as_ref()),
                Role::Nobody => {}
            },
            Done::Closed { conn } => self.closed(conn),
            Done::Detached { conn, socket } => self.detached(conn, socket),
            Done::Woken => self.read_mail(),
        }
        // Whatever it was, what the pools made of it is done before anything else happens.
        self.carry_out();
    }

    pub(crate) fn role(&self, conn: Conn) -> Role {
        self.roles.get(conn.0 as usize).copied().unwrap_or_default()
    }

    pub(crate) fn set_role(&mut self, conn: Conn, role: Role) {
        let slot = conn.0 as usize;
        if self.roles.len() <= slot {
            self.roles.resize(slot + 1, Role::Nobody);
        }
        self.roles[slot] = role;
    }

    /// The kernel is done with a connection: its slot, and what it stood for, is free.
    fn closed(&mut self, conn: Conn) {
        self.closed_some = true;
        let role = self.role(conn);
        self.set_role(conn, Role::Nobody);
        match role {
            Role::Client(slot) => self.client_gone(slot),
            Role::Server(slot) => self.server_gone(slot),
            Role::Canceller(slot) => self.canceller_gone(slot),
            Role::Messenger(slot) => self.messenger_gone(slot),
            Role::Nobody => {}
        }
    }
}
