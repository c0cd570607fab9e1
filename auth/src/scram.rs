//! SCRAM-SHA-256 (RFC 5802, RFC 7677): its messages and its arithmetic, for both sides.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use ::hmac::{Hmac, KeyInit as _, Mac as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// The mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";

/// The same with channel binding. It may only be named where there is TLS to bind to.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// More than this a server may not ask of us: it would be an attack, or take minutes.
pub const ITERATIONS_MAX: u32 = 10_000_000;

/// Eighteen random bytes, as PostgreSQL uses: they make 24 characters of base64.
pub type Nonce = [u8; 18];

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub(crate) fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// The client's proof, from its key; and, since it is a sum, its key from the proof.
pub(crate) fn proof(key: &[u8; 32], stored_key: &[u8; 32], auth_message: &str) -> [u8; 32] {
    let mut proof = hmac(stored_key, &[auth_message.as_bytes()]);
    for (left, right) in proof.iter_mut().zip(key) {
        *left ^= right;
    }
    proof
}

pub(crate) fn server_signature(server_key: &[u8; 32], auth_message: &str) -> [u8; 32] {
    hmac(server_key, &[auth_message.as_bytes()])
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `SASLprep` as libpq does it: what cannot be prepared (not UTF-8, forbidden characters, nothing
/// left) is taken as it is, since both ends will do so.
pub(crate) fn prepare(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let prepared = str::from_utf8(password).ok().and_then(|text| stringprep::saslprep(text).ok());
    Zeroizing::new(match prepared {
        Some(Cow::Borrowed(text)) if !text.is_empty() => text.as_bytes().to_vec(),
        Some(Cow::Owned(text)) if !text.is_empty() => text.into_bytes(),
        _ => password.to_vec(),
    })
}

/// A decimal number from 1 to 2³¹-1, in digits only.
pub(crate) fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok()? } else { return None };
    (1..=i32::MAX.unsigned_abs()).contains(&number).then_some(number)
}

/// `n,,n=,r=<nonce>`: the client opens.
pub(crate) struct ClientFirst<'a> {
    pub(crate) header: Gs2,
    /// The message after the header, as it goes into the proof.
    pub(crate) bare: &'a str,
    pub(crate) nonce: &'a str,
}

/// What the client says of channel binding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Gs2 {
    /// `n`: it cannot.
    No,
    /// `y`: it could, and believes that we cannot. Once we offer it, a `y` means that somebody in
    /// between took the offer away, and must be refused.
    Unoffered,
    /// `p=tls-server-end-point`: its proof covers the server's certificate.
    Bound,
}

impl Gs2 {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::No => "n,,",
            Self::Unoffered => "y,,",
            Self::Bound => "p=tls-server-end-point,,",
        }
    }
}

impl<'a> ClientFirst<'a> {
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Broken> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or(Broken("client-first without header"))?;
        let header = match flag {
            "n" => Gs2::No,
            "y" => Gs2::Unoffered,
            "p=tls-server-end-point" => Gs2::Bound,
            _ if flag.starts_with("p=") => return Err(Broken("unsupported channel-binding type")),
            _ => return Err(Broken("unknown channel-binding flag")),
        };
        let (authzid, bare) = rest.split_once(',').ok_or(Broken("client-first ends early"))?;
        if !authzid.is_empty() {
            return Err(Broken("authorization identities are not supported"));
        }
        if bare.starts_with("m=") {
            return Err(Broken("the client requires an unknown extension"));
        }
        let mut attributes = Attributes(Some(bare));
        // PostgreSQL goes by the name in the startup packet; this one is read past.
        attributes.take('n')?;
        let nonce = attributes.take('r')?;
        printable(nonce)?;
        attributes.ignore_rest()?;
        Ok(Self { header, bare, nonce })
    }
}

/// `r=<both nonces>,s=<salt>,i=<iterations>`: the server's question.
pub(crate) struct ServerFirst<'a> {
    pub(crate) nonce: &'a str,
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Broken> {
        let mut attributes = Attributes(Some(text(message)?));
        let nonce = attributes.take('r')?;
        printable(nonce)?;
        let salt = STANDARD.decode(attributes.take('s')?).map_err(|_| Broken("bad base64"))?;
        if salt.is_empty() {
            return Err(Broken("empty salt"));
        }
        let iterations = number(attributes.take('i')?).ok_or(Broken("bad iteration count"))?;
        attributes.ignore_rest()?;
        Ok(Self { nonce, salt, iterations })
    }
}

/// `c=<header>,r=<both nonces>,p=<proof>`: the client answers.
pub(crate) struct ClientFinal<'a> {
    /// Base64 of the header it opened with.
    pub(crate) binding: &'a str,
    pub(crate) nonce: &'a str,
    /// The message up to the proof, as it goes into the proof.
    pub(crate) without_proof: &'a str,
    pub(crate) proof: [u8; 32],
}

impl<'a> ClientFinal<'a> {
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Broken> {
        // The proof comes last, after any extensions.
        let (without_proof, proof) =
            text(message)?.rsplit_once(",p=").ok_or(Broken("client-final without proof"))?;
        let mut attributes = Attributes(Some(without_proof));
        let (binding, nonce) = (attributes.take('c')?, attributes.take('r')?);
        attributes.ignore_rest()?;
        Ok(Self { binding, nonce, without_proof, proof: key(proof)? })
    }
}

/// `v=<signature>`: the server proves that it knew the verifier. Or `e=<why not>`.
pub(crate) enum ServerFinal {
    Signature([u8; 32]),
    Error,
}

impl ServerFinal {
    pub(crate) fn parse(message: &[u8]) -> Result<Self, Broken> {
        let mut attributes = Attributes(Some(text(message)?));
        if attributes.0.is_some_and(|text| text.starts_with("e=")) {
            return Ok(Self::Error);
        }
        let signature = key(attributes.take('v')?)?;
        attributes.ignore_rest()?;
        Ok(Self::Signature(signature))
    }
}

/// What is left of a list of `name=value`, split by commas. `None` after the last.
struct Attributes<'a>(Option<&'a str>);

impl<'a> Attributes<'a> {
    /// The next attribute, which must be `name`.
    fn take(&mut self, name: char) -> Result<&'a str, Broken> {
        let (found, value) = self.next()?.ok_or(Broken("an attribute is missing"))?;
        if found == name { Ok(value) } else { Err(Broken("attributes out of order")) }
    }

    /// Extensions nobody knows: they must be well formed, and mean nothing.
    fn ignore_rest(&mut self) -> Result<(), Broken> {
        while self.next()?.is_some() {}
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(char, &'a str)>, Broken> {
        let Some(text) = self.0 else { return Ok(None) };
        let (attribute, rest) = match text.split_once(',') {
            Some((attribute, rest)) => (attribute, Some(rest)),
            None => (text, None),
        };
        self.0 = rest;
        let mut chars = attribute.chars();
        match (chars.next(), chars.next()) {
            (Some(name), Some('=')) if name.is_ascii_alphabetic() => {
                Ok(Some((name, chars.as_str())))
            }
            _ => Err(Broken("not an attribute")),
        }
    }
}

/// A SCRAM message that cannot be read, and why. For the log: the peer is told nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Broken(pub(crate) &'static str);

fn text(message: &[u8]) -> Result<&str, Broken> {
    match str::from_utf8(message) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Broken("not text")),
    }
}

/// Nonces are printable ASCII without the comma (RFC 5802, section 7).
fn printable(nonce: &str) -> Result<(), Broken> {
    let ok = !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic());
    if ok { Ok(()) } else { Err(Broken("bad nonce")) }
}

fn key(base64: &str) -> Result<[u8; 32], Broken> {
    let bytes = STANDARD.decode(base64).map_err(|_| Broken("bad base64"))?;
    bytes.try_into().map_err(|_| Broken("a key of the wrong length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Origin;
    use crate::{Job, Password};

    /// RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc_comes_out() {
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let client_first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").expect("read");
        let question = ServerFirst::parse(server_first.as_bytes()).expect("read");
        let client_final = ClientFinal::parse(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
              p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        )
        .expect("read");
        let said = [client_first.bare, server_first, client_final.without_proof].join(",");

        let password = Password::new(b"pencil");
        let (salt, iterations) = (&question.salt, question.iterations);
        let keys = Job::new(b"user", password, salt, iterations, Origin::Stored).run();

        let proof = proof(&keys.client_key, &keys.stored_key(), &said);
        assert_eq!(proof, client_final.proof);
        let signature = base64(&server_signature(&keys.server_key, &said));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    /// libpq skips what it cannot prepare; what it can, it normalises.
    #[test]
    fn passwords_are_prepared_as_libpq_does() {
        for (password, prepared) in [
            (&b"plain"[..], &b"plain"[..]),
            ("I\u{AD}X".as_bytes(), b"IX"),
            ("\u{AA}".as_bytes(), b"a"),
            ("a\u{A0}b".as_bytes(), b"a b"),
            (b"bell\x07", b"bell\x07"),
            (b"\xff\xfe", b"\xff\xfe"),
            ("\u{AD}".as_bytes(), "\u{AD}".as_bytes()),
            (b"", b""),
        ] {
            assert_eq!(*prepare(password), prepared, "{password:?}");
        }
    }

    #[test]
    fn an_opening_is_read_strictly() {
        for good in [
            "p=tls-server-end-point,,n=,r=abc",
            "n,,n=,r=abc",
            "y,,n=*,r=!~",
            "n,,n=joe,r=a=b,x=1,Y=",
        ] {
            assert!(ClientFirst::parse(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=",
            "n,,n=,",
            "n,,n=,r",
            "n,,n=,r=",
            "n,,r=abc",
            "x,,n=,r=abc",
            "p=tls-unique,,n=,r=abc",
            "n,a=joe,n=,r=abc",
            "n,,m=x,n=,r=abc",
            "n,,n=,r=a b",
            "n,,n=,r=abc,",
            "n,,n=,r=abc,x",
            "n,,n=,r=abc,=1",
            "n,,n=,r=ab\0",
            "n,,n=,r=é",
        ] {
            assert!(ClientFirst::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(ClientFirst::parse(b"n,,n=,r=\xff").is_err());
    }

    #[test]
    fn iterations_are_plain_positive_numbers() {
        for (text, value) in
            [("1", Some(1)), ("4096", Some(4096)), ("2147483647", Some(0x7fff_ffff))]
        {
            assert_eq!(number(text), value);
        }
        for text in ["", "0", "-1", "+1", " 1", "1x", "2147483648", "4294967297", "99999999999999"]
        {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
