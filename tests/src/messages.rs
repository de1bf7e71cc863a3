//! The engine's messages in a capture, decoded without the pipeline.

use std::collections::HashMap;

use anyhow::Result;
use enginetap_core::capture::fact::{Fact, Role};
use enginetap_core::capture::record::{Body, Record};
use enginetap_core::dialect::signal::EngineSignal;
use enginetap_core::dialect::vllm::{Decoder, Options};
use enginetap_core::ids::{ConnId, Direction, Pid};
use enginetap_core::loss::Losses;
use enginetap_core::stream::Piece;
use enginetap_core::time::MonoTime;
use enginetap_core::wire::zmtp::{self, Start};

use crate::captures::{Capture, Input};

/// Bytes kept of one message.
const LIMIT: usize = 4 * 1024 * 1024;

/// One direction of one connection.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Who was watched.
    pub role: Role,
    /// Which way the bytes went.
    pub direction: Direction,
    /// Where decoding starts: at the beginning, where that was recorded.
    pub start: Start,
    /// What each system call moved, and when it returned.
    pub calls: Vec<(MonoTime, Vec<u8>)>,
}

/// A capture, taken apart into streams.
#[derive(Clone, Debug)]
pub struct Session {
    /// The capture's name.
    pub name: String,
    /// The engine's version.
    pub version: Option<String>,
    /// The streams, in the order of their first bytes.
    pub streams: Vec<Stream>,
}

/// What came out of a stream.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// The signals, in order.
    pub signals: Vec<EngineSignal>,
    /// What was lost.
    pub losses: Losses,
}

impl Session {
    /// Takes a capture apart.
    ///
    /// # Errors
    /// When the capture is damaged.
    pub fn read(capture: &Capture) -> Result<Self> {
        let mut session = Self { name: capture.name.clone(), version: None, streams: Vec::new() };
        let mut roles: HashMap<Pid, Role> = HashMap::new();
        let mut starts: HashMap<ConnId, Start> = HashMap::new();
        let mut index: HashMap<(ConnId, Direction), usize> = HashMap::new();
        for input in capture.inputs()? {
            match input {
                Input::Fact(fact) => match *fact {
                    Fact::Server(server) => session.version = server.version,
                    Fact::Process(process) => drop(roles.insert(process.pid, process.role)),
                    Fact::Conn(conn) => {
                        let start = if conn.midstream { Start::Midstream } else { Start::Beginning };
                        starts.insert(conn.conn, start);
                    }
                    Fact::Clock(_)
                    | Fact::Detached(_)
                    | Fact::Snapshot(_)
                    | Fact::FrontendSnapshot(_)
                    | Fact::V0Snapshot(_)
                    | Fact::Shared(_)
                    | Fact::Gpus(_)
                    | Fact::Waits(_) => {}
                },
                Input::Record(bytes) => {
                    let record = Record::parse(&bytes)?;
                    let Body::Data(data) = record.body else { continue };
                    let streams = &mut session.streams;
                    let stream = *index.entry((data.conn, data.direction)).or_insert_with(|| {
                        let role = roles.get(&record.pid).copied().unwrap_or(Role::Other);
                        let start = starts.get(&data.conn).copied().unwrap_or(Start::Midstream);
                        streams.push(Stream { role, direction: data.direction, start, calls: Vec::new() });
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
        Ok(session)
    }

    /// A decoder that goes by the table of versions.
    #[must_use]
    pub fn by_version(&self) -> Decoder {
        Decoder::new(None, self.version.as_deref(), Options { token_ids: true })
    }

    /// The streams of a role and direction.
    pub fn of(&self, role: Role, direction: Direction) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter(move |stream| stream.role == role && stream.direction == direction)
    }

    /// Everything that the streams of a role and direction tell, by time.
    pub fn decode(&self, role: Role, direction: Direction, decoder: impl Fn() -> Decoder) -> Decoded {
        let mut all = Decoded::default();
        for stream in self.of(role, direction) {
            let Decoded { signals, losses } = decode(&stream.calls, stream.start, decoder());
            all.signals.extend(signals);
            all.losses.merge(&losses);
        }
        all.signals.sort_by_key(at);
        all
    }
}

/// Decodes a stream call by call.
#[must_use]
pub fn decode(calls: &[(MonoTime, Vec<u8>)], start: Start, decoder: Decoder) -> Decoded {
    decode_pieces(calls.iter().map(|(time, bytes)| Piece::bytes(bytes, *time, true)), start, decoder)
}

/// Decodes a stream piece by piece.
pub fn decode_pieces<'a>(
    pieces: impl Iterator<Item = Piece<'a>>,
    start: Start,
    mut decoder: Decoder,
) -> Decoded {
    let mut frames = zmtp::Decoder::new(start, LIMIT);
    let mut decoded = Decoded::default();
    let Decoded { signals, losses } = &mut decoded;
    let mut unknown = Losses::default();
    for piece in pieces {
        frames.push(&piece, losses, &mut |message| {
            signals.extend(decoder.decode(message.frames, message.cut, message.at, &mut unknown));
        });
    }
    losses.merge(&unknown);
    decoded
}

/// When a signal's message was moved.
#[must_use]
pub fn at(signal: &EngineSignal) -> MonoTime {
    match signal {
        EngineSignal::Added { at, .. }
        | EngineSignal::Aborted { at, .. }
        | EngineSignal::Step { at, .. }
        | EngineSignal::Ready { at, .. }
        | EngineSignal::Outputs { at, .. }
        | EngineSignal::Failed { at, .. }
        | EngineSignal::Dead { at } => *at,
    }
}

/// The same signal without the time of its call.
#[must_use]
pub fn timeless(mut signal: EngineSignal) -> EngineSignal {
    match &mut signal {
        EngineSignal::Added { at, .. }
        | EngineSignal::Aborted { at, .. }
        | EngineSignal::Step { at, .. }
        | EngineSignal::Ready { at, .. }
        | EngineSignal::Outputs { at, .. }
        | EngineSignal::Failed { at, .. }
        | EngineSignal::Dead { at } => *at = MonoTime(0),
    }
    signal
}
