//! The SGLang dialect: what frontend, scheduler and detokenizer tell each other, what a scheduler writes to its log and
//! publishes in shared memory.
//!
//! A message is one ZMTP frame: a pickle in which every field has its name (all versions), or an array of msgpack
//! that begins with the class's name (0.5.15 on, with `SGLANG_USE_PICKLE_IPC=0`), whose field order comes from a
//! [`Schema`]. Both are read through one trait, `Cell`, by field names. Texts of prompts and outputs are
//! passed over: they do not leave this module.
//!
//! Mirrors `sglang/srt/managers/io_struct.py` of 0.3.6 to 0.5.23.

mod cell;
pub mod line;
mod load;
mod output;
mod packed;
mod pickled;
mod request;
pub mod shared;
mod times;

use crate::dialect::schema::{Schema, sglang};
use crate::dialect::signal::sglang::{Hop, SglangSignal};
use crate::loss::{Loss, Losses};
use crate::time::MonoTime;
use crate::wire::{msgpack, pickle};
use cell::Cell;
use packed::{Layout, Packed};
use pickled::Pickled;

/// What to take out of messages beyond what every span needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep the engine's words on abnormal ends, which may quote a prompt.
    pub content: bool,
}

/// Which process was watched, and which way the message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A frontend sent it.
    FromFrontend,
    /// A frontend received it.
    ToFrontend,
    /// A scheduler sent it.
    FromScheduler,
}

/// Turns messages into signals.
#[derive(Debug)]
pub struct Decoder {
    layout: Layout,
    options: Options,
    /// Reads messages.
    reader: pickle::Reader,
    /// Reads pickles inside messages.
    inner: pickle::Reader,
}

/// What a message is about, by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request {
        embedding: bool,
    },
    Batch {
        embedding: bool,
    },
    Output {
        embedding: bool,
    },
    Abort,
    Load,
    /// A message inside another one, which says which of several frontends it belongs to.
    Wrapper,
}

/// The classes that tell something: up to 0.5.2 outputs are called `BatchStrOut` and so on.
const KINDS: &[(&str, Kind)] = &[
    ("BatchTokenIDOutput", Kind::Output { embedding: false }),
    ("BatchStrOutput", Kind::Output { embedding: false }),
    ("TokenizedGenerateReqInput", Kind::Request { embedding: false }),
    ("BatchTokenIDOut", Kind::Output { embedding: false }),
    ("BatchStrOut", Kind::Output { embedding: false }),
    ("BatchEmbeddingOutput", Kind::Output { embedding: true }),
    ("BatchEmbeddingOut", Kind::Output { embedding: true }),
    ("BatchMultimodalOutput", Kind::Output { embedding: false }),
    ("BatchMultimodalOut", Kind::Output { embedding: false }),
    ("BatchMultimodalDecodeReq", Kind::Output { embedding: false }),
    ("TokenizedEmbeddingReqInput", Kind::Request { embedding: true }),
    ("BatchTokenizedGenerateReqInput", Kind::Batch { embedding: false }),
    ("BatchTokenizedEmbeddingReqInput", Kind::Batch { embedding: true }),
    ("AbortReq", Kind::Abort),
    ("GetLoadReqOutput", Kind::Load),
    ("GetLoadsReqOutput", Kind::Load),
    ("MultiTokenizerWrapper", Kind::Wrapper),
    ("MultiTokenizerWarpper", Kind::Wrapper),
];

/// The message being read.
#[derive(Clone, Copy, Debug)]
struct Context {
    options: Options,
    way: Way,
    /// Whether bytes are missing at its end.
    cut: bool,
    at: MonoTime,
}

/// Why a message gives no signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is about something else.
    Other,
    /// It is damaged, or one of a kind that should tell something and does not.
    Unknown,
}

/// How many messages may be inside each other.
const WRAPPED: u32 = 2;

impl Decoder {
    /// A decoder for one server. Without a schema it goes by the version's, without that by the newest known one's.
    #[must_use]
    pub fn new(schema: Option<&Schema>, version: Option<&str>, options: Options) -> Self {
        let known = schema.filter(|schema| !schema.classes.is_empty()).cloned();
        let schema = known.unwrap_or_else(|| sglang::for_version(version.unwrap_or_default()));
        Self {
            layout: Layout::new(&schema),
            options,
            reader: pickle::Reader::default(),
            inner: pickle::Reader::default(),
        }
    }

    /// What a message means, added to `signals`; nothing where it is about something else.
    ///
    /// `frames` and `cut` as in [`Message`](crate::wire::zmtp::Message); `at`: when its last byte was moved.
    /// Counts messages that cannot be read.
    pub fn decode(
        &mut self,
        frames: &[&[u8]],
        cut: bool,
        at: MonoTime,
        way: Way,
        losses: &mut Losses,
        signals: &mut Vec<SglangSignal>,
    ) {
        let [body] = frames else { return };
        let Self { layout, options, reader, inner } = self;
        let context = Context { options: *options, way, cut, at };
        let read = match form(body) {
            Some(Form::Pickle) => {
                let pickle = reader.read(body);
                let root = pickle.root().ok_or(Refusal::Unknown);
                let read =
                    root.and_then(|root| message(Pickled::new(&pickle, root), inner, context, signals));
                // A message that ends too early was cut before it was sent, or is none.
                let whole = matches!(pickle.end(), pickle::End::Whole(_)) || cut;
                if whole { read } else { Err(Refusal::Unknown) }
            }
            Some(Form::Msgpack) => message(Packed::new(body, layout), inner, context, signals),
            None => Err(Refusal::Other),
        };
        if read == Err(Refusal::Unknown) {
            losses.add(Loss::UnknownMessage, 1);
        }
    }
}

/// How a message is written.
enum Form {
    Pickle,
    Msgpack,
}

/// Pickles of protocol 2 on begin with their protocol; messages in msgpack with an array and a text.
fn form(body: &[u8]) -> Option<Form> {
    match body {
        [0x80, 2..=5, ..] => Some(Form::Pickle),
        [0x90..=0x9f, ..] | [0xdc..=0xdd, ..] => {
            let mut reader = msgpack::Reader::new(body);
            (reader.array().is_ok() && reader.str().is_ok()).then_some(Form::Msgpack)
        }
        _ => None,
    }
}

/// Reads a message of either form.
fn message<'m, C: Cell<'m>>(
    message: C,
    inner: &mut pickle::Reader,
    context: Context,
    signals: &mut Vec<SglangSignal>,
) -> Result<(), Refusal> {
    let mut message = message;
    for _ in 0..=WRAPPED {
        let class = message.class().ok_or(Refusal::Other)?;
        let kind = KINDS.iter().find(|(name, _)| name.as_bytes() == class.as_ref());
        let (name, kind) = *kind.ok_or(Refusal::Other)?;
        if kind != Kind::Wrapper {
            return kind.read(name, message, inner, context, signals);
        }
        let mut inside = None;
        message.fields(name, &mut |field, value| {
            if field == b"obj" {
                inside = Some(value);
            }
        });
        message = inside.ok_or(Refusal::Other)?;
    }
    Err(Refusal::Unknown)
}

impl Kind {
    fn read<'m, C: Cell<'m>>(
        self,
        class: &str,
        message: C,
        inner: &mut pickle::Reader,
        context: Context,
        signals: &mut Vec<SglangSignal>,
    ) -> Result<(), Refusal> {
        let Context { way, at, cut, .. } = context;
        match (self, way) {
            (Self::Request { embedding }, Way::FromFrontend) => {
                let request = request::read(class, message, embedding, cut).ok_or(Refusal::Unknown)?;
                signals.push(SglangSignal::Dispatched { at, requests: vec![request] });
            }
            (Self::Batch { embedding }, Way::FromFrontend) => {
                let requests = request::batch(class, message, embedding, cut);
                if requests.is_empty() {
                    return Err(Refusal::Unknown);
                }
                signals.push(SglangSignal::Dispatched { at, requests });
            }
            (Self::Output { embedding }, Way::FromScheduler | Way::ToFrontend) => {
                let hop = if way == Way::FromScheduler { Hop::Scheduler } else { Hop::Frontend };
                output::read(class, message, embedding, hop, inner, context, signals)?;
            }
            // The other end of the scheduler's own word on a request is the frontend's.
            (Self::Abort, Way::FromFrontend | Way::ToFrontend) => {
                signals.push(request::abort(class, message, context).ok_or(Refusal::Unknown)?);
            }
            (Self::Load, Way::ToFrontend) => {
                signals.push(SglangSignal::Load { at, load: load::read(class, message) });
            }
            (
                Self::Request { .. } | Self::Batch { .. } | Self::Output { .. } | Self::Abort | Self::Load,
                _,
            )
            | (Self::Wrapper, _) => return Err(Refusal::Other),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
