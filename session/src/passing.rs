//! Messages that are too long to be kept: they pass by, and are looked through.

use std::sync::Arc;

use sql::{Overloadable, Skim, Strings, Told};

use crate::ages::Change;
use crate::beliefs::Scene;
use crate::hidden::Errand;
use crate::outward::Outward;
use crate::parameters::{Said, said};
use crate::reading::{Reading, Tells};
use crate::text::skimmed;

/// What passes by, piece by piece.
#[derive(Debug)]
pub(crate) enum Passing {
    /// A text. The name by which it is parsed; `None`: it is run at once.
    Text {
        skim: Box<Skim>,
        name: Option<Box<[u8]>>,
    },
    Values(Values),
}

/// The parameters of a Bind, behind its names.
#[derive(Debug)]
pub(crate) struct Values {
    part: Part,
    /// Bytes to come of it.
    left: usize,
    /// What is here of it, as far as that is of interest.
    held: Vec<u8>,
    cut: bool,
    /// Values to come.
    count: u16,
    names: Vec<Box<[u8]>>,
    /// Their statement sets what they say.
    sets: bool,
    /// And one may be a name that is not among these.
    is_odd: bool,
    /// What is called may run what they say: by this text; `None`: by whatever runs.
    tells: Option<Option<Arc<Reading>>>,
    told: Told,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    FormatCount,
    Formats,
    Count,
    Length,
    Value,
    Rest,
}

/// No name is longer.
const HELD_MAX: usize = 512;
/// Longer commands are not looked through.
const COMMAND_MAX: usize = 16 * 1024;
/// Names that are kept.
const NAMES_MAX: usize = 256;

impl Values {
    pub(crate) fn new(sets: bool, tells: Option<Option<Arc<Reading>>>) -> Self {
        Self {
            part: Part::FormatCount,
            left: 2,
            held: Vec::new(),
            cut: false,
            count: 0,
            names: Vec::new(),
            sets,
            is_odd: false,
            tells,
            told: Told::default(),
        }
    }

    /// Whether they may be commands that are run.
    pub(crate) fn tell(&self) -> bool {
        self.tells.is_some()
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        while self.part != Part::Rest {
            let (now, rest) = bytes.split_at(self.left.min(bytes.len()));
            let most = if self.tell() { COMMAND_MAX } else { HELD_MAX };
            let room = most - self.held.len();
            self.cut |= now.len() > room;
            self.held.extend_from_slice(now.get(..room).unwrap_or(now));
            self.left -= now.len();
            bytes = rest;
            if self.left > 0 {
                return;
            }
            self.part_ends();
            self.held.clear();
            self.cut = false;
        }
    }

    fn part_ends(&mut self) {
        let number = self.held.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
        (self.part, self.left) = match self.part {
            Part::FormatCount => (Part::Formats, 2 * usize::from(number)),
            Part::Formats => (Part::Count, 2),
            Part::Count => {
                self.count = number;
                self.next()
            }
            Part::Length => {
                let length = self.held.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
                // NULL has none.
                usize::try_from(length).map_or_else(|_| self.next(), |length| (Part::Value, length))
            }
            Part::Value => {
                self.value();
                self.next()
            }
            Part::Rest => (Part::Rest, 0),
        };
    }

    /// A value is here, or its beginning.
    fn value(&mut self) {
        match said(&self.held, self.cut) {
            Said::Names(names) => {
                for name in names {
                    if self.names.len() < NAMES_MAX {
                        self.names.push(name);
                    } else {
                        self.is_odd |= self.sets;
                    }
                }
            }
            Said::OddName => self.is_odd |= self.sets,
        }
        match (self.tell(), self.cut) {
            (true, false) => self.told.tell(&self.held),
            (true, true) => self.told.tell_beginning(&self.held),
            (false, _) => {}
        }
    }

    fn next(&mut self) -> (Part, usize) {
        let left = self.count.checked_sub(1);
        self.count = left.unwrap_or_default();
        left.map_or((Part::Rest, 0), |_| (Part::Length, 4))
    }
}

impl Outward<'_> {
    /// A text passes by. `name`: that by which it is parsed, if it is.
    pub(crate) fn begin_to_skim(&mut self, name: Option<&[u8]>, strings: Strings) {
        let skim = Box::new(Skim::new(strings));
        self.client.begin_to_pass(Passing::Text { skim, name: name.map(Into::into) });
    }

    /// The next piece of what passes by, if something does.
    #[inline]
    pub(crate) fn skim(&mut self, piece: &[u8], ends: bool) {
        if let Some(passing) = self.client.passing() {
            match passing {
                Passing::Text { skim, .. } => skim.take(piece),
                Passing::Values(values) => values.take(piece),
            }
            if ends {
                self.passed();
            }
        }
    }

    #[cold]
    fn passed(&mut self) {
        match self.client.end_passing() {
            Some(Passing::Text { skim, name: None }) => {
                self.mark_skimmed(&Arc::new(skimmed(&skim.end())));
            }
            Some(Passing::Text { skim, name: Some(name) }) => {
                let reading = Arc::new(skimmed(&skim.end()));
                self.keep_parsed(&name, reading, b"");
            }
            Some(Passing::Values(values)) => self.heard(values),
            None => {}
        }
    }

    /// A text is parsed by this name, where nobody keeps statements apart.
    pub(crate) fn keep_parsed(&mut self, name: &[u8], reading: Arc<Reading>, text: &[u8]) {
        let pending = !self.server.ledger.is_empty();
        self.server.trail.parsed(name, reading, text, pending);
    }

    /// All values are here.
    pub(crate) fn heard(&mut self, values: Values) {
        values.names.iter().for_each(|name| self.server.trail.hear(name));
        if let Some(by) = values.tells {
            self.server.trail.tell(by.as_ref(), Errand::of(&values.told));
        }
        if values.is_odd {
            self.server.trail.may_hide();
        }
    }

    /// What a text says that is about to be run and that nobody has parsed.
    pub(crate) fn mark_skimmed(&mut self, reading: &Arc<Reading>) {
        if reading.changes != Change::Nothing {
            self.watch_change(reading);
        }
        if reading.tells == Tells::Unseen {
            self.server.trail.tell(Some(reading), Errand::unseen());
        }
        self.server.trail.mark(reading, Scene::default());
    }

    /// A text is about to be run that nobody parses; `None`: it is not here.
    pub(crate) fn mark_unknown(&mut self, text: Option<&[u8]>) {
        let strings = self.strings();
        self.mark_unread();
        let mut unread = Reading::new(crate::sequences::unread(text), Box::default());
        unread.overloadable = Overloadable::ALL;
        let unread = Arc::new(unread);
        let heed = self.server.trail.heed(&unread, self.statements.ages());
        self.watch_sequences(&unread, Scene::default(), heed);
        if let Some(text) = text {
            let found = Skim::of(text, strings);
            self.mark_skimmed(&Arc::new(skimmed(&found)));
        }
    }

    /// A text is read as the client's settings say, which are perhaps about to change: then a string may end elsewhere.
    #[inline]
    pub(crate) fn doubt_strings(&mut self, text: &[u8]) {
        if self.may_be_set() && text.windows(2).any(|two| two == b"\\'") {
            self.mark_unknown(Some(text));
        }
    }

    /// How strings are told from code in what the client says now.
    pub(crate) fn strings(&self) -> Strings {
        Strings { may_change: self.may_be_set(), ..self.client.vars.strings() }
    }

    /// Whether what it sent before may set something, and it is not known yet what came of that.
    fn may_be_set(&self) -> bool {
        self.server.trail.workshop.stirred && !self.server.ledger.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut bind = b"\0\x01\0\x01".to_vec();
        bind.extend_from_slice(&u16::try_from(values.len()).expect("few").to_be_bytes());
        for value in values {
            let length = value.map_or(-1, |value| i32::try_from(value.len()).expect("short"));
            bind.extend_from_slice(&length.to_be_bytes());
            bind.extend_from_slice(value.unwrap_or_default());
        }
        bind.extend_from_slice(b"\0\0");
        bind
    }

    #[test]
    fn names_are_found_however_a_bind_is_cut() {
        let long = [&[b'x'; 100_000][..], b".y"].concat();
        let bind =
            bind(&[Some(&long), None, Some(b""), Some(b"App.X"), Some(b"a.b c"), Some(b"d.e")]);
        for size in [1, 2, 3, 7, 1000, bind.len()] {
            let mut values = Values::new(true, None);
            bind.chunks(size).for_each(|piece| values.take(piece));
            assert_eq!(values.names, [Box::from(&b"app.x"[..]), b"d.e".to_vec().into()]);
            assert_eq!((values.part, values.is_odd), (Part::Rest, false), "{size}");
        }
    }

    #[test]
    fn what_is_no_bind_is_survived() {
        for bytes in
            [&b""[..], b"\xff\xff", b"\0\0\xff\xff\x7f\xff\xff\xff", b"\0\0\0\x01\x80\0\0\0x"]
        {
            let mut values = Values::new(true, None);
            values.take(bytes);
            assert!(values.names.is_empty());
        }
        let odd = bind(&[Some("app.größe".as_bytes())]);
        let mut values = Values::new(true, None);
        values.take(&odd);
        assert!(values.is_odd);
    }
}
