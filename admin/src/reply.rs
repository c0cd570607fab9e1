//! What is said on the console besides rows.

use wire::Report;
use wire::write::server as write;

use crate::command::{Takes, VERBS};
use crate::views::SHEETS;
use crate::{Refusal, SERVER_VERSION};

/// What a client is told on entering, in this order. The key and `ReadyForQuery` come after it.
pub fn welcome(out: &mut Vec<u8>) {
    for (name, value) in WELCOME {
        write::parameter_status(out, name.as_bytes(), value.as_bytes());
    }
}

const WELCOME: [(&str, &str); 7] = [
    ("server_version", SERVER_VERSION),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

pub(crate) fn error(out: &mut Vec<u8>, refusal: &Refusal) {
    let message = refusal.to_string();
    let report = Report {
        severity: b"ERROR",
        code: refusal.code().as_bytes(),
        message: message.as_bytes(),
        ..Report::default()
    };
    write::error_response(out, &report);
}

pub(crate) fn notice(out: &mut Vec<u8>, message: &str, detail: Option<&str>) {
    let report = Report {
        severity: b"NOTICE",
        code: b"00000",
        message: message.as_bytes(),
        detail: detail.map(str::as_bytes),
        ..Report::default()
    };
    write::notice_response(out, &report);
}

/// SHOW HELP.
pub(crate) fn help(out: &mut Vec<u8>) {
    notice(out, "Console usage", Some(&usage()));
}

/// The commands, a line each, and the views, some to a line.
fn usage() -> String {
    const VIEWS_A_LINE: usize = 6;
    let views = SHEETS.chunks(VIEWS_A_LINE).map(|sheets| {
        let words: Vec<_> = sheets.iter().map(|sheet| sheet.word).collect();
        format!("SHOW {}", words.join("|"))
    });
    let verbs = VERBS.iter().filter(|verb| !matches!(verb.takes, Takes::View));
    let verbs = verbs.map(|verb| format!("{}{}", verb.word, verb.takes.form()));
    views.chain(verbs).fold(String::new(), |usage, line| usage + "\n\t" + &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_welcome_is_in_the_order_that_pgbouncer_has() {
        let mut out = Vec::new();
        welcome(&mut out);
        let wanted = [
            &b"S\0\0\0\x22server_version\x001.25.2/bouncer\0"[..],
            b"S\0\0\0\x19client_encoding\0UTF8\0",
            b"S\0\0\0\x19server_encoding\0UTF8\0",
            b"S\0\0\0\x12DateStyle\0ISO\0",
            b"S\0\0\0\x11TimeZone\0GMT\0",
            b"S\0\0\0\x23standard_conforming_strings\0on\0",
            b"S\0\0\0\x14is_superuser\0on\0",
        ]
        .concat();
        assert_eq!(out.escape_ascii().to_string(), wanted.escape_ascii().to_string());
    }

    #[test]
    fn an_error_has_three_fields() {
        let mut out = Vec::new();
        error(&mut out, &Refusal::AdminNeeded);
        assert_eq!(out, b"E\0\0\0\x28SERROR\0C08P01\0Madmin access needed\0\0");
    }

    #[test]
    fn help_names_every_command_and_view() {
        let usage = usage();
        assert!(usage.starts_with("\n\tSHOW "));
        for word in SHEETS.iter().map(|sheet| sheet.word).chain(VERBS.iter().map(|verb| verb.word))
        {
            assert!(word == "SELECT" || usage.contains(word), "{word}");
        }
    }
}
