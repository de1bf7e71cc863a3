//! Any ids and trace headers: every reading is a part of the id it is read from.
#![no_main]

use enginetap_core::dialect::{request_id, traceparent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Option<&str>, &str)| {
    let (external, internal) = input;
    let whole = external.unwrap_or(internal);
    for reading in request_id::readings(external, internal) {
        assert!(whole.contains(reading.response));
        assert_eq!(
            request_id::belongs(reading.response, external, internal).map(|r| r.response),
            Some(reading.response)
        );
    }
    let _ =
        (request_id::likeliest(external, internal), request_id::parent(internal), request_id::base(internal));
    let _ = traceparent::parse(internal);
    assert!(traceparent::state(internal).is_none_or(|state| state.len() <= traceparent::STATE_LIMIT));
});
