//! Messages of real vLLM servers of many versions, decoded from their captures and held against what the servers
//! counted themselves.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its capture has failed")]

use std::collections::HashMap;

use enginetap_core::capture::fact::{Fact, Role};
use enginetap_core::capture::record::{Body, Record};
use enginetap_core::dialect::signal::{EngineEventKind, EngineSignal, Finish};
use enginetap_core::dialect::vllm::{Decoder, Options};
use enginetap_core::ids::{ConnId, Direction, Pid};
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::stream::Piece;
use enginetap_core::time::{EngineTime, MonoTime};
use enginetap_core::wire::zmtp;
use enginetap_tests::captures::{Capture, Input, named};

/// Bytes kept of one message.
const LIMIT: usize = 4 * 1024 * 1024;

/// The calls of one direction of one connection, in order.
type Calls = Vec<(MonoTime, Vec<u8>)>;

/// One direction of one connection.
struct Stream {
    role: Role,
    direction: Direction,
    calls: Calls,
}

/// A capture, taken apart into streams.
struct Session {
    name: String,
    version: Option<String>,
    streams: Vec<Stream>,
}

impl Session {
    fn read(capture: &Capture) -> Self {
        let mut roles: HashMap<Pid, Role> = HashMap::new();
        let mut session = Self { name: capture.name.clone(), version: None, streams: Vec::new() };
        let mut index: HashMap<(ConnId, Direction), usize> = HashMap::new();
        for input in capture.inputs().unwrap() {
            match input {
                Input::Fact(fact) => match *fact {
                    Fact::Server(server) => session.version = server.version,
                    Fact::Process(process) => drop(roles.insert(process.pid, process.role)),
                    Fact::Clock(_) | Fact::Conn(_) | Fact::Detached(_) => {}
                },
                Input::Record(bytes) => {
                    let record = Record::parse(&bytes).unwrap();
                    let Body::Data(data) = record.body else { continue };
                    let streams = &mut session.streams;
                    let stream = *index.entry((data.conn, data.direction)).or_insert_with(|| {
                        let role = roles.get(&record.pid).copied().unwrap_or(Role::Other);
                        streams.push(Stream { role, direction: data.direction, calls: Vec::new() });
                        streams.len() - 1
                    });
                    let calls = &mut streams[stream].calls;
                    match calls.last_mut().filter(|_| data.at > 0) {
                        Some((_, call)) => call.extend_from_slice(data.bytes),
                        None => calls.push((record.time, data.bytes.to_vec())),
                    }
                }
            }
        }
        session
    }

    /// A decoder that goes by the table of versions.
    fn by_version(&self) -> Decoder {
        Decoder::new(None, self.version.as_deref(), Options { token_ids: true })
    }

    /// A decoder that knows nothing beforehand.
    fn by_shape() -> Decoder {
        Decoder::new(None, None, Options { token_ids: true })
    }

    /// The signals of all streams of a role and direction, by time.
    fn signals(&self, role: Role, direction: Direction, decoder: impl Fn() -> Decoder) -> Vec<EngineSignal> {
        let mut all = Vec::new();
        for stream in
            self.streams.iter().filter(|stream| stream.role == role && stream.direction == direction)
        {
            let (signals, losses) = decode(&stream.calls, zmtp::Start::Beginning, decoder());
            assert_eq!(losses.get(Loss::UnknownMessage), 0, "{}: {losses:?}", self.name);
            all.extend(signals);
        }
        all.sort_by_key(at);
        all
    }

    fn sent_by_engine(&self) -> Vec<EngineSignal> {
        self.signals(Role::EngineCore, Direction::Tx, || self.by_version())
    }

    fn sent_by_frontend(&self) -> Vec<EngineSignal> {
        self.signals(Role::ApiServer, Direction::Tx, || self.by_version())
    }
}

fn at(signal: &EngineSignal) -> MonoTime {
    match signal {
        EngineSignal::Added { at, .. }
        | EngineSignal::Aborted { at, .. }
        | EngineSignal::Step { at, .. }
        | EngineSignal::Ready { at, .. }
        | EngineSignal::Dead { at } => *at,
    }
}

/// The same signal without the time of its call.
fn timeless(mut signal: EngineSignal) -> EngineSignal {
    match &mut signal {
        EngineSignal::Added { at, .. }
        | EngineSignal::Aborted { at, .. }
        | EngineSignal::Step { at, .. }
        | EngineSignal::Ready { at, .. }
        | EngineSignal::Dead { at } => *at = MonoTime(0),
    }
    signal
}

fn decode(
    calls: &[(MonoTime, Vec<u8>)],
    start: zmtp::Start,
    mut decoder: Decoder,
) -> (Vec<EngineSignal>, Losses) {
    let mut frames = zmtp::Decoder::new(start, LIMIT);
    let (mut signals, mut losses, mut unknown) = (Vec::new(), Losses::default(), Losses::default());
    for (time, bytes) in calls {
        frames.push(&Piece::bytes(bytes, *time, true), &mut losses, &mut |message| {
            signals.extend(decoder.decode(message.frames, message.cut, message.at, &mut unknown));
        });
    }
    losses.merge(&unknown);
    (signals, losses)
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
    prompt_tokens: u64,
    cached: u64,
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
                self.sums.cached += output.cached.unwrap().total;
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

fn sums(session: &Session) -> Sums {
    let mut requests = Requests::default();
    let mut stopped = Vec::new();
    for signal in session.sent_by_frontend() {
        let EngineSignal::Added { request, .. } = signal else { continue };
        assert!(!request.cut && request.arrival.is_some() && request.client_index.is_some());
        requests.sums.prompt_tokens += u64::from(request.prompt_tokens.unwrap());
        assert_eq!(request.prompt_token_ids.len(), usize::try_from(request.prompt_tokens.unwrap()).unwrap());
        if request.sampling.as_ref().unwrap().stop {
            stopped.push(request.id);
        }
    }
    session.sent_by_engine().iter().for_each(|signal| requests.step(signal));
    requests.sums(&stopped)
}

fn whole(number: f64) -> u64 {
    format!("{number:.0}").parse().unwrap()
}

/// Captures whose API server counts less than the engine sent: after a stop string was found, up to five more
/// tokens of that request come before the abort takes effect.
const LATE_TOKENS: [&str; 5] =
    ["vllm-0.9.2.post2", "vllm-0.10.2.post2", "vllm-0.11.2", "vllm-0.12.0.post2", "vllm-0.14.1"];

/// Captures of servers that dropped the usual metrics' names or counted them otherwise.
fn counted(capture: &Capture, name: &str) -> f64 {
    let metrics = capture.metrics().unwrap();
    let sum = metrics.sum(name).or_else(|| metrics.sum(&name.replace("vllm:", "vllm:gpu_")));
    sum.unwrap_or_else(|| panic!("{} has no {name}", capture.name))
}

#[test]
fn sums_equal_the_servers_own_bit_for_bit() {
    let mut captures = named("vllm-").unwrap();
    captures.extend(named("pd-").unwrap());
    assert!(captures.len() >= 16, "{} captures", captures.len());
    for capture in captures {
        let sums = sums(&Session::read(&capture));
        let name = &capture.name;
        let own = |metric: &str| counted(&capture, metric);
        assert_eq!(sums.queue, own("vllm:request_queue_time_seconds_sum"), "{name}");
        assert_eq!(sums.prefill, own("vllm:request_prefill_time_seconds_sum"), "{name}");
        assert_eq!(sums.preemptions, whole(own("vllm:num_preemptions_total")), "{name}");
        assert_eq!(sums.hits, whole(own("vllm:prefix_cache_hits_total")), "{name}");
        assert_eq!(sums.queries, whole(own("vllm:prefix_cache_queries_total")), "{name}");
        assert_eq!(sums.prompt_tokens, whole(own("vllm:prompt_tokens_total")), "{name}");
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
fn the_frontends_side_shows_what_the_engine_sent() {
    for capture in named("").unwrap() {
        let session = Session::read(&capture);
        let sent = session.sent_by_engine().into_iter().map(timeless);
        let got = session.signals(Role::ApiServer, Direction::Rx, || session.by_version());
        let (sent, got): (Vec<_>, Vec<_>) = (sent.collect(), got.into_iter().map(timeless).collect());
        assert_eq!(sent.len(), got.len(), "{}", session.name);
        assert!(sent == got, "{}", session.name);
    }
}

#[test]
fn shape_rules_read_what_the_table_reads() {
    for capture in named("").unwrap() {
        let session = Session::read(&capture);
        for (role, direction) in [(Role::EngineCore, Direction::Tx), (Role::ApiServer, Direction::Tx)] {
            let by_version = session.signals(role, direction, || session.by_version());
            let by_shape = session.signals(role, direction, Session::by_shape);
            assert_eq!(by_version.len(), by_shape.len(), "{}", session.name);
            for (by_version, by_shape) in by_version.into_iter().zip(by_shape) {
                assert_eq!(without_indices(by_version), by_shape, "{}", session.name);
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
    for capture in named("vllm-").unwrap() {
        let session = Session::read(&capture);
        for version in ["0.8.5", "0.11.2", "0.18.1", "0.33.0"] {
            let wrong = || Decoder::new(None, Some(version), Options { token_ids: true });
            let right = session.sent_by_engine();
            let signals = session.signals(Role::EngineCore, Direction::Tx, wrong);
            assert!(right == signals, "{} as {version}", session.name);
        }
    }
}

#[test]
fn attached_at_any_call_the_rest_is_read_right() {
    for capture in named("").unwrap() {
        let session = Session::read(&capture);
        let engine = session.streams.iter().filter(|stream| stream.role == Role::EngineCore);
        for stream in engine.filter(|stream| stream.calls.len() > 20) {
            let (whole, _) = decode(&stream.calls, zmtp::Start::Beginning, session.by_version());
            for start in (0..stream.calls.len()).step_by(7) {
                let (rest, losses) =
                    decode(&stream.calls[start..], zmtp::Start::Midstream, session.by_version());
                assert!(whole.ends_with(&rest), "{} from call {start}", session.name);
                let most = whole.iter().filter(|signal| at(signal) >= stream.calls[start].0).count();
                assert!(
                    most - rest.len() <= 15,
                    "{} from call {start}: {} of {most}",
                    session.name,
                    rest.len()
                );
                assert_eq!(losses.get(Loss::Resync), 0, "{} from call {start}", session.name);
            }
        }
    }
}
