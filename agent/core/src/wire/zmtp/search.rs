//! Where a message may begin: frame heads say little, so the bodies that inference engines send are asked too.

use super::{FrameHead, flags};

/// A longer frame is not believed where the place is not known: 256 MiB.
const BELIEVED: u64 = 1 << 28;

/// Frames in a row that show a place inside a call to be right.
const CONVINCING: usize = 3;

/// Text bodies are looked at this far.
const TEXT: usize = 64;

/// What the bytes of a system call look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Whole frames from the first byte to the last.
    Whole,
    /// Frames, the last of which goes on.
    Likely,
    /// Something that begins no message.
    Nothing,
}

/// Reads the bytes of a system call as if a message began at the first of them. The protocol of a connection is
/// told by it too.
#[must_use]
pub fn look(bytes: &[u8]) -> Found {
    chain(bytes, usize::MAX).0
}

/// Where in `bytes` a message begins, if several frames in a row say so: for streams so full that their calls
/// begin anywhere.
pub(super) fn inside(bytes: &[u8]) -> Option<usize> {
    // Most places are refused by their first byte or two.
    let begins = |start: &usize| {
        let (found, heads) = chain(bytes.get(*start..).unwrap_or_default(), CONVINCING);
        found == Found::Whole && heads == CONVINCING
    };
    (1..bytes.len()).find(begins)
}

/// Reads frames to the end of `bytes`, or `most` of them; how many there were.
fn chain(bytes: &[u8], most: usize) -> (Found, usize) {
    let mut rest = bytes;
    let mut begins_message = true;
    let mut heads = 0;
    while !rest.is_empty() && heads < most {
        let Some((head, body)) = frame(rest) else {
            let found = if heads > 0 && is_cut_head(rest) { Found::Likely } else { Found::Nothing };
            return (found, heads);
        };
        let len = usize::try_from(head.len).unwrap_or(usize::MAX);
        let (body, after) = body.split_at(len.min(body.len()));
        let alone = heads == 0 && after.is_empty();
        if head.len > BELIEVED || begins_message && !is_believable(&head, body, alone) {
            return (Found::Nothing, heads);
        }
        heads += 1;
        if body.len() < len {
            // One head with nothing behind it proves nothing.
            let found = if body.is_empty() && heads == 1 { Found::Nothing } else { Found::Likely };
            return (found, heads);
        }
        // REQ sockets put an empty frame before the message.
        begins_message = !head.more || begins_message && body.is_empty();
        rest = after;
    }
    (if heads == 0 { Found::Nothing } else { Found::Whole }, heads)
}

/// Whether these bytes may be the front of a frame's head.
fn is_cut_head(bytes: &[u8]) -> bool {
    let first = bytes.first().copied().unwrap_or(u8::MAX);
    first <= flags::MORE | flags::LONG | flags::COMMAND && bytes.len() < FrameHead::len_of(first)
}

/// The head of the frame in front, and what follows it.
fn frame(bytes: &[u8]) -> Option<(FrameHead, &[u8])> {
    let first = bytes.first()?;
    let (head, body) = bytes.split_at_checked(FrameHead::len_of(*first))?;
    let head = FrameHead::parse(head)?;
    // Every known writer uses the short form where it will do.
    let canonical = *first & flags::LONG == 0 || head.len > u64::from(u8::MAX);
    canonical.then_some((head, body))
}

/// Whether a message may begin with this frame, of whose body the front is seen.
fn is_believable(head: &FrameHead, body: &[u8], alone: bool) -> bool {
    if head.command {
        return is_command(body);
    }
    match body {
        [] => head.more || head.len > 0 || alone,
        // vLLM's request type, or a subscription.
        [kind] if head.len == 1 => *kind < 16 && (head.more || alone),
        // msgpack maps and arrays; pickles begin with 0x80.
        [0x80..=0x9f | 0xdc..=0xdf, ..] => true,
        text => text.iter().take(TEXT).all(|byte| matches!(byte, b' '..=b'~' | b'\n')),
    }
}

/// A command is its name's length, its name, and data.
fn is_command(body: &[u8]) -> bool {
    let Some((len, rest)) = body.split_first() else { return false };
    let name = rest.get(..usize::from(*len)).unwrap_or(rest);
    !name.is_empty() && name.iter().all(u8::is_ascii_uppercase)
}
