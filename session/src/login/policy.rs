//! The policy on startup parameters: which a pooler can keep, which it may drop, and which it must
//! refuse because the client would not get what it asked for.

use super::{Facts, options};
use crate::Asked;
use crate::state::is_plain_name;

/// Parameters that are tracked per client, and so can be given at startup, in their spelling.
pub const TRACKED: [&str; 5] =
    ["client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name"];

/// What the configuration says of startup parameters. Names are compared without regard to case.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// `track_extra_parameters`: tracked, like [`TRACKED`].
    pub extra: &'a [String],
    /// `ignore_startup_parameters`: accepted and dropped. `options` stands for every setting
    /// inside `options`.
    pub ignored: &'a [String],
    /// `track_session_state`: any other is the server's to judge.
    pub follows: bool,
}

impl Policy<'_> {
    /// What the client asks for: the tracked parameters in the spelling of the lists, and all others,
    /// each once. What is given both ways counts as PostgreSQL has it: a parameter of its own beats
    /// `options`.
    pub fn settings(&self, facts: &Facts) -> Result<Asked, Unsupported> {
        let mut asked = Asked::default();
        if let Some(text) = facts.options() {
            for (name, value) in options(text).map_err(|_| Unsupported::Switch)? {
                if let Some(tracked) = self.tracked(&name) {
                    set(&mut asked.vars, tracked, &value);
                } else if self.ignores(&name) || self.ignores(b"options") {
                } else if self.follows && is_plain_name(&name) {
                    asked.state.ask(&name, &value);
                } else {
                    return Err(Unsupported::InOptions(lossy(&name)));
                }
            }
        }
        for (name, value) in facts.others() {
            if let Some(tracked) = self.tracked(name) {
                set(&mut asked.vars, tracked, value);
            } else if self.ignores(name) {
            } else if self.follows && is_plain_name(name) {
                asked.state.ask(name, value);
            } else {
                return Err(Unsupported::Parameter(lossy(name)));
            }
        }
        Ok(asked)
    }

    fn tracked(&self, name: &[u8]) -> Option<&str> {
        let extra = self.extra.iter().map(String::as_str);
        TRACKED.into_iter().chain(extra).find(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    fn ignores(&self, name: &[u8]) -> bool {
        self.ignored.iter().any(|ignored| ignored.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What a startup packet asks for that a pooler cannot give. The text is the client's to see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unsupported {
    Parameter(String),
    InOptions(String),
    Switch,
}

impl core::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Parameter(name) => write!(f, "unsupported startup parameter: {name}"),
            Self::InOptions(name) => write!(f, "unsupported startup parameter in options: {name}"),
            Self::Switch => f.write_str(
                "unsupported options startup parameter: only '-c config=val' and '--config=val' \
                 are allowed",
            ),
        }
    }
}

fn set(settings: &mut Vec<(String, Vec<u8>)>, name: &str, value: &[u8]) {
    match settings.iter_mut().find(|(other, _)| other == name) {
        Some((_, old)) => *old = value.to_vec(),
        None => settings.push((name.to_string(), value.to_vec())),
    }
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
