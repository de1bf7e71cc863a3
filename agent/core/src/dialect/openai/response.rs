//! Responses.

use super::{Collect, Endpoint};
use crate::dialect::signal::ApiDelta;

/// Reads a whole (not streamed) response body, or what is known of it up to the first gap (`cut`).
#[must_use]
pub fn body(endpoint: Endpoint, bytes: &[u8], cut: bool, collect: Collect) -> ApiDelta {
    let _ = (endpoint, bytes, collect);
    ApiDelta { cut, ..ApiDelta::default() }
}

/// Reads one server-sent event: its `event` field, where it had one, and its data.
#[must_use]
pub fn event(endpoint: Endpoint, name: Option<&[u8]>, data: &[u8], cut: bool, collect: Collect) -> ApiDelta {
    let _ = (endpoint, name, collect);
    ApiDelta { done: data == b"[DONE]", cut, ..ApiDelta::default() }
}
