//! ZMTP 3.x, the protocol of ZeroMQ sockets, with the NULL mechanism: one direction of one connection.
//!
//! ```text
//! greeting = ff, padding[8], 7f, major, minor, mechanism[20], as-server, filler[31]
//! frame    = flags, length (1 byte, or 8 big-endian where LONG), body
//! message  = frames, all but the last with MORE
//! ```
//!
//! Made for streams with holes and without a beginning: see [`Decoder`].
//! Mirrors RFC 23/ZMTP and 37/ZMTP, and libzmq 4.3's variants of the signature.

mod greeting;
mod pending;
mod search;

use crate::loss::{Loss, Losses};
use crate::stream::{Content, Piece};
use crate::time::MonoTime;
use greeting::{Greeting, Verdict};
use pending::Pending;

pub use greeting::SocketType;
pub use search::{Found, look};

/// Most frames kept of one message; vLLM sends one a tensor.
pub const FRAME_LIMIT: usize = 4096;

/// A longer frame is taken for a lost place: 64 GiB.
const LENGTH_LIMIT: u64 = 1 << 36;

/// A whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'m> {
    /// The bodies of its frames.
    pub frames: &'m [&'m [u8]],
    /// When the call that moved its last byte returned.
    pub at: MonoTime,
    /// Whether bytes are missing: a frame is a prefix of what was sent, or later frames are not there.
    pub cut: bool,
}

/// Where in the stream a decoder starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the connection's first byte.
    Beginning,
    /// Anywhere.
    Midstream,
}

/// Bits of a frame's first byte.
mod flags {
    pub const MORE: u8 = 1;
    pub const LONG: u8 = 2;
    pub const COMMAND: u8 = 4;
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHead {
    more: bool,
    command: bool,
    len: u64,
}

impl FrameHead {
    const LONGEST: usize = 9;

    /// Bytes of the head that begins with this byte.
    fn len_of(first: u8) -> usize {
        if first & flags::LONG == 0 { 2 } else { Self::LONGEST }
    }

    /// Reads a whole head; `None` when it cannot be one.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (first, len) = bytes.split_first()?;
        let (more, command) = (first & flags::MORE != 0, first & flags::COMMAND != 0);
        if *first > flags::MORE | flags::LONG | flags::COMMAND || more && command {
            return None;
        }
        let len = match len.first_chunk::<8>() {
            Some(len) if first & flags::LONG != 0 => u64::from_be_bytes(*len),
            Some(_) | None => u64::from(*len.first()?),
        };
        (len <= LENGTH_LIMIT).then_some(Self { more, command, len })
    }
}

/// A frame of which a part has come.
#[derive(Clone, Copy, Debug)]
struct Open {
    head: FrameHead,
    /// Bytes of its body that are still to come.
    left: u64,
}

#[derive(Debug)]
enum Phase {
    /// Before or in the greeting.
    Greeting(Greeting),
    /// The place is lost, or was never known: waits for bytes that begin like a message.
    Searching,
    /// Between and in frames.
    Frames,
    /// No ZMTP 3, or one whose mechanism hides the frames.
    Foreign,
}

/// Takes one direction of a connection apart into messages.
///
/// Attached in mid-stream, it starts at the first system call whose bytes begin like a message, or inside one
/// where several frames in a row show the place. A gap inside a frame leaves the frame's prefix; one that swallows
/// a frame's end makes it search again. A message that lies in one piece is lent, not copied.
#[derive(Debug)]
pub struct Decoder {
    phase: Phase,
    /// Most bytes kept of one message.
    limit: usize,
    /// The bytes of a frame head that has not come whole.
    head: [u8; FrameHead::LONGEST],
    head_len: usize,
    open: Option<Open>,
    pending: Pending,
    /// Whether the place found by searching has held since.
    confirmed: bool,
    socket_type: Option<SocketType>,
}

impl Decoder {
    /// A decoder that keeps at most `limit` bytes of one message.
    #[must_use]
    pub fn new(start: Start, limit: usize) -> Self {
        let (phase, confirmed) = match start {
            Start::Beginning => (Phase::Greeting(Greeting::default()), true),
            Start::Midstream => (Phase::Searching, false),
        };
        Self {
            phase,
            limit,
            head: [0; FrameHead::LONGEST],
            head_len: 0,
            open: None,
            pending: Pending::default(),
            confirmed,
            socket_type: None,
        }
    }

    /// The socket type that the sender of this direction named, where the greeting was seen.
    #[must_use]
    pub fn socket_type(&self) -> Option<SocketType> {
        self.socket_type
    }

    /// Whether this is no ZMTP 3 stream with the NULL mechanism: nothing will ever come of it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        matches!(self.phase, Phase::Foreign)
    }

    /// Takes the next piece and gives each message that ends in it to `sink`.
    pub fn push(&mut self, piece: &Piece<'_>, losses: &mut Losses, sink: &mut impl FnMut(&Message<'_>)) {
        let Piece { content, at: time, starts_call } = *piece;
        match content {
            // Of an unknown length: longer than any frame.
            Content::Gap { len } => self.gap(len.unwrap_or(u64::MAX), time, losses, sink),
            Content::End => self.end(time, losses, sink),
            Content::Bytes(bytes) => {
                let rest = self.place(bytes, starts_call, losses);
                if matches!(self.phase, Phase::Frames) {
                    self.frames(rest, time, losses, sink);
                }
            }
        }
    }

    /// Brings the decoder to where frames begin, if these bytes do; what is left of them to be read as frames.
    fn place<'a>(&mut self, bytes: &'a [u8], starts_call: bool, losses: &mut Losses) -> &'a [u8] {
        match &mut self.phase {
            Phase::Greeting(greeting) => match greeting.push(bytes) {
                Verdict::More => &[],
                Verdict::Done(rest) => {
                    self.phase = Phase::Frames;
                    rest
                }
                Verdict::Foreign => {
                    self.phase = Phase::Foreign;
                    &[]
                }
            },
            Phase::Searching => self.search(bytes, starts_call, losses),
            Phase::Foreign => &[],
            Phase::Frames => {
                self.doubt(bytes, starts_call, losses);
                bytes
            }
        }
    }

    fn search<'a>(&mut self, bytes: &'a [u8], starts_call: bool, losses: &mut Losses) -> &'a [u8] {
        if starts_call && greeting::begins(bytes) {
            self.phase = Phase::Greeting(Greeting::default());
            return self.place(bytes, starts_call, losses);
        }
        let at_once = starts_call && look(bytes) != Found::Nothing;
        let Some(start) = (if at_once { Some(0) } else { search::inside(bytes) }) else { return &[] };
        self.phase = Phase::Frames;
        self.confirmed = false;
        bytes.get(start..).unwrap_or_default()
    }

    /// A place found by searching may be wrong: when a call inside a supposed frame is itself made of whole
    /// messages, that is the better reading.
    fn doubt(&mut self, bytes: &[u8], starts_call: bool, losses: &mut Losses) {
        if self.confirmed || !starts_call {
            return;
        }
        let between = self.open.is_none() && self.head_len == 0;
        match (between, look(bytes)) {
            (true, Found::Whole | Found::Likely) => self.confirmed = true,
            (false, Found::Whole) => {
                losses.add(Loss::Resync, 1);
                self.forget();
            }
            (true, Found::Nothing) | (false, Found::Likely | Found::Nothing) => {}
        }
    }

    fn frames(
        &mut self,
        bytes: &[u8],
        time: MonoTime,
        losses: &mut Losses,
        sink: &mut impl FnMut(&Message<'_>),
    ) {
        let mut rest = bytes;
        // The frames, in these bytes, of a message that began in them.
        let mut lent: Vec<&[u8]> = Vec::new();
        let mut lent_len = 0_usize;
        while !rest.is_empty() {
            if self.open.is_some() {
                rest = self.body(rest, time, losses, sink);
                continue;
            }
            let head = match self.frame_head(&mut rest) {
                Next::Head(head) => head,
                Next::Short => break,
                Next::Bad => {
                    self.pending.keep(&lent, self.limit);
                    return self.lose_place(time, losses, sink);
                }
            };
            let body = usize::try_from(head.len).ok().and_then(|len| rest.split_at_checked(len));
            let fits = |body: &[u8]| lent.len() < FRAME_LIMIT && lent_len + body.len() <= self.limit;
            match body {
                Some((body, after)) if self.pending.is_empty() && (head.command || fits(body)) => {
                    rest = after;
                    if head.command {
                        self.command(body);
                        continue;
                    }
                    lent.push(body);
                    lent_len += body.len();
                    if !head.more {
                        sink(&Message { frames: &lent, at: time, cut: false });
                        lent.clear();
                        lent_len = 0;
                    }
                }
                Some(_) | None => {
                    self.pending.keep(&lent, self.limit);
                    lent.clear();
                    lent_len = 0;
                    self.open_frame(head, time, losses, sink);
                }
            }
        }
        self.pending.keep(&lent, self.limit);
    }

    /// Reads the head of the next frame, which may have begun in an earlier piece.
    fn frame_head(&mut self, rest: &mut &[u8]) -> Next {
        loop {
            let whole = match self.head_len {
                0 => 1,
                _ => FrameHead::len_of(self.head[0]),
            };
            if self.head_len > 0 && self.head_len == whole {
                let head = FrameHead::parse(&self.head[..whole]);
                self.head_len = 0;
                return head.map_or(Next::Bad, Next::Head);
            }
            let missing = whole - self.head_len;
            let (bytes, after) = rest.split_at(missing.min(rest.len()));
            if bytes.is_empty() {
                return Next::Short;
            }
            self.head[self.head_len..self.head_len + bytes.len()].copy_from_slice(bytes);
            self.head_len += bytes.len();
            *rest = after;
        }
    }

    /// Begins a frame whose body does not lie whole in the piece.
    fn open_frame(
        &mut self,
        head: FrameHead,
        time: MonoTime,
        losses: &mut Losses,
        sink: &mut impl FnMut(&Message<'_>),
    ) {
        self.pending.begin();
        self.open = Some(Open { head, left: head.len });
        self.end_frame(time, losses, sink);
    }

    /// Takes what `bytes` hold of the open frame's body; what follows it.
    fn body<'a>(
        &mut self,
        bytes: &'a [u8],
        time: MonoTime,
        losses: &mut Losses,
        sink: &mut impl FnMut(&Message<'_>),
    ) -> &'a [u8] {
        let Some(open) = &mut self.open else { return bytes };
        let len = usize::try_from(open.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let (body, rest) = bytes.split_at(len);
        open.left -= len64(len);
        self.pending.append(body, self.limit);
        self.end_frame(time, losses, sink);
        rest
    }

    /// Ends the open frame if its body is whole, and the message if the frame was its last.
    fn end_frame(&mut self, time: MonoTime, losses: &mut Losses, sink: &mut impl FnMut(&Message<'_>)) {
        let Some(Open { head, .. }) = self.open.filter(|open| open.left == 0) else { return };
        self.open = None;
        if head.command {
            if let Some(body) = self.pending.take_last() {
                self.command(&body);
            }
        } else if !head.more {
            self.pending.deliver(time, losses, sink);
        }
    }

    fn gap(&mut self, len: u64, time: MonoTime, losses: &mut Losses, sink: &mut impl FnMut(&Message<'_>)) {
        match (&self.phase, &mut self.open) {
            (Phase::Foreign | Phase::Searching, _) => {}
            (Phase::Frames | Phase::Greeting(_), _) if len == 0 => {}
            (Phase::Frames, Some(open)) if len <= open.left => {
                open.left -= len;
                self.pending.hole();
                self.end_frame(time, losses, sink);
            }
            (Phase::Frames | Phase::Greeting(_), Some(_) | None) => self.lose_place(time, losses, sink),
        }
    }

    /// Gives what there is of the message and goes to look for another beginning.
    fn lose_place(&mut self, time: MonoTime, losses: &mut Losses, sink: &mut impl FnMut(&Message<'_>)) {
        losses.add(Loss::Resync, 1);
        self.end(time, losses, sink);
        self.phase = Phase::Searching;
    }

    /// Gives what there is of the message: nothing more of it will come.
    fn end(&mut self, time: MonoTime, losses: &mut Losses, sink: &mut impl FnMut(&Message<'_>)) {
        let command = self.open.is_some_and(|open| open.head.command);
        if !command && !self.pending.is_empty() {
            self.pending.hole();
            self.pending.deliver(time, losses, sink);
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.head_len = 0;
        self.open = None;
        self.pending.clear();
    }

    fn command(&mut self, body: &[u8]) {
        if let Some(found) = greeting::ready(body) {
            self.socket_type = Some(found);
        }
    }
}

/// What comes next where a frame may begin.
enum Next {
    Head(FrameHead),
    /// Not all of the head has come.
    Short,
    /// Nothing that begins a frame.
    Bad,
}

fn len64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
