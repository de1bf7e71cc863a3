//! What the traffic itself tells of the server: who is what in it, its version and model, and its clocks.

use std::collections::{BTreeMap, HashMap};

use super::conns::Conns;
use super::line::{Moved, SocketCall};
use crate::capture::fact::{Conn, Engine, Role, Socket};
use crate::dialect::signal::EngineSignal;
use crate::dialect::signal::sglang::SglangSignal;
use crate::dialect::signal::vllm_v0::V0Output;
use crate::dialect::{sglang, vllm};
use crate::ids::{ConnId, Pid};
use crate::loss::Losses;
use crate::stream::Piece;
use crate::time::{EngineTime, EpochTime, MonoTime, Seconds};
use crate::wire::zmtp;

/// Most bytes looked at of one message.
const LIMIT: usize = 1024 * 1024;

/// What was found out.
#[derive(Default)]
pub(super) struct Evidence {
    signs: BTreeMap<Pid, Signs>,
    version: Option<String>,
    model: Option<String>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) steps: Vec<Step>,
    /// Whether it is vLLM's V0 engine that speaks.
    pub(super) v0: bool,
    /// When V0's requests were sent, by their ids: the engine tells when it got them.
    handed: HashMap<String, MonoTime>,
    /// Wall time less monotonic time, where the engine tells it (SGLang with its metrics on, 0.5.10 on).
    pub(super) epoch_offset: Option<Seconds>,
}

/// What a process was seen to do.
#[derive(Clone, Copy, Default)]
struct Signs {
    sends_requests: bool,
    gets_requests: bool,
    gets_steps: bool,
    serves_tcp: bool,
}

/// A request on its way from API server to engine.
pub(super) struct Arrival {
    /// When the API server took it up, by its wall clock.
    pub(super) arrival: EpochTime,
    /// When it sent the request on: the start of that call.
    pub(super) sent: MonoTime,
    /// When the server read from a client, if it did so once since the request before.
    pub(super) read: Option<MonoTime>,
}

/// A step's report.
pub(super) struct Step {
    /// When the step ended, by the engine.
    pub(super) ended: EngineTime,
    /// When the report was moved: the start of that call.
    pub(super) moved: MonoTime,
}

/// The decoders of one connection's direction.
struct Stream {
    frames: zmtp::Decoder,
    dialect: Dialect,
}

enum Dialect {
    Vllm(Box<vllm::Decoder>),
    Sglang(Box<sglang::Decoder>),
}

/// What a message says.
enum Said {
    Vllm(EngineSignal),
    Sglang(SglangSignal),
}

impl Dialect {
    fn new(engine: Engine, version: Option<&str>) -> Self {
        match engine {
            Engine::Vllm => Self::Vllm(Box::new(vllm::Decoder::new(None, version, vllm::Options::default()))),
            Engine::Sglang => {
                Self::Sglang(Box::new(sglang::Decoder::new(None, version, sglang::Options::default())))
            }
        }
    }

    fn read(&mut self, message: &zmtp::Message<'_>) -> Vec<Said> {
        let zmtp::Message { frames, cut, at, .. } = *message;
        let mut losses = Losses::default();
        match self {
            Self::Vllm(decoder) => {
                decoder.decode(frames, cut, at, &mut losses).into_iter().map(Said::Vllm).collect()
            }
            Self::Sglang(decoder) => {
                let mut signals = Vec::new();
                // Who it is that speaks is what is to be found out.
                for way in [sglang::Way::FromFrontend, sglang::Way::FromScheduler] {
                    decoder.decode(frames, cut, at, way, &mut losses, &mut signals);
                }
                signals.into_iter().map(Said::Sglang).collect()
            }
        }
    }
}

impl Stream {
    fn new(conn: &Conn, engine: Engine, version: Option<&str>) -> Self {
        let start = if conn.midstream { zmtp::Start::Midstream } else { zmtp::Start::Beginning };
        Self { frames: zmtp::Decoder::new(start, LIMIT), dialect: Dialect::new(engine, version) }
    }

    fn said(&mut self, call: &SocketCall) -> Vec<Said> {
        let Self { frames, dialect } = self;
        let (mut said, mut losses) = (Vec::new(), Losses::default());
        let piece = Piece::bytes(&call.bytes, call.time, true);
        frames.push(&piece, &mut losses, &mut |message| said.extend(dialect.read(message)));
        said
    }
}

impl Evidence {
    /// Reads through all messages.
    pub(super) fn gather(calls: &[SocketCall], conns: &Conns, engine: Engine, version: Option<&str>) -> Self {
        let mut evidence = Self::default();
        let mut streams: HashMap<(ConnId, bool), Stream> = HashMap::new();
        let mut reads: HashMap<Pid, Reads> = HashMap::new();
        for (call, conn) in calls.iter().zip(conns.of_calls()) {
            evidence.signs.entry(call.pid).or_default();
            let sent = match call.moved {
                Moved::Rx => false,
                Moved::Tx => true,
                Moved::Accept | Moved::Connect | Moved::Close => continue,
            };
            match conn.socket {
                Socket::Tcp { .. } => evidence.http(call, &mut reads),
                Socket::Log => continue,
                Socket::Unix { .. } | Socket::Other => {}
            }
            let stream =
                streams.entry((conn.conn, sent)).or_insert_with(|| Stream::new(conn, engine, version));
            for said in stream.said(call) {
                match said {
                    Said::Vllm(signal) => evidence.signal(signal, call, sent, &mut reads),
                    Said::Sglang(signal) => evidence.sglang(&signal, call.pid, sent),
                }
            }
        }
        evidence
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// What each process is.
    pub(super) fn roles(&self, conns: &Conns) -> BTreeMap<Pid, Role> {
        let mut roles: BTreeMap<Pid, Role> =
            self.signs.iter().map(|(pid, signs)| (*pid, signs.role())).collect();
        // Who speaks with a frontend and is nothing else is an engine (of V0, whose messages are not read here);
        // who speaks with an engine and is nothing else works for it.
        for (known, other) in [(Role::ApiServer, Role::EngineCore), (Role::EngineCore, Role::Worker)] {
            if known == Role::ApiServer && roles.values().any(|role| *role == Role::EngineCore) {
                continue;
            }
            for conn in conns.all() {
                let Socket::Unix { peer_pid: Some(peer), .. } = conn.socket else { continue };
                if roles.get(&conn.pid) == Some(&known) && roles.get(&peer) == Some(&Role::Other) {
                    roles.insert(peer, other);
                }
            }
        }
        roles
    }

    fn signal(
        &mut self,
        signal: EngineSignal,
        call: &SocketCall,
        sent: bool,
        reads: &mut HashMap<Pid, Reads>,
    ) {
        let signs = self.signs.entry(call.pid).or_default();
        let started = MonoTime(call.time.0.saturating_sub(call.spent.0));
        match signal {
            EngineSignal::Added { request, .. } => {
                signs.sends_requests |= sent;
                signs.gets_requests |= !sent;
                let read = reads.entry(call.pid).or_default().take();
                if sent && request.arrival.is_none() {
                    self.handed.insert(request.id.clone(), started);
                }
                self.arrivals.extend(request.arrival.map(|arrival| Arrival { arrival, sent: started, read }));
            }
            EngineSignal::Step { step, .. } => {
                signs.gets_steps |= !sent;
                self.steps.extend(step.timestamp.map(|ended| Step { ended, moved: started }));
            }
            EngineSignal::Outputs { outputs, .. } => {
                signs.gets_steps |= !sent;
                self.v0 = true;
                if !sent {
                    outputs.iter().for_each(|output| self.v0_times(output, call.time));
                }
            }
            EngineSignal::Ready { ready, .. } => self.version = self.version.take().or(ready.version),
            EngineSignal::Aborted { .. } | EngineSignal::Failed { .. } | EngineSignal::Dead { .. } => {}
        }
    }

    /// V0's engine got a request after it was sent, and reported what happened after it happened.
    fn v0_times(&mut self, output: &V0Output, moved: MonoTime) {
        let handed = self.handed.get(&output.id).copied();
        let last = output.metrics.finished.or(output.metrics.last_token);
        let got = output.metrics.arrival.map(|arrival| Arrival { arrival, sent: moved, read: handed });
        self.arrivals.extend(got);
        self.arrivals.extend(last.map(|arrival| Arrival { arrival, sent: moved, read: None }));
    }

    fn sglang(&mut self, signal: &SglangSignal, pid: Pid, sent: bool) {
        let signs = self.signs.entry(pid).or_default();
        match signal {
            SglangSignal::Dispatched { .. } => {
                signs.sends_requests |= sent;
                signs.gets_requests |= !sent;
            }
            SglangSignal::Outputs { outputs, .. } => {
                let told = outputs.iter().find_map(|output| output.times?.epoch_offset);
                self.epoch_offset = self.epoch_offset.or(told);
            }
            SglangSignal::Aborted { .. } | SglangSignal::Retracted { .. } | SglangSignal::Load { .. } => {}
        }
    }

    /// Looks at a client's request.
    fn http(&mut self, call: &SocketCall, reads: &mut HashMap<Pid, Reads>) {
        if call.moved != Moved::Rx || call.bytes.is_empty() {
            return;
        }
        let begins = call.bytes.starts_with(b"POST ") || call.bytes.starts_with(b"GET ");
        self.signs.entry(call.pid).or_default().serves_tcp |= begins;
        reads.entry(call.pid).or_default().add(call.time);
        if self.model.is_none() {
            self.model = model(&call.bytes);
        }
    }
}

impl Signs {
    fn role(self) -> Role {
        let Self { sends_requests, gets_requests, gets_steps, serves_tcp } = self;
        match (sends_requests || serves_tcp, gets_requests, gets_steps) {
            (true, _, _) => Role::ApiServer,
            (false, true, _) => Role::EngineCore,
            (false, false, true) => Role::Coordinator,
            (false, false, false) => Role::Other,
        }
    }
}

/// Reads of a process from its clients since it last sent a request on.
#[derive(Default)]
struct Reads {
    count: u32,
    last: MonoTime,
}

impl Reads {
    fn add(&mut self, at: MonoTime) {
        self.count += 1;
        self.last = at;
    }

    fn take(&mut self) -> Option<MonoTime> {
        let read = (self.count == 1).then_some(self.last);
        self.count = 0;
        read
    }
}

/// The value of `"model"` in a request's body.
fn model(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let (_, after) = text.split_once("\"model\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let (name, _) = value.split_once('"')?;
    Some(name.to_owned())
}
