//! Files for tests, which need no disk.

use std::collections::BTreeMap;
use std::io;

use crate::Files;

/// Files by name. Every directory exists but `/missing`.
#[derive(Default)]
pub(crate) struct Shelf(pub(crate) BTreeMap<String, Vec<u8>>);

impl Shelf {
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
        Self(BTreeMap::from(files))
    }
}

impl Files for Shelf {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_dir(&self, path: &str) -> bool {
        path != "/missing"
    }
}
