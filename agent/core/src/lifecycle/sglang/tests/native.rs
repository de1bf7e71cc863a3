//! Spans of SGLang's own tracing, as it recorded them, made again from the moments that its objects held then.

use std::collections::BTreeMap;

use super::*;

const NATIVE: &str = include_str!("native.txt");
/// Its nanoseconds are rounded to a double's precision at today's Unix time.
const ROUNDING: u64 = 1_000;

#[derive(Debug, Default)]
struct Native {
    /// Name, parent, start, end, links.
    stages: Vec<(String, String, u64, u64, usize)>,
    /// Name, moment, span, mode.
    events: Vec<(String, u64, String, String)>,
}

fn native() -> BTreeMap<String, Native> {
    let mut requests: BTreeMap<String, Native> = BTreeMap::new();
    for line in NATIVE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let own = |word: &str| word.to_owned();
        let request = requests.entry(own(words[0])).or_default();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[1] {
            "stage" => {
                let links = words[6].parse().unwrap();
                request.stages.push((own(words[2]), own(words[3]), number(4), number(5), links));
            }
            "event" => request.events.push((own(words[2]), number(3), own(words[4]), own(words[5]))),
            other => panic!("{other}"),
        }
    }
    requests
}

/// What happened at a moment.
#[derive(Debug)]
enum What {
    Received,
    Queued,
    Forward,
    Chunk,
    Prefilled,
    Decoded,
    Retracted,
    Scheduled(ForwardMode),
}

/// The moments, in order.
fn moments(native: &Native) -> Vec<(u64, u32, What)> {
    let mut moments = Vec::new();
    for (name, _, start, end, _) in &native.stages {
        match name.as_str() {
            "request_process" => moments.extend([(*start, 0, What::Received), (*end, 0, What::Queued)]),
            "prefill_forward" => moments.extend([(*start, 0, What::Forward), (*end, 3, What::Prefilled)]),
            "chunked_prefill" => moments.push((*end, 2, What::Chunk)),
            "decode_loop" => moments.push((*end, 1, What::Decoded)),
            _ => {}
        }
    }
    for (name, at, _, mode) in &native.events {
        let mode = if mode == "decode" { ForwardMode::Decode } else { ForwardMode::Prefill };
        let what = if name == "retract" { What::Retracted } else { What::Scheduled(mode) };
        moments.push((*at, 4, what));
    }
    moments.sort_by_key(|(at, order, _)| (*at, *order));
    moments
}

/// Plays a request as the scheduler's objects held it after each of its moments.
fn play(lifecycle: &mut Lifecycle, rid: &str, native: &Native) {
    let ended = native.stages[0].3;
    let mut times = ReqTimes::default();
    let (mut tokens, mut retractions) = (0, 0);
    for (at, _, what) in moments(native) {
        let now = Some(MonoTime(at).engine());
        match what {
            What::Received => times.received = now,
            What::Queued => times.queued = now,
            What::Forward => {
                times.forward = times.forward.or(now);
                times.last_forward = now;
            }
            // The last chunk ends with the prefill, and is not written.
            What::Chunk if native.stages.iter().any(|s| s.0 == "prefill_forward" && s.3 == at) => continue,
            What::Chunk => times.last_chunk_finished = now,
            What::Prefilled => {
                times.prefill_finished = times.prefill_finished.or(now);
                times.last_prefill_finished = now;
                tokens += 1;
            }
            What::Decoded => {
                times.last_decode_finished = now;
                tokens += 1;
            }
            What::Retracted => {
                times.queued = now;
                times.last_forward = None;
                times.last_prefill_finished = None;
                times.last_chunk_finished = None;
                times.last_decode_finished = None;
                retractions += 1;
            }
            What::Scheduled(mode) => {
                let batch = Some(BatchState { mode, size: 1, forward_count: None });
                let members = vec![rid.to_owned()];
                let mut seen = snapshot(SCHEDULER, 0, Vec::new());
                (seen.at, seen.mark, seen.batch, seen.members) =
                    (MonoTime(at), Some(MonoTime(at)), batch, members);
                lifecycle.snapshot(seen);
                continue;
            }
        }
        let state = ReqState { retractions: Some(retractions), ..state(rid, times, tokens) };
        lifecycle.snapshot(Snapshot { at: MonoTime(at), ..snapshot(SCHEDULER, 0, vec![state]) });
    }
    let finish = SglangOutput { retractions: Some(retractions), ..last(rid, tokens, "length") };
    let outputs = vec![finish];
    for (pid, hop) in [(SCHEDULER, Hop::Scheduler), (FRONTEND, Hop::Frontend)] {
        let outputs = outputs.clone();
        lifecycle.sglang(pid, SglangSignal::Outputs { at: MonoTime(ended), hop, outputs, cut: false });
    }
}

fn near(ours: WallTime, theirs: u64) -> bool {
    ours.0.abs_diff(theirs) <= ROUNDING
}

fn short(name: &str) -> &str {
    if name.starts_with("Scheduler") { "thread" } else { name }
}

#[test]
fn fed_with_the_engines_moments_the_stages_are_its_own() {
    for (rid, native) in native() {
        let mut lifecycle = lifecycle();
        dispatch(&mut lifecycle, 999, handed(&rid, true));
        play(&mut lifecycle, &rid, &native);
        lifecycle.tick(ms(60_000));
        let trace = the_trace(&mut lifecycle);
        let thread = trace.spans.iter().position(|span| span.name.starts_with("Scheduler")).unwrap();
        let ours: Vec<&Span> = trace.spans[thread..].iter().collect();
        let parent = |span: &Span| {
            ours.iter().find(|other| Some(other.id) == span.parent).map_or("-", |p| short(&p.name)).to_owned()
        };
        for (name, inside, start, end, links) in &native.stages {
            // Its thread begins a little before, when the message is unpacked.
            let begins = |span: &Span| name == "thread" || near(span.start, *start);
            let same = |span: &&&Span| {
                short(&span.name) == name
                    && begins(span)
                    && near(span.end, *end)
                    && parent(span) == *inside
                    && span.links.len() == *links
            };
            let found = ours.iter().filter(same).count();
            assert_eq!(found, 1, "{rid}: {name} in {inside}, {start} to {end}, {links} links: {ours:#?}");
        }
        assert_eq!(ours.len(), native.stages.len(), "{rid}: {:?}", names(&trace));
    }
}

#[test]
fn its_events_stand_on_the_same_spans() {
    for (rid, native) in native() {
        let mut lifecycle = lifecycle();
        dispatch(&mut lifecycle, 999, handed(&rid, true));
        play(&mut lifecycle, &rid, &native);
        lifecycle.tick(ms(60_000));
        let trace = the_trace(&mut lifecycle);
        for (name, at, on, mode) in &native.events {
            let ours = trace
                .spans
                .iter()
                .find(|span| span.events.iter().any(|event| event.name == *name && near(event.at, *at)));
            let ours = ours.unwrap_or_else(|| panic!("{rid}: no {name} at {at}"));
            // SGLang puts a return to the queue on the thread; the contract on the stage that covers it.
            let expected = if name == "retract" { "decode_forward" } else { on };
            assert_eq!(short(&ours.name), expected, "{rid}: {name} ({mode}) at {at}");
        }
    }
}

#[test]
fn decode_steps_are_numbered_through_returns_to_the_queue() {
    let native = native();
    let mut lifecycle = lifecycle();
    dispatch(&mut lifecycle, 999, handed("4ca8b628", true));
    play(&mut lifecycle, "4ca8b628", &native["4ca8b628"]);
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let numbers: Vec<i64> = trace.spans.iter().filter_map(|span| int(span, "decode_ct")).collect();
    assert_eq!(numbers, (0..56).collect::<Vec<i64>>());
    let names = names(&trace);
    let count = |name: &str| names.iter().filter(|other| **other == name).count();
    assert_eq!((count("prefill_waiting"), count("prefill_forward"), count("decode_forward")), (1, 4, 1));
}
