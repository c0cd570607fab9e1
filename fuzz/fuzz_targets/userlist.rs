//! The userlist, and the secrets in it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (list, flaws) = auth::Userlist::parse(data);
    for flaw in flaws {
        assert!(flaw.line >= 1);
    }
    for (user, secret) in list.users() {
        assert!(!user.is_empty() && user.len() <= auth::USER_LEN_MAX);
        let _ = secret.form();
    }
});
