//! What SHOW shows.

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
    Lists,
    Mem,
    PeerPools,
    Peers,
    Pools,
    Servers,
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
}

impl View {
    /// Which parts of the facts it shows. Clients and servers come with the zone.
    #[must_use]
    pub fn needs(self) -> &'static [Need] {
        todo!()
    }
}
