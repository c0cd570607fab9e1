//! What a client may be told when it is sent away, and in which weather.

use crate::weather::{PoolMode, Weather};

/// Whether this goodbye has a reason in this run.
pub(crate) fn excuses(text: &str, by_server: bool, weather: &Weather) -> bool {
    let r = &weather.rates;
    let dies = r.server_dies > 0 || r.crashes > 0;
    let logins = r.login_fails > 0 || r.login_hangs > 0 || r.server_dies > 0;
    let dials = r.dial_refused > 0 || r.dial_hangs > 0;
    if text == "terminating connection: the server that listened for it is gone" {
        return weather.hub && (dies || weather.may_lose_hubs() || weather.timeouts);
    }
    if by_server {
        return dies;
    }
    match text {
        "terminating connection due to administrator command"
        | "server conn crashed?"
        | "unclean server"
        | "server sent unencrypted bytes after its answer to the request for TLS"
        | "reset query failed" => dies,
        "query_wait_timeout"
        | "client_login_timeout"
        | "client_login_timeout (server down)"
        | "query timeout"
        | "idle transaction timeout"
        | "transaction timeout"
        | "test query timeout"
        | "cancel_wait_timeout"
        | "cancel took too long"
        | "connect timeout" => weather.timeouts,
        "admin forced disconnect" => weather.orders.kills,
        "database removed" | "no such database: db1" => {
            weather.orders.kills && weather.orders.reloads
        }
        "sorry, too many clients already"
        | "password authentication failed for you"
        | "the database system is starting up" => logins,
        "transaction blocks not allowed in statement pooling mode" => {
            weather.mode == PoolMode::Statement && r.transactions > 0
        }
        "canceling statement due to user request" => r.limits > 0,
        "it cannot listen" => weather.hub && dies,
        "connect failed" | "login failed" | "server login failed" => logins || dials,
        _ if text.starts_with("server login has been failing, cached error:") => logins || dials,
        "its channels are on another server" => weather.hub && weather.may_lose_hubs(),
        "suspend_timeout" => weather.orders.suspends && weather.timeouts,
        _ if text.ends_with("is disabled") => weather.orders.disables,
        _ => false,
    }
}
