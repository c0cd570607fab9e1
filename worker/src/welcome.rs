//! What the servers of a pool say of themselves at login, and new clients are told in turn.

use std::borrow::Cow;

use session::{State, Tracked, Vars};
use wire::write::server::parameter_status;

/// The ParameterStatus messages of a server's login.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Welcome {
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Those of them that are tracked.
    pub(crate) vars: Vars,
}

impl Welcome {
    pub(crate) fn new(tracked: &Tracked, parameters: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        let mut vars = Vars::new(tracked);
        for (name, value) in &parameters {
            vars.set(name, value);
        }
        Self { parameters, vars }
    }

    /// What was said of the parameter `name`.
    pub(crate) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.parameters.iter().find_map(|(known, value)| (known == name).then_some(&**value))
    }

    /// As a client with `vars` and `state` is to hear it.
    pub(crate) fn write(&self, vars: &Vars, state: Option<&State>, out: &mut Vec<u8>) {
        for (name, value) in &self.parameters {
            let own = vars.value(name).or_else(|| state?.value(name));
            parameter_status(out, name, own.unwrap_or(value));
        }
    }

    /// What `value` of the parameter `name` means to a new session. DateStyle has two parts, and what one of them is left out of keeps that
    /// as it is: in a session that others had before, that may be theirs.
    pub(crate) fn in_full<'a>(&self, name: &str, value: &'a [u8]) -> Cow<'a, [u8]> {
        let known = self.vars.value(name.as_bytes()).filter(|_| name == "DateStyle");
        let (style, order) = known.map_or((None, None), parts);
        match parts(value) {
            (Some(own), None) if !own.eq_ignore_ascii_case(b"german") => join(value, order),
            (None, Some(_)) => join(value, style),
            _ => value.into(),
        }
    }

    /// As the server said it.
    pub(crate) fn write_all(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.parameters {
            parameter_status(out, name, value);
        }
    }
}

/// The style and the order that a DateStyle names.
fn parts(value: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    let (mut style, mut order) = (None, None);
    for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        let begins = |with: &str| {
            word.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        if ["ISO", "SQL", "POSTGRES", "GERMAN"].into_iter().any(begins) {
            style = Some(word);
        } else if ["YMD", "DMY", "MDY", "US", "EURO", "NONEURO"].into_iter().any(begins) {
            order = Some(word);
        }
    }
    (style, order)
}

fn join<'a>(value: &'a [u8], part: Option<&[u8]>) -> Cow<'a, [u8]> {
    part.map_or_else(|| value.into(), |part| [value, b", ", part].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_date_style_leaves_out_is_as_in_a_new_session() {
        let said = vec![(b"DateStyle".to_vec(), b"SQL, DMY".to_vec())];
        let welcome = Welcome::new(&Tracked::default(), said);
        let full = |value: &'static str| {
            String::from_utf8(welcome.in_full("DateStyle", value.as_bytes()).into()).expect("text")
        };
        assert_eq!(full("iso"), "iso, DMY");
        assert_eq!(full("mdy"), "mdy, SQL");
        for whole in ["ISO, YMD", "German", "postgres,us", "DEFAULT", "nonsense", ""] {
            assert_eq!(full(whole), whole);
        }
        assert_eq!(&*welcome.in_full("TimeZone", b"iso"), b"iso");
    }
}
