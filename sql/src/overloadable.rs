//! Names that mean something of PostgreSQL's own until somebody gives them to something else as well.

use std::ops::{BitOr, BitOrAssign};

/// Of the functions that PostgreSQL has built in and that a text calls, which could be another's: a Bloom filter of their
/// names. One bit stands for what is run without being named, as casts and the checks of domains are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Overloadable(u32);

impl Overloadable {
    /// What is named nowhere.
    pub const ANYWHERE: Self = Self(1);
    pub const ALL: Self = Self(u32::MAX);

    /// That of one name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        // FNV, folded to the 31 other bits.
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self(2 << ((hash ^ hash >> 16) % 31))
    }

    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether there is something that may be in both.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl BitOr for Overloadable {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Overloadable {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
