//! Any request, body and event of any endpoint: what is collected keeps to its limits, what is not never leaves.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::dialect::openai::{Collect, Endpoint, ROUTES, Route, body, event, request, route};
use enginetap_core::dialect::signal::ApiDelta;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    route: u8,
    content: bool,
    texts: bool,
    limit: u16,
    cut: bool,
    name: Option<&'a [u8]>,
    header: &'a [u8],
    bytes: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let collect = Collect { content: input.content, texts: input.texts, limit: usize::from(input.limit) };
    let endpoint = endpoint(input.route);
    let _ = route(input.header, input.bytes);
    let read = request(endpoint, input.header, |_| Some(input.header), input.bytes, input.cut, collect);
    if let Some(content) = read.content {
        assert!(input.content && content.chars().count() <= collect.limit);
        assert!(serde_json::from_str::<serde_json::Value>(&content).is_ok());
    }
    check(&body(endpoint, input.bytes, input.cut, collect), collect);
    check(&event(endpoint, input.name, input.bytes, input.cut, collect), collect);
});

fn endpoint(number: u8) -> Endpoint {
    let endpoints = ROUTES.iter().filter_map(|row| match row.route {
        Route::Span(endpoint) => Some(endpoint),
        Route::PassedOver(_) | Route::Unknown => None,
    });
    endpoints.cycle().nth(usize::from(number)).unwrap_or(Endpoint::Chat)
}

fn check(delta: &ApiDelta, collect: Collect) {
    for choice in &delta.choices {
        let text = choice.text.as_deref().unwrap_or_default();
        assert!(text.is_char_boundary(choice.reasoning));
        assert!(collect.texts || text.is_empty());
        assert!(collect.texts || choice.tool_calls.iter().all(|call| call.arguments.is_none()));
    }
    assert!(collect.content || delta.error.as_ref().is_none_or(|error| error.message.is_none()));
}
