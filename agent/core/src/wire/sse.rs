//! Server-sent events (`text/event-stream`): events out of the pieces of a body, across gaps.

use crate::loss::Losses;
use crate::time::MonoTime;

/// Most bytes of one event's data unless told otherwise.
pub const EVENT_LIMIT: usize = 1024 * 1024;

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
    /// Whether bytes are missing between the event before this one (or the stream's start) and this one: events
    /// may have been lost, or the first lines of this one.
    pub after_gap: bool,
}

/// Decodes one response body.
#[derive(Debug)]
pub struct Decoder {}

impl Decoder {
    /// At the start of a body. `limit`: most bytes of one event; longer ones are skipped and counted.
    #[must_use]
    pub fn new(_limit: usize) -> Self {
        Self {}
    }

    /// Takes the next bytes of the body. Events without data are passed over, as the standard says.
    pub fn push(&mut self, _body: &[u8], _at: MonoTime, _sink: &mut impl FnMut(Event<'_>)) {}

    /// Bytes of the body are missing here. Goes on at the next line when that is plainly a field, else after the
    /// next blank line; the next event is marked.
    pub fn gap(&mut self) {}

    /// Adds what was lost since the last call to `losses`.
    pub fn drain_losses(&mut self, _losses: &mut Losses) {}
}
