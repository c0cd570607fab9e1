//! One line of `[peers]`.

use crate::pairs::{Field, Key, fill};
use crate::problem::Findings;
use crate::value::int;
use crate::{Host, Place, Problem};

/// Another process, to which cancel requests that are its own are sent on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    pub id: u32,
    pub host: Host,
    pub port: u16,
    /// `None` is `default_pool_size`.
    pub pool_size: Option<u32>,
}

/// A peer while its line is read: the host may come last.
#[derive(Default)]
pub(crate) struct Draft {
    host: Option<String>,
    port: u16,
    pool_size: Option<u32>,
}

impl Peer {
    pub(crate) fn read(
        name: &str,
        text: &str,
        place: &Place,
        found: &mut Findings,
    ) -> Option<Self> {
        let id = int(name).and_then(|id| u32::try_from(id).ok());
        let Some(id) = id.filter(|id| (1..=ID_MAX).contains(id)) else {
            let problem = Problem::new(format!("invalid peer id \"{name}\"")).at(place);
            found.error(problem.hint(format!("expected a whole number from 1 to {ID_MAX}")));
            return None;
        };
        let mut draft = Draft { port: 6432, ..Draft::default() };
        let errors = found.errors.len();
        fill(&mut draft, KEYS, "connection", name, text, place, found);
        let Some(host) = draft.host else {
            if found.errors.len() == errors {
                let what = format!("host was not provided for peer {id}");
                found.error(Problem::new(what).at(place));
            }
            return None;
        };
        let Draft { port, pool_size, .. } = draft;
        Some(Self { id, host: Host::read(&host), port, pool_size })
    }
}

/// What the two bytes in a cancel key hold. PgBouncer's manual says 16383, its code this.
const ID_MAX: u32 = 65_535;

/// What a line of `[peers]` may say.
pub(crate) const KEYS: &[Key<Draft>] = &[
    Key {
        name: "host",
        field: Field::Text(|peer| &mut peer.host),
        default: "must be given",
        doc: "Address, host name or directory of a Unix socket.",
    },
    Key {
        name: "port",
        field: Field::Port(|peer| &mut peer.port),
        default: "6432",
        doc: "Its listen_port.",
    },
    Key {
        name: "pool_size",
        field: Field::Number(|peer| &mut peer.pool_size),
        default: "default_pool_size",
        doc: "Cancel requests on their way to it at once.",
    },
];
