//! A client, as its worker holds it.

use std::sync::Arc;

use io::{Conn, Ends};
use pool::{Instant, PoolId, ServerId};
use session::ClientSide;
use session::login::Replication;

use crate::desk::Desk;
use crate::ears::Ear;
use crate::enter::Entering;
use crate::server::Replica;

/// One client connection. There may be tens of thousands idle, so what only some have is boxed.
pub(crate) struct Client {
    pub(crate) conn: Conn,
    pub(crate) pool: PoolId,
    /// Whether we read from it.
    pub(crate) reading: bool,
    /// It said goodbye, behind requests that are still being answered.
    pub(crate) leaving: bool,
    pub(crate) state: State,
    pub(crate) side: ClientSide,
    /// Bytes that wait for a server, or for the relay.
    pub(crate) held: Vec<u8>,
    /// When the present state began, or the last request did.
    pub(crate) since: Instant,
    /// When its transaction began.
    pub(crate) began: Instant,
    pub(crate) card: Box<Card>,
    /// The server that has what sequences gave it, by entry and id: as long as nobody took its place there.
    pub(crate) home: Option<(u32, u64)>,
    /// Where it listens while it has no server.
    pub(crate) ear: Option<Box<Ear>>,
}

/// Who a client is: what is looked at only when it comes, goes, cancels or is shown.
pub(crate) struct Card {
    /// `id` of SHOW CLIENTS, and what names it in the log.
    pub(crate) id: u64,
    pub(crate) ends: Ends,
    /// What TLS says of it, where there is TLS.
    pub(crate) tls: Option<Box<auth::TlsFacts>>,
    pub(crate) connected: Instant,
    /// Unix time, in seconds.
    pub(crate) connected_wall: i64,
    /// The database as the client calls it; `None` until it is known that there is such a one.
    pub(crate) database: Option<Arc<str>>,
    pub(crate) user: Option<Arc<str>>,
    /// Its cancel key; empty until it is logged in.
    pub(crate) key: CancelKey,
    /// It counts in the census of its database and user.
    pub(crate) counted: bool,
    /// It does not count toward `max_client_conn`: an admin, or one that has already left.
    pub(crate) exempt: bool,
    pub(crate) replication: Replication,
    /// Version and cipher suite, where it speaks TLS: `TLSv1.3/TLS_AES_256_GCM_SHA384`.
    pub(crate) suite: Option<&'static str>,
    /// What its own server is to be, until that is dialled.
    pub(crate) replica: Option<Box<Replica>>,
    /// A server is being asked whether it takes the settings it asked for.
    pub(crate) proving: bool,
}

impl Card {
    pub(crate) fn new(id: u64, ends: Ends, now: Instant, wall_us: i64) -> Self {
        Self {
            id,
            ends,
            tls: None,
            connected: now,
            connected_wall: wall_us / 1_000_000,
            database: None,
            user: None,
            key: CancelKey::default(),
            counted: false,
            exempt: false,
            replication: Replication::None,
            suite: None,
            replica: None,
            proving: false,
        }
    }
}

/// What a client must show to cancel its query.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelKey {
    pub(crate) pid: u32,
    /// 4 bytes, or 32 since protocol 3.2.
    pub(crate) secret: Box<[u8]>,
    /// It may come from a peer, and says how often it was sent on.
    pub(crate) travels: bool,
}

/// Where a client is. Waiting and linked clients are also known to their pool.
pub(crate) enum State {
    /// Not logged in yet.
    Login(Box<Entering>),
    /// Logged in, and wants nothing.
    Idle,
    /// In line for a server.
    Waiting(WaitingFor),
    Linked(ServerId),
    /// An admin.
    Console(Box<Desk>),
    /// It sent a CancelRequest, and waits to hear that it was delivered.
    Canceling,
    /// Told why, and hung up on; it goes when its last bytes have gone.
    Closing,
}

/// What a client in line will do with its server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WaitingFor {
    /// Have its query answered.
    Query,
    /// Learn what the servers of its pool are like: nobody had logged in to one before.
    Welcome,
    /// Have it for itself, to replicate; it is being logged in to.
    Replica,
}
