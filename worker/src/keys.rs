//! Cancel keys of our own: random, unlike all others here, and telling who gave them.
//!
//! ```text
//! byte   0 1 2 3   process number, 2³⁰ and above      4 5 6 7 …  the secret: 4 bytes, 32 since protocol 3.2
//!          │ │ └─┬─┘ which worker                            └── lowest two bits ┐
//!          └─┴── with peers: our peer_id, lowest byte first       with peers: how often it may be sent on
//! ```
//!
//! The layout is PgBouncer's, so that both can be peers of each other.

use std::collections::hash_map::Entry;

use config::Config;
use io::Driver;
use pool::WorkerId;
use session::login::key_len;

use crate::client::CancelKey;
use crate::worker::Worker;
use crate::world::World;

/// What of a key stays the same wherever it is sent: its first eight bytes, without how often it
/// may be sent on. No two clients here have the same.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct KeyId(u64);

/// How often a cancel request may be sent from process to process.
const TTL: u8 = 0b11;

/// Where the last byte of a key's first eight stands in its secret.
const TTL_AT: usize = 3;

impl KeyId {
    /// `None`: no key is that short.
    pub(crate) fn of(pid: u32, secret: &[u8]) -> Option<Self> {
        let mut last = *secret.first_chunk::<4>()?;
        last[TTL_AT] &= !TTL;
        Some(Self(u64::from(pid) << 32 | u64::from(u32::from_be_bytes(last))))
    }

    fn bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The peer that gave the key, if it was given by one.
    fn peer(self) -> u32 {
        let [_, low, high, ..] = self.bytes();
        u16::from_le_bytes([low, high]).into()
    }

    fn worker(self, workers: u16) -> WorkerId {
        let [_, _, _, high, low, ..] = self.bytes();
        WorkerId(u16::from_be_bytes([high, low]) % workers.max(1))
    }
}

/// Whose a cancel request is.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Addressee {
    /// Ours, or nobody's.
    Here,
    /// To be sent on, with this secret.
    Peer { id: u32, secret: Box<[u8]> },
    /// It was sent on too often: somebody's [peers] go round in a circle.
    Nobody,
}

impl Addressee {
    pub(crate) fn of(config: &Config, pid: u32, secret: &[u8]) -> Self {
        let own = config.settings.peer_id;
        let Some(key) = KeyId::of(pid, secret) else { return Self::Here };
        let id = key.peer();
        if own == 0 || id == own || !config.peers.contains_key(&id) {
            return Self::Here;
        }
        let mut secret: Box<[u8]> = secret.into();
        match secret.get_mut(TTL_AT) {
            Some(last) if *last & TTL > 0 => *last -= 1,
            _ => return Self::Nobody,
        }
        Self::Peer { id, secret }
    }
}

impl CancelKey {
    /// Whether whoever shows `secret` shows this key, whatever way it came.
    pub(crate) fn is_shown_by(&self, secret: &[u8]) -> bool {
        let mut secret = secret.to_vec();
        if let (true, Some(last)) = (self.travels, secret.get_mut(TTL_AT)) {
            *last |= TTL;
        }
        auth::same(&self.secret, &secret)
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// A key for the client in `slot`, which speaks protocol 3.`minor`.
    pub(crate) fn new_key(&mut self, slot: u32, minor: u16) -> CancelKey {
        let workers = self.commons.workers().max(1);
        let peer = u16::try_from(self.site.config.settings.peer_id).unwrap_or(0);
        let mut secret = vec![0; key_len(minor)].into_boxed_slice();
        loop {
            let mut pid = [0; 4];
            self.world.dice(&mut pid);
            self.world.dice(&mut secret);
            // No process of an operating system has such a number: wherever it turns up, a client is meant.
            pid[0] = pid[0] & 0x7f | (session::FIRST_PID >> 24) as u8;
            let dice = u16::from_be_bytes([pid[3], secret[0]]);
            let Some(ours) = (dice - dice % workers).checked_add(self.me.0) else { continue };
            [pid[3], secret[0]] = ours.to_be_bytes();
            if peer != 0 {
                [pid[1], pid[2]] = peer.to_le_bytes();
                secret[TTL_AT] |= TTL;
            }
            let pid = u32::from_be_bytes(pid);
            let Some(id) = KeyId::of(pid, &secret) else { continue };
            if let Entry::Vacant(free) = self.keys.entry(id)
                && self.commons.pids.enter(pid, self.me.0, slot)
            {
                free.insert(slot);
                return CancelKey { pid, secret, travels: peer != 0 };
            }
        }
    }

    /// The worker that gave this key, if anybody here did.
    pub(crate) fn worker_of(&self, pid: u32, secret: &[u8]) -> WorkerId {
        KeyId::of(pid, secret).map_or(self.me, |key| key.worker(self.commons.workers()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        config::parse(&format!("[pgbouncer]\n{text}\n[peers]\n1 = host=/a\n513 = host=/b"))
            .expect("a good configuration")
    }

    /// The layout of §1.15 of what PgBouncer does: peer 513 is bytes 1 and 2, low byte first.
    #[test]
    fn a_key_of_another_peer_is_sent_on_thrice() {
        let config = config("peer_id = 1");
        let pid = u32::from_be_bytes([0x12, 0x01, 0x02, 0x99]);
        let mut secret: Box<[u8]> = [5, 6, 7, 0b1011].into();
        for left in [0b1010, 0b1001, 0b1000] {
            let addressee = Addressee::of(&config, pid, &secret);
            let Addressee::Peer { id: 513, secret: sent } = addressee else {
                panic!("{addressee:?}")
            };
            assert_eq!(*sent, [5, 6, 7, left]);
            secret = sent;
        }
        assert_eq!(Addressee::of(&config, pid, &secret), Addressee::Nobody);
    }

    #[test]
    fn a_long_key_has_it_in_the_same_byte() {
        let mut secret = [9; 32];
        secret[3] = 0xff;
        let addressee = Addressee::of(&config("peer_id = 513"), 0x0001_0000, &secret);
        secret[3] = 0xfe;
        assert_eq!(addressee, Addressee::Peer { id: 1, secret: secret.into() });
    }

    #[test]
    fn what_is_nobody_elses_stays() {
        let all = [("peer_id = 1", 1), ("peer_id = 1", 2), ("peer_id = 0", 513), ("", 513)];
        for (text, peer) in all {
            let [low, high] = u16::to_le_bytes(peer);
            let pid = u32::from_be_bytes([0, low, high, 0]);
            let addressee = Addressee::of(&config(text), pid, &[0; 4]);
            assert_eq!(addressee, Addressee::Here, "{text}: {peer}");
        }
        assert_eq!(Addressee::of(&config("peer_id = 1"), 0x0001_0200, &[1, 2]), Addressee::Here);
    }

    #[test]
    fn a_key_is_the_same_however_far_it_went_and_no_other_is() {
        let key = |secret: &[u8], travels| CancelKey { pid: 7, secret: secret.into(), travels };
        let travelled = key(&[1, 2, 3, 0xff], true);
        for last in [0xff, 0xfe, 0xfd, 0xfc] {
            assert!(travelled.is_shown_by(&[1, 2, 3, last]));
            assert_eq!(key(&[1, 2, 3, 0xff], false).is_shown_by(&[1, 2, 3, last]), last == 0xff);
        }
        for other in [&[1, 2, 3, 0xfb][..], &[1, 2, 3], &[1, 2, 3, 0xff, 0], &[]] {
            assert!(!travelled.is_shown_by(other));
        }
    }
}
