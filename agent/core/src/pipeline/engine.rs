//! A connection between the processes of an engine: ZMTP both ways, the engine's messages in it.

use super::connection::{Context, Signals};
use crate::capture::fact::{Engine, Role};
use crate::dialect::sglang::Way;
use crate::dialect::{sglang, vllm};
use crate::ids::{Direction, Pid};
use crate::lifecycle::Lifecycle;
use crate::loss::Losses;
use crate::settings::{Settings, VllmLevel};
use crate::stream::Piece;
use crate::wire::zmtp;

/// A connection between the processes of an engine.
#[derive(Debug)]
pub(super) struct EngineConn {
    start: zmtp::Start,
    rx: Option<zmtp::Decoder>,
    tx: Option<zmtp::Decoder>,
    /// Made when the first message needs it, and again when server or settings change.
    dialect: Option<Dialect>,
}

/// What the engine speaks.
#[derive(Debug)]
enum Dialect {
    Vllm(Box<vllm::Decoder>),
    Sglang(Box<Sglang>),
}

/// SGLang's dialect, and who speaks it here.
#[derive(Debug)]
struct Sglang {
    decoder: sglang::Decoder,
    role: Role,
}

impl EngineConn {
    pub fn new(midstream: bool) -> Self {
        let start = if midstream { zmtp::Start::Midstream } else { zmtp::Start::Beginning };
        Self { start, rx: None, tx: None, dialect: None }
    }

    pub fn refresh(&mut self) {
        self.dialect = None;
    }

    pub fn take(
        &mut self,
        pid: Pid,
        direction: Direction,
        piece: Piece<'_>,
        context: &mut Context<'_>,
        signals: &mut Signals,
    ) {
        let Self { start, rx, tx, dialect } = self;
        let slot = match direction {
            Direction::Rx => rx,
            Direction::Tx => tx,
        };
        let limit = context.settings.body_limit;
        let frames = slot.get_or_insert_with(|| zmtp::Decoder::new(*start, limit));
        let (lifecycle, settings) = (context.lifecycle, context.settings);
        let dialect = dialect.get_or_insert_with(|| Dialect::of(lifecycle, settings, pid));
        let mut losses = Losses::default();
        frames.push(&piece, context.losses, &mut |message| {
            dialect.take(direction, message, &mut losses, signals);
        });
        context.losses.merge(&losses);
    }
}

impl Dialect {
    /// What a process's server speaks.
    fn of(lifecycle: &Lifecycle, settings: &Settings, pid: Pid) -> Self {
        let process = lifecycle.process_of(pid);
        let server = process.and_then(|process| lifecycle.server_of(process.server));
        let schema = server.and_then(|server| server.schema.as_ref());
        let version = server.and_then(|server| server.version.as_deref());
        match server.map_or(Engine::Vllm, |server| server.engine) {
            Engine::Vllm => {
                let options = vllm::Options { token_ids: settings.vllm_level >= VllmLevel::Iterations };
                Self::Vllm(Box::new(vllm::Decoder::new(schema, version, options)))
            }
            Engine::Sglang => {
                let options = sglang::Options { content: settings.content };
                let decoder = sglang::Decoder::new(schema, version, options);
                let role = process.map_or(Role::Other, |process| process.role);
                Self::Sglang(Box::new(Sglang { decoder, role }))
            }
        }
    }

    fn take(
        &mut self,
        direction: Direction,
        message: &zmtp::Message<'_>,
        losses: &mut Losses,
        signals: &mut Signals,
    ) {
        let zmtp::Message { frames, cut, at, .. } = *message;
        match self {
            Self::Vllm(decoder) => signals.engine.extend(decoder.decode(frames, cut, at, losses)),
            Self::Sglang(sglang) => {
                if let Some(way) = way(sglang.role, direction) {
                    sglang.decoder.decode(frames, cut, at, way, losses, &mut signals.sglang);
                }
            }
        }
    }
}

/// Which way a message goes. What a scheduler gets was seen where its frontend sent it.
fn way(role: Role, direction: Direction) -> Option<Way> {
    match (role, direction) {
        (Role::ApiServer, Direction::Tx) => Some(Way::FromFrontend),
        (Role::ApiServer, Direction::Rx) => Some(Way::ToFrontend),
        (Role::EngineCore, Direction::Tx) => Some(Way::FromScheduler),
        (Role::EngineCore, Direction::Rx)
        | (Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other, _) => None,
    }
}
