//! Ident maps: which users the holder of a system's account, or of a certificate, may be
//! (`auth_ident_file`).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::hba::BadLine;
use crate::lines::{self, Field, Files, Line, Word};
use crate::names::{PATTERNS_MAX, Pattern};

/// All maps of a file.
#[derive(Clone, Debug, Default)]
pub struct IdentMaps(Vec<Entry>);

/// One line: in this map, whoever is so called elsewhere may be this user here.
#[derive(Clone, Debug)]
struct Entry {
    map: Box<[u8]>,
    system: System,
    user: User,
}

#[derive(Clone, Debug)]
enum System {
    Named(Box<[u8]>),
    Like(Pattern),
}

#[derive(Clone, Debug)]
enum User {
    All,
    Named(Box<[u8]>),
    Like(Pattern),
    /// What the brackets of the system's name took, between these.
    Around(Box<[u8]>, Box<[u8]>),
}

impl IdentMaps {
    /// Reads `path`. Fails only where that file itself cannot be read. A line that cannot be read is left
    /// out: without it, fewer get in.
    pub fn read(path: &str, files: &dyn Files) -> Result<(Self, Vec<BadLine>), String> {
        let (mut maps, mut bad) = (Self::default(), Vec::new());
        let mut left = PATTERNS_MAX;
        for Line { place, fields } in lines::read(path, files)? {
            match fields.and_then(|fields| entry(fields, &mut left)) {
                Ok(entry) => maps.0.push(entry),
                Err(what) => bad.push(BadLine { place, what }),
            }
        }
        Ok((maps, bad))
    }

    /// Whether who is called `system` elsewhere may be `user` here. Without a map, it must be the same
    /// name.
    #[must_use]
    pub fn admit(&self, map: Option<&[u8]>, system: &[u8], user: &[u8]) -> bool {
        match map {
            None | Some(b"") => system == user,
            Some(map) => {
                self.0.iter().any(|entry| *entry.map == *map && entry.admits(system, user))
            }
        }
    }

    /// Whether a line is about `map`.
    #[must_use]
    pub fn has(&self, map: &[u8]) -> bool {
        self.0.iter().any(|entry| *entry.map == *map)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Entry {
    fn admits(&self, system: &[u8], user: &[u8]) -> bool {
        let fits = match &self.system {
            System::Named(name) => **name == *system,
            System::Like(pattern) => pattern.fits(system),
        };
        fits && match (&self.user, &self.system) {
            (User::All, _) => true,
            (User::Named(name), _) => **name == *user,
            (User::Like(pattern), _) => pattern.fits(user),
            (User::Around(before, after), System::Like(pattern)) => {
                let middle =
                    user.strip_prefix(&**before).and_then(|user| user.strip_suffix(&**after));
                middle.is_some() && middle == pattern.first_group(system)
            }
            (User::Around(..), System::Named(_)) => false,
        }
    }
}

/// What a line says.
fn entry(fields: Vec<Field>, left: &mut usize) -> Result<Entry, String> {
    let mut fields = fields.into_iter();
    let map = one(fields.next(), "map")?;
    let system = one(fields.next(), "system user")?;
    let user = one(fields.next(), "database user")?;
    if fields.next().is_some() {
        return Err("more than three columns".to_string());
    }
    let system = match Pattern::of(&system, left) {
        Some(pattern) => System::Like(pattern?),
        None => System::Named(system.text),
    };
    let user = match Pattern::of(&user, left) {
        Some(pattern) => User::Like(pattern?),
        None if user.is("all") => User::All,
        None if user.after(b'+').is_some() => {
            let what = "membership in roles is known to the server only, and not looked up";
            return Err(format!("{}: {what}", user.show()));
        }
        None => named(user, &system)?,
    };
    Ok(Entry { map: map.text, system, user })
}

/// A user by name, in which `\1` stands for what the brackets of the system's name took.
fn named(user: Word, system: &System) -> Result<User, String> {
    let System::Like(pattern) = system else { return Ok(User::Named(user.text)) };
    let Some(at) = user.text.windows(2).position(|pair| pair == b"\\1") else {
        return Ok(User::Named(user.text));
    };
    if pattern.groups() == 0 {
        return Err(format!(
            "{} takes from the brackets of the regular expression {pattern:?}, which has none",
            user.show()
        ));
    }
    Ok(User::Around(user.text[..at].into(), user.text[at + 2..].into()))
}

fn one(field: Option<Field>, column: &str) -> Result<Word, String> {
    let words = field.ok_or_else(|| format!("the line ends before its {column}"))??;
    match <[Word; 1]>::try_from(words) {
        Ok([word]) => Ok(word),
        Err(_) => Err(format!("not exactly one value for the {column}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::Shelf;

    fn maps(text: &str) -> (IdentMaps, Vec<String>) {
        let shelf = Shelf::new(&[("/ident", text), ("/more", "m more more")]);
        let (maps, bad) = IdentMaps::read("/ident", &shelf).expect("a file");
        (maps, bad.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn who_may_be_whom() {
        let (maps, bad) = maps(
            "m ann app\nm ann \"all\"\nm boss all\nm /^(.*)@example\\.com$ \\1\n\
             m /^svc-(\\w+)-[0-9]+$ app_\\1_rw\nm /^x\\d$ /^y\nother bob app\ninclude more # here\n\
             m \"two words\" \"a, b\"\nm /lit(er)?al$ x\\1y",
        );
        assert_eq!(bad, [""; 0]);
        for (system, user, may) in [
            ("ann", "app", true),
            ("ann", "all", true),
            ("ann", "ann", false),
            ("ANN", "app", false),
            ("boss", "whoever", true),
            ("bob", "app", false),
            ("joe@example.com", "joe", true),
            ("joe@example.com", "ann", false),
            ("joe@exampleXcom", "joe", false),
            ("joe@example.com.evil", "joe", false),
            ("svc-shop-12", "app_shop_rw", true),
            ("svc-shop-12", "app_shop", false),
            ("svc-shop-", "app_shop_rw", false),
            ("x1", "yes", true),
            ("x1", "no", false),
            ("more", "more", true),
            ("two words", "a, b", true),
            ("literal", "xery", true),
            ("lital", "xy", true),
            ("lital", "xery", false),
            ("", "app", false),
        ] {
            assert_eq!(
                maps.admit(Some(b"m"), system.as_bytes(), user.as_bytes()),
                may,
                "{system} {user}"
            );
        }
        assert!(maps.admit(Some(b"other"), b"bob", b"app"));
        assert!(!maps.admit(Some(b"none"), b"app", b"app"), "no such map");
        assert!(maps.admit(None, b"app", b"app") && !maps.admit(None, b"ann", b"app"));
        assert!(maps.has(b"other") && !maps.has(b"none"));
    }

    /// What comes out of the brackets is a name, even where it is spelled like a word of the language.
    #[test]
    fn what_is_taken_from_a_system_name_is_only_a_name() {
        let (maps, _) = maps("m /^(.*)$ \\1");
        assert!(maps.admit(Some(b"m"), b"all", b"all"));
        assert!(!maps.admit(Some(b"m"), b"all", b"ann"));
        assert!(!maps.admit(Some(b"m"), b"/.*", b"ann"));
    }

    #[test]
    fn bad_lines_are_named_and_let_nobody_in() {
        for (line, want) in [
            ("m ann", "the line ends before its database user"),
            ("m", "the line ends before its system user"),
            ("m ann app more", "more than three columns"),
            ("m ann,bob app", "not exactly one value for the system user"),
            ("m ann +admins", "+admins: membership in roles"),
            ("m /( app", "regular expression \"(\" cannot be used: "),
            ("m /^ann$ \\1", "which has none"),
            ("m \"ann app", "a quote is not closed"),
            ("include gone", "cannot read /gone: no such file"),
            ("m @gone app", "cannot read /gone"),
        ] {
            let (maps, bad) = maps(&format!("# one\n{line}\nm bob app"));
            assert_eq!(bad.len(), 1, "{line}");
            assert!(bad[0].starts_with("/ident:2: ") && bad[0].contains(want), "{line}: {bad:?}");
            assert!(!maps.admit(Some(b"m"), b"ann", b"app"), "{line}");
            assert!(maps.admit(Some(b"m"), b"bob", b"app"), "{line}: the others still count");
        }
    }
}
