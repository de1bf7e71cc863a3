//! Streams: records put back into stream order, with what is missing made explicit, and the protocol of a
//! connection told from its first bytes.
//!
//! One [`Assembler`] a connection and direction turns records into [`Piece`]s; every decoder of
//! [`wire`](crate::wire) takes pieces.

mod assembler;
pub mod protocol;

pub use assembler::{Assembler, HOLD_BYTES, HOLD_PIECES, HOLD_TIME};

use crate::time::MonoTime;

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Bytes, a gap, or the end.
    pub content: Content<'a>,
    /// Time of the call that carried it. For bytes that never arrived: of the call that shows they are missing.
    pub at: MonoTime,
    /// Whether its first byte is the first byte of a call: where a decoder that lost its place may look for a
    /// frame boundary.
    pub starts_call: bool,
}

/// The content of a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Bytes, in stream order. Never empty when an [`Assembler`] made them.
    Bytes(&'a [u8]),
    /// Bytes that are missing: over the cap, lost on the ring, or moved unseen.
    Gap {
        /// How many, where that is known. An [`Assembler`] always knows.
        len: Option<u64>,
    },
    /// Nothing more comes: the peer closed its side (on a received stream), or the descriptor was closed.
    End,
}

impl<'a> Piece<'a> {
    /// Bytes carried by a call at `at`.
    #[must_use]
    pub const fn bytes(bytes: &'a [u8], at: MonoTime, starts_call: bool) -> Self {
        Self { content: Content::Bytes(bytes), at, starts_call }
    }

    /// Missing bytes.
    #[must_use]
    pub const fn gap(len: Option<u64>, at: MonoTime) -> Self {
        Self { content: Content::Gap { len }, at, starts_call: false }
    }

    /// The end of the stream, at the time of the close.
    #[must_use]
    pub const fn end(at: MonoTime) -> Self {
        Self { content: Content::End, at, starts_call: false }
    }
}
