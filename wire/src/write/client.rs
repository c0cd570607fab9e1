//! What we say to servers, as their client.

use alloc::vec::Vec;

use super::{message, size, string, untagged};
use crate::tag::client as tag;
use crate::{CANCEL_CODE, Namespace, SSL_CODE};

/// The first packet of a session in protocol 3.`minor`.
pub fn startup<'a>(
    out: &mut Vec<u8>,
    minor: u16,
    parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) {
    untagged(out, |out| {
        out.extend_from_slice(&(3 << 16 | u32::from(minor)).to_be_bytes());
        for (name, value) in parameters {
            string(out, name);
            string(out, value);
        }
        out.push(0);
    });
}

pub fn ssl_request(out: &mut Vec<u8>) {
    untagged(out, |out| out.extend_from_slice(&SSL_CODE.to_be_bytes()));
}

/// `key` as it came in `BackendKeyData`.
pub fn cancel_request(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    untagged(out, |out| {
        out.extend_from_slice(&CANCEL_CODE.to_be_bytes());
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

/// A password in the clear, or its MD5 hash.
pub fn password(out: &mut Vec<u8>, text: &[u8]) {
    message(out, tag::PASSWORD, |out| string(out, text));
}

pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &[u8], response: &[u8]) {
    message(out, tag::PASSWORD, |out| {
        string(out, mechanism);
        size(out, response.len());
        out.extend_from_slice(response);
    });
}

pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    message(out, tag::PASSWORD, |out| out.extend_from_slice(data));
}

pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    message(out, tag::QUERY, |out| string(out, text));
}

/// `types` are type OIDs in network order.
pub fn parse(out: &mut Vec<u8>, name: &[u8], query: &[u8], types: &[u8]) {
    message(out, tag::PARSE, |out| {
        string(out, name);
        string(out, query);
        super::count(out, types.len() / 4);
        out.extend_from_slice(types);
    });
}

/// The portal and the statement without a name; `values` are text, and so will the result be.
pub fn bind_unnamed(out: &mut Vec<u8>, values: &[&[u8]]) {
    message(out, tag::BIND, |out| {
        string(out, b"");
        string(out, b"");
        super::count(out, 0);
        super::count(out, values.len());
        for value in values {
            size(out, value.len());
            out.extend_from_slice(value);
        }
        super::count(out, 0);
    });
}

/// A portal of a statement that takes no values; the result will be text.
pub fn bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8]) {
    message(out, tag::BIND, |out| {
        string(out, portal);
        string(out, statement);
        for _none in 0..3 {
            super::count(out, 0);
        }
    });
}

/// A portal, to its end.
pub fn execute(out: &mut Vec<u8>, portal: &[u8]) {
    message(out, tag::EXECUTE, |out| {
        string(out, portal);
        size(out, 0);
    });
}

pub fn describe(out: &mut Vec<u8>, kind: Namespace, name: &[u8]) {
    message(out, tag::DESCRIBE, |out| named(out, kind, name));
}

pub fn close(out: &mut Vec<u8>, kind: Namespace, name: &[u8]) {
    message(out, tag::CLOSE, |out| named(out, kind, name));
}

fn named(out: &mut Vec<u8>, kind: Namespace, name: &[u8]) {
    out.push(match kind {
        Namespace::Statement => b'S',
        Namespace::Portal => b'P',
    });
    string(out, name);
}

pub fn sync(out: &mut Vec<u8>) {
    message(out, tag::SYNC, |_| {});
}

pub fn terminate(out: &mut Vec<u8>) {
    message(out, tag::TERMINATE, |_| {});
}
