//! From records to server-sent events: assembler, HTTP decoder and SSE decoder put together, as the pipeline does
//! for every connection.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
use enginetap_common::record::Call;
use enginetap_core::capture::record::Data;
use enginetap_core::ids::{ConnId, Direction, Fd};
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::stream::Assembler;
use enginetap_core::time::{MonoTime, Nanos};
use enginetap_core::wire::{http1, sse};

/// vLLM 0.32.0 with uvloop 0.23.0: what one read and the writes after it carried.
const STREAMED: [(Direction, u64, &str); 7] = [
    (
        Direction::Rx,
        2_603_610,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nX-Request-Id: my-req-0001\r\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: 114\r\n\r\n\
         {\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello there\"}],\"max_tokens\":3,\
         \"temperature\":0,\"stream\":true}",
    ),
    (
        Direction::Tx,
        2_609_735,
        "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 15:07:42 GMT\r\nserver: uvicorn\r\n\
         content-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n",
    ),
    (
        Direction::Tx,
        2_634_716,
        "fc\r\ndata: {\"id\":\"chatcmpl-my-req-0001\",\"object\":\"chat.completion.chunk\",\"created\":1796051262\
         ,\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}\
         ,\"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":null,\"prompt_text\":null}\n\n\r\n",
    ),
    (
        Direction::Tx,
        2_635_052,
        "cf\r\ndata: {\"id\":\"chatcmpl-my-req-0001\",\"object\":\"chat.completion.chunk\",\"created\":1796051262\
         ,\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}\
         ,\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n\r\n",
    ),
    (
        Direction::Tx,
        2_649_546,
        "cf\r\ndata: {\"id\":\"chatcmpl-my-req-0001\",\"object\":\"chat.completion.chunk\",\"created\":1796051262\
         ,\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}\
         ,\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n\r\n",
    ),
    (Direction::Tx, 2_664_000, "e\r\ndata: [DONE]\n\n\r\n"),
    (Direction::Tx, 2_664_100, "0\r\n\r\n"),
];

/// An event of the response: its time, its data, and whether some may be missing before it.
type Seen = (u64, String, bool);

/// One connection of a server: streamed responses to events.
struct Connection {
    received: Assembler,
    sent: Assembler,
    http: http1::Decoder,
    events: Events,
}

/// The events of the response under way.
#[derive(Default)]
struct Events {
    decoder: Option<sse::Decoder>,
    seen: Vec<Seen>,
    complete: Vec<bool>,
}

impl Connection {
    fn new() -> Self {
        Self {
            received: Assembler::from_start(),
            sent: Assembler::from_start(),
            http: http1::Decoder::new(ConnId(1), http1::Side::Server),
            events: Events::default(),
        }
    }

    fn push(&mut self, data: &Data<'_>, at: MonoTime) {
        let Self { received, sent, http, events } = self;
        let assembler = match data.direction {
            Direction::Rx => received,
            Direction::Tx => sent,
        };
        assembler.push(data, at, &mut |piece| {
            http.push(data.direction, piece, &mut |event| events.add(event));
        });
    }

    fn finish(&mut self, at: MonoTime) -> Losses {
        let Self { received, sent, http, events } = self;
        received.flush(&mut |piece| http.push(Direction::Rx, piece, &mut |event| events.add(event)));
        sent.flush(&mut |piece| http.push(Direction::Tx, piece, &mut |event| events.add(event)));
        http.finish(at, &mut |event| events.add(event));
        let mut losses = Losses::default();
        received.drain_losses(&mut losses);
        sent.drain_losses(&mut losses);
        http.drain_losses(&mut losses);
        losses
    }
}

impl Events {
    fn add(&mut self, event: http1::Event<'_>) {
        let http1::Event { exchange: _, at, kind } = event;
        match kind {
            http1::EventKind::ResponseHead { head, first: _ } => {
                let kind = head.headers.text("content-type").unwrap_or_default();
                self.decoder =
                    kind.starts_with("text/event-stream").then(|| sse::Decoder::new(sse::EVENT_LIMIT));
            }
            http1::EventKind::ResponseBody(bytes) => {
                let seen = &mut self.seen;
                self.decoder.as_mut().unwrap().push(bytes, at, &mut |event| {
                    let data = String::from_utf8(event.data.to_vec()).unwrap();
                    seen.push((event.at.0, data, event.after_gap));
                });
            }
            http1::EventKind::ResponseGap(_) => self.decoder.as_mut().unwrap().gap(),
            http1::EventKind::ResponseEnd { complete } => self.complete.push(complete),
            http1::EventKind::RequestHead { .. }
            | http1::EventKind::RequestBody(_)
            | http1::EventKind::RequestGap(_)
            | http1::EventKind::RequestEnd { .. }
            | http1::EventKind::Interim { .. }
            | http1::EventKind::Upgraded => {}
        }
    }
}

/// The calls as records of at most `piece` bytes, of each call no more than `cap` copied.
fn records<'a>(calls: &[(Direction, u64, &'a str)], piece: usize, cap: usize) -> Vec<(Data<'a>, MonoTime)> {
    let (mut records, mut received, mut sent) = (Vec::new(), 0, 0);
    for (direction, at, bytes) in calls {
        let offset = match direction {
            Direction::Rx => &mut received,
            Direction::Tx => &mut sent,
        };
        let copied = &bytes.as_bytes()[..bytes.len().min(cap)];
        let count = copied.len().div_ceil(piece);
        for (n, bytes_of) in copied.chunks(piece).enumerate() {
            let data = Data {
                conn: ConnId(1),
                fd: Fd(27),
                direction: *direction,
                call: Call::Write,
                spent: Nanos(0),
                offset: *offset,
                total: u32::try_from(bytes.len()).unwrap(),
                at: u32::try_from(n * piece).unwrap(),
                bytes: bytes_of,
                last: n + 1 == count,
            };
            records.push((data, MonoTime(*at)));
        }
        *offset += bytes.len() as u64;
    }
    records
}

fn run(records: &[(Data<'_>, MonoTime)]) -> (Events, Losses) {
    let mut connection = Connection::new();
    for (data, at) in records {
        connection.push(data, *at);
    }
    let losses = connection.finish(MonoTime(3_000_000));
    (connection.events, losses)
}

fn times(events: &Events) -> Vec<u64> {
    events.seen.iter().map(|(at, _, _)| *at).collect()
}

#[test]
fn a_streamed_chat_gives_its_events_at_the_times_of_their_writes() {
    let (events, losses) = run(&records(&STREAMED, usize::MAX, usize::MAX));
    assert_eq!(times(&events), [2_634_716, 2_635_052, 2_649_546, 2_664_000]);
    assert!(events.seen[0].1.starts_with("{\"id\":\"chatcmpl-my-req-0001\""));
    assert_eq!(events.seen[3], (2_664_000, "[DONE]".to_owned(), false));
    assert_eq!((events.complete, losses), (vec![true], Losses::default()));
}

#[test]
fn how_calls_are_cut_into_records_changes_nothing() {
    let (whole, _) = run(&records(&STREAMED, usize::MAX, usize::MAX));
    for piece in 1..40 {
        let (cut, losses) = run(&records(&STREAMED, piece, usize::MAX));
        assert_eq!((&cut.seen, &cut.complete, losses), (&whole.seen, &whole.complete, Losses::default()));
    }
}

#[test]
fn several_chunks_in_one_write_give_several_events() {
    // uvloop 0.22 joins what is written in one turn of its loop.
    let joined: String = STREAMED[2..].iter().map(|(_, _, bytes)| *bytes).collect();
    let calls = [STREAMED[0], STREAMED[1], (Direction::Tx, 2_700_000, joined.as_str())];
    let (events, _) = run(&records(&calls, 16 * 1024, usize::MAX));
    assert_eq!((times(&events), events.complete), (vec![2_700_000; 4], vec![true]));
}

#[test]
fn records_delivered_swapped_change_nothing() {
    let mut records = records(&STREAMED, usize::MAX, usize::MAX);
    let (ordered, _) = run(&records);
    records.swap(2, 3);
    records.swap(5, 6);
    let (swapped, losses) = run(&records);
    assert_eq!((swapped.seen, swapped.complete, losses), (ordered.seen, ordered.complete, Losses::default()));
}

#[test]
fn a_lost_record_costs_its_own_event_only() {
    let mut records = records(&STREAMED, usize::MAX, usize::MAX);
    let (lost, _) = records.remove(3);
    let (events, losses) = run(&records);
    assert_eq!(times(&events), [2_634_716, 2_649_546, 2_664_000]);
    assert_eq!(
        events.seen.iter().map(|(_, _, after_gap)| *after_gap).collect::<Vec<_>>(),
        [false, true, false]
    );
    assert_eq!((events.complete, losses.get(Loss::GapBytes)), (vec![true], u64::from(lost.total)));
}

#[test]
fn what_is_over_the_cap_is_passed_over() {
    let (events, losses) = run(&records(&STREAMED, usize::MAX, 230));
    // The first event is 258 bytes on the wire; its tail is missing, and with it the whole event.
    assert_eq!(times(&events), [2_635_052, 2_649_546, 2_664_000]);
    assert_eq!((events.complete, losses.get(Loss::GapBytes)), (vec![true], 28 + 132));
}
