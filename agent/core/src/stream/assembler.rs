//! Reassembly of one direction of one connection.

use std::collections::VecDeque;

use super::{Content, Piece};
use crate::capture::record::Data;
use crate::ids::Direction;
use crate::loss::{Loss, Losses};
use crate::time::{MonoTime, Nanos};

/// Most bytes held back while the records before them are awaited.
pub const HOLD_BYTES: usize = 256 * 1024;

/// Most records held back.
pub const HOLD_PIECES: usize = 64;

/// A record is held back no longer than this, by the time of the records that follow it: rings are read far
/// more often.
pub const HOLD_TIME: Nanos = Nanos::from_millis(100);

/// Puts the records of one direction of one connection into stream order.
///
/// The way of nearly every record is: in order, lent on as it is, nothing copied. A record that comes too early
/// (two calls of a connection may be delivered swapped, since each CPU has its own ring) is copied and held back
/// until what precedes it came, or until [`HOLD_BYTES`], [`HOLD_PIECES`], [`HOLD_TIME`] or a
/// [`flush`](Self::flush) says that it never will: then the hole becomes a [`Content::Gap`]. Bytes seen before
/// are dropped.
#[derive(Debug)]
pub struct Assembler {
    /// Offset of the next byte; `None` before the first record of a stream joined in the middle.
    next: Option<u64>,
    /// Offset of the first byte given out, or that would have been.
    origin: u64,
    /// Records that came too early, by offset.
    held: VecDeque<Held>,
    held_bytes: usize,
    ended: bool,
    lost: u64,
}

/// A record, reduced to what reassembly needs.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// Offset of the first byte of `bytes`.
    start: u64,
    /// Offset after the last byte of the call.
    call_end: u64,
    /// Whether it is the last record of its call: what is missing up to `call_end` will not come.
    last: bool,
    /// Whether the peer closed.
    end: bool,
    starts_call: bool,
    at: MonoTime,
    bytes: &'a [u8],
}

/// A [`Part`] that owns its bytes.
#[derive(Debug)]
struct Held {
    start: u64,
    call_end: u64,
    last: bool,
    end: bool,
    starts_call: bool,
    at: MonoTime,
    bytes: Box<[u8]>,
}

impl Assembler {
    /// For a stream seen from its first byte (offset 0 of the kernel's count).
    #[must_use]
    pub fn from_start() -> Self {
        Self { next: Some(0), ..Self::midstream() }
    }

    /// For a stream that starts wherever its first record does.
    #[must_use]
    pub fn midstream() -> Self {
        Self { next: None, origin: 0, held: VecDeque::new(), held_bytes: 0, ended: false, lost: 0 }
    }

    /// Takes a record of this stream and gives whatever is now in order to `sink`.
    pub fn push(&mut self, data: &Data<'_>, at: MonoTime, sink: &mut impl FnMut(Piece<'_>)) {
        let Some(part) = Part::of(data, at) else { return };
        if self.next.is_none() {
            self.origin = part.start;
        }
        let next = *self.next.get_or_insert(part.start);
        if self.held.is_empty() && part.start <= next {
            self.deliver(part, next, sink);
        } else {
            self.expire(at, sink);
            self.reorder(part, sink);
        }
    }

    /// Gives up what is held back for longer than [`HOLD_TIME`]. For the pipeline's tick.
    pub fn expire(&mut self, now: MonoTime, sink: &mut impl FnMut(Piece<'_>)) {
        if self.held_since().is_some_and(|since| now.since(since) > HOLD_TIME) {
            self.flush(sink);
        }
    }

    /// Gives out everything held back, with gaps where records are missing. For the end of a connection.
    pub fn flush(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        while let Some((start, at)) = self.held.front().map(|held| (held.start, held.at)) {
            self.skip_to(start, at, sink);
            self.drain(sink);
        }
    }

    /// Time of the oldest record held back, if there is one.
    #[must_use]
    pub fn held_since(&self) -> Option<MonoTime> {
        self.held.iter().map(|held| held.at).min()
    }

    /// Whether the peer's close was seen.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Adds what was lost since the last call to `losses`.
    pub fn drain_losses(&mut self, losses: &mut Losses) {
        losses.add(Loss::GapBytes, std::mem::take(&mut self.lost));
    }

    /// Gives out a record that starts at or before `next`.
    fn deliver(&mut self, part: Part<'_>, next: u64, sink: &mut impl FnMut(Piece<'_>)) {
        let Part { start, call_end, last, end, starts_call, at, bytes } = part;
        self.lost = self.lost.saturating_add(part.end_offset().min(self.origin).saturating_sub(start));
        let fresh = usize::try_from(next - start).ok().and_then(|seen| bytes.get(seen..)).unwrap_or_default();
        let starts_call = starts_call && start == next;
        if !fresh.is_empty() {
            self.next = Some(part.end_offset());
            sink(Piece { content: Content::Bytes(fresh), at, starts_call });
        }
        let next = self.next.unwrap_or(next);
        if last && next < call_end {
            self.skip(next, call_end, at, starts_call && bytes.is_empty(), sink);
        }
        if end && start == next && !self.ended {
            self.ended = true;
            sink(Piece::end(at));
        }
    }

    /// Takes a record while others are held back, or that comes too early itself.
    fn reorder(&mut self, part: Part<'_>, sink: &mut impl FnMut(Piece<'_>)) {
        loop {
            let next = self.next.unwrap_or(part.start);
            if part.start <= next {
                self.deliver(part, next, sink);
                return self.drain(sink);
            }
            if self.has_room(part.bytes.len()) {
                return self.hold(part);
            }
            let first = self.held.front().map_or(part.start, |held| held.start.min(part.start));
            self.skip_to(first, part.at, sink);
            self.drain(sink);
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.held.len() < HOLD_PIECES && self.held_bytes.saturating_add(bytes) <= HOLD_BYTES
    }

    fn hold(&mut self, part: Part<'_>) {
        let place = self.held.partition_point(|held| held.start <= part.start);
        self.held_bytes = self.held_bytes.saturating_add(part.bytes.len());
        self.held.insert(place, Held::of(part));
    }

    /// Gives out the held records that are in order now.
    fn drain(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        while let Some(held) = self.held.pop_front() {
            let next = self.next.unwrap_or(held.start);
            if held.start > next {
                return self.held.push_front(held);
            }
            self.held_bytes = self.held_bytes.saturating_sub(held.bytes.len());
            self.deliver(held.part(), next, sink);
        }
    }

    /// Gives up the bytes before `offset`.
    fn skip_to(&mut self, offset: u64, at: MonoTime, sink: &mut impl FnMut(Piece<'_>)) {
        let next = self.next.unwrap_or(offset);
        if next < offset {
            self.skip(next, offset, at, false, sink);
        }
    }

    fn skip(
        &mut self,
        from: u64,
        to: u64,
        at: MonoTime,
        starts_call: bool,
        sink: &mut impl FnMut(Piece<'_>),
    ) {
        let len = to.saturating_sub(from);
        self.lost = self.lost.saturating_add(len);
        self.next = Some(to);
        sink(Piece { content: Content::Gap { len: Some(len) }, at, starts_call });
    }
}

impl<'a> Part<'a> {
    /// `None` when the call moved nothing and that means nothing.
    fn of(data: &Data<'a>, at: MonoTime) -> Option<Self> {
        let Data { conn: _, fd: _, direction, call: _, spent: _, offset, total, at: position, bytes, last } =
            *data;
        let end = total == 0 && direction == Direction::Rx;
        (total > 0 || end).then(|| Self {
            start: offset.saturating_add(u64::from(position)),
            call_end: offset.saturating_add(u64::from(total)),
            last,
            end,
            starts_call: position == 0,
            at,
            bytes,
        })
    }

    fn end_offset(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

impl Held {
    fn of(part: Part<'_>) -> Self {
        let Part { start, call_end, last, end, starts_call, at, bytes } = part;
        Self { start, call_end, last, end, starts_call, at, bytes: bytes.into() }
    }

    fn part(&self) -> Part<'_> {
        let Self { start, call_end, last, end, starts_call, at, ref bytes } = *self;
        Part { start, call_end, last, end, starts_call, at, bytes }
    }
}

#[cfg(test)]
mod tests;
