//! Any calls of any bytes with any gaps: the events do not depend on how the calls are split into pieces.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::ids::{ConnId, Direction};
use enginetap_core::stream::Piece;
use enginetap_core::time::MonoTime;
use enginetap_core::wire::http1::{Decoder, Event, EventKind, HEAD_LIMIT, Side};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    client: bool,
    split: u8,
    calls: Vec<Call<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Call<'a> {
    Received(&'a [u8]),
    Sent(&'a [u8]),
    /// Frequent bytes, so that the fuzzer need not find them.
    Common(u8),
    ReceivedGap(Option<u8>),
    SentGap(Option<u8>),
}

const COMMON: [(Direction, &[u8]); 12] = [
    (Direction::Rx, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\n"),
    (Direction::Rx, b"POST /v1/chat HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    (Direction::Rx, b"GET /health HTTP/1.1\r\n\r\n"),
    (Direction::Rx, b"HEAD / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"),
    (Direction::Rx, b"CONNECT a:1 HTTP/1.1\r\n\r\n"),
    (Direction::Rx, b"5;x=y\r\nabcde\r\n"),
    (Direction::Tx, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    (Direction::Tx, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"),
    (Direction::Tx, b"HTTP/1.1 100 Continue\r\n\r\n"),
    (Direction::Tx, b"HTTP/1.1 101 Switching\r\n\r\n"),
    (Direction::Tx, b"a\r\ndata: 123\n\r\n"),
    (Direction::Tx, b"0\r\n\r\n"),
];

/// An event without its borrows; bodies are joined while their call is the same.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    exchange: u64,
    at: u64,
    what: String,
    body: Vec<u8>,
}

fn tell(told: &mut Vec<Told>, event: Event<'_>) {
    let Event { exchange, at, kind } = event;
    let (what, body) = match kind {
        EventKind::RequestHead { head, first } => (format!("{} {first:?}", head.target), &[][..]),
        EventKind::ResponseHead { head, first } => (format!("{} {first:?}", head.status), &[][..]),
        EventKind::RequestBody(bytes) => ("request body".to_owned(), bytes),
        EventKind::ResponseBody(bytes) => ("response body".to_owned(), bytes),
        EventKind::RequestGap(_)
        | EventKind::RequestEnd { .. }
        | EventKind::Interim { .. }
        | EventKind::ResponseGap(_)
        | EventKind::ResponseEnd { .. }
        | EventKind::Upgraded => (format!("{kind:?}"), &[][..]),
    };
    let event = Told { exchange: exchange.number, at: at.0, what, body: body.to_vec() };
    match told.last_mut() {
        Some(last)
            if !body.is_empty()
                && (last.exchange, last.at, &last.what) == (event.exchange, event.at, &event.what) =>
        {
            last.body.extend_from_slice(body);
        }
        Some(_) | None => told.push(event),
    }
}

fn run(input: &Input<'_>, split: usize) -> Vec<Told> {
    let mut decoder = Decoder::new(ConnId(1), if input.client { Side::Client } else { Side::Server });
    let mut told = Vec::new();
    for (call, at) in input.calls.iter().zip(0..) {
        let at = MonoTime(at);
        let gap = |len: &Option<u8>| Piece::gap(len.map(u64::from), at);
        let (direction, bytes) = match call {
            Call::Received(bytes) => (Direction::Rx, *bytes),
            Call::Sent(bytes) => (Direction::Tx, *bytes),
            Call::Common(number) => COMMON[usize::from(*number) % COMMON.len()],
            Call::ReceivedGap(len) => {
                decoder.push(Direction::Rx, gap(len), &mut |event| tell(&mut told, event));
                continue;
            }
            Call::SentGap(len) => {
                decoder.push(Direction::Tx, gap(len), &mut |event| tell(&mut told, event));
                continue;
            }
        };
        for (n, piece) in bytes.chunks(split).enumerate() {
            decoder.push(direction, Piece::bytes(piece, at, n == 0), &mut |event| tell(&mut told, event));
        }
    }
    decoder.finish(MonoTime(u64::MAX), &mut |event| tell(&mut told, event));
    told
}

fuzz_target!(|input: Input<'_>| {
    let whole = run(&input, HEAD_LIMIT * 16);
    assert_eq!(whole, run(&input, usize::from(input.split).max(1)));
    assert_eq!(whole, run(&input, 1));
});
