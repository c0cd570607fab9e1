//! Texts that are too long to be parsed, looked through as they pass.
//!
//! What a text says is needed only when it has been run, and by then all of it has gone by. So it is taken in pieces,
//! however it is cut, and nothing of it is kept but its words, each once: what it may call, what tables it may name, what
//! settings. Constants and comments are told from code as PostgreSQL's scanner tells them; where that is not to be known,
//! something may be hidden. It errs on one side: a word too many costs a look into the catalogs.

use std::collections::BTreeSet;
use std::mem;

use crate::catalog;
use crate::code::Unseen;
use crate::reading::Touch;

/// How strings are to be told from code. By itself: a backslash in a plain string is just that.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Strings {
    /// It takes the next character's meaning away.
    pub escape: bool,
    /// It may be half of another character.
    pub are_tangled: bool,
    /// Perhaps it is not so any more when the text is read.
    pub may_change: bool,
}

/// What stands in a text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Skimmed {
    /// What may be a table's name.
    pub names: BTreeSet<Box<[u8]>>,
    /// What may be the name of a function or operator that PostgreSQL has not built in.
    pub calls: BTreeSet<Box<[u8]>>,
    /// There were more of these.
    pub more: bool,
    /// Where names of settings may stand, a line each.
    pub said: Vec<u8>,
    /// It may set something whose name does not stand in it as it is.
    pub hides: bool,
    pub unseen: Unseen,
    /// It may create, alter or drop something.
    pub changes: bool,
    /// A string begins as a command does: what it is given to may run it.
    pub tells: bool,
}

/// So many words are kept.
const WORDS_MAX: usize = 2048;
/// Bytes of a word, or of a string that may be a name.
const WORD_MAX: usize = 255;
/// PostgreSQL cuts names behind so many bytes.
const NAME_MAX: usize = 63;
/// Strings that may be names of settings.
const SAID_MAX: usize = 128;
/// Bytes of names of settings.
const SETTINGS_MAX: usize = 1 << 16;

/// How commands begin that may call something, or leave something.
const CALLING: [&[u8]; 21] = [
    b"select",
    b"insert",
    b"update",
    b"delete",
    b"merge",
    b"with",
    b"values",
    b"table",
    b"call",
    b"do",
    b"execute",
    b"copy",
    b"explain",
    b"declare",
    b"create",
    b"alter",
    b"refresh",
    b"truncate",
    b"set",
    b"perform",
    b"load",
];

/// Words that stand before a bracket and call nothing, in what is long more often than not.
const NO_CALLS: [&[u8]; 7] = [b"values", b"in", b"and", b"or", b"on", b"as", b"from"];

/// Where in the text it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    Code,
    Word,
    Number,
    Parameter,
    /// In double quotes.
    Quoted,
    /// Behind a double quote that may be the first half of one.
    QuotedEnd,
    String {
        escapes: bool,
    },
    /// Behind a backslash.
    Escape,
    /// Behind a quote that may be the first half of one.
    StringEnd {
        escapes: bool,
    },
    Operator,
    /// Behind a `$`: a parameter, or the tag of a string.
    Dollar,
    /// In a string between dollars, so many bytes into what may be its end.
    Body {
        matched: usize,
    },
    Line,
    /// In comments that stand in each other, behind what may be the first half of a mark.
    Block {
        depth: u32,
        half: u8,
    },
    /// Behind the text.
    Over,
}

/// What came last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Last {
    #[default]
    Other,
    Create,
    Do,
    Load,
    /// `set_config(`
    SetConfig,
    /// The string behind that.
    SetName,
}

/// What is behind INTO is a table, whatever stands in brackets behind that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Into {
    Not,
    Behind,
    Name,
}

/// What a block executes may be found in a table, so that it stands nowhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Executes {
    Not,
    /// Behind EXECUTE.
    Behind,
    /// Behind the name of what it executes, or the first part of that.
    Name,
}

/// A text on its way.
#[derive(Debug)]
pub struct Skim {
    strings: Strings,
    at: At,
    /// What is being read.
    token: Vec<u8>,
    /// It was longer.
    cut: bool,
    /// What a string between dollars ends with.
    tag: Vec<u8>,
    last: Last,
    /// The word that came last.
    word: Vec<u8>,
    /// Behind SET, as far as it could be a name.
    setting: Option<Vec<u8>>,
    /// It stands by itself, and is no other word than it seems.
    bare: bool,
    /// Behind a dot.
    dot: bool,
    /// Strings are code: those of DO, up to its end.
    blocks: bool,
    had_blocks: bool,
    /// Strings that could be names.
    strings_said: BTreeSet<Box<[u8]>>,
    /// There were more.
    overheard: bool,
    /// The word in a string that is being read.
    run: Vec<u8>,
    /// It is the first.
    is_first: bool,
    /// A string says SET, or CREATE.
    says_set: bool,
    says_change: bool,
    /// The last byte of a string so far.
    before: u8,
    /// Behind `U&`.
    unicode: bool,
    /// Behind a string in which they meant something, as they do in one that continues it on another line.
    escapes: bool,
    into: Into,
    /// Behind a double quote in a block.
    between: Option<Vec<u8>>,
    /// A block executes something, and it sets something.
    block_executes: bool,
    block_sets: bool,
    /// In a block, behind what may be the beginning of a string, which goes on with none and is not raised.
    block_opens: bool,
    block_joins: bool,
    block_raises: bool,
    executes: Executes,
    /// A block executes what has a name, and it gives such things a value out of tables.
    block_runs: bool,
    block_fills: bool,
    sets: bool,
    found: Skimmed,
}

impl Skim {
    #[must_use]
    pub fn new(strings: Strings) -> Self {
        Self {
            strings,
            at: At::Code,
            token: Vec::new(),
            cut: false,
            tag: Vec::new(),
            last: Last::Other,
            word: Vec::new(),
            setting: None,
            bare: false,
            dot: false,
            blocks: false,
            had_blocks: false,
            overheard: false,
            run: Vec::new(),
            is_first: false,
            says_set: false,
            says_change: false,
            before: 0,
            unicode: false,
            escapes: false,
            into: Into::Not,
            between: None,
            strings_said: BTreeSet::new(),
            block_executes: false,
            block_sets: false,
            block_opens: false,
            block_joins: false,
            block_raises: false,
            executes: Executes::Not,
            block_runs: false,
            block_fills: false,
            sets: false,
            found: Skimmed::default(),
        }
    }

    /// All of a text at once.
    #[must_use]
    pub fn of(text: &[u8], strings: Strings) -> Skimmed {
        let mut skim = Self::new(strings);
        skim.take(text);
        skim.end()
    }

    /// The next piece. The text ends with a zero, or with the last piece.
    pub fn take(&mut self, mut piece: &[u8]) {
        while let Some((byte, rest)) = piece.split_first() {
            let long = match self.at {
                At::String { .. } => until(piece, |byte| matches!(byte, b'\'' | b'\\' | 0)),
                At::Word => until(piece, |byte| !is_word(byte)),
                At::Body { matched: 0 } => until(piece, |byte| matches!(byte, b'$' | 0)),
                At::Line => until(piece, |byte| matches!(byte, b'\n' | b'\r' | 0)),
                At::Block { half: 0, .. } => until(piece, |byte| matches!(byte, b'*' | b'/' | 0)),
                At::Over => return,
                _ => 0,
            };
            if long > 0 {
                let (inner, behind) = piece.split_at(long);
                match self.at {
                    At::String { .. } | At::Body { .. } => self.inner(inner),
                    At::Word => self.keep_all(inner),
                    _ => {}
                }
                piece = behind;
                continue;
            }
            // A byte that ends something is looked at once more.
            if self.step(*byte) {
                piece = rest;
            }
        }
    }

    /// What there was in it.
    #[must_use]
    pub fn end(mut self) -> Skimmed {
        self.take(b"\0");
        self.setting_ends();
        self.other();
        let blocks = self.had_blocks || self.blocks;
        let runs = !self.found.calls.is_empty() || self.found.hides || blocks || self.sets;
        if runs {
            for said in &self.strings_said {
                self.found.said.push(b'\n');
                self.found.said.extend_from_slice(said);
            }
            self.found.changes |= self.says_change;
            self.found.hides |= self.overheard && self.says_set;
        }
        let may_be_found = self.block_runs && self.block_fills;
        let sets_more = self.block_executes && self.block_sets;
        self.found.hides |= self.found.more || may_be_found || sets_more;
        // Nobody knows in which encoding they are.
        let is_text = |name: &[u8]| str::from_utf8(name).is_ok();
        let (names, calls) = (self.found.names.len(), self.found.calls.len());
        self.found.names.retain(|name| is_text(name));
        self.found.calls.retain(|name| is_text(name));
        let left = (self.found.names.len(), self.found.calls.len());
        self.found.hides |= !self.strings.are_tangled && left != (names, calls);
        self.found
    }

    /// Whether the byte is done with.
    fn step(&mut self, byte: u8) -> bool {
        match self.at {
            At::Code => self.code(byte),
            At::Word => return self.word_ends(byte),
            At::Number if byte.is_ascii_digit() => {}
            // What else belongs to it is taken for a word, as older versions do.
            At::Number if byte == b'.' && self.token.is_empty() => self.token.push(byte),
            At::Number => {
                self.forget();
                self.other();
                return self.back();
            }
            At::Parameter if byte.is_ascii_digit() => {}
            At::Parameter => return self.back(),
            At::Quoted if byte == b'"' => self.at = At::QuotedEnd,
            At::Quoted if byte == 0 => self.breaks_off(),
            At::Quoted => self.keep(byte),
            At::QuotedEnd if byte == b'"' => {
                self.keep(byte);
                self.at = At::Quoted;
            }
            At::QuotedEnd => {
                self.named(true);
                return self.back();
            }
            At::String { escapes } => match byte {
                b'\'' => {
                    self.found.hides |= self.strings.may_change && self.before == b'\\';
                    self.at = At::StringEnd { escapes };
                }
                b'\\' if escapes => {
                    // What it stands for is not looked at.
                    self.cut = true;
                    self.found.hides |= self.strings.are_tangled && self.before >= 0x80;
                    self.at = At::Escape;
                }
                0 => self.breaks_off(),
                byte => self.inner(&[byte]),
            },
            At::Escape => {
                self.at = At::String { escapes: true };
                let doubtful = self.strings.may_change && self.strings.escape;
                self.found.hides |= doubtful && byte == b'\'';
                if self.blocks {
                    let meant = escaped(byte);
                    self.found.hides |= meant.is_none();
                    self.block_code(meant.unwrap_or(b' '));
                }
            }
            At::StringEnd { escapes } if byte == b'\'' => {
                self.inner(b"'");
                self.at = At::String { escapes };
            }
            At::StringEnd { escapes } => {
                self.string_ends();
                self.escapes = escapes;
                return self.back();
            }
            At::Operator => return self.operator(byte),
            At::Dollar => return self.dollar(byte),
            At::Body { matched } => self.body(byte, matched),
            At::Line if matches!(byte, b'\n' | b'\r') => self.at = At::Code,
            At::Line | At::Over => self.at = if byte == 0 { At::Over } else { self.at },
            At::Block { depth, half } => self.block(byte, depth, half),
        }
        true
    }

    /// The text ends where PostgreSQL's would not, unless it refuses it.
    fn breaks_off(&mut self) {
        self.found.hides = true;
        self.at = At::Over;
    }

    fn back(&mut self) -> bool {
        self.at = At::Code;
        false
    }

    fn keep(&mut self, byte: u8) {
        if self.token.len() < WORD_MAX {
            self.token.push(byte);
        } else {
            self.cut = true;
        }
    }

    fn keep_all(&mut self, bytes: &[u8]) {
        let room = WORD_MAX - self.token.len();
        self.cut |= bytes.len() > room;
        self.token.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn forget(&mut self) {
        self.cut = false;
        self.token.clear();
    }

    fn taken(&mut self) -> Vec<u8> {
        self.cut = false;
        mem::take(&mut self.token)
    }

    fn code(&mut self, byte: u8) {
        self.at = match byte {
            0 => At::Over,
            b'\'' => {
                let escapes = self.strings.escape || self.escapes;
                self.string_begins();
                At::String { escapes }
            }
            b'"' => At::Quoted,
            b'$' => At::Dollar,
            b'0'..=b'9' => At::Number,
            byte if is_word(byte) => {
                self.keep(byte);
                At::Word
            }
            byte if is_operator(byte) => {
                self.keep(byte);
                At::Operator
            }
            byte => {
                if !byte.is_ascii_whitespace() && byte != b'\x0b' {
                    self.symbol(byte);
                }
                At::Code
            }
        };
    }

    /// Behind a word.
    fn word_ends(&mut self, byte: u8) -> bool {
        let is = |word: &[u8], this: &[u8]| word.eq_ignore_ascii_case(this);
        if byte == b'\'' {
            // E'…', and N'…', B'…', X'…'.
            let escapes = is(&self.token, b"e");
            if escapes || [b"n", b"b", b"x"].iter().any(|kind| is(&self.token, *kind)) {
                self.string_begins();
                let escapes = escapes || self.strings.escape;
                self.at = At::String { escapes };
                return true;
            }
        }
        self.unicode = byte == b'&' && is(&self.token, b"u");
        self.token.make_ascii_lowercase();
        self.named(false);
        self.back()
    }

    /// What is being read may be a name.
    fn named(&mut self, quoted: bool) {
        let mut name = self.taken();
        name.truncate(clipped(&name).len());
        self.bare = !quoted && !mem::take(&mut self.dot);
        if let Some(setting) = &mut self.setting {
            let is_scope =
                setting.is_empty() && !quoted && matches!(&name[..], b"local" | b"session");
            let goes_on = setting.is_empty() || setting.last() == Some(&b'.');
            if !is_scope && goes_on {
                setting.extend_from_slice(&name);
            } else if !is_scope {
                self.setting_ends();
            }
        }
        self.found.changes |= self.last == Last::Create;
        let is_no_block =
            !quoted && matches!(&name[..], b"update" | b"nothing" | b"also" | b"instead");
        if self.last != Last::Do || !is_no_block {
            self.other();
        }
        self.into = if self.into == Into::Behind { Into::Name } else { Into::Not };
        self.last = match &name[..] {
            _ if quoted => Last::Other,
            b"create" | b"alter" | b"drop" => Last::Create,
            b"do" => Last::Do,
            b"load" => Last::Load,
            b"set" => {
                self.sets = true;
                self.setting = Some(Vec::new());
                Last::Other
            }
            b"into" => {
                self.into = Into::Behind;
                Last::Other
            }
            _ => Last::Other,
        };
        Self::note(&mut self.found.names, &mut self.found.more, &name);
        mem::swap(&mut self.word, &mut name);
        self.token = name;
        self.token.clear();
    }

    fn note(all: &mut BTreeSet<Box<[u8]>>, more: &mut bool, name: &[u8]) {
        if all.contains(name) {
            return;
        }
        if all.len() < WORDS_MAX {
            all.insert(name.into());
        } else {
            *more = true;
        }
    }

    fn symbol(&mut self, byte: u8) {
        self.escapes = false;
        self.dot = byte == b'.';
        match (byte, &mut self.setting) {
            (b'.', Some(setting)) if setting.len() < 2 * WORD_MAX => {
                setting.push(b'.');
                return;
            }
            (b'.', Some(_)) => {
                self.found.hides = true;
                self.setting = None;
            }
            (_, Some(_)) => self.setting_ends(),
            _ => {}
        }
        let is_table = self.into == Into::Name;
        self.into = if is_table && byte == b'.' { Into::Behind } else { Into::Not };
        if byte == b'(' && !self.word.is_empty() && !is_table {
            let name = mem::take(&mut self.word);
            self.blocks |= self.last == Last::Do;
            self.last = self.call(name);
        } else if self.last == Last::SetName && matches!(byte, b',' | b':') {
            self.last = Last::Other;
        } else {
            self.other();
        }
        if byte == b';' {
            self.had_blocks |= mem::take(&mut self.blocks);
        }
    }

    /// Something comes that nothing waits for.
    fn other(&mut self) {
        self.found.hides |= matches!(self.last, Last::SetConfig | Last::SetName);
        self.blocks |= self.last == Last::Do;
        self.last = Last::Other;
        self.escapes = false;
        self.word.clear();
    }

    fn call(&mut self, name: Vec<u8>) -> Last {
        let text = String::from_utf8_lossy(&name);
        if catalog::keeps(&text) {
            self.found.unseen |= Unseen::KEEPS;
        }
        match catalog::builtin(&text) {
            Some(known) => {
                self.found.unseen |= known.unseen();
                // It runs what it is told.
                self.found.hides |= known.touch == Touch::Unknown;
                if text == "set_config" {
                    self.sets = true;
                    return Last::SetConfig;
                }
            }
            None if self.bare && NO_CALLS.contains(&&name[..]) => {}
            None => Self::note(&mut self.found.calls, &mut self.found.more, &name),
        }
        Last::Other
    }

    fn setting_ends(&mut self) {
        let Some(setting) = self.setting.take() else { return };
        if setting.contains(&b'.') {
            self.found.hides |= !setting.is_ascii();
            self.say(&setting);
        }
    }

    /// This is the name of a setting.
    fn say(&mut self, setting: &[u8]) {
        if self.found.said.len() > SETTINGS_MAX {
            self.found.hides = true;
            return;
        }
        self.found.said.push(b'\n');
        self.found.said.extend_from_slice(setting);
    }

    fn operator(&mut self, byte: u8) -> bool {
        if !is_operator(byte) {
            self.unveil(byte);
            self.operator_ends();
            return self.back();
        }
        self.keep(byte);
        let comment = match &self.token[..] {
            [.., b'-', b'-'] => At::Line,
            [.., b'/', b'*'] => At::Block { depth: 1, half: 0 },
            _ => return true,
        };
        self.token.truncate(self.token.len() - 2);
        if !self.token.is_empty() {
            self.operator_ends();
        }
        self.at = comment;
        true
    }

    /// Behind an operator: U&"…", U&'…'.
    fn unveil(&mut self, byte: u8) {
        let unicode = mem::take(&mut self.unicode) && self.token == b"&";
        self.found.hides |= unicode && matches!(byte, b'"' | b'\'');
    }

    fn operator_ends(&mut self) {
        self.into = Into::Not;
        self.setting_ends();
        self.other();
        self.note_operator();
    }

    /// What is being read is an operator.
    fn note_operator(&mut self) {
        // PostgreSQL leaves a sign at its end to what follows, or not.
        while !self.token.is_empty() {
            let operator = &self.token[..];
            let is_known = matches!(operator, [one] if KNOWN.contains(one))
                || str::from_utf8(operator).is_ok_and(catalog::is_operator);
            if !is_known {
                Self::note(&mut self.found.calls, &mut self.found.more, operator);
            }
            if !matches!(self.token.pop(), Some(b'+' | b'-')) {
                break;
            }
        }
        self.forget();
    }

    fn string_begins(&mut self) {
        if self.last == Last::Load {
            self.found.unseen |= Unseen::KEEPS;
        }
        self.blocks |= self.last == Last::Do;
        self.escapes = false;
        self.into = Into::Not;
        self.setting_ends();
        self.word.clear();
        self.run.clear();
        self.is_first = true;
        self.before = 0;
        self.forget();
    }

    /// What stands in a string.
    fn inner(&mut self, bytes: &[u8]) {
        if self.blocks {
            return bytes.iter().for_each(|byte| self.block_code(*byte));
        }
        self.keep_all(bytes);
        self.string_words(bytes);
    }

    /// The words of what may be executed.
    fn string_words(&mut self, mut bytes: &[u8]) {
        self.before = bytes.last().copied().unwrap_or(self.before);
        while !bytes.is_empty() {
            let part = until(bytes, |byte| !is_word(byte) && byte != b'.');
            let (part, rest) = bytes.split_at(part);
            let room = (WORD_MAX + 1).saturating_sub(self.run.len());
            self.run.extend_from_slice(part.get(..room).unwrap_or(part));
            if rest.is_empty() {
                return;
            }
            self.run_ends();
            let (between, behind) =
                rest.split_at(until(rest, |byte| is_word(byte) || byte == b'.'));
            // It begins with a comment, perhaps.
            self.found.tells |= self.is_first && between.iter().any(|byte| b"/-".contains(byte));
            bytes = behind;
        }
    }

    fn run_ends(&mut self) {
        let is = |word: &&[u8]| self.run.eq_ignore_ascii_case(word);
        if self.is_first && !self.run.is_empty() {
            self.found.tells |= CALLING.iter().any(is);
            self.is_first = false;
        }
        self.says_set |= [&b"set"[..], b"set_config"].iter().any(is);
        self.says_change |= [&b"create"[..], b"alter", b"drop"].iter().any(is);
        let is_name = self.says_set
            && self.run.len() <= WORD_MAX
            && self.run.first().is_some_and(|first| starts_word(*first))
            && self.run.contains(&b'.');
        if is_name {
            let name = mem::take(&mut self.run);
            self.overhear(name.into());
        }
        self.run.clear();
    }

    /// A string may be the name of a setting, or have it in it.
    fn overhear(&mut self, name: Box<[u8]>) {
        if self.strings_said.len() < SAID_MAX {
            self.strings_said.insert(name);
        } else {
            self.overheard |= !self.strings_said.contains(&name);
        }
    }

    fn string_ends(&mut self) {
        self.run_ends();
        if self.blocks {
            self.block_code(b' ');
            return self.other();
        }
        let (cut, mut text) = (self.cut, self.taken());
        let is_plain = !cut && text.is_ascii();
        let is_part = |byte: &u8| is_word(*byte) || *byte == b'.';
        let is_name = is_plain && text.contains(&b'.') && text.iter().all(is_part);
        if is_name {
            self.overhear(text.as_slice().into());
        }
        if self.last == Last::SetConfig && is_plain {
            if is_name {
                self.say(&text);
            }
            self.last = Last::SetName;
        } else {
            self.other();
        }
        text.clear();
        self.token = text;
    }

    /// A byte of what a block is made of, whose own strings may be executed: every word is one of code.
    fn block_code(&mut self, byte: u8) {
        self.block_quoted(byte);
        let is_operators = self.token.first().is_some_and(|first| is_operator(*first));
        let goes_on = match self.token.is_empty() {
            true => starts_word(byte) || is_operator(byte),
            false if is_operators => is_operator(byte),
            false => is_word(byte) || byte == b'.',
        };
        if goes_on {
            return self.keep(byte);
        }
        if is_operators {
            self.unveil(byte);
            self.note_operator();
        } else if !self.token.is_empty() {
            self.unicode = byte == b'&' && self.token.eq_ignore_ascii_case(b"u");
            self.block_word();
        }
        if starts_word(byte) {
            return self.keep(byte);
        }
        if !byte.is_ascii_whitespace() {
            let opens = matches!(byte, b'\'' | b'$');
            self.found.hides |= match self.executes {
                Executes::Not => false,
                Executes::Behind => !opens,
                Executes::Name => byte == b'.',
            };
            self.executes = Executes::Not;
            self.block_opens = opens && !self.block_joins && !self.block_raises;
            self.block_joins = byte == b'|';
            self.block_raises &= byte != b';';
        }
        if is_operator(byte) {
            self.keep(byte);
        }
    }

    /// Between double quotes a name is what it is, and so is perhaps what stands between two of those.
    fn block_quoted(&mut self, byte: u8) {
        match &mut self.between {
            Some(between) if byte == b'"' => {
                let name = mem::take(between);
                if (1..=NAME_MAX).contains(&name.len()) {
                    Self::note(&mut self.found.calls, &mut self.found.more, &name);
                    Self::note(&mut self.found.names, &mut self.found.more, &name);
                }
            }
            Some(between) if between.len() <= NAME_MAX => between.push(byte),
            None if byte == b'"' => self.between = Some(Vec::new()),
            _ => {}
        }
    }

    fn block_word(&mut self) {
        self.found.hides |= self.cut;
        let run = self.taken().to_ascii_lowercase();
        self.block_joins = false;
        self.executes = match &run[..] {
            // Of a trigger, or a right.
            b"function" | b"procedure" | b"on" => Executes::Not,
            _ if self.executes == Executes::Behind => {
                let makes = run.starts_with(b"format") || run.starts_with(b"concat");
                self.block_runs |= !makes;
                self.found.hides |= run.contains(&b'.') || &run[..] == b"current_setting";
                Executes::Name
            }
            _ => Executes::Not,
        };
        for part in run.split(|byte| *byte == b'.') {
            self.block_name(part);
            if part.contains(&b'$') {
                // That may belong to the mark of a string.
                self.block_opens = true;
                part.split(|byte| *byte == b'$').for_each(|part| self.block_name(part));
            }
        }
        self.block_opens = false;
        if run.contains(&b'.') {
            self.overhear(run.into());
        }
    }

    fn block_name(&mut self, part: &[u8]) {
        let Some(at) = part.iter().position(|byte| starts_word(*byte)) else { return };
        let word = clipped(&part[at..]);
        match word {
            b"create" | b"alter" | b"drop" => self.found.changes = true,
            b"load" => self.found.unseen |= Unseen::KEEPS,
            b"execute" => (self.block_executes, self.executes) = (true, Executes::Behind),
            b"for" | b"into" => self.block_fills = true,
            b"raise" => self.block_raises = true,
            b"set" => {
                (self.says_set, self.block_sets) = (true, true);
                // Whoever is told that may run it.
                self.found.hides |= self.block_opens;
            }
            b"set_config" => (self.says_set, self.found.hides) = (true, true),
            _ => {}
        }
        let text = String::from_utf8_lossy(word);
        match catalog::builtin(&text) {
            Some(known) => self.found.unseen |= known.unseen(),
            None => {
                if catalog::keeps(&text) {
                    self.found.unseen |= Unseen::KEEPS;
                }
                Self::note(&mut self.found.calls, &mut self.found.more, word);
            }
        }
        Self::note(&mut self.found.names, &mut self.found.more, word);
    }

    fn dollar(&mut self, byte: u8) -> bool {
        match byte {
            b'0'..=b'9' if self.token.is_empty() => {
                // A parameter, which is seen where it is given.
                if self.last == Last::SetConfig {
                    self.last = Last::SetName;
                } else {
                    self.other();
                }
                self.at = At::Parameter;
            }
            b'$' => {
                let tag = self.taken();
                self.tag = [b"$", &tag[..], b"$"].concat();
                self.string_begins();
                self.at = At::Body { matched: 0 };
            }
            byte if is_word(byte) => {
                // Nobody writes such a one, but it is told where it ends by all of it.
                if self.token.len() == WORD_MAX {
                    (self.found.hides, self.found.more) = (true, true);
                }
                self.keep(byte);
            }
            _ => {
                self.other();
                // Of what is no tag, the `$` stands alone.
                return if self.token.is_empty() { self.back() } else { self.word_ends(byte) };
            }
        }
        true
    }

    fn body(&mut self, byte: u8, matched: usize) {
        if byte == 0 {
            return self.breaks_off();
        }
        let tag = mem::take(&mut self.tag);
        self.at = if tag.get(matched) == Some(&byte) {
            At::Body { matched: matched + 1 }
        } else {
            self.inner(tag.get(..matched).unwrap_or_default());
            let again = usize::from(byte == b'$');
            if again == 0 {
                self.inner(&[byte]);
            }
            At::Body { matched: again }
        };
        let ends = self.at == At::Body { matched: tag.len() };
        self.tag = tag;
        if ends {
            self.string_ends();
            self.at = At::Code;
        }
    }

    fn block(&mut self, byte: u8, depth: u32, half: u8) {
        self.at = match (half, byte) {
            (_, 0) => return self.breaks_off(),
            (b'/', b'*') => At::Block { depth: depth.saturating_add(1), half: 0 },
            (b'*', b'/') if depth == 1 => At::Code,
            (b'*', b'/') => At::Block { depth: depth - 1, half: 0 },
            (_, b'*' | b'/') => At::Block { depth, half: byte },
            _ => At::Block { depth, half: 0 },
        };
    }
}

/// Whether a text, or the beginning of one, begins as a command does that may call something, or with a comment.
pub(crate) fn begins_command(text: &[u8]) -> bool {
    let begins = text.iter().position(|byte| !byte.is_ascii_whitespace());
    let text = text.get(begins.unwrap_or_default()..).unwrap_or_default();
    let mut words = text.split(|byte| !is_word(*byte)).filter(|word| !word.is_empty());
    let is = |word: &[u8]| CALLING.iter().any(|command| word.eq_ignore_ascii_case(command));
    text.starts_with(b"/*") || text.starts_with(b"--") || words.next().is_some_and(is)
}

/// What a backslash makes of the character behind it; `None`: that is a number of one.
pub(crate) fn escaped(byte: u8) -> Option<u8> {
    match byte {
        b'b' | b'f' | b'n' | b'r' | b't' => Some(b' '),
        b'0'..=b'7' | b'x' | b'u' | b'U' => None,
        byte => Some(byte),
    }
}

/// A name, as PostgreSQL cuts it.
pub(crate) fn clipped(name: &[u8]) -> &[u8] {
    let ends = |at: &usize| name.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (0..=NAME_MAX).rev().find(ends).unwrap_or(NAME_MAX);
    name.get(..end).unwrap_or(name)
}

/// How far it is to one of these, or to the end.
fn until(piece: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    piece.iter().position(|byte| ends(*byte)).unwrap_or(piece.len())
}

/// Operators of one character that PostgreSQL has.
const KNOWN: &[u8] = b"+-*/<>=%^&|#~";

/// What a byte may be part of.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Kind {
    Other,
    Word,
    Operator,
}

static KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        let ascii = byte as u8;
        if ascii.is_ascii_alphanumeric() || ascii == b'_' || ascii == b'$' || byte >= 0x80 {
            kinds[byte] = Kind::Word;
        }
        byte += 1;
    }
    let operators = b"+-*/<>=~!@#%^&|`?";
    let mut at = 0;
    while at < operators.len() {
        kinds[operators[at] as usize] = Kind::Operator;
        at += 1;
    }
    kinds
};

impl Kind {
    pub(crate) fn of(byte: u8) -> Self {
        KINDS[usize::from(byte)]
    }
}

fn is_word(byte: u8) -> bool {
    Kind::of(byte) == Kind::Word
}

pub(crate) fn starts_word(byte: u8) -> bool {
    is_word(byte) && byte != b'$' && !byte.is_ascii_digit()
}

fn is_operator(byte: u8) -> bool {
    Kind::of(byte) == Kind::Operator
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skim(text: &str) -> Skimmed {
        let whole = Skim::of(text.as_bytes(), Strings::default());
        // However it is cut.
        let mut bytewise = Skim::new(Strings::default());
        text.as_bytes().iter().for_each(|byte| bytewise.take(&[*byte]));
        assert_eq!(bytewise.end(), whole, "{text}");
        whole
    }

    fn words(all: &BTreeSet<Box<[u8]>>) -> Vec<String> {
        all.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn what_is_called_is_found_and_nothing_else() {
        for text in [
            "SELECT 'it''s f(', enter('ann')",
            "SELECT 'f(\\', enter(1)",
            "SELECT E'f(\\'', enter(1)",
            "SELECT E'f('\n -- '\n'\\'f(', enter(1), '\\', f",
            "SELECT set_config(E'a.b', '\\', false), enter(1), '\\', f",
            "SELECT 1a$b$, enter(1)",
            "SELECT a.into || enter(1)",
            "SELECT U&'f(', enter(1)",
            "SELECT b'f(', N'f(', enter (1)",
            "SELECT 1 /* f( /* ' */ \" $$ */, enter -- f('\n (1)",
            "SELECT $$ f(' $$, $a$ f( $$ $b$ $a$, Enter(1)",
            "SELECT a$f$, $1, \"enter\"('x')",
            "SELECT 1e5, 1.5e-7, 0x1f, s . enter(1)",
            "SELECT -1 <= +2 AND a->>'f(' = 'b' AND enter(now())",
            "INSERT INTO s.t (a) VALUES (enter(1)), ('f(')",
            "INSERT INTO t SELECT enter(1)",
            "INSERT INTO t (a) VALUES (enter(1)) ON CONFLICT DO UPDATE SET a = 'f('",
        ] {
            let found = skim(text);
            assert_eq!(words(&found.calls), ["enter"], "{text}");
            assert!(!found.more && !found.changes, "{text}");
            assert_eq!(found.hides, text.contains("U&"), "{text}");
        }
        assert_eq!(words(&skim("SELECT 1 <=> 2, 3 ###- 4, -5").calls), ["###", "###-", "<=>"]);
        assert_eq!(words(&skim("SELECT 1 <=>/* */ 2, 3 ###--\n 4").calls), ["###", "<=>"]);
        for word in ["conflict", "s.values", "s.in", "\"on\""] {
            assert_eq!(skim(&format!("SELECT {word}(1)")).calls.len(), 1, "{word}");
        }
        assert_eq!(words(&skim("SELECT \"A \"\"b\"(1)").calls), ["A \"b"]);
        assert_eq!(words(&skim("TABLE \"T t\"").names), ["T t", "table"]);
        let long = format!("SELECT {}(1)", "é".repeat(60));
        assert_eq!(words(&skim(&long).calls), ["é".repeat(31)], "as PostgreSQL cuts it");
        let latin = Skim::of(b"SELECT f(1), g\xe9(2), '\xe9'", Strings::default());
        assert_eq!((words(&latin.calls), latin.hides), (vec!["f".to_owned()], true));
        let escaping =
            Skim::of(b"SELECT 'f(\\'', enter(1)", Strings { escape: true, ..Strings::default() });
        assert_eq!(words(&escaping.calls), ["enter"]);
    }

    #[test]
    fn blocks_are_code() {
        for text in [
            "DO $$ BEGIN PERFORM 'x'; PERFORM enter('ann'); END $$",
            "DO 'begin perform enter(''ann''); end'",
            "DO LANGUAGE plpgsql $x$ BEGIN EXECUTE 'SELECT enter(1)'; END $x$",
            "SELECT 1; DO /* */ E'begin perform enter(1); end'",
        ] {
            assert!(words(&skim(text).calls).contains(&"enter".to_owned()), "{text}");
        }
    }

    #[test]
    fn what_depends_on_what_is_not_known_hides() {
        let may_change = Strings { may_change: true, ..Strings::default() };
        assert!(Skim::of(b"SELECT '\\', f(1), '", may_change).hides);
        assert!(!Skim::of(b"SELECT '\\n', f(1), 'x'", may_change).hides);
        let may_change = Strings { escape: true, ..may_change };
        assert!(Skim::of(b"SELECT '\\', f(1), '', ''", may_change).hides);
        let are_tangled = Strings { are_tangled: true, ..Strings::default() };
        let text = b"SELECT '\x95\x5c', E'\x41\\n', \x95\x5c(1), enter(1)";
        let found = Skim::of(text, are_tangled);
        assert!(!found.hides && words(&found.calls).contains(&"enter".to_owned()));
        assert!(Skim::of(b"SELECT E'\x95\x5c', enter(1)", are_tangled).hides);
    }

    #[test]
    fn names_of_settings_are_found() {
        for text in [
            "SELECT 1; SET app.tenant = 'x.y'",
            "SET SESSION \"app\" . tenant TO ann",
            "SELECT set_config('app.tenant', 'x.y z', false)",
            "SELECT give('app.tenant', 'x y')",
            "SELECT give($$app.tenant$$, 'x y')",
        ] {
            let said = String::from_utf8(skim(text).said).expect("ASCII");
            assert!(said.lines().any(|line| line == "app.tenant"), "{text}");
            assert!(!said.contains("z"), "{text}");
            assert!(!skim(text).hides, "{text}");
        }
        for text in
            ["DO $$ BEGIN SET app.tenant = 1; END $$", "DO 'BEGIN x := ''app.tenant''; END'"]
        {
            let said = String::from_utf8(skim(text).said).expect("ASCII");
            assert!(said.lines().any(|line| line == "app.tenant"), "{text}");
        }
        let plain = skim("INSERT INTO t VALUES ('example.com', lower('a.b')), ('c.d', 'e f.g')");
        assert_eq!(plain.said, b"", "nothing here could set one");
        for text in [
            "SELECT set_config('app.' || 'tenant', 'x', false)",
            "SELECT set_config('app.'\n'tenant', 'x', false)",
            "SELECT set_config(E'app\\x2etenant', 'x', false)",
            "SELECT set_config((SELECT 'app.tenant'), 'x', false)",
            "SELECT set_config(name, 'x', false) FROM names",
            "SELECT set_config('app.größe', 'x', false)",
            "SET app.größe = 1",
            "SET U&\"app!002Etenant\" UESCAPE '!' = 1",
            "DO $$ BEGIN EXECUTE 'SET app' || '.tenant = 1'; END $$",
            "SELECT 'there is no end to it",
            "SELECT query_to_xml('select enter(1)', true, true, '')",
        ] {
            assert!(skim(text).hides, "{text}");
        }
        for text in
            ["SELECT run('SET app.tenant = 1')", "SELECT run('select set_config(''app.tenant'')')"]
        {
            assert_eq!(skim(text).said, b"\napp.tenant", "{text}");
        }
        let many: String = (0..500).map(|i| format!("x{i}.com ")).collect();
        assert!(!skim(&format!("SELECT f('{many}')")).hides);
        assert!(skim(&format!("SELECT f('set {many}')")).hides, "it may be among them");
        let migration = "CREATE TABLE t (i int REFERENCES u ON DELETE SET NULL); DO $$ BEGIN NULL; END $$; \
             CREATE TRIGGER t AFTER INSERT ON t EXECUTE FUNCTION f(); INSERT INTO t VALUES ('set_config')";
        assert!(!skim(migration).hides);
        for text in ["SELECT set_config($1, $2, false)", "SELECT set_config('a.b'::text, $1, true)"]
        {
            assert!(!skim(text).hides, "{text}");
        }
    }

    #[test]
    fn changes_and_what_nobody_can_ask_for() {
        for text in
            ["CREATE TABLE t ()", "SELECT 1; drop/* */view v", "DO $$ BEGIN ALTER TABLE t; END $$"]
        {
            assert!(skim(text).changes, "{text}");
        }
        assert!(skim("SELECT run('create table t')").changes);
        assert!(!skim("SELECT 'create table t', created, \"create\" FROM t").changes);
        for (text, unseen) in [
            ("SELECT setseed(0.5)", Unseen::SEEDS),
            ("SELECT lastval(), nextval('s')", Unseen::READS | Unseen::GIVES),
            ("LOAD 'auto_explain'", Unseen::KEEPS),
            ("SELECT dblink_connect('a', 'b')", Unseen::KEEPS),
            ("DO $$ BEGIN LOAD 'x'; PERFORM setseed(1); END $$", Unseen::KEEPS | Unseen::SEEDS),
            ("SELECT 'setseed(1)', load, lastval FROM t", Unseen::empty()),
        ] {
            assert_eq!(skim(text).unseen, unseen, "{text}");
        }
    }

    #[test]
    fn operators_that_are_known_are_known() {
        for byte in KNOWN {
            assert!(catalog::is_operator(&char::from(*byte).to_string()), "{byte}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let many: String = (0..5000).map(|at| format!("f{at}('a.b{at}'), ")).collect();
        let found = skim(&format!("SELECT {many} 1"));
        assert!(found.more && found.hides);
        assert_eq!((found.calls.len(), found.names.len()), (WORDS_MAX, WORDS_MAX));
        for text in
            ["'", "\"", "$$", "$a$ $a", "$a", "/*", "--", "E'\\", "U&", "set", "set_config(", "x'"]
        {
            let _whatever = skim(text);
        }
        let long = "x".repeat(1000);
        for text in [format!("${long}$"), format!("\"{long}\""), format!("'{long}'"), long] {
            let _whatever = skim(&text);
        }
    }
}
