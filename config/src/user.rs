//! One line of `[users]`.

use std::time::Duration;

use crate::PoolMode;

/// Limits of one user. `None` means that the database or the setting decides.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UserRow {
    pub name: String,
    pub pool_size: Option<u32>,
    pub reserve_pool_size: Option<u32>,
    pub pool_mode: Option<PoolMode>,
    pub max_user_connections: Option<u32>,
    pub max_user_client_connections: Option<u32>,
    pub query_timeout: Option<Duration>,
    pub query_wait_timeout: Option<Duration>,
    pub idle_transaction_timeout: Option<Duration>,
    pub transaction_timeout: Option<Duration>,
    pub client_idle_timeout: Option<Duration>,
}
