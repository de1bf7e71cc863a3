//! Any tokenizer file: every id there is has a text, and memory keeps to the file's size.
#![no_main]

use enginetap_core::dialect::vocabulary::Vocabulary;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    if let Ok(vocabulary) = Vocabulary::read(json) {
        for id in 0..1024 {
            assert_eq!(vocabulary.bytes(id).is_some(), vocabulary.text(id).is_some());
        }
    }
});
