//! The vLLM dialect: what API server and EngineCore tell each other (V1), and what API server and engine of V0 do (`v0`).
//!
//! The same [`Decoder`] takes both directions, captured on either side: a message says by its shape what it is.
//! Field orders come from a [`Schema`]; a message that does not fit it is read by the shape of its elements.
//! What engines send to a DP coordinator looks like a step too: only who is at the other end tells it apart.
//!
//! Mirrors `vllm/v1/engine/__init__.py`, `vllm/v1/metrics/stats.py` and `vllm/v1/serial_utils.py` of 0.8 to 0.33.

mod kv;
mod layout;
mod output;
mod ready;
mod request;
mod shape;
mod stats;
mod step;
mod tensor;
pub mod v0;

use crate::dialect::schema::{Schema, has_v0};
use crate::dialect::signal::EngineSignal;
use crate::loss::{Loss, Losses};
use crate::time::MonoTime;
use crate::wire;
use crate::wire::msgpack::{Error, Reader};
use layout::Layout;

/// What to take out of messages beyond what every span needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Collect token ids and logprobs, of prompts and of outputs.
    pub token_ids: bool,
}

/// Turns messages into signals.
#[derive(Debug)]
pub struct Decoder {
    layout: Layout,
    options: Options,
    /// Of a version that has V0.
    v0: Option<v0::Decoder>,
}

/// What an engine whose process died leaves on the output socket (`EngineCoreProc.ENGINE_CORE_DEAD`).
const DEAD: &[u8] = b"ENGINE_CORE_DEAD";

/// First frames of what the API server sends (`EngineCoreRequestType`).
mod kind {
    pub const ADD: u8 = 0;
    pub const ABORT: u8 = 1;
    /// The last one known; the others matter to the engines alone.
    pub const LAST: u8 = 5;
}

/// Why a body gives no signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is none of the dialect's messages.
    Other,
    /// It is one that nobody knows the shape of.
    Unknown,
}

/// The message being read.
#[derive(Clone, Copy, Debug)]
struct Context<'m> {
    options: Options,
    /// Frames after the body: the data of large arrays.
    aux: &'m [&'m [u8]],
    /// Whether bytes are missing at the body's end, so that running out of them is no surprise.
    cut: bool,
}

impl Decoder {
    /// A decoder for one server. Without a schema it goes by the version's, without that by shape.
    #[must_use]
    pub fn new(schema: Option<&Schema>, version: Option<&str>, options: Options) -> Self {
        let table = || version.and_then(Schema::for_version);
        let v0 = version.is_none_or(has_v0).then(|| v0::Decoder::new(schema, version, options));
        // Of a version that has V0's messages only there is no order of V1's.
        let layout = match schema.filter(|schema| !schema.request.is_empty()) {
            Some(schema) => Layout::new(schema),
            None => table().map_or_else(Layout::default, |schema| Layout::new(&schema)),
        };
        Self { layout, options, v0 }
    }

    /// What a message means. `None`: nothing that matters here (handshakes, notifications, other protocols).
    ///
    /// `frames` and `cut` as in [`Message`](crate::wire::zmtp::Message); `at`: when its last byte was moved.
    /// Counts messages that look like an engine's and are none that is known.
    pub fn decode(
        &mut self,
        frames: &[&[u8]],
        cut: bool,
        at: MonoTime,
        losses: &mut Losses,
    ) -> Option<EngineSignal> {
        let signal = match frames {
            [[kind], body, aux @ ..] if *kind <= kind::LAST => self.request(*kind, body, aux, cut, at),
            [body] if *body == DEAD => Ok(EngineSignal::Dead { at }),
            // A frame after it holds logits processors.
            [body, ..] if v0::is_pickle(body) => match &mut self.v0 {
                Some(v0) => v0.decode(body, cut, at),
                None => Err(Refusal::Other),
            },
            [body, aux @ ..] => self.answer(body, aux, cut, at),
            [] => Err(Refusal::Other),
        };
        if signal == Err(Refusal::Unknown) {
            losses.add(Loss::UnknownMessage, 1);
        }
        signal.ok()
    }

    /// What the API server sends: a type byte and a body.
    fn request(
        &self,
        kind: u8,
        body: &[u8],
        aux: &[&[u8]],
        cut: bool,
        at: MonoTime,
    ) -> Result<EngineSignal, Refusal> {
        let context = Context { options: self.options, aux, cut };
        match kind {
            kind::ADD => {
                let request = request::read(body, &self.layout, context)?;
                Ok(EngineSignal::Added { at, request: Box::new(request) })
            }
            kind::ABORT => Ok(EngineSignal::Aborted { at, ids: aborted(body, cut)? }),
            _ => Err(Refusal::Other),
        }
    }

    /// What the engine sends: a body.
    fn answer(&self, body: &[u8], aux: &[&[u8]], cut: bool, at: MonoTime) -> Result<EngineSignal, Refusal> {
        let context = Context { options: self.options, aux, cut };
        if shape::is_step(body) {
            let step = step::read(body, &self.layout, context)?;
            return Ok(EngineSignal::Step { at, step: Box::new(step) });
        }
        ready::read(body).map(|ready| EngineSignal::Ready { at, ready }).ok_or(Refusal::Other)
    }
}

/// The ids in an ABORT.
fn aborted(body: &[u8], cut: bool) -> Result<Vec<String>, Refusal> {
    let mut reader = Reader::new(body);
    let len = reader.array().map_err(|_| Refusal::Unknown)?;
    let mut ids = Vec::new();
    for _ in 0..len {
        match reader.str() {
            Ok(id) => ids.push(wire::text(id).into_owned()),
            Err(Error::End) if cut => break,
            Err(_) => return Err(Refusal::Unknown),
        }
    }
    if ids.is_empty() { Err(Refusal::Other) } else { Ok(ids) }
}

#[cfg(test)]
mod tests;
