//! Passwords. All users have the same one.

use std::cell::RefCell;
use std::collections::BTreeMap;

use auth::{Derived, Job, JobKey, Secret};

use crate::weather::Stored;

/// Everybody's.
pub(crate) const PASSWORD: &str = "secret";
/// Made of it with one iteration: a proper number of them would be all that a run does.
const VERIFIER: &str = "SCRAM-SHA-256$1:MDEyMzQ1Njc4OWFiY2RlZg==$\
    rb2i4FWE8CCi1HDhnBxhv8/uERf3QN6tiTjE4qSdliQ=:gWfVquF9Vgm4YA/KIyjllnL4Zn6B7unP+DKFnilYEAg=";
const DIGESTS: [(&str, &str); 3] = [
    ("ann", "md59d792a3a8853c2411afb9163d088c036"),
    ("bob", "md521f3163f8f86fa10bdefbfbd502a8f06"),
    ("admin", "md5ea909ccfbf42c1d230f26167db4d4fdb"),
];

/// What is stored of `user`.
fn stored(how: Stored, user: &str) -> &'static str {
    let digest = || DIGESTS.iter().find(|(name, _)| *name == user).map_or(PASSWORD, |d| d.1);
    match how {
        Stored::Plain => PASSWORD,
        Stored::Md5 => digest(),
        Stored::Scram => VERIFIER,
    }
}

pub(crate) fn secret(how: Stored, user: &[u8]) -> Secret {
    Secret::parse(stored(how, &String::from_utf8_lossy(user)).as_bytes())
}

/// The userlist.
pub(crate) fn userlist(how: Stored) -> String {
    DIGESTS.map(|(user, _)| format!("\"{user}\" \"{}\"\n", stored(how, user))).concat()
}

thread_local! {
    static DERIVED: RefCell<BTreeMap<JobKey, Derived>> = const { RefCell::new(BTreeMap::new()) };
}

/// Do the job, if nobody on this thread has done it.
pub(crate) fn derive(job: Job) -> Derived {
    let Some(key) = job.key() else { return job.run() };
    let known = DERIVED.with_borrow(|derived| derived.get(&key).cloned());
    known.unwrap_or_else(|| {
        let derived = job.run();
        DERIVED.with_borrow_mut(|all| {
            if all.len() < 1000 {
                all.insert(key, derived.clone());
            }
        });
        derived
    })
}
