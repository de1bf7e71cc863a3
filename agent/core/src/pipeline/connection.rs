//! One connection: its two streams, what it speaks, and the decoder for that.

use std::collections::BTreeSet;

use super::engine::EngineConn;
use super::http::HttpConn;
use super::log::LogConn;
use crate::capture::fact::Socket;
use crate::capture::record::Data;
use crate::dialect::signal::sglang::SglangSignal;
use crate::dialect::signal::{ApiSignal, EngineSignal};
use crate::ids::{ConnId, Direction, Fd, Pid};
use crate::lifecycle::Lifecycle;
use crate::loss::Losses;
use crate::settings::Settings;
use crate::stream::protocol::{Detector, Protocol};
use crate::stream::{Assembler, Piece};
use crate::time::MonoTime;

/// Most descriptors remembered of one connection.
const MAX_HOLDERS: usize = 64;

/// What a connection gave.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub api: Vec<ApiSignal>,
    pub engine: Vec<EngineSignal>,
    pub sglang: Vec<SglangSignal>,
    /// Lines of logs, where they are wanted.
    pub lines: Vec<(Vec<u8>, MonoTime)>,
    /// The protocol, when it was just told.
    pub decided: Option<Protocol>,
}

impl Signals {
    pub fn is_empty(&self) -> bool {
        self.api.is_empty() && self.engine.is_empty() && self.sglang.is_empty() && self.lines.is_empty()
    }
}

/// What a connection needs to work.
pub(super) struct Context<'a> {
    pub settings: &'a Settings,
    pub losses: &'a mut Losses,
    pub lifecycle: &'a Lifecycle,
}

#[derive(Debug)]
enum State {
    /// Not told yet.
    Undecided(Box<Detector>),
    Http(Box<HttpConn>),
    Engine(Box<EngineConn>),
    Log(Box<LogConn>),
    /// Of no interest.
    Ignored,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A client opened it.
    Accepted,
    /// The process opened it.
    Connected,
    /// It was there before the agent.
    Before,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    id: ConnId,
    pid: Pid,
    origin: Origin,
    holders: BTreeSet<(Pid, Fd)>,
    rx: Assembler,
    tx: Assembler,
    state: State,
    touched: MonoTime,
}

impl Connection {
    pub fn new(id: ConnId, pid: Pid, socket: Option<&Socket>, origin: Origin) -> Self {
        let assembler = || match origin {
            Origin::Before => Assembler::midstream(),
            Origin::Accepted | Origin::Connected => Assembler::from_start(),
        };
        Self {
            id,
            pid,
            origin,
            holders: BTreeSet::new(),
            rx: assembler(),
            tx: assembler(),
            state: State::Undecided(Box::new(Detector::new(socket))),
            touched: MonoTime::default(),
        }
    }

    pub fn id(&self) -> ConnId {
        self.id
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub fn touched(&self) -> MonoTime {
        self.touched
    }

    /// A descriptor refers to the connection.
    pub fn hold(&mut self, pid: Pid, fd: Fd) {
        if self.holders.len() < MAX_HOLDERS {
            self.holders.insert((pid, fd));
        }
    }

    /// A descriptor was closed; whether it was the last.
    pub fn release(&mut self, pid: Pid, fd: Fd) -> bool {
        self.holders.remove(&(pid, fd));
        self.holders.is_empty()
    }

    /// A process ended; whether it held the last descriptors.
    pub fn release_all(&mut self, pid: Pid) -> bool {
        let before = self.holders.len();
        self.holders.retain(|(holder, _)| *holder != pid);
        before > 0 && self.holders.is_empty()
    }

    /// What kind of socket it is became known: what it said so far may be clear by that.
    pub fn learn(&mut self, socket: &Socket, context: &mut Context<'_>, signals: &mut Signals) {
        let about = About { id: self.id, pid: self.pid, origin: self.origin };
        if let State::Undecided(detector) = &mut self.state {
            let mut state = State::Undecided(Box::new(Detector::new(Some(socket))));
            detector.replay(&mut |direction, piece| state.take(about, direction, piece, context, signals));
            self.state = state;
        }
    }

    pub fn ignore(&mut self) {
        self.state = State::Ignored;
    }

    /// The server's schema or the settings changed.
    pub fn refresh(&mut self) {
        match &mut self.state {
            State::Engine(engine) => engine.refresh(),
            State::Undecided(_) | State::Http(_) | State::Log(_) | State::Ignored => {}
        }
    }

    pub fn holds_back(&self) -> bool {
        self.rx.held_since().is_some() || self.tx.held_since().is_some()
    }

    pub fn data(&mut self, data: &Data<'_>, at: MonoTime, context: &mut Context<'_>, signals: &mut Signals) {
        self.touched = at;
        // What is missing of it is no loss.
        if let State::Ignored = self.state {
            return;
        }
        let Self { id, pid, origin, rx, tx, state, .. } = self;
        let direction = data.direction;
        let assembler = match direction {
            Direction::Rx => rx,
            Direction::Tx => tx,
        };
        let about = About { id: *id, pid: *pid, origin: *origin };
        assembler.push(data, at, &mut |piece| state.take(about, direction, piece, context, signals));
    }

    pub fn expire(&mut self, now: MonoTime, context: &mut Context<'_>, signals: &mut Signals) {
        let Self { id, pid, origin, rx, tx, state, .. } = self;
        let about = About { id: *id, pid: *pid, origin: *origin };
        rx.expire(now, &mut |piece| state.take(about, Direction::Rx, piece, context, signals));
        tx.expire(now, &mut |piece| state.take(about, Direction::Tx, piece, context, signals));
    }

    /// Nothing more comes. `closed`: the connection is closed; otherwise the agent leaves it.
    pub fn finish(&mut self, at: MonoTime, closed: bool, context: &mut Context<'_>, signals: &mut Signals) {
        let Self { id, pid, origin, rx, tx, state, .. } = self;
        let about = About { id: *id, pid: *pid, origin: *origin };
        rx.flush(&mut |piece| state.take(about, Direction::Rx, piece, context, signals));
        tx.flush(&mut |piece| state.take(about, Direction::Tx, piece, context, signals));
        match state {
            State::Http(http) if closed => http.finish(at, context, signals),
            State::Http(_) | State::Undecided(_) | State::Engine(_) | State::Log(_) | State::Ignored => {}
        }
    }

    pub fn drain_losses(&mut self, losses: &mut Losses) {
        self.rx.drain_losses(losses);
        self.tx.drain_losses(losses);
        match &mut self.state {
            State::Http(http) => http.drain_losses(losses),
            State::Undecided(_) | State::Engine(_) | State::Log(_) | State::Ignored => {}
        }
    }
}

/// Which connection it is about.
#[derive(Clone, Copy)]
struct About {
    id: ConnId,
    pid: Pid,
    origin: Origin,
}

impl State {
    fn take(
        &mut self,
        about: About,
        direction: Direction,
        piece: Piece<'_>,
        context: &mut Context<'_>,
        signals: &mut Signals,
    ) {
        match self {
            Self::Undecided(detector) => {
                let Some(protocol) = detector.push(direction, piece) else { return };
                signals.decided = Some(protocol);
                let mut decided = Self::decided(protocol, about);
                detector.replay(&mut |direction, piece| {
                    decided.take(about, direction, piece, context, signals);
                });
                decided.take(about, direction, piece, context, signals);
                *self = decided;
            }
            Self::Http(http) => http.take(direction, piece, context, signals),
            Self::Engine(engine) => engine.take(about.pid, direction, piece, context, signals),
            Self::Log(log) => {
                let keep = context.settings.vllm_log.lines || context.settings.sglang_log.lines;
                log.take(direction, piece, keep, signals);
            }
            Self::Ignored => {}
        }
    }

    fn decided(protocol: Protocol, about: About) -> Self {
        match protocol {
            Protocol::Http1Server => Self::Http(Box::new(HttpConn::new(about.id))),
            Protocol::Zmtp => Self::Engine(Box::new(EngineConn::new(about.origin == Origin::Before))),
            Protocol::Lines => Self::Log(Box::new(LogConn::new(about.origin == Origin::Before))),
            Protocol::Http1Client | Protocol::Tls | Protocol::Http2 | Protocol::Unknown => Self::Ignored,
        }
    }
}
