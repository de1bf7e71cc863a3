//! Any message: it gives a signal or nothing, whatever is known of the server, and never costs more than its
//! bytes.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::dialect::signal::EngineSignal;
use enginetap_core::dialect::vllm::{Decoder, Options};
use enginetap_core::loss::Losses;
use enginetap_core::time::MonoTime;
use libfuzzer_sys::fuzz_target;

const VERSIONS: [Option<&str>; 5] = [None, Some("0.8.5"), Some("0.11.2"), Some("0.20.2"), Some("0.33.0")];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    version: u8,
    cut: bool,
    token_ids: bool,
    frames: Vec<&'a [u8]>,
}

fuzz_target!(|input: Input<'_>| {
    let Input { version, cut, token_ids, frames } = input;
    let version = VERSIONS[usize::from(version) % VERSIONS.len()];
    let mut decoder = Decoder::new(None, version, Options { token_ids });
    let signal = decoder.decode(&frames, cut, MonoTime(1), &mut Losses::default());
    let len: usize = frames.iter().map(|frame| frame.len()).sum();
    match signal {
        Some(EngineSignal::Step { step, .. }) => assert!(step.outputs.len() <= len),
        Some(EngineSignal::Added { request, .. }) => assert!(request.prompt_token_ids.len() <= len),
        Some(EngineSignal::Aborted { ids, .. }) => assert!(ids.len() <= len),
        Some(EngineSignal::Outputs { outputs, .. }) => {
            // A list that is referred to again costs a few bytes a time.
            assert!(outputs.len() <= len);
        }
        Some(EngineSignal::Ready { .. } | EngineSignal::Failed { .. } | EngineSignal::Dead { .. }) | None => {}
    }
});
