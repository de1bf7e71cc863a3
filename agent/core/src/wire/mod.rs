//! Wire formats: pieces of streams to borrowed frames and values.

pub mod http1;
pub mod json;
pub mod msgpack;
pub mod pickle;
pub mod sse;
pub mod zmtp;
