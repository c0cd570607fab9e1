//! Certificates as people really have them, made by openssl: with extensions and without, of authorities and
//! self-signed, expired, and with keys in all the forms there are.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place;

/// A folder of certificates and keys, all readable by the servers.
pub struct Certificates {
    folder: PathBuf,
}

/// What a certificate is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind<'a> {
    /// Its subject: `/CN=localhost`.
    pub subject: &'a str,
    /// Who signs it; itself where that is empty.
    pub by: &'a str,
    /// Lines of an extension file. Empty: a certificate of X.509 version 1.
    pub extensions: &'a str,
    /// From when to when, as openssl writes times. Empty: from now on for a year.
    pub times: Option<(&'a str, &'a str)>,
}

impl Certificates {
    /// With an authority `ca` and, made by it without extensions, `server` for localhost; and an authority `other`.
    #[must_use]
    pub fn new() -> Self {
        let certificates = Self { folder: place::folder("certs") };
        let authority = "basicConstraints = critical, CA:true\n";
        for name in ["ca", "other"] {
            let subject = format!("/CN=authority {name}");
            certificates
                .make(name, Kind { subject: &subject, extensions: authority, ..Kind::default() });
        }
        certificates.make("server", Kind { subject: "/CN=localhost", by: "ca", ..Kind::default() });
        certificates
    }

    /// # Panics
    /// When openssl does not do it.
    pub fn make(&self, name: &str, kind: Kind<'_>) {
        let key = self.path(&format!("{name}.key"));
        run(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", &key]);
        let request = self.path(&format!("{name}.csr"));
        run(&["req", "-new", "-key", &key, "-subj", kind.subject, "-out", &request]);
        let certificate = self.path(&format!("{name}.crt"));
        let mut arguments: Vec<String> =
            ["x509", "-req", "-in", &request, "-days", "365"].map(str::to_owned).into();
        if kind.by.is_empty() {
            arguments.extend(["-signkey".to_owned(), key.clone()]);
        } else {
            let [authority, its_key] =
                ["crt", "key"].map(|end| self.path(&format!("{}.{end}", kind.by)));
            arguments
                .extend(["-CA", &authority, "-CAkey", &its_key, "-set_serial"].map(str::to_owned));
            arguments
                .push(name.bytes().fold(1_u32, |sum, byte| sum * 3 + u32::from(byte)).to_string());
        }
        if !kind.extensions.is_empty() {
            let file = self.path(&format!("{name}.ext"));
            place::write(Path::new(&file), kind.extensions);
            arguments.extend(["-extfile".to_owned(), file]);
        }
        arguments.extend(["-out".to_owned(), certificate.clone()]);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        if let Some((from, to)) = kind.times {
            self.sign_again(name, kind, from, to);
        }
        let text = std::fs::read_to_string(&certificate).expect("openssl wrote it");
        place::write(Path::new(&certificate), &text);
        let text = std::fs::read_to_string(&key).expect("openssl wrote it");
        place::write(Path::new(&key), &text);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))
            .expect("our own file");
    }

    /// `openssl x509` cannot date back; `openssl ca` can.
    fn sign_again(&self, name: &str, kind: Kind<'_>, from: &str, to: &str) {
        let config = self.path(&format!("{name}.cnf"));
        place::write(Path::new(&self.path("index.txt")), "");
        place::write(Path::new(&self.path("serial")), "77\n");
        let text = format!(
            "[ca]\ndefault_ca = d\n[d]\ndatabase = {0}/index.txt\nserial = {0}/serial\nnew_certs_dir = {0}\n\
             default_md = sha256\npolicy = p\nunique_subject = no\nx509_extensions = e\n[p]\ncommonName = supplied\n\
             [e]\n{1}",
            self.folder.display(),
            kind.extensions
        );
        place::write(Path::new(&config), &text);
        let [request, certificate] = ["csr", "crt"].map(|end| self.path(&format!("{name}.{end}")));
        let [authority, its_key] =
            ["crt", "key"].map(|end| self.path(&format!("{}.{end}", kind.by)));
        run(&[
            "ca",
            "-batch",
            "-notext",
            "-config",
            &config,
            "-in",
            &request,
            "-out",
            &certificate,
            "-cert",
            &authority,
            "-keyfile",
            &its_key,
            "-startdate",
            from,
            "-enddate",
            to,
        ]);
    }

    /// `server.crt` and the like, with its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Copies a certificate with its key over another.
    ///
    /// # Panics
    /// When one of them is not there.
    pub fn replace(&self, old: &str, new: &str) {
        for end in ["crt", "key"] {
            let text =
                std::fs::read_to_string(self.path(&format!("{new}.{end}"))).expect("it was made");
            std::fs::write(self.path(&format!("{old}.{end}")), text).expect("it was made");
        }
    }

    /// Lines of postgresql.conf that have it speak TLS with this certificate.
    #[must_use]
    pub fn for_postgres(&self, name: &str) -> String {
        format!(
            "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\nssl_ca_file = '{}'\n",
            self.path(&format!("{name}.crt")),
            self.path(&format!("{name}.key")),
            self.path("ca.crt")
        )
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

fn run(arguments: &[&str]) {
    let made = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(
        made.status.success(),
        "openssl {arguments:?}: {}",
        String::from_utf8_lossy(&made.stderr)
    );
}
