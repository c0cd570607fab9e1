//! The first packet of a connection: it has no tag, and says which protocol the rest speaks.

use crate::{Malformed, text};

/// Shortest first packet: its length and a version.
pub const PACKET_MIN: usize = 8;
/// Longest first packet: `MAX_STARTUP_PACKET_LENGTH` (10,000) counts without the length itself.
pub const PACKET_MAX: usize = 10_004;
/// First byte of a TLS handshake record: a client that starts TLS without asking first.
pub const TLS_HANDSHAKE: u8 = 0x16;

pub const CANCEL_CODE: u32 = 1234 << 16 | 5678;
pub const SSL_CODE: u32 = 1234 << 16 | 5679;
pub const GSS_CODE: u32 = 1234 << 16 | 5680;

/// What a first packet asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Startup<'a> {
    SslRequest,
    GssEncRequest,
    CancelRequest {
        pid: u32,
        /// 4 to 256 bytes.
        key: &'a [u8],
    },
    /// Protocol 3: a session, to be spoken in this minor version if we can.
    V3 {
        minor: u16,
        parameters: Parameters<'a>,
    },
    /// Protocol 2, or one we have never heard of.
    Unknown {
        major: u16,
        minor: u16,
    },
}

/// How long the first packet is, its length field included; `None` while that is not known.
///
/// A first byte of [`TLS_HANDSHAKE`] must have been looked for before: here it is a length.
pub fn first_packet(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(len) = bytes.first_chunk::<4>() else {
        // A length whose first byte is not zero is refused before the rest has come.
        return if bytes.first().is_some_and(|byte| *byte != 0) {
            Err(Malformed::Startup)
        } else {
            Ok(None)
        };
    };
    let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| Malformed::Startup)?;
    if (PACKET_MIN..=PACKET_MAX).contains(&len) { Ok(Some(len)) } else { Err(Malformed::Startup) }
}

/// Whether a cancel key has a length the protocol allows: 4 until 3.0, up to 256 since 3.2.
#[must_use]
pub fn key_fits(key: &[u8]) -> bool {
    (4..=256).contains(&key.len())
}

impl<'a> Startup<'a> {
    /// Read a whole first packet, as long as [`first_packet`] said.
    pub fn read(packet: &'a [u8]) -> Result<Self, Malformed> {
        if first_packet(packet)? != Some(packet.len()) {
            return Err(Malformed::Startup);
        }
        let mut rest = packet.get(4..).ok_or(Malformed::Startup)?;
        let code = text::take_u32(&mut rest).ok_or(Malformed::Startup)?;
        match code {
            SSL_CODE if rest.is_empty() => Ok(Self::SslRequest),
            GSS_CODE if rest.is_empty() => Ok(Self::GssEncRequest),
            SSL_CODE | GSS_CODE => Err(Malformed::Startup),
            CANCEL_CODE => {
                let pid = text::take_u32(&mut rest).ok_or(Malformed::Startup)?;
                if !key_fits(rest) {
                    return Err(Malformed::Startup);
                }
                Ok(Self::CancelRequest { pid, key: rest })
            }
            _ => {
                // Both halves of a u32: they fit.
                let (major, minor) = ((code >> 16) as u16, code as u16);
                if major != 3 {
                    return Ok(Self::Unknown { major, minor });
                }
                Ok(Self::V3 { minor, parameters: Parameters::read(rest)? })
            }
        }
    }
}

/// Names and values of a startup packet, in the client's order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parameters<'a>(&'a [u8]);

impl<'a> Parameters<'a> {
    /// As PostgreSQL checks it: pairs of strings, then an empty name as the very last byte.
    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = body;
        while rest.first().is_some_and(|byte| *byte != 0) {
            let name = text::take(&mut rest);
            let value = text::take(&mut rest);
            if name.is_none() || value.is_none() {
                return Err(Malformed::Startup);
            }
        }
        if rest.len() == 1 { Ok(Self(body)) } else { Err(Malformed::Startup) }
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let name = text::take(&mut self.0).filter(|name| !name.is_empty())?;
        Some((name, text::take(&mut self.0)?))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::write;

    fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&u32::try_from(rest.len() + 8).expect("short").to_be_bytes());
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn a_session_tells_its_parameters_in_order() {
        let mut bytes = Vec::new();
        write::client::startup(&mut bytes, 2, [(&b"user"[..], &b"ann"[..]), (b"options", b"")]);
        assert_eq!(first_packet(&bytes[..4]), Ok(Some(bytes.len())));
        let Ok(Startup::V3 { minor, parameters }) = Startup::read(&bytes) else {
            panic!("not read: {bytes:?}")
        };
        assert_eq!(minor, 2);
        assert!(parameters.eq([(&b"user"[..], &b"ann"[..]), (b"options", b"")]));
    }

    #[test]
    fn a_layout_postgres_refuses_is_refused() {
        let v3 = 3 << 16;
        for rest in
            [&b""[..], b"user\0ann\0", b"user\0\0", b"user\0", b"user", b"\0\0", b"a\0b\0\0x"]
        {
            assert_eq!(Startup::read(&packet(v3, rest)), Err(Malformed::Startup), "{rest:?}");
        }
        assert!(Startup::read(&packet(v3, b"\0")).is_ok());
        assert!(Startup::read(&packet(v3, b"a\0\0\0")).is_ok(), "a value may be empty");
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        for len in [0_u32, 7, 10_005, u32::MAX] {
            assert_eq!(first_packet(&len.to_be_bytes()), Err(Malformed::Startup));
        }
        assert_eq!(first_packet(&[TLS_HANDSHAKE]), Err(Malformed::Startup));
        assert_eq!(first_packet(&[0, 0, 39]), Ok(None));
        assert_eq!(first_packet(&10_004_u32.to_be_bytes()), Ok(Some(10_004)));
    }

    #[test]
    fn requests_are_told_apart() {
        assert_eq!(Startup::read(&packet(SSL_CODE, b"")), Ok(Startup::SslRequest));
        assert_eq!(Startup::read(&packet(GSS_CODE, b"")), Ok(Startup::GssEncRequest));
        assert_eq!(Startup::read(&packet(SSL_CODE, b"x")), Err(Malformed::Startup));
        let v2 = Startup::Unknown { major: 2, minor: 0 };
        assert_eq!(Startup::read(&packet(2 << 16, b"anything")), Ok(v2));
    }

    #[test]
    fn cancel_keys_have_4_to_256_bytes() {
        for (len, fits) in [(3, false), (4, true), (32, true), (256, true), (257, false)] {
            let mut rest = Vec::from([0, 0, 0, 9]);
            rest.resize(4 + len, 7);
            let bytes = packet(CANCEL_CODE, &rest);
            let read = Startup::read(&bytes);
            assert_eq!(read.is_ok(), fits, "{len}");
            if fits {
                assert_eq!(read, Ok(Startup::CancelRequest { pid: 9, key: &rest[4..] }));
            }
        }
    }
}
