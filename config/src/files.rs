//! Where text comes from.

use std::fs;
use std::io;

/// Reads whole files. The tests have one that needs no disk.
pub trait Files {
    /// The content of `path`; relative paths start at the working directory.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// Whether `path` is a directory.
    fn is_dir(&self, path: &str) -> bool;
}

/// The disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn is_dir(&self, path: &str) -> bool {
        fs::metadata(path).is_ok_and(|found| found.is_dir())
    }
}
