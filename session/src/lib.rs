//! What a client and a server say to each other, and what we make of it. Bytes in, bytes and
//! verdicts out: no socket, clock or dice.

pub mod login;
