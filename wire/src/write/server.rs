//! What we say to clients, as their server.

use alloc::vec::Vec;

use super::{count, message, size, string};
use crate::tag::server as tag;
use crate::{Report, Status};

pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication(out, 0, |_| {});
}

pub fn authentication_cleartext(out: &mut Vec<u8>) {
    authentication(out, 3, |_| {});
}

pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication(out, 5, |out| out.extend_from_slice(&salt));
}

pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&[u8]]) {
    authentication(out, 10, |out| {
        for mechanism in mechanisms {
            string(out, mechanism);
        }
        out.push(0);
    });
}

pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 11, |out| out.extend_from_slice(data));
}

pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 12, |out| out.extend_from_slice(data));
}

fn authentication(out: &mut Vec<u8>, code: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    message(out, tag::AUTHENTICATION, |out| {
        out.extend_from_slice(&code.to_be_bytes());
        fill(out);
    });
}

pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    message(out, tag::PARAMETER_STATUS, |out| {
        string(out, name);
        string(out, value);
    });
}

/// `key` has 4 bytes in protocol 3.0, up to 256 in 3.2.
pub fn backend_key_data(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    message(out, tag::BACKEND_KEY_DATA, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

pub fn ready_for_query(out: &mut Vec<u8>, status: Status) {
    message(out, tag::READY_FOR_QUERY, |out| out.push(status.as_byte()));
}

pub fn error_response(out: &mut Vec<u8>, report: &Report<'_>) {
    message(out, tag::ERROR, |out| report.write(out));
}

pub fn notice_response(out: &mut Vec<u8>, report: &Report<'_>) {
    message(out, tag::NOTICE, |out| report.write(out));
}

/// `version` is the newest we speak, as in a startup packet (`3 << 16 | minor`).
pub fn negotiate<'a>(
    out: &mut Vec<u8>,
    version: u32,
    unknown: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
) {
    let unknown = unknown.into_iter();
    message(out, tag::NEGOTIATE, |out| {
        out.extend_from_slice(&version.to_be_bytes());
        size(out, unknown.clone().count());
        for option in unknown {
            string(out, option);
        }
    });
}

/// A column of a [`row_description`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Column<'a> {
    pub name: &'a [u8],
    pub type_oid: u32,
    /// Bytes of a value; negative where it varies.
    pub type_len: i16,
}

/// Columns of no table, in text format.
pub fn row_description(out: &mut Vec<u8>, columns: &[Column<'_>]) {
    message(out, tag::ROW_DESCRIPTION, |out| {
        count(out, columns.len());
        for column in columns {
            string(out, column.name);
            // Table and column number: none.
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&column.type_oid.to_be_bytes());
            out.extend_from_slice(&column.type_len.to_be_bytes());
            // Type modifier: none.
            out.extend_from_slice(&u32::MAX.to_be_bytes());
            // Format: text.
            out.extend_from_slice(&[0; 2]);
        }
    });
}

/// One row; `None` is NULL.
pub fn data_row(out: &mut Vec<u8>, values: &[Option<&[u8]>]) {
    message(out, tag::DATA_ROW, |out| {
        count(out, values.len());
        for value in values {
            if let Some(value) = value {
                size(out, value.len());
                out.extend_from_slice(value);
            } else {
                out.extend_from_slice(&u32::MAX.to_be_bytes());
            }
        }
    });
}

pub fn command_complete(out: &mut Vec<u8>, text: &[u8]) {
    message(out, tag::COMMAND_COMPLETE, |out| string(out, text));
}

pub fn parse_complete(out: &mut Vec<u8>) {
    message(out, tag::PARSE_COMPLETE, |_| {});
}

pub fn bind_complete(out: &mut Vec<u8>) {
    message(out, tag::BIND_COMPLETE, |_| {});
}

pub fn close_complete(out: &mut Vec<u8>) {
    message(out, tag::CLOSE_COMPLETE, |_| {});
}

pub fn no_data(out: &mut Vec<u8>) {
    message(out, tag::NO_DATA, |_| {});
}

pub fn empty_query_response(out: &mut Vec<u8>) {
    message(out, tag::EMPTY_QUERY, |_| {});
}

pub fn parameter_description(out: &mut Vec<u8>, types: &[u32]) {
    message(out, tag::PARAMETER_DESCRIPTION, |out| {
        count(out, types.len());
        for oid in types {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_laid_out_as_the_protocol_says() {
        let mut out = Vec::new();
        row_description(&mut out, &[Column { name: b"n", type_oid: 23, type_len: 4 }]);
        assert_eq!(out, b"T\0\0\0\x1a\0\x01n\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
        out.clear();
        data_row(&mut out, &[Some(b"7"), None]);
        assert_eq!(out, b"D\0\0\0\x0f\0\x02\0\0\0\x017\xff\xff\xff\xff");
    }

    #[test]
    fn an_error_has_the_fields_it_was_given() {
        let mut out = Vec::new();
        let report =
            Report { severity: b"FATAL", code: b"08P01", message: b"no", ..Report::default() };
        error_response(&mut out, &report);
        assert_eq!(out, b"E\0\0\0\x17SFATAL\0C08P01\0Mno\0\0");
    }

    /// A zero byte inside would begin a second value.
    #[test]
    fn strings_cannot_hold_a_zero() {
        let mut out = Vec::new();
        parameter_status(&mut out, b"a", b"x\0y");
        assert_eq!(out, b"S\0\0\0\x08a\0x\0");
    }
}
