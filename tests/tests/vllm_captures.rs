//! Messages of real vLLM servers of many versions, decoded from their captures and held against what the servers
//! counted themselves.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its capture has failed")]

use std::collections::HashMap;

use enginetap_core::capture::fact::Role;
use enginetap_core::dialect::signal::{EngineEventKind, EngineSignal, Finish};
use enginetap_core::dialect::vllm::{Decoder, Options};
use enginetap_core::ids::Direction;
use enginetap_core::loss::Loss;
use enginetap_core::time::EngineTime;
use enginetap_core::wire::zmtp::Start;
use enginetap_tests::captures::{Capture, named};
use enginetap_tests::messages::{Session, at, decode, timeless};

/// The signals of all streams of a role and direction, by time.
fn signals(
    session: &Session,
    role: Role,
    direction: Direction,
    decoder: impl Fn() -> Decoder,
) -> Vec<EngineSignal> {
    let decoded = session.decode(role, direction, decoder);
    assert_eq!(decoded.losses.get(Loss::UnknownMessage), 0, "{}", session.name);
    decoded.signals
}

fn sent_by_engine(session: &Session) -> Vec<EngineSignal> {
    signals(session, Role::EngineCore, Direction::Tx, || session.by_version())
}

fn sent_by_frontend(session: &Session) -> Vec<EngineSignal> {
    signals(session, Role::ApiServer, Direction::Tx, || session.by_version())
}

/// Sessions of captures that hold all processes of a server from its start, as those with metrics do.
fn whole_servers() -> Vec<(Capture, Session)> {
    let captures = [named("vllm-").unwrap(), named("pd-").unwrap()].concat();
    assert!(captures.len() >= 16, "{} captures", captures.len());
    captures
        .into_iter()
        .map(|capture| {
            let session = Session::read(&capture).unwrap();
            (capture, session)
        })
        .collect()
}

/// What vLLM counts of a request, rebuilt from the engine's messages.
#[derive(Default)]
struct Request {
    queued: Option<EngineTime>,
    scheduled: Option<EngineTime>,
    first: Option<EngineTime>,
    last: Option<EngineTime>,
    tokens: u64,
    preemptions: u64,
    finish: Option<Finish>,
}

/// Sums over a capture, as `/metrics` has them.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    queue: f64,
    prefill: f64,
    decode: f64,
    preemptions: u64,
    tokens: u64,
    hits: u64,
    queries: u64,
    finished: u64,
}

/// Requests in the order of their first outputs.
#[derive(Default)]
struct Requests {
    order: Vec<String>,
    by_id: HashMap<String, Request>,
    sums: Sums,
}

impl Requests {
    fn step(&mut self, signal: &EngineSignal) {
        let EngineSignal::Step { step, .. } = signal else { return };
        assert!(!step.cut);
        let timestamp = step.timestamp.unwrap();
        if let Some(prefix) = step.stats.as_ref().and_then(|stats| stats.prefix) {
            self.sums.hits += prefix.hits;
            self.sums.queries += prefix.queries;
        }
        for output in &step.outputs {
            assert_eq!(output.tokens.len(), usize::try_from(output.token_count).unwrap());
            if !self.by_id.contains_key(&output.id) {
                self.order.push(output.id.clone());
            }
            let request = self.by_id.entry(output.id.clone()).or_default();
            for event in &output.events {
                match event.kind {
                    EngineEventKind::Queued => drop(request.queued.get_or_insert(event.at)),
                    EngineEventKind::Scheduled => drop(request.scheduled.get_or_insert(event.at)),
                    EngineEventKind::Preempted => request.preemptions += 1,
                }
            }
            if request.finish.is_none() {
                request.first.get_or_insert(timestamp);
                request.last = Some(timestamp);
                request.tokens += u64::from(output.token_count);
            }
            request.finish = request.finish.or(output.finish);
        }
    }

    /// `stopped`: requests with stop strings, which end by an abort and count as finished.
    fn sums(mut self, stopped: &[String]) -> Sums {
        for id in &self.order {
            let request = &self.by_id[id];
            self.sums.preemptions += request.preemptions;
            self.sums.tokens += request.tokens;
            if request.finish.is_none() && !stopped.contains(id) {
                continue;
            }
            self.sums.finished += 1;
            let [queued, scheduled] = [request.queued, request.scheduled].map(Option::unwrap);
            let [first, last] = [request.first, request.last].map(Option::unwrap);
            self.sums.queue += scheduled.since(queued).0;
            self.sums.prefill += first.since(scheduled).0;
            self.sums.decode += last.since(first).0;
        }
        self.sums
    }
}

fn sums(session: &Session, stopped: &[String]) -> Sums {
    let mut requests = Requests::default();
    sent_by_engine(session).iter().for_each(|signal| requests.step(signal));
    requests.sums(stopped)
}

/// Prompt tokens of all requests, and the ids of those with stop strings.
fn requests(session: &Session) -> (u64, Vec<String>) {
    let (mut prompt_tokens, mut stopped) = (0, Vec::new());
    for signal in sent_by_frontend(session) {
        let EngineSignal::Added { request, .. } = signal else { continue };
        assert!(!request.cut && request.arrival.is_some() && request.client_index.is_some());
        let tokens = request.prompt_tokens.unwrap();
        assert_eq!(request.prompt_token_ids.len(), usize::try_from(tokens).unwrap());
        prompt_tokens += u64::from(tokens);
        stopped.extend(request.sampling.unwrap().stop.then_some(request.id));
    }
    (prompt_tokens, stopped)
}

fn whole(number: f64) -> u64 {
    format!("{number:.0}").parse().unwrap()
}

/// Captures whose API server counts less than the engine sent: after a stop string was found, up to five more
/// tokens of that request come before the abort takes effect.
const LATE_TOKENS: [&str; 5] =
    ["vllm-0.9.2.post2", "vllm-0.10.2.post2", "vllm-0.11.2", "vllm-0.12.0.post2", "vllm-0.14.1"];

/// What the server counted. Some of its counters were called `gpu_...` once.
fn counted(capture: &Capture, name: &str) -> f64 {
    let metrics = capture.metrics().unwrap();
    let sum = metrics.sum(name).or_else(|| metrics.sum(&name.replace("vllm:", "vllm:gpu_")));
    sum.unwrap_or_else(|| panic!("{} has no {name}", capture.name))
}

#[test]
fn sums_equal_the_servers_own_bit_for_bit() {
    for (capture, session) in whole_servers() {
        let (prompt_tokens, stopped) = requests(&session);
        let sums = sums(&session, &stopped);
        let name = &capture.name;
        let own = |metric: &str| counted(&capture, metric);
        assert_eq!(sums.queue, own("vllm:request_queue_time_seconds_sum"), "{name}");
        assert_eq!(sums.prefill, own("vllm:request_prefill_time_seconds_sum"), "{name}");
        assert_eq!(sums.preemptions, whole(own("vllm:num_preemptions_total")), "{name}");
        assert_eq!(sums.hits, whole(own("vllm:prefix_cache_hits_total")), "{name}");
        assert_eq!(sums.queries, whole(own("vllm:prefix_cache_queries_total")), "{name}");
        assert_eq!(prompt_tokens, whole(own("vllm:prompt_tokens_total")), "{name}");
        assert_eq!(sums.finished, whole(own("vllm:request_queue_time_seconds_count")), "{name}");
        let late = sums.tokens - whole(own("vllm:generation_tokens_total"));
        if LATE_TOKENS.contains(&name.as_str()) {
            assert!((1..=5).contains(&late), "{name}: {late} late tokens");
        } else {
            assert_eq!(late, 0, "{name}");
            assert_eq!(sums.decode, own("vllm:request_decode_time_seconds_sum"), "{name}");
        }
    }
}

#[test]
fn the_sums_of_a_server_with_many_preemptions_are_its_own() {
    let session = Session::read(&Capture::read("traced-engine").unwrap()).unwrap();
    let sums = sums(&session, &[]);
    // What its /metrics said.
    assert_eq!((sums.queue, sums.prefill), (1.898_257_934_999_492_1, 0.771_479_698_999_428_4));
    assert_eq!((sums.preemptions, sums.hits), (6, 32));
}

#[test]
fn the_frontends_side_shows_what_the_engine_sent() {
    for (_, session) in whole_servers() {
        let sent = sent_by_engine(&session).into_iter().map(timeless);
        let got = signals(&session, Role::ApiServer, Direction::Rx, || session.by_version());
        let (sent, got): (Vec<_>, Vec<_>) = (sent.collect(), got.into_iter().map(timeless).collect());
        assert_eq!(sent.len(), got.len(), "{}", session.name);
        assert!(sent == got, "{}", session.name);
    }
}

#[test]
fn shape_rules_read_what_the_table_reads() {
    let by_nothing = || Decoder::new(None, None, Options { token_ids: true });
    for capture in named("").unwrap() {
        let session = Session::read(&capture).unwrap();
        if session.version.as_deref() == Some("0.99.0+cpu") {
            // A version that nobody listed: there is no table of it.
            continue;
        }
        for role in [Role::EngineCore, Role::ApiServer] {
            for direction in [Direction::Rx, Direction::Tx] {
                let by_version = signals(&session, role, direction, || session.by_version());
                let by_shape = signals(&session, role, direction, by_nothing);
                assert_eq!(by_version.len(), by_shape.len(), "{}", session.name);
                for (by_version, by_shape) in by_version.into_iter().zip(by_shape) {
                    assert_eq!(without_indices(by_version), by_shape, "{}", session.name);
                }
            }
        }
    }
}

/// Shape does not tell one small number from another.
fn without_indices(mut signal: EngineSignal) -> EngineSignal {
    if let EngineSignal::Added { request, .. } = &mut signal {
        (request.client_index, request.data_parallel_rank) = (None, None);
    }
    signal
}

#[test]
fn a_table_of_the_wrong_version_does_no_harm() {
    for (_, session) in whole_servers() {
        let right = sent_by_engine(&session);
        for version in ["0.8.5", "0.11.2", "0.18.1", "0.33.0"] {
            let wrong = || Decoder::new(None, Some(version), Options { token_ids: true });
            let wrong = signals(&session, Role::EngineCore, Direction::Tx, wrong);
            assert!(right == wrong, "{} as {version}", session.name);
        }
    }
}

/// Most messages that an agent attached in mid-stream may miss: as many as fill a few of libzmq's batches.
const MISSED: usize = 15;

#[test]
fn attached_at_any_call_the_rest_is_read_right() {
    for capture in named("").unwrap() {
        let session = Session::read(&capture).unwrap();
        for stream in session.of(Role::EngineCore, Direction::Tx).filter(|stream| stream.calls.len() > 20) {
            let all = decode(&stream.calls, stream.start, session.by_version()).signals;
            for first in (0..stream.calls.len()).step_by(31) {
                let rest = decode(&stream.calls[first..], Start::Midstream, session.by_version());
                let name = format!("{} from call {first}", session.name);
                assert!(all.ends_with(&rest.signals), "{name}");
                let most = all.iter().filter(|signal| at(signal) >= stream.calls[first].0).count();
                assert!(most - rest.signals.len() <= MISSED, "{name}: {} of {most}", rest.signals.len());
                assert_eq!(rest.losses.get(Loss::Resync), 0, "{name}");
            }
        }
    }
}
