//! One server: an engine's own state behind one face.

use std::sync::Arc;

use super::{Context, sglang, vllm};
use crate::capture::fact::{self, Engine};
use crate::capture::record::Mark;
use crate::dialect::signal::sglang::{FrontendSnapshot, SglangSignal, Snapshot};
use crate::dialect::signal::vllm_v0::V0Snapshot;
use crate::dialect::signal::{ApiSignal, EngineSignal};
use crate::dialect::vocabulary::Vocabulary;
use crate::ids::Pid;
use crate::model::metric::Point;
use crate::time::{Clock, MonoTime, WallTime};
use crate::why::book::Book;

/// One server.
#[derive(Debug)]
pub(super) enum Server {
    Vllm(Box<vllm::Server>),
    Sglang(Box<sglang::Server>),
}

impl Server {
    /// A server nothing is known of yet but its fact.
    pub fn new(fact: fact::Server, clock: Clock) -> Self {
        match fact.engine {
            Engine::Vllm => Self::Vllm(Box::new(vllm::Server::new(fact, clock))),
            Engine::Sglang => Self::Sglang(Box::new(sglang::Server::new(fact, clock))),
        }
    }

    /// Its fact.
    pub fn fact(&self) -> &fact::Server {
        match self {
            Self::Vllm(server) => &server.fact,
            Self::Sglang(server) => &server.fact,
        }
    }

    /// It is known better.
    pub fn learn(&mut self, fact: fact::Server) {
        match self {
            Self::Vllm(server) => server.learn(fact),
            Self::Sglang(server) => server.fact = fact,
        }
    }

    /// The texts of its tokens; SGLang's spans carry none.
    pub fn vocabulary(&mut self, vocabulary: Arc<Vocabulary>) {
        match self {
            Self::Vllm(server) => server.vocabulary = Some(vocabulary),
            Self::Sglang(_) => {}
        }
    }

    /// Requests and exchanges open.
    pub fn open(&self) -> usize {
        match self {
            Self::Vllm(server) => server.open(),
            Self::Sglang(server) => server.open(),
        }
    }

    /// What the HTTP side of a process said.
    pub fn api(&mut self, pid: Pid, signal: ApiSignal, context: &mut Context<'_>) {
        match self {
            Self::Vllm(server) => server.api(pid, signal, context),
            Self::Sglang(server) => server.api(pid, signal, context),
        }
    }

    /// What vLLM's sockets said.
    pub fn engine(&mut self, pid: Pid, signal: EngineSignal, context: &mut Context<'_>) {
        match self {
            Self::Vllm(server) => server.engine(pid, signal, context),
            Self::Sglang(_) => {}
        }
    }

    /// One of its processes is known, or known better.
    pub fn process(&mut self, process: &fact::Process) {
        match self {
            Self::Vllm(_) => {}
            Self::Sglang(server) => server.process(process.clone()),
        }
    }

    /// What SGLang's sockets, lines and shared memory said.
    pub fn sglang(&mut self, pid: Pid, signal: SglangSignal, context: &mut Context<'_>) {
        match self {
            Self::Vllm(_) => {}
            Self::Sglang(server) => server.sglang(pid, signal, context),
        }
    }

    /// What a scheduler's objects held.
    pub fn snapshot(&mut self, snapshot: Snapshot, context: &mut Context<'_>) {
        match self {
            Self::Vllm(_) => {}
            Self::Sglang(server) => server.snapshot(snapshot, context),
        }
    }

    /// What was read of a vLLM V0 engine outside its messages. `alone`: it has a process of its own.
    pub fn v0_snapshot(&mut self, snapshot: V0Snapshot, alone: bool, context: &mut Context<'_>) {
        match self {
            Self::Vllm(server) => server.v0_snapshot(snapshot, alone, context),
            Self::Sglang(_) => {}
        }
    }

    /// A probed function of a process was entered.
    pub fn mark(&mut self, pid: Pid, mark: Mark, at: MonoTime) {
        match (self, mark) {
            (_, Mark::Other(_) | Mark::Collected { .. }) | (Self::Vllm(_), Mark::Forward) => {}
            (Self::Sglang(server), Mark::Forward) => server.forward(pid, at),
        }
    }

    /// What a frontend's objects held.
    pub fn frontend_snapshot(&mut self, snapshot: FrontendSnapshot) {
        match self {
            Self::Vllm(_) => {}
            Self::Sglang(server) => server.frontend_snapshot(snapshot),
        }
    }

    /// A process ended: what it had open ends with it.
    pub fn gone(&mut self, pid: Pid, at: MonoTime, context: &mut Context<'_>) {
        match self {
            Self::Vllm(server) => server.gone(pid, at, context),
            Self::Sglang(server) => server.gone(pid, at, context),
        }
    }

    /// The agent leaves: everything open ends as it stands.
    pub fn detached(&mut self, at: MonoTime, context: &mut Context<'_>) {
        match self {
            Self::Vllm(server) => server.detached(at, context),
            Self::Sglang(server) => server.detached(at, context),
        }
    }

    /// Grace periods and expiry.
    pub fn tick(&mut self, now: MonoTime, context: &mut Context<'_>) {
        match self {
            Self::Vllm(server) => server.tick(now, context),
            Self::Sglang(server) => server.tick(now, context),
        }
    }

    /// It has ended: its gauges say nothing any more.
    pub fn stopped(&mut self) {
        match self {
            Self::Vllm(server) => server.server_stopped(),
            Self::Sglang(_) => {}
        }
    }

    /// What is remembered to say why a request was slow.
    pub fn why(&mut self) -> &mut Book {
        match self {
            Self::Vllm(server) => &mut server.why,
            Self::Sglang(server) => &mut server.why,
        }
    }

    /// Its metrics.
    pub fn points(&self, at: WallTime) -> Vec<Point> {
        match self {
            Self::Vllm(server) => server.points(at),
            Self::Sglang(server) => server.points(at),
        }
    }
}
