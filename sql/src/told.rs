//! What functions may be told to run: any word of it could be the name of what is called.

use std::collections::BTreeSet;

use crate::catalog;
use crate::code::{Code, Unseen};
use crate::skim::{self, Kind};

/// What stands in strings and values. It is not known to be code: it may be a piece of a command, the name of a function,
/// a document in which a command stands, or prose.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Told {
    /// What may be the name of a function, an operator or a table.
    pub words: BTreeSet<Box<[u8]>>,
    /// There were more of these, and something begins as a command does.
    pub more: bool,
    /// It may set something whose name does not stand in it as it is.
    pub hides: bool,
    /// It may set something for its transaction.
    pub sets_locally: bool,
    /// What nobody can ask a session for afterwards.
    pub unseen: Unseen,
    /// Something of it begins as a command does.
    pub commands: bool,
    is_full: bool,
}

/// So many words are kept.
const WORDS_MAX: usize = 512;
/// Bytes of a name.
const NAME_MAX: usize = 63;

impl Told {
    /// By the strings of what a client says.
    #[must_use]
    pub fn by_text(text: &[u8]) -> Self {
        let mut told = Self::default();
        match str::from_utf8(text).ok().and_then(Code::of) {
            Some(code) => {
                code.strings.iter().for_each(|string| told.tell(string.as_bytes()));
                told.hides |= code.is_veiled;
            }
            None => told.tell(text),
        }
        told
    }

    /// By one string or value.
    pub fn tell(&mut self, value: &[u8]) {
        self.commands |= skim::begins_command(value);
        self.words_of(value);
        self.quoted_names_of(value);
        self.more = self.is_full && self.commands;
        self.code(value);
        // A document, in which a command may stand.
        for inner in value.split(|byte| *byte == b'"').skip(1) {
            if skim::begins_command(inner) {
                self.code(inner);
            }
        }
    }

    /// What may be code.
    fn code(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let lower = text.to_ascii_lowercase();
        if !["set", "execute", "load"].iter().any(|word| lower.contains(word)) {
            return;
        }
        self.hides |= sets_unnamed(&lower);
        match Code::of_body(&text) {
            Some(code) => {
                self.hides |= code.hides;
                self.sets_locally |= code.sets_locally;
                self.unseen |= code.unseen;
            }
            None => {
                let says = |word: &str| {
                    let is_part = |next: char| next.is_alphanumeric() || next == '_';
                    lower.split(|next| !is_part(next)).any(|part| part == word)
                };
                self.hides |= says("set_config");
                self.sets_locally |= says("set") && says("local");
                if lower.trim_start().starts_with("load '") {
                    self.unseen |= Unseen::KEEPS;
                }
            }
        }
    }

    /// By one of which only the beginning is here.
    pub fn tell_beginning(&mut self, value: &[u8]) {
        self.hides |= skim::begins_command(value);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && !self.hides
    }

    fn words_of(&mut self, value: &[u8]) {
        let mut rest = value;
        let mut before = 0;
        while let Some(first) = rest.first() {
            let same = Kind::of(*first);
            let len = rest.iter().position(|byte| Kind::of(*byte) != same);
            let (run, behind) = rest.split_at(len.unwrap_or(rest.len()));
            match same {
                Kind::Word => self.word(run, before),
                Kind::Operator => self.operator(run),
                Kind::Other => {}
            }
            before = run.last().copied().unwrap_or_default();
            rest = behind;
        }
    }

    fn word(&mut self, run: &[u8], before: u8) {
        // Behind a backslash it may be what ends a line: `\nenter()`.
        if let (b'\\', Some(rest)) = (before, run.get(1..)) {
            self.word(rest, 0);
        }
        if run.contains(&b'$') {
            // That may belong to the mark of a string.
            let parts = run.split(|byte| *byte == b'$').filter(|part| !part.is_empty());
            parts.for_each(|part| self.word(part, 0));
        }
        let Some(at) = run.iter().position(|byte| skim::starts_word(*byte)) else { return };
        let own = run.get(at..).unwrap_or_default();
        let name = own.to_ascii_lowercase();
        let text = String::from_utf8_lossy(&name);
        if catalog::keeps(&text) {
            self.unseen |= Unseen::KEEPS;
        }
        if let Some(known) = catalog::builtin(&text) {
            self.unseen |= known.unseen();
        }
        if own != name {
            self.keep(own);
        }
        self.keep(&name);
    }

    fn operator(&mut self, run: &[u8]) {
        if !str::from_utf8(run).is_ok_and(catalog::is_operator) {
            self.keep(run);
        }
    }

    /// What stands between double quotes, or between what is: nobody knows where it began.
    fn quoted_names_of(&mut self, value: &[u8]) {
        let is_odd = |name: &&[u8]| {
            name.len() <= NAME_MAX
                && name.iter().any(|byte| Kind::of(*byte) != Kind::Word)
                && !name.iter().any(u8::is_ascii_control)
        };
        for name in value.split(|byte| *byte == b'"').skip(1).filter(is_odd) {
            self.keep(name);
        }
    }

    fn keep(&mut self, name: &[u8]) {
        let name = skim::clipped(name);
        // Nobody knows in which encoding others are; and of what is binary, most are none.
        if str::from_utf8(name).is_ok() && !self.words.contains(name) {
            self.is_full |= self.words.len() >= WORDS_MAX;
            if !self.is_full {
                self.words.insert(name.into());
            }
        }
    }
}

/// Whether a string, in lower case, sets what it does not name. It may go on behind its end; but prose begins so, too.
fn sets_unnamed(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    if words.next() != Some("set") {
        return false;
    }
    let mut words = words.skip_while(|word| *word == "session");
    let Some(name) = words.next() else { return text.ends_with([' ', '\t', '\n']) };
    let is_last = words.next().is_none();
    let goes_on = is_last && name.ends_with('.') || name.starts_with('%') || name.contains(".%");
    goes_on || name.starts_with("u&\"") || name.contains('.') && !name.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: &str) -> Told {
        let mut told = Told::default();
        told.tell(value.as_bytes());
        told
    }

    fn says(told: &Told, word: &str) -> bool {
        told.words.contains(word.as_bytes())
    }

    #[test]
    fn every_word_counts() {
        for value in [
            "enter",
            "select enter()",
            "', enter(''",
            "{\"cmd\":\"SELECT enter('ann')\"}",
            r#"{"cmd": "SELECT 1,\nenter()"}"#,
            "{\"SELECT enter()\"}",
            "\0\0\0\x01\0\0\0\x0eselect enter()\0",
            "ENTER",
            "public.enter",
            "SELECT 1::enter",
            "don't enter",
        ] {
            assert!(says(&told(value), "enter"), "{value:?}");
        }
        for (value, word) in [
            ("EnterTenant", "EnterTenant"),
            ("select \"Enter it\"()", "Enter it"),
            ("войти", "войти"),
            ("###", "###"),
            ("select", "select"),
        ] {
            assert!(says(&told(value), word), "{value:?}");
        }
        assert_eq!(told("1 + 2, 17"), Told::default());
        let mut binary = Told::default();
        binary.tell(b"\0\0\0\xc8\xff");
        assert!(binary.is_empty());
    }

    #[test]
    fn what_nobody_can_ask_for() {
        for (value, unseen) in [
            ("setseed", Unseen::SEEDS),
            ("SELECT lastval()", Unseen::READS),
            ("LOAD 'x'", Unseen::KEEPS),
            ("LOAD %L", Unseen::KEEPS),
            ("load ", Unseen::KEEPS),
            ("dblink_connect", Unseen::KEEPS),
            ("{\"cmd\":\"LOAD 'x'\"}", Unseen::KEEPS),
            ("LOAD '", Unseen::KEEPS),
            ("cannot load it, or load.", Unseen::empty()),
            ("load", Unseen::empty()),
            ("page load", Unseen::empty()),
            ("load-balancer", Unseen::empty()),
            ("{\"cpu\":1,\"load\":0.7}", Unseen::empty()),
        ] {
            assert_eq!(told(value).unseen, unseen, "{value}");
        }
    }

    #[test]
    fn what_is_set_without_a_name() {
        for value in [
            "SET app.",
            "set %I = 1",
            "select set_config(''' || x",
            "SET ",
            "set session app.%s = 1",
            "SET app.größe = 1",
            "{\"cmd\":\"SELECT set_config(k, v, false) FROM prefs\"}",
            "{\"SELECT set_config(k, v, false)\"}",
        ] {
            assert!(told(value).hides, "{value}");
        }
        for value in [
            "SET app.x = 1",
            "SET LOCAL ",
            "set of spoons",
            "don't set it",
            "set",
            "Set 3 spoons",
            "Set (6 pieces)",
            "SET à 4",
            "Click 'set' to go on",
            "{'op': 'set'}",
            "{\"op\": \"set\"}",
        ] {
            assert!(!told(value).hides, "{value}");
        }
        assert!(told("SET LOCAL a.b = 1").sets_locally);
        assert!(!told("local, couldn't").sets_locally);
    }

    #[test]
    fn there_is_an_end_to_it() {
        let words: String = (0..3000).map(|i| format!("w{i} ")).collect();
        assert!(!told(&words).more);
        assert!(told(&format!("select {words}")).more);
        assert_eq!(told(&words).words.len(), WORDS_MAX);
    }

    #[test]
    fn the_strings_of_a_text() {
        let of = |text: &str| Told::by_text(text.as_bytes());
        assert!(says(&of("SELECT run('select enter()')"), "enter"));
        assert!(says(&of("SELECT run($$select enter()$$)"), "enter"));
        assert!(!says(&of("SELECT run('x')"), "run"));
        assert!(says(&of("SELECT run('x"), "run"), "what cannot be read is words");
        assert!(of(r"SELECT run(E'\x65nter()')").hides && of(r"SELECT run(U&'\0065nter()')").hides);
        assert!(says(&of("DO $$ BEGIN PERFORM run('enter'); END $$"), "enter"));
        assert!(of("SELECT run(1)").is_empty());
    }
}
