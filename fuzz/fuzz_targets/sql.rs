//! Any text, with strings of both kinds: it is read or it is not, and what was read lies within it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sql::Reading;

fuzz_target!(|input: (bool, &[u8])| {
    let (conforming, text) = input;
    let reading = Reading::of(text, conforming);
    assert!(reading.unread.is_none() || reading.statements.is_empty());
    for statement in &reading.statements {
        assert!(text.get(statement.range.clone()).is_some());
    }
    assert_eq!(reading, Reading::of(text, conforming));
});
