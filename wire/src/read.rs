//! What the bodies of the messages say that we look into. All of them borrow from the body.

use crate::text::{self, Strings};
use crate::{Malformed, key_fits, tag};

const fn broken(tag: u8) -> Malformed {
    Malformed::Body { tag }
}

/// `Parse`: a statement is to be prepared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parse<'a> {
    /// Empty: the unnamed statement.
    pub name: &'a [u8],
    pub query: &'a [u8],
    pub types: Types<'a>,
}

impl<'a> Parse<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::client::PARSE);
        let name = text::take(&mut body).ok_or(error)?;
        let query = text::take_long(&mut body).ok_or(error)?;
        let count = text::take_u16(&mut body).ok_or(error)?;
        if body.len() != usize::from(count) * 4 {
            return Err(error);
        }
        Ok(Self { name, query, types: Types(body) })
    }
}

/// Type OIDs of a statement's parameters, four bytes each, as they came.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Types<'a>(&'a [u8]);

impl<'a> Types<'a> {
    /// `bytes` are OIDs in network order; what is left over of a last one is cut off.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.get(..bytes.len() / 4 * 4).unwrap_or_default())
    }

    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl Iterator for Types<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        text::take_u32(&mut self.0)
    }
}

/// The two names a `Bind` begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BindNames<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
    /// Where the rest of the body begins.
    pub rest: usize,
}

impl<'a> BindNames<'a> {
    /// `None` if the names do not end within `start`, which may be only the body's beginning.
    #[must_use]
    pub fn find(start: &'a [u8]) -> Option<Self> {
        let mut rest = start;
        let portal = text::take(&mut rest)?;
        let statement = text::take(&mut rest)?;
        Some(Self { portal, statement, rest: start.len() - rest.len() })
    }
}

/// What a name is a name of. The two do not know each other: both may hold the same name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Namespace {
    Statement,
    Portal,
}

/// `Describe` and `Close`: something with a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Named<'a> {
    pub kind: Namespace,
    pub name: &'a [u8],
}

impl<'a> Named<'a> {
    /// Read the body of a message with this tag.
    pub fn read(tag: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let (kind, mut rest) = body.split_first().ok_or_else(|| broken(tag))?;
        let kind = match kind {
            b'S' => Namespace::Statement,
            b'P' => Namespace::Portal,
            _ => return Err(broken(tag)),
        };
        let name = text::take(&mut rest).ok_or_else(|| broken(tag))?;
        if rest.is_empty() { Ok(Self { kind, name }) } else { Err(broken(tag)) }
    }
}

/// `Query`: text to be run at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Query<'a> {
    pub text: &'a [u8],
}

impl<'a> Query<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let text = whole(tag::client::QUERY, body)?;
        Ok(Self { text })
    }
}

/// `PasswordMessage`: a password in the clear, or its MD5 hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Password<'a> {
    pub text: &'a [u8],
}

impl<'a> Password<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let text = whole(tag::client::PASSWORD, body)?;
        Ok(Self { text })
    }
}

/// `SASLInitialResponse`. The body of a `SASLResponse` is the client's data and nothing else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SaslInitial<'a> {
    pub mechanism: &'a [u8],
    pub response: Option<&'a [u8]>,
}

impl<'a> SaslInitial<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::client::PASSWORD);
        let mechanism = text::take(&mut body).ok_or(error)?;
        let len = text::take_u32(&mut body).ok_or(error)?;
        // -1: no response comes with it.
        let response = if len == u32::MAX && body.is_empty() {
            None
        } else if usize::try_from(len) == Ok(body.len()) {
            Some(body)
        } else {
            return Err(error);
        };
        Ok(Self { mechanism, response })
    }
}

/// What a server wants next in a login, or that it is content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Authentication<'a> {
    Ok,
    Cleartext,
    Md5 {
        salt: [u8; 4],
    },
    Sasl {
        mechanisms: Strings<'a>,
    },
    SaslContinue {
        data: &'a [u8],
    },
    SaslFinal {
        data: &'a [u8],
    },
    /// Kerberos, GSS, SSPI and what is yet to come.
    Other {
        code: u32,
        body: &'a [u8],
    },
}

impl<'a> Authentication<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::server::AUTHENTICATION);
        let code = text::take_u32(&mut body).ok_or(error)?;
        Ok(match code {
            0 => Self::Ok,
            3 => Self::Cleartext,
            5 => Self::Md5 { salt: body.try_into().map_err(|_| error)? },
            10 => Self::Sasl { mechanisms: Strings(body) },
            11 => Self::SaslContinue { data: body },
            12 => Self::SaslFinal { data: body },
            _ => Self::Other { code, body },
        })
    }
}

/// `ParameterStatus`: a setting has this value now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParameterStatus<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> ParameterStatus<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::server::PARAMETER_STATUS);
        let name = text::take(&mut body).ok_or(error)?;
        let value = text::take(&mut body).ok_or(error)?;
        if body.is_empty() { Ok(Self { name, value }) } else { Err(error) }
    }
}

/// `DataRow`: the values of one row, in order; `None` is NULL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataRow<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> DataRow<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (count, rest) = body.split_first_chunk().ok_or(broken(tag::server::DATA_ROW))?;
        Ok(Self { left: u16::from_be_bytes(*count), rest })
    }
}

impl<'a> Iterator for DataRow<'a> {
    type Item = Result<Option<&'a [u8]>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let error = broken(tag::server::DATA_ROW);
        let Some((len, rest)) = self.rest.split_first_chunk() else { return Some(Err(error)) };
        self.rest = rest;
        let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) else { return Some(Ok(None)) };
        let Some((value, rest)) = rest.split_at_checked(len) else { return Some(Err(error)) };
        self.rest = rest;
        Some(Ok(Some(value)))
    }
}

/// `ParameterDescription`: the types of a statement's parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParameterDescription<'a> {
    pub types: Types<'a>,
}

impl<'a> ParameterDescription<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::server::PARAMETER_DESCRIPTION);
        // How many there are shows.
        text::take_u16(&mut body).ok_or(error)?;
        if body.len().is_multiple_of(4) { Ok(Self { types: Types(body) }) } else { Err(error) }
    }
}

/// `RowDescription`: the columns of a result, in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RowDescription<'a> {
    left: u16,
    rest: &'a [u8],
}

/// A column, so far as it does not depend on how values are sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Column<'a> {
    pub name: &'a [u8],
    /// The OID of its type.
    pub type_oid: u32,
    /// What its type is declared with, such as a length.
    pub modifier: u32,
}

impl<'a> RowDescription<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let count = text::take_u16(&mut body).ok_or(broken(tag::server::ROW_DESCRIPTION))?;
        Ok(Self { left: count, rest: body })
    }

    fn column(&mut self) -> Option<Column<'a>> {
        let rest = &mut self.rest;
        let name = text::take(rest)?;
        // Its table and its place in there.
        text::take_u32(rest)?;
        text::take_u16(rest)?;
        let type_oid = text::take_u32(rest)?;
        text::take_u16(rest)?;
        let modifier = text::take_u32(rest)?;
        text::take_u16(rest)?;
        Some(Column { name, type_oid, modifier })
    }
}

impl<'a> Iterator for RowDescription<'a> {
    type Item = Result<Column<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.column().ok_or(broken(tag::server::ROW_DESCRIPTION)))
    }
}

/// `BackendKeyData`: what a cancel request must show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackendKey<'a> {
    pub pid: u32,
    /// 4 to 256 bytes.
    pub key: &'a [u8],
}

impl<'a> BackendKey<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::server::BACKEND_KEY_DATA);
        let pid = text::take_u32(&mut body).ok_or(error)?;
        if key_fits(body) { Ok(Self { pid, key: body }) } else { Err(error) }
    }
}

/// The transaction status in a `ReadyForQuery`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Status {
    #[default]
    Idle,
    Transaction,
    /// In a transaction that can only be rolled back.
    Failed,
}

impl Status {
    #[inline]
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        match body {
            [b'I'] => Ok(Self::Idle),
            [b'T'] => Ok(Self::Transaction),
            [b'E'] => Ok(Self::Failed),
            other => Err(Malformed::TransactionStatus(other.first().copied().unwrap_or(0))),
        }
    }

    #[must_use]
    pub fn as_byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::Transaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// `CommandComplete`: which command it was, and how much it did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommandTag<'a> {
    pub text: &'a [u8],
}

impl<'a> CommandTag<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let text = whole(tag::server::COMMAND_COMPLETE, body)?;
        Ok(Self { text })
    }
}

/// `NegotiateProtocolVersion`: less than was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Negotiate<'a> {
    /// The newest version the server speaks: the number as in the startup packet, major and minor.
    pub version: u32,
    /// The `_pq_.` options it does not know.
    pub unknown: Strings<'a>,
}

impl<'a> Negotiate<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::server::NEGOTIATE);
        let version = text::take_u32(&mut body).ok_or(error)?;
        let count = text::take_u32(&mut body).ok_or(error)?;
        let unknown = Strings(body);
        if u32::try_from(unknown.count()) != Ok(count) {
            return Err(error);
        }
        Ok(Self { version, unknown })
    }
}

/// `NotificationResponse`: somebody said NOTIFY.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Notification<'a> {
    /// The process that notified.
    pub pid: u32,
    pub channel: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> Notification<'a> {
    pub fn read(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let error = broken(tag::server::NOTIFICATION);
        let pid = text::take_u32(&mut body).ok_or(error)?;
        let channel = text::take(&mut body).ok_or(error)?;
        let payload = text::take(&mut body).ok_or(error)?;
        Ok(Self { pid, channel, payload })
    }
}

/// A body that is one string.
fn whole(tag: u8, mut body: &[u8]) -> Result<&[u8], Malformed> {
    let text = text::take(&mut body).ok_or_else(|| broken(tag))?;
    if body.is_empty() { Ok(text) } else { Err(broken(tag)) }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::write;

    /// The body of the one message in `bytes`.
    fn body(bytes: &[u8]) -> &[u8] {
        &bytes[5..]
    }

    #[test]
    fn a_row_ends_where_it_says_or_is_broken() {
        let read = |body: &[u8]| {
            DataRow::read(body).and_then(Iterator::collect::<Result<Vec<_>, _>>).map(|v| v.len())
        };
        let row = b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0";
        let values: Result<Vec<_>, _> = DataRow::read(row).expect("a row").collect();
        assert_eq!(values, Ok(alloc::vec![Some(&b"a"[..]), None, Some(b"")]));
        for cut in 0..row.len() {
            assert!(read(&row[..cut]).is_err(), "cut at {cut}");
        }
        assert!(read(b"\0\x01\x7f\xff\xff\xff").is_err(), "a length without an end");
    }

    #[test]
    fn columns_end_where_they_say_or_are_broken() {
        let read = |body: &'static [u8]| {
            RowDescription::read(body).and_then(Iterator::collect::<Result<Vec<_>, _>>)
        };
        let body = b"\0\x01a\0\0\0\0\x09\0\x01\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        let column = Column { name: b"a", type_oid: 23, modifier: u32::MAX };
        assert_eq!(read(body), Ok(alloc::vec![column]));
        for cut in 0..body.len() {
            assert!(read(&body[..cut]).is_err(), "cut at {cut}");
        }
        let types = |body: &'static [u8]| ParameterDescription::read(body).map(|read| read.types);
        assert!(types(b"\0\x01\0\0\0\x19").is_ok_and(|types| types.eq([25])));
        assert!(types(b"\0\x01\0\0\0").is_err() && types(b"\0").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut out = Vec::new();
        write::client::parse(&mut out, b"s", b"select $1", &[0, 0, 0, 23]);
        let parse = Parse::read(body(&out)).expect("our own");
        assert_eq!((parse.name, parse.query), (&b"s"[..], &b"select $1"[..]));
        assert!(parse.types.eq([23]));

        out.clear();
        write::client::sasl_initial(&mut out, b"SCRAM-SHA-256", b"n,,");
        let sasl = SaslInitial::read(body(&out)).expect("our own");
        assert_eq!(sasl, SaslInitial { mechanism: b"SCRAM-SHA-256", response: Some(b"n,,") });

        out.clear();
        write::server::authentication_sasl(&mut out, &[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"]);
        let Ok(Authentication::Sasl { mechanisms }) = Authentication::read(body(&out)) else {
            panic!("not read: {out:?}")
        };
        assert!(mechanisms.eq([&b"SCRAM-SHA-256-PLUS"[..], b"SCRAM-SHA-256"]));

        out.clear();
        write::server::negotiate(&mut out, 3 << 16, [&b"_pq_.x"[..]]);
        let negotiate = Negotiate::read(body(&out)).expect("our own");
        assert_eq!(negotiate.version, 3 << 16);
        assert!(negotiate.unknown.eq([b"_pq_.x"]));
    }

    /// Whatever is cut off or hung on, nothing panics and nothing is half believed.
    #[test]
    fn bodies_cut_short_are_refused() {
        let parse = b"s\0select\0\0\x01\0\0\0\x17";
        for end in 0..parse.len() {
            assert!(Parse::read(&parse[..end]).is_err());
        }
        assert!(Parse::read(b"s\0select\0\0\0x").is_err(), "a byte too many");
        for bad in [&b""[..], b"S", b"Sx", b"Xx\0", b"Sx\0y"] {
            assert!(Named::read(b'D', bad).is_err(), "{bad:?}");
        }
        for bad in [&b""[..], b"x", b"x\0y"] {
            assert!(ParameterStatus::read(bad).is_err(), "{bad:?}");
        }
        for bad in [&b""[..], b"IT", b"X"] {
            assert!(Status::read(bad).is_err(), "{bad:?}");
        }
        assert!(SaslInitial::read(b"m\0\0\0\0\x05abc").is_err());
        assert_eq!(
            SaslInitial::read(b"m\0\xff\xff\xff\xff"),
            Ok(SaslInitial { mechanism: b"m", response: None })
        );
        assert!(BackendKey::read(&[0; 7]).is_err());
        assert!(BackendKey::read(&[0; 8]).is_ok());
        assert!(Authentication::read(b"\0\0\0\x05abc").is_err());
        assert!(Negotiate::read(b"\0\x03\0\0\0\0\0\x02a\0").is_err());
    }

    #[test]
    fn names_of_a_bind_are_found_once_they_are_there() {
        let start = b"portal\0statement\0\0\0";
        for end in 0..17 {
            assert_eq!(BindNames::find(&start[..end]), None);
        }
        let names = BindNames::find(start).expect("both names ended");
        assert_eq!(names, BindNames { portal: b"portal", statement: b"statement", rest: 17 });
    }
}
