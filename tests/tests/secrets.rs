//! Credentials that clients send, and cookies that servers set, never leave the decoder: every capture is replayed with
//! its headers overwritten by such, and nothing that comes out holds them.

use anyhow::Result;
use enginetap_core::model::log::Severity;
use enginetap_core::pipeline::Pipeline;
use enginetap_core::settings::log::LogSettings;
use enginetap_core::settings::{Settings, SglangLevel, Strategy, VllmLevel};
use enginetap_tests::captures::{Capture, Input, named};

const SECRET: &str = "S3CRETKEY";

/// A header that captures hold, and what stands in its place: as long, so that every length and offset stays right.
type Instead = (&'static [u8], &'static [u8]);

/// Of requests; each capture gets one.
const CREDENTIALS: [Instead; 3] = [
    (b"Accept-Encoding: identity", b"Authorization: S3CRETKEY0"),
    (b"Accept-Encoding: identity", b"X-Api-Key: S3CRETKEY00001"),
    (b"Accept-Encoding: identity", b"Cookie: sid=S3CRETKEY0000"),
];

/// Of responses.
const COOKIE: Instead = (b"content-type: application/json", b"Set-Cookie: sid=S3CRETKEY00000");

/// Everything on, as deep as it goes.
fn everything() -> Settings {
    let log =
        LogSettings { requests: true, detail: 3, iterations: true, lines: true, least: Severity::Debug };
    Settings {
        vllm_level: VllmLevel::Iterations,
        sglang_level: SglangLevel::MAX,
        content: true,
        content_strategy: Strategy::Event,
        vllm_log: log.clone(),
        sglang_log: log,
        ..Settings::default()
    }
}

/// Overwrites a header wherever it stands; how often that was.
fn overwrite(bytes: &mut [u8], (header, secret): Instead) -> usize {
    let mut times = 0;
    while let Some(at) = bytes.windows(header.len()).position(|window| window == header) {
        bytes[at..at + header.len()].copy_from_slice(secret);
        times += 1;
    }
    times
}

/// Replays a capture with credentials and cookies in it: how many of each, and all that came out, as text.
fn replayed(capture: &Capture, credential: Instead) -> Result<([usize; 2], String)> {
    let mut pipeline = Pipeline::new(everything());
    let mut times = [0; 2];
    for input in capture.inputs()? {
        match input {
            Input::Record(mut bytes) => {
                times[0] += overwrite(&mut bytes, credential);
                times[1] += overwrite(&mut bytes, COOKIE);
                pipeline.push_bytes(&bytes);
            }
            Input::Fact(fact) => pipeline.fact(*fact),
        }
    }
    pipeline.finish();
    Ok((times, format!("{:?} {:?}", pipeline.outputs(), pipeline.points())))
}

#[test]
fn no_credential_or_cookie_of_any_capture_leaves_the_decoder() -> Result<()> {
    let (mut seen, mut events) = ([0; 2], 0);
    let captures = named("")?.into_iter().chain(named("sglang/")?);
    for (capture, credential) in captures.zip(CREDENTIALS.into_iter().cycle()) {
        let (times, out) = replayed(&capture, credential)?;
        seen = [seen[0] + times[0], seen[1] + times[1]];
        events += out.matches("enginetap.request.received").count();
        assert!(!out.contains(SECRET), "{}: {}", capture.name, String::from_utf8_lossy(credential.1));
    }
    assert!(seen.iter().all(|times| *times > 50), "the secrets were there: {seen:?}");
    assert!(events > 50, "requests were decoded: {events}");
    Ok(())
}
