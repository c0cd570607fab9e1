//! The ini: any text is read or refused, and what was read can be shown, reloaded and set.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match config::parse(&text) {
        Ok(config) => {
            for shown in config.settings.shown() {
                let _ = shown.value;
            }
            let (mut again, diff) = config::reload(&config, config.clone());
            assert!(diff.databases_removed.is_empty() && diff.databases_obsolete.is_empty());
            let _ = config::set_runtime(&mut again, "default_pool_size", &text);
        }
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
});
