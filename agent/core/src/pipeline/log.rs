//! The log of a process: lines on its standard output or standard error.

use super::connection::Signals;
use crate::dialect::sglang::line;
use crate::dialect::signal::sglang::SglangSignal;
use crate::ids::Direction;
use crate::stream::Piece;
use crate::wire::lines;

/// A log.
#[derive(Debug)]
pub(super) struct LogConn(lines::Decoder);

impl LogConn {
    pub fn new(midstream: bool) -> Self {
        Self(lines::Decoder::new(midstream))
    }

    /// `keep`: whether the lines themselves are wanted, besides what a scheduler's say.
    pub fn take(&mut self, direction: Direction, piece: Piece<'_>, keep: bool, signals: &mut Signals) {
        match direction {
            Direction::Tx => self.0.push(&piece, &mut |line| {
                signals.sglang.extend(signal(line));
                if keep {
                    signals.lines.push((line.bytes.to_vec(), line.at));
                }
            }),
            // Nothing is read from it.
            Direction::Rx => {}
        }
    }
}

fn signal(line: lines::Line<'_>) -> Option<SglangSignal> {
    let lines::Line { bytes, at } = line;
    Some(match line::read(bytes)? {
        line::Line::Report(load) => SglangSignal::Load { at, load: *load },
        line::Line::Retracted { requests, dp_rank } => SglangSignal::Retracted { at, requests, dp_rank },
    })
}
