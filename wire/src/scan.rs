//! Finding message boundaries in a stream that arrives in arbitrary pieces.

use crate::Malformed;

/// Walks a byte stream and says which message each byte belongs to.
///
/// It keeps five bytes of header and a count, so a gigabyte `CopyData` costs as much memory here
/// as a `Sync`. A header is given out only once it is whole, with the message's first piece.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    /// The header so far: a tag, then a length that counts itself but not the tag.
    header: [u8; 5],
    /// 0 <= filled <= 5
    filled: u8,
    /// Body bytes of the current message still to come.
    body_left: u32,
}

impl Scanner {
    /// Take the next piece off the front of `bytes`. `None` when `bytes` is used up.
    #[inline]
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Malformed> {
        // The common case: a whole message lies here, and the scanner stays as it was.
        if self.filled == 0
            && let Some((header, rest)) = bytes.split_first_chunk::<5>()
        {
            let len = body_len(*header)?;
            if let Some((body, rest)) = rest.split_at_checked(len as usize) {
                *bytes = rest;
                return Ok(Some(Piece {
                    tag: header[0],
                    len,
                    first: true,
                    head: 5,
                    body,
                    ends: true,
                }));
            }
        }
        self.next_part(bytes)
    }

    fn next_part<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Malformed> {
        let mut head = 0;
        while self.filled < 5 {
            let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
            self.header[usize::from(self.filled)] = *first;
            self.filled += 1;
            head += 1;
            *bytes = rest;
            if self.filled == 5 {
                self.body_left = body_len(self.header)?;
            }
        }
        if bytes.is_empty() && self.body_left > 0 {
            return Ok(None);
        }
        let len = body_len(self.header)?;
        let first = self.body_left == len;
        let (body, rest) = bytes.split_at((self.body_left as usize).min(bytes.len()));
        *bytes = rest;
        // No longer than `body_left`, so it fits.
        self.body_left -= body.len() as u32;
        let ends = self.body_left == 0;
        if ends {
            self.filled = 0;
        }
        Ok(Some(Piece { tag: self.header[0], len, first, head, body, ends }))
    }

    /// Whether the stream is between two messages: not one byte of the next has come.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.filled == 0
    }

    /// Whether a message was given out in part: its first piece was, its last was not.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.filled == 5 && body_len(self.header).is_ok_and(|len| self.body_left < len)
    }

    /// Whether a header is whole, once these bytes have come.
    #[must_use]
    pub fn has_header(&self, bytes: &[u8]) -> bool {
        usize::from(self.filled) + bytes.len() >= 5
    }

    /// The tag of the message of which at least one byte, but not the whole, has come.
    #[must_use]
    pub fn pending(&self) -> Option<u8> {
        (self.filled > 0).then_some(self.header[0])
    }
}

fn body_len(header: [u8; 5]) -> Result<u32, Malformed> {
    let [tag, len @ ..] = header;
    let len = u32::from_be_bytes(len);
    // PostgreSQL reads the length as signed, so its top bit is never set by an honest peer.
    if len < 4 || len > i32::MAX as u32 {
        return Err(Malformed::Length { tag, len });
    }
    Ok(len - 4)
}

/// A run of one message's body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece<'a> {
    pub tag: u8,
    /// Bytes in the message's whole body.
    pub len: u32,
    /// Whether the message begins with this piece.
    pub first: bool,
    /// How many bytes of the header lay right before `body` in these bytes. Fewer than five in a
    /// first piece means that the rest came earlier: see [`Piece::header`].
    pub head: usize,
    pub body: &'a [u8],
    /// Whether the message is complete with this piece.
    pub ends: bool,
}

impl Piece<'_> {
    /// The five bytes before the body.
    #[must_use]
    pub fn header(&self) -> [u8; 5] {
        let [a, b, c, d] = (self.len + 4).to_be_bytes();
        [self.tag, a, b, c, d]
    }

    /// Whether the whole message lies in this piece, its header right before it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.head == 5 && self.ends
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A stream cut anywhere says the same as the whole stream.
    #[test]
    fn every_cut_tells_the_same_messages() {
        let stream = b"Q\0\0\0\x0cselect 1S\0\0\0\x04d\0\0\0\x06xx";
        for size in 1..=stream.len() {
            let (mut scanner, mut heard, mut body) = (Scanner::default(), Vec::new(), Vec::new());
            for mut bytes in stream.chunks(size) {
                while let Some(piece) = scanner.next(&mut bytes).expect("well formed") {
                    assert_eq!(piece.first, body.is_empty(), "cut every {size}");
                    body.extend_from_slice(piece.body);
                    if piece.ends {
                        heard.push((piece.tag, piece.len, core::mem::take(&mut body)));
                    }
                }
            }
            assert!(scanner.is_between());
            let want: [(u8, u32, &[u8]); 3] =
                [(b'Q', 8, b"select 1"), (b'S', 0, b""), (b'd', 2, b"xx")];
            assert!(
                heard.iter().map(|(t, l, b)| (*t, *l, b.as_slice())).eq(want),
                "cut every {size}"
            );
        }
    }

    /// Nobody is inside a message of which nothing was given out.
    #[test]
    fn a_held_header_is_not_inside() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.next(&mut &b"Q\0\0\0\x06"[..]), Ok(None));
        assert!(!scanner.is_inside() && !scanner.is_between());
        let piece = scanner.next(&mut &b"a"[..]).expect("well formed").expect("a byte came");
        assert_eq!((piece.first, piece.head, piece.header()), (true, 0, *b"Q\0\0\0\x06"));
        assert!(scanner.is_inside());
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for len in [0_u32, 3, 0x8000_0000, u32::MAX] {
            let mut header = [b'Q', 0, 0, 0, 0];
            header[1..].copy_from_slice(&len.to_be_bytes());
            let refused = Err(Malformed::Length { tag: b'Q', len });
            assert_eq!(Scanner::default().next(&mut &header[..]), refused);
            let mut slow = Scanner::default();
            assert_eq!(slow.next(&mut &header[..3]), Ok(None));
            assert_eq!(slow.next(&mut &header[3..]), refused);
        }
    }
}
