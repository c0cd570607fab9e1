//! The grammar of the file.
