//! Requests.

use super::{Collect, Endpoint, path_of};
use crate::dialect::signal::{ApiRequest, Operation};

/// Reads a request.
///
/// `header` finds a header's value by its lower-case name. `body` is what is known of the body from its
/// first byte to the first gap; `cut` says that there was a gap (or that the body was over the limit).
pub fn request<'h>(
    endpoint: Endpoint,
    target: &[u8],
    header: impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
    cut: bool,
    collect: Collect,
) -> ApiRequest {
    let _ = (header("x-request-id"), body, collect);
    ApiRequest {
        operation: endpoint.operation().unwrap_or(Operation::TextCompletion),
        path: String::from_utf8_lossy(path_of(target)).into_owned(),
        request_id: None,
        traceparent: None,
        tracestate: None,
        model: None,
        choices: None,
        prompts: 1,
        temperature: None,
        top_p: None,
        top_k: None,
        max_tokens: None,
        stream: false,
        user: None,
        stop: false,
        logprobs: false,
        tools: false,
        content: None,
        cut,
    }
}
