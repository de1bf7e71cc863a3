//! HTTP/1.x: both directions of one connection, in pieces, across gaps.
//!
//! Heads are parsed by `httparse` once they are complete; framing, pairing and what to do about gaps are here.

mod head;

pub use head::{Headers, RequestHead, ResponseHead};

use crate::ids::{ConnId, Direction, ExchangeId};
use crate::loss::Losses;
use crate::stream::Piece;
use crate::time::MonoTime;

/// Most bytes of one head: start line and headers.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// Most requests of one connection waiting for their response (pipelining).
pub const PIPELINE_LIMIT: usize = 256;

/// Which side of the connection the watched process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Requests come in.
    Server,
    /// Requests go out.
    Client,
}

/// Something happened in an exchange: one request and its response.
///
/// Of one exchange the request's events come in order, and so do the response's; the two may interleave, and
/// when records of the two directions were delivered swapped a response may even be told before its request.
/// An exchange without a [`RequestHead`](EventKind::RequestHead) is one whose request was not seen.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The exchange. Numbered in the order in which exchanges are first seen on the connection.
    pub exchange: ExchangeId,
    /// Time of the call that carried the last byte of it.
    pub at: MonoTime,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// What happened in an exchange.
#[derive(Clone, Copy, Debug)]
pub enum EventKind<'a> {
    /// The request's head is complete.
    RequestHead {
        /// The head.
        head: RequestHead<'a>,
        /// Time of the call that carried its first byte.
        first: MonoTime,
    },
    /// Bytes of the request's body, chunk framing removed. Never empty.
    RequestBody(&'a [u8]),
    /// Missing bytes of the request's body; `None`: nobody knows how many.
    RequestGap(Option<u64>),
    /// The request ended.
    RequestEnd {
        /// Whether it ended where its framing says (gaps are told on their own).
        complete: bool,
    },
    /// An interim response (1xx but 101): the final one is still to come.
    Interim {
        /// Its status.
        status: u16,
    },
    /// The response's head is complete.
    ResponseHead {
        /// The head.
        head: ResponseHead<'a>,
        /// Time of the call that carried its first byte.
        first: MonoTime,
    },
    /// Bytes of the response's body, chunk framing removed. Never empty.
    ResponseBody(&'a [u8]),
    /// Missing bytes of the response's body; `None`: nobody knows how many.
    ResponseGap(Option<u64>),
    /// The response ended, or was given up. Also told, with `complete: false`, for a request whose response
    /// was never seen.
    ResponseEnd {
        /// Whether it ended where its framing says (gaps are told on their own).
        complete: bool,
    },
    /// The connection speaks another protocol from here on (101, or CONNECT accepted): nothing more is decoded.
    Upgraded,
}

/// Decodes one connection.
#[derive(Debug)]
pub struct Decoder {
    conn: ConnId,
    side: Side,
}

impl Decoder {
    /// For a connection joined anywhere: from its start, or in the middle of an exchange.
    #[must_use]
    pub fn new(conn: ConnId, side: Side) -> Self {
        Self { conn, side }
    }

    /// Takes the next piece of one direction and gives what it completes to `sink`.
    pub fn push(&mut self, _direction: Direction, _piece: Piece<'_>, _sink: &mut impl FnMut(Event<'_>)) {
        let _ = (self.conn, self.side);
    }

    /// The connection is closed, or nobody looks any more: ends whatever is open. A response delimited by the
    /// close is complete, anything else is not.
    pub fn finish(&mut self, _at: MonoTime, _sink: &mut impl FnMut(Event<'_>)) {}

    /// Adds what was lost since the last call to `losses`.
    pub fn drain_losses(&mut self, _losses: &mut Losses) {}
}
