//! A client, as its worker holds it.

use std::sync::Arc;

use io::Conn;
use pool::{Instant, PoolId, ServerId};
use session::ClientSide;
use session::login::Replication;

use crate::desk::Desk;
use crate::ears::Ear;
use crate::ends::PackedEnds;
use crate::enter::Entering;
use crate::keys::CancelKey;
use crate::server::Replica;

/// One client connection. There may be tens of thousands idle, so what only some have is boxed, and so is
/// what is not looked at while it talks.
pub(crate) struct Client {
    pub(crate) conn: Conn,
    pub(crate) pool: PoolId,
    /// Whether we read from it.
    pub(crate) reading: bool,
    /// It said goodbye, behind requests that are still being answered.
    pub(crate) leaving: bool,
    /// A server is being asked whether it takes the settings it asked for.
    pub(crate) proving: bool,
    pub(crate) state: State,
    pub(crate) side: ClientSide,
    /// Bytes that wait for a server, or for the relay.
    pub(crate) held: Vec<u8>,
    /// When the present state began, or the last request did.
    pub(crate) since: Instant,
    /// When its transaction began.
    pub(crate) began: Instant,
    pub(crate) card: Box<Card>,
    /// Where it listens while it has no server.
    pub(crate) ear: Option<Box<Ear>>,
}

const _: () = {
    assert!(size_of::<Client>() <= 176, "every idle client has one");
    assert!(
        size_of::<Card>() <= 88,
        "and one of these: with the allocator's word it fills 96 bytes"
    );
};

/// Who a client is: what is looked at only when it comes, goes, cancels or is shown.
pub(crate) struct Card {
    /// `id` of SHOW CLIENTS, and what names it in the log.
    pub(crate) id: u64,
    pub(crate) ends: PackedEnds,
    pub(crate) connected: Instant,
    /// What it said at login. Once it is let in, all who said the same have one copy.
    pub(crate) name: Option<Arc<Name>>,
    /// Its cancel key.
    pub(crate) key: CancelKey,
    pub(crate) rare: Option<Box<Rare>>,
    /// Unix time, in seconds.
    pub(crate) connected_wall: u32,
    /// It counts in the census of its database and user.
    pub(crate) counted: bool,
    /// It does not count toward `max_client_conn`: an admin, or one that has already left.
    pub(crate) exempt: bool,
    pub(crate) replication: Replication,
}

/// As whom a client came, and for what.
#[derive(Debug, Eq, Hash, PartialEq)]
pub(crate) struct Name {
    /// The database as the client calls it; `None` if there is no such one.
    pub(crate) database: Option<Arc<str>>,
    pub(crate) user: Arc<str>,
}

/// What only some clients have.
#[derive(Default)]
pub(crate) struct Rare {
    /// What TLS says of it, while it logs in.
    pub(crate) tls: Option<auth::TlsFacts>,
    /// Version and cipher suite, where it speaks TLS: `TLSv1.3/TLS_AES_256_GCM_SHA384`.
    pub(crate) suite: Option<&'static str>,
    /// What its own server is to be, until that is dialled.
    pub(crate) replica: Option<Box<Replica>>,
    /// So many servers in a row could not be set for it.
    pub(crate) unset: u8,
    /// The server that has what sequences gave it, by entry and id: as long as nobody took its place there.
    pub(crate) home: Option<(u32, u64)>,
}

impl Card {
    pub(crate) fn new(id: u64, ends: PackedEnds, now: Instant, wall_us: i64) -> Self {
        Self {
            id,
            ends,
            connected: now,
            name: None,
            key: CancelKey::default(),
            rare: None,
            connected_wall: u32::try_from(wall_us / 1_000_000).unwrap_or(u32::MAX),
            counted: false,
            exempt: false,
            replication: Replication::None,
        }
    }

    /// The database as the client calls it; `None` until it is known that there is such a one.
    pub(crate) fn database(&self) -> Option<&str> {
        self.name.as_ref()?.database.as_deref()
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.name.as_ref().map(|name| &*name.user)
    }

    pub(crate) fn tls(&self) -> Option<&auth::TlsFacts> {
        self.rare.as_ref()?.tls.as_ref()
    }

    pub(crate) fn suite(&self) -> Option<&'static str> {
        self.rare.as_ref()?.suite
    }

    /// What only some have, for this one.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
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
