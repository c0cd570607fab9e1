//! The grammar of the file: text → lines, each with its section and place.
//!
//! A line is empty, a comment (`#` or `;` first), `[section]`, `key = value`, or
//! `%include FILE`. A key of other letters than `A-Z a-z 0-9 _ . * -` stands in `'…'` or `"…"`.
//! The value is all that follows, trimmed; what looks like a comment behind it is for the reader
//! of the value to judge.

use std::sync::Arc;

use crate::problem::Findings;
use crate::value::blank;
use crate::{Files, Place, Problem};

/// `key = value`, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    pub(crate) section: Section,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) place: Place,
}

/// The sections there are.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Section {
    Pgbouncer,
    Databases,
    Users,
    Peers,
}

const SECTIONS: [(&str, Section); 4] = [
    ("pgbouncer", Section::Pgbouncer),
    ("databases", Section::Databases),
    ("users", Section::Users),
    ("peers", Section::Peers),
];

/// PgBouncer's limit for files that include files.
const NESTING_MAX: u32 = 10;
/// Far above any real file; it keeps a mistaken path from filling the memory.
const FILE_BYTES_MAX: usize = 16 << 20;
/// Of all files together: ten levels of a file that includes the next one twice are a thousand.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// Ditto, for files that are small.
const INCLUDES_MAX: u32 = 10_000;
/// Ten times the longest secret.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// All lines of `path` and of what it includes, in order.
pub(crate) fn read(path: &str, files: &dyn Files, found: &mut Findings) -> Vec<Line> {
    let mut reader = Reader::new(files);
    reader.file(path, None, 0, found);
    reader.finish(path, found)
}

/// All lines of `text`, which goes by the name of `path`.
pub(crate) fn read_text(
    path: &str,
    text: &str,
    files: &dyn Files,
    found: &mut Findings,
) -> Vec<Line> {
    let mut reader = Reader::new(files);
    reader.text(path, text, 0, found);
    reader.finish(path, found)
}

struct Reader<'a> {
    files: &'a dyn Files,
    lines: Vec<Line>,
    /// The section we are in, which an included file takes over and leaves behind.
    at: At,
    /// Whether `[pgbouncer]` was seen.
    main_seen: bool,
    bytes: usize,
    includes: u32,
}

enum At {
    /// Before the first `[section]`.
    Outside,
    Inside(Section),
    /// In a section that does not exist: reported once, and its lines are not looked into.
    Unknown,
}

/// What one line says.
#[derive(Debug, Eq, PartialEq)]
enum Said<'a> {
    Nothing,
    Include(&'a str),
    /// The name, and what follows on the same line.
    Section(&'a str, &'a str),
    Pair(String, &'a str),
    /// What was expected and is not there.
    Wrong(&'static str),
}

impl<'a> Reader<'a> {
    fn new(files: &'a dyn Files) -> Self {
        Self { files, lines: Vec::new(), at: At::Outside, main_seen: false, bytes: 0, includes: 0 }
    }

    fn finish(self, path: &str, found: &mut Findings) -> Vec<Line> {
        if !self.main_seen && found.errors.is_empty() {
            let what = format!("section [pgbouncer] is missing from {path}");
            found.error(Problem::new(what));
        }
        self.lines
    }

    /// `asked` is the line with the `%include`.
    fn file(&mut self, path: &str, asked: Option<&Place>, depth: u32, found: &mut Findings) {
        let bytes = match self.files.read(path) {
            Ok(bytes) => bytes,
            Err(why) => {
                let mut problem = Problem::new(format!("cannot read {path}: {why}"));
                problem.place = asked.cloned();
                return found.error(problem);
            }
        };
        self.bytes = self.bytes.saturating_add(bytes.len());
        if bytes.len() > FILE_BYTES_MAX || self.bytes > TOTAL_BYTES_MAX {
            let mut problem = Problem::new(format!("{path} is too large"));
            problem.place = asked.cloned();
            return found.error(problem);
        }
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(wrong) => {
                let good = &wrong.as_bytes()[..wrong.utf8_error().valid_up_to()];
                let line = good.iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
                let place = Place { file: path.into(), line };
                found.error(Problem::new("bytes that are not UTF-8").at(&place));
                String::from_utf8_lossy(wrong.as_bytes()).into_owned()
            }
        };
        self.text(path, &text, depth, found);
    }

    fn text(&mut self, path: &str, text: &str, depth: u32, found: &mut Findings) {
        let file: Arc<str> = path.into();
        // Editors of a certain system begin a file with this mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (n, line) in text.split('\n').enumerate() {
            if found.full() {
                return;
            }
            let place = Place { file: file.clone(), line: n as u32 + 1 };
            self.line(line, &place, depth, found);
        }
    }

    fn line(&mut self, line: &str, place: &Place, depth: u32, found: &mut Findings) {
        if line.contains('\0') {
            return found.error(Problem::new("syntax error").at(place).hint("a NUL byte"));
        }
        let mut rest = line.trim_matches(blank);
        // A section's name may have a line behind it, and that another section: hence the loop.
        while let Said::Section(name, behind) = say(rest) {
            self.section(name, place, found);
            rest = behind;
            if found.full() {
                return;
            }
        }
        match say(rest) {
            Said::Nothing | Said::Section(..) => {}
            Said::Include(path) if depth >= NESTING_MAX || self.includes >= INCLUDES_MAX => {
                let what = format!("%include of {path} is nested too deeply");
                let hint = format!("at most {NESTING_MAX} levels: does a file include itself?");
                found.error(Problem::new(what).at(place).hint(hint));
            }
            Said::Include(path) => {
                self.includes += 1;
                self.file(path, Some(place), depth + 1, found);
            }
            Said::Pair(key, value) => self.pair(key, value, place, found),
            Said::Wrong(hint) => {
                found.error(Problem::new("syntax error").at(place).hint(hint));
            }
        }
    }

    fn section(&mut self, name: &str, place: &Place, found: &mut Findings) {
        let known = SECTIONS.iter().find(|(known, _)| *known == name);
        self.at = known.map_or(At::Unknown, |(_, section)| At::Inside(*section));
        match self.at {
            At::Inside(Section::Pgbouncer) => self.main_seen = true,
            At::Unknown => {
                let problem = Problem::new(format!("unknown section: {name}")).at(place);
                found.error(problem.nearest(name, SECTIONS.iter().map(|(known, _)| *known)));
            }
            _ => {}
        }
    }

    fn pair(&mut self, key: String, value: &str, place: &Place, found: &mut Findings) {
        if value.len() > VALUE_BYTES_MAX {
            let problem = Problem::new(format!("the value of {key} is too long")).at(place);
            return found.error(problem);
        }
        match self.at {
            At::Inside(section) => {
                let value = value.to_owned();
                self.lines.push(Line { section, key, value, place: place.clone() });
            }
            At::Outside => {
                let problem = Problem::new(format!("value without section: {key}")).at(place);
                found.error(problem.hint("a [section] must come first"));
            }
            At::Unknown => {}
        }
    }
}

/// What `line`, which is trimmed, says.
fn say(line: &str) -> Said<'_> {
    match line.chars().next() {
        None | Some('#' | ';') => Said::Nothing,
        Some('%') => match line.strip_prefix("%include") {
            Some(path) if path.starts_with(blank) => Said::Include(path.trim_matches(blank)),
            _ => Said::Wrong("expected %include FILE"),
        },
        Some('[') => match line[1..].split_once(']') {
            Some((name, rest)) => Said::Section(name, rest.trim_matches(blank)),
            None => Said::Wrong("expected ] behind the section's name"),
        },
        Some(quote @ ('\'' | '"')) => match quoted(line, quote) {
            Some((key, rest)) => pair(key, rest),
            None => Said::Wrong("the quote around the key does not end"),
        },
        Some(_) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '*' | '-');
            let end = line.find(|c| !plain(c)).unwrap_or(line.len());
            let (key, rest) = line.split_at(end);
            pair(key.to_owned(), rest)
        }
    }
}

fn pair(key: String, rest: &str) -> Said<'_> {
    match rest.trim_start_matches(blank).strip_prefix('=') {
        Some(_) if key.is_empty() => Said::Wrong("expected a key before ="),
        Some(value) => Said::Pair(key, value.trim_matches(blank)),
        None => Said::Wrong("expected key = value; a key with other letters stands in quotes"),
    }
}

/// The key that `line` begins with, where a doubled quote is a quote, and what follows it.
fn quoted(line: &str, quote: char) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut rest = line.strip_prefix(quote)?;
    loop {
        let (piece, after) = rest.split_once(quote)?;
        key.push_str(piece);
        match after.strip_prefix(quote) {
            Some(more) => {
                key.push(quote);
                rest = more;
            }
            None => return Some((key, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelf::Shelf;

    fn lines(text: &str) -> Result<Vec<(Section, String, String)>, String> {
        let mut found = Findings::default();
        let lines = read_text("a.ini", text, &Shelf::default(), &mut found);
        match found.errors.first() {
            Some(problem) => Err(problem.to_string()),
            None => {
                Ok(lines.into_iter().map(|line| (line.section, line.key, line.value)).collect())
            }
        }
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        let text = format!("[pgbouncer]\n{text}");
        lines(&text).expect("reads").into_iter().map(|(_, key, value)| (key, value)).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn blanks_and_comments_and_empty_values() {
        let text = "; one\r\n  # two\n\n\t a=1 \t\r\nb = \nc =x y  z\n d.*-_9\t=\t= =";
        let want = [pair("a", "1"), pair("b", ""), pair("c", "x y  z"), pair("d.*-_9", "= =")];
        assert_eq!(pairs(text), want);
    }

    #[test]
    fn a_hash_behind_a_value_is_left_to_who_reads_the_value() {
        assert_eq!(pairs("a = 1 # x"), [pair("a", "1 # x")]);
    }

    #[test]
    fn keys_in_either_quotes() {
        let text = "'my db' = 1\n\"my \"\"db\" = 2\n'it''s'=3\n'' = 4";
        let want = [pair("my db", "1"), pair("my \"db", "2"), pair("it's", "3"), pair("", "4")];
        let got: Vec<_> = pairs(&text.replace("\n'' = 4", ""));
        assert_eq!(got, want[..3]);
        assert!(lines("[pgbouncer]\n'' = 4").is_err());
    }

    #[test]
    fn sections_repeat_in_any_order() {
        let text = "[users]\na=\n[pgbouncer] ; main\nb=\n[peers] [users] c=";
        let got: Vec<_> = lines(text).expect("reads").into_iter().map(|(s, k, _)| (s, k)).collect();
        let want = [(Section::Users, "a"), (Section::Pgbouncer, "b"), (Section::Users, "c")];
        assert_eq!(got, want.map(|(s, k)| (s, k.to_owned())));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("a = 1", "value without section: a in configuration (a.ini:1)"),
            ("[pgbouncer]\nwhat", "syntax error in configuration (a.ini:2)"),
            ("[pgbouncer]\n= 1", "syntax error in configuration (a.ini:2): expected a key"),
            ("[pgbouncer", "syntax error in configuration (a.ini:1): expected ]"),
            ("[pgbouncer] a", "syntax error in configuration (a.ini:1)"),
            ("[pgbouncer]\n'a = 1", "syntax error in configuration (a.ini:2): the quote"),
            ("[pgbouncer]\nä = 1", "syntax error in configuration (a.ini:2)"),
            ("[pgbouncer]\n%inc x", "syntax error in configuration (a.ini:2): expected %include"),
            ("[pgbouncer]\na = \0", "syntax error in configuration (a.ini:2): a NUL byte"),
            (
                "[pgbouncer]\n%include b",
                "cannot read b: entity not found in configuration (a.ini:2)",
            ),
            (
                "\n[database]",
                "unknown section: database in configuration (a.ini:2): did you mean \"databases\"?",
            ),
            ("[databases]", "section [pgbouncer] is missing from a.ini"),
            ("", "section [pgbouncer] is missing from a.ini"),
        ];
        for (text, want) in cases {
            let got = lines(text).expect_err(text);
            assert!(got.starts_with(want), "{text:?}: {got}");
        }
    }

    #[test]
    fn an_included_file_takes_over_the_section_and_leaves_its_own_behind() {
        let files =
            Shelf::of([("a", "[pgbouncer]\n%include b\nz = 3"), ("b", "x = 1\n[users]\ny = 2")]);
        let mut found = Findings::default();
        let lines = read("a", &files, &mut found);
        let got: Vec<_> =
            lines.iter().map(|l| (l.section, l.key.as_str(), l.place.to_string())).collect();
        let want = [
            (Section::Pgbouncer, "x", "b:1".to_owned()),
            (Section::Users, "y", "b:3".to_owned()),
            (Section::Users, "z", "a:3".to_owned()),
        ];
        assert_eq!(got, want);
        assert!(found.errors.is_empty());
    }

    #[test]
    fn ten_levels_of_includes_and_not_one_more() {
        for (last, good) in [(10, true), (11, false)] {
            let mut files = Shelf::default();
            for n in 0..last {
                let text = format!("[pgbouncer]\n%include {}", n + 1);
                files.0.insert(n.to_string(), text.into());
            }
            files.0.insert(last.to_string(), b"a = 1".to_vec());
            let mut found = Findings::default();
            read("0", &files, &mut found);
            assert_eq!(found.errors.is_empty(), good, "{last}: {:?}", found.errors);
        }
    }

    /// Two includes of oneself would be 2^10 files; the errors of the deepest end it sooner.
    #[test]
    fn a_file_that_includes_itself_ends() {
        let files = Shelf::of([("a", "%include a\n%include a\n")]);
        let mut found = Findings::default();
        read("a", &files, &mut found);
        assert!(found.errors[0].to_string().contains("nested too deeply"));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_an_error_at_their_line() {
        let files = Shelf([("a".to_owned(), b"[pgbouncer]\nuser = \xff".to_vec())].into());
        let mut found = Findings::default();
        read("a", &files, &mut found);
        let got = found.errors[0].to_string();
        assert_eq!(got, "bytes that are not UTF-8 in configuration (a:2)");
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused() {
        let files = Shelf([("a".to_owned(), vec![b'\n'; FILE_BYTES_MAX + 1])].into());
        let mut found = Findings::default();
        read("a", &files, &mut found);
        assert_eq!(found.errors[0].to_string(), "a is too large");
    }
}
