//! What the service manager is told, where there is one: `Type=notify` and `Type=notify-reload`.

use std::time::Duration;

use sd_notify::NotifyState::{Ready, Reloading, Status, Stopping, Watchdog};
use sd_notify::{NotifyState, notify};

/// We listen, or live by a new configuration.
pub(crate) fn ready() {
    tell(&[Ready]);
}

/// A RELOAD begins; [`ready`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[Reloading, now]),
        Err(_) => tell(&[Reloading]),
    }
}

pub(crate) fn stopping() {
    tell(&[Stopping]);
}

/// One line for `systemctl status`.
pub(crate) fn status(text: &str) {
    tell(&[Status(text)]);
}

/// All workers have answered.
pub(crate) fn alive() {
    tell(&[Watchdog]);
}

/// How often [`alive`] is to be said: twice as often as is asked for.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|every| every / 2).filter(|every| !every.is_zero())
}

/// Without a manager nothing happens; one that does not listen is not waited for.
fn tell(state: &[NotifyState<'_>]) {
    let _ = notify(state);
}
