//! A composition from any text: what is read is what would have been written.
#![no_main]

use engine::composition::Composition;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(composition) = Composition::parse(text) {
        assert_eq!(composition.text(), text);
    }
});
