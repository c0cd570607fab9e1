//! What is said on the console besides rows.

use wire::write::server as write;

use crate::SERVER_VERSION;

/// What a client is told on entering, in this order. The key and `ReadyForQuery` come after it.
pub fn welcome(out: &mut Vec<u8>) {
    for (name, value) in WELCOME {
        write::parameter_status(out, name.as_bytes(), value.as_bytes());
    }
}

const WELCOME: [(&str, &str); 7] = [
    ("server_version", SERVER_VERSION),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];
