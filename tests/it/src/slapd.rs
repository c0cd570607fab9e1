//! A real directory: OpenLDAP's server, with a few people in it.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{self, Address};
use crate::raw::Raw;
use crate::reaper;
use crate::world::eventually;

/// The password of the one who searches.
pub const SEARCHER: &str = "searcher's word";

const BASE: &str = "dc=example,dc=net";

/// A running slapd, with `dc=example,dc=net`: people under `ou=people`, each with `uid`, `cn` and `mail`.
pub struct Slapd {
    folder: PathBuf,
    child: Child,
    pub port: u16,
    pub tls_port: u16,
}

impl Slapd {
    /// Whether it is installed.
    #[must_use]
    pub fn is_there() -> bool {
        Path::new(PROGRAM).exists()
    }

    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(people: &[(&str, &str)]) -> Self {
        let folder = place::folder("slapd");
        let (port, tls_port) = (place::port(), place::port());
        make_certificate(&folder);
        let at = folder.display();
        place::write(&folder.join("conf"), &CONF.replace("FOLDER", &at.to_string()));
        place::write(&folder.join("ldif"), &ldif(people));
        let made = place::command("sh")
            .arg("-c")
            .arg(format!("mkdir {at}/db && slapadd -f {at}/conf -l {at}/ldif 2>{at}/said"))
            .env("PATH", "/usr/sbin:/usr/bin:/bin")
            .status();
        let said = || std::fs::read_to_string(folder.join("said")).unwrap_or_default();
        assert!(made.is_ok_and(|status| status.success()), "slapadd: {}", said());
        let log = || File::options().append(true).open(folder.join("said")).expect("it is there");
        let child = place::command(PROGRAM)
            .args(["-d", "0", "-f", &format!("{at}/conf"), "-h"])
            .arg(format!("ldap://127.0.0.1:{port}/ ldaps://127.0.0.1:{tls_port}/"))
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .expect("slapd starts");
        reaper::watch(child.id(), &folder);
        let mut slapd = Self { folder, child, port, tls_port };
        eventually("slapd listens", || {
            let ended = slapd.child.try_wait().expect("our child");
            assert!(ended.is_none(), "slapd ended: {}", slapd.said());
            Raw::open(&Address::local(port)).is_ok() && Raw::open(&Address::local(tls_port)).is_ok()
        });
        slapd
    }

    /// The file with the certificate of who signed its own.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    /// It takes connections, and says nothing.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        // A signal is under way for a while.
        let stat = format!("/proc/{}/stat", self.child.id());
        eventually("slapd stands still", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our child");
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.thaw();
        let _gone = self.child.kill();
        let _status = self.child.wait();
        reaper::unwatch(self.child.id(), &self.folder);
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

const PROGRAM: &str = "/usr/sbin/slapd";

const CONF: &str = "\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile FOLDER/pid
TLSCertificateFile FOLDER/cert.pem
TLSCertificateKeyFile FOLDER/key.pem
access to attrs=userPassword by anonymous auth by * none
access to * by dn.base=\"cn=searcher,dc=example,dc=net\" read by anonymous auth by * none
database mdb
suffix dc=example,dc=net
rootdn cn=root,dc=example,dc=net
directory FOLDER/db
";

fn ldif(people: &[(&str, &str)]) -> String {
    let mut text = format!(
        "dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: x\ndc: example\n\n\
         dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: cn=searcher,{BASE}\nobjectClass: person\ncn: searcher\nsn: x\nuserPassword: {SEARCHER}\n\n"
    );
    for (name, password) in people {
        // In base64, since there may be anything in it.
        let dn = base64(&format!("uid={},ou=people,{BASE}", escaped(name)));
        let (name, password) = (base64(name), base64(password));
        let _ = write!(
            text,
            "dn:: {dn}\nobjectClass: inetOrgPerson\nuid:: {name}\ncn: somebody\nsn: x\n\
             userPassword:: {password}\n\n",
        );
    }
    text
}

/// A name, as it stands in a DN.
fn escaped(name: &str) -> String {
    name.chars().fold(String::new(), |mut out, c| {
        if ",+\"\\<>;=".contains(c) {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes(bytes);
        for at in 0..4 {
            let index = (number >> (18 - 6 * at)) & 63;
            let letter = char::from(LETTERS[index as usize]);
            out.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    out
}

fn make_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("cert.pem"))
        .stderr(Stdio::null())
        .status();
    assert!(made.is_ok_and(|status| status.success()), "openssl makes a certificate");
    for name in ["key.pem", "cert.pem"] {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).expect("it was made");
        place::write(&path, &text);
    }
}
