//! The HTTP side: messages of the OpenAI-compatible API (and of the other APIs that vLLM's server speaks)
//! to the payloads of [`ApiSignal`](super::signal::ApiSignal).
//!
//! [`route()`] says what is made of a request by its method and path; [`request()`] reads a request's head
//! and body; [`body()`] reads a whole response body and [`event()`] one server-sent event. None of them
//! fails: a field that is absent, of another type than the API says or lost in a gap is left out, alone.

mod content;
mod events;
mod request;
mod response;
mod route;

pub use events::{Events, Said};
pub use request::request;
pub use response::{body, event};
pub use route::{Endpoint, PassedOver, ROUTES, Route, Row, markdown, path_of, route};

use crate::settings::{Settings, VllmLevel};

/// What may leave the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Prompts, and the texts of errors (which may quote them).
    pub content: bool,
    /// Generated text and tool calls' arguments: content, or the texts of iteration events.
    pub texts: bool,
    /// Most characters kept of one input or of one candidate of a whole body.
    pub limit: usize,
}

impl From<&Settings> for Collect {
    fn from(settings: &Settings) -> Self {
        Self {
            content: settings.content,
            texts: settings.content || settings.vllm_level == VllmLevel::Iterations,
            limit: settings.content_limit,
        }
    }
}
