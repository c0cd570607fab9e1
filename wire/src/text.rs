//! Zero-terminated strings, as the protocol writes them.

/// Take a string and its terminator off the front of `bytes`. `None` if no terminator came.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    take_to(bytes, end)
}

/// The same of one that may well be long.
pub(crate) fn take_long<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(0, bytes)?;
    take_to(bytes, end)
}

fn take_to<'a>(bytes: &mut &'a [u8], end: usize) -> Option<&'a [u8]> {
    let (text, rest) = bytes.split_at_checked(end)?;
    *bytes = rest.get(1..)?;
    Some(text)
}

pub(crate) fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    Some(u16::from_be_bytes(*number))
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*number))
}

/// A list of strings. It ends at an empty string, or where no terminator comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Strings<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        take(&mut self.0).filter(|text| !text.is_empty())
    }
}
