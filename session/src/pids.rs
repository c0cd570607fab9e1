//! The pids that clients were given, and what they stand for at the moment.
//!
//! A client learns a pid at login, and asks about it later, its own or another's: whether it waits for a
//! lock, what it does, to end it. The pid is one of ours, since its server is another for every
//! transaction. Where such a number stands in a request, that of the client's present server takes its place. That of a
//! client without a server stays: no process has it, and where the server says so, the number tells whom it was about.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use wire::BindNames;

use crate::text::find;

/// The pids of clients are `FIRST..=i32::MAX`: far above those of any process, and all of ten digits.
pub const FIRST: u32 = 1 << 30;
const DIGITS: usize = 10;

/// For a client that has no server: no process' pid.
const NOBODY: u32 = 0;

/// Beside the pid of a server: a signal to it may be on its way. No pid is so large.
const AIMED_AT: u32 = 1 << 31;

/// More of them in one text are left as they are.
const MANY: usize = 4096;

/// The pids of the whole process' clients.
#[derive(Debug, Default)]
pub struct Pids {
    clients: Mutex<Book>,
    servers: Mutex<BTreeMap<u32, Vec<Weak<Voice>>>>,
    desks: Box<[Arc<Links>]>,
}

/// Where clients are, and as whom they are known to their servers.
#[derive(Debug, Default)]
struct Book {
    clients: BTreeMap<u32, Client>,
    /// A number for each user that some client was logged in as, from 1 on.
    users: BTreeMap<Arc<str>, u32>,
}

/// There may be tens of thousands.
#[derive(Clone, Copy, Debug)]
struct Client {
    slot: u32,
    /// 0: nobody yet.
    user: u32,
    worker: u16,
}

const _: () = assert!(size_of::<Client>() <= 12, "every idle client has one");

impl Pids {
    #[must_use]
    pub fn new(workers: u16) -> Self {
        let desks = (0..workers).map(|_| Arc::default()).collect();
        Self { clients: Mutex::default(), servers: Mutex::default(), desks }
    }

    /// Where worker `number` notes which server its clients have.
    #[must_use]
    pub fn links(&self, number: u16) -> Arc<Links> {
        self.desks.get(usize::from(number)).cloned().unwrap_or_default()
    }

    /// The client in `slot` of `worker` is given `pid`. `false`: somebody else has it.
    #[must_use]
    pub fn enter(&self, pid: u32, worker: u16, slot: u32) -> bool {
        match open(&self.clients).clients.entry(pid) {
            Entry::Vacant(free) => {
                free.insert(Client { slot, user: 0, worker });
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The client that has `pid` is logged in to its servers as `user`.
    pub fn is_user(&self, pid: u32, user: &Arc<str>) {
        let mut book = open(&self.clients);
        let Book { clients, users } = &mut *book;
        let Some(client) = clients.get_mut(&pid) else { return };
        client.user = match users.get(user) {
            Some(number) => *number,
            None => {
                let number = users.len() as u32 + 1;
                *users.entry(Arc::clone(user)).or_insert(number)
            }
        };
    }

    /// The worker and the slot of the client that has `pid`.
    #[must_use]
    pub fn place_of(&self, pid: u32) -> Option<(u16, u32)> {
        open(&self.clients).clients.get(&pid).map(|client| (client.worker, client.slot))
    }

    /// Whether PostgreSQL would let one client end another: they are the same user, or the one is a superuser.
    pub(crate) fn may_end(&self, own: u32, other: u32, superuser: bool) -> bool {
        let book = open(&self.clients);
        let user = |pid| book.clients.get(&pid).map(|client| client.user);
        match (user(own), user(other)) {
            (Some(own), Some(other)) => superuser || own != 0 && own == other,
            _ => false,
        }
    }

    /// The client that has `pid` is gone.
    pub fn leave(&self, pid: u32) {
        open(&self.clients).clients.remove(&pid);
    }

    /// The pid of the server that the client with `pid` has now. `None`: it has none, or there is no such client.
    fn server_of(&self, pid: u32, meant: &mut Meant<'_>) -> Option<u32> {
        // Held until the number is read: its slot is nobody else's before it has left.
        let book = open(&self.clients);
        let Client { worker, slot, .. } = book.clients.get(&pid)?;
        let links = self.desks.get(usize::from(*worker))?;
        let aims = meant.aims();
        let server = if aims { links.aim(*slot) } else { links.of(*slot) };
        if aims && server != NOBODY {
            meant.servers.push((server, pid));
        }
        (server != NOBODY).then_some(server)
    }

    /// What the server with `pid` at `place` has to say, under the name of whom it serves.
    #[must_use]
    pub fn voice(&self, pid: u32, place: String) -> Arc<Voice> {
        let voice = Arc::new(Voice { pid, place, client: AtomicU32::new(0) });
        let mut servers = open(&self.servers);
        servers.entry(pid).or_default().push(Arc::downgrade(&voice));
        if servers.len().is_power_of_two() {
            servers.retain(|_, voices| {
                voices.retain(|voice| voice.strong_count() > 0);
                !voices.is_empty()
            });
        }
        voice
    }

    /// The client that ran NOTIFY on the server with `pid`, at the same place as `heard`; `pid` where that
    /// is nobody's here.
    #[must_use]
    pub fn notifier(&self, pid: u32, heard: &Voice) -> u32 {
        let servers = open(&self.servers);
        let voices = servers.get(&pid).into_iter().flatten().filter_map(Weak::upgrade);
        let client = voices
            .filter(|voice| voice.place == heard.place)
            .map(|voice| voice.client.load(Relaxed));
        client.last().filter(|client| *client != 0).unwrap_or(pid)
    }

    /// `text` with the pids of servers in place of those of clients; `None`: there are none.
    pub(crate) fn translated(&self, text: &[u8], meant: &mut Meant<'_>) -> Option<Vec<u8>> {
        let mut out: Option<Vec<u8>> = None;
        let mut from = 0;
        for (at, pid) in candidates(text).take(MANY) {
            let Some(server) = self.server_of(pid, meant) else { continue };
            let out = out.get_or_insert_default();
            out.extend_from_slice(text.get(from..at).unwrap_or_default());
            out.extend_from_slice(server.to_string().as_bytes());
            from = at + DIGITS;
        }
        let mut out = out?;
        out.extend_from_slice(text.get(from..).unwrap_or_default());
        Some(out)
    }

    /// The body of a Bind with the pids of servers in place of those of clients, in text or as an int4 or
    /// int8; `None`: there are none.
    pub(crate) fn translated_bind(&self, body: &[u8], meant: &mut Meant<'_>) -> Option<Vec<u8>> {
        let mut rest = body.get(BindNames::find(body)?.rest..)?;
        let formats = numbers(&mut rest)?;
        let binary = |index: usize| match formats.len() {
            2 => formats.ends_with(&[1]),
            _ => formats.get(2 * index + 1) == Some(&1),
        };
        let count = u16::from_be_bytes(*rest.split_first_chunk::<2>()?.0);
        let mut out = body.get(..body.len() - rest.len() + 2)?.to_vec();
        rest = rest.get(2..)?;
        let mut changed = false;
        for index in 0..usize::from(count) {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let value_len = usize::try_from(i32::from_be_bytes(*len)).ok();
            let (value, after) = after.split_at_checked(value_len.unwrap_or(0))?;
            rest = after;
            let new = match binary(index) {
                true => self.number(value, meant),
                false => self.translated(value, meant),
            };
            changed |= new.is_some();
            match &new {
                Some(new) => {
                    out.extend_from_slice(&u32::try_from(new.len()).ok()?.to_be_bytes());
                    out.extend_from_slice(new);
                }
                None => {
                    out.extend_from_slice(len);
                    out.extend_from_slice(value);
                }
            }
        }
        out.extend_from_slice(rest);
        changed.then_some(out)
    }

    fn number(&self, value: &[u8], meant: &mut Meant<'_>) -> Option<Vec<u8>> {
        if let Some(new) = self.numbers_of(value, meant) {
            return Some(new);
        }
        let low = match value {
            [0, 0, 0, 0, low @ ..] if low.len() == 4 => low,
            low => low,
        };
        let pid = u32::from_be_bytes(*low.first_chunk::<4>().filter(|_| low.len() == 4)?);
        let server = is_clients(pid).then(|| self.server_of(pid, meant)).flatten()?;
        let mut new = value.to_vec();
        new.splice(value.len() - 4.., server.to_be_bytes());
        Some(new)
    }
}

impl Pids {
    /// The same, of an array of int4 with one dimension and no NULL: how many dimensions, whether there are NULLs, the
    /// type, how many elements, the first's number; then each with its length.
    fn numbers_of(&self, value: &[u8], meant: &mut Meant<'_>) -> Option<Vec<u8>> {
        const HEAD: usize = 20;
        const INT4: u32 = 23;
        let (head, elements) = value.split_at_checked(HEAD)?;
        if !head.starts_with(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, INT4 as u8]) {
            return None;
        }
        let (mut new, mut changed) = (head.to_vec(), false);
        for element in elements.chunks(8) {
            let pid = u32::from_be_bytes(*element.strip_prefix(&[0, 0, 0, 4])?.first_chunk()?);
            let server = is_clients(pid).then(|| self.server_of(pid, meant)).flatten();
            changed |= server.is_some();
            new.extend([4, server.unwrap_or(pid)].into_iter().flat_map(u32::to_be_bytes));
        }
        changed.then_some(new)
    }
}

/// Whom a request is about.
#[derive(Debug)]
pub(crate) struct Meant<'a> {
    /// What asks about them, where that is known.
    pub(crate) text: Option<&'a [u8]>,
    /// Whether they may be sent signals, once somebody wanted to know.
    aims: Option<bool>,
    /// Pids of servers that a signal may be sent to, and of the clients that have them.
    pub(crate) servers: Vec<(u32, u32)>,
}

impl<'a> Meant<'a> {
    pub(crate) fn by(text: Option<&'a [u8]>) -> Self {
        Self { text, aims: None, servers: Vec::new() }
    }

    /// Whether they may be sent signals. A text is looked through once, however many it is about.
    fn aims(&mut self) -> bool {
        let text = self.text;
        *self.aims.get_or_insert_with(|| text.is_none_or(|text| find(text, b"_backend").is_some()))
    }
}

/// Which server the clients of one worker have, by slot.
#[derive(Debug, Default)]
pub struct Links([OnceLock<Box<[AtomicU32]>>; PARTS]);

/// Each part is twice as long as the one before it.
const PARTS: usize = 21;
const FIRST_PART: usize = 1024;

impl Links {
    /// The client in `slot` has the server with this pid.
    pub fn set(&self, slot: u32, pid: u32) {
        if let Some(place) = self.place(slot) {
            place.store(pid, Relaxed);
        }
    }

    /// It has none any more. Whether somebody may still send a signal to the one that it had: nobody else is to be hit by that.
    #[must_use]
    pub fn clear(&self, slot: u32) -> bool {
        self.place(slot).is_some_and(|place| place.swap(NOBODY, Relaxed) & AIMED_AT != 0)
    }

    fn of(&self, slot: u32) -> u32 {
        self.place(slot).map_or(NOBODY, |place| place.load(Relaxed) & !AIMED_AT)
    }

    /// The same, and a signal may be sent to it.
    fn aim(&self, slot: u32) -> u32 {
        self.place(slot).map_or(NOBODY, |place| place.fetch_or(AIMED_AT, Relaxed) & !AIMED_AT)
    }

    fn place(&self, slot: u32) -> Option<&AtomicU32> {
        let slot = slot as usize;
        let part = (slot / FIRST_PART + 1).ilog2() as usize;
        let len = FIRST_PART << part;
        let places = self.0.get(part)?;
        let places = places.get_or_init(|| (0..len).map(|_| AtomicU32::new(NOBODY)).collect());
        places.get(slot - (len - FIRST_PART))
    }
}

/// A server, as the sender of notifications.
#[derive(Debug)]
pub struct Voice {
    pub pid: u32,
    /// Pids mean something on one host only.
    place: String,
    /// The client that last ran what may notify.
    client: AtomicU32,
}

impl Voice {
    pub(crate) fn lend(&self, client: u32) {
        self.client.store(client, Relaxed);
    }
}

fn is_clients(pid: u32) -> bool {
    (FIRST..=i32::MAX as u32).contains(&pid)
}

/// Whether a text may hold the pid of a client. Such a number has ten digits, so that one of every ten
/// bytes is enough to look at.
pub(crate) fn may_hold(text: &[u8]) -> bool {
    text.iter().skip(DIGITS - 1).step_by(DIGITS).any(u8::is_ascii_digit)
        && candidates(text).next().is_some()
}

/// Whether a text looks as if one of its parameters could be a pid.
pub(crate) fn takes_some(text: &[u8]) -> bool {
    const P: &[&[u8]] = &[b"pid", b"pg_locks"];
    const B: &[&[u8]] = &[b"backend"];
    const S: &[&[u8]] = &[b"session_is_blocked"];
    let begins = |at: usize, words: &[&[u8]]| {
        let rest = text.get(at..).unwrap_or_default();
        let is = |word: &&[u8]| {
            rest.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
        };
        words.iter().any(is)
    };
    // Each Parse comes by here: once over the text is enough.
    let mut bytes = text.iter().enumerate();
    text.contains(&b'$')
        && bytes.any(|(at, byte)| match byte {
            b'p' | b'P' => begins(at, P),
            b'b' | b'B' => begins(at, B),
            b's' | b'S' => begins(at, S),
            _ => false,
        })
}

/// The pid in a text that is about one client.
pub(crate) fn sole(text: &[u8]) -> Option<u32> {
    let mut pids = candidates(text);
    pids.next().map(|(_, pid)| pid).filter(|_| pids.next().is_none())
}

/// Where in a text numbers stand that could be the pids of clients, and which.
fn candidates(text: &[u8]) -> impl Iterator<Item = (usize, u32)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(byte) = text.get(at) {
            if !is_word(*byte) {
                at += 1;
                continue;
            }
            let word = text.get(at..)?.iter().take_while(|byte| is_word(**byte)).count();
            let (start, end) = (at, at + word);
            at = end;
            if word == DIGITS
                && let Some(pid) = text.get(start..end).and_then(number)
            {
                return Some((start, pid));
            }
        }
        None
    })
}

fn number(digits: &[u8]) -> Option<u32> {
    let all = digits.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()?;
    is_clients(number).then_some(number)
}

/// Whether a byte belongs to the same word as the digit next to it: no part of a longer number, a
/// fraction, a name or a parameter is a pid.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | 128..)
}

/// A count, and so many two-byte numbers.
pub(crate) fn numbers<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (count, after) = rest.split_first_chunk::<2>()?;
    let (numbers, after) = after.split_at_checked(2 * usize::from(u16::from_be_bytes(*count)))?;
    *rest = after;
    Some(numbers)
}

/// What is guarded is changed by single calls: nobody leaves it half done.
fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pids() -> Pids {
        let pids = Pids::new(2);
        for (pid, worker, slot, server) in
            [(1_500_000_000, 0, 7, 4711), (2_000_000_000, 1, 5000, 12), (1_073_741_824, 1, 0, 0)]
        {
            assert!(pids.enter(pid, worker, slot));
            pids.links(worker).set(slot, server);
        }
        pids
    }

    #[test]
    fn clients_pids_become_their_servers() {
        let pids = pids();
        let translated = |text: &str| {
            assert_eq!(
                may_hold(text.as_bytes()),
                candidates(text.as_bytes()).next().is_some(),
                "{text}"
            );
            let meant = &mut Meant::by(Some(b""));
            pids.translated(text.as_bytes(), meant).map(|new| String::from_utf8(new).expect("text"))
        };
        let text = "select blocked($1, '{1500000000,2000000000,1073741824}')";
        assert_eq!(translated(text).as_deref(), Some("select blocked($1, '{4711,12,1073741824}')"));
        assert_eq!(translated("2000000000").as_deref(), Some("12"));
        for text in [
            "",
            "select 1500000001",
            "select 15000000000",
            "select 0.1500000000",
            "select a1500000000, $1500000000, 1500000000_",
            "select 150000000",
            "select 9999999999",
        ] {
            assert_eq!(translated(text), None, "{text}");
        }
    }

    #[test]
    fn whoever_is_gone_is_nobody() {
        let pids = pids();
        assert!(!pids.enter(1_500_000_000, 1, 1), "taken");
        pids.leave(1_500_000_000);
        assert_eq!(pids.translated(b"1500000000", &mut Meant::by(None)), None);
    }

    /// A server that a signal may be sent to is known, also when its client parts from it.
    #[test]
    fn who_is_aimed_at_is_known() {
        let pids = pids();
        let links = pids.links(0);
        let (mut asks, mut sends) = (Meant::by(Some(b"blocked($1)")), Meant::by(None));
        assert!(pids.translated(b"1500000000", &mut asks).is_some() && asks.servers.is_empty());
        assert!(!links.clear(7));
        links.set(7, 4711);
        let new = pids.translated(b"1500000000", &mut sends);
        assert_eq!(
            (new.as_deref(), &sends.servers[..]),
            (Some(&b"4711"[..]), &[(4711, 1_500_000_000)][..])
        );
        assert_eq!(pids.translated(b"1500000000", &mut asks).as_deref(), Some(&b"4711"[..]));
        assert!(links.clear(7) && !links.clear(7));
        assert_eq!(pids.translated(b"1500000000", &mut sends), None);
        links.set(7, 12);
        assert!(!links.clear(7), "that was before");
    }

    #[test]
    fn parameters_are_translated_in_every_form() {
        let pids = pids();
        let bind = |formats: &[u16], values: &[Option<&[u8]>]| {
            let mut body = b"\0name\0".to_vec();
            body.extend_from_slice(&u16::try_from(formats.len()).expect("few").to_be_bytes());
            formats.iter().for_each(|format| body.extend_from_slice(&format.to_be_bytes()));
            body.extend_from_slice(&u16::try_from(values.len()).expect("few").to_be_bytes());
            for value in values {
                let len = value.map_or(-1, |value| i32::try_from(value.len()).expect("short"));
                body.extend_from_slice(&len.to_be_bytes());
                body.extend_from_slice(value.unwrap_or_default());
            }
            body.extend_from_slice(&[0, 1, 0, 1]);
            body
        };
        let (client, server) = (1_500_000_000_u32.to_be_bytes(), 4711_u32.to_be_bytes());
        let long = |low: [u8; 4]| [[0; 4], low].concat();
        let translated = |body: &[u8]| pids.translated_bind(body, &mut Meant::by(None));
        assert_eq!(
            translated(&bind(&[], &[Some(b"{1500000000}"), None])),
            Some(bind(&[], &[Some(b"{4711}"), None]))
        );
        assert_eq!(
            translated(&bind(&[1], &[Some(&client), Some(&long(client))])),
            Some(bind(&[1], &[Some(&server), Some(&long(server))]))
        );
        assert_eq!(
            translated(&bind(&[0, 1], &[Some(b"1500000000"), Some(b"1500000000")])),
            Some(bind(&[0, 1], &[Some(b"4711"), Some(b"1500000000")]))
        );
        assert_eq!(translated(&bind(&[1], &[Some(&[1, 2, 3])])), None);
        let whole = bind(&[0, 1], &[Some(b"1500000000"), Some(&client)]);
        for end in 0..whole.len() - 4 {
            assert_eq!(translated(&whole[..end]), None, "half a message is left alone");
        }
    }

    #[test]
    fn slots_have_places_of_their_own() {
        let links = Links::default();
        let slots = [0, 1, 1023, 1024, 3071, 3072, 7167, 7168, 1_000_000];
        slots.iter().for_each(|slot| links.set(*slot, slot + 1));
        assert_eq!(slots.map(|slot| links.of(slot)), slots.map(|slot| slot + 1));
        assert_eq!(links.of(2), 0);
    }

    #[test]
    fn a_notification_has_its_notifiers_pid() {
        let pids = pids();
        let here = pids.voice(4711, "a".to_owned());
        let there = pids.voice(4711, "b".to_owned());
        here.lend(1_500_000_000);
        assert_eq!(pids.notifier(4711, &here), 1_500_000_000);
        assert_eq!(pids.notifier(4711, &there), 4711, "a pid of another host");
        assert_eq!(pids.notifier(12, &here), 12);
        drop(here);
        assert_eq!(pids.notifier(4711, &there), 4711);
    }
}
