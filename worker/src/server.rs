//! A server connection, as its worker holds it.

use io::{Address, Conn, Ends};
use pool::{ClientId, Instant, PoolId, WorkerId};
use session::login::{Replication, ServerLogin};
use session::{Own, ServerSide};

use crate::ears::Step;
use crate::pins::Pin;
use crate::route::Route;

/// One connection to PostgreSQL.
pub(crate) struct Server {
    /// `None` while its host's name is being looked up.
    pub(crate) conn: Option<Conn>,
    pub(crate) pool: PoolId,
    /// Whether we read from it.
    pub(crate) reading: bool,
    pub(crate) state: State,
    pub(crate) side: ServerSide,
    /// Our own query, that it has not answered yet.
    pub(crate) own: Option<Own>,
    /// The client's request is to be cancelled that stands behind what sets its session.
    pub(crate) cancel_behind: bool,
    /// What its client said goes to another server if this one cannot be set.
    pub(crate) flight: Vec<u8>,
    /// A client has had it since its login or its last DISCARD ALL for an inquiry.
    pub(crate) touched: bool,
    /// Whom it serves: a client, or an inquiry.
    pub(crate) client: Option<ClientId>,
    /// When the present state or request began.
    pub(crate) since: Instant,
    /// Counts the requests it was given: a cancel is for one of them.
    pub(crate) requests: u64,
    /// `id` of SHOW SERVERS.
    pub(crate) id: u64,
    pub(crate) ends: Option<Box<Ends>>,
    pub(crate) connected: Instant,
    pub(crate) connected_wall: i64,
    /// How to cancel what it does.
    pub(crate) pid: u32,
    pub(crate) key: Box<[u8]>,
    /// Where it was dialled: its cancels go there too.
    pub(crate) address: Option<Address>,
    pub(crate) port: u16,
    /// How it is found.
    pub(crate) route: Box<Route>,
    /// Version and cipher suite, where it speaks TLS: `TLSv1.3/TLS_AES_256_GCM_SHA384`.
    pub(crate) suite: Option<&'static str>,
    /// `tls-server-end-point` of its certificate, for SCRAM-SHA-256-PLUS.
    pub(crate) end_point: Option<Box<[u8]>>,
    pub(crate) slot: Slot,
    /// It sent a FATAL error, which its client has been given.
    pub(crate) said_why: bool,
    /// Its client keeps it between transactions.
    pub(crate) pinned: Option<Box<Pin>>,
    /// Whose its notifications are.
    pub(crate) step: Step,
    /// Its client's channels cannot be left to the hub.
    pub(crate) stays: bool,
    /// It is being asked what its connect_query made of it.
    pub(crate) new: bool,
    /// It belongs to one replication client, and is in no pool's hands.
    pub(crate) replica: Option<Box<Replica>>,
}

impl Server {
    /// Whether a query of ours is under way, be it with the client's request behind it.
    pub(crate) fn is_ours(&self) -> bool {
        self.own.is_some() || self.side.is_ahead()
    }

    /// Whether what it runs now is its client's.
    pub(crate) fn may_be_struck(&self) -> bool {
        self.own.is_none() && !self.side.is_behind_ours()
    }

    /// Whether its client may have half a message of it, so that nothing of ours can be said to
    /// that one. Of a replication stream nobody counts the messages: it always may.
    pub(crate) fn is_torn(&self) -> bool {
        self.side.is_torn() || self.replica.is_some() && matches!(self.state, State::Ready)
    }
}

/// What a replication client asked its server to be.
pub(crate) struct Replica {
    pub(crate) kind: Replication,
    pub(crate) parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// How the bank knows this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Slot {
    /// Granted; the login is not over.
    Asked,
    /// Logged in.
    Open,
}

/// Where a server is in its life. What it does once logged in is the pool's to know.
pub(crate) enum State {
    /// Its host's name is being looked up.
    Resolving,
    /// Dialled; the kernel has not said yes yet.
    Connecting,
    /// Nobody answered, for this reason: once the socket is gone, it is dialled at the next place.
    Moving(&'static str),
    /// Asked whether it speaks TLS; it answers with one byte.
    Asking,
    /// In the handshake.
    Securing,
    Login(Box<ServerLogin>),
    /// Logged in.
    Ready,
    /// On its way to another worker.
    Leaving(WorkerId),
    /// Hung up on; the socket goes when the kernel is done with it.
    Closing,
}
