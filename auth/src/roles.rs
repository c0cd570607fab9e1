//! Membership in roles, as rules speak of it (`+role`, `samerole`). Only a server knows it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What is known of the roles that a client's user belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Roles<'a> {
    NotAskedFor,
    /// There is nobody to ask.
    Unknowable,
    Known(&'a Membership),
}

/// Which of the roles that were asked about somebody belongs to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Membership {
    asked: Arc<[Box<str>]>,
    /// As `asked`, in its order.
    member: Vec<bool>,
}

impl Membership {
    /// In none of `asked`, which is in order.
    #[must_use]
    pub fn none(asked: Arc<[Box<str>]>) -> Self {
        let member = asked.iter().map(|_| false).collect();
        Self { asked, member }
    }

    /// Of `numbers`, a list with commas of places in `asked` that count from 1. `None` where it is something else.
    #[must_use]
    pub fn read(asked: Arc<[Box<str>]>, numbers: &[u8]) -> Option<Self> {
        let mut membership = Self::none(asked);
        for number in core::str::from_utf8(numbers).ok()?.split(',') {
            let index = number.parse::<usize>().ok()?.checked_sub(1)?;
            *membership.member.get_mut(index)? = true;
        }
        Some(membership)
    }

    /// Whether it is in `role`; `None` where that was not asked.
    #[must_use]
    pub fn of(&self, role: &str) -> Option<bool> {
        let index = self.asked.binary_search_by(|asked| (**asked).cmp(role)).ok()?;
        self.member.get(index).copied()
    }
}

/// The roles that a set of rules speaks of.
#[derive(Clone, Debug, Default)]
pub struct Spoken {
    names: BTreeSet<Box<str>>,
    /// The one of the database's name as well.
    same: bool,
}

impl Spoken {
    pub(crate) fn add(&mut self, names: &BTreeSet<Box<str>>, same: bool) {
        self.names.extend(names.iter().cloned());
        self.same |= same;
    }

    /// What to ask about somebody who wants `database`, in order.
    #[must_use]
    pub fn at(&self, database: &[u8]) -> Arc<[Box<str>]> {
        let database = core::str::from_utf8(database).ok().filter(|_| self.same);
        let mut names: Vec<Box<str>> = self.names.iter().cloned().collect();
        if let Some(database) = database
            && let Err(place) = names.binary_search_by(|name| (**name).cmp(database))
        {
            names.insert(place, database.into());
        }
        names.into()
    }
}

/// A query that tells of the user `$1` which of `roles` it belongs to, as [`Membership::read`] reads it. As in
/// PostgreSQL's own rules it is in itself, inheriting or not makes no difference, and a superuser is in what it
/// was put into. Everybody may ask it.
#[must_use]
pub fn query(roles: &[Box<str>]) -> String {
    let mut list = String::new();
    for role in roles {
        if !list.is_empty() {
            list.push(',');
        }
        // Good whatever standard_conforming_strings is.
        list.push_str("E'");
        for letter in role.chars() {
            if matches!(letter, '\'' | '\\') {
                list.push(letter);
            }
            list.push(letter);
        }
        list.push('\'');
    }
    [
        "WITH RECURSIVE mine(role) AS (\
         SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) $1::pg_catalog.text \
         UNION SELECT m.roleid FROM pg_catalog.pg_auth_members m \
         JOIN mine ON m.member OPERATOR(pg_catalog.=) mine.role) \
         SELECT $1::pg_catalog.text, pg_catalog.string_agg(asked.number::pg_catalog.text, ',') \
         FROM pg_catalog.unnest(ARRAY[",
        &list,
        "]::pg_catalog.text[]) WITH ORDINALITY asked(name, number) \
         JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) asked.name \
         JOIN mine ON mine.role OPERATOR(pg_catalog.=) r.oid",
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Arc<[Box<str>]> {
        ["admins".into(), "staff".into()].into()
    }

    #[test]
    fn an_answer_is_a_list_of_places() {
        let some = Membership::read(asked(), b"2").expect("a list");
        assert_eq!(
            (some.of("admins"), some.of("staff"), some.of("x")),
            (Some(false), Some(true), None)
        );
        let all = Membership::read(asked(), b"2,1").expect("a list");
        assert_eq!((all.of("admins"), all.of("staff")), (Some(true), Some(true)));
        for bad in ["", "0", "3", "1,", "one", "1 2", "-1"] {
            assert_eq!(Membership::read(asked(), bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_role_of_the_database_is_asked_about_where_rules_speak_of_it() {
        let mut spoken = Spoken::default();
        spoken.add(&["staff".into(), "admins".into()].into(), false);
        assert_eq!(spoken.at(b"shop"), asked());
        spoken.add(&BTreeSet::new(), true);
        assert_eq!(&*spoken.at(b"shop"), ["admins".into(), "shop".into(), "staff".into()]);
        assert_eq!(spoken.at(b"staff"), asked(), "once");
        assert_eq!(spoken.at(b"\xff"), asked(), "no role has such a name");
    }

    #[test]
    fn names_are_texts_whatever_is_in_them() {
        assert!(query(&["a'b\\".into(), "c".into()]).contains(r"[E'a''b\\',E'c']::"));
    }
}
