//! Certificates as people have them, and each reason not to believe one.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SigningKey,
};

use super::*;
use crate::certificate::{is_for, server_name};

/// Somebody with a key and a certificate.
struct Party {
    key: KeyPair,
    params: CertificateParams,
    der: CertificateDer<'static>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

impl Party {
    fn own(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { key, params, der }
    }

    fn by(params: CertificateParams, above: &Self) -> Self {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&above.params, &above.key);
        let der = params.signed_by(&key, &issuer).unwrap().der().clone();
        Self { key, params, der }
    }

    /// A certificate of version 1, valid for `days` from then on.
    fn old(name: &str, above: &Self, from: &str, to: &str) -> CertificateDer<'static> {
        let like = parse(&above.der).unwrap();
        let model = Self::by(params(name), above).der;
        let model = parse(&model).unwrap();
        let algorithm = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
        let times = [tlv(0x17, from.as_bytes()), tlv(0x17, to.as_bytes())].concat();
        let signed = tlv(
            0x30,
            &[
                &tlv(0x02, &[7]),
                &algorithm[..],
                like.subject().as_raw(),
                &tlv(0x30, &times),
                model.subject().as_raw(),
                model.tbs_certificate.subject_pki.raw,
            ]
            .concat(),
        );
        let mut signature = vec![0];
        signature.extend(above.key.sign(&signed).unwrap());
        let whole = [&signed[..], &algorithm[..], &tlv(0x03, &signature)].concat();
        CertificateDer::from(tlv(0x30, &whole))
    }
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..=127 => out.push(length as u8),
        length => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(content);
    out
}

const THEN: &str = "200101000000Z";
const SOON: &str = "490101000000Z";

fn now() -> UnixTime {
    // 2026.
    UnixTime::since_unix_epoch(Duration::from_secs(1_780_000_000))
}

fn judge(
    known: &[&CertificateDer<'static>],
    leaf: &CertificateDer<'_>,
    between: &[&CertificateDer<'static>],
) -> Result<(), CertificateError> {
    let trust = Trust::new(known.iter().map(|der| (*der).clone()).collect()).unwrap();
    let between: Vec<_> = between.iter().map(|der| (*der).clone()).collect();
    trust.check(leaf, &between, now(), Purpose::Server)
}

fn why(result: Result<(), CertificateError>) -> String {
    format!("{:?}", result.expect_err("it was believed"))
}

#[test]
fn what_an_authority_signed_is_believed() {
    let ca = Party::own(authority("ca"));
    let leaf = Party::by(params("leaf"), &ca);
    assert_eq!(judge(&[&ca.der], &leaf.der, &[]), Ok(()));
    let middle = Party::by(authority("middle"), &ca);
    let leaf = Party::by(params("leaf"), &middle);
    assert_eq!(judge(&[&ca.der], &leaf.der, &[&middle.der]), Ok(()));
    assert!(why(judge(&[&ca.der], &leaf.der, &[])).contains("UnknownIssuer"));
}

#[test]
fn who_nobody_knows_is_not_believed() {
    let (ca, other) = (Party::own(authority("ca")), Party::own(authority("ca")));
    // Of the same name, and with another key.
    let leaf = Party::by(params("leaf"), &other);
    let said = why(judge(&[&ca.der], &leaf.der, &[&other.der]));
    assert!(said.contains("BadSignature") || said.contains("UnknownIssuer"), "{said}");
    let old = Party::old("leaf", &other, THEN, SOON);
    assert!(why(judge(&[&ca.der], &old, &[&other.der])).contains("BadSignature"));
    let alone = Party::own(params("leaf"));
    assert!(why(judge(&[&ca.der], &alone.der, &[])).contains("UnknownIssuer"));
    assert!(why(judge(&[&ca.der], &alone.der, &[&alone.der])).contains("UnknownIssuer"));
    let alone = Party::own(authority("leaf"));
    assert!(why(judge(&[&ca.der], &alone.der, &[&alone.der])).contains("UnknownIssuer"));
}

/// As `openssl req -x509` makes them, with the mark of an authority and without.
#[test]
fn a_self_signed_one_in_the_file_is_its_own_authority() {
    for params in [params("leaf"), authority("leaf")] {
        let alone = Party::own(params);
        assert_eq!(judge(&[&alone.der], &alone.der, &[]), Ok(()));
    }
}

/// But it vouches for nobody, if it does not say that it may.
#[test]
fn a_leaf_in_the_file_is_no_authority() {
    let alone = Party::own(params("leaf"));
    let other = Party::by(params("other"), &alone);
    assert!(why(judge(&[&alone.der], &other.der, &[])).contains("UnknownIssuer"));
    let old = Party::old("other", &alone, THEN, SOON);
    assert!(why(judge(&[&alone.der], &old, &[])).contains("UnknownIssuer"));
}

/// What `openssl x509 -req` makes without an extension file.
#[test]
fn version_1_is_believed() {
    let ca = Party::own(authority("ca"));
    let old = Party::old("leaf", &ca, THEN, SOON);
    assert_eq!(parse(&old).unwrap().version(), X509Version::V1);
    assert_eq!(judge(&[&ca.der], &old, &[]), Ok(()));
    let middle = Party::by(authority("middle"), &ca);
    let old = Party::old("leaf", &middle, THEN, SOON);
    assert_eq!(judge(&[&ca.der], &old, &[&middle.der]), Ok(()));
}

#[test]
fn version_1_is_looked_at_no_less_closely() {
    let ca = Party::own(authority("ca"));
    let late = Party::old("leaf", &ca, THEN, "250101000000Z");
    assert!(why(judge(&[&ca.der], &late, &[])).contains("Expired"));
    let early = Party::old("leaf", &ca, "480101000000Z", SOON);
    assert!(why(judge(&[&ca.der], &early, &[])).contains("NotValidYet"));
    let mut bent = Party::old("leaf", &ca, THEN, SOON).to_vec();
    let at = bent.windows(4).position(|window| window == b"leaf").unwrap();
    bent[at] = b'L';
    assert!(why(judge(&[&ca.der], &bent.into(), &[])).contains("BadSignature"));
    // In between stands one that is no authority.
    let middle = Party::by(params("middle"), &ca);
    let old = Party::old("leaf", &middle, THEN, SOON);
    assert!(why(judge(&[&ca.der], &old, &[&middle.der])).contains("invalid CA"));
    // Or one that may not have another below it.
    let mut short = authority("short");
    short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = Party::by(short, &ca);
    let below = Party::by(authority("below"), &short);
    let old = Party::old("leaf", &below, THEN, SOON);
    assert!(why(judge(&[&ca.der], &old, &[&below.der, &short.der])).contains("path length"));
    // Or one of version 1: nothing says that it may.
    let ancient = Party::old("ancient", &ca, THEN, SOON);
    assert!(judge(&[&ca.der], &Party::old("leaf", &ca, THEN, SOON), &[&ancient]).is_ok());
}

#[test]
fn what_is_late_or_for_something_else_is_not_believed() {
    let ca = Party::own(authority("ca"));
    let mut late = params("leaf");
    late.not_after = rcgen::date_time_ymd(2025, 1, 1);
    assert!(why(judge(&[&ca.der], &Party::by(late, &ca).der, &[])).contains("Expired"));
    let mut early = params("leaf");
    early.not_before = rcgen::date_time_ymd(2048, 1, 1);
    assert!(why(judge(&[&ca.der], &Party::by(early, &ca).der, &[])).contains("NotValidYet"));
    let mut client = params("leaf");
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = Party::by(client, &ca);
    assert!(why(judge(&[&ca.der], &client.der, &[])).contains("InvalidPurpose"));
    let middle = Party::by(params("middle"), &ca);
    let leaf = Party::by(params("leaf"), &middle);
    assert!(why(judge(&[&ca.der], &leaf.der, &[&middle.der])).contains("invalid CA"));
    // The authority itself is too old.
    let mut gone = authority("gone");
    gone.not_after = rcgen::date_time_ymd(2025, 1, 1);
    let gone = Party::own(gone);
    let leaf = Party::by(params("leaf"), &gone);
    assert!(why(judge(&[&gone.der], &leaf.der, &[])).contains("Expired"));
    assert!(why(judge(&[&gone.der], &gone.der, &[])).contains("Expired"));
}

#[test]
fn nonsense_is_not_believed() {
    let ca = Party::own(authority("ca"));
    for bytes in [&b""[..], b"\x30", b"\x30\x82\xff\xff", &ca.der[..ca.der.len() - 1]] {
        let leaf = CertificateDer::from(bytes.to_vec());
        assert!(why(judge(&[&ca.der], &leaf, &[])).contains("BadEncoding"));
    }
    assert!(Trust::new(vec![CertificateDer::from(vec![1])]).is_err());
}

/// As libpq has it: by alternative names, and by the common name where there are none of the kind.
#[test]
fn names_are_compared_as_libpq_does() {
    let with = |names: &[&str], cn: &str| {
        let mut params =
            CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
                .unwrap();
        params.distinguished_name = params_of(cn);
        Party::own(params).der
    };
    for (names, cn, host, want) in [
        (&[][..], "db.example.com", "db.example.com", true),
        (&[], "*.example.com", "db.example.com", true),
        (&[], "db.example.com", "other.example.com", false),
        (&["db.example.com"], "x", "db.example.com", true),
        (&["db.example.com"], "other.example.com", "other.example.com", false),
        (&["127.0.0.1"], "x", "127.0.0.1", true),
        (&["127.0.0.1"], "x", "127.0.0.2", false),
        (&["127.0.0.1"], "127.0.0.2", "127.0.0.2", false),
        (&["::1"], "x", "::1", true),
        (&["127.0.0.1"], "db.example.com", "db.example.com", true),
        (&[], "127.0.0.1", "127.0.0.1", true),
    ] {
        let der = with(names, cn);
        let certificate = parse(&der).unwrap();
        assert_eq!(is_for(&certificate, &server_name(host)), want, "{names:?} {cn} {host}");
    }
}

fn params_of(cn: &str) -> rcgen::DistinguishedName {
    let mut name = rcgen::DistinguishedName::new();
    name.push(DnType::CommonName, cn);
    name
}
