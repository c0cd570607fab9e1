//! Signals to sessions that have no process at the moment.
//!
//! `pg_terminate_backend` is asked to end a client by the pid it was given. One that has a server is found there. Of one
//! that has none the server says that there is no such process, in a notice in front of the row that says `false`: so it is
//! known that it was asked and allowed to ask, and whom it was about. The one is kept from the client, the other
//! made `true`, and the client in question ended.
//!
//! A client that has a server when it is asked about may have another when the signal is sent. The one that it had is then given to
//! nobody else ([`crate::Links::clear`]); and the client is ended where it is, if it is known that it was meant.

use std::mem;

use sql::Signal;
use wire::DataRow;

use crate::pids::Meant;
use crate::text::find;

/// Longer messages are not looked into: they are about something else.
pub(crate) const LEN_MAX: u32 = 64 * 1024;

/// The SQLSTATE of the notice: a warning, of no kind.
pub(crate) const MISSED: &[u8] = b"01000";

/// Calls in one request beyond this are left as they are.
const MANY: usize = 64;

/// What requests under way send, and whom it did not find.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    columns: Vec<(u16, Signal)>,
    missed: Vec<u32>,
    /// Pids of servers, and of the clients that had them when it was asked.
    meant: Vec<(u32, u32)>,
    /// Each row is about the one client that is meant.
    is_direct: bool,
}

const TERMINATE: &[u8] = b"pg_terminate_backend(";

/// Whether `text` ends one session, whose pid it says or is given: it is that of which a row says that it was done.
fn is_direct(text: &[u8]) -> bool {
    let Some(at) = find(text, TERMINATE) else { return false };
    let rest = text.get(at + TERMINATE.len()..).unwrap_or_default();
    let number = rest.strip_prefix(b"$").unwrap_or(rest);
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'$');
    let numbers = words.filter(|word| matches!(word, [b'$' | b'0'..=b'9', ..]));
    digits > 0 && number.get(digits) == Some(&b')') && numbers.count() == 1
}

impl Signals {
    /// These columns of a result will say whether it was sent.
    pub(crate) fn expect(&mut self, columns: &[(u16, Signal)]) {
        for column in columns {
            if !self.columns.contains(column) && self.columns.len() < MANY {
                self.columns.push(*column);
            }
        }
    }

    /// Signals may be sent to these.
    pub(crate) fn means(&mut self, meant: Meant<'_>) {
        let is_first = self.meant.is_empty() && meant.servers.len() == 1;
        self.is_direct = is_first && meant.text.is_some_and(is_direct);
        self.meant.extend(meant.servers);
        self.meant.truncate(MANY);
    }

    /// The client that had the server of which `text` says that there is no such process.
    pub(crate) fn had(&self, text: &[u8]) -> Option<u32> {
        let mut numbers =
            text.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty());
        let server = str::from_utf8(numbers.next()?).ok()?.parse::<u32>().ok()?;
        let had = self.meant.iter().find(|(meant, _)| *meant == server).map(|(_, client)| *client);
        had.filter(|_| numbers.next().is_none())
    }

    /// The client that is ended for what a row says, wherever it is by now.
    pub(crate) fn struck(&mut self, body: &[u8]) -> Option<u32> {
        let [(_, client)] = self.meant[..] else { return None };
        let mut values = (0..=u16::MAX).zip(DataRow::read(body).ok()?);
        let says = values.any(|(column, value)| {
            self.columns.contains(&(column, Signal::Terminate))
                && matches!(value, Ok(Some([1 | b't'])))
        });
        (says && mem::take(&mut self.is_direct)).then_some(client)
    }

    /// The client with `pid` was not found.
    pub(crate) fn missed(&mut self, pid: u32) {
        if self.missed.len() < MANY {
            self.missed.push(pid);
        }
    }

    /// The body of a row, as it would be had they been found, and the clients that are ended. `None`: as it is.
    pub(crate) fn sent(&mut self, body: &[u8]) -> Option<(Vec<u8>, Vec<u32>)> {
        let missed = mem::take(&mut self.missed);
        if missed.is_empty() {
            return None;
        }
        let failed = self.failed(body)?;
        // With others among them that were not found either, nobody can tell which is which.
        if failed.len() != missed.len() {
            return None;
        }
        let (mut new, mut ended) = (body.to_vec(), Vec::new());
        for ((at, signal), pid) in failed.into_iter().zip(missed) {
            let place = new.get_mut(at)?;
            *place = if *place == 0 { 1 } else { b't' };
            if signal == Signal::Terminate {
                ended.push(pid);
            }
        }
        Some((new, ended))
    }

    /// Where in a row it says that nobody was found.
    fn failed(&self, body: &[u8]) -> Option<Vec<(usize, Signal)>> {
        let mut failed = Vec::new();
        // In front of the values is their count, and in front of each its length.
        let mut at = 2;
        for (column, value) in (0..=u16::MAX).zip(DataRow::read(body).ok()?) {
            let value = value.ok()?.unwrap_or_default();
            at += 4;
            let signal = self.columns.iter().find(|(expected, _)| *expected == column);
            if let (Some((_, signal)), [0 | b'f']) = (signal, value) {
                failed.push((at, *signal));
            }
            at += value.len();
        }
        Some(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[&[u8]]) -> Vec<u8> {
        let mut body = u16::try_from(values.len()).expect("few").to_be_bytes().to_vec();
        for value in values {
            body.extend(u32::try_from(value.len()).expect("short").to_be_bytes());
            body.extend_from_slice(value);
        }
        body
    }

    #[test]
    fn whoever_is_meant_is_struck() {
        let meant = |text: &'static str| {
            let mut signals = Signals::default();
            signals.expect(&[(0, Signal::Terminate)]);
            let mut meant = Meant::by(Some(text.as_bytes()));
            meant.servers.push((47, 1_500_000_000));
            signals.means(meant);
            signals
        };
        for text in
            ["select pg_terminate_backend($1)", "SELECT PG_terminate_backend(1500000000) AS x"]
        {
            assert_eq!(meant(text).struck(&row(&[b"f"])), None);
            assert_eq!(meant(text).struck(&row(&[b"t"])), Some(1_500_000_000), "{text}");
        }
        for text in [
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> $1",
            "select pg_terminate_backend(4711), 1500000000",
            "select pg_terminate_backend($1) where $2 > 0",
            "select pg_terminate_backend($1 + 1)",
        ] {
            assert_eq!(meant(text).struck(&row(&[b"t"])), None, "{text}");
        }
        let signals = meant("");
        assert_eq!(signals.had(b"PID 47 is not a PostgreSQL server process"), Some(1_500_000_000));
        assert_eq!(signals.had(b"PID 48 is not a PostgreSQL server process"), None);
    }

    #[test]
    fn whoever_was_missed_is_found_after_all() {
        let mut signals = Signals::default();
        signals.expect(&[(1, Signal::Terminate), (2, Signal::Cancel)]);
        assert_eq!(signals.sent(&row(&[b"f", b"f", b"f"])), None, "they are somebody else's");
        signals.missed(7);
        signals.missed(8);
        let new = row(&[b"f", b"t", &[1]]);
        assert_eq!(signals.sent(&row(&[b"f", b"f", &[0]])), Some((new, vec![7])));
        signals.missed(7);
        assert_eq!(signals.sent(&row(&[b"f", b"f", b"f"])), None, "nobody can tell which");
        assert_eq!(signals.sent(&row(&[b"f", b"f", b"t"])), None, "it was of another row");
        signals.missed(7);
        assert_eq!(signals.sent(&row(&[b"f", b"f"])[..9]), None, "half a row");
    }
}
