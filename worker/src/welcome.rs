//! What the servers of a pool say of themselves at login, and new clients are told in turn.

use session::{Tracked, Vars};
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

    /// As a client with `vars` is to hear it.
    pub(crate) fn write(&self, vars: &Vars, out: &mut Vec<u8>) {
        for (name, value) in &self.parameters {
            parameter_status(out, name, vars.value(name).unwrap_or(value));
        }
    }

    /// As the server said it.
    pub(crate) fn write_all(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.parameters {
            parameter_status(out, name, value);
        }
    }
}
