//! A directory: where LDAP is asked about a user, and how the name goes into the question.

use alloc::borrow::Cow;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use percent_encoding::percent_decode_str;

/// The options of `ldap` in a rule of `auth_hba_file`, or of `auth_ldap_options`.
#[derive(Clone, Eq, PartialEq)]
pub struct Directory {
    pub servers: Servers,
    /// Whether StartTLS comes first.
    pub start_tls: bool,
    how: How,
}

/// Where the directory is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Servers {
    /// `ldap://host:port`, in the order in which they are to be tried. Never empty.
    Named(Vec<String>),
    /// Those that SRV records of `_ldap._tcp` in this domain name.
    Of { domain: String, scheme: &'static str },
}

/// How a name becomes an entry of the directory.
#[derive(Clone, Eq, PartialEq)]
enum How {
    /// It stands between these two.
    Direct { prefix: String, suffix: String },
    /// It is searched for.
    Search { base: String, bind_dn: String, bind_password: String, scope: Scope, filter: String },
}

/// How far below its base a search looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    Base,
    One,
    Subtree,
}

/// What a directory is to be asked about one user.
#[derive(Clone, Eq, PartialEq)]
pub enum Inquiry {
    /// Bind as this, with the user's password.
    Bind { dn: String },
    /// Bind with these, find the one entry, and bind as that with the user's password.
    Search { bind_dn: String, bind_password: String, base: String, scope: Scope, filter: String },
}

/// Where the name goes in `ldapsearchfilter`.
const PLACE: &str = "$username";

impl Directory {
    /// Reads options as they stand in `auth_ldap_options`: `name=value`, with double quotes around
    /// what has blanks in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for word in words(text)? {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| alloc::format!("\"{word}\" is not name=value"))?;
            pairs.push((name.trim().to_string(), value.to_string()));
        }
        Self::read(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Reads options that have been taken apart already.
    pub fn read<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut said = Said::default();
        for (name, value) in options {
            said.take(name, value)?;
        }
        said.directory()
    }

    /// What to ask about `user`.
    #[must_use]
    pub fn inquiry(&self, user: &str) -> Inquiry {
        match &self.how {
            How::Direct { prefix, suffix } => {
                // Only a part of a DN has characters that mean something.
                let name = if prefix.contains('=') { dn_escaped(user) } else { user.into() };
                Inquiry::Bind { dn: [prefix, &*name, suffix].concat() }
            }
            How::Search { base, bind_dn, bind_password, scope, filter } => Inquiry::Search {
                bind_dn: bind_dn.clone(),
                bind_password: bind_password.clone(),
                base: base.clone(),
                scope: *scope,
                filter: filter.replace(PLACE, &filter_escaped(user)),
            },
        }
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be a password in the rest.
        write!(f, "Directory {{ servers: {:?}, .. }}", self.servers)
    }
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { dn } => write!(f, "Bind {{ dn: {dn:?} }}"),
            Self::Search { base, filter, .. } => {
                write!(f, "Search {{ base: {base:?}, filter: {filter:?}, .. }}")
            }
        }
    }
}

/// The options, as they were said.
#[derive(Default)]
struct Said {
    servers: Option<String>,
    port: Option<u16>,
    tls_scheme: bool,
    start_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    bind_dn: Option<String>,
    bind_password: Option<String>,
    attribute: Option<String>,
    filter: Option<String>,
    scope: Option<Scope>,
}

impl Said {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let text = || Some(value.to_string());
        match name {
            "ldapserver" => self.servers = text(),
            "ldapport" => {
                let port = value.parse().ok().filter(|port| *port != 0);
                let wrong = || alloc::format!("invalid LDAP port number: \"{value}\"");
                self.port = Some(port.ok_or_else(wrong)?);
            }
            "ldapscheme" => self.tls_scheme = tls_scheme(value)?,
            "ldaptls" => self.start_tls = value == "1",
            "ldapprefix" => self.prefix = text(),
            "ldapsuffix" => self.suffix = text(),
            "ldapbasedn" => self.base = text(),
            "ldapbinddn" => self.bind_dn = text(),
            "ldapbindpasswd" => self.bind_password = text(),
            "ldapsearchattribute" => self.attribute = text(),
            "ldapsearchfilter" => self.filter = text(),
            "ldapurl" => self.url(value)?,
            _ => return Err(alloc::format!("unrecognized option \"{name}\"")),
        }
        Ok(())
    }

    /// `ldap://host:port/base?attribute?scope?filter` (RFC 4516).
    fn url(&mut self, url: &str) -> Result<(), String> {
        let wrong = || alloc::format!("could not parse LDAP URL \"{url}\"");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        self.tls_scheme = tls_scheme(scheme)?;
        let (place, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(Cow::into_owned).map_err(|_| wrong())
        };
        if !place.is_empty() {
            let (host, port) = match place.rsplit_once(':') {
                // The colons of an IPv6 address are in brackets.
                Some((host, port)) if !port.contains(']') => (host, Some(port)),
                _ => (place, None),
            };
            self.servers = Some(decode(host)?);
            if let Some(port) = port {
                self.port = Some(port.parse().map_err(|_| wrong())?);
            }
        }
        let mut parts = rest.split('?').map(decode);
        let mut next =
            || Ok::<_, String>(parts.next().transpose()?.filter(|text| !text.is_empty()));
        self.base = next()?.or_else(|| self.base.take());
        // Several attributes may stand there; the first is the one to search by.
        let attribute = next()?.and_then(|list| list.split(',').next().map(str::to_string));
        self.attribute = attribute.or_else(|| self.attribute.take());
        if let Some(scope) = next()? {
            self.scope = Some(match scope.to_ascii_lowercase().as_str() {
                "base" => Scope::Base,
                "one" => Scope::One,
                "sub" => Scope::Subtree,
                _ => return Err(wrong()),
            });
        }
        self.filter = next()?.or_else(|| self.filter.take());
        if next()?.is_some() {
            return Err("extensions of LDAP URLs are not supported".into());
        }
        Ok(())
    }

    fn directory(self) -> Result<Directory, String> {
        let how = self.how()?;
        let (scheme, usual) = if self.tls_scheme { ("ldaps", 636) } else { ("ldap", 389) };
        let port = self.port.unwrap_or(usual);
        let servers: Vec<String> = self
            .servers
            .iter()
            .flat_map(|list| list.split_ascii_whitespace())
            .map(|host| {
                let bare = host.contains(':') && !host.starts_with('[');
                let (open, close) = if bare { ("[", "]") } else { ("", "") };
                alloc::format!("{scheme}://{open}{host}{close}:{port}")
            })
            .collect();
        if self.tls_scheme && self.start_tls {
            return Err("ldaptls and the scheme ldaps exclude each other".into());
        }
        let servers = if servers.is_empty() {
            let domain = self.base.as_deref().and_then(domain);
            let domain = domain
                .ok_or("ldapserver is missing, and ldapbasedn does not end in a domain (dc=…)")?;
            Servers::Of { domain, scheme }
        } else {
            Servers::Named(servers)
        };
        Ok(Directory { servers, start_tls: self.start_tls, how })
    }

    fn how(&self) -> Result<How, String> {
        let text = |option: &Option<String>| option.clone().unwrap_or_default();
        let searches =
            [&self.base, &self.bind_dn, &self.bind_password, &self.attribute, &self.filter];
        if self.prefix.is_some() || self.suffix.is_some() {
            if searches.iter().any(|option| option.is_some()) {
                return Err("ldapprefix and ldapsuffix exclude ldapbasedn, ldapbinddn, \
                    ldapbindpasswd, ldapsearchattribute, ldapsearchfilter and a search in ldapurl"
                    .into());
            }
            return Ok(How::Direct { prefix: text(&self.prefix), suffix: text(&self.suffix) });
        }
        let Some(base) = self.base.clone() else {
            return Err("ldapbasedn, ldapprefix or ldapsuffix is needed".into());
        };
        let filter = match (&self.filter, &self.attribute) {
            (Some(_), Some(_)) => {
                return Err("ldapsearchattribute and ldapsearchfilter exclude each other".into());
            }
            (Some(filter), None) if filter.starts_with('(') => filter.clone(),
            (Some(filter), None) => alloc::format!("({filter})"),
            (None, attribute) => {
                alloc::format!("({}={PLACE})", attribute.as_deref().unwrap_or("uid"))
            }
        };
        Ok(How::Search {
            base,
            bind_dn: text(&self.bind_dn),
            bind_password: text(&self.bind_password),
            scope: self.scope.unwrap_or(Scope::Subtree),
            filter,
        })
    }
}

/// The domain that a DN ends in: `example.net` of `ou=people,dc=example,dc=net`.
fn domain(dn: &str) -> Option<String> {
    let mut labels = Vec::new();
    for part in dn.split(',') {
        match part.split_once('=') {
            Some((kind, label)) if kind.trim().eq_ignore_ascii_case("dc") => {
                labels.push(label.trim())
            }
            _ => labels.clear(),
        }
    }
    (!labels.is_empty()).then(|| labels.join("."))
}

fn tls_scheme(scheme: &str) -> Result<bool, String> {
    match scheme {
        "ldap" => Ok(false),
        "ldaps" => Ok(true),
        _ => Err(alloc::format!("invalid ldapscheme value: \"{scheme}\"")),
    }
}

/// Words between blanks; double quotes, wherever they stand, keep blanks in a word.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let (mut word, mut quoted) = (None::<String>, false);
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_ascii_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

/// A value in a DN (RFC 4514).
fn dn_escaped(value: &str) -> Cow<'_, str> {
    let special = |c: char| matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' | '\0');
    let edge = value.starts_with([' ', '#']) || value.ends_with(' ');
    if !edge && !value.contains(special) {
        return value.into();
    }
    let mut out = String::with_capacity(value.len() + 8);
    let last = value.len() - 1;
    for (at, c) in value.char_indices() {
        match c {
            '\0' => out.push_str("\\00"),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            '#' if at == 0 => out.push_str("\\#"),
            c if special(c) => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.into()
}

/// A value in a filter (RFC 4515).
fn filter_escaped(value: &str) -> Cow<'_, str> {
    let special = |c: char| matches!(c, '*' | '(' | ')' | '\\' | '\0');
    if !value.contains(special) {
        return value.into();
    }
    let mut out = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        match c {
            '*' => out.push_str("\\2a"),
            '(' => out.push_str("\\28"),
            ')' => out.push_str("\\29"),
            '\\' => out.push_str("\\5c"),
            '\0' => out.push_str("\\00"),
            c => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(options: &str, user: &str) -> Inquiry {
        Directory::parse(options).expect("good options").inquiry(user)
    }

    fn search(filter: &str) -> Inquiry {
        Inquiry::Search {
            bind_dn: String::new(),
            bind_password: String::new(),
            base: "dc=x".into(),
            scope: Scope::Subtree,
            filter: filter.into(),
        }
    }

    #[test]
    fn a_name_stands_between_prefix_and_suffix() {
        let options = "ldapserver=a ldapprefix=\"cn=\" ldapsuffix=\", dc=example, dc=net\"";
        let dn = "cn=ann, dc=example, dc=net".to_string();
        assert_eq!(asks(options, "ann"), Inquiry::Bind { dn });
        let dn = "ann@example.net".to_string();
        assert_eq!(asks("ldapserver=a ldapsuffix=@example.net", "ann"), Inquiry::Bind { dn });
    }

    #[test]
    fn a_name_is_searched_for() {
        let base = "ldapserver=a ldapbasedn=dc=x";
        assert_eq!(asks(base, "ann"), search("(uid=ann)"));
        assert_eq!(asks(&[base, " ldapsearchattribute=cn"].concat(), "ann"), search("(cn=ann)"));
        let filter = " ldapsearchfilter=(|(uid=$username)(mail=$username))";
        assert_eq!(asks(&[base, filter].concat(), "ann"), search("(|(uid=ann)(mail=ann))"));
        let filter = " ldapsearchfilter=uid=$username";
        assert_eq!(asks(&[base, filter].concat(), "ann"), search("(uid=ann)"));
    }

    #[test]
    fn a_url_says_it_all() {
        let Inquiry::Search { base, scope, filter, .. } =
            asks("ldapurl=\"ldap://h:390/dc=x%2Cdc=y?cn?one\"", "ann")
        else {
            panic!("a search");
        };
        assert_eq!((&*base, scope, &*filter), ("dc=x,dc=y", Scope::One, "(cn=ann)"));
        let servers = |options: &str| Directory::parse(options).expect("good").servers;
        let of = |options: &str| match servers(options) {
            Servers::Named(servers) => servers,
            Servers::Of { .. } => panic!("{options}"),
        };
        assert_eq!(of("ldapurl=ldap://h:390/dc=x"), ["ldap://h:390"]);
        assert_eq!(of("ldapurl=ldaps://[::1]/dc=x"), ["ldaps://[::1]:636"]);
        assert_eq!(of("ldapserver=\"a ::1\" ldapprefix=x"), ["ldap://a:389", "ldap://[::1]:389"]);
        for (options, scheme) in [
            ("ldapurl=\"ldap:///ou=people,dc=Example, DC=net\"", "ldap"),
            ("ldapbasedn=ou=a,dc=b,ou=people,dc=Example,dc=net ldapscheme=ldaps", "ldaps"),
        ] {
            let domain = "Example.net".to_string();
            assert_eq!(servers(options), Servers::Of { domain, scheme }, "{options}");
        }
        let filter = "ldapurl=ldap://h/dc=x??sub?(uid=$username)";
        assert_eq!(asks(filter, "ann"), search("(uid=ann)"));
    }

    #[test]
    fn names_are_data() {
        let direct = "ldapserver=a ldapprefix=\"cn=\" ldapsuffix=,dc=x";
        for (name, escaped) in [
            ("ann,ou=admins", "ann\\,ou\\=admins"),
            ("a+b\"\\<>;", "a\\+b\\\"\\\\\\<\\>\\;"),
            (" ann ", "\\ ann\\ "),
            ("#1", "\\#1"),
            ("é, ", "é\\,\\ "),
            (" ", "\\ "),
            ("a#b c", "a#b c"),
        ] {
            let dn = ["cn=", escaped, ",dc=x"].concat();
            assert_eq!(asks(direct, name), Inquiry::Bind { dn });
        }
        for (name, escaped) in [
            ("*", "\\2a"),
            ("ann)(uid=*", "ann\\29\\28uid=\\2a"),
            ("a\\b\0", "a\\5cb\\00"),
            ("$username", "$username"),
            ("é", "é"),
        ] {
            let filter = ["(uid=", escaped, ")"].concat();
            assert_eq!(asks("ldapserver=a ldapbasedn=dc=x", name), search(&filter));
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (options, what) in [
            ("", "ldapbasedn, ldapprefix"),
            ("ldapprefix=x", "ldapserver is missing"),
            ("ldapserver=a", "is needed"),
            ("ldapserver=a ldapprefix=x ldapbasedn=y", "exclude"),
            ("ldapserver=a ldapbasedn=y ldapsearchattribute=a ldapsearchfilter=b", "exclude"),
            ("ldapserver=a ldapprefix=x ldapport=0", "port"),
            ("ldapserver=a ldapprefix=x ldapport=99999", "port"),
            ("ldapserver=a ldapprefix=x ldapscheme=http", "ldapscheme"),
            ("ldapserver=a ldapprefix=x ldapscheme=ldaps ldaptls=1", "exclude"),
            ("ldapserver=a ldapprefix=x colour=blue", "unrecognized"),
            ("ldapserver=a ldapprefix=\"x", "quote"),
            ("ldapserver", "name=value"),
            ("ldapurl=a", "URL"),
            ("ldapurl=ldap://a/b?c?d?", "URL"),
            ("ldapurl=ldap://a/b?c?sub?(d=$username)?e", "extensions"),
            ("ldapurl=ldap://a:x/b", "URL"),
        ] {
            let error = Directory::parse(options).expect_err(options);
            assert!(error.contains(what), "{options}: {error}");
        }
    }
}
