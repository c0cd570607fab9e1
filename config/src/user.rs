//! One line of `[users]`.

use std::time::Duration;

use crate::pairs::{Field, Key, fill};
use crate::problem::Findings;
use crate::session_state::StatePolicy;
use crate::{Place, PoolMode, Problem};

/// Limits of one user. `None` means that the database or the setting decides.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UserRow {
    pub name: String,
    pub pool_size: Option<u32>,
    pub reserve_pool_size: Option<u32>,
    pub pool_mode: Option<PoolMode>,
    pub max_pinned_servers: Option<u32>,
    pub pin_timeout: Option<Duration>,
    pub pin_idle_timeout: Option<Duration>,
    pub session_report: Option<bool>,
    pub session_state: Option<StatePolicy>,
    pub max_user_connections: Option<u32>,
    pub max_user_client_connections: Option<u32>,
    pub query_timeout: Option<Duration>,
    pub query_wait_timeout: Option<Duration>,
    pub idle_transaction_timeout: Option<Duration>,
    pub transaction_timeout: Option<Duration>,
    pub client_idle_timeout: Option<Duration>,
}

/// PgBouncer's limit for a user name.
const NAME_BYTES_MAX: usize = 127;

impl UserRow {
    pub(crate) fn read(
        name: &str,
        text: &str,
        place: &Place,
        found: &mut Findings,
    ) -> Option<Self> {
        if name.len() > NAME_BYTES_MAX {
            let hint = format!("at most {NAME_BYTES_MAX} bytes");
            found.error(Problem::new("username too long").at(place).hint(hint));
            return None;
        }
        let mut row = Self { name: name.to_owned(), ..Self::default() };
        fill(&mut row, KEYS, "user", name, text, place, found);
        Some(row)
    }

    fn set_session_state(&mut self, text: &str) -> Result<(), String> {
        self.session_state = Some(StatePolicy::read(text)?);
        Ok(())
    }
}

const fn key(
    name: &'static str,
    field: Field<UserRow>,
    default: &'static str,
    doc: &'static str,
) -> Key<UserRow> {
    Key { name, field, default, doc }
}

/// What a line of `[users]` may say.
pub(crate) const KEYS: &[Key<UserRow>] = &[
    key(
        "pool_size",
        Field::Number(|user| &mut user.pool_size),
        "the database's",
        "Servers per pool of this user.",
    ),
    key(
        "reserve_pool_size",
        Field::Number(|user| &mut user.reserve_pool_size),
        "the database's",
        "Servers beyond pool_size when clients wait too long.",
    ),
    key("pool_mode", Field::Mode(|user| &mut user.pool_mode), "the database's", "As the setting."),
    key(
        "max_pinned_servers",
        Field::Number(|user| &mut user.max_pinned_servers),
        "the database's",
        "As the setting.",
    ),
    key(
        "pin_timeout",
        Field::Seconds(|user| &mut user.pin_timeout),
        "the database's",
        "As the setting, in whole seconds.",
    ),
    key(
        "pin_idle_timeout",
        Field::Seconds(|user| &mut user.pin_idle_timeout),
        "the database's",
        "As the setting, in whole seconds.",
    ),
    key(
        "session_report",
        Field::Flag(|user| &mut user.session_report),
        "the database's",
        "As the setting.",
    ),
    key(
        "session_state",
        Field::Other(UserRow::set_session_state),
        "the database's",
        "As the setting, kind by kind; quoted where blanks stand between.",
    ),
    key(
        "max_user_connections",
        Field::Number(|user| &mut user.max_user_connections),
        "the setting",
        "Servers over all databases; 0 is no limit.",
    ),
    key(
        "max_user_client_connections",
        Field::Number(|user| &mut user.max_user_client_connections),
        "the setting",
        "Clients over all databases; 0 is no limit.",
    ),
    key(
        "query_timeout",
        Field::Seconds(|user| &mut user.query_timeout),
        "the setting",
        "As the setting, in whole seconds; 0 leaves it to the setting.",
    ),
    key(
        "query_wait_timeout",
        Field::Seconds(|user| &mut user.query_wait_timeout),
        "the database's",
        "As the setting, in whole seconds; 0 waits for ever.",
    ),
    key(
        "idle_transaction_timeout",
        Field::Seconds(|user| &mut user.idle_transaction_timeout),
        "the setting",
        "As the setting, in whole seconds; 0 leaves it to the setting.",
    ),
    key(
        "transaction_timeout",
        Field::Seconds(|user| &mut user.transaction_timeout),
        "the setting",
        "As the setting, in whole seconds; 0 leaves it to the setting.",
    ),
    key(
        "client_idle_timeout",
        Field::Seconds(|user| &mut user.client_idle_timeout),
        "the setting",
        "As the setting, in whole seconds; 0 leaves it to the setting.",
    ),
];
