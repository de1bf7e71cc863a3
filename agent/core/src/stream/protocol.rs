//! Which protocol a connection speaks, told once from its first bytes.

use enginetap_common::watch::Verdict;

use super::{Content, Piece};
use crate::capture::fact::Socket;
use crate::ids::Direction;
use crate::time::MonoTime;
use crate::wire::{http1, zmtp};

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
    /// Lines of text: a log.
    Lines,
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
            Self::Http1Server | Self::Zmtp | Self::Lines => Verdict::Payload,
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
            Self::Lines => "lines",
            Self::Http2 => "http2",
            Self::Unknown => "unknown",
        }
    }
}

/// Most bytes kept for the decoder while the protocol is not known.
const KEPT_BYTES: usize = 64 * 1024;

/// Most pieces kept.
const KEPT_PIECES: usize = 128;

/// Most bytes of a call looked at for its start line.
const FRONT: usize = 1024;

/// This much evidence makes ZMTP of a Unix socket.
const ZMTP_ON_UNIX: u8 = 2;

/// And this much of any other.
const ZMTP_ELSEWHERE: u8 = 3;

/// Tells the protocol of one connection. Bytes it has seen and not decided on are kept (a few; bounded) and
/// given back by [`replay`](Self::replay), so that the decoder misses nothing.
///
/// ZMTP and HTTP are told in mid-stream too: ZMTP by calls that are whole frames, HTTP by the next start line, or
/// by a chunk or an event that a call begins with.
#[derive(Debug)]
pub struct Detector {
    /// Known without a look: what the socket is.
    known: Option<Protocol>,
    /// How much evidence makes ZMTP.
    zmtp_enough: u8,
    zmtp: u8,
    calls: u32,
    bytes: u64,
    received: Front,
    sent: Front,
    kept: Vec<Kept>,
    kept_bytes: usize,
}

/// The first bytes of the last call of a direction, while they tell nothing yet.
#[derive(Debug, Default)]
struct Front(Vec<u8>);

/// A piece that owns its bytes.
#[derive(Debug)]
struct Kept {
    direction: Direction,
    content: KeptContent,
    at: MonoTime,
    starts_call: bool,
}

#[derive(Debug)]
enum KeptContent {
    Bytes(Box<[u8]>),
    Gap(Option<u64>),
    End,
}

/// What some first bytes tell.
enum Guess {
    Is(Protocol),
    Unclear,
    No,
}

impl Detector {
    /// For a new connection. The socket, where known, is a hint only: a Unix socket needs less evidence to
    /// be ZMTP.
    #[must_use]
    pub fn new(socket: Option<&Socket>) -> Self {
        let (known, zmtp_enough) = match socket {
            Some(Socket::Unix { local: _, peer: _, peer_pid: _ }) => (None, ZMTP_ON_UNIX),
            Some(Socket::Tcp { local: _, peer: _ }) | None => (None, ZMTP_ELSEWHERE),
            Some(Socket::Log) => (Some(Protocol::Lines), ZMTP_ELSEWHERE),
            Some(Socket::Other) => (Some(Protocol::Unknown), ZMTP_ELSEWHERE),
        };
        Self {
            known,
            zmtp_enough,
            zmtp: 0,
            calls: 0,
            bytes: 0,
            received: Front::default(),
            sent: Front::default(),
            kept: Vec::new(),
            kept_bytes: 0,
        }
    }

    /// Looks at the next piece of either direction; the protocol, once it is known. Then: first
    /// [`replay`](Self::replay) into the new decoder, then this piece, then drop the detector.
    pub fn push(&mut self, direction: Direction, piece: Piece<'_>) -> Option<Protocol> {
        if self.known.is_some() {
            return self.known;
        }
        if let Content::Bytes(bytes) = piece.content
            && let Some(protocol) = self.look(direction, bytes, piece.starts_call)
        {
            return Some(protocol);
        }
        self.count(piece);
        if self.bytes >= UNKNOWN_BYTES || self.calls >= UNKNOWN_CALLS {
            return Some(Protocol::Unknown);
        }
        self.keep(direction, piece);
        None
    }

    /// Gives the pieces pushed before the one that decided, in the order they came.
    pub fn replay(&mut self, sink: &mut impl FnMut(Direction, Piece<'_>)) {
        for Kept { direction, content, at, starts_call } in std::mem::take(&mut self.kept) {
            let content = match &content {
                KeptContent::Bytes(bytes) => Content::Bytes(bytes),
                KeptContent::Gap(len) => Content::Gap { len: *len },
                KeptContent::End => Content::End,
            };
            sink(direction, Piece { content, at, starts_call });
        }
        self.kept_bytes = 0;
    }

    fn look(&mut self, direction: Direction, bytes: &[u8], starts_call: bool) -> Option<Protocol> {
        let front = match direction {
            Direction::Rx => &mut self.received,
            Direction::Tx => &mut self.sent,
        };
        match front.look(direction, bytes, starts_call) {
            Guess::Is(protocol) => return Some(protocol),
            Guess::Unclear => return None,
            Guess::No => {}
        }
        if !starts_call {
            return None;
        }
        // Wake-ups of event loops are a zero byte or two: no evidence.
        self.zmtp = match zmtp::look(bytes) {
            zmtp::Found::Whole if bytes.len() > 2 => self.zmtp.saturating_add(2),
            zmtp::Found::Likely => self.zmtp.saturating_add(1),
            zmtp::Found::Whole | zmtp::Found::Nothing => self.zmtp.saturating_sub(1),
        };
        (self.zmtp >= self.zmtp_enough).then_some(Protocol::Zmtp)
    }

    fn count(&mut self, piece: Piece<'_>) {
        let bytes = match piece.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Gap { len } => len.unwrap_or(0),
            Content::End => 0,
        };
        self.bytes = self.bytes.saturating_add(bytes);
        self.calls = self.calls.saturating_add(u32::from(piece.starts_call));
    }

    /// Keeps a piece for the decoder. Past the bound everything kept is dropped: it would be joined in the middle.
    fn keep(&mut self, direction: Direction, piece: Piece<'_>) {
        let Piece { content, at, starts_call } = piece;
        let (content, len) = match content {
            Content::Bytes(bytes) => (KeptContent::Bytes(bytes.into()), bytes.len()),
            Content::Gap { len } => (KeptContent::Gap(len), 0),
            Content::End => (KeptContent::End, 0),
        };
        if self.kept_bytes.saturating_add(len) > KEPT_BYTES || self.kept.len() >= KEPT_PIECES {
            self.kept.clear();
            self.kept_bytes = 0;
            return;
        }
        self.kept_bytes = self.kept_bytes.saturating_add(len);
        self.kept.push(Kept { direction, content, at, starts_call });
    }
}

impl Front {
    /// Looks at the call's first bytes, of which some may have come before.
    fn look(&mut self, direction: Direction, bytes: &[u8], starts_call: bool) -> Guess {
        if !self.0.is_empty() {
            let room = FRONT.saturating_sub(self.0.len());
            self.0.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            match guess(direction, &self.0) {
                Guess::Is(protocol) => return Guess::Is(protocol),
                Guess::Unclear if self.0.len() < FRONT => return Guess::Unclear,
                Guess::Unclear | Guess::No => self.0.clear(),
            }
        }
        if !starts_call {
            return Guess::No;
        }
        let guess = guess(direction, bytes);
        if let Guess::Unclear = guess {
            self.0.extend_from_slice(bytes.get(..FRONT).unwrap_or(bytes));
        }
        guess
    }
}

fn guess(direction: Direction, bytes: &[u8]) -> Guess {
    let signatures = [
        (is_zmtp_greeting(bytes), Protocol::Zmtp),
        (is_tls(bytes), Protocol::Tls),
        (is_prefix(bytes, b"PRI * HTTP/2.0\r\n"), Protocol::Http2),
    ];
    for (is, protocol) in signatures {
        match is {
            Some(true) => return Guess::Is(protocol),
            Some(false) => {}
            None => return Guess::Unclear,
        }
    }
    match (http1::look(bytes), direction) {
        (http1::Found::Request, Direction::Rx) | (http1::Found::Response, Direction::Tx) => {
            Guess::Is(Protocol::Http1Server)
        }
        (http1::Found::Request, Direction::Tx) | (http1::Found::Response, Direction::Rx) => {
            Guess::Is(Protocol::Http1Client)
        }
        (http1::Found::Body, Direction::Tx) => Guess::Is(Protocol::Http1Server),
        // A client being streamed to, or a server being uploaded to.
        (http1::Found::Body, Direction::Rx) | (http1::Found::Nothing, _) => Guess::No,
        (http1::Found::Unclear, _) => Guess::Unclear,
    }
}

/// Whether the bytes begin with `signature`; `None`: they are too few.
fn is_prefix(bytes: &[u8], signature: &[u8]) -> Option<bool> {
    if bytes.len() < signature.len() {
        is_short(signature.starts_with(bytes))
    } else {
        Some(bytes.starts_with(signature))
    }
}

/// The answer where there are too few bytes: they may still fit, or cannot.
const fn is_short(fits: bool) -> Option<bool> {
    if fits { None } else { Some(false) }
}

/// `ff`, eight bytes that are zero but for the last few, `7f`.
fn is_zmtp_greeting(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0xff, 0, 0, 0, 0, 0, 0, _, _, 0x7f, ..] => Some(true),
        [0xff, rest @ ..] if bytes.len() < 10 => is_short(rest.iter().take(6).all(|byte| *byte == 0)),
        _ => Some(false),
    }
}

/// A record's head: its type, version 3.x, and a length within the limit.
fn is_tls(bytes: &[u8]) -> Option<bool> {
    const LIMIT: u16 = 16 * 1024 + 2048;
    match bytes {
        [0x14..=0x17, 3, 0..=4, high, low, ..] => {
            Some((1..=LIMIT).contains(&u16::from_be_bytes([*high, *low])))
        }
        [0x14..=0x17] | [0x14..=0x17, 3] | [0x14..=0x17, 3, 0..=4] | [0x14..=0x17, 3, 0..=4, _] => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests;
