//! What stands in code: the body of a function, of a block, of anything that runs other things.
//!
//! Code is not parsed, it is read word by word, by PostgreSQL's own scanner, which is PL/pgSQL's too. So all that can be
//! told is what it might do: every word could be a table, every word before a bracket a function.

use std::collections::BTreeSet;

use pg_query::protobuf::{KeywordKind, ScanToken, Token};

use crate::catalog::{self, Builtin};
use crate::digest::range;
use crate::overloadable::Overloadable;
use crate::reading::{Touch, tokens};
use crate::skim;
use crate::states::States;

/// What a piece of code names, and whether it may touch the session by itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Code {
    /// What may be a table's name.
    pub names: BTreeSet<String>,
    /// What may be the name of a function that PostgreSQL has not built in, and operators that it has not.
    pub calls: BTreeSet<String>,
    /// Its strings, and what it sets: names of settings may stand in these.
    pub said: String,
    /// It may change something that outlives the transaction, or runs what stands in no code.
    pub touches: bool,
    /// It sets something for its transaction.
    pub sets_locally: bool,
    /// It may set something whose name does not stand in it: what it is told to, what it finds in a table, what it puts
    /// together.
    pub hides: bool,
    /// What nobody can ask a session for afterwards.
    pub unseen: Unseen,
    /// What could be somebody's own though it has a name of PostgreSQL's.
    pub overloadable: Overloadable,
    /// It runs commands that are put together, or that it is told.
    pub executes: bool,
    /// Its strings, which what it calls may run; and blocks that are not to be read.
    pub strings: Vec<String>,
    /// One of these has characters in it that are written as numbers.
    pub is_veiled: bool,
}

bitflags::bitflags! {
    /// What code may do that nobody can ask a session for afterwards.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Unseen: u8 {
        /// It makes a sequence give something.
        const GIVES = 1;
        /// It asks for what one gave: currval(), lastval().
        const READS = 1 << 1;
        /// It seeds random().
        const SEEDS = 1 << 2;
        /// It leaves something in the server's process: a connection, a library.
        const KEEPS = 1 << 3;
    }
}

impl Builtin {
    /// Whether calling it may leave something behind. What sequences give is another matter.
    #[must_use]
    pub fn leaves_something(&self) -> bool {
        self.touch != Touch::Inert || !self.makes.difference(States::SEQUENCES).is_empty()
    }

    /// What calling it may do that nobody can ask a session for afterwards.
    #[must_use]
    pub fn unseen(&self) -> Unseen {
        let all = [
            (self.makes.contains(States::SEQUENCES), Unseen::GIVES),
            (self.reads.contains(States::SEQUENCES), Unseen::READS),
            (self.makes.contains(States::SEED), Unseen::SEEDS),
            (self.makes.contains(States::BACKEND), Unseen::KEEPS),
        ];
        all.into_iter().filter_map(|(does, unseen)| does.then_some(unseen)).collect()
    }
}

/// Which strings are read as code, and how deep.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reach {
    /// Those of DO.
    Blocks,
    /// All: any may be executed.
    Strings(u8),
}

const DEPTH: u8 = 3;

impl Code {
    /// What a client says. `None` of what the scanner refuses.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        Self::within(text, Reach::Blocks)
    }

    /// What a function is made of, whose strings may be executed.
    #[must_use]
    pub fn of_body(text: &str) -> Option<Self> {
        Self::within(text, Reach::Strings(DEPTH))
    }

    /// What runs this may run that.
    fn add(&mut self, inner: Self) {
        self.names.extend(inner.names);
        self.calls.extend(inner.calls);
        self.said.push('\n');
        self.said.push_str(&inner.said);
        self.hides |= inner.hides;
        self.sets_locally |= inner.sets_locally;
        self.unseen |= inner.unseen;
        self.overloadable |= inner.overloadable;
        self.executes |= inner.executes;
        self.is_veiled |= inner.is_veiled;
    }

    fn within(text: &str, reach: Reach) -> Option<Self> {
        let mut words = Vec::new();
        for token in tokens(text)? {
            let word = Word::of(text, &token)?;
            if !matches!(word.token, Token::SqlComment | Token::CComment) {
                words.push(word);
            }
        }
        let mut code = Self { overloadable: Overloadable::ANYWHERE, ..Self::default() };
        for at in 0..words.len() {
            code.take(&words, at, reach);
        }
        // Prose loads nothing.
        let is_library =
            |word: &Word<'_>| word.token == Token::Sconst || word.text.starts_with('%');
        let goes_on = text.ends_with([' ', '\t', '\n']);
        let loads = |at: usize| words.get(at + 1).map_or(goes_on, is_library);
        let mut all = words.iter().enumerate();
        if all.any(|(at, word)| word.token == Token::Load && loads(at)) {
            (code.touches, code.unseen) = (true, code.unseen | Unseen::KEEPS);
        }
        Some(code)
    }

    fn take(&mut self, words: &[Word<'_>], at: usize, reach: Reach) {
        let word = &words[at];
        let next = words.get(at + 1);
        match word.token {
            // It may be a name that is spelled in another way.
            Token::Uident => self.touches = true,
            Token::Sconst | Token::Usconst => self.take_string(words, at, reach),
            Token::Execute => {
                self.touches = true;
                // A client executes what it has prepared.
                let is_code = reach != Reach::Blocks;
                self.executes |= is_code;
                self.hides |= is_code && is_found(words, at);
            }
            Token::Reset
            | Token::Discard
            | Token::Listen
            | Token::Unlisten
            | Token::Prepare
            | Token::Deallocate
            | Token::Create
            | Token::Temp
            | Token::Temporary
            | Token::Hold => self.touches = true,
            Token::Do => {
                let harmless = [Token::Update, Token::Nothing, Token::Also, Token::Instead];
                self.touches |= !next.is_some_and(|next| harmless.contains(&next.token));
            }
            Token::Set if !is_of_update(words, at) => {
                let is = |tokens: &[Token]| next.is_some_and(|next| tokens.contains(&next.token));
                self.sets_locally |= is(&[Token::Local, Token::Transaction]);
                self.touches |= !is(&[Token::Local, Token::Constraints, Token::Transaction]);
                self.say_setting(&words[at + 1..]);
            }
            Token::Op if !catalog::is_operator(word.text) => {
                self.calls.insert(word.text.to_owned());
            }
            _ => {}
        }
        let Some(name) = word.name() else { return };
        if next.is_some_and(|next| next.text == "(") {
            self.call(&name, words, at + 1, reach);
        }
        self.names.insert(name);
    }

    /// Whether what is opened is closed again.
    fn closes(words: &[Word<'_>]) -> bool {
        words.iter().any(|word| word.text.eq_ignore_ascii_case("dblink_disconnect"))
    }

    fn take_string(&mut self, words: &[Word<'_>], at: usize, reach: Reach) {
        let text = inside(words[at].text);
        self.said.push('\n');
        self.said.push_str(&text);
        let is_code = reach != Reach::Blocks;
        let joins = |word: Option<&Word<'_>>| word.is_some_and(|word| word.text == "||");
        let goes_on = joins(words.get(at + 1));
        // What stands behind another is no beginning, and what is raised is not run.
        let (before, _) = words.split_at(at);
        let is_raised =
            before.iter().rev().take(2).any(|one| one.text.eq_ignore_ascii_case("raise"));
        let begins = is_code && !joins(before.last()) && !is_raised;
        self.hides |= begins && sets_unnamed(&text, goes_on, is_veiled(&words[at]));
        // DO LANGUAGE plpgsql '…'
        let is_block = words[..at].iter().rev().take(3).any(|word| word.token == Token::Do);
        self.hides |= is_block && is_veiled(&words[at]);
        self.is_veiled |= is_veiled(&words[at]);
        // What is no code has nothing to run by itself; and whatever runs it was seen to touch what it may.
        let inner = match reach {
            Reach::Strings(0) => None,
            Reach::Strings(depth) => Self::within(&text, Reach::Strings(depth - 1)),
            Reach::Blocks if is_block => {
                let inner = Self::within(&text, Reach::Strings(DEPTH));
                // In another language.
                self.executes |= inner.is_none() || is_foreign(words);
                inner
            }
            Reach::Blocks => None,
        };
        if let Some(inner) = inner {
            self.add(inner);
        }
        self.strings.push(text);
    }

    /// Behind a SET.
    fn say_setting(&mut self, words: &[Word<'_>]) {
        let scope = |word: &&Word<'_>| matches!(word.token, Token::Local | Token::Session);
        let mut words = words.iter().skip_while(scope);
        let mut setting = String::new();
        while let Some(word) = words.next() {
            self.hides |= word.token == Token::Uident;
            setting.push_str(word.name().as_deref().unwrap_or_default());
            if words.next().is_none_or(|dot| dot.text != ".") {
                break;
            }
            setting.push('.');
        }
        // Names beyond ASCII are asked for by nobody.
        self.hides |= setting.contains('.') && !setting.is_ascii();
        self.said.push('\n');
        self.said.push_str(&setting);
    }

    /// `open`: where its bracket is.
    fn call(&mut self, name: &str, words: &[Word<'_>], open: usize, reach: Reach) {
        self.overloadable |= Overloadable::of(name);
        match catalog::builtin(name) {
            None => {
                if catalog::keeps(name) && !(name.starts_with("dblink_") && Self::closes(words)) {
                    (self.touches, self.unseen) = (true, self.unseen | Unseen::KEEPS);
                }
                self.calls.insert(name.to_owned());
            }
            Some(_) if name == "set_config" && is_brief(&words[open..]) => self.sets_locally = true,
            Some(known) => {
                self.touches |= known.leaves_something();
                self.unseen |= known.unseen();
                // It runs what it is told.
                let runs = known.touch == Touch::Unknown;
                self.hides |= runs && !is_told(name, &words[open..], reach);
                self.executes |= runs;
                if name == "set_config" {
                    self.hides |= !is_named(&words[open..], reach);
                }
            }
        }
    }
}

struct Word<'a> {
    token: Token,
    keyword: KeywordKind,
    text: &'a str,
}

impl<'a> Word<'a> {
    fn of(text: &'a str, token: &ScanToken) -> Option<Self> {
        let keyword = KeywordKind::try_from(token.keyword_kind).unwrap_or(KeywordKind::NoKeyword);
        // Operators and brackets are known by their text.
        let kind = Token::try_from(token.token).unwrap_or(Token::Nul);
        Some(Self { token: kind, keyword, text: text.get(range(token)?)? })
    }

    /// What it may be the name of.
    fn name(&self) -> Option<String> {
        let is_plain =
            |text: &str| text.starts_with(|first: char| first == '_' || first.is_alphabetic());
        match self.text.strip_prefix('"') {
            Some(quoted) => Some(quoted.strip_suffix('"')?.replace("\"\"", "\"")),
            None if self.keyword == KeywordKind::ReservedKeyword => None,
            None if is_plain(self.text) && !self.text.contains('\'') => {
                Some(self.text.to_ascii_lowercase())
            }
            None => None,
        }
    }

    /// As [`Self::name`], but for what stands behind a table in PL/pgSQL's own statements.
    fn may_be_table(&self) -> bool {
        self.name().is_some_and(|name| !["loop", "then", "else", "begin"].contains(&name.as_str()))
    }
}

/// What stands between the quotes or dollars of a string.
fn inside(text: &str) -> String {
    if let Some(end) = text.strip_prefix('$').and_then(|rest| rest.find('$')) {
        let tag = end + 2;
        return text.get(tag..text.len().saturating_sub(tag)).unwrap_or_default().to_owned();
    }
    let open = text.find('\'').map_or(0, |at| at + 1);
    let inner = text.get(open..).unwrap_or_default();
    let inner = inner.strip_suffix('\'').unwrap_or(inner).replace("''", "'");
    if !has_escapes(text) {
        return inner;
    }
    let mut meant = String::new();
    let mut rest = inner.chars();
    while let Some(next) = rest.next() {
        let escapes = next == '\\';
        let next = if escapes { rest.next().unwrap_or(next) } else { next };
        let byte = u8::try_from(next).ok().filter(|_| escapes);
        meant.push(byte.map_or(next, |byte| skim::escaped(byte).map_or(' ', char::from)));
    }
    meant
}

/// Whether a string is written with escapes: E'…\…'.
fn has_escapes(text: &str) -> bool {
    text.starts_with(['e', 'E']) && text.contains('\\')
}

/// Whether a string has characters in it that are written as numbers, or in another way that nobody here reads.
fn is_veiled(word: &Word<'_>) -> bool {
    let numbers = |at: usize| {
        word.text.as_bytes().get(at + 1).is_some_and(|next| skim::escaped(*next).is_none())
    };
    word.token == Token::Usconst
        || has_escapes(word.text) && word.text.match_indices('\\').any(|(at, _)| numbers(at))
}

/// Whether the SET at `at` is that of `UPDATE … SET`.
fn is_of_update(words: &[Word<'_>], at: usize) -> bool {
    let mut before = words[..at].iter().rev();
    // ONLY schema . table * AS alias
    for count in 0..8 {
        let Some(word) = before.next() else { return false };
        match word.token {
            Token::Update => {
                // Not FOR UPDATE, nor FOR NO KEY UPDATE.
                let locks = |word: &Word<'_>| matches!(word.token, Token::For | Token::Key);
                let conflict = |word: &Word<'_>| word.token == Token::Do;
                let of = before.next();
                return !of.is_some_and(locks) && (count > 0 || of.is_some_and(conflict));
            }
            Token::As | Token::Only => {}
            _ if matches!(word.text, "." | "*") || word.may_be_table() => {}
            _ => return false,
        }
    }
    false
}

/// Whether what EXECUTE at `at` runs may be found in a table, so that it stands nowhere.
fn is_found(words: &[Word<'_>], at: usize) -> bool {
    let [_, what, next, ..] = &words[at..] else { return false };
    // Not what a function returns that is in a schema.
    let is_call = words.get(at + 4).is_some_and(|open| open.text == "(");
    let is_field = next.text == "." && !is_call;
    let is_query = what.text == "(" && matches!(next.token, Token::Select | Token::With);
    let name = what.name();
    // FOR it IN SELECT …, SELECT … INTO STRICT other, it
    let fills = |token| matches!(token, Token::For | Token::Into | Token::StrictP);
    let is_it = |from: usize| {
        let names = words.iter().skip(from + 1).step_by(2);
        let commas = words.iter().skip(from + 2).step_by(2).map(|word| word.text == ",");
        let mut listed =
            names.zip([true].into_iter().chain(commas)).take_while(|(_, goes_on)| *goes_on);
        listed.any(|(word, _)| word.name() == name)
    };
    let mut filled = (0..words.len()).filter(|from| fills(words[*from].token));
    let is_filled = name.is_some() && filled.any(is_it);
    // Who set it did so elsewhere.
    let is_setting = name.as_deref() == Some("current_setting");
    is_field || is_query || is_setting || is_filled && !words.iter().any(begins_command)
}

/// Whether a string is how a command begins: what is executed was put together here.
fn begins_command(word: &Word<'_>) -> bool {
    const COMMANDS: [&str; 16] = [
        "select", "insert", "update", "delete", "merge", "with", "create", "alter", "drop",
        "grant", "revoke", "truncate", "refresh", "copy", "comment", "analyze",
    ];
    let text = || inside(word.text).trim_start().to_ascii_lowercase();
    let begins = |text: String| {
        let first = text.split(|next: char| !next.is_ascii_alphabetic()).next();
        first.is_some_and(|first| COMMANDS.contains(&first))
    };
    word.token == Token::Sconst && begins(text())
}

/// Whether the first argument in brackets is a name. What a client gives as a parameter is seen.
fn is_named(words: &[Word<'_>], reach: Reach) -> bool {
    let [_, first, next, ..] = words else { return false };
    let is_client = reach == Reach::Blocks;
    // What is not spelled as it is nobody looks for.
    let is_plain = || first.text.is_ascii() && !has_escapes(first.text);
    let is_name =
        first.token == Token::Sconst && is_plain() || is_client && first.token == Token::Param;
    is_name && matches!(next.text, "," | "::")
}

/// Whether a block is written in what nobody here reads.
fn is_foreign(words: &[Word<'_>]) -> bool {
    let languages = words.windows(2).filter(|pair| pair[0].token == Token::Language);
    { languages }
        .any(|pair| !matches!(inside(pair[1].text).to_ascii_lowercase().as_str(), "plpgsql"))
}

/// Whether what `name` runs is its first argument in brackets, and that is what a client says: it is seen.
fn is_told(name: &str, words: &[Word<'_>], reach: Reach) -> bool {
    let [_, first, next, ..] = words else { return false };
    let is_plain = matches!(first.token, Token::Sconst | Token::Param);
    let is_whole = matches!(next.text, "," | ")" | "::");
    reach == Reach::Blocks
        && (name.starts_with("query_to_xml") || name == "ts_stat")
        && is_plain
        && is_whole
}

/// Whether a string that is executed sets what it does not name, or not as it is: `EXECUTE format('SET %I …`. It may go on
/// behind it, and have characters in it that are written as numbers.
fn sets_unnamed(text: &str, goes_on: bool, is_veiled: bool) -> bool {
    let is = |word: &&str, other: &str| word.eq_ignore_ascii_case(other);
    let mut words = text.split_ascii_whitespace();
    let sets = words.next().is_some_and(|word| is(&word, "set"));
    let mut words = words.skip_while(|word| is(word, "session")).peekable();
    if !sets || words.peek().is_some_and(|word| is(word, "local")) {
        return false;
    }
    let Some(name) = words.next() else {
        return is_veiled || goes_on || text.ends_with([' ', '\t', '\n']);
    };
    let ends = name.contains('=') || words.next().is_some() || text.ends_with([' ', '\t', '\n']);
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.is_ascii()
        && (ends || !goes_on)
        && !name.ends_with('.')
        && !name.contains(".%");
    is_veiled || !is_name
}

/// Whether a body in a language that nobody here reads may set something, as far as it shows: strings that begin with
/// SET, and set_config.
#[must_use]
pub fn may_set(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    let begins = |at: usize| body[..at].trim_end().ends_with(['\'', '"', '`', ';', '(', '[']);
    let ends = |at: usize| body[at + 3..].starts_with(|next: char| next.is_ascii_whitespace());
    body.contains("set_config") || body.match_indices("set").any(|(at, _)| begins(at) && ends(at))
}

/// Whether the arguments in brackets end in `true`: what is set is set for the transaction.
fn is_brief(words: &[Word<'_>]) -> bool {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate() {
        match word.text {
            "(" => depth += 1,
            ")" if depth == 1 => {
                return at > 2 && words[at - 1].token == Token::TrueP && words[at - 2].text == ",";
            }
            ")" => depth -= 1,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        Code::of(text).expect("code")
    }

    fn touches(body: &str) -> bool {
        code(body).touches
    }

    #[test]
    fn what_is_set_for_a_transaction() {
        for (body, locally) in [
            ("BEGIN SET LOCAL a.b = 1; END", true),
            ("BEGIN SET TRANSACTION READ ONLY; END", true),
            ("SELECT set_config('a.b', 'c', true)", true),
            ("BEGIN EXECUTE 'SET LOCAL a.b = 1'; END", true),
            ("BEGIN UPDATE t SET local = 1; SET CONSTRAINTS ALL DEFERRED; END", false),
        ] {
            assert_eq!(Code::of_body(body).expect("code").sets_locally, locally, "{body}");
        }
        let operators = code("SELECT a <=> b, a OPERATOR(s.###) c, 1 <= 2, a ->> 'b'").calls;
        assert_eq!(operators.into_iter().collect::<Vec<_>>(), ["###", "<=>", "operator"]);
    }

    #[test]
    fn what_leaves_nothing() {
        for body in [
            "",
            " \n",
            "-- SET x",
            "BEGIN RETURN NEW; END",
            "BEGIN NEW.changed := now(); RETURN NEW; END",
            "BEGIN UPDATE t SET i = 1; RETURN NULL; END",
            "BEGIN UPDATE ONLY s.t * AS u SET i = 1; UPDATE \"T t\" u SET i = 2; RETURN NULL; END",
            "BEGIN INSERT INTO audit (a, b) VALUES (TG_OP, 'SET ROLE') ON CONFLICT DO UPDATE SET a = 1; RETURN NEW; END",
            "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
            "BEGIN SET LOCAL work_mem = '1MB'; PERFORM set_config('a.b', f(1, 2), true); END",
            "BEGIN PERFORM nextval('s'); PERFORM pg_notify('a', 'b'); END",
            "SET CONSTRAINTS ALL DEFERRED",
            "DECLARE i int := 1; BEGIN FOR i IN 1..10 LOOP NULL; END LOOP; END",
        ] {
            assert!(!touches(body), "{body}");
        }
    }

    #[test]
    fn what_may_leave_something() {
        for body in [
            "BEGIN SET work_mem = '1MB'; END",
            "BEGIN IF TG_OP = 'UPDATE' THEN SET work_mem = '1MB'; END IF; END",
            "BEGIN IF x = 'update t' THEN SET work_mem = '1MB'; END IF; END",
            "BEGIN FOR r IN SELECT * FROM t FOR UPDATE LOOP SET work_mem = '1MB'; END LOOP; END",
            "BEGIN FOR r IN SELECT * FROM t FOR UPDATE NOWAIT LOOP SET work_mem = '1MB'; END LOOP; END",
            "BEGIN FOR r IN SELECT * FROM t FOR NO KEY UPDATE OF t LOOP SET a.b = '1MB'; END LOOP; END",
            "BEGIN FOR r IN SELECT * FROM t FOR UPDATE SKIP LOCKED LOOP SET a.b = 1; END LOOP; END",
            "BEGIN UPDATE t SET i = 1; SET work_mem = '1MB'; END",
            "BEGIN /* UPDATE t */ SET work_mem = '1MB'; END",
            "BEGIN SET SESSION work_mem = '1MB'; END",
            "BEGIN PERFORM set_config('work_mem', '96MB', false); END",
            "BEGIN PERFORM set_config('a', (SELECT set_config('b', 'c', true)), x); END",
            "BEGIN PERFORM pg_catalog.set_config('a', 'true', x AND true); END",
            "BEGIN PERFORM pg_advisory_lock(1); END",
            "BEGIN EXECUTE 'SET a.b = 1'; END",
            "BEGIN CREATE TEMP TABLE t (i int); END",
            "BEGIN RESET ALL; LISTEN x; END",
            "DO $$ BEGIN END $$",
            "SELECT setseed(0.1)",
            "SELECT query_to_xml(a, true, true, '')",
            "SELECT dblink_connect('x')",
            "SELECT U&\"d!0061t\" UESCAPE '!'",
        ] {
            assert!(touches(body), "{body}");
        }
    }

    #[test]
    fn what_sets_something_that_stands_nowhere() {
        for body in [
            "SELECT set_config('app.' || name, $2, false)",
            "SELECT set_config(format('app.%s', name), $2, false)",
            "BEGIN name := 'app.' || name; PERFORM set_config(name, value, false); END",
            "BEGIN EXECUTE format('SET app.%I = %L', name, value); END",
            "BEGIN EXECUTE 'SET app.' || quote_ident(name) || ' = 1'; END",
            "BEGIN EXECUTE 'SET ' || 'app' || '.x = 1'; END",
            "SELECT set_config($1, $2, false)",
            "BEGIN PERFORM set_config(name, value, false); END",
            "BEGIN FOR r IN SELECT * FROM t LOOP PERFORM set_config(r.name, r.value, false); END LOOP; END",
            "BEGIN EXECUTE format('SET %I = %L', name, value); END",
            "BEGIN EXECUTE 'SET app' || '.tenant = 1'; END",
            "BEGIN EXECUTE 'SET SESSION ' || name || ' = 1'; END",
            "BEGIN EXECUTE E'SET app\\x2etenant = 1'; END",
            "SELECT set_config(E'app\\x2etenant', $2, false)",
            "SELECT set_config(U&'app!002Etenant' UESCAPE '!', $2, false)",
            "SELECT set_config('app.größe', $2, false)",
            "BEGIN EXECUTE 'SET app.größe = 1'; END",
            "BEGIN SET app.größe = 1; END",
            "BEGIN FOR r IN SELECT * FROM jobs LOOP EXECUTE r.cmd; END LOOP; END",
            "BEGIN FOR cmd IN SELECT c FROM jobs LOOP EXECUTE cmd; END LOOP; END",
            "BEGIN SELECT c INTO STRICT cmd FROM jobs; RETURN QUERY EXECUTE cmd; END",
            "BEGIN EXECUTE (SELECT c FROM jobs); END",
            "BEGIN SELECT id, c INTO STRICT i, cmd FROM jobs; EXECUTE cmd; END",
            "BEGIN EXECUTE current_setting('app.job'); END",
            "BEGIN SET app.U&\"a!0061\" UESCAPE '!' = 1; END",
            "BEGIN EXECUTE 'SELECT set_config($1, $2, false)' USING a, b; END",
        ] {
            assert!(Code::of_body(body).expect("code").hides, "{body}");
        }
        for body in [
            "SELECT set_config('app.x', $2, false)",
            "SELECT set_config($1, $2, true)",
            "SELECT set_config('app.x'::text, $2, false)",
            "BEGIN UPDATE t SET i = 1; SET work_mem = 1; END",
            "BEGIN EXECUTE 'SET work_mem ' || '= 1'; RAISE NOTICE 'set failed'; END",
            "BEGIN EXECUTE 'SET LOCAL ' || name || ' = 1'; END",
            "BEGIN SELECT format('DROP TABLE %I', r.name) INTO cmd FROM r; EXECUTE cmd; END",
            "BEGIN EXECUTE pg_catalog.format('DROP TABLE %I', name); END",
            "BEGIN EXECUTE 'UPDATE t' || ' SET ' || name || ' = 1'; END",
            "BEGIN RAISE NOTICE 'Set % to %', a, b; RAISE 'set %', a; END",
            "BEGIN EXECUTE cmd; EXECUTE format('DROP TABLE %I', r.name) INTO x; END",
            "SELECT E'\\x41' || U&'\\0041' || 'größe'",
        ] {
            assert!(!Code::of_body(body).expect("code").hides, "{body}");
        }
        assert!(!code("SELECT set_config($1, $2, false)").hides);
        assert!(!code("SELECT f('Mr.' || x)").hides);
        assert!(code("SELECT set_config('app.' || $1, $2, false)").hides);
        assert!(!code("SELECT query_to_xml('select enter(1)', true, true, '')").hides);
        assert!(!code("SELECT query_to_xml($1, true, true, '')").hides);
        assert!(code("SELECT query_to_xml(c, true, true, '') FROM jobs").hides);
        assert!(code("SELECT query_to_xml('SELECT ' || c, true, true, '') FROM jobs").hides);
        assert!(code("SELECT schema_to_xml('public', true, true, '')").hides);
        assert!(code("DO $$ BEGIN EXECUTE 'SET ' || 'app' || '.tenant = 1'; END $$").hides);
        for body in [
            "plpy.execute(\"select set_config('app.%s', 'x', false)\" % name)",
            "plpy.execute(' SET app.' + name)",
            "spi_exec_query(\"begin;\nset a.b = 1\")",
        ] {
            assert!(may_set(body), "{body}");
        }
        for body in
            ["", "plpy.execute('update t set x = 1')", "s = set([1])", "'settings'", "é'set"]
        {
            assert!(!may_set(body), "{body}");
        }
    }

    #[test]
    fn what_nobody_can_ask_for() {
        for (body, unseen) in [
            ("SELECT lastval()", Unseen::READS),
            ("BEGIN PERFORM nextval('s'); RETURN currval('s'); END", Unseen::GIVES | Unseen::READS),
            ("BEGIN EXECUTE 'SELECT setseed(0.5)'; END", Unseen::SEEDS),
            ("BEGIN LOAD 'x'; END", Unseen::KEEPS),
            ("BEGIN EXECUTE 'LOAD ' || quote_literal(x); END", Unseen::KEEPS),
            ("BEGIN RAISE NOTICE 'cannot load it'; END", Unseen::empty()),
            ("BEGIN EXECUTE format('LOAD %L', x); END", Unseen::KEEPS),
            ("SELECT dblink_connect('a', 'b')", Unseen::KEEPS),
            (
                "BEGIN PERFORM dblink_connect('a'); PERFORM DBLINK_disconnect('a'); END",
                Unseen::empty(),
            ),
            ("SELECT random()", Unseen::empty()),
        ] {
            assert_eq!(Code::of_body(body).expect("code").unseen, unseen, "{body}");
        }
    }

    #[test]
    fn what_is_named() {
        let code = code(
            "BEGIN INSERT INTO Audit.\"Log\" (who) VALUES (me(upper(NEW.a))); PERFORM s.\"F\"(data); \
             SET LOCAL app.who = 'a.b'; RAISE 'c.d'; END",
        );
        assert!(["audit", "Log", "data", "who"].iter().all(|name| code.names.contains(*name)));
        assert!(!code.names.contains("select") && !code.names.contains("a.b"));
        let calls: Vec<&str> = code.calls.iter().map(String::as_str).collect();
        assert_eq!(calls, ["F", "Log", "me", "values"]);
        assert_eq!(code.said, "\napp.who\na.b\nc.d");
        assert!(!code.touches);
    }

    #[test]
    fn what_stands_in_strings() {
        let text = "BEGIN EXECUTE 'SELECT one(''a.b'')'; EXECUTE $x$ SELECT two($$c.d$$) $x$; END";
        let inner = Code::of_body(text).expect("code");
        assert!(inner.calls.contains("one") && inner.calls.contains("two"));
        assert!(inner.said.contains("\na.b") && inner.said.contains("\nc.d"));
        assert!(code(text).calls.is_empty(), "of what a client says, strings are values");
        for block in [
            r"DO E'begin\nperform one(); end'",
            "DO $$ BEGIN PERFORM one(); END $$",
            "DO LANGUAGE plpgsql 'begin perform one(); end'",
        ] {
            assert!(code(block).calls.contains("one"), "{block}");
        }
        for text in ["'", "$", "$$", "$a$", "''", "E'a", "$a$b$a"] {
            let _whatever = inside(text);
        }
    }

    #[test]
    fn what_runs_what_it_is_told() {
        for text in [
            "DO $$ BEGIN EXECUTE x; END $$",
            "SELECT query_to_xml($1, true, true, '')",
            "DO LANGUAGE plpython3u $$ plpy.execute(\"x\") $$",
            "DO $$ it's $$ LANGUAGE 'plperl'",
        ] {
            assert!(code(text).executes, "{text}");
        }
        for text in ["EXECUTE x", "SELECT run('execute x')", "DO LANGUAGE plpgsql 'BEGIN END'"] {
            assert!(!code(text).executes, "{text}");
        }
    }

    #[test]
    fn what_is_no_code_is_none() {
        for text in ["'", "/* ", "\0", "select \"a"] {
            assert_eq!(Code::of(text), None, "{text:?}");
        }
    }
}
