//! A message that comes in several pieces.

use super::{FRAME_LIMIT, Message};
use crate::loss::{Loss, Losses};
use crate::time::MonoTime;

/// Bytes of buffer kept from one message to the next.
const KEPT: usize = 64 * 1024;

/// What has come of a message: its frames' bodies one after the other, the last one perhaps still growing.
#[derive(Debug, Default)]
pub(super) struct Pending {
    data: Vec<u8>,
    /// Where in `data` each frame begins.
    starts: Vec<usize>,
    /// The last frame takes no more bytes: it has a hole, or is one frame too many.
    closed: bool,
    cut: bool,
    over_size: bool,
}

impl Pending {
    /// Whether no frame has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Begins the next frame.
    pub(super) fn begin(&mut self) {
        self.closed = self.starts.len() >= FRAME_LIMIT;
        self.over_size |= self.closed;
        if !self.closed {
            self.starts.push(self.data.len());
        }
    }

    /// Appends to the last frame, up to `limit` bytes in the whole message.
    pub(super) fn append(&mut self, bytes: &[u8], limit: usize) {
        if self.closed {
            return;
        }
        let room = limit.saturating_sub(self.data.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.data.extend_from_slice(kept);
        if kept.len() < bytes.len() {
            self.closed = true;
            self.over_size = true;
        }
    }

    /// Keeps whole frames.
    pub(super) fn keep(&mut self, frames: &[&[u8]], limit: usize) {
        for frame in frames {
            self.begin();
            self.append(frame, limit);
        }
    }

    /// Bytes of the last frame are missing: what follows them in it is of no use.
    pub(super) fn hole(&mut self) {
        self.closed = true;
        self.cut = true;
    }

    /// Takes the last frame out again: it was none of the message.
    pub(super) fn take_last(&mut self) -> Option<Vec<u8>> {
        let start = self.starts.pop()?;
        let body = self.data.split_off(start.min(self.data.len()));
        if self.starts.is_empty() {
            self.clear();
        }
        Some(body)
    }

    /// Gives the message away and begins anew.
    pub(super) fn deliver(&mut self, at: MonoTime, losses: &mut Losses, sink: &mut impl FnMut(&Message<'_>)) {
        if self.cut {
            losses.add(Loss::CutMessage, 1);
        }
        if self.over_size {
            losses.add(Loss::OverSize, 1);
        }
        let ends = self.starts.iter().skip(1).copied().chain([self.data.len()]);
        let frames: Vec<&[u8]> = self
            .starts
            .iter()
            .zip(ends)
            .map(|(start, end)| self.data.get(*start..end).unwrap_or_default())
            .collect();
        sink(&Message { frames: &frames, at, cut: self.cut || self.over_size });
        self.clear();
    }

    /// Forgets the message.
    pub(super) fn clear(&mut self) {
        if self.data.capacity() > KEPT {
            self.data = Vec::new();
        }
        self.data.clear();
        self.starts.clear();
        (self.closed, self.cut, self.over_size) = (false, false, false);
    }
}
