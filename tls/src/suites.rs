//! Versions, ciphers and curves: what settings ask for in OpenSSL's terms, as far as rustls has it.

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

use crate::provider;

/// Which versions are left of those asked for. There may be none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Versions {
    pub(crate) tls12: bool,
    pub(crate) tls13: bool,
}

impl Versions {
    /// Of a value of `…_tls_protocols`. What is asked for and cannot be had is put into `lacking`.
    /// The error is the word that means nothing.
    pub(crate) fn read(text: &str, lacking: &mut Vec<String>) -> Result<Self, String> {
        let mut wanted = [false; 4];
        let words = text.split([',', ':', ' ']).filter(|word| !word.is_empty());
        for word in words {
            let (bare, yes) = match word.strip_prefix('!') {
                Some(bare) => (bare, false),
                None => (word, true),
            };
            let set: &[usize] = match bare.to_ascii_lowercase().as_str() {
                "tlsv1.0" => &[0],
                "tlsv1.1" => &[1],
                "tlsv1.2" => &[2],
                "tlsv1.3" => &[3],
                "tlsv1" | "all" | "legacy" => &[0, 1, 2, 3],
                "secure" | "default" => &[2, 3],
                _ => return Err(word.to_owned()),
            };
            set.iter().for_each(|at| wanted[*at] = yes);
        }
        let old = ["tlsv1.0", "tlsv1.1"].iter().zip(wanted).filter(|(_, wanted)| *wanted);
        lacking.extend(old.map(|(name, _)| (*name).to_owned()));
        Ok(Self { tls12: wanted[2], tls13: wanted[3] })
    }

    pub(crate) fn list(self) -> Vec<&'static SupportedProtocolVersion> {
        let both = [(&TLS13, self.tls13), (&TLS12, self.tls12)];
        both.into_iter().filter(|(_, wanted)| *wanted).map(|(version, _)| version).collect()
    }
}

/// Our suites of TLS 1.2, and what is said of them in cipher lists.
const OLD: &[(CipherSuite, &str, &[&str])] = &[
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        &["ECDSA", "AES256", "AES", "AESGCM"],
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384",
        &["RSA", "AES256", "AES", "AESGCM"],
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        &["ECDSA", "AES128", "AES", "AESGCM"],
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256",
        &["RSA", "AES128", "AES", "AESGCM"],
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        &["ECDSA", "CHACHA20"],
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305",
        &["RSA", "CHACHA20"],
    ),
];

/// What is said of all of them.
const ALL: &[&str] = &[
    "ALL",
    "DEFAULT",
    "COMPLEMENTOFDEFAULT",
    "HIGH",
    "FIPS",
    "TLSV1.2",
    "ECDHE",
    "EECDH",
    "KEECDH",
    "AEAD",
    "SECURE",
    "COMPAT",
    "LEGACY",
    "FAST",
    "NORMAL",
];

/// Our suites of TLS 1.3, by the names everybody uses.
const NEW: &[(CipherSuite, &str)] = &[
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
];

/// Suites of TLS 1.3 that OpenSSL has, and we do not.
const NEW_LACKING: &[&str] = &["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"];

/// The suites that a value of `…_tls_ciphers` leaves, in its order. The error: none.
pub(crate) fn old_suites(
    text: &str,
    lacking: &mut Vec<String>,
) -> Result<Vec<CipherSuite>, &'static str> {
    let mut chosen: Vec<CipherSuite> = Vec::new();
    for word in text.split([':', ',', ' ', ';']).filter(|word| !word.is_empty()) {
        let (bare, adds) = match word.strip_prefix(['!', '-']) {
            Some(bare) => (bare, false),
            None => (word.strip_prefix('+').unwrap_or(word), true),
        };
        // `@STRENGTH`, `@SECLEVEL=2`: ours are all strong.
        if bare.starts_with('@') {
            continue;
        }
        let meant: Vec<CipherSuite> = OLD
            .iter()
            .filter(|(_, name, kinds)| bare.split('+').all(|part| is_called(part, name, kinds)))
            .map(|(suite, _, _)| *suite)
            .collect();
        if !adds {
            // Whatever else it bars is barred already, since we do not have it.
            chosen.retain(|suite| !meant.contains(suite));
        } else if word.starts_with('+') {
            // To the end of the list.
            let moved: Vec<_> = chosen.iter().copied().filter(|s| meant.contains(s)).collect();
            chosen.retain(|suite| !moved.contains(suite));
            chosen.extend(moved);
        } else if meant.is_empty() {
            lacking.push(word.to_owned());
        } else {
            let fresh: Vec<_> = meant.into_iter().filter(|s| !chosen.contains(s)).collect();
            chosen.extend(fresh);
        }
    }
    if chosen.is_empty() { Err("no cipher match") } else { Ok(chosen) }
}

fn is_called(word: &str, name: &str, kinds: &[&str]) -> bool {
    let upper = word.to_ascii_uppercase();
    let upper = upper
        .strip_prefix('A')
        .filter(|rest| *rest == "ECDSA" || *rest == "RSA")
        .map_or(upper.as_str(), |rest| rest);
    upper == name || kinds.contains(&upper) || ALL.contains(&upper)
}

/// The suites that a value of `…_tls13_ciphers` leaves, in its order; all where it is empty. The
/// error: a name that means nothing, or none is left.
pub(crate) fn new_suites(text: &str, lacking: &mut Vec<String>) -> Result<Vec<CipherSuite>, ()> {
    let words: Vec<&str> = text.split([':', ',', ' ']).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Ok(NEW.iter().map(|(suite, _)| *suite).collect());
    }
    let mut chosen = Vec::new();
    for word in words {
        if let Some((suite, _)) = NEW.iter().find(|(_, name)| name.eq_ignore_ascii_case(word)) {
            chosen.push(*suite);
        } else if NEW_LACKING.iter().any(|name| name.eq_ignore_ascii_case(word)) {
            lacking.push(word.to_owned());
        } else {
            return Err(());
        }
    }
    if chosen.is_empty() { Err(()) } else { Ok(chosen) }
}

/// Curves by the names of OpenSSL, of NIST and of SECG.
const CURVES: &[(NamedGroup, &[&str])] = &[
    (NamedGroup::X25519, &["x25519"]),
    (NamedGroup::secp256r1, &["prime256v1", "secp256r1", "p-256", "p256"]),
    (NamedGroup::secp384r1, &["secp384r1", "p-384", "p384"]),
];

/// Curves that OpenSSL has, and we do not.
const CURVES_LACKING: &[&str] = &[
    "secp521r1",
    "p-521",
    "p521",
    "x448",
    "brainpoolp256r1",
    "brainpoolp384r1",
    "brainpoolp512r1",
];

/// The curves that a value of `client_tls_ecdhcurve` leaves; `None` is all. The error is the word
/// that means nothing, or that none is left.
pub(crate) fn curves(
    text: &str,
    lacking: &mut Vec<String>,
) -> Result<Option<Vec<NamedGroup>>, String> {
    let mut chosen = Vec::new();
    for word in text.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase();
        if lower == "auto" || lower == "none" {
            return Ok(None);
        }
        if let Some((group, _)) = CURVES.iter().find(|(_, names)| names.contains(&lower.as_str())) {
            chosen.push(*group);
        } else if CURVES_LACKING.contains(&lower.as_str()) {
            lacking.push(word.to_owned());
        } else {
            return Err(word.to_owned());
        }
    }
    match (chosen.is_empty(), text.trim().is_empty()) {
        (true, true) => Ok(None),
        (true, false) => Err(text.to_owned()),
        (false, _) => Ok(Some(chosen)),
    }
}

/// The provider with only these suites and curves, in this order.
pub(crate) fn provider_with(
    suites: &[CipherSuite],
    groups: Option<&[NamedGroup]>,
) -> CryptoProvider {
    let mut provider = provider::provider();
    let find = |wanted: &CipherSuite| -> Option<SupportedCipherSuite> {
        provider.cipher_suites.iter().find(|known| known.suite() == *wanted).copied()
    };
    let suites = suites.iter().filter_map(find).collect();
    if let Some(groups) = groups {
        let find = |wanted: &NamedGroup| -> Option<&'static dyn SupportedKxGroup> {
            provider.kx_groups.iter().find(|known| known.name() == *wanted).copied()
        };
        provider.kx_groups = groups.iter().filter_map(find).collect();
    }
    provider.cipher_suites = suites;
    provider
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_there_are_not_are_said() {
        let read = |text: &str| {
            let mut lacking = Vec::new();
            let versions = Versions::read(text, &mut lacking);
            (versions.map(|v| (v.tls12, v.tls13)), lacking.join(" "))
        };
        assert_eq!(read("secure"), (Ok((true, true)), String::new()));
        assert_eq!(read("tlsv1.3"), (Ok((false, true)), String::new()));
        assert_eq!(read("all,!tlsv1.3"), (Ok((true, false)), "tlsv1.0 tlsv1.1".to_owned()));
        assert_eq!(read("tlsv1.0"), (Ok((false, false)), "tlsv1.0".to_owned()));
        assert_eq!(read("tlsv1.2, tlsv9"), (Err("tlsv9".to_owned()), String::new()));
    }

    #[test]
    fn cipher_lists_are_mapped_as_far_as_they_go() {
        let read = |text: &str| {
            let mut lacking = Vec::new();
            let name = |suite: &CipherSuite| {
                OLD.iter().find(|(known, _, _)| known == suite).map_or("", |(_, name, _)| name)
            };
            let suites = old_suites(text, &mut lacking);
            let suites = suites.map(|s| s.iter().map(name).collect::<Vec<_>>().join(" "));
            (suites, lacking.join(" "))
        };
        for word in ["default", "secure", "compat", "legacy", "fast", "normal", "all"] {
            assert_eq!(read(word).0.map(|names| names.split(' ').count()), Ok(6), "{word}");
        }
        assert_eq!(
            read("ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA"),
            (Ok("ECDHE-RSA-AES128-GCM-SHA256".to_owned()), "AES128-SHA".to_owned())
        );
        assert_eq!(
            read("HIGH:!aNULL:!MD5:!AESGCM:@STRENGTH").0,
            Ok("ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-CHACHA20-POLY1305".to_owned())
        );
        assert_eq!(
            read("ECDHE+AESGCM:!aECDSA").0,
            Ok("ECDHE-RSA-AES256-GCM-SHA384 ECDHE-RSA-AES128-GCM-SHA256".to_owned())
        );
        assert_eq!(read("RC4-MD5").0, Err("no cipher match"));
    }

    #[test]
    fn suites_of_13_have_to_exist() {
        let mut lacking = Vec::new();
        assert_eq!(new_suites("", &mut lacking).map(|found| found.len()), Ok(3));
        assert_eq!(
            new_suites("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256", &mut lacking),
            Ok(vec![CipherSuite::TLS13_CHACHA20_POLY1305_SHA256])
        );
        assert_eq!(lacking, ["TLS_AES_128_CCM_SHA256"]);
        assert_eq!(new_suites("TLS_AES_128_CCM_SHA256", &mut lacking), Err(()));
        assert_eq!(new_suites("nonsense", &mut lacking), Err(()));
    }

    #[test]
    fn curves_go_by_many_names() {
        let mut lacking = Vec::new();
        assert_eq!(curves("auto", &mut lacking), Ok(None));
        assert_eq!(curves("P-521:prime256v1", &mut lacking), Ok(Some(vec![NamedGroup::secp256r1])));
        assert_eq!(lacking, ["P-521"]);
        assert_eq!(curves("X448", &mut lacking), Err("X448".to_owned()));
        assert_eq!(curves("round", &mut lacking), Err("round".to_owned()));
    }

    /// Every suite and curve that the tables name is one that rustls has.
    #[test]
    fn the_tables_promise_nothing() {
        let all: Vec<CipherSuite> =
            OLD.iter().map(|row| row.0).chain(NEW.iter().map(|row| row.0)).collect();
        let groups: Vec<NamedGroup> = CURVES.iter().map(|row| row.0).collect();
        let provider = provider_with(&all, Some(&groups));
        assert_eq!(provider.cipher_suites.len(), all.len());
        assert_eq!(provider.kx_groups.len(), groups.len());
        assert_eq!(provider::provider().cipher_suites.len(), all.len(), "and none is forgotten");
    }
}
