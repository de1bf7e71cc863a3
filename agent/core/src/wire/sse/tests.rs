use proptest::prelude::*;

use super::*;

/// An event that owns what it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    data: String,
    first: u64,
    at: u64,
    after_gap: bool,
}

fn event(name: &str, data: &str, first: u64, at: u64) -> Seen {
    Seen { name: name.to_owned(), data: data.to_owned(), first, at, after_gap: false }
}

fn marked(event: Seen) -> Seen {
    Seen { after_gap: true, ..event }
}

/// Pushes into a decoder and writes down what comes out.
struct Bench {
    decoder: Decoder,
    seen: Vec<Seen>,
}

impl Bench {
    fn new() -> Self {
        Self { decoder: Decoder::new(EVENT_LIMIT), seen: Vec::new() }
    }

    fn push(&mut self, at: u64, body: &[u8]) -> &mut Self {
        let seen = &mut self.seen;
        self.decoder.push(body, MonoTime(at), &mut |event| {
            let Event { name, data, first, at, after_gap } = event;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            seen.push(Seen { name: text(name), data: text(data), first: first.0, at: at.0, after_gap });
        });
        self
    }

    fn gap(&mut self) -> &mut Self {
        self.decoder.gap();
        self
    }

    fn lost(&mut self) -> u64 {
        let mut losses = Losses::default();
        self.decoder.drain_losses(&mut losses);
        losses.get(Loss::OverSize)
    }

    fn seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }
}

/// The events of a body in one piece at time 1.
fn events(body: &str) -> Vec<Seen> {
    Bench::new().push(1, body.as_bytes()).seen()
}

#[test]
fn an_event_is_told_at_its_blank_line() {
    assert_eq!(
        events("data: {\"a\": 1}\n\ndata: [DONE]\n\n"),
        [event("", "{\"a\": 1}", 1, 1), event("", "[DONE]", 1, 1)]
    );
    assert_eq!(events("data: {}\n"), []);
}

#[test]
fn lines_end_with_lf_or_crlf_or_cr() {
    for body in ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r"] {
        assert_eq!(events(body), [event("", "a", 1, 1), event("", "b", 1, 1)], "{body:?}");
    }
}

#[test]
fn several_data_lines_are_joined() {
    assert_eq!(events("data: a\ndata\ndata:b\ndata:  c\n\n"), [event("", "a\n\nb\n c", 1, 1)]);
}

#[test]
fn fields_that_say_nothing_here_are_passed_over() {
    let body = "\u{feff}: a comment\nid: 7\nretry: 10\nother: x\nevent: response.created\ndata: a\n\n: ping\n\ndata: b\n\n";
    assert_eq!(events(body), [event("response.created", "a", 1, 1), event("", "b", 1, 1)]);
}

#[test]
fn an_event_without_data_is_none() {
    assert_eq!(events("event: ping\n\ndata: a\n\n"), [event("", "a", 1, 1)]);
    assert_eq!(events("data:\n\n"), [event("", "", 1, 1)]);
}

#[test]
fn an_event_over_several_pieces_has_the_times_of_its_ends() {
    let mut bench = Bench::new();
    bench
        .push(1, b"da")
        .push(2, b"ta: a")
        .push(3, b"b\neve")
        .push(4, b"nt: x\ndata: c")
        .push(5, b"\r")
        .push(6, b"\n\r");
    assert_eq!(bench.seen(), [event("x", "ab\nc", 1, 6)]);
    bench.push(7, b"\ndata: d\n\n");
    assert_eq!(bench.seen(), [event("", "d", 7, 7)]);
}

#[test]
fn an_event_within_one_piece_is_lent() {
    let body = b"event: delta\ndata: {\"a\": 1}\n\n";
    let mut lent = false;
    Decoder::new(EVENT_LIMIT).push(body, MonoTime(1), &mut |event| {
        lent = body.as_ptr_range().contains(&event.data.as_ptr())
            && body.as_ptr_range().contains(&event.name.as_ptr());
    });
    assert!(lent);
}

#[test]
fn after_a_gap_a_cut_line_is_skipped_up_to_the_next_blank_line() {
    let mut bench = Bench::new();
    bench.push(1, b"data: lost").gap().push(2, b"\"rest\": 1}\ndata: not whole\n\ndata: a\n\ndata: b\n\n");
    assert_eq!(bench.seen(), [marked(event("", "a", 2, 2)), event("", "b", 2, 2)]);
}

#[test]
fn after_a_gap_a_line_that_is_plainly_a_field_goes_on() {
    let mut bench = Bench::new();
    bench.push(1, b"data: a\n\n").gap().push(3, b"dat").push(4, b"a: b\n\n");
    assert_eq!(bench.seen(), [event("", "a", 1, 1), marked(event("", "b", 3, 4))]);
    bench.gap().push(5, b"\n\ndata: c\n\n");
    assert_eq!(bench.seen(), [marked(event("", "c", 5, 5))]);
}

#[test]
fn joined_in_the_middle_the_first_event_is_marked() {
    let mut bench = Bench::new();
    bench.decoder = Decoder::midstream(EVENT_LIMIT);
    bench.push(1, b"f\"}\n\ndata: a\n\n");
    assert_eq!(bench.seen(), [marked(event("", "a", 1, 1))]);
}

#[test]
fn an_event_over_the_limit_is_skipped_and_counted() {
    for pieces in [
        &[&b"data: 0123456789\ndata: x\n\ndata: a\n\n"[..]][..],
        &[b"data: 01234", b"56789", b"\n\ndata: a\n\n"],
    ] {
        let mut bench = Bench::new();
        bench.decoder = Decoder::new(12);
        for piece in pieces {
            bench.push(1, piece);
        }
        assert_eq!((bench.seen(), bench.lost()), (vec![marked(event("", "a", 1, 1))], 1));
    }
}

/// Text that is much like an event stream.
fn stream() -> impl Strategy<Value = String> {
    let line = "data: ?[a-z{}:\"]{0,9}|event: [a-z]{1,3}|id: 1|: ping|[a-z]{0,4}||";
    let ending = prop::sample::select(vec!["\n", "\n", "\r\n", "\r", "\n\n", "\r\n\r\n"]);
    prop::collection::vec((line, ending), 0..20)
        .prop_map(|lines| lines.into_iter().map(|(line, ending)| line + ending).collect())
}

/// The standard's algorithm, read off its text, on a whole stream.
fn oracle(stream: &str) -> Vec<(String, String)> {
    let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), None::<String>);
    let Some((whole, _)) = stream.rsplit_once('\n') else { return events };
    for line in whole.split('\n') {
        if line.is_empty() {
            let name = std::mem::take(&mut name);
            events.extend(data.take().map(|data| (name, data)));
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => data = Some(data.map_or(value.to_owned(), |data| data + "\n" + value)),
            "event" => name = value.to_owned(),
            _ => {}
        }
    }
    events
}

/// The decoder's events for a stream given in pieces of `sizes` in turn, byte `n` at time `n / 8`.
fn decoded(stream: &str, sizes: &[usize], limit: usize, gap: Option<usize>) -> Vec<Seen> {
    let mut bench = Bench::new();
    bench.decoder = Decoder::new(limit);
    let (mut sizes, mut at) = (sizes.iter().cycle(), 0);
    while at < stream.len() {
        if gap == Some(at) {
            bench.gap();
        }
        let size = sizes.next().copied().unwrap_or(8).min(8 - at % 8).min(stream.len() - at);
        let size = gap.filter(|gap| *gap > at).map_or(size, |gap| size.min(gap - at));
        bench.push(at as u64 / 8, &stream.as_bytes()[at..at + size]);
        at += size;
    }
    bench.seen()
}

proptest! {
    #[test]
    fn it_reads_as_the_standard_says(stream in stream()) {
        let events = events(&stream).into_iter().map(|seen| (seen.name, seen.data)).collect::<Vec<_>>();
        prop_assert_eq!(events, oracle(&stream));
    }

    #[test]
    fn any_split_tells_the_same(
        stream in stream(),
        sizes in prop::collection::vec(1..9usize, 1..5),
        limit in 4..40usize,
        gap in prop::option::of(0..60usize),
    ) {
        prop_assert_eq!(decoded(&stream, &sizes, limit, gap), decoded(&stream, &[8], limit, gap));
        prop_assert_eq!(decoded(&stream, &sizes, limit, gap), decoded(&stream, &[1], limit, gap));
    }

    #[test]
    fn a_cut_stream_tells_a_prefix(stream in stream(), keep in any::<prop::sample::Index>()) {
        let keep = keep.index(stream.len() + 1);
        let (all, cut) = (events(&stream), events(&stream[..keep]));
        prop_assert_eq!(&cut, &all[..cut.len()]);
    }

    #[test]
    fn any_bytes_are_bounded(pieces in prop::collection::vec((any::<bool>(), "[a:\n\r]{0,20}|data: x"), 0..60)) {
        let mut bench = Bench::new();
        bench.decoder = Decoder::new(16);
        for (gap, bytes) in &pieces {
            if *gap { bench.gap(); }
            bench.push(1, bytes.as_bytes());
            prop_assert!(bench.decoder.line.len() + bench.decoder.event.data.len() <= 16);
        }
    }
}
