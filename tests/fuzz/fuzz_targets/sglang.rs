//! Any message of SGLang, any line of its log, any shared state: signals or nothing, and never more than the bytes.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::dialect::signal::sglang::SglangSignal;
use enginetap_core::dialect::sglang::{Decoder, Options, Way, line, shared};
use enginetap_core::loss::Losses;
use enginetap_core::time::MonoTime;
use libfuzzer_sys::fuzz_target;

const VERSIONS: [Option<&str>; 4] = [None, Some("0.4.9"), Some("0.5.15"), Some("0.5.23")];
const WAYS: [Way; 3] = [Way::FromFrontend, Way::ToFrontend, Way::FromScheduler];

/// Beginnings that random bytes would hardly find.
const HEADS: [&[u8]; 8] = [
    b"",
    b"\x80\x02csglang.srt.managers.io_struct\nBatchTokenIDOutput\n)\x81}(",
    b"\x80\x02csglang.srt.managers.io_struct\nTokenizedGenerateReqInput\n)\x81}(",
    b"\x80\x02csglang.srt.managers.io_struct\nAbortReq\n)\x81}(",
    b"\xdc\x00\x35\xb2BatchTokenIDOutput",
    b"\xdc\x00\x31\xb9TokenizedGenerateReqInput",
    b"[2026-11-30 15:14:17] Decode batch, ",
    b"SLNS\x02\x00\x01\x00\x40\x00\x00\x00",
];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    version: u8,
    way: u8,
    head: u8,
    cut: bool,
    content: bool,
    rest: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let Input { version, way, head, cut, content, rest } = input;
    let version = VERSIONS[usize::from(version) % VERSIONS.len()];
    let way = WAYS[usize::from(way) % WAYS.len()];
    let body = [HEADS[usize::from(head) % HEADS.len()], rest].concat();
    let mut decoder = Decoder::new(None, version, Options { content });
    let mut signals = Vec::new();
    decoder.decode(&[&body], cut, MonoTime(1), way, &mut Losses::default(), &mut signals);
    for signal in signals {
        match signal {
            SglangSignal::Outputs { outputs, .. } => assert!(outputs.len() <= body.len()),
            SglangSignal::Dispatched { requests, .. } => assert!(requests.len() <= body.len()),
            SglangSignal::Aborted { .. } | SglangSignal::Retracted { .. } | SglangSignal::Load { .. } => {}
        }
    }
    let _ = line::read(&body);
    let _ = shared::read(&body);
});
