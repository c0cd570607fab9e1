//! What happens, printed for a person who replays a seed with `TRACE=1`.

use std::sync::OnceLock;

/// Whether anybody looks.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("TRACE").is_some())
}

/// One message.
pub(crate) fn message(who: std::fmt::Arguments<'_>, tag: u8, body: &[u8]) {
    if is_on() {
        let body: String = String::from_utf8_lossy(body).chars().take(60).collect();
        println!("{who} {:?} {:?}", char::from(tag), body);
    }
}
