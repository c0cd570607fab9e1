//! TLS as the settings want it, with the files that they name.

use ::tls::{Inward, Mode, Outward, Wish};
use config::{Config, Settings, SslMode};
use worker::Tls;

/// Sets up both sides. A side that is as it was in `old` stays the very same; so does one whose
/// settings or files are no good, and the errors say why. `warnings`: what cannot be had.
pub(crate) fn set_up(
    config: &Config,
    old: &Tls,
    warnings: &mut Vec<String>,
) -> (Tls, Vec<::tls::Error>) {
    let settings = &config.settings;
    let mut errors = Vec::new();
    let read = |path: &str| std::fs::read(path);
    let inward = match Inward::set_up(&inward(settings), &read, auth::end_point, warnings) {
        Ok(fresh) if fresh.is_same(&old.inward) => old.inward.clone(),
        Ok(fresh) => fresh.into(),
        Err(error) => {
            errors.push(error);
            old.inward.clone()
        }
    };
    let outward = match Outward::set_up(&outward(settings), &read, warnings) {
        Ok(fresh) if fresh.is_same(&old.outward) => old.outward.clone(),
        Ok(fresh) => fresh.into(),
        Err(error) => {
            errors.push(error);
            old.outward.clone()
        }
    };
    (Tls { inward, outward }, errors)
}

fn inward(settings: &Settings) -> Wish<'_> {
    Wish {
        prefix: "client_tls",
        mode: mode(settings.client_tls_sslmode),
        key_file: &settings.client_tls_key_file,
        cert_file: &settings.client_tls_cert_file,
        ca_file: &settings.client_tls_ca_file,
        protocols: &settings.client_tls_protocols,
        ciphers: &settings.client_tls_ciphers,
        tls13_ciphers: settings.client_tls13_ciphers.as_deref().unwrap_or_default(),
        ecdhcurve: &settings.client_tls_ecdhcurve,
        dheparams: &settings.client_tls_dheparams,
    }
}

fn outward(settings: &Settings) -> Wish<'_> {
    Wish {
        prefix: "server_tls",
        mode: mode(settings.server_tls_sslmode),
        key_file: &settings.server_tls_key_file,
        cert_file: &settings.server_tls_cert_file,
        ca_file: &settings.server_tls_ca_file,
        protocols: &settings.server_tls_protocols,
        ciphers: &settings.server_tls_ciphers,
        tls13_ciphers: settings.server_tls13_ciphers.as_deref().unwrap_or_default(),
        ecdhcurve: "auto",
        dheparams: "auto",
    }
}

fn mode(mode: SslMode) -> Mode {
    match mode {
        SslMode::Disable => Mode::Disable,
        SslMode::Allow => Mode::Allow,
        SslMode::Prefer => Mode::Prefer,
        SslMode::Require => Mode::Require,
        SslMode::VerifyCa => Mode::VerifyCa,
        SslMode::VerifyFull => Mode::VerifyFull,
    }
}
