//! What SHOW shows. A view is a row of one table; its columns and its rows stand in its own file.

mod config;
mod databases;
mod dns;
mod fds;
mod listeners;
mod lists;
mod memory;
mod peers;
mod pin_totals;
mod pins;
mod pools;
mod session_report;
mod sockets;
mod state;
mod stats;
mod users;

use crate::cell::{Column, Rows, text};
use crate::{Facts, Role, VERSION_COMPAT};

/// A view, by the word after SHOW.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum View {
    ActiveSockets,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Fds,
    Help,
    Listeners,
    Lists,
    Mem,
    /// DATABASES and STATS for who asks for columns by the names that they once had.
    OldDatabases,
    OldStats,
    PeerPools,
    Peers,
    PinTotals,
    Pins,
    Pools,
    Servers,
    SessionReport,
    Sockets,
    State,
    Stats,
    StatsAverages,
    StatsTotals,
    Totals,
    Users,
    Version,
}

/// A part of [`crate::Facts`] that a view needs filled in.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Need {
    /// With the zone, as servers.
    Clients,
    Servers,
    Pools,
    PeerPools,
    Stats,
    Databases,
    Users,
    Peers,
    Config,
    Lists,
    Memory,
    /// Hosts and zones.
    Dns,
    State,
    Fds,
    /// With the zone.
    Pins,
    Listeners,
    PinTotals,
    SessionReport,
}

/// A row of the table of views.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub(crate) view: View,
    /// The word after SHOW.
    pub(crate) word: &'static str,
    /// Who may see it.
    pub(crate) who: Role,
    pub(crate) needs: &'static [Need],
    /// Empty: this is HELP, which is a notice.
    pub(crate) columns: &'static [Column],
    pub(crate) rows: fn(&Facts, &mut Rows<'_>),
    /// What documentation says about it.
    pub(crate) about: &'static str,
}

impl View {
    /// Every view there is.
    pub fn all() -> impl Iterator<Item = Self> {
        SHEETS.iter().map(|sheet| sheet.view)
    }

    /// The view of that name, in any case.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        SHEETS.iter().find(|sheet| sheet.word.eq_ignore_ascii_case(word)).map(|sheet| sheet.view)
    }

    /// The word after SHOW.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.sheet().word
    }

    /// The least role that may see it.
    #[must_use]
    pub fn who(self) -> Role {
        self.sheet().who
    }

    /// Which parts of the facts it shows.
    #[must_use]
    pub fn needs(self) -> &'static [Need] {
        self.sheet().needs
    }

    /// The same, with the columns that had another name in their day at its end.
    pub(crate) fn with_old_columns(self) -> Self {
        match self {
            Self::Databases => Self::OldDatabases,
            Self::Stats => Self::OldStats,
            other => other,
        }
    }

    pub(crate) fn sheet(self) -> &'static Sheet {
        // The tables have a row for each view (a test says so); HELP says nothing that is secret.
        SHEETS.iter().chain(&OLD_SHEETS).find(|sheet| sheet.view == self).unwrap_or(&HELP)
    }
}

const HELP: Sheet = Sheet {
    view: View::Help,
    word: "HELP",
    who: Role::Stats,
    needs: &[],
    columns: &[],
    rows: |_, _| {},
    about: "The commands there are, as a NOTICE. There are no rows.",
};

const VERSION: Sheet = Sheet {
    view: View::Version,
    word: "VERSION",
    who: Role::Stats,
    needs: &[],
    columns: &[text("version")],
    rows: |_, rows| rows.push(&[VERSION_COMPAT.into()]),
    about: "The version of PgBouncer that this program stands in for.",
};

pub(crate) static SHEETS: [Sheet; 26] = [
    sockets::ACTIVE_SOCKETS,
    sockets::CLIENTS,
    config::CONFIG,
    databases::DATABASES,
    dns::DNS_HOSTS,
    dns::DNS_ZONES,
    fds::FDS,
    HELP,
    listeners::LISTENERS,
    lists::LISTS,
    memory::MEM,
    peers::PEER_POOLS,
    peers::PEERS,
    pin_totals::PIN_TOTALS,
    pins::PINS,
    pools::POOLS,
    sockets::SERVERS,
    session_report::SESSION_REPORT,
    sockets::SOCKETS,
    state::STATE,
    stats::STATS,
    stats::STATS_AVERAGES,
    stats::STATS_TOTALS,
    stats::TOTALS,
    users::USERS,
    VERSION,
];

/// What no word names: see [`View::with_old_columns`].
static OLD_SHEETS: [Sheet; 2] = [databases::OLD_DATABASES, stats::OLD_STATS];

/// Microseconds as whole seconds and what is left over: two columns.
pub(crate) fn seconds(us: u64) -> [u64; 2] {
    const MICROSECONDS_PER_SECOND: u64 = 1_000_000;
    [us / MICROSECONDS_PER_SECOND, us % MICROSECONDS_PER_SECOND]
}
