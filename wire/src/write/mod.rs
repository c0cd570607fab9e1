//! Messages that a pooler says itself, appended to a vector.
//!
//! A string is cut at a zero byte, which would else end it and begin something of its own. A body
//! longer than a length can say gets a length that no peer accepts.

pub mod client;
pub mod server;

use alloc::vec::Vec;

/// A message with this tag, and the body that `fill` appends.
pub fn message(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    untagged(out, fill);
}

pub(crate) fn untagged(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let len = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&len.to_be_bytes());
    }
}

pub(crate) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.split(|byte| *byte == 0).next().unwrap_or_default());
    out.push(0);
}

pub(crate) fn count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
}

pub(crate) fn size(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
}
