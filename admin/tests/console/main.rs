//! The console as its clients see it: bytes in, bytes out.

mod extended;
mod noise;
mod rights;
mod simple;
mod talk;
mod views;
