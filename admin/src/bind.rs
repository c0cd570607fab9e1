//! What Bind and Execute say.

use wire::BindNames;

use crate::cell::{Format, Formats};
use crate::refusal::Protocol;

#[derive(Debug)]
pub(crate) struct Bind<'a> {
    pub(crate) portal: &'a [u8],
    pub(crate) statement: &'a [u8],
    /// How many there are; nobody asks for their values.
    pub(crate) parameters: u16,
    /// Of results, as they came.
    codes: Vec<u16>,
}

impl<'a> Bind<'a> {
    /// `None` if it is not of its form.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let names = BindNames::find(body)?;
        let mut rest = body.get(names.rest..)?;
        for _ in 0..take_u16(&mut rest)? {
            take_u16(&mut rest)?;
        }
        let parameters = take_u16(&mut rest)?;
        for _ in 0..parameters {
            // A negative length is that of NULL, and nothing follows it.
            let len = usize::try_from(take_i32(&mut rest)?).unwrap_or(0);
            rest = rest.get(len..)?;
        }
        let mut codes = Vec::new();
        for _ in 0..take_u16(&mut rest)? {
            codes.push(take_u16(&mut rest)?);
        }
        let names = Self { portal: names.portal, statement: names.statement, parameters, codes };
        rest.is_empty().then_some(names)
    }

    /// The formats asked for, of so many columns.
    pub(crate) fn formats(&self, columns: usize) -> Result<Formats, Protocol> {
        let formats = self.codes.len();
        if formats > 1 && formats != columns {
            return Err(Protocol::FormatCount { formats, columns });
        }
        let formats = self.codes.iter().map(|code| match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            _ => Err(Protocol::FormatCode(*code)),
        });
        formats.collect::<Result<_, _>>().map(Formats)
    }
}

#[derive(Debug)]
pub(crate) struct Execute {
    pub(crate) portal: Vec<u8>,
    /// Zero: all.
    pub(crate) rows_max: u32,
}

impl Execute {
    /// `None` if it is not of its form.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let end = body.iter().position(|byte| *byte == 0)?;
        let (portal, mut rest) = body.split_at_checked(end)?;
        rest = rest.get(1..)?;
        // PostgreSQL takes a negative limit for none.
        let rows_max = u32::try_from(take_i32(&mut rest)?).unwrap_or(0);
        rest.is_empty().then(|| Self { portal: portal.to_vec(), rows_max })
    }
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u16::from_be_bytes(*number))
}

fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(i32::from_be_bytes(*number))
}
