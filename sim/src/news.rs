//! LISTEN and NOTIFY: the one order of all notifications, and who has to hear which of them.
//!
//! Each session of the model has a desk. What a transaction did is done at its commit; what was notified
//! is read when the session is idle, before it says so. Whom a client's own statements made listen to
//! what, and from where to where in that order, is noted beside it: that is what it has to hear,
//! whichever sessions listened for it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::rc::Rc;

use wire::Notification;
use wire::tag::server;

use crate::script::{Ident, Op};

type Channel = Box<[u8]>;

/// All that was ever notified, and who listens.
#[derive(Debug, Default)]
pub(crate) struct News {
    notes: Vec<Note>,
    /// What clients listen to, or did: from which note to which.
    listening: BTreeMap<(u32, Channel), Vec<Span>>,
}

#[derive(Debug)]
struct Note {
    database: Rc<[u8]>,
    channel: Channel,
    payload: Vec<u8>,
    pid: u32,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: usize,
    /// `None`: still.
    to: Option<usize>,
}

impl News {
    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    /// The first note of `from..to` that `client` has to hear.
    pub(crate) fn due(
        &self,
        client: u32,
        database: &[u8],
        from: usize,
        to: usize,
    ) -> Option<usize> {
        (from..to.min(self.notes.len())).find(|at| {
            let note = &self.notes[*at];
            let within = |span: &Span| span.from <= *at && span.to.is_none_or(|to| *at < to);
            let spans = self.listening.get(&(client, note.channel.clone()));
            *note.database == *database && spans.is_some_and(|spans| spans.iter().any(within))
        })
    }

    /// Which note a message is.
    pub(crate) fn which(&self, body: &[u8]) -> Option<usize> {
        let said = Notification::read(body).ok()?;
        let (number, _) = str::from_utf8(said.payload).ok()?.split_once(' ')?;
        let number: usize = number.parse().ok()?;
        let note = self.notes.get(number)?;
        (*note.channel == *said.channel && note.payload == said.payload).then_some(number)
    }

    fn listens(&mut self, who: Ident, channel: &Channel, at: usize) {
        let spans = self.listening.entry((who.client, channel.clone())).or_default();
        if spans.last().is_none_or(|span| span.to.is_some()) {
            spans.push(Span { from: at, to: None });
        }
    }

    fn listens_no_more(&mut self, who: Ident, channel: Option<&Channel>, at: usize) {
        for ((client, of), spans) in &mut self.listening {
            if *client == who.client
                && channel.is_none_or(|channel| channel == of)
                && let Some(span) = spans.last_mut()
            {
                span.to.get_or_insert(at);
            }
        }
    }
}

/// One session's part.
#[derive(Debug)]
pub(crate) struct Desk {
    news: Rc<RefCell<News>>,
    database: Rc<[u8]>,
    pid: u32,
    channels: BTreeSet<Channel>,
    /// How far it has read; `None`: it listens to nothing.
    read: Option<usize>,
    /// What its transaction did, and for whom.
    undone: Vec<(Deed, Option<Ident>)>,
}

#[derive(Debug)]
enum Deed {
    Listen(Channel),
    Unlisten(Option<Channel>),
    Notify(Channel, Vec<u8>),
}

impl Desk {
    pub(crate) fn new(news: Rc<RefCell<News>>, database: &[u8], pid: u32) -> Self {
        let (channels, undone) = (BTreeSet::new(), Vec::new());
        Self { news, database: database.into(), pid, channels, read: None, undone }
    }

    /// A statement was run.
    pub(crate) fn run(&mut self, op: &Op<'_>, who: Option<Ident>) {
        let deed = match op {
            Op::Listen(channel) => Deed::Listen((*channel).into()),
            Op::Unlisten(channel) => Deed::Unlisten(channel.map(Into::into)),
            Op::DiscardAll => Deed::Unlisten(None),
            Op::Notify { channel, payload } => Deed::Notify((*channel).into(), payload.to_vec()),
            _ => return,
        };
        self.undone.push((deed, who));
    }

    pub(crate) fn rolled_back(&mut self) {
        self.undone.clear();
    }

    pub(crate) fn committed(&mut self) {
        if self.undone.is_empty() {
            return;
        }
        let undone = mem::take(&mut self.undone);
        let mut news = self.news.borrow_mut();
        // Who listens is settled before anything is notified.
        for (deed, who) in &undone {
            match deed {
                Deed::Listen(channel) => {
                    let from = *self.read.get_or_insert(news.notes.len());
                    self.channels.insert(channel.clone());
                    who.iter().for_each(|who| news.listens(*who, channel, from));
                }
                Deed::Unlisten(channel) => {
                    // What it has not read yet it will not read.
                    let to = self.read.unwrap_or(news.notes.len());
                    match channel {
                        Some(channel) => drop(self.channels.remove(channel)),
                        None => self.channels.clear(),
                    }
                    let channel = channel.as_ref();
                    who.iter().for_each(|who| news.listens_no_more(*who, channel, to));
                }
                Deed::Notify(..) => {}
            }
        }
        if self.channels.is_empty() {
            self.read = None;
        }
        for (deed, who) in undone {
            let Deed::Notify(channel, payload) = deed else { continue };
            let (database, pid) = (self.database.clone(), self.pid);
            let number = news.notes.len();
            let payload = match who {
                Some(who) => format!("{number} {who}").into_bytes(),
                None => payload,
            };
            news.notes.push(Note { database, channel, payload, pid });
        }
    }

    /// Whether there is anything that it has not read.
    pub(crate) fn is_behind(&self) -> bool {
        self.read.is_some_and(|read| read < self.news.borrow().notes.len())
    }

    /// It is idle, and says what was notified.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>) {
        let Some(read) = &mut self.read else { return };
        let news = self.news.borrow();
        for note in &news.notes[*read..] {
            if note.database == self.database && self.channels.contains(&note.channel) {
                wire::write::message(out, server::NOTIFICATION, |out| {
                    out.extend_from_slice(&note.pid.to_be_bytes());
                    for text in [&note.channel[..], &note.payload] {
                        out.extend_from_slice(text);
                        out.push(0);
                    }
                });
            }
        }
        *read = news.notes.len();
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.channels.iter().map(|channel| &**channel)
    }
}
