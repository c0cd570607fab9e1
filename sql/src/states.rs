//! Kinds of state that a session can have.

bitflags::bitflags! {
    /// A set of them. Whatever ends with its transaction by itself is not in here: SET LOCAL, locks on tables, cursors
    /// without HOLD, `pg_advisory_xact_lock`.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct States: u16 {
        /// Settings, the custom ones too.
        const SETTINGS = 1;
        /// The role and the session authorization, which RESET ALL spares.
        const ROLE = 1 << 1;
        /// Prepared statements.
        const STATEMENTS = 1 << 2;
        /// Cursors WITH HOLD.
        const CURSORS = 1 << 3;
        /// Channels listened on.
        const CHANNELS = 1 << 4;
        /// Anything in the temporary schema.
        const TEMPORARY = 1 << 5;
        /// Session-level advisory locks.
        const LOCKS = 1 << 6;
        /// What currval and lastval say.
        const SEQUENCES = 1 << 7;
        /// The seed of random().
        const SEED = 1 << 8;
        /// Libraries that were loaded: they stay for good.
        const LIBRARIES = 1 << 9;
        /// What is bound to this backend by number or name: its pid, a replication origin, a temporary replication slot,
        /// a base backup, statistics kept back.
        const BACKEND = 1 << 10;
    }
}

impl States {
    /// What DISCARD ALL ends.
    pub const DISCARDED: Self = Self::SETTINGS
        .union(Self::ROLE)
        .union(Self::STATEMENTS)
        .union(Self::CURSORS)
        .union(Self::CHANNELS)
        .union(Self::TEMPORARY)
        .union(Self::LOCKS)
        .union(Self::SEQUENCES);
}
