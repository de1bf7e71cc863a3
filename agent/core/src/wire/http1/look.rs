//! What a call begins with: for telling HTTP from other protocols.

use super::body::{Probe, probe};
use super::head::{Guess, StartLine};

/// What the bytes of a call look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A request line.
    Request,
    /// A status line.
    Response,
    /// A piece of a streamed body: a whole chunk, or a server-sent event.
    Body,
    /// Perhaps a start line: too few bytes to tell.
    Unclear,
    /// Nothing that begins a message.
    Nothing,
}

/// Looks at the first bytes of a call.
#[must_use]
pub fn look(bytes: &[u8]) -> Found {
    match (StartLine::Request.guess(bytes), StartLine::Status.guess(bytes)) {
        (Guess::Yes, _) => Found::Request,
        (_, Guess::Yes) => Found::Response,
        (Guess::More, _) | (_, Guess::More) => Found::Unclear,
        (Guess::No, Guess::No) if is_body(bytes) => Found::Body,
        (Guess::No, Guess::No) => Found::Nothing,
    }
}

fn is_body(bytes: &[u8]) -> bool {
    match probe(bytes) {
        Probe::Found { line, size } => {
            let rest = bytes.get(line..).unwrap_or_default();
            let end = usize::try_from(size).ok().and_then(|size| rest.get(size..));
            end.is_some_and(|end| end.starts_with(b"\r\n")) || is_event(rest)
        }
        Probe::More | Probe::Nothing => is_event(bytes),
    }
}

fn is_event(bytes: &[u8]) -> bool {
    bytes.starts_with(b"data: ") || bytes.starts_with(b"event: ")
}
