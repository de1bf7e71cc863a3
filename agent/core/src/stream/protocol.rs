//! Which protocol a connection speaks, told once from its first bytes.

use enginetap_common::watch::Verdict;

use super::Piece;
use crate::capture::fact::Socket;
use crate::ids::Direction;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.x, the watched process is the server.
    Http1Server,
    /// HTTP/1.x, the watched process is the client.
    Http1Client,
    /// ZeroMQ's ZMTP 3.x.
    Zmtp,
    /// TLS records: the plain text is not on the socket.
    Tls,
    /// HTTP/2 in plain text: no engine's API server speaks it.
    Http2,
    /// Nothing known, by the first [`UNKNOWN_BYTES`] bytes or [`UNKNOWN_CALLS`] calls.
    Unknown,
}

/// A connection that said this much and nothing known is [`Protocol::Unknown`].
pub const UNKNOWN_BYTES: u64 = 1024 * 1024;

/// A connection that made this many calls and said nothing known is [`Protocol::Unknown`].
pub const UNKNOWN_CALLS: u32 = 64;

impl Protocol {
    /// What the kernel is to do with the connection from now on.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Http1Server | Self::Zmtp => Verdict::Payload,
            Self::Http1Client | Self::Tls | Self::Http2 | Self::Unknown => Verdict::Ignore,
        }
    }

    /// The protocol's name, for people and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1Server => "http1",
            Self::Http1Client => "http1_client",
            Self::Zmtp => "zmtp",
            Self::Tls => "tls",
            Self::Http2 => "http2",
            Self::Unknown => "unknown",
        }
    }
}

/// Tells the protocol of one connection. Bytes it has seen and not decided on are kept (a few; bounded) and
/// given back by [`replay`](Self::replay), so that the decoder misses nothing.
#[derive(Debug)]
pub struct Detector {}

impl Detector {
    /// For a new connection. The socket, where known, is a hint only: a Unix socket needs less evidence to
    /// be ZMTP.
    #[must_use]
    pub fn new(_socket: Option<&Socket>) -> Self {
        Self {}
    }

    /// Looks at the next piece of either direction; the protocol, once it is known. Then: first
    /// [`replay`](Self::replay) into the new decoder, then this piece, then drop the detector.
    pub fn push(&mut self, _direction: Direction, _piece: Piece<'_>) -> Option<Protocol> {
        None
    }

    /// Gives the pieces pushed before the one that decided, in the order they came.
    pub fn replay(&mut self, _sink: &mut impl FnMut(Direction, Piece<'_>)) {}
}
