//! A PostgreSQL server from its package registry, for machines that have none.
//!
//! The package is a jar on Maven Central made for tests of Java programs; in it lies an archive with
//! `initdb` and `postgres`, and no client programs.

use std::fs;
use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use lzma_rust2::XzReader;
use sha2::{Digest as _, Sha256};
use ureq::tls::{RootCerts, TlsConfig};

/// Downloads the server into `folder` and says where its programs are.
pub(crate) fn fetch(folder: &Path) -> anyhow::Result<PathBuf> {
    let package = Package::of_this_machine()?;
    let url = package.url();
    println!("   no PostgreSQL server here; fetching {url}");
    let jar = download(&url)?;
    let sum: String = Sha256::digest(&jar).iter().map(|byte| format!("{byte:02x}")).collect();
    if sum != package.sha256 {
        bail!("{url} is not what it was: its SHA-256 is {sum}");
    }
    let home = folder.join("postgres");
    unpack(&jar, &home).context("cannot unpack the server")?;
    Ok(home.join("bin"))
}

struct Package {
    architecture: &'static str,
    /// Of the version below; to be changed together.
    sha256: &'static str,
}

const VERSION: &str = "17.11.0";
const REGISTRY: &str = "https://repo1.maven.org/maven2/io/zonky/test/postgres";
const PACKAGES: [(&str, Package); 2] = [
    (
        "x86_64",
        Package {
            architecture: "amd64",
            sha256: "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
        },
    ),
    (
        "aarch64",
        Package {
            architecture: "arm64v8",
            sha256: "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b",
        },
    ),
];
const JAR_BYTES_MAX: u64 = 100 << 20;

impl Package {
    fn of_this_machine() -> anyhow::Result<&'static Self> {
        let here = std::env::consts::ARCH;
        let found = PACKAGES.iter().find(|(architecture, _)| *architecture == here);
        let (_, package) = found.with_context(|| {
            format!(
                "no PostgreSQL server found, and no package of one for {here}: please install one"
            )
        })?;
        Ok(package)
    }

    fn url(&self) -> String {
        let name = format!("embedded-postgres-binaries-linux-{}", self.architecture);
        format!("{REGISTRY}/{name}/{VERSION}/{name}-{VERSION}.jar")
    }
}

fn download(url: &str) -> anyhow::Result<Vec<u8>> {
    // An error only means that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(Duration::from_secs(120)))
        .build();
    let mut answer =
        config.new_agent().get(url).call().with_context(|| format!("fetching {url}"))?;
    let body = answer.body_mut().with_config().limit(JAR_BYTES_MAX).read_to_vec();
    body.with_context(|| format!("fetching {url}"))
}

fn unpack(jar: &[u8], home: &Path) -> anyhow::Result<()> {
    let mut jar = zip::ZipArchive::new(Cursor::new(jar))?;
    let mut packed = Vec::new();
    for index in 0..jar.len() {
        let mut file = jar.by_index(index)?;
        if file.name()?.ends_with(".txz") {
            file.read_to_end(&mut packed)?;
        }
    }
    fs::create_dir(home)?;
    let mut archive = tar::Archive::new(XzReader::new(Cursor::new(packed), true));
    archive.set_preserve_permissions(true);
    archive.unpack(home)?;
    Ok(())
}
