//! A marker: the notification of ours that parts what a server tells from what the hub tells.

use pool::WorkerId;
use wire::Notification;

/// What a marker says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Marker {
    pub(super) joins: bool,
    pub(super) worker: WorkerId,
    pub(super) slot: u32,
    pub(super) id: u64,
    pub(super) nonce: u64,
}

impl Marker {
    /// `None`: the message is on another channel.
    pub(super) fn read(message: &[u8], channel: &str) -> Option<Option<Self>> {
        let said = Notification::read(message.get(5..)?).ok()?;
        (said.channel == channel.as_bytes()).then(|| Self::of(&said))
    }

    pub(super) fn of(said: &Notification<'_>) -> Option<Self> {
        let mut words = str::from_utf8(said.payload).ok()?.split(' ');
        let joins = match words.next()? {
            "J" => true,
            "L" => false,
            _ => return None,
        };
        let worker = WorkerId(words.next()?.parse().ok()?);
        let (slot, id) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { joins, worker, slot, id, nonce: words.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let mut message = b"A\0\0\0\0\0\0\0\x07".to_vec();
        message.extend_from_slice(b"howdah_0\0J 1 17 4711 99\0");
        let marker = Marker { joins: true, worker: WorkerId(1), slot: 17, id: 4711, nonce: 99 };
        assert_eq!(Marker::read(&message, "howdah_0"), Some(Some(marker)));
        assert_eq!(Marker::read(&message, "howdah_1"), None);
        let end = message.len() - 4;
        message.truncate(end);
        message.push(0);
        assert_eq!(Marker::read(&message, "howdah_0"), Some(None), "half a marker is none");
    }
}
