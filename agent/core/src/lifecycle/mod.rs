//! Lifecycle: signals in, finished traces and running totals out.
//!
//! An [`exchange::Exchange`] is one API request and its response. What goes on inside differs by engine, so each has
//! a state of its own (`vllm`, `sglang`): requests inside the engine, joined to exchanges by the id in the
//! response. A trace is made when both have ended.

mod details;
mod entry;
pub mod exchange;
mod maker;
mod server;
mod sglang;
mod taken_back;
pub mod totals;
mod vllm;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::capture::fact::{self, Role};
use crate::capture::record::Mark;
use crate::dialect::signal::sglang::{FrontendSnapshot, SglangSignal, Snapshot};
use crate::dialect::signal::vllm_v0::V0Snapshot;
use crate::dialect::signal::{ApiSignal, EngineSignal};
use crate::dialect::vocabulary::Vocabulary;
use crate::gpu::board::{Board, Times};
use crate::gpu::reading::Reading;
use crate::hash::Map;
use crate::ids::{Mint, Pid, ServerId};
use crate::journal::About;
use crate::loss::Losses;
use crate::model::metric::Point;
use crate::model::span::Trace;
use crate::settings::scoped::Scoped;
use crate::settings::{Settings, Strategy};
use crate::time::{Clock, MonoTime, Nanos};
use crate::why::pause::{Pause, PauseKind, Side};
use crate::why::verdict::Verdict;

use server::Server;

/// Most ended servers whose counters are kept.
pub const MAX_ENDED: usize = 64;

/// What handling a signal needs besides the server's state.
struct Context<'a> {
    settings: &'a Settings,
    clock: Clock,
    mint: &'a mut Mint,
    losses: &'a mut Losses,
    done: &'a mut Vec<Trace>,
    verdicts: &'a mut Vec<Verdict>,
}

/// Every server's requests, and what became of them.
#[derive(Debug)]
pub struct Lifecycle {
    settings: Scoped,
    clock: Clock,
    mint: Mint,
    servers: BTreeMap<ServerId, Server>,
    processes: Map<Pid, fact::Process>,
    /// Servers that ended, oldest first.
    ended: VecDeque<ServerId>,
    losses: Losses,
    done: Vec<Trace>,
    verdicts: Vec<Verdict>,
    gpus: Board,
}

impl Lifecycle {
    /// Nothing known yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            mint: Mint::new(settings.id_seed),
            settings: Scoped::new(settings),
            clock: Clock::default(),
            servers: BTreeMap::new(),
            processes: Map::default(),
            ended: VecDeque::new(),
            losses: Losses::default(),
            done: Vec::new(),
            verdicts: Vec::new(),
            gpus: Board::default(),
        }
    }

    /// Changes the settings from here on, for every server that has none of its own.
    pub fn set(&mut self, settings: Settings) {
        self.settings.set(settings);
    }

    /// Changes one server's settings from here on.
    pub fn set_server(&mut self, id: ServerId, settings: Settings) {
        self.settings.set_server(id, settings);
    }

    /// The settings of a process's server.
    #[must_use]
    pub fn settings_of(&self, pid: Pid) -> &Settings {
        if self.settings.is_uniform() {
            return self.settings.common();
        }
        self.process_of(pid).map_or(self.settings.common(), |process| self.settings.of(process.server))
    }

    /// The settings of a server.
    #[must_use]
    pub fn settings_for(&self, server: ServerId) -> &Settings {
        self.settings.of(server)
    }

    /// Takes a new reading of both clocks.
    pub fn clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// The machine's GPUs were read.
    pub fn gpus(&mut self, reading: Reading) {
        self.gpus.take(reading);
    }

    /// Threads of a process waited. What its cgroup's quota does not explain, its neighbours do.
    pub fn waits(&mut self, waits: &fact::Waits) {
        let fact::Waits { pid, from, to, waited, throttled, faults } = *waits;
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(side) = Side::of(process.role) else { return };
        let Some(server) = self.servers.get_mut(&process.server) else { return };
        let of_cgroup = throttled.min(waited);
        let of_others = Nanos(waited.0 - of_cgroup.0);
        for (kind, took) in [(PauseKind::Cgroup, of_cgroup), (PauseKind::RunQueue, of_others)] {
            if took.0 > 0 {
                server.why().pause(Pause { kind, side, from, to, took });
            }
        }
        if faults > 0 {
            server.why().faulted(side, faults);
        }
    }

    /// Learns of a server, or more of one.
    pub fn server(&mut self, fact: fact::Server) {
        match self.servers.get_mut(&fact.id) {
            Some(server) => server.learn(fact),
            None => {
                let id = fact.id;
                let mut server = Server::new(fact, self.clock);
                self.processes
                    .values()
                    .filter(|process| process.server == id)
                    .for_each(|p| server.process(p));
                self.servers.insert(id, server);
            }
        }
    }

    /// Learns the texts of a server's tokens.
    pub fn vocabulary(&mut self, id: ServerId, vocabulary: Arc<Vocabulary>) {
        if let Some(server) = self.servers.get_mut(&id) {
            server.vocabulary(vocabulary);
        }
    }

    /// Learns of a process.
    pub fn process(&mut self, process: fact::Process) {
        if let Some(server) = self.servers.get_mut(&process.server) {
            server.process(&process);
        }
        self.processes.insert(process.pid, process);
    }

    /// The process, where it is known.
    #[must_use]
    pub fn process_of(&self, pid: Pid) -> Option<&fact::Process> {
        self.processes.get(&pid)
    }

    /// The server's fact, where it is known.
    #[must_use]
    pub fn server_of(&self, id: ServerId) -> Option<&fact::Server> {
        self.servers.get(&id).map(Server::fact)
    }

    /// Every server known.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerId> {
        self.servers.keys().copied().collect()
    }

    /// What the HTTP side of a process said.
    pub fn api(&mut self, pid: Pid, signal: ApiSignal) {
        self.with(pid, |server, context| server.api(pid, signal, context));
    }

    /// What the engine side of a process said.
    pub fn engine(&mut self, pid: Pid, signal: EngineSignal) {
        self.with(pid, |server, context| server.engine(pid, signal, context));
    }

    /// What SGLang's sockets, lines and shared memory said.
    pub fn sglang(&mut self, pid: Pid, signal: SglangSignal) {
        self.with(pid, |server, context| server.sglang(pid, signal, context));
    }

    /// What a scheduler's objects held.
    pub fn snapshot(&mut self, snapshot: Snapshot) {
        self.with(snapshot.pid, |server, context| server.snapshot(snapshot, context));
    }

    /// What a frontend's objects held.
    pub fn frontend_snapshot(&mut self, snapshot: FrontendSnapshot) {
        self.with(snapshot.pid, |server, _| server.frontend_snapshot(snapshot));
    }

    /// What was read of a vLLM V0 engine outside its messages.
    pub fn v0_snapshot(&mut self, snapshot: V0Snapshot) {
        // An engine with a process of its own tells its frontend everything by messages.
        let alone = self.process_of(snapshot.pid).is_some_and(|process| process.role == Role::EngineCore);
        self.with(snapshot.pid, |server, context| server.v0_snapshot(snapshot, alone, context));
    }

    /// A probed function of a process was entered.
    pub fn mark(&mut self, pid: Pid, mark: Mark, at: MonoTime) {
        if let Mark::Collected { took, generation: _ } = mark {
            let from = MonoTime(at.0.saturating_sub(took.0));
            self.pause(pid, PauseKind::Gc, (from, at), took);
        }
        self.with(pid, |server, _| server.mark(pid, mark, at));
    }

    /// Threads of a process paused within a span of time.
    fn pause(&mut self, pid: Pid, kind: PauseKind, (from, to): (MonoTime, MonoTime), took: Nanos) {
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(side) = Side::of(process.role) else { return };
        if let Some(server) = self.servers.get_mut(&process.server) {
            server.why().pause(Pause { kind, side, from, to, took });
        }
    }

    /// A process ended: what it had open ends with it.
    pub fn gone(&mut self, pid: Pid, at: MonoTime) {
        self.with(pid, |server, context| server.gone(pid, at, context));
        self.processes.remove(&pid);
    }

    /// The agent left a server: what is open ends as it stands.
    pub fn detached(&mut self, id: ServerId, at: MonoTime) {
        self.on(id, |server, context| server.detached(at, context));
    }

    /// A server has ended: its gauges say nothing any more, its counters stay as they are. Of many that end one
    /// after the other only the last are kept.
    pub fn ended(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.stopped();
        self.settings.forget(id);
        self.processes.retain(|_, process| process.server != id);
        self.ended.push_back(id);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.servers.remove(&oldest);
        }
    }

    /// Time passes: grace periods and expiry.
    pub fn tick(&mut self, now: MonoTime) {
        for id in self.servers() {
            self.on(id, |server, context| server.tick(now, context));
        }
    }

    /// The traces finished since the last call.
    pub fn traces(&mut self) -> Vec<Trace> {
        let mut done = std::mem::take(&mut self.done);
        for trace in &mut done {
            match self.settings.of(trace.server).content_strategy {
                Strategy::SpanAttributes => {}
                Strategy::Event => details::take_content(trace),
            }
        }
        done
    }

    /// The verdicts on requests that ended since the last call.
    pub fn verdicts(&mut self) -> Vec<Verdict> {
        std::mem::take(&mut self.verdicts)
    }

    /// Losses counted here.
    #[must_use]
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Requests and exchanges open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.servers.values().map(Server::open).sum()
    }

    /// Requests and exchanges of a server that are open.
    #[must_use]
    pub fn open_of(&self, id: ServerId) -> usize {
        self.servers.get(&id).map_or(0, Server::open)
    }

    /// What a log needs to know of a process.
    #[must_use]
    pub fn about(&self, pid: Pid) -> Option<About<'_>> {
        let server = self.process_of(pid)?.server;
        let engine = self.server_of(server)?.engine;
        let (settings, open) = (self.settings.of(server), self.open_of(server));
        Some(About { server, engine, settings, clock: self.clock, open })
    }

    /// Every server's metrics at this moment, and those of the machine's GPUs.
    #[must_use]
    pub fn points(&self, now: MonoTime) -> Vec<Point> {
        let at = self.clock.wall(now);
        let kept = |id: ServerId, server: &Server| self.settings.of(id).metrics_of(server.fact().engine);
        let servers = self.servers.iter().filter(|(id, server)| kept(**id, server));
        let mut points: Vec<Point> = servers.flat_map(|(_, server)| server.points(at)).collect();
        let owner = |pid| {
            let id = self.process_of(pid)?.server;
            self.servers.get(&id).filter(|server| kept(id, server)).map(|_| id)
        };
        let since = self.gpus.begun().map_or(at, |begun| self.clock.wall(begun));
        points.extend(self.gpus.points(Times { now, at, since }, &owner));
        points
    }

    fn with(&mut self, pid: Pid, act: impl FnOnce(&mut Server, &mut Context<'_>)) {
        if let Some(id) = self.processes.get(&pid).map(|process| process.server) {
            self.on(id, act);
        }
    }

    fn on(&mut self, id: ServerId, act: impl FnOnce(&mut Server, &mut Context<'_>)) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let context = &mut Context {
            settings: self.settings.of(id),
            clock: self.clock,
            mint: &mut self.mint,
            losses: &mut self.losses,
            done: &mut self.done,
            verdicts: &mut self.verdicts,
        };
        act(server, context);
    }
}
