//! The lines of an HBA or ident file: words, lists of words, quotes, and the files they include.
//! The grammar is PostgreSQL's, of which PgBouncer has a part.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// How deep files may include each other (`CONF_FILE_MAX_DEPTH`).
const DEPTH_MAX: usize = 10;

/// Most bytes that a file and all it includes may have.
const BYTES_MAX: usize = 8 << 20;

/// Where a file's text, and that of the files it names, comes from.
pub trait Files {
    /// The content of `path`, or why there is none.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Whether there is such a file.
    fn exists(&self, path: &str) -> bool;

    /// The names of the entries of the directory `path`, in any order.
    fn list(&self, path: &str) -> Result<Vec<String>, String>;
}

/// Where a line stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    pub file: Arc<str>,
    /// Counted from 1: of its first part, if it is continued.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One word. Quoted ones mean what they say, and nothing else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Word {
    pub(crate) text: Box<[u8]>,
    pub(crate) quoted: bool,
}

impl Word {
    /// Whether it is this word of the language, rather than a name spelled like it.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        !self.quoted && *self.text == *keyword.as_bytes()
    }

    /// The rest of an unquoted word that begins with `sign`, if there is a rest.
    pub(crate) fn after(&self, sign: u8) -> Option<&[u8]> {
        match self.text.split_first() {
            Some((first, rest)) if *first == sign && !self.quoted && !rest.is_empty() => Some(rest),
            _ => None,
        }
    }

    pub(crate) fn show(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

/// Words with commas between them; or why they cannot be known.
pub(crate) type Field = Result<Vec<Word>, String>;

/// One line that is neither empty nor a comment, nor an include that worked.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) place: Place,
    /// What blanks part. An `Err` instead of all: an include failed, and what its file would have
    /// said is missing here.
    pub(crate) fields: Result<Vec<Field>, String>,
}

/// All lines of `path`, with those of the files it includes in their places.
pub(crate) fn read(path: &str, files: &dyn Files) -> Result<Vec<Line>, String> {
    let mut reading = Reading { files, lines: Vec::new(), bytes: 0 };
    let text = reading.fetch(path)?;
    reading.file(path, &text, 0);
    Ok(reading.lines)
}

struct Reading<'a> {
    files: &'a dyn Files,
    lines: Vec<Line>,
    /// Read so far. bytes <= BYTES_MAX
    bytes: usize,
}

impl Reading<'_> {
    fn fetch(&mut self, path: &str) -> Result<Vec<u8>, String> {
        let text = self.files.read(path).map_err(|why| format!("cannot read {path}: {why}"))?;
        if text.len() > BYTES_MAX - self.bytes {
            return Err(format!("{path} is too long: {BYTES_MAX} bytes are the most, over all"));
        }
        self.bytes += text.len();
        Ok(text)
    }

    fn file(&mut self, path: &str, text: &[u8], depth: usize) {
        let file: Arc<str> = path.into();
        for (line, text) in logical_lines(text) {
            let place = Place { file: file.clone(), line };
            let mut rest = &text[..];
            let mut fields = Vec::new();
            while let Some((field, after)) = self.field(path, rest, depth) {
                fields.push(field);
                rest = after;
            }
            if fields.is_empty() {
                continue;
            }
            if let Some(include) = Include::of(&fields) {
                if let Err(why) = self.include(&include, path, depth) {
                    self.lines.push(Line { place, fields: Err(why) });
                }
                continue;
            }
            self.lines.push(Line { place, fields: Ok(fields) });
        }
    }

    /// The next field of a line, and what comes after it.
    fn field<'t>(&mut self, path: &str, text: &'t [u8], depth: usize) -> Option<(Field, &'t [u8])> {
        let mut words = Ok(Vec::new());
        let mut rest = text;
        let mut seen = false;
        loop {
            let (word, after, more) = match next_word(rest) {
                Ok(Some(next)) => next,
                Ok(None) => return seen.then_some((words, &[])),
                Err(why) => return Some((Err(why), &[])),
            };
            seen = true;
            rest = after;
            let found = match word.after(b'@') {
                Some(name) => self.words_of_file(&resolve(path, name), depth),
                None => Ok(Vec::from([word])),
            };
            match (&mut words, found) {
                (Ok(words), Ok(found)) => words.extend(found),
                (Ok(_), Err(why)) => words = Err(why),
                (Err(_), _) => {}
            }
            if !more {
                return Some((words, rest));
            }
        }
    }

    /// `@file`: every word in it, on whatever line.
    fn words_of_file(&mut self, path: &str, depth: usize) -> Field {
        if depth >= DEPTH_MAX {
            return Err(format!("{path}: files are nested too deep"));
        }
        let text = self.fetch(path)?;
        let mut all = Vec::new();
        for (_, line) in logical_lines(&text) {
            let mut rest = &line[..];
            while let Some((field, after)) = self.field(path, rest, depth + 1) {
                all.extend(field?);
                rest = after;
            }
        }
        Ok(all)
    }

    fn include(&mut self, include: &Include, from: &str, depth: usize) -> Result<(), String> {
        let (Include::File(name) | Include::IfThere(name) | Include::Folder(name)) = include;
        let path = resolve(from, name);
        if depth >= DEPTH_MAX {
            return Err(format!("{path}: files are nested too deep"));
        }
        match include {
            Include::File(_) => {}
            Include::IfThere(_) if self.files.exists(&path) => {}
            Include::IfThere(_) => return Ok(()),
            Include::Folder(_) => return self.include_folder(&path, depth),
        }
        let text = self.fetch(&path)?;
        self.file(&path, &text, depth + 1);
        Ok(())
    }

    /// The files whose names end in `.conf` and do not begin with a dot, by name.
    fn include_folder(&mut self, path: &str, depth: usize) -> Result<(), String> {
        let mut names =
            self.files.list(path).map_err(|why| format!("cannot read directory {path}: {why}"))?;
        names.retain(|name| name.ends_with(".conf") && !name.starts_with('.'));
        names.sort();
        for name in names {
            let path = format!("{}/{name}", path.trim_end_matches('/'));
            let text = self.fetch(&path)?;
            self.file(&path, &text, depth + 1);
        }
        Ok(())
    }
}

/// A line that stands for the lines of other files.
enum Include {
    File(Box<[u8]>),
    IfThere(Box<[u8]>),
    Folder(Box<[u8]>),
}

impl Include {
    fn of(fields: &[Field]) -> Option<Self> {
        let [Ok(first), Ok(second)] = fields else { return None };
        let ([first], [second]) = (&first[..], &second[..]) else { return None };
        let name = second.text.clone();
        match () {
            () if first.is("include") => Some(Self::File(name)),
            () if first.is("include_if_exists") => Some(Self::IfThere(name)),
            () if first.is("include_dir") => Some(Self::Folder(name)),
            () => None,
        }
    }
}

/// `name`, seen from the file `from`.
fn resolve(from: &str, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    match from.rsplit_once('/') {
        Some((folder, _)) if !name.starts_with('/') => format!("{folder}/{name}"),
        _ => name.to_string(),
    }
}

/// The lines of `text`, those that end in a backslash joined with their next, each with its number.
fn logical_lines(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut lines: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut continued = false;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (line, goes_on) = match line.strip_suffix(b"\\") {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, whole)) if continued => whole.extend_from_slice(line),
            _ => lines.push((index + 1, line.to_vec())),
        }
        continued = goes_on;
    }
    lines
}

/// A word, what comes after it, and whether a comma ended it.
type Cut<'t> = (Word, &'t [u8], bool);

/// The next word.
fn next_word(text: &[u8]) -> Result<Option<Cut<'_>>, String> {
    let is_blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r');
    let start = text.iter().position(|byte| !is_blank(*byte) && *byte != b',');
    let Some(start) = start else { return Ok(None) };
    let mut rest = &text[start..];
    let quoted = rest.first() == Some(&b'"');
    let (mut word, mut in_quote) = (Vec::new(), false);
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' if in_quote && after.first() == Some(&b'"') => {
                word.push(b'"');
                rest = &after[1..];
                continue;
            }
            b'"' => in_quote = !in_quote,
            0 => return Err("zero byte".to_string()),
            _ if in_quote => word.push(byte),
            b',' => return Ok(Some((Word { text: word.into(), quoted }, after, true))),
            b'#' => {
                rest = &[];
                break;
            }
            byte if is_blank(byte) => break,
            byte => word.push(byte),
        }
        rest = after;
    }
    if in_quote {
        return Err("a quote is not closed".to_string());
    }
    if word.is_empty() && !quoted {
        return Ok(None);
    }
    Ok(Some((Word { text: word.into(), quoted }, rest, false)))
}

#[cfg(test)]
pub(crate) mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    /// Files in memory, by path.
    #[derive(Default)]
    pub(crate) struct Shelf(pub(crate) BTreeMap<&'static str, Vec<u8>>);

    impl Shelf {
        pub(crate) fn new(files: &[(&'static str, &str)]) -> Self {
            Self(files.iter().map(|(path, text)| (*path, text.as_bytes().to_vec())).collect())
        }
    }

    impl Files for Shelf {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            self.0.get(path).cloned().ok_or_else(|| "no such file".to_string())
        }

        fn exists(&self, path: &str) -> bool {
            self.0.contains_key(path)
        }

        fn list(&self, path: &str) -> Result<Vec<String>, String> {
            let prefix = format!("{path}/");
            let names = self.0.keys().filter_map(|file| file.strip_prefix(&*prefix));
            let names: Vec<String> = names.map(str::to_string).collect();
            if names.is_empty() { Err("no such directory".to_string()) } else { Ok(names) }
        }
    }

    /// `line: field|field`, words of a list with commas, quoted ones in quotes, errors after `!`.
    fn shown(files: &[(&'static str, &str)]) -> Vec<String> {
        let lines = read("/d/f", &Shelf::new(files)).expect("a file");
        let word = |word: &Word| match word.quoted {
            true => format!("\"{}\"", word.show()),
            false => word.show(),
        };
        let field = |field: &Field| match field {
            Ok(words) => words.iter().map(word).collect::<Vec<_>>().join(","),
            Err(why) => format!("!{why}"),
        };
        let line = |line: &Line| {
            let text = match &line.fields {
                Ok(fields) => fields.iter().map(field).collect::<Vec<_>>().join("|"),
                Err(why) => format!("!{why}"),
            };
            format!("{}: {text}", line.place)
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn words_lists_quotes_and_comments() {
        let text = "\u{feff}# all of it\n\n  a b,c , d# e\r\n\"x y\",z\t\"q\"\"uo\" a\"b c\"d \"\"\n\
            one \\\ntwo \\\n three\nlast,";
        assert_eq!(
            shown(&[("/d/f", text)]),
            [
                "/d/f:3: a|b,c|d",
                "/d/f:4: \"x y\",z|\"q\"uo\"|ab cd|\"\"",
                "/d/f:5: one|two|three",
                "/d/f:8: last"
            ]
        );
        assert_eq!(shown(&[("/d/f", "a \"b c")]), ["/d/f:1: a|!a quote is not closed"]);
        assert_eq!(shown(&[("/d/f", "a b\0")]), ["/d/f:1: a|!zero byte"]);
    }

    #[test]
    fn files_in_files() {
        let files = [
            (
                "/d/f",
                "a @names b\n\"@names\" @gone\ninclude sub/g\ninclude_if_exists gone\ninclude_dir conf",
            ),
            ("/d/names", "x, y # more\n\"z z\" @/e/more"),
            ("/e/more", "w"),
            ("/d/sub/g", "g @h"),
            ("/d/sub/h", "of the same folder"),
            ("/d/conf/2.conf", "two"),
            ("/d/conf/1.conf", "one"),
            ("/d/conf/.x.conf", "hidden"),
            ("/d/conf/x.bak", "old"),
        ];
        assert_eq!(
            shown(&files),
            [
                "/d/f:1: a|x,y,\"z z\",w|b",
                "/d/f:2: \"@names\"|!cannot read /d/gone: no such file",
                "/d/sub/g:1: g|of,the,same,folder",
                "/d/conf/1.conf:1: one",
                "/d/conf/2.conf:1: two",
            ]
        );
        assert_eq!(
            shown(&[("/d/f", "include gone\nx")]),
            ["/d/f:1: !cannot read /d/gone: no such file", "/d/f:2: x"]
        );
        assert!(read("/nowhere", &Shelf::default()).is_err());
    }

    /// A file that includes itself ends, and so does one that names itself twice.
    #[test]
    fn circles_and_floods_end() {
        let shown = shown(&[("/d/f", "a\ninclude f")]);
        assert!(
            shown.last().expect("lines").ends_with("too deep") || shown.len() < 30,
            "{shown:?}"
        );
        let doubling = "include f\ninclude f\n# ".to_string() + &"x".repeat(1 << 16);
        let lines = read("/d/f", &Shelf::new(&[("/d/f", &doubling)])).expect("read");
        assert!(lines.len() <= 2 * BYTES_MAX / doubling.len() + 2, "{}", lines.len());
        let names = "@f @f ".to_string() + &"# ".repeat(1 << 15);
        let lines = read("/d/f", &Shelf::new(&[("/d/f", &names)])).expect("read");
        assert_eq!(lines.len(), 1);
    }
}
