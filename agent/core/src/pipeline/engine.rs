//! A connection between frontend and engine: ZMTP both ways, the engine's messages in it.

use super::connection::{Context, Signals};
use super::engine_decoder;
use crate::dialect::vllm;
use crate::ids::{Direction, Pid};
use crate::loss::Losses;
use crate::stream::Piece;
use crate::wire::zmtp;

/// A connection between frontend and engine.
#[derive(Debug)]
pub(super) struct EngineConn {
    start: zmtp::Start,
    rx: Option<zmtp::Decoder>,
    tx: Option<zmtp::Decoder>,
    /// Made when the first message needs it, and again when server or settings change.
    dialect: Option<vllm::Decoder>,
}

impl EngineConn {
    pub fn new(midstream: bool) -> Self {
        let start = if midstream { zmtp::Start::Midstream } else { zmtp::Start::Beginning };
        Self { start, rx: None, tx: None, dialect: None }
    }

    pub fn refresh(&mut self) {
        self.dialect = None;
    }

    pub fn take(
        &mut self,
        pid: Pid,
        direction: Direction,
        piece: Piece<'_>,
        context: &mut Context<'_>,
        signals: &mut Signals,
    ) {
        let Self { start, rx, tx, dialect } = self;
        let slot = match direction {
            Direction::Rx => rx,
            Direction::Tx => tx,
        };
        let limit = context.settings.body_limit;
        let frames = slot.get_or_insert_with(|| zmtp::Decoder::new(*start, limit));
        let (lifecycle, settings) = (context.lifecycle, context.settings);
        let dialect = dialect.get_or_insert_with(|| engine_decoder(lifecycle, settings, pid));
        let mut losses = Losses::default();
        frames.push(&piece, context.losses, &mut |message| {
            signals.engine.extend(dialect.decode(message.frames, message.cut, message.at, &mut losses));
        });
        context.losses.merge(&losses);
    }
}
