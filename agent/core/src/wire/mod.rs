//! Wire formats: pieces of streams to borrowed frames and values.

pub mod http1;
pub mod json;
pub mod lines;
pub mod msgpack;
pub mod pickle;
pub mod promdb;
pub mod sse;
pub mod zmtp;

use std::borrow::Cow;

/// Bytes as text; what is no UTF-8 is replaced. Does what [`String::from_utf8_lossy`] does, in a fraction of its time
/// where nothing is to be replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}
