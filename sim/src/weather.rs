//! What one run is like: how the pooler is set up, and which kinds of events happen in it at all.
//!
//! Each run favours other events, and most kinds are switched off in most runs: what always happens
//! hides what would follow if it did not (swarm testing).

use crate::dice::Dice;

/// How the kernel treats bytes and mail.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) cut: Cut,
    /// Bytes on their way in one direction, at most.
    pub(crate) buffer: usize,
    /// Each connection is passed over in one of so many turns.
    pub(crate) lazy: u32,
    /// Mail is looked at only in the next turn, one time in so many.
    pub(crate) mail_late: u32,
    /// Unsent bytes count so many times, so that little traffic fills a queue.
    pub(crate) scale: usize,
}

/// Into how large pieces bytes are cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cut {
    Bytes,
    Small,
    Any,
    Whole,
}

impl Wire {
    /// How much of `len` bytes moves at once; at least one, if there is any.
    pub(crate) fn piece(&self, dice: &mut Dice, len: usize) -> usize {
        if len <= 1 {
            return len;
        }
        match self.cut {
            Cut::Bytes => 1 + dice.under(len.min(2)),
            Cut::Small => 1 + dice.under(len.min(30)),
            Cut::Any if dice.one_in(2) => len,
            Cut::Any => 1 + dice.under(len),
            Cut::Whole => len,
        }
    }
}

/// `pool_mode`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PoolMode {
    Session,
    Transaction,
    Statement,
}

/// What is stored of passwords, and how they are asked for. What cannot work is not among them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Logins {
    /// `auth_type`
    pub(crate) clients: &'static str,
    /// How servers ask.
    pub(crate) servers: auth::Method,
    pub(crate) stored: Stored,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stored {
    Plain,
    Md5,
    Scram,
}

const LOGINS: [Logins; 11] = {
    use Stored::{Md5, Plain, Scram};
    use auth::Method;
    const fn logins(clients: &'static str, servers: Method, stored: Stored) -> Logins {
        Logins { clients, servers, stored }
    }
    [
        logins("trust", Method::Trust, Plain),
        logins("any", Method::Trust, Plain),
        logins("plain", Method::Plain, Plain),
        logins("md5", Method::Md5, Plain),
        logins("scram-sha-256", Method::Scram, Plain),
        logins("md5", Method::Md5, Md5),
        logins("plain", Method::Md5, Md5),
        logins("scram-sha-256", Method::Scram, Scram),
        logins("md5", Method::Scram, Scram),
        logins("plain", Method::Trust, Scram),
        logins("trust", Method::Scram, Plain),
    ]
};

/// How often things happen: once in so many chances, 0 for never.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) client_dies: u32,
    pub(crate) client_stalls: u32,
    pub(crate) garbage: u32,
    pub(crate) wrong_password: u32,
    pub(crate) server_dies: u32,
    pub(crate) dial_refused: u32,
    pub(crate) dial_hangs: u32,
    pub(crate) login_fails: u32,
    pub(crate) login_hangs: u32,
    pub(crate) server_thinks: u32,
    pub(crate) noise: u32,
    pub(crate) cancels: u32,
    pub(crate) accept_fails: u32,
    pub(crate) crashes: u32,
    pub(crate) copies: u32,
    pub(crate) errors: u32,
    pub(crate) sets: u32,
    pub(crate) extended: u32,
    pub(crate) unsynced: u32,
    pub(crate) large: u32,
    pub(crate) functions: u32,
    pub(crate) transactions: u32,
    pub(crate) forgets: u32,
    pub(crate) traces: u32,
    /// LISTEN, UNLISTEN and NOTIFY.
    pub(crate) listens: u32,
    /// SET of a time limit, which then strikes what the pooler sets.
    pub(crate) limits: u32,
    pub(crate) leaps: u32,
}

/// What admins do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) shows: bool,
    pub(crate) pauses: bool,
    pub(crate) kills: bool,
    pub(crate) reconnects: bool,
    pub(crate) reloads: bool,
    pub(crate) disables: bool,
    pub(crate) suspends: bool,
}

/// One run's.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) wire: Wire,
    pub(crate) workers: usize,
    pub(crate) mode: PoolMode,
    pub(crate) pool_size: u32,
    pub(crate) reserve: u32,
    pub(crate) min_pool: u32,
    pub(crate) db_max: u32,
    pub(crate) prepared_max: u32,
    pub(crate) databases: usize,
    pub(crate) users: usize,
    pub(crate) logins: Logins,
    pub(crate) resets_always: bool,
    pub(crate) checks: bool,
    pub(crate) connect_query: bool,
    pub(crate) lifetime_s: u32,
    pub(crate) idle_s: u32,
    /// Times of queries, transactions, waits and logins end.
    pub(crate) timeouts: bool,
    pub(crate) round_robin: bool,
    pub(crate) reports_at_once: bool,
    /// Servers send what they say when a batch is over, not before.
    pub(crate) buffers: bool,
    /// Servers speak protocol 3.2.
    pub(crate) long_keys: bool,
    pub(crate) applications: usize,
    pub(crate) pipeline: usize,
    pub(crate) rates: Rates,
    pub(crate) orders: Orders,
    pub(crate) admins: usize,
    /// Which actors are quick: turns of workers, applications, servers, the clock, admins, of 100.
    pub(crate) pace: [u32; 5],
    pub(crate) tick_ns: usize,
    /// Session state follows its client.
    pub(crate) tracks: bool,
    /// One server of a pool listens for all of its clients that are idle.
    pub(crate) hub: bool,
    /// Servers are found by names whose addresses come and go.
    pub(crate) names: bool,
    /// Servers tell how much was changed in their catalogs.
    pub(crate) counts_changes: bool,
}

impl Weather {
    pub(crate) fn of(dice: &mut Dice) -> Self {
        let calm = dice.one_in(4);
        let mut rates = Rates::of_requests(dice);
        if !calm {
            rates.make_rough(dice);
        }
        let cut = *dice.pick(&[Cut::Bytes, Cut::Small, Cut::Any, Cut::Any, Cut::Whole, Cut::Whole]);
        let wire = Wire {
            cut,
            buffer: *dice.pick(&[16, 200, 4000, 65_536, 65_536]),
            lazy: *dice.pick(&[0, 0, 2, 4]),
            mail_late: *dice.pick(&[0, 0, 2, 4]),
            scale: *dice.pick(&[1, 1, 100, 1000]),
        };
        let orders = if dice.one_in(2) { Orders::of(dice, calm) } else { Orders::default() };
        let mode = *dice.pick(&[
            PoolMode::Session,
            PoolMode::Transaction,
            PoolMode::Transaction,
            PoolMode::Transaction,
            PoolMode::Statement,
        ]);
        Self {
            wire,
            workers: dice.between(1, 3),
            mode,
            pool_size: dice.between(1, 4) as u32,
            reserve: *dice.pick(&[0, 0, 0, 1, 2]),
            min_pool: *dice.pick(&[0, 0, 0, 1, 3]),
            db_max: *dice.pick(&[0, 0, 0, 1, 2]),
            prepared_max: *dice.pick(&[0, 1, 1, 2, 3, 200]),
            databases: dice.between(1, 2),
            users: dice.between(1, 2),
            logins: *dice.pick(&LOGINS),
            resets_always: dice.one_in(4),
            checks: dice.one_in(3),
            connect_query: dice.one_in(5),
            lifetime_s: *dice.pick(&[3600, 3600, 3600, 1, 0]),
            idle_s: *dice.pick(&[600, 600, 1, 0]),
            timeouts: !calm && dice.one_in(4),
            round_robin: dice.one_in(3),
            reports_at_once: dice.one_in(4),
            buffers: !dice.one_in(3),
            long_keys: dice.one_in(2),
            applications: dice.between(1, 8),
            pipeline: *dice.pick(&[1, 1, 3, 10]),
            rates,
            admins: if orders.any() { dice.between(1, 2) } else { 0 },
            orders,
            pace: [
                dice.between(10, 60) as u32,
                dice.between(10, 60) as u32,
                dice.between(10, 60) as u32,
                dice.between(1, 10) as u32,
                dice.between(1, 10) as u32,
            ],
            tick_ns: *dice.pick(&[1_000, 20_000, 500_000, 5_000_000]),
            names: dice.one_in(3),
            tracks: !dice.one_in(3),
            hub: false,
            counts_changes: !dice.one_in(4),
        }
    }

    /// The same, where clients may listen.
    pub(crate) fn with_ears(mut self, dice: &mut Dice) -> Self {
        if dice.one_in(3) && (self.follows() || self.keeps_sessions()) {
            self.rates.listens = *dice.pick(&[2, 2, 6]);
            self.hub = !dice.one_in(6);
            // Hubs take their time, and room; and there is much to be said.
            self.tick_ns = *dice.pick(&[500_000, 5_000_000, 20_000_000]);
            self.rates.leaps = *dice.pick(&[20, 60, 200]);
            self.pool_size = dice.between(1, 4) as u32;
            self.applications = dice.between(2, 9);
            (self.rates.functions, self.rates.copies) = (0, 0);
            self.rates.extended = *dice.pick(&[0, 0, 4]);
            self.wire.cut = *dice.pick(&[Cut::Small, Cut::Any, Cut::Whole, Cut::Whole]);
            self.wire.buffer = *dice.pick(&[4000, 65_536]);
            self.pace = [40, 40, 40, *dice.pick(&[1, 4, 10]), *dice.pick(&[1, 1, 5])];
            // Few pools, and much in common.
            (self.databases, self.users) = *dice.pick(&[(1, 1), (1, 1), (1, 2), (2, 1)]);
            self.rates.server_thinks = *dice.pick(&[0, 2, 2]);
        }
        if self.hub {
            self.mode = PoolMode::Transaction;
            self.tracks = true;
        }
        self
    }

    /// The same, where clients may set time limits.
    pub(crate) fn with_limits(mut self, dice: &mut Dice) -> Self {
        if self.follows() && dice.one_in(3) {
            self.rates.limits = *dice.pick(&[3, 8]);
        }
        self
    }

    /// Nothing here can end a conversation but the one who leads it.
    pub(crate) fn is_calm(&self) -> bool {
        let r = &self.rates;
        let rough = [
            r.server_dies,
            r.dial_refused,
            r.dial_hangs,
            r.login_fails,
            r.login_hangs,
            r.crashes,
            r.garbage,
            r.wrong_password,
        ];
        rough.iter().all(|rate| *rate == 0)
            && !self.timeouts
            && !self.orders.are_rough()
            && !self.may_lose_hubs()
    }

    /// Whether clients listen.
    pub(crate) fn listens(&self) -> bool {
        self.rates.listens > 0
    }

    /// Whether something may end a hub, and with it those whom it listens for.
    pub(crate) fn may_lose_hubs(&self) -> bool {
        let orders = &self.orders;
        self.listens()
            && (orders.pauses || orders.reconnects || orders.reloads || orders.kills || self.names)
    }

    /// Whether clients' names of statements are the pooler's business.
    pub(crate) fn rewrites(&self) -> bool {
        self.mode != PoolMode::Session && self.prepared_max > 0
    }

    /// Whether clients have a session of their own, and so names for statements in it.
    pub(crate) fn keeps_sessions(&self) -> bool {
        self.mode == PoolMode::Session
    }

    /// Whether session state goes from server to server with its client.
    pub(crate) fn follows(&self) -> bool {
        self.mode != PoolMode::Session && self.tracks
    }

    /// The configuration. `edition` tells reloaded ones apart.
    pub(crate) fn config(&self, edition: u32) -> String {
        let mode = match self.mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        };
        let connect = if self.connect_query { " connect_query='select 1'" } else { "" };
        let host = if self.names { "db.test,127.0.0.1,other.test" } else { "127.0.0.1" };
        let mut text = String::from("[databases]\n");
        for at in 0..self.databases {
            // Now and then a database is gone.
            if at > 0 && self.orders.kills && edition % 4 == 3 {
                continue;
            }
            let port = if edition % 3 == 2 { 5433 } else { 5432 };
            text += &format!("db{at} = host={host} port={port}{connect}\n");
        }
        let size = match edition {
            0 => self.pool_size,
            edition => 1 + (self.pool_size + edition) % 4,
        };
        let wait = if self.timeouts { 2 } else { 0 };
        let suspend = if self.timeouts { 10 } else { 100_000 };
        let [login, query, idle, connect] = if self.timeouts { [3, 2, 1, 2] } else { [0; 4] };
        let (checks, check_delay) = if self.checks { ("select 1", 0) } else { ("", 30) };
        text += &format!(
            "[pgbouncer]\n\
             pool_mode = {mode}\nlisten_hub = {}\ntrack_session_state = {}\ndefault_pool_size = {size}\nreserve_pool_size = {}\n\
             reserve_pool_timeout = 0.05\nmin_pool_size = {}\nmax_db_connections = {}\n\
             max_prepared_statements = {}\nauth_type = {}\nadmin_users = admin\n\
             max_client_conn = 1000\nserver_reset_query_always = {}\n\
             server_check_query = {checks}\nserver_check_delay = {check_delay}\n\
             server_lifetime = {}\nserver_idle_timeout = {}\nquery_wait_timeout = {wait}\n\
             client_login_timeout = {login}\nquery_timeout = {query}\n\
             idle_transaction_timeout = {idle}\nserver_connect_timeout = {connect}\n\
             server_login_retry = 0.2\nserver_round_robin = {}\nquery_wait_notify = 1\n\
             cancel_wait_timeout = {wait}\nlog_connections = 0\nlog_disconnections = 0\n\
             dns_max_ttl = 0.05\ndns_nxdomain_ttl = 0.05\ndns_zone_check_period = 0.5\n\
             suspend_timeout = {suspend}\nlog_stats = 0\nworkers = {}\nlisten_addr = 127.0.0.1\n",
            u32::from(self.hub),
            u32::from(self.tracks),
            self.reserve,
            self.min_pool,
            self.db_max,
            self.prepared_max,
            self.logins.clients,
            u32::from(self.resets_always),
            self.lifetime_s,
            self.idle_s,
            u32::from(self.round_robin),
            self.workers,
        );
        text
    }

    /// The most servers that one pool may ever have, over all editions.
    pub(crate) fn pool_most(&self) -> u32 {
        let size = if self.orders.reloads { 4 } else { self.pool_size };
        size + self.reserve
    }
}

impl Rates {
    /// What clients ask for.
    fn of_requests(dice: &mut Dice) -> Self {
        Self {
            client_stalls: maybe(dice, 2, &[3, 10]),
            server_thinks: maybe(dice, 2, &[2, 5]),
            noise: maybe(dice, 2, &[3, 20, 100]),
            cancels: maybe(dice, 3, &[3, 10, 40]),
            accept_fails: maybe(dice, 6, &[20]),
            copies: maybe(dice, 2, &[3, 8]),
            errors: maybe(dice, 2, &[4, 12]),
            sets: maybe(dice, 2, &[3, 8]),
            extended: maybe(dice, 2, &[2, 1]).max(u32::from(dice.one_in(2))),
            unsynced: maybe(dice, 2, &[2, 5]),
            large: maybe(dice, 4, &[2, 5, 20]),
            functions: maybe(dice, 3, &[5]),
            transactions: maybe(dice, 2, &[2, 4]),
            forgets: maybe(dice, 3, &[6]),
            traces: maybe(dice, 2, &[4, 12]),
            leaps: maybe(dice, 2, &[30, 200]),
            // A client that dies hurts nobody else.
            client_dies: maybe(dice, 2, &[50, 300]),
            ..Self::default()
        }
    }

    /// What can go wrong around them.
    fn make_rough(&mut self, dice: &mut Dice) {
        self.garbage = maybe(dice, 6, &[30]);
        self.wrong_password = maybe(dice, 4, &[5]);
        self.server_dies = maybe(dice, 2, &[100, 1000]);
        self.dial_refused = maybe(dice, 3, &[2, 5]);
        self.dial_hangs = maybe(dice, 4, &[5]);
        self.login_fails = maybe(dice, 3, &[3, 6]);
        self.login_hangs = maybe(dice, 4, &[6]);
        self.crashes = maybe(dice, 3, &[20]);
    }
}

fn maybe(dice: &mut Dice, one_in: u32, rates: &[u32]) -> u32 {
    if dice.one_in(one_in) { *dice.pick(rates) } else { 0 }
}

impl Orders {
    fn of(dice: &mut Dice, calm: bool) -> Self {
        Self {
            shows: dice.one_in(2),
            pauses: dice.one_in(2),
            kills: !calm && dice.one_in(2),
            reconnects: dice.one_in(2),
            reloads: dice.one_in(2),
            disables: !calm && dice.one_in(3),
            suspends: dice.one_in(3),
        }
    }

    fn any(&self) -> bool {
        let Self { shows, pauses, kills, reconnects, reloads, disables, suspends } = *self;
        shows || pauses || kills || reconnects || reloads || disables || suspends
    }

    fn are_rough(&self) -> bool {
        self.kills || self.disables
    }
}
