//! The ring's own table of files. What stands in it need not be looked up, and counted, for each send.

use std::os::fd::RawFd;

use rustix::process::{Resource, getrlimit};

use super::ring::Ring;
use crate::Conn;

/// Whoever has sent this often is put into the table: that is a system call, and so is taking it out, which
/// those who only come and go need not pay for.
pub(super) const SENDS_MIN: u8 = 16;

/// The kernel keeps a word for each. Connections in slots beyond are looked up as ever.
const PLACES_MAX: u32 = 16 * 1024;

/// The table. A connection's place in it is its slot.
///
/// A file in the table stays open, so it has to leave before it is closed or given away.
#[derive(Debug)]
pub(super) struct Files {
    places: u32,
}

/// Where one connection stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Filed {
    /// Not in the table. It has sent so many times.
    No(u8),
    Yes,
}

impl Files {
    /// A table, or none where the kernel has none that is of use to us: until 6.13 a file might stay open for
    /// a while after it had left.
    pub(super) fn open(ring: &Ring) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let places = u32::try_from(limit).unwrap_or(PLACES_MAX).min(PLACES_MAX);
        let has_some = ring.is_recent() && ring.submitter().register_files_sparse(places).is_ok();
        Self { places: if has_some { places } else { 0 } }
    }

    /// Whether there is a place for `conn`.
    pub(super) fn has_room(&self, conn: Conn) -> bool {
        conn.0 < self.places
    }

    /// Put `fd` into the place of `conn`. `false`: it is not there.
    pub(super) fn put(&self, ring: &Ring, conn: Conn, fd: RawFd) -> bool {
        self.has_room(conn)
            && ring.submitter().register_files_update(conn.0, &[fd]).is_ok_and(|put| put == 1)
    }

    /// Take out what is in the place of `conn`. Nothing of it may be in flight.
    pub(super) fn take(&self, ring: &Ring, conn: Conn) -> bool {
        ring.submitter().register_files_update(conn.0, &[-1]).is_ok_and(|taken| taken == 1)
    }
}
