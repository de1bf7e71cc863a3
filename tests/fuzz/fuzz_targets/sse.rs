//! Any body with any gaps: the events do not depend on how the body is split into pieces.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::time::MonoTime;
use enginetap_core::wire::sse::{Decoder, Event};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    limit: u8,
    split: u8,
    /// Calls, with a gap before each but the first.
    calls: Vec<&'a [u8]>,
}

/// An event without its borrows.
type Told = (Vec<u8>, Vec<u8>, MonoTime, MonoTime, bool);

fn run(input: &Input<'_>, split: usize) -> Vec<Told> {
    let mut decoder = Decoder::new(usize::from(input.limit));
    let mut told = Vec::new();
    for (call, at) in input.calls.iter().zip(0..) {
        if at > 0 {
            decoder.gap();
        }
        for piece in call.chunks(split) {
            decoder.push(piece, MonoTime(at), &mut |event| {
                let Event { name, data, first, at, after_gap } = event;
                told.push((name.to_vec(), data.to_vec(), first, at, after_gap));
            });
        }
    }
    told
}

fuzz_target!(|input: Input<'_>| {
    let whole = run(&input, usize::MAX);
    assert_eq!(whole, run(&input, usize::from(input.split).max(1)));
    assert_eq!(whole, run(&input, 1));
});
