//! Howdah from outside, one story per test. A file is a subject; in the files of bug classes a test bears its class' number.

mod smoke;
