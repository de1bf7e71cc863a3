//! Lines of text, as a process writes them to a log.

use crate::stream::{Content, Piece};
use crate::time::MonoTime;

/// Most bytes kept of one line; what follows is passed over up to its end.
pub const LIMIT: usize = 4096;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes, without the line end; the first [`LIMIT`] of them.
    pub bytes: &'a [u8],
    /// When the call that carried its end returned.
    pub at: MonoTime,
}

/// Splits a stream into lines. A line of which something is missing gives nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    /// A line whose end did not come yet.
    open: Vec<u8>,
    /// Whether bytes of the line at hand are missing.
    broken: bool,
}

impl Decoder {
    /// A decoder; where the stream is joined in its middle the first line gives nothing, unless a call begins it.
    #[must_use]
    pub fn new(midstream: bool) -> Self {
        Self { open: Vec::new(), broken: midstream }
    }

    /// Takes the next piece and gives the lines that end in it.
    pub fn push(&mut self, piece: &Piece<'_>, each: &mut impl FnMut(Line<'_>)) {
        let Piece { content, at, starts_call } = *piece;
        match content {
            Content::Bytes(bytes) => {
                // Logs are written a line a call: after a gap the next call begins one.
                if starts_call && self.broken {
                    self.start();
                }
                self.bytes(bytes, at, each);
            }
            Content::Gap { len: _ } => {
                self.open.clear();
                self.broken = true;
            }
            // A line without its end is no line.
            Content::End => self.start(),
        }
    }

    fn start(&mut self) {
        self.open.clear();
        self.broken = false;
    }

    fn bytes(&mut self, bytes: &[u8], at: MonoTime, each: &mut impl FnMut(Line<'_>)) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            self.line(line, at, each);
        }
        if !self.broken {
            let room = LIMIT.saturating_sub(self.open.len());
            self.open.extend_from_slice(rest.get(..room).unwrap_or(rest));
        }
    }

    /// The last part of a line.
    fn line(&mut self, last: &[u8], at: MonoTime, each: &mut impl FnMut(Line<'_>)) {
        if self.broken {
            return self.start();
        }
        if self.open.is_empty() {
            return each(Line { bytes: last.get(..LIMIT).unwrap_or(last), at });
        }
        let room = LIMIT.saturating_sub(self.open.len());
        self.open.extend_from_slice(last.get(..room).unwrap_or(last));
        each(Line { bytes: &self.open, at });
        self.start();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(decoder: &mut Decoder, piece: Piece<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        decoder.push(&piece, &mut |line| lines.push(String::from_utf8_lossy(line.bytes).into_owned()));
        lines
    }

    fn bytes(bytes: &[u8], starts_call: bool) -> Piece<'_> {
        Piece::bytes(bytes, MonoTime(1), starts_call)
    }

    #[test]
    fn a_line_may_come_in_parts() {
        let mut decoder = Decoder::default();
        assert_eq!(lines(&mut decoder, bytes(b"one\ntw", true)), ["one"]);
        assert_eq!(lines(&mut decoder, bytes(b"o\n\nthree\n", true)), ["two", "", "three"]);
    }

    #[test]
    fn a_line_with_a_hole_gives_nothing() {
        let mut decoder = Decoder::default();
        assert_eq!(lines(&mut decoder, bytes(b"one\ntw", true)), ["one"]);
        assert!(lines(&mut decoder, Piece::gap(Some(5), MonoTime(2))).is_empty());
        assert_eq!(lines(&mut decoder, bytes(b"rest\nfour\n", false)), ["four"]);
    }

    #[test]
    fn after_a_hole_a_call_begins_a_line() {
        let mut decoder = Decoder::new(true);
        assert_eq!(lines(&mut decoder, bytes(b"two\n", true)), ["two"]);
        assert!(lines(&mut decoder, Piece::gap(None, MonoTime(2))).is_empty());
        assert_eq!(lines(&mut decoder, bytes(b"three\n", true)), ["three"]);
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut decoder = Decoder::default();
        for _ in 0..100 {
            assert!(lines(&mut decoder, bytes(&[b'x'; 1000], false)).is_empty());
        }
        assert_eq!(decoder.open.len(), LIMIT);
        assert_eq!(lines(&mut decoder, bytes(b"\nnext\n", false)), [&"x".repeat(LIMIT), "next"]);
    }

    proptest! {
        #[test]
        fn however_a_stream_is_cut_its_lines_are_the_same(
            text in "[a-c\n]{0,60}",
            cuts in prop::collection::vec(0..60_usize, 0..6),
        ) {
            let whole: Vec<&str> = text.split_inclusive('\n').filter_map(|it| it.strip_suffix('\n')).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
            for pair in cuts.windows(2) {
                seen.extend(lines(&mut decoder, bytes(&text.as_bytes()[pair[0]..pair[1]], true)));
            }
            prop_assert_eq!(seen, whole);
        }
    }
}
