//! What is remembered of a server. It goes where the server goes, also to another thread.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::{Scanner, Status};

use crate::ages::Underway;
use crate::cache::Cache;
use crate::dress::Dressing;
use crate::failing::Failing;
use crate::fit::{Described, Fitting};
use crate::ledger::{Ledger, Trust, Undo, What, Whose};
use crate::lend::Lent;
use crate::regain::Regains;
use crate::signals::Signals;
use crate::statements::Statement;
use crate::trail::Trail;
use crate::wager::Wager;
use crate::{ClientSide, Vars, Voice};

/// The server's side of a relay.
#[derive(Debug)]
pub struct ServerSide {
    /// The tracked parameters as the server reported them.
    pub vars: Vars,
    pub(crate) scanner: Scanner,
    pub(crate) ledger: Ledger,
    pub(crate) status: Status,
    pub(crate) phase: Phase,
    pub(crate) copy: Copying,
    /// Whether it must never be given to anybody else.
    pub(crate) spoilt: bool,
    /// Syncs of which nobody knows whether they were read before a COPY failed, or after it.
    pub(crate) doubtful: u32,
    pub(crate) known: Cache,
    pub(crate) unnamed: Unnamed,
    /// The ledger's number of the entry that last changed `unnamed`.
    pub(crate) unnamed_since: u64,
    /// The body, as far as it came, of a message that must be seen whole.
    pub(crate) partial: Vec<u8>,
    /// Whether the current message is looked into, and passed on when all of it is here.
    pub(crate) in_whole: bool,
    /// Whether the rest of the current message is kept from the client.
    pub(crate) hushed: bool,
    /// Whether nobody was linked when the message began of which a part has come.
    pub(crate) orphan: bool,
    /// The error to the query of our own that is at the ledger's head.
    pub(crate) own_error: Option<Box<[u8]>>,
    /// The error to the `Set` of which statements are still being prepared.
    pub(crate) set_error: Option<Box<[u8]>>,
    /// What the lookup under way has found so far.
    pub(crate) found: Option<Box<Found>>,
    /// What it answers to a probe.
    pub(crate) rows: Vec<Box<[u8]>>,
    /// The client's names that it has for a moment.
    pub(crate) lent: Vec<Lent>,
    /// Those of them that perhaps cannot be prepared.
    pub(crate) failing: Vec<Failing>,
    /// What it is told to DEALLOCATE, in order, by the entry that says so.
    pub(crate) deallocates: VecDeque<(u64, Box<[u8]>)>,
    /// Portals of statements that execute or deallocate by name.
    pub(crate) portals: Vec<(Box<[u8]>, Arc<Statement>)>,
    /// A use of a statement that may have to be said again.
    pub(crate) wager: Option<Box<Wager>>,
    /// Whether the client has had the parameters of a statement that is described again.
    pub(crate) has_parameters: bool,
    /// Answers to Describes that are looked into.
    pub(crate) described: VecDeque<Described>,
    /// Whether what was bound last is a statement of which nobody knows what it returns.
    pub(crate) is_untold: bool,
    /// A statement that it is about to be given.
    pub(crate) fitting: Option<Fitting>,
    /// The same, where it is parsed with settings of its own.
    pub(crate) dressing: Option<Box<Dressing>>,
    /// For whom what is ours was last hidden from the list of statements, and the ledger's next number then.
    pub(crate) hidden: Option<(u32, u64)>,
    /// How many were parsed so in front of the flight at hand.
    pub(crate) dressed_ahead: u8,
    /// What a provoked error is to be.
    pub(crate) provoked: Option<Box<[u8]>>,
    /// What was asked to be signalled, by a request under way.
    pub(crate) signals: Option<Box<Signals>>,
    /// What it said of parameters that may go back to what its client asked for at login.
    pub(crate) reports: Vec<(Vec<u8>, Vec<u8>)>,
    /// What of its client's it resets, and gives back.
    pub(crate) regains: Option<Box<Regains>>,
    /// Whether the role it is in is a superuser, by its own word.
    pub superuser: bool,
    /// What it is changing that others may stand on.
    pub(crate) underway: Option<Underway>,
    /// What its session is set to.
    pub trail: Trail,
    /// Its notifications are not its client's, or not simply: they are left to the worker.
    pub collects: bool,
    /// As whom it notifies.
    pub voice: Option<Arc<Voice>>,
}

/// What a lookup of ours found.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Found {
    /// Columns of the result; `None` where the query gives none at all.
    pub columns: Option<u16>,
    /// The body of the last `DataRow`.
    pub row: Option<Box<[u8]>>,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // There may be a secret in it.
        write!(f, "Found {{ columns: {:?}, .. }}", self.columns)
    }
}

/// Whose answer it is when we ask something ourselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Own {
    /// The client's tracked parameters. When it is answered the client adopts the server's spelling.
    Set,
    /// As `Set`, and the client's request is right behind it: where it fails, nothing else is to be passed on.
    Ahead,
    /// In front of either, another's time limit is lifted. Nobody hears of it.
    Lift,
    /// `server_check_query`, or an empty query to see whether the server is alive.
    Check,
    /// `server_reset_query`.
    Reset,
    /// `connect_query`.
    Connect,
    /// `DISCARD ALL`, so that nothing a client left can have a say in a lookup.
    Clean,
    /// `connect_query`, after a `DISCARD ALL` has undone it.
    Reconnect,
    /// `auth_query`. What it gives is reported in `Owned::found`.
    Lookup,
    /// What its session is set to. The answer's rows come with it.
    Probe,
    /// LISTEN, UNLISTEN and NOTIFY, by which listening goes from server to server.
    Ear,
    /// One statement of the client's that `PREPARE` made elsewhere. It belongs to the `Set`, and is reported
    /// with it.
    Prepare,
    /// Statements of the client's under their own names, for one text that calls them so; or that these are
    /// given up again. Nobody hears of it.
    Lend,
    /// What a RESET has led back to the server's own, given back as its client asked for it.
    Regain,
    /// A statement of the client's, with the settings that it was parsed with; and these. Nobody hears of it.
    Dress,
}

/// Where the messages sent stand towards the Sync that ends their batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Synced,
    /// Extended messages were sent after the last Sync.
    Unsynced,
    /// One of them failed: the server discards everything until a Sync.
    Skipping,
}

/// Whether the server is copying.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Copying {
    No,
    /// From the client, who has not sent the end. `eaten` Syncs were sent meanwhile, and owe nothing.
    In {
        eaten: u32,
    },
    /// From the client, who has sent the end.
    InEnded {
        eaten: u32,
    },
    /// Both ways. There is no telling when that is over.
    Both,
}

/// An unnamed statement, as it will be if all that was sent goes well.
#[derive(Clone, Debug, Default)]
pub(crate) enum Unnamed {
    #[default]
    Nothing,
    Is(Arc<Statement>),
    /// Nobody looked while it was made.
    Unknown,
}

impl Unnamed {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) | (Self::Unknown, Self::Unknown) => true,
            (Self::Is(one), Self::Is(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl ServerSide {
    /// A server that has just logged us in and reported these values.
    #[must_use]
    pub fn new(vars: Vars) -> Self {
        Self {
            vars,
            scanner: Scanner::default(),
            ledger: Ledger::default(),
            status: Status::Idle,
            phase: Phase::Synced,
            copy: Copying::No,
            spoilt: false,
            doubtful: 0,
            known: Cache::default(),
            unnamed: Unnamed::Nothing,
            unnamed_since: 0,
            partial: Vec::new(),
            in_whole: false,
            hushed: false,
            orphan: false,
            own_error: None,
            set_error: None,
            found: None,
            rows: Vec::new(),
            lent: Vec::new(),
            failing: Vec::new(),
            deallocates: VecDeque::new(),
            portals: Vec::new(),
            wager: None,
            has_parameters: false,
            described: VecDeque::new(),
            is_untold: false,
            fitting: None,
            dressing: None,
            hidden: None,
            dressed_ahead: 0,
            provoked: None,
            signals: None,
            reports: Vec::new(),
            regains: None,
            superuser: false,
            underway: None,
            trail: Trail::default(),
            collects: false,
            voice: None,
        }
    }

    /// Ask something ourselves: the query is appended to `out`, its answer is kept from clients and
    /// reported in `Flow::owned`. Only for a server that is free; what the client says may follow
    /// at once.
    pub fn own(&mut self, kind: Own, sql: &[u8], out: &mut Vec<u8>) {
        self.ledger.push(What::Own(kind), Whose::Ours, None);
        // A simple query drops the unnamed statement, and nothing before it can make it skipped.
        self.drop_unnamed();
        wire::write::client::query(out, sql);
    }

    /// Ask `sql`, with `name` for its `$1`, by the extended protocol. As [`Self::own`], and whether it
    /// goes well or not: an error leaves the unnamed statement behind, until a simple query.
    pub fn look_up(&mut self, sql: &[u8], name: &[u8], out: &mut Vec<u8>) {
        use wire::write::client as say;
        self.ledger.push(What::Own(Own::Lookup), Whose::Ours, None);
        self.drop_unnamed();
        self.found = Some(Box::default());
        say::parse(out, b"", sql, &[]);
        say::bind_unnamed(out, &[name]);
        say::describe(out, wire::Namespace::Portal, b"");
        say::execute(out, b"");
        // Nobody else is to find it.
        say::close(out, wire::Namespace::Statement, b"");
        say::sync(out);
    }

    /// Make it prepare what its client had prepared by SQL elsewhere. As [`Self::own`]; what it comes to is
    /// reported as an `Own::Set`, behind which it may stand.
    pub fn prepare(&mut self, missing: Vec<crate::Made>, out: &mut Vec<u8>) {
        use wire::write::client as say;
        for made in missing {
            self.ledger.push(What::Own(Own::Prepare), Whose::Ours, None);
            self.drop_unnamed();
            say::parse(out, b"", &made.text, &[]);
            say::bind_unnamed(out, &[]);
            say::execute(out, b"");
            say::close(out, wire::Namespace::Statement, b"");
            say::sync(out);
            self.trail.workshop.underway.push_back(made);
        }
    }

    /// The answer to a probe. `false`: it is no answer.
    pub fn learn(
        &mut self,
        client: Option<&mut ClientSide>,
        rows: &[Box<[u8]>],
        tracked: &crate::Tracked,
        login: &[u8],
    ) -> bool {
        self.trail.learn(client, rows, tracked, login, &self.vars)
    }

    /// As `ClientSide::flavour`.
    #[must_use]
    pub fn flavour(&self) -> u32 {
        self.vars.flavour() ^ crate::State::flavour(self.trail.state.as_ref())
    }

    /// Whether it can serve somebody else than `client`, to whom it is linked.
    #[must_use]
    pub fn is_free(&self, client: &ClientSide) -> bool {
        self.is_done(client) && !self.spoilt
    }

    /// As `is_free`, but for a spoilt server as well: that is to be closed now, and the client can
    /// go on with another.
    #[must_use]
    pub fn is_done(&self, client: &ClientSide) -> bool {
        self.is_at_rest() && (client.is_between() || planted::is("free-with-half-a-message"))
    }

    /// Whether it is done as far as itself goes, linked to nobody.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        (self.ledger.is_empty() || planted::is("free-with-answers-owed"))
            && (self.status == Status::Idle || planted::is("free-in-transaction"))
            && (self.phase == Phase::Synced || planted::is("free-in-batch"))
            && self.copy == Copying::No
            && self.scanner.is_between()
    }

    /// Whether its client has been given a part of a message only. Whatever is said to the client
    /// then is taken for the rest of it.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        let passed = !self.hushed && !self.in_whole;
        self.scanner.is_inside() && passed && !planted::is("words-within-a-message")
    }

    /// Whether nothing can be run now but what ends the transaction, and it stays so with all that is still to be answered.
    pub(crate) fn is_aborted(&self) -> bool {
        self.status == Status::Failed && self.ledger.is_quiet()
    }

    /// Whether something surprising happened, so that it must not be given to anybody else.
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// Never give it to anybody else.
    pub fn spoil(&mut self) {
        self.spoilt = true;
    }

    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.status != Status::Idle
    }

    /// As the last `ReadyForQuery` said.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Whether it owes an answer.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// Whether it will not come to rest by itself: the client has to say more, be it the rest of a
    /// COPY, a Sync, or the end of its transaction.
    #[must_use]
    pub fn awaits_client(&self) -> bool {
        !self.ledger.owes_ready() || matches!(self.copy, Copying::In { .. } | Copying::Both)
    }

    /// How many prepared statements it has.
    #[must_use]
    pub fn prepared(&self) -> usize {
        self.known.len()
    }

    /// The next entry makes this the unnamed statement, here and, if it is the client's own doing,
    /// for the client.
    pub(crate) fn set_unnamed(&mut self, client: Option<&mut ClientSide>, to: &Unnamed) {
        let (at, server) = (self.ledger.next(), std::mem::replace(&mut self.unnamed, to.clone()));
        let client = client.map(|client| std::mem::replace(&mut client.unnamed, to.clone()));
        self.ledger.note(Undo::Unnamed { client, server });
        self.unnamed_since = at;
    }

    /// A message of ours that is sure to be heeded does away with the unnamed statement.
    pub(crate) fn drop_unnamed(&mut self) {
        (self.unnamed, self.unnamed_since) = (Unnamed::Nothing, 0);
    }

    /// Whether there is an unnamed statement, or was one before a change that may yet be skipped.
    pub(crate) fn may_have_unnamed(&self) -> bool {
        !matches!(self.unnamed, Unnamed::Nothing) || self.unnamed_since >= self.ledger.first()
    }

    /// Whether it is known which unnamed statement the next message will find.
    pub(crate) fn trusts_unnamed(&self) -> bool {
        self.ledger.trust(self.unnamed_since) == Trust::Sure
    }
}
