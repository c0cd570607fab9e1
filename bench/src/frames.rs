//! Frames: a stream of bytes cut into PostgreSQL's messages.

/// Keeps what came of a message until the rest is here.
#[derive(Default)]
pub struct Frames {
    held: Vec<u8>,
}

/// One whole message after startup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame<'a> {
    pub tag: u8,
    pub body: &'a [u8],
}

/// A length that no message has: the stream is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost;

/// Far above anything the rig sends or asks for.
const LENGTH_MAX: usize = 1 << 24;

impl Frames {
    /// Calls `each` for every message that is complete with `bytes`.
    pub fn cut<E: From<Lost>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.held.is_empty() {
            let mut rest = bytes;
            while let Some(frame) = first(&mut rest)? {
                each(frame)?;
            }
            self.held.extend_from_slice(rest);
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        while let Some(frame) = first(&mut rest)? {
            each(frame)?;
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }

    /// A startup packet has no tag; its body is handed out when it is whole.
    pub fn startup(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Lost> {
        self.held.extend_from_slice(bytes);
        let Some(length) = self.held.first_chunk::<4>() else { return Ok(None) };
        let length = checked(*length)?;
        if self.held.len() < length {
            return Ok(None);
        }
        let rest = self.held.split_off(length);
        let whole = std::mem::replace(&mut self.held, rest);
        Ok(Some(whole[4..].to_vec()))
    }
}

fn first<'a>(rest: &mut &'a [u8]) -> Result<Option<Frame<'a>>, Lost> {
    let Some((&tag, after)) = rest.split_first() else { return Ok(None) };
    let Some(length) = after.first_chunk::<4>() else { return Ok(None) };
    let length = checked(*length)?;
    let Some((frame, next)) = after.split_at_checked(length) else { return Ok(None) };
    *rest = next;
    Ok(Some(Frame { tag, body: &frame[4..] }))
}

fn checked(length: [u8; 4]) -> Result<usize, Lost> {
    let length = u32::from_be_bytes(length) as usize;
    if (4..=LENGTH_MAX).contains(&length) { Ok(length) } else { Err(Lost) }
}

/// Appends one message.
pub fn put(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    let length = u32::try_from(body.len() + 4).expect("the rig's messages are short");
    out.push(tag);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let mut stream = Vec::new();
        put(&mut stream, b'Q', b"SELECT 1\0");
        put(&mut stream, b'S', b"");
        for cut in 0..stream.len() {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                frames
                    .cut(part, |frame| {
                        seen.push((frame.tag, frame.body.len()));
                        Ok::<(), Lost>(())
                    })
                    .expect("well formed");
            }
            assert_eq!(seen, [(b'Q', 9), (b'S', 0)], "cut at {cut}");
        }
    }

    #[test]
    fn a_length_below_four_is_lost() {
        let cut = Frames::default().cut(b"Q\0\0\0\x03", |_| Ok::<(), Lost>(()));
        assert_eq!(cut, Err(Lost));
    }
}
