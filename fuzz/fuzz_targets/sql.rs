//! Any text: it is read or it is not, and what was read lies within it. The first byte chooses how its strings are read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sql::Reading;

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else { return };
    let conforming = first & 1 == 0;
    let reading = Reading::of(text, conforming);
    assert!(reading.unread.is_none() || reading.statements.is_empty());
    for statement in &reading.statements {
        assert!(text.get(statement.range.clone()).is_some());
    }
    assert_eq!(reading, Reading::of(text, conforming));
});
