//! The console, with any messages in any role.
#![no_main]

use admin::{Answer, Console, Facts, Next, Role};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|play: (u8, Vec<(u8, Vec<u8>)>)| {
    let role = [Role::Nobody, Role::Stats, Role::Admin][usize::from(play.0 % 3)];
    let (mut console, mut out) = (Console::new(role), Vec::new());
    for (tag, body) in &play.1 {
        match console.message(*tag, body, &mut out) {
            Next::More => {}
            Next::Close => return,
            Next::Run(command) => {
                assert!(role != Role::Nobody, "nobody ran {command:?}");
                console.answer(&Answer::Facts(&Facts::default()), &mut out);
            }
        }
        out.clear();
    }
});
