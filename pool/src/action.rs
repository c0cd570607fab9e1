//! What a pool asks its worker to do.

use crate::{ClientId, ServerId, WorkerId};

/// One order to the worker. Orders must be carried out in the order given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// `client` may talk to `server` until it is released.
    Link { client: ClientId, server: ServerId },
    /// The line wants `count` more servers than are here or on their way. Ask [`crate::Bank::ask`]
    /// up to `count` times; for each `Open` dial a server and say [`crate::Pool::connecting`], at
    /// the first other answer say [`crate::Pool::denied`] and stop.
    Want { count: u32 },
    /// The bank called ([`crate::Pool::retry`]), and nobody here wants a slot any more: say
    /// [`crate::Bank::declined`], so that it calls the next.
    Decline,
    /// Run `server_check_query` on `server` (it is in `testing`), then `release` or `lost`.
    Check { server: ServerId },
    /// Close `server`, which no client holds and which has already left the pool. The slot goes
    /// back by [`crate::Bank::closed`] once the connection is really gone.
    Close { server: ServerId, reason: CloseReason },
    /// Detach `server` (it is in `leaving`) and mail it to worker `to`; then say
    /// [`crate::Pool::left`] here and [`crate::Pool::arrived`] there, or [`crate::Pool::lost`].
    Give { server: ServerId, to: WorkerId },
    /// Mail worker `to`: it has idle servers of this pool, and we have clients waiting
    /// ([`crate::Pool::nudged`] there).
    Nudge { to: WorkerId },
    /// Mail worker `to`: there was nothing to give ([`crate::Pool::no_idle`] there).
    NoIdle { to: WorkerId },
    /// `client` gets no server: tell it so and hang up. It has left the line.
    Refuse { client: ClientId, reason: RefuseReason },
    /// Tell `client` that it is in line (`query_wait_notify`). It stays there.
    Notify { client: ClientId },
}

/// Why a server is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// `server_idle_timeout`.
    Idle,
    /// `server_lifetime`.
    Lifetime,
    /// RECONNECT, or a RELOAD that changed where the pool leads.
    Obsolete,
    /// Its place was wanted by a sibling pool under `max_db_connections` or `max_user_connections`.
    Evicted,
    /// PAUSE closes idle servers; KILL and SHUTDOWN all.
    Paused,
    /// A limit was lowered below what is open.
    Surplus,
}

/// Why a client is turned away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefuseReason {
    /// `query_wait_timeout`.
    WaitedTooLong,
    /// The last server login failed; the worker knows the cached error.
    LoginFailed,
}
