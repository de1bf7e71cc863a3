//! The pipeline: records and facts in, traces and verdicts out. The same code live and in a replay.

mod connection;
mod engine;
mod http;
mod log;
mod tls;

use std::sync::Arc;

use enginetap_common::watch::Verdict;

use crate::capture::fact::{self, Fact, Role, Socket};
use crate::capture::record::{Body, Data, Record};
use crate::dialect::sglang::shared;
use crate::dialect::signal::sglang::SglangSignal;
use crate::dialect::vocabulary::Vocabulary;
use crate::hash::{Map, in_order};
use crate::ids::{ConnId, Direction, Fd, Pid, ServerId, Tid};
use crate::journal::Journal;
use crate::lifecycle::Lifecycle;
use crate::loss::{Loss, Losses};
use crate::model::log::Log;
use crate::model::metric::Point;
use crate::model::span::Trace;
use crate::settings::Settings;
use crate::stream::protocol::Protocol;
use crate::time::{Clock, MonoTime, Nanos};
use crate::why;

use connection::{Connection, Origin, Signals};
use tls::Tls;

/// How often grace periods and expiry are looked at, by the records' own time.
const TICK: Nanos = Nanos::from_millis(250);

/// What the pipeline gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A request is over: its spans.
    Trace(Trace),
    /// A line of a log.
    Log(Log),
    /// Why that request took as long as it did.
    Why(Box<why::verdict::Verdict>),
    /// A connection's protocol is known: what the kernel is to do with it.
    Verdict {
        /// The connection.
        conn: ConnId,
        /// The process.
        pid: Pid,
        /// What it speaks.
        protocol: Protocol,
        /// What to do.
        verdict: Verdict,
    },
    /// A process serves TLS: its plain text is to be taken from its library. Told once a process.
    Encrypted {
        /// The process.
        pid: Pid,
    },
}

/// What went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records.
    pub records: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Spans made.
    pub spans: u64,
}

/// The pipeline.
#[derive(Debug)]
pub struct Pipeline {
    settings: Settings,
    lifecycle: Lifecycle,
    journal: Journal,
    conns: Map<ConnId, Connection>,
    tls: Tls,
    losses: Losses,
    stats: Stats,
    outputs: Vec<Output>,
    signals: Signals,
    now: MonoTime,
    ticked: MonoTime,
}

impl Pipeline {
    /// An empty pipeline.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            lifecycle: Lifecycle::new(settings.clone()),
            settings,
            journal: Journal::default(),
            conns: Map::default(),
            tls: Tls::default(),
            losses: Losses::default(),
            stats: Stats::default(),
            outputs: Vec::new(),
            signals: Signals::default(),
            now: MonoTime::default(),
            ticked: MonoTime::default(),
        }
    }

    /// Changes the settings from here on, for every server that has none of its own.
    pub fn set(&mut self, settings: Settings) {
        self.lifecycle.set(settings.clone());
        self.settings = settings;
        self.refresh_decoders(None);
    }

    /// Changes one server's settings from here on. The bounds on memory are of all servers together and stay.
    pub fn set_server(&mut self, server: ServerId, settings: Settings) {
        self.lifecycle.set_server(server, settings);
        self.refresh_decoders(Some(server));
    }

    /// Takes the bytes of one ring entry.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        match Record::parse(bytes) {
            Ok(record) => self.push(&record),
            Err(_) => self.losses.add(Loss::BadRecord, 1),
        }
    }

    /// Takes a record.
    pub fn push(&mut self, record: &Record<'_>) {
        let Record { time, pid, tid, body } = record;
        self.stats.records += 1;
        self.pass(*time);
        match body {
            Body::Data(data) => self.data((*pid, *tid), data, *time),
            Body::Accept { conn, fd, listener: _ } => self.open(*pid, *conn, *fd, Origin::Accepted),
            Body::Connect { conn, fd } => self.open(*pid, *conn, *fd, Origin::Connected),
            Body::Close { conn, fd } => self.close(*pid, *conn, *fd, *time),
            Body::Dup { conn, from: _, to } => {
                if let Some(connection) = self.conns.get_mut(conn) {
                    connection.hold(*pid, *to);
                }
            }
            // Who belongs to a server is for user space to find out; it tells by facts.
            Body::Fork { child: _ } | Body::Exec => {}
            Body::Exit => self.exit(*pid, *time),
            Body::Mark(mark) => self.lifecycle.mark(*pid, *mark, *time),
        }
    }

    /// Takes a fact.
    pub fn fact(&mut self, fact: Fact) {
        match fact {
            Fact::Clock(clock) => self.clock(clock),
            Fact::Server(server) => {
                let id = server.id;
                self.lifecycle.server(server);
                self.refresh_decoders(Some(id));
            }
            Fact::Process(process) => self.lifecycle.process(process),
            Fact::Conn(conn) => self.conn(conn),
            Fact::Snapshot(snapshot) => self.lifecycle.snapshot(snapshot),
            Fact::FrontendSnapshot(snapshot) => self.lifecycle.frontend_snapshot(snapshot),
            Fact::V0Snapshot(snapshot) => {
                self.lifecycle.v0_snapshot(snapshot);
                self.collect();
            }
            Fact::Shared(shared) => self.shared(&shared),
            Fact::Gpus(reading) => self.lifecycle.gpus(reading),
            Fact::Waits(waits) => self.lifecycle.waits(&waits),
            Fact::Detached(server) => {
                self.lifecycle.detached(server, self.now);
                self.lifecycle.ended(server);
                self.collect();
                self.journal.forget(server);
                self.take_logs();
            }
        }
    }

    /// Learns the texts of a server's tokens, for its iteration events. Not a fact: too large for a capture.
    pub fn vocabulary(&mut self, server: ServerId, vocabulary: Arc<Vocabulary>) {
        self.lifecycle.vocabulary(server, vocabulary);
    }

    /// Time passes without records.
    pub fn tick(&mut self, now: MonoTime) {
        self.now = self.now.max(now);
        self.ticked = self.now;
        let held = self.conns.iter().filter(|(_, conn)| conn.holds_back()).map(|(id, _)| *id);
        for id in in_order(held) {
            self.with(id, |conn, context, signals| conn.expire(now, context, signals));
        }
        for conn in self.conns.values_mut() {
            conn.drain_losses(&mut self.losses);
        }
        self.lifecycle.tick(now);
        self.collect();
        let lifecycle = &self.lifecycle;
        self.journal.tick(now, &|server| lifecycle.open_of(server));
        self.take_logs();
    }

    /// Nothing more comes: whatever is open ends as it stands.
    pub fn finish(&mut self) {
        for id in in_order(self.conns.keys().copied()) {
            self.drop_conn(id, self.now, false);
        }
        self.tick(self.now);
        for server in self.lifecycle.servers() {
            self.lifecycle.detached(server, self.now);
        }
        self.collect();
        self.journal.finish();
        self.take_logs();
    }

    /// What came out since the last call.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Every metric of every server, now.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        self.lifecycle.points(self.now)
    }

    /// What was lost on this side of the kernel.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = self.losses.clone();
        losses.merge(self.lifecycle.losses());
        losses
    }

    /// What went through.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The newest moment seen.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.now
    }

    /// The settings that hold for a server.
    #[must_use]
    pub fn settings_of(&self, server: ServerId) -> &Settings {
        self.lifecycle.settings_for(server)
    }

    /// Requests and exchanges open.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.lifecycle.open()
    }

    fn pass(&mut self, time: MonoTime) {
        self.now = self.now.max(time);
        if self.now.since(self.ticked) >= TICK {
            self.tick(self.now);
        }
    }

    /// What a scheduler published in shared memory.
    fn shared(&mut self, shared: &fact::Shared) {
        let fact::Shared { pid, at, bytes } = shared;
        match shared::read(bytes) {
            Ok(loads) => {
                for load in loads {
                    self.lifecycle.sglang(*pid, SglangSignal::Load { at: *at, load });
                }
                self.collect();
            }
            Err(_) => self.losses.add(Loss::UnknownMessage, 1),
        }
    }

    fn clock(&mut self, clock: Clock) {
        self.now = self.now.max(clock.mono);
        self.lifecycle.clock(clock);
    }

    fn conn(&mut self, fact: fact::Conn) {
        let fact::Conn { conn: id, pid, fd, socket, midstream } = fact;
        if !self.conns.contains_key(&id) {
            let origin = if midstream { Origin::Before } else { Origin::Accepted };
            self.insert(Connection::new(id, pid, Some(&socket), origin));
        }
        if self.wanted(pid, Some(&socket)) {
            self.with(id, |conn, context, signals| {
                conn.hold(pid, fd);
                conn.learn(&socket, context, signals);
            });
        } else if let Some(conn) = self.conns.get_mut(&id) {
            // Kept, so that its records are known to be of no interest.
            conn.hold(pid, fd);
            conn.ignore();
            self.verdict(id, pid, Protocol::Unknown);
        }
    }

    /// Whether a connection can matter: those of frontends do, and of an engine those whose other end no watched
    /// frontend holds (the frontend's end shows the same bytes).
    fn wanted(&self, pid: Pid, socket: Option<&Socket>) -> bool {
        let Some(process) = self.lifecycle.process_of(pid) else { return false };
        match process.role {
            Role::ApiServer => !matches!(socket, Some(Socket::Other)),
            Role::EngineCore => match socket {
                Some(Socket::Unix { peer_pid: Some(peer), .. }) => self
                    .lifecycle
                    .process_of(*peer)
                    .is_none_or(|peer| matches!(peer.role, Role::EngineCore | Role::Other)),
                Some(Socket::Other) => false,
                Some(Socket::Unix { .. } | Socket::Tcp { .. } | Socket::Log) | None => true,
            },
            Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other => false,
        }
    }

    fn open(&mut self, pid: Pid, id: ConnId, fd: Fd, origin: Origin) {
        if let Some(known) = self.conns.get_mut(&id) {
            known.hold(pid, fd);
            return;
        }
        if self.wanted(pid, None) {
            let mut new = Connection::new(id, pid, None, origin);
            new.hold(pid, fd);
            self.insert(new);
        }
    }

    fn insert(&mut self, conn: Connection) {
        if self.conns.len() >= self.settings.conn_limit {
            let oldest = self.conns.iter().min_by_key(|(_, conn)| conn.touched()).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                self.losses.add(Loss::ConnEvicted, 1);
                self.drop_conn(oldest, self.now, false);
            }
        }
        self.conns.insert(conn.id(), conn);
    }

    fn data(&mut self, (pid, tid): (Pid, Tid), data: &Data<'_>, time: MonoTime) {
        self.stats.bytes += u64::try_from(data.bytes.len()).unwrap_or(0);
        if !self.conns.contains_key(&data.conn) {
            // A connection nobody told of was there before the agent, whatever the kernel counted of it since.
            self.open(pid, data.conn, data.fd, Origin::Before);
        }
        self.with(data.conn, |conn, context, signals| conn.data(data, time, context, signals));
        self.tie((pid, tid), data);
    }

    /// Ties the plain text of TLS to its socket. The socket's records are of no more interest then.
    fn tie(&mut self, (pid, tid): (Pid, Tid), data: &Data<'_>) {
        // A call is told once, however many records it became.
        if data.at != 0 {
            return;
        }
        let done = match (data.call.is_tls(), data.direction) {
            (true, Direction::Rx) => self.tls.received(tid, data.conn, data.total),
            (true, Direction::Tx) => None,
            (false, direction) => self.tls.moved(tid, data.conn, direction, data.total).then_some(data.conn),
        };
        if let Some(socket) = done {
            self.verdict(socket, pid, Protocol::Tls);
        }
    }

    /// Lets a connection work, then passes its signals on.
    fn with(
        &mut self,
        id: ConnId,
        act: impl FnOnce(&mut Connection, &mut connection::Context<'_>, &mut Signals),
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pid = conn.pid();
        let context = &mut connection::Context {
            settings: self.lifecycle.settings_of(pid),
            losses: &mut self.losses,
            lifecycle: &self.lifecycle,
        };
        act(conn, context, &mut self.signals);
        let origin = conn.origin();
        if let Some(protocol) = self.signals.decided.take() {
            self.decided(id, pid, protocol, origin);
        }
        self.pass_on(pid);
    }

    fn pass_on(&mut self, pid: Pid) {
        if self.signals.is_empty() {
            return;
        }
        self.note(pid);
        for signal in self.signals.api.drain(..) {
            self.lifecycle.api(pid, signal);
        }
        for signal in self.signals.engine.drain(..) {
            self.lifecycle.engine(pid, signal);
        }
        for signal in self.signals.sglang.drain(..) {
            self.lifecycle.sglang(pid, signal);
        }
        self.collect();
        self.take_logs();
    }

    /// Lets the journal look at the signals of a process, before they are used up.
    fn note(&mut self, pid: Pid) {
        let Self { lifecycle, journal, signals, losses, .. } = self;
        let Some(about) = lifecycle.about(pid) else { return signals.lines.clear() };
        signals.api.iter().for_each(|signal| journal.api(&about, signal));
        signals.engine.iter().for_each(|signal| journal.engine(&about, pid, signal));
        signals.sglang.iter().for_each(|signal| journal.sglang(&about, signal));
        for (bytes, at) in signals.lines.drain(..) {
            journal.line(&about, &bytes, at, losses);
        }
    }

    fn take_logs(&mut self) {
        self.outputs.extend(self.journal.logs().into_iter().map(Output::Log));
    }

    /// A connection's protocol is known. Of clients' TLS the times are wanted until the plain text is found.
    fn decided(&mut self, conn: ConnId, pid: Pid, protocol: Protocol, origin: Origin) {
        if protocol != Protocol::Tls || origin == Origin::Connected {
            return self.verdict(conn, pid, protocol);
        }
        self.tls.wait(conn);
        self.outputs.push(Output::Verdict { conn, pid, protocol, verdict: Verdict::Times });
        if origin == Origin::Accepted && self.tls.serves(pid) {
            self.outputs.push(Output::Encrypted { pid });
        }
    }

    fn verdict(&mut self, conn: ConnId, pid: Pid, protocol: Protocol) {
        self.outputs.push(Output::Verdict { conn, pid, protocol, verdict: protocol.verdict() });
    }

    fn collect(&mut self) {
        for trace in self.lifecycle.traces() {
            self.stats.spans += u64::try_from(trace.spans.len()).unwrap_or(0);
            self.journal.trace(&trace);
            self.outputs.push(Output::Trace(trace));
        }
        let verdicts = self.lifecycle.verdicts().into_iter();
        self.outputs.extend(verdicts.map(|verdict| Output::Why(Box::new(verdict))));
    }

    fn close(&mut self, pid: Pid, id: ConnId, fd: Fd, at: MonoTime) {
        if self.conns.get_mut(&id).is_some_and(|conn| conn.release(pid, fd)) {
            self.drop_conn(id, at, true);
        }
    }

    fn drop_conn(&mut self, id: ConnId, at: MonoTime, closed: bool) {
        self.with(id, |conn, context, signals| {
            conn.finish(at, closed, context, signals);
            conn.drain_losses(context.losses);
        });
        self.conns.remove(&id);
        if let Some(plain) = self.tls.gone(id)
            && closed
        {
            self.drop_conn(plain, at, true);
        }
    }

    fn exit(&mut self, pid: Pid, at: MonoTime) {
        let conns = self.conns.iter_mut();
        let released = conns.filter_map(|(id, conn)| conn.release_all(pid).then_some(*id));
        for id in in_order(released) {
            self.drop_conn(id, at, true);
        }
        self.tls.ended(pid);
        self.lifecycle.gone(pid, at);
        self.collect();
    }

    fn refresh_decoders(&mut self, server: Option<ServerId>) {
        for conn in self.conns.values_mut() {
            let of = self.lifecycle.process_of(conn.pid()).map(|process| process.server);
            if server.is_none() || of == server {
                conn.refresh();
            }
        }
    }
}
