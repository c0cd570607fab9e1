//! Who are you, step by step: clients that log in to us, and us logging in to servers.
//!
//! Sans-IO: bytes in, a step out. Nonces and salts come as arguments, and what costs thousands of
//! hashes comes out as a [`Job`] for someone else's thread.

#![no_std]

extern crate alloc;

mod certificate;
mod channel;
mod client;
mod decoy;
pub mod hba;
mod ident;
mod job;
pub mod ldap;
mod lines;
mod md5;
mod names;
pub mod roles;
mod scram;
mod secret;
mod server;
mod userlist;
pub mod vouch;

/// Whether two secrets are the same, in a time that tells nothing but their lengths.
#[must_use]
pub fn same(ours: &[u8], theirs: &[u8]) -> bool {
    subtle::ConstantTimeEq::ct_eq(ours, theirs).into()
}

pub use crate::md5::md5_secret;
pub use certificate::{Certificate, TlsFacts, end_point};
pub use channel::Channel;
pub use client::{
    Accepted, Account, Ask, Claim, ClientAuth, Dice, Judge, Method, Step, Unproved, Voucher, Why,
};
pub use decoy::Decoy;
pub use ident::IdentMaps;
pub use job::{ClientKeys, Derived, Job, JobKey, KeyRing};
pub use lines::{Files, Place};
pub use roles::{Membership, Roles};
pub use scram::{ITERATIONS_MAX, Nonce, SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
pub use secret::{Digest, Form, Password, Secret, Verifier};
pub use server::{Answer, Credentials, Fault, ServerAuth};
pub use userlist::{Flaw, Ill, SECRET_LEN_MAX, USER_LEN_MAX, Userlist};
pub use zeroize::Zeroizing;
