//! HTTP/1.x: both directions of one connection, in pieces, across gaps.
//!
//! Heads are parsed by `httparse` once they are complete; framing, pairing and what to do about gaps are here.

mod body;
mod exchange;
mod head;
mod lane;
mod look;

pub use head::{Headers, RequestHead, ResponseHead};
pub use look::{Found, look};

use crate::ids::{ConnId, Direction, ExchangeId};
use crate::loss::Losses;
use crate::stream::Piece;
use crate::time::MonoTime;
use exchange::{Exchanges, Requests, Responses};
use head::StartLine;
use lane::Lane;

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
///
/// What it does about gaps: a body with a length is counted on; a chunked body goes on with the next call that
/// begins with a chunk's line; where a head is missing, the exchange is lost, and the next call that begins with
/// a start line begins the next one. Which response belongs to which request is told by their order while nothing
/// is missing, and after a loss by the rule that nobody pipelines: a response answers the latest request, and a
/// request means that the responses before it are over.
#[derive(Debug)]
pub struct Decoder {
    side: Side,
    exchanges: Exchanges,
    requests: Lane,
    responses: Lane,
}

impl Decoder {
    /// For a connection joined anywhere: from its start, or in the middle of an exchange.
    #[must_use]
    pub fn new(conn: ConnId, side: Side) -> Self {
        Self {
            side,
            exchanges: Exchanges::new(conn),
            requests: Lane::new(StartLine::Request),
            responses: Lane::new(StartLine::Status),
        }
    }

    /// Takes the next piece of one direction and gives what it completes to `sink`.
    pub fn push(&mut self, direction: Direction, piece: Piece<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let Self { side, exchanges, requests, responses } = self;
        let at = piece.at;
        match (direction, *side) {
            (Direction::Rx, Side::Server) | (Direction::Tx, Side::Client) => {
                requests.push(piece, &mut Requests { exchanges, responses, at, sink });
            }
            (Direction::Tx, Side::Server) | (Direction::Rx, Side::Client) => {
                responses.push(piece, &mut Responses { exchanges, requests, at, sink });
            }
        }
    }

    /// The connection is closed, or nobody looks any more: ends whatever is open. A response delimited by the
    /// close is complete, anything else is not.
    pub fn finish(&mut self, at: MonoTime, sink: &mut impl FnMut(Event<'_>)) {
        for direction in [Direction::Rx, Direction::Tx] {
            self.push(direction, Piece::end(at), sink);
        }
        self.exchanges.give_up(at, sink);
    }

    /// Adds what was lost since the last call to `losses`.
    pub fn drain_losses(&mut self, losses: &mut Losses) {
        self.requests.drain_losses(losses);
        self.responses.drain_losses(losses);
        self.exchanges.drain_losses(losses);
    }
}

#[cfg(test)]
mod tests;
