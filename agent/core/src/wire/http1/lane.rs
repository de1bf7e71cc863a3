//! One direction of a connection: heads and bodies in turn, and where to go on after a gap.

use super::HEAD_LIMIT;
use super::body::{Body, Chunk, GapStep, Probe, Step, probe};
use super::head::{Guess, StartLine, end_of_head};
use crate::loss::{Loss, Losses};
use crate::stream::{Content, Piece};
use crate::time::MonoTime;

/// A buffer larger than this is given back once its head is parsed.
const KEEP_BUFFER: usize = 4096;

/// What a lane tells of its messages.
pub(super) trait Handler {
    /// A head is complete. `lost`: bytes were lost before it, other heads perhaps.
    fn head(&mut self, head: &[u8], first: MonoTime, lost: bool) -> Next;
    /// Bytes of the body.
    fn body(&mut self, bytes: &[u8]);
    /// Missing bytes of the body.
    fn gap(&mut self, len: Option<u64>);
    /// The message is over.
    fn end(&mut self, complete: bool);
    /// Whether, of the messages of this direction, only the one in progress can be under way.
    fn is_alone(&self) -> bool;
}

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another head: the message is interim, and has no end of its own.
    Head,
    /// A body, perhaps of no bytes.
    Body(Body),
    /// Another protocol.
    Tunnel,
    /// It was no head: the place is lost.
    Lost,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Lane {
    line: StartLine,
    state: State,
    /// Whether the place was known until the last loss, if any.
    synced: bool,
    /// Whether something was lost since the last head.
    lost: bool,
    /// A message began and its end is not known: chunks of it may still come.
    open: bool,
    /// The head so far, when it came in several pieces.
    buffer: Vec<u8>,
    /// Time of the buffer's first byte.
    first: MonoTime,
    /// Where the last call begins in the buffer, and its time.
    restart: Option<(usize, MonoTime)>,
    losses: Losses,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Between messages, or in a head.
    Head,
    /// Waiting for a call that begins with something known.
    Seek,
    Body(Body),
    Tunnel,
}

/// What the front of some bytes is, where a head is expected.
enum Front {
    /// A head of so many bytes.
    Head(usize),
    /// The line of a chunk of the message that was lost sight of: its length, and the chunk's size.
    Chunk(usize, u64),
    More,
    Nothing,
}

impl Lane {
    pub(super) fn new(line: StartLine) -> Self {
        Self {
            line,
            state: State::Seek,
            synced: false,
            lost: false,
            open: false,
            buffer: Vec::new(),
            first: MonoTime::default(),
            restart: None,
            losses: Losses::default(),
        }
    }

    pub(super) fn push(&mut self, piece: Piece<'_>, handler: &mut impl Handler) {
        let Piece { content, at, starts_call } = piece;
        match content {
            Content::Bytes(bytes) => self.bytes(bytes, at, starts_call, handler),
            Content::Gap { len } => self.gap(len, handler),
            Content::End => self.end(handler),
        }
    }

    /// Whether something was lost since the last head.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether nothing but the close ends what is read now.
    #[cfg(test)]
    pub(super) fn is_open_ended(&self) -> bool {
        matches!(self.state, State::Body(Body::ToClose))
    }

    /// Nothing of the messages so far is awaited any more: a head comes next.
    pub(super) fn forget(&mut self) {
        self.open = false;
        self.lost = false;
        if !matches!(self.state, State::Tunnel) {
            self.seek();
        }
    }

    /// Nothing more is decoded.
    pub(super) fn tunnel(&mut self) {
        self.clear();
        self.open = false;
        self.state = State::Tunnel;
    }

    pub(super) fn drain_losses(&mut self, losses: &mut Losses) {
        losses.merge(&std::mem::take(&mut self.losses));
    }

    fn bytes(&mut self, bytes: &[u8], at: MonoTime, starts_call: bool, handler: &mut impl Handler) {
        if starts_call {
            self.call(at);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.state {
                State::Head if self.buffer.is_empty() => self.lent_head(rest, at, handler),
                State::Head => self.kept_head(rest, handler),
                State::Body(body) => self.body(body, rest, handler),
                State::Seek | State::Tunnel => return,
            };
        }
    }

    /// A call begins here.
    fn call(&mut self, at: MonoTime) {
        match self.state {
            State::Seek => self.state = State::Head,
            State::Head if !self.buffer.is_empty() => self.restart = Some((self.buffer.len(), at)),
            State::Head | State::Body(_) | State::Tunnel => {}
        }
    }

    /// A head (or the front of one) in bytes of which none is kept yet.
    fn lent_head<'a>(&mut self, bytes: &'a [u8], at: MonoTime, handler: &mut impl Handler) -> &'a [u8] {
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let bytes = bytes.get(blank..).unwrap_or_default();
        self.first = at;
        match self.front(bytes, 0) {
            Front::Head(len) => {
                let (head, rest) = bytes.split_at(len.min(bytes.len()));
                self.head(head, handler);
                rest
            }
            Front::Chunk(len, size) => self.chunk(size, bytes.get(len..).unwrap_or_default()),
            Front::Nothing => self.miss(Loss::Resync),
            Front::More => {
                self.buffer.extend_from_slice(bytes.get(..HEAD_LIMIT).unwrap_or(bytes));
                if bytes.len() > HEAD_LIMIT { self.miss(Loss::OverSize) } else { &[] }
            }
        }
    }

    /// A head of which the front is kept.
    fn kept_head<'a>(&mut self, bytes: &'a [u8], handler: &mut impl Handler) -> &'a [u8] {
        let kept = self.buffer.len();
        let room = HEAD_LIMIT.saturating_sub(kept);
        self.buffer.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        let buffer = std::mem::take(&mut self.buffer);
        let after = |len: usize| bytes.get(len.saturating_sub(kept)..).unwrap_or_default();
        // The blank line may have begun up to three bytes before these.
        match self.front(&buffer, kept.saturating_sub(3)) {
            Front::Head(len) => {
                self.head(buffer.get(..len).unwrap_or_default(), handler);
                self.keep(buffer);
                after(len)
            }
            Front::Chunk(len, size) => {
                self.keep(buffer);
                self.chunk(size, after(len))
            }
            Front::Nothing => self.retry(buffer, bytes, kept),
            Front::More if bytes.len() > room => self.miss(Loss::OverSize),
            Front::More => {
                self.buffer = buffer;
                &[]
            }
        }
    }

    /// What is kept begins with nothing known: perhaps the last call in it does.
    fn retry<'a>(&mut self, buffer: Vec<u8>, bytes: &'a [u8], kept: usize) -> &'a [u8] {
        let Some((from, at)) = self.restart.take() else {
            self.keep(buffer);
            return self.miss(Loss::Resync);
        };
        self.slip(Loss::Resync);
        self.first = at;
        let mut call = buffer;
        call.truncate(kept);
        call.drain(..from.min(kept));
        self.state = State::Head;
        self.buffer = call;
        bytes
    }

    fn front(&self, bytes: &[u8], scanned: usize) -> Front {
        match self.line.guess(bytes) {
            Guess::Yes => end_of_head(bytes, scanned).map_or(Front::More, Front::Head),
            Guess::More => Front::More,
            Guess::No if !self.open => Front::Nothing,
            Guess::No => match probe(bytes) {
                Probe::Found { line, size } => Front::Chunk(line, size),
                Probe::More => Front::More,
                Probe::Nothing => Front::Nothing,
            },
        }
    }

    fn head(&mut self, head: &[u8], handler: &mut impl Handler) {
        self.restart = None;
        if head.len() > HEAD_LIMIT {
            self.miss(Loss::OverSize);
            return;
        }
        if std::mem::take(&mut self.open) {
            handler.end(false);
        }
        let next = handler.head(head, self.first, self.lost);
        if next == Next::Lost {
            self.miss(Loss::Resync);
            return;
        }
        self.synced = true;
        self.lost = false;
        self.state = match next {
            Next::Body(body) if body.is_done() => {
                handler.end(true);
                State::Head
            }
            Next::Body(body) => State::Body(body),
            Next::Head | Next::Lost => State::Head,
            Next::Tunnel => State::Tunnel,
        };
    }

    /// The message lost sight of goes on with this chunk.
    fn chunk<'a>(&mut self, size: u64, rest: &'a [u8]) -> &'a [u8] {
        self.restart = None;
        self.open = false;
        self.lost = false;
        self.synced = true;
        self.state = State::Body(Body::Chunked(Chunk::after_size(size)));
        rest
    }

    fn body<'a>(&mut self, mut body: Body, bytes: &'a [u8], handler: &mut impl Handler) -> &'a [u8] {
        let (step, rest) = body.take(bytes);
        self.state = State::Body(body);
        match step {
            Step::Bytes(bytes) => handler.body(bytes),
            Step::Framing => {}
            Step::Bad => {
                self.body_gap(GapStep::Lost, body, handler);
                return &[];
            }
            Step::End => self.done(handler),
        }
        if body.is_done() {
            self.done(handler);
        }
        rest
    }

    fn done(&mut self, handler: &mut impl Handler) {
        self.state = State::Head;
        handler.end(true);
    }

    fn gap(&mut self, len: Option<u64>, handler: &mut impl Handler) {
        match self.state {
            State::Tunnel => {}
            State::Head | State::Seek => self.slip(Loss::Resync),
            State::Body(mut body) => {
                let step = body.gap(len);
                self.state = State::Body(body);
                self.body_gap(step, body, handler);
            }
        }
    }

    fn body_gap(&mut self, step: GapStep, body: Body, handler: &mut impl Handler) {
        match step {
            GapStep::Within(len) => {
                if len != Some(0) {
                    handler.gap(len);
                }
                if body.is_done() {
                    self.done(handler);
                }
            }
            GapStep::PastEnd(left) => {
                if left > 0 {
                    handler.gap(Some(left));
                }
                self.done(handler);
                self.slip(Loss::Resync);
            }
            GapStep::Lost => {
                handler.gap(None);
                self.open = matches!(body, Body::Chunked(_)) && handler.is_alone();
                if !self.open {
                    handler.end(false);
                }
                self.slip(Loss::Resync);
            }
        }
    }

    fn end(&mut self, handler: &mut impl Handler) {
        match self.state {
            State::Tunnel => return,
            State::Head | State::Seek => {
                if self.open {
                    handler.end(false);
                }
            }
            State::Body(body) => handler.end(body == Body::ToClose),
        }
        self.open = false;
        self.seek();
    }

    /// What comes next is not known; nothing more of this call is of use.
    fn miss<'a>(&mut self, loss: Loss) -> &'a [u8] {
        self.slip(loss);
        &[]
    }

    /// The place is lost; counted where it was known.
    fn slip(&mut self, loss: Loss) {
        if self.synced || loss == Loss::OverSize {
            self.losses.add(loss, 1);
        }
        self.lost = true;
        self.seek();
    }

    fn seek(&mut self) {
        self.clear();
        self.synced = false;
        self.state = State::Seek;
    }

    fn clear(&mut self) {
        self.restart = None;
        let buffer = std::mem::take(&mut self.buffer);
        self.keep(buffer);
    }

    /// Keeps the room of a buffer that is no longer needed.
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEEP_BUFFER {
            buffer.clear();
            self.buffer = buffer;
        }
    }
}
