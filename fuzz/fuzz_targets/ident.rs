//! The maps of auth_ident_file: whatever a file says, reading it ends, and who may be whom can be asked.
#![no_main]

use arbitrary::Arbitrary;
use auth::{Files, IdentMaps};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Play {
    text: Vec<u8>,
    map: Vec<u8>,
    system: Vec<u8>,
    user: Vec<u8>,
}

struct One<'a>(&'a [u8]);

impl Files for One<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "/f" { Ok(self.0.to_vec()) } else { Err("no such file".to_owned()) }
    }

    fn exists(&self, _: &str) -> bool {
        true
    }

    fn list(&self, _: &str) -> Result<Vec<String>, String> {
        Ok(vec!["f.conf".to_owned()])
    }
}

fuzz_target!(|play: Play| {
    let Ok((maps, bad)) = IdentMaps::read("/f", &One(&play.text)) else { return };
    for line in bad {
        assert!(line.place.line >= 1);
    }
    if maps.admit(Some(&play.map), &play.system, &play.user) && !play.map.is_empty() {
        assert!(maps.has(&play.map), "by a map that there is");
    }
    assert_eq!(maps.admit(None, &play.system, &play.user), play.system == play.user);
});
