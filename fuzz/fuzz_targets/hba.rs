//! The rules of auth_hba_file: whatever a file says, reading it ends, and what comes of it can be asked and printed.
#![no_main]

use std::net::IpAddr;

use arbitrary::Arbitrary;
use auth::{Files, Membership, Roles};
use auth::hba::{Caller, Door, Found, HostName, Interface, Rules, Verdict};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Play {
    text: Vec<u8>,
    included: Vec<u8>,
    database: Vec<u8>,
    user: Vec<u8>,
    from: [u8; 16],
    host: Option<String>,
    door: u8,
    replicates: bool,
}

/// Two files that may name each other.
struct Two<'a>(&'a Play);

impl Files for Two<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "/f" => Ok(self.0.text.clone()),
            "/g" => Ok(self.0.included.clone()),
            _ => Err("no such file".to_owned()),
        }
    }

    fn exists(&self, path: &str) -> bool {
        path == "/g"
    }

    fn list(&self, _: &str) -> Result<Vec<String>, String> {
        Ok(vec!["g.conf".to_owned()])
    }
}

fuzz_target!(|play: Play| {
    let own = Interface { address: [127, 0, 0, 1].into(), mask: [255, 0, 0, 0].into() };
    let Ok((rules, bad)) = Rules::read("/f", &Two(&play), &[own]) else { return };
    // Every bad line is a rule that rejects, and no other is.
    let unreadable = rules.iter().filter(|rule| rule.verdict == Verdict::Unreadable).count();
    assert_eq!(unreadable, bad.len());
    for line in &bad {
        assert!(line.place.line >= 1 && !line.to_string().is_empty());
    }
    for rule in rules.iter() {
        assert!(!rule.to_string().is_empty());
    }
    let from = IpAddr::from(play.from).to_canonical();
    let door = match play.door % 3 {
        0 => Door::Unix,
        which => Door::Tcp { from, tls: which == 1 },
    };
    let host = match &play.host {
        None => HostName::None,
        Some(name) => HostName::Is(name),
    };
    let caller = Caller {
        door,
        database: &play.database,
        user: &play.user,
        replicates: play.replicates,
        host,
        roles: Roles::Unknowable,
    };
    assert!(!matches!(rules.find(&caller), Found::HostNameNeeded | Found::RolesNeeded), "it is known");
    let _ = rules.find(&Caller { host: HostName::NotAskedFor, ..caller });
    let asked = rules.roles.at(&play.database);
    assert!(asked.is_sorted() && !auth::roles::query(&asked).contains('\0') || play.database.contains(&0));
    let membership = Membership::none(asked);
    let found = rules.find(&Caller { roles: Roles::Known(&membership), ..caller });
    assert!(!matches!(found, Found::RolesNeeded | Found::Doubtful(_)), "all that matters was asked");
});
