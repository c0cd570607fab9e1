//! Faults that can be planted, so that the simulator can show that it finds them.
//!
//! Nothing of this is in a normal build: [`is`] is `false` there before the compiler looks further.

#![no_std]

use core::sync::atomic::{AtomicU64, Ordering};

static PLANTED: AtomicU64 = AtomicU64::new(0);

/// Whether this fault is planted.
#[inline(always)]
#[must_use]
pub fn is(name: &str) -> bool {
    cfg!(feature = "on") && PLANTED.load(Ordering::Relaxed) == hash(name)
}

/// Plant this fault and no other; `None`: none.
pub fn plant(name: Option<&str>) {
    PLANTED.store(name.map_or(0, hash), Ordering::Relaxed);
}

/// FNV-1a. It is never 0 for the names there are.
#[inline]
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
