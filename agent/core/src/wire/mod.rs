//! Wire formats: bytes to borrowed values.

pub mod msgpack;
pub mod zmtp;
