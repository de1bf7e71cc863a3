//! Server-sent events (`text/event-stream`): events out of the pieces of a body, across gaps.
//!
//! Mirrors the HTML standard, "Interpreting an event stream", but for `id` and `retry`, which are passed over.

use crate::loss::{Loss, Losses};
use crate::time::MonoTime;

/// Most bytes of one event unless told otherwise.
pub const EVENT_LIMIT: usize = 1024 * 1024;

/// A buffer larger than this is given back once it is empty.
const KEEP_BUFFER: usize = 16 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Value of its `event:` field; empty where it has none.
    pub name: &'a [u8],
    /// Its `data:` fields, joined by line feeds. Lent from the body when it is one line within one piece.
    pub data: &'a [u8],
    /// Time of the call that carried its first byte.
    pub first: MonoTime,
    /// Time of the call that carried its last byte.
    pub at: MonoTime,
    /// Whether bytes are missing, or were skipped, between the event before this one (or the stream's start) and
    /// this one: events may be missing, or the first lines of this one.
    pub after_gap: bool,
}

/// Decodes one response body.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    state: State,
    /// Whether the last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    after_gap: bool,
    /// The line so far, when it came in several pieces.
    line: Vec<u8>,
    /// What is kept of the event so far.
    event: Kept,
    losses: Losses,
}

/// How lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first line of the stream: a byte order mark may precede it.
    Start,
    /// Lines of events.
    Lines,
    /// The first line after a gap: the rest of a line, or a whole one.
    Doubtful,
    /// Nothing of use before the next blank line; whether the line so far is blank.
    Skip { blank: bool },
}

/// The part of an event that came in earlier pieces.
#[derive(Debug, Default)]
struct Kept {
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Time of the event's first byte.
    first: Option<MonoTime>,
}

/// The data of an event, kept or lent.
#[derive(Clone, Copy)]
enum Data<'a> {
    None,
    Lent(&'a [u8]),
    Kept,
}

/// The event being read, as far as this piece goes.
struct Open<'a> {
    data: Data<'a>,
    name: Option<&'a [u8]>,
}

/// What a line is.
enum Line<'a> {
    Blank,
    Data(&'a [u8]),
    Name(&'a [u8]),
    /// A comment, or a field that says nothing here.
    Known,
    /// No field of the standard.
    Unknown,
}

impl Decoder {
    /// At the start of a body. `limit`: most bytes of one event; longer ones are skipped and counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: State::Start,
            after_cr: false,
            after_gap: false,
            line: Vec::new(),
            event: Kept::default(),
            losses: Losses::default(),
        }
    }

    /// At a place in a body of which the beginning was not seen.
    #[must_use]
    pub fn midstream(limit: usize) -> Self {
        let mut decoder = Self::new(limit);
        decoder.gap();
        decoder
    }

    /// Takes the next bytes of the body. Events without data are passed over, as the standard says.
    pub fn push(&mut self, body: &[u8], at: MonoTime, sink: &mut impl FnMut(Event<'_>)) {
        let mut open = self.event.open();
        let mut rest = body;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(after) = rest.strip_prefix(b"\n")
            {
                rest = after;
                continue;
            }
            let Some((line, ending, after)) = split_line(rest) else { break };
            rest = after;
            self.after_cr = ending == b'\r';
            self.whole_line(line, at, &mut open, sink);
        }
        self.keep(open);
        self.part_of_line(rest, at);
    }

    /// Bytes of the body are missing here. Goes on at the next line when that is plainly a field, else after the
    /// next blank line; the next event is marked.
    pub fn gap(&mut self) {
        self.drop_event();
        self.state = State::Doubtful;
        self.after_cr = false;
    }

    /// Adds what was lost since the last call to `losses`.
    pub fn drain_losses(&mut self, losses: &mut Losses) {
        losses.merge(&std::mem::take(&mut self.losses));
    }

    /// A line that ends in this piece. Where it began earlier, `end` is its last part.
    fn whole_line<'a>(
        &mut self,
        end: &'a [u8],
        at: MonoTime,
        open: &mut Open<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        if let State::Skip { blank } = self.state {
            let ends = blank && end.is_empty();
            self.state = if ends { State::Lines } else { State::Skip { blank: true } };
            return;
        }
        self.event.first.get_or_insert(at);
        if self.size(open).saturating_add(end.len()) > self.limit {
            *open = Open::new();
            return self.too_big(true);
        }
        if self.line.is_empty() {
            return self.line(end, at, open, sink);
        }
        // It is the first line to end in this piece: nothing is lent yet.
        self.line.extend_from_slice(end);
        let line = std::mem::take(&mut self.line);
        let mut kept = self.event.open();
        self.line(&line, at, &mut kept, sink);
        self.keep(kept);
        *open = self.event.open();
        recycle(line, &mut self.line);
    }

    fn line<'a>(
        &mut self,
        line: &'a [u8],
        at: MonoTime,
        open: &mut Open<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let line = match self.state {
            State::Start => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            State::Lines | State::Doubtful | State::Skip { .. } => line,
        };
        let doubtful = self.state == State::Doubtful;
        self.state = State::Lines;
        match parse(line) {
            Line::Blank => self.dispatch(at, open, sink),
            Line::Data(value) => self.event.add_data(value, &mut open.data),
            Line::Name(value) => open.name = Some(value),
            Line::Unknown if doubtful => {
                self.state = State::Skip { blank: true };
                self.event.first = None;
            }
            Line::Known | Line::Unknown => {}
        }
    }

    fn dispatch(&mut self, at: MonoTime, open: &mut Open<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let Open { data, name } = std::mem::replace(open, Open::new());
        let data = match data {
            Data::None => None,
            Data::Lent(data) => Some(data),
            Data::Kept => Some(self.event.data.as_slice()),
        };
        if let Some(data) = data {
            let first = self.event.first.unwrap_or(at);
            let name = name.unwrap_or(&self.event.name);
            let after_gap = std::mem::take(&mut self.after_gap);
            sink(Event { name, data, first, at, after_gap });
        }
        self.event.clear();
    }

    /// Bytes of the event so far.
    fn size(&self, open: &Open<'_>) -> usize {
        let lent = match open.data {
            Data::Lent(data) => data.len(),
            Data::None | Data::Kept => self.event.data.len(),
        };
        lent.saturating_add(self.line.len())
    }

    /// Keeps what is lent of the event: the piece ends.
    fn keep(&mut self, open: Open<'_>) {
        let Open { data, name } = open;
        if let Data::Lent(data) = data {
            self.event.data.extend_from_slice(data);
            self.event.has_data = true;
        }
        if let Some(name) = name {
            self.event.name.clear();
            self.event.name.extend_from_slice(name);
        }
    }

    /// The piece ends within a line.
    fn part_of_line(&mut self, part: &[u8], at: MonoTime) {
        if part.is_empty() {
            return;
        }
        if let State::Skip { .. } = self.state {
            self.state = State::Skip { blank: false };
            return;
        }
        self.event.first.get_or_insert(at);
        let size = self.event.data.len().saturating_add(self.line.len()).saturating_add(part.len());
        if size > self.limit {
            return self.too_big(false);
        }
        self.line.extend_from_slice(part);
    }

    /// The event is over the limit; `line_over`: and the line that made it so has ended.
    fn too_big(&mut self, line_over: bool) {
        self.losses.add(Loss::OverSize, 1);
        self.drop_event();
        self.state = State::Skip { blank: line_over };
    }

    fn drop_event(&mut self) {
        self.after_gap = true;
        self.event.clear();
        recycle(std::mem::take(&mut self.line), &mut self.line);
    }
}

impl Kept {
    fn open<'a>(&self) -> Open<'a> {
        Open { data: if self.has_data { Data::Kept } else { Data::None }, name: None }
    }

    /// One more line of data: lent while it is the only one.
    fn add_data<'a>(&mut self, value: &'a [u8], data: &mut Data<'a>) {
        match *data {
            Data::None => {
                *data = Data::Lent(value);
                return;
            }
            Data::Lent(before) => self.data.extend_from_slice(before),
            Data::Kept => {}
        }
        self.data.push(b'\n');
        self.data.extend_from_slice(value);
        self.has_data = true;
        *data = Data::Kept;
    }

    fn clear(&mut self) {
        let Self { name, data, has_data, first } = self;
        name.clear();
        recycle(std::mem::take(data), data);
        *has_data = false;
        *first = None;
    }
}

impl Open<'_> {
    const fn new() -> Self {
        Self { data: Data::None, name: None }
    }
}

/// Empties a buffer and keeps its room where that is small.
fn recycle(mut buffer: Vec<u8>, into: &mut Vec<u8>) {
    if buffer.capacity() <= KEEP_BUFFER {
        buffer.clear();
        *into = buffer;
    }
}

/// The line in front, the byte that ends it, and what follows that.
fn split_line(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let end = memchr::memchr2(b'\n', b'\r', bytes)?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let (ending, after) = rest.split_first()?;
    Some((line, *ending, after))
}

fn parse(line: &[u8]) -> Line<'_> {
    let (field, value) = match memchr::memchr(b':', line) {
        Some(colon) => {
            let (field, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default();
            (field, value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, &[][..]),
    };
    match field {
        b"data" => Line::Data(value),
        b"event" => Line::Name(value),
        b"id" | b"retry" => Line::Known,
        b"" if line.is_empty() => Line::Blank,
        b"" => Line::Known,
        _ => Line::Unknown,
    }
}

#[cfg(test)]
mod tests;
