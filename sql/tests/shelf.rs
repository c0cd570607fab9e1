//! A shelf of readings: what is on it is right, and it never holds more than it may.

use std::hash::{BuildHasher, Hasher, RandomState};

use sql::{Reading, Shelf};

#[test]
fn readings_are_kept_by_text_and_setting() {
    let mut shelf = Shelf::new(1 << 20, RandomState::new());
    let text = br"SELECT '\'; SET work_mem = '1GB'; --'";
    for _ in 0..2 {
        assert_eq!(*shelf.read(text, true), Reading::of(text, true));
        assert_eq!(*shelf.read(text, false), Reading::of(text, false));
    }
    assert_eq!(shelf.len(), 2);
    assert!(std::sync::Arc::ptr_eq(&shelf.read(text, true), &shelf.read(text, true)));
}

#[test]
fn the_budget_is_kept_and_the_used_stay() {
    let budget = 64 * 1024;
    let mut shelf = Shelf::new(budget, RandomState::new());
    let steady = shelf.read(b"SELECT 'steady'", true);
    for number in 0..2_000 {
        let text = format!("SELECT {number}");
        let _read = shelf.read(text.as_bytes(), number % 3 == 0);
        assert!(shelf.bytes() <= budget);
        assert!(std::sync::Arc::ptr_eq(&steady, &shelf.read(b"SELECT 'steady'", true)), "{number}");
    }
    assert!(shelf.len() > 50 && shelf.len() < 1_000, "{}", shelf.len());
    let long = format!("SELECT '{}'", "x".repeat(budget));
    let before = shelf.len();
    assert_eq!(*shelf.read(long.as_bytes(), true), Reading::of(long.as_bytes(), true));
    assert_eq!(shelf.len(), before, "what is too long is read, and not kept");
}

/// A hasher that an attacker has seen through.
#[derive(Clone)]
struct Broken;

impl BuildHasher for Broken {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self
    }
}

impl Hasher for Broken {
    fn finish(&self) -> u64 {
        7
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn texts_of_one_hash_do_not_share_a_reading() {
    let mut shelf = Shelf::new(1 << 20, Broken);
    for _ in 0..2 {
        for text in ["SELECT 1", "SET a.b = 1", "DISCARD ALL"] {
            assert_eq!(*shelf.read(text.as_bytes(), true), Reading::of(text.as_bytes(), true));
        }
    }
}
