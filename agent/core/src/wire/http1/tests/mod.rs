//! What the decoder tells, as text: one line an event, bodies joined while their call is the same.

mod exchanges;
mod gaps;
mod properties;
mod real;

use super::*;
use crate::loss::Loss;
use crate::stream::Content;

/// Pushes pieces into a decoder and writes down what comes out.
struct Bench {
    decoder: Decoder,
    log: Log,
}

/// Events in order, as text.
#[derive(Default)]
struct Log(Vec<String>);

impl Bench {
    fn new() -> Self {
        Self::on(Side::Server)
    }

    fn on(side: Side) -> Self {
        Self { decoder: Decoder::new(ConnId(1), side), log: Log::default() }
    }

    fn piece(&mut self, direction: Direction, piece: Piece<'_>) -> &mut Self {
        let log = &mut self.log;
        self.decoder.push(direction, piece, &mut |event| log.add(event));
        self
    }

    /// A call that receives `bytes`.
    fn rx(&mut self, at: u64, bytes: &str) -> &mut Self {
        self.piece(Direction::Rx, Piece::bytes(bytes.as_bytes(), MonoTime(at), true))
    }

    /// A call that sends `bytes`.
    fn tx(&mut self, at: u64, bytes: &str) -> &mut Self {
        self.piece(Direction::Tx, Piece::bytes(bytes.as_bytes(), MonoTime(at), true))
    }

    fn gap(&mut self, direction: Direction, at: u64, len: impl Into<Option<u64>>) -> &mut Self {
        self.piece(direction, Piece::gap(len.into(), MonoTime(at)))
    }

    fn finish(&mut self, at: u64) -> &mut Self {
        let log = &mut self.log;
        self.decoder.finish(MonoTime(at), &mut |event| log.add(event));
        self
    }

    fn lost(&mut self, reason: Loss) -> u64 {
        let mut losses = Losses::default();
        self.decoder.drain_losses(&mut losses);
        losses.get(reason)
    }

    /// What was told since the last call.
    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log.0)
    }
}

impl Log {
    fn add(&mut self, event: Event<'_>) {
        let Event { exchange: ExchangeId { conn: _, number }, at: MonoTime(at), kind } = event;
        let what = match kind {
            EventKind::RequestHead { head, first } => {
                format!("request {} {} first {}", head.method, head.target, first.0)
            }
            EventKind::RequestBody(bytes) => return self.add_body(number, at, "sent", bytes),
            EventKind::RequestGap(len) => format!("request gap {len:?}"),
            EventKind::RequestEnd { complete } => format!("request end {complete}"),
            EventKind::Interim { status } => format!("interim {status}"),
            EventKind::ResponseHead { head, first } => {
                format!("response {} first {}", head.status, first.0)
            }
            EventKind::ResponseBody(bytes) => return self.add_body(number, at, "got", bytes),
            EventKind::ResponseGap(len) => format!("response gap {len:?}"),
            EventKind::ResponseEnd { complete } => format!("response end {complete}"),
            EventKind::Upgraded => "upgraded".to_owned(),
        };
        self.0.push(format!("{number} @{at} {what}"));
    }

    fn add_body(&mut self, number: u64, at: u64, what: &str, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a body event holds bytes");
        let intro = format!("{number} @{at} {what} ");
        let text = bytes.escape_ascii();
        match self.0.last_mut() {
            Some(last) if last.starts_with(&intro) => last.push_str(&text.to_string()),
            Some(_) | None => self.0.push(format!("{intro}{text}")),
        }
    }
}
