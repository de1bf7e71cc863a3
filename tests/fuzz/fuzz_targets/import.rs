//! Any recording: a capture that reads back, or a refusal.
#![no_main]

use enginetap_core::capture::fact::Engine;
use enginetap_core::capture::file::Reader;
use enginetap_core::capture::import::import;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for engine in [Engine::Vllm, Engine::Sglang] {
        check(text, engine);
    }
});

fn check(text: &str, engine: Engine) {
    let Ok(file) = import(text.lines(), engine, None) else { return };
    let mut reader = Reader::default();
    reader.push(&file);
    while reader.next().expect("a capture just written").is_some() {}
    reader.finish().expect("a capture just written");
}
