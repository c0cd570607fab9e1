//! `ErrorResponse` and `NoticeResponse`: a list of fields, any of which may be missing.

use alloc::vec::Vec;

use crate::text;

/// The fields of an error or notice body. A list cut short, or without its terminator, just ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorFields<'a>(&'a [u8]);

impl<'a> ErrorFields<'a> {
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The first field of this kind: `S`everity, `C`ode, `M`essage, `D`etail, `H`int…
    #[must_use]
    pub fn field(&self, kind: u8) -> Option<&'a [u8]> {
        Self(self.0).find_map(|(other, value)| (other == kind).then_some(value))
    }

    /// SQLSTATE; empty when the server sent none.
    #[must_use]
    pub fn code(&self) -> &'a [u8] {
        self.field(b'C').unwrap_or_default()
    }

    /// The message; empty when the server sent none.
    #[must_use]
    pub fn message(&self) -> &'a [u8] {
        self.field(b'M').unwrap_or_default()
    }

    /// Severity in English where the server says it so (field `V`, since 9.6), else as it is.
    #[must_use]
    pub fn severity(&self) -> &'a [u8] {
        self.field(b'V').or_else(|| self.field(b'S')).unwrap_or_default()
    }
}

impl<'a> Iterator for ErrorFields<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (kind, mut rest) = self.0.split_first()?;
        if *kind == 0 {
            self.0 = &[];
            return None;
        }
        let value = text::take(&mut rest);
        self.0 = if value.is_some() { rest } else { &[] };
        value.map(|value| (*kind, value))
    }
}

/// What an error or notice of our own says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report<'a> {
    pub severity: &'a [u8],
    /// Also send the severity as field `V`, as PostgreSQL does. PgBouncer does not.
    pub with_v: bool,
    /// SQLSTATE.
    pub code: &'a [u8],
    pub message: &'a [u8],
    pub detail: Option<&'a [u8]>,
    pub hint: Option<&'a [u8]>,
}

impl Report<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let v = self.with_v.then_some(self.severity);
        let fields = [
            (b'S', Some(self.severity)),
            (b'V', v),
            (b'C', Some(self.code)),
            (b'M', Some(self.message)),
            (b'D', self.detail),
            (b'H', self.hint),
        ];
        for (kind, value) in fields {
            if let Some(value) = value {
                out.push(kind);
                crate::write::string(out, value);
            }
        }
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_missing_ones_are_empty() {
        let fields = ErrorFields::new(b"SFATAL\0C28P01\0Mno\0\0");
        assert_eq!(fields.severity(), b"FATAL");
        assert_eq!(fields.code(), b"28P01");
        assert_eq!(fields.message(), b"no");
        assert_eq!(fields.field(b'D'), None);
        assert_eq!(ErrorFields::new(b"Mx\0\0").code(), b"");
    }

    /// A server without a terminator, or with none at all, is heard as far as it goes.
    #[test]
    fn lists_cut_short_just_end() {
        for body in [&b""[..], b"S", b"SERROR", b"SERROR\0", b"\0", b"SERROR\0C"] {
            assert!(ErrorFields::new(body).count() <= 1);
        }
    }
}
