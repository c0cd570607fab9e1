//! A script: what every client says, over and over, and how long the right answer is.

use crate::backend::{Backend, SELECT};
use crate::frames::put;

/// One transaction, and what comes before the first.
pub struct Script {
    /// Said once after login.
    pub prologue: Option<Step>,
    pub steps: Vec<Step>,
    pub life: Life,
}

/// One round trip.
pub struct Step {
    pub request: Vec<u8>,
    /// Of all messages but parameters and notices, to know a wrong answer from a right one.
    pub reply_bytes: usize,
}

/// How long a client stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Life {
    Stays,
    /// Dials anew for each transaction.
    OneTransaction,
}

/// The kinds of traffic with a canned backend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Workload {
    Simple,
    Extended,
    Named,
    Transaction,
    Connect,
}

impl Workload {
    pub const ALL: [(&str, Self); 5] = [
        ("simple", Self::Simple),
        ("extended", Self::Extended),
        ("named", Self::Named),
        ("transaction", Self::Transaction),
        ("connect", Self::Connect),
    ];

    pub const DEFAULT: [Self; 2] = [Self::Simple, Self::Extended];

    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, workload)| *workload)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, workload)| *workload == self).map_or("?", |(name, _)| name)
    }

    #[must_use]
    pub fn script(self) -> Script {
        let mut backend = Backend::default();
        backend.hear(b"\0\0\0\x08\0\x03\0\0", &mut Vec::new()).expect("a startup packet");
        let mut step = |request: Vec<u8>| {
            let mut reply = Vec::new();
            backend.hear(&request, &mut reply).expect("scripts are well formed");
            Step { request, reply_bytes: reply.len() }
        };
        let mut prologue = None;
        let mut life = Life::Stays;
        let steps = match self {
            Self::Simple => vec![step(query(SELECT))],
            Self::Extended => vec![step([parse(""), execute("")].concat())],
            Self::Named => {
                prologue = Some(step([parse("P_0"), message(b'S', b"")].concat()));
                vec![step(execute("P_0"))]
            }
            Self::Transaction => {
                ["BEGIN", SELECT, "COMMIT"].into_iter().map(query).map(step).collect()
            }
            Self::Connect => {
                life = Life::OneTransaction;
                vec![step(query("SELECT 1;"))]
            }
        };
        Script { prologue, steps, life }
    }
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// As libpq sends it: with one parameter whose type the server is to find out.
fn parse(name: &str) -> Vec<u8> {
    let text = "SELECT abalance FROM pgbench_accounts WHERE aid = $1;";
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

/// Bind, Describe, Execute, Sync.
fn execute(name: &str) -> Vec<u8> {
    let mut bind = format!("\0{name}\0").into_bytes();
    bind.extend_from_slice(b"\0\0\0\x01\0\0\0\x044711\0\x01\0\0");
    let bind = message(b'B', &bind);
    [bind, message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, tag, body);
    out
}
