//! Cancel keys of our own: random, unlike all others here, and telling who gave them.
//!
//! ```text
//! byte   0 1 2 3   process number, 2³⁰ and above      4 5 6 7 …  the secret: 4 bytes, 32 since protocol 3.2
//!          │ │ └─┬─┘ which worker                            └── lowest two bits ┐
//!          └─┴── with peers: our peer_id, lowest byte first       with peers: how often it may be sent on
//! ```
//!
//! The layout is PgBouncer's, so that both can be peers of each other.

use config::Config;
use io::Driver;
use pool::WorkerId;
use session::login::key_len;

use crate::client::Client;
use crate::worker::Worker;
use crate::world::World;

/// What a client must show to cancel its query.
#[derive(Debug, Default)]
pub(crate) struct CancelKey {
    /// 0 until it is logged in.
    pub(crate) pid: u32,
    /// It may come from a peer, and says how often it was sent on.
    pub(crate) travels: bool,
    secret: Secret,
}

/// 4 bytes, or 32 since protocol 3.2.
#[derive(Debug)]
enum Secret {
    Short([u8; SHORT]),
    Long(Box<[u8]>),
}

const SHORT: usize = 4;

/// What of a key stays the same wherever it is sent: its first eight bytes, without how often it
/// may be sent on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
    pub(crate) fn secret(&self) -> &[u8] {
        match &self.secret {
            Secret::Short(secret) => secret,
            Secret::Long(secret) => secret,
        }
    }

    /// Whether whoever shows `pid` and `secret` shows this key, whatever way it came.
    pub(crate) fn is_shown_by(&self, pid: u32, secret: &[u8]) -> bool {
        let mut secret = secret.to_vec();
        if let (true, Some(last)) = (self.travels, secret.get_mut(TTL_AT)) {
            *last |= TTL;
        }
        self.pid == pid && auth::same(self.secret(), &secret)
    }
}

impl Default for Secret {
    fn default() -> Self {
        Self::Short([0; SHORT])
    }
}

impl From<&[u8]> for Secret {
    fn from(secret: &[u8]) -> Self {
        secret.try_into().map_or_else(|_| Self::Long(secret.into()), Self::Short)
    }
}

/// What makes a worker's keys its own.
struct Mint {
    me: u16,
    workers: u16,
    /// 0: there are no peers.
    peer: u16,
    secret_len: usize,
}

/// With peers, all but 14 bits of a number say whose it is. When so many drawn in a row are taken, the others are too.
const DRAWS: usize = 64;

impl Mint {
    /// A key; and the number by which its client is known here, which is the key's own but where all of those are
    /// taken that a key may have. `enter` makes a number its, unless somebody has it.
    fn draw(
        &self,
        mut dice: impl FnMut(&mut [u8]),
        mut enter: impl FnMut(u32) -> bool,
    ) -> (CancelKey, u32) {
        let mut secret = vec![0; self.secret_len];
        for drawn in 1.. {
            let mut number = [0; 4];
            dice(&mut number);
            dice(&mut secret);
            // No process of an operating system has such a number: wherever it turns up, a client is meant.
            number[0] = number[0] & 0x7f | (session::FIRST_PID >> 24) as u8;
            let die = u16::from_be_bytes([number[3], secret[0]]);
            let Some(ours) = (die - die % self.workers).checked_add(self.me) else { continue };
            let mut bytes = number;
            [bytes[3], secret[0]] = ours.to_be_bytes();
            if self.peer != 0 {
                [bytes[1], bytes[2]] = self.peer.to_le_bytes();
                secret[TTL_AT] |= TTL;
            }
            let pid = u32::from_be_bytes(bytes);
            let known_by = if drawn <= DRAWS { pid } else { u32::from_be_bytes(number) };
            if enter(known_by) {
                let (travels, secret) = (self.peer != 0, Secret::from(&secret[..]));
                return (CancelKey { pid, travels, secret }, known_by);
            }
        }
        unreachable!("a range without an end")
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// A key for the client in `slot`, which speaks protocol 3.`minor`.
    pub(crate) fn give_key(&mut self, slot: u32, minor: u16) {
        let mint = Mint {
            me: self.me.0,
            workers: self.commons.workers().max(1),
            peer: u16::try_from(self.site.config.settings.peer_id).unwrap_or(0),
            secret_len: key_len(minor),
        };
        let (pids, world) = (&self.commons.pids, &mut self.world);
        let (key, known_by) =
            mint.draw(|bytes| world.dice(bytes), |pid| pids.enter(pid, self.me.0, slot));
        self.keys_doubled |= known_by != key.pid;
        let client = &mut self.clients[slot as usize];
        client.side.pid = known_by;
        client.card.key = key;
    }

    /// The client that has this key.
    pub(crate) fn holder(&self, pid: u32, secret: &[u8]) -> Option<u32> {
        let shown = |client: &Client| {
            let key = &client.card.key;
            key.is_shown_by(pid, secret) || key.pid == pid && planted::is("cancel-by-anyone")
        };
        let place = self.commons.pids.place_of(pid).filter(|(worker, _)| *worker == self.me.0);
        let known = place.and_then(|(_, slot)| Some((slot, self.clients.get(slot as usize)?)));
        if let Some((slot, _)) = known.filter(|(_, client)| shown(client)) {
            return Some(slot);
        }
        let mut others = self.clients.iter().filter(|_| self.keys_doubled);
        others.find(|(_, client)| shown(client)).map(|(at, _)| crate::slot(at))
    }

    /// The worker that gave this key, if anybody here did.
    pub(crate) fn worker_of(&self, pid: u32, secret: &[u8]) -> WorkerId {
        KeyId::of(pid, secret).map_or(self.me, |key| key.worker(self.commons.workers()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            assert!(travelled.is_shown_by(7, &[1, 2, 3, last]));
            assert_eq!(key(&[1, 2, 3, 0xff], false).is_shown_by(7, &[1, 2, 3, last]), last == 0xff);
        }
        for other in [&[1, 2, 3, 0xfb][..], &[1, 2, 3], &[1, 2, 3, 0xff, 0], &[]] {
            assert!(!travelled.is_shown_by(7, other));
        }
        assert!(!travelled.is_shown_by(8, &[1, 2, 3, 0xff]));
        let long = key(&[5; 32], false);
        assert!(long.is_shown_by(7, &[5; 32]) && !long.is_shown_by(7, &[5; 4]));
    }

    /// There are 2^14 numbers with a peer's id in them. Clients beyond have keys as good as all others'.
    #[test]
    fn keys_do_not_run_out() {
        let mut seed = 1_u64;
        let mut dice = |bytes: &mut [u8]| {
            for byte in bytes {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (seed >> 56) as u8;
            }
        };
        for (peer, secret_len) in [(513, 4), (0, 32)] {
            let (mut taken, mut keys) = (BTreeSet::new(), BTreeSet::new());
            for client in 0..20_000_u16 {
                let me = client % 3;
                let mint = Mint { me, workers: 3, peer, secret_len };
                let (key, known_by) = mint.draw(&mut dice, |pid| taken.insert(pid));
                assert!(known_by >= session::FIRST_PID && known_by <= i32::MAX as u32);
                assert!(key.pid >= session::FIRST_PID && key.pid <= i32::MAX as u32);
                assert!(peer != 0 || key.pid == known_by);
                assert_eq!(key.secret().len(), secret_len);
                let id = KeyId::of(key.pid, key.secret()).expect("long enough");
                assert_eq!((id.worker(3), peer == 0 || id.peer() == 513), (WorkerId(me), true));
                keys.insert((key.pid, key.secret().to_vec()));
            }
            assert_eq!(taken.len(), 20_000);
            assert!(keys.len() > 19_990, "two may be the same by chance, as always");
        }
    }
}
