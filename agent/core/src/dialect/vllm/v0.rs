//! The messages of vLLM's V0 engine (default up to 0.7, there to 0.10.2): pickles between the API server and
//! `MQLLMEngine`, one a frame. Fields are read by their names; sampling parameters, which have none in a pickle, by the
//! order of their class. Texts of prompts and outputs do not leave this module.
//!
//! Mirrors `vllm/engine/multiprocessing/__init__.py`, `vllm/outputs.py` and `vllm/sequence.py` of 0.6.2 to 0.10.2.

pub mod figures;
mod output;
mod request;
mod sampling;
#[cfg(test)]
mod tests;

use super::{Options, Refusal};
use crate::dialect::schema::Schema;
use crate::dialect::signal::EngineSignal;
use crate::time::MonoTime;
use crate::wire::pickle::{End, Instance, Made, Pickle, Reader, Value};

/// Reads V0's messages.
#[derive(Debug)]
pub(super) struct Decoder {
    sampling: sampling::Orders,
    options: Options,
    reader: Reader,
}

/// What a class of messages is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Abort,
    Error,
    /// It says nothing of requests.
    Other,
}

/// The classes, by name. Lists of outputs have none of their own.
const KINDS: &[(&str, Kind)] = &[
    ("RPCProcessRequest", Kind::Request),
    ("RPCAbortRequest", Kind::Abort),
    ("RPCError", Kind::Error),
    ("RPCStartupRequest", Kind::Other),
    ("RPCStartupResponse", Kind::Other),
    ("RPCUProfileRequest", Kind::Other),
    ("RPCLoadAdapterRequest", Kind::Other),
    ("RPCAdapterLoadedResponse", Kind::Other),
    ("RPCResetMultiModalCacheRequest", Kind::Other),
    ("RPCResetPrefixCacheRequest", Kind::Other),
    ("RPCSleepRequest", Kind::Other),
    ("RPCWakeUpRequest", Kind::Other),
    ("RPCIsSleepingRequest", Kind::Other),
    ("RPCIsSleepingResponse", Kind::Other),
];

/// The classes of outputs.
const OUTPUTS: &[&str] = &[
    "RequestOutput",
    "PoolingRequestOutput",
    "EmbeddingRequestOutput",
    "ClassificationRequestOutput",
    "ScoringRequestOutput",
];

/// Whether a body is a pickle of protocol 2 or later. No message of V1 begins so: there an 0x80 is an empty map.
pub(super) fn is_pickle(body: &[u8]) -> bool {
    matches!(body, [0x80, 2..=5, ..])
}

impl Decoder {
    pub fn new(schema: Option<&Schema>, version: Option<&str>, options: Options) -> Self {
        Self { sampling: sampling::Orders::new(schema, version), options, reader: Reader::default() }
    }

    /// What a message means.
    pub fn decode(&mut self, body: &[u8], cut: bool, at: MonoTime) -> Result<EngineSignal, Refusal> {
        let Self { sampling, options, reader } = self;
        let pickle = reader.read(body);
        // A message that ends too early was cut before it was sent, or is none.
        if !matches!(pickle.end(), End::Whole(_)) && !cut {
            return Err(Refusal::Unknown);
        }
        let root = pickle.root().ok_or(Refusal::Unknown)?;
        if let (Value::List(_), Some(items)) = (root, pickle.items(root)) {
            // Parts may be referred to over and over: what they hold together is no more than their bytes.
            let mut room = body.len();
            let outputs: Vec<_> = items.map_while(|item| output::read(&pickle, item, &mut room)).collect();
            // A list of something else is none of the engine's.
            return if outputs.is_empty() {
                Err(Refusal::Unknown)
            } else {
                Ok(EngineSignal::Outputs { at, outputs })
            };
        }
        // "SUCCESS": the engine is well. Tuples, and objects of V1's modules, are what V1's processes tell each other.
        if pickle.text(root).is_some() || matches!(root, Value::Tuple(_)) {
            return Err(Refusal::Other);
        }
        let instance = pickle.instance(root).ok_or(Refusal::Unknown)?;
        match kind(&pickle, root, &instance) {
            Some(Kind::Request) => request::read(&pickle, instance, sampling, *options, cut)
                .map(|request| EngineSignal::Added { at, request: Box::new(request) })
                .ok_or(Refusal::Unknown),
            Some(Kind::Abort) => field(&pickle, instance, b"request_id")
                .and_then(|id| pickle.string(id))
                .map(|id| EngineSignal::Aborted { at, ids: vec![id] })
                .ok_or(Refusal::Unknown),
            Some(Kind::Error) => Ok(error(&pickle, instance, at)),
            Some(Kind::Other) => Err(Refusal::Other),
            None if instance.class.module.starts_with(b"vllm.v1.") => Err(Refusal::Other),
            None => Err(Refusal::Unknown),
        }
    }
}

/// What an object is about; an exception in a frame of its own is how the engine says that it is broken.
fn kind(pickle: &Pickle<'_>, root: Value, instance: &Instance<'_>) -> Option<Kind> {
    let name = instance.class.name.as_ref();
    let known = KINDS.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, kind)| *kind);
    let called = pickle.object(root).is_some_and(|object| object.made == Made::Called);
    let exception = called && (name.ends_with(b"Error") || name.ends_with(b"Exception"));
    known.or(exception.then_some(Kind::Error))
}

/// `RPCError`: of one request, or of the engine as a whole.
fn error(pickle: &Pickle<'_>, instance: Instance<'_>, at: MonoTime) -> EngineSignal {
    let broken = field(pickle, instance.clone(), b"is_engine_errored").and_then(Value::bool);
    let id = field(pickle, instance, b"request_id").and_then(|id| pickle.string(id));
    match id {
        Some(id) if broken != Some(true) => EngineSignal::Failed { at, id },
        Some(_) | None => EngineSignal::Dead { at },
    }
}

/// An attribute of an instance, by its name.
fn field(pickle: &Pickle<'_>, instance: Instance<'_>, name: &[u8]) -> Option<Value> {
    let mut fields = instance.fields;
    fields.find(|(key, _)| pickle.text(*key).as_deref() == Some(name)).map(|(_, value)| value)
}

/// A number, whole ones widened.
fn number(value: Value) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a double is what was asked for")]
    value.float().or_else(|| value.int().map(|number| number as f64))
}
