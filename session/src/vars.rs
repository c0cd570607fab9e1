//! Tracked parameters: settings that servers report, and that follow a client from server to server.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Parameters tracked always. `client_encoding` first: it says how the rest is to be read.
const ALWAYS: [&str; 5] =
    ["client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name"];

/// Those of them that say how a text is to be read.
const SPELLING: [&str; 2] = ["client_encoding", "standard_conforming_strings"];

/// Parameters that are lists of quoted names. `SET x = 'a, b'` would make one name of it.
const LISTS: [&str; 2] = ["search_path", "temp_tablespaces"];

/// Whether every server reports this parameter, so that it need not be asked for.
pub(crate) fn is_always_tracked(name: &[u8]) -> bool {
    ALWAYS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Which parameters are tracked, in the order in which they are set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tracked(Arc<[Box<str>]>);

impl Tracked {
    /// The usual five and `extra` (`track_extra_parameters`). What is no parameter's name is left
    /// out: it could not be set, and must not become part of a query.
    #[must_use]
    pub fn new<'a>(extra: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<Box<str>> = Vec::new();
        for name in ALWAYS.into_iter().chain(extra) {
            let proper = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
            if proper && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name.into());
            }
        }
        Self(names.into())
    }

    /// Where in the list a parameter stands. Upper and lower case are the same, as in PostgreSQL.
    #[must_use]
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The names, as they are spelled in a `SET`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

impl Default for Tracked {
    fn default() -> Self {
        Self::new(["IntervalStyle"])
    }
}

/// The values of the tracked parameters on one connection. A clone costs one counter.
#[derive(Clone, Debug)]
pub struct Vars(Arc<Values>);

#[derive(Clone, Debug)]
struct Values {
    tracked: Tracked,
    /// One for each of `tracked`; `None` was never told.
    values: Box<[Option<Box<[u8]>>]>,
    /// Whether texts mean what they seem to.
    spelling: Spelling,
    /// A number for all of the values.
    flavour: u32,
    /// A number for those that say what a text means.
    ground: u64,
}

/// How the bytes of a text are to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Spelling {
    /// ASCII characters are themselves, and a backslash in a plain string is just that.
    Plain,
    /// ASCII characters are themselves, but not a backslash in a plain string.
    Backslashes,
    Odd,
}

impl Vars {
    /// Nothing known yet.
    #[must_use]
    pub fn new(tracked: &Tracked) -> Self {
        let values = vec![None; tracked.0.len()].into();
        let (tracked, spelling) = (tracked.clone(), Spelling::Plain);
        let mut values = Values { tracked, values, spelling, flavour: 0, ground: 0 };
        values.ground = values.say();
        Self(Arc::new(values))
    }

    /// A parameter has this value now. Whether it is a tracked one.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        let Some(at) = self.0.tracked.position(name) else { return false };
        if self.0.values.get(at).is_some_and(|old| old.as_deref() != Some(value)) {
            let values = Arc::make_mut(&mut self.0);
            if let Some(place) = values.values.get_mut(at) {
                *place = Some(value.into());
            }
            if ALWAYS.get(at).is_some_and(|name| SPELLING.contains(name)) {
                values.spelling = values.read_spelling();
            }
            values.flavour = values.number();
            values.ground = values.say();
        }
        true
    }

    /// A number for the values: equal ones have equal numbers.
    #[must_use]
    pub fn flavour(&self) -> u32 {
        self.0.flavour
    }

    /// A number for those of the values that say what a text means which is prepared now.
    pub(crate) fn ground(&self) -> u64 {
        self.0.ground
    }

    /// Whether ASCII characters are themselves, and a backslash in a plain string is just that.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.spelling == Spelling::Plain
    }

    /// Whether a text of the client's can be read without knowing more of its settings.
    #[must_use]
    pub fn can_read(&self, text: &[u8]) -> bool {
        match self.0.spelling {
            Spelling::Plain => true,
            Spelling::Backslashes => !text.contains(&b'\\'),
            Spelling::Odd => false,
        }
    }

    /// How strings are told from code in a text of the client's.
    pub(crate) fn strings(&self) -> sql::Strings {
        let escape = self.value(b"standard_conforming_strings") == Some(b"off");
        sql::Strings { escape, are_tangled: self.0.spelling == Spelling::Odd, may_change: false }
    }

    /// The value of a parameter, if it is tracked and known.
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.values.get(self.0.tracked.position(name)?)?.as_deref()
    }

    /// Names and values of all that are known.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let values = self.0.tracked.names().zip(&self.0.values);
        values.filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Whether no other connection shares this copy.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Share one copy with `other` where both hold the same: then the next comparison is of two addresses.
    /// It is always the one that lies lower, so that many who meet in pairs come to agree on one.
    pub fn share(&mut self, other: &mut Self) {
        if Arc::ptr_eq(&self.0, &other.0) || self != other {
            return;
        }
        if Arc::as_ptr(&self.0) < Arc::as_ptr(&other.0) {
            other.0 = Arc::clone(&self.0);
        } else {
            self.0 = Arc::clone(&other.0);
        }
    }

    /// Take over what `other` knows. Where that leaves no difference, both share one copy, and the
    /// next comparison is of two addresses.
    pub fn adopt(&mut self, other: &Self) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        for (name, value) in other.iter() {
            self.set(name.as_bytes(), value);
        }
        if self == other {
            self.0 = Arc::clone(&other.0);
        }
    }
}

impl Hash for Vars {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.flavour.hash(state);
    }
}

impl Values {
    fn number(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.values.hash(&mut hasher);
        hasher.finish() as u32
    }

    fn say(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, value) in self.tracked.names().zip(&self.values) {
            if name != "application_name" {
                (name, value).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn read_spelling(&self) -> Spelling {
        let value = |name: &str| {
            let at = ALWAYS.iter().position(|known| *known == name)?;
            self.values.get(at)?.as_deref()
        };
        let strings = value("standard_conforming_strings").is_none_or(|value| value == b"on");
        let encoding = value("client_encoding").and_then(|name| str::from_utf8(name).ok());
        let encoding = encoding.is_none_or(sql::encoding_is_plain);
        match (encoding, strings) {
            (true, true) => Spelling::Plain,
            (true, false) => Spelling::Backslashes,
            (false, _) => Spelling::Odd,
        }
    }
}

impl PartialEq for Vars {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.values == other.0.values && self.0.tracked == other.0.tracked)
    }
}

impl Eq for Vars {}

/// Append to `out` one query text that gives the server the client's values. `false`, and nothing
/// appended, if it has them. A parameter of which either never heard stays as it is.
pub fn differing(client: &Vars, server: &Vars, out: &mut Vec<u8>) -> bool {
    if client == server || planted::is("settings-of-others") {
        return false;
    }
    let start = out.len();
    for (name, value) in client.iter() {
        let known = server.value(name.as_bytes());
        if known.is_some_and(|known| known != value) {
            assign(out, name, value);
        }
    }
    out.len() > start
}

fn assign(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    if LISTS.iter().any(|list| list.eq_ignore_ascii_case(name)) {
        out.extend_from_slice(b"SELECT pg_catalog.set_config('");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"',");
        quote(out, value);
        out.extend_from_slice(b",false);");
    } else {
        out.extend_from_slice(b"SET ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        quote(out, value);
        out.push(b';');
    }
}

/// A literal that means the same whatever `standard_conforming_strings` says.
///
/// With a backslash in it, it holds neither a backslash of its own nor a quote, only their codes: in
/// an encoding that takes the first byte of `\x5c` for the second half of a character, a doubled
/// backslash would leave one behind to do harm.
fn quote(out: &mut Vec<u8>, value: &[u8]) {
    let escaped = value.contains(&b'\\');
    out.extend_from_slice(if escaped { b"E'" } else { b"'" });
    for byte in value {
        match byte {
            b'\\' => out.extend_from_slice(b"\\x5c"),
            b'\'' if escaped => out.extend_from_slice(b"\\x27"),
            b'\'' => out.extend_from_slice(b"''"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However they meet, all who hold the same hold one copy in the end; and who differs keeps to himself.
    #[test]
    fn equal_ones_come_to_share_a_copy() {
        let mut all: Vec<Vars> = (0..6).map(|_| vars(&[("TimeZone", "UTC")])).collect();
        let mut other = vars(&[("TimeZone", "CET")]);
        for round in 0..6 {
            for at in 0..5 {
                let (left, right) = all.split_at_mut(at + 1);
                let last = right.len() - 1;
                left[(at + round) % (at + 1)].share(&mut right[round % (last + 1)]);
            }
            all[round % 6].share(&mut other);
        }
        assert!(all.iter().all(|one| Arc::ptr_eq(&one.0, &all[0].0)));
        assert_eq!(other.value(b"TimeZone"), Some(&b"CET"[..]));
        all[0].set(b"TimeZone", b"Asia/Tokyo");
        assert_eq!(all[1].value(b"TimeZone"), Some(&b"UTC"[..]), "what is shared is not changed");
    }

    fn vars(values: &[(&str, &str)]) -> Vars {
        let mut vars = Vars::new(&Tracked::new(["IntervalStyle", "search_path", "no good; name"]));
        for (name, value) in values {
            assert!(vars.set(name.as_bytes(), value.as_bytes()), "{name} is tracked");
        }
        vars
    }

    fn set(client: &[(&str, &str)], server: &[(&str, &str)]) -> String {
        let mut out = Vec::new();
        let differs = differing(&vars(client), &vars(server), &mut out);
        assert_eq!(differs, !out.is_empty());
        String::from_utf8(out).expect("made of text")
    }

    #[test]
    fn only_what_differs_is_set_in_one_text() {
        let server = [("DateStyle", "ISO, MDY"), ("TimeZone", "UTC"), ("application_name", "")];
        assert_eq!(set(&[("timezone", "UTC")], &server), "");
        assert_eq!(
            set(
                &[("APPLICATION_NAME", "psql"), ("TimeZone", "UTC"), ("datestyle", "German")],
                &server
            ),
            "SET DateStyle='German';SET application_name='psql';"
        );
    }

    /// The server never reported it: perhaps it has no such parameter.
    #[test]
    fn what_the_server_does_not_report_is_not_set() {
        assert_eq!(set(&[("IntervalStyle", "iso_8601")], &[("TimeZone", "UTC")]), "");
    }

    #[test]
    fn values_cannot_get_out_of_their_quotes() {
        let server = [("application_name", "")];
        let app = |value| set(&[("application_name", value)], &server);
        assert_eq!(app("it's"), "SET application_name='it''s';");
        assert_eq!(app(r"\'; drop"), r"SET application_name=E'\x5c\x27; drop';");
        assert_eq!(app(r"a\"), r"SET application_name=E'a\x5c';");
    }

    #[test]
    fn a_list_of_names_stays_a_list() {
        assert_eq!(
            set(&[("search_path", r#""$user", public"#)], &[("search_path", "app")]),
            r#"SELECT pg_catalog.set_config('search_path','"$user", public',false);"#
        );
    }

    /// The server calls `ISO` `ISO, MDY`; the client takes that over, and is not set again.
    #[test]
    fn the_servers_spelling_is_adopted_and_shared() {
        let mut client = vars(&[("DateStyle", "ISO"), ("TimeZone", "UTC")]);
        let server = vars(&[("DateStyle", "ISO, MDY"), ("TimeZone", "UTC")]);
        client.adopt(&server);
        assert_eq!(client.value(b"datestyle"), Some(&b"ISO, MDY"[..]));
        assert!(Arc::ptr_eq(&client.0, &server.0));
        client.set(b"TimeZone", b"UTC");
        assert!(Arc::ptr_eq(&client.0, &server.0), "nothing changed");
        client.set(b"TimeZone", b"CET");
        assert_eq!(server.value(b"TimeZone"), Some(&b"UTC"[..]));
    }

    #[test]
    fn names_that_are_no_names_are_not_tracked() {
        assert_eq!(Tracked::new(["x y", "a;b", "", "timezone", "ok.fine"]).names().count(), 6);
    }
}
