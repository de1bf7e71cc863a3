//! Any recording: a capture that reads back, or a refusal.
#![no_main]

use enginetap_core::capture::file::Reader;
use enginetap_core::capture::import::import;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(file) = import(text.lines(), None) else { return };
    let mut reader = Reader::default();
    reader.push(&file);
    while reader.next().expect("a capture just written").is_some() {}
    reader.finish().expect("a capture just written");
});
