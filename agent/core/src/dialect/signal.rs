//! Signals: what the bytes meant. The dialects make them, the lifecycle eats them.

pub mod sglang;
pub mod vllm_v0;

use vllm_v0::V0Output;

use crate::ids::ExchangeId;
use crate::time::{EngineTime, EpochTime, MonoTime};

/// What the HTTP side said.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiSignal {
    /// A request to an operation that we make spans of has arrived whole (or as whole as it got).
    Request {
        /// The exchange.
        exchange: ExchangeId,
        /// When its first byte was read.
        first_byte: MonoTime,
        /// When its last byte was read.
        last_byte: MonoTime,
        /// The request.
        request: Box<ApiRequest>,
    },
    /// The response's head went out.
    Head {
        /// The exchange.
        exchange: ExchangeId,
        /// When.
        at: MonoTime,
        /// HTTP status.
        status: u16,
        /// Whether the body is a stream of server-sent events.
        streaming: bool,
    },
    /// A part of the response: one event of a stream, or the whole body.
    Delta {
        /// The exchange.
        exchange: ExchangeId,
        /// When the call that carried its last byte returned.
        at: MonoTime,
        /// What it said.
        delta: Box<ApiDelta>,
    },
    /// A part of the response that says more text of one candidate, and besides it nothing that the part before
    /// did not say.
    Text {
        /// The exchange.
        exchange: ExchangeId,
        /// When the call that carried its last byte returned.
        at: MonoTime,
        /// The candidate and its text.
        said: ChoiceDelta,
    },
    /// The exchange is over.
    End {
        /// The exchange.
        exchange: ExchangeId,
        /// When.
        at: MonoTime,
        /// Whether the response was complete. If not, the connection closed first.
        complete: bool,
    },
}

/// An operation of the API that we make spans of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    TextCompletion,
    /// `/v1/embeddings`.
    Embeddings,
    /// `/rerank`, `/v1/rerank`, `/v2/rerank`, `/score`, `/v1/score`.
    Rerank,
}

/// A request as the client sent it. A field is `None` where it was not sent or lay in a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiRequest {
    /// The operation.
    pub operation: Operation,
    /// The path, without the query.
    pub path: String,
    /// `X-Request-Id` header: the engine builds its ids of it.
    pub request_id: Option<String>,
    /// `traceparent` header, as sent.
    pub traceparent: Option<String>,
    /// `tracestate` header, as sent.
    pub tracestate: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Candidates (`n`).
    pub choices: Option<u32>,
    /// Prompts (or inputs, documents) in the request.
    pub prompts: u32,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Top-p.
    pub top_p: Option<f64>,
    /// Top-k.
    pub top_k: Option<i64>,
    /// Most tokens to generate (`max_completion_tokens`, `max_tokens` or `max_output_tokens`).
    pub max_tokens: Option<u64>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// `user`.
    pub user: Option<String>,
    /// Whether stop strings were given.
    pub stop: bool,
    /// Whether logprobs were asked for.
    pub logprobs: bool,
    /// Whether tools were declared.
    pub tools: bool,
    /// The input as the GenAI conventions' JSON (messages with parts); only where content is collected.
    pub content: Option<String>,
    /// Whether a part of the body was lost, so that absent fields may have been sent.
    pub cut: bool,
}

/// A part of a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiDelta {
    /// Response id.
    pub id: Option<String>,
    /// Model named in the response.
    pub model: Option<String>,
    /// What it said of each candidate.
    pub choices: Vec<ChoiceDelta>,
    /// Token counts, where the server sent them.
    pub usage: Option<Usage>,
    /// An error body or error event.
    pub error: Option<ApiError>,
    /// Whether this was the stream's last event (`[DONE]`, or what the API has in its place).
    pub done: bool,
    /// Whether a part of it was lost.
    pub cut: bool,
}

/// What a part of a response said of one candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceDelta {
    /// Which candidate.
    pub index: u32,
    /// The request inside the engine that made it, where the response names each one's.
    pub id: Option<String>,
    /// Text generated: reasoning, then content or completion text. `Some` where anything was said, though
    /// empty where neither content nor token texts are collected.
    pub text: Option<String>,
    /// How many bytes at the start of `text` are reasoning.
    pub reasoning: usize,
    /// Why it ended, if it did.
    pub finish_reason: Option<String>,
    /// Tool calls named in this part.
    pub tool_calls: Vec<ToolCall>,
}

/// A tool call, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Which call of the candidate.
    pub index: u32,
    /// The call's id.
    pub id: Option<String>,
    /// Function name.
    pub name: Option<String>,
    /// Arguments, or the next part of them.
    pub arguments: Option<String>,
}

/// Token counts of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens.
    pub prompt: Option<u64>,
    /// Output tokens.
    pub completion: Option<u64>,
    /// Sum.
    pub total: Option<u64>,
    /// Input tokens served from the cache.
    pub cached: Option<u64>,
}

/// An error the server told its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiError {
    /// Kind (`BadRequestError`).
    pub kind: Option<String>,
    /// Text for people. May quote the prompt: kept only where content is collected.
    pub message: Option<String>,
    /// Code.
    pub code: Option<i64>,
}

/// What the engine's sockets said.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineSignal {
    /// The frontend handed a request to the engine.
    Added {
        /// When the call that sent its last byte returned.
        at: MonoTime,
        /// The request.
        request: Box<EngineRequest>,
    },
    /// The frontend took requests back: the client went away, or a stop string was found.
    Aborted {
        /// When.
        at: MonoTime,
        /// The requests' internal ids.
        ids: Vec<String>,
    },
    /// The engine reported a step.
    Step {
        /// When the message's last byte was received by the frontend (or sent by the engine, where only that
        /// was seen). The step's own time is [`EngineStep::timestamp`].
        at: MonoTime,
        /// The report.
        step: Box<EngineStep>,
    },
    /// The engine came up and told its configuration.
    Ready {
        /// When.
        at: MonoTime,
        /// What it told.
        ready: EngineReady,
    },
    /// The V0 engine reported what requests got.
    Outputs {
        /// When the message's last byte was received by the frontend.
        at: MonoTime,
        /// What each got.
        outputs: Vec<V0Output>,
    },
    /// The V0 engine could not serve a request.
    Failed {
        /// When.
        at: MonoTime,
        /// The request's id.
        id: String,
    },
    /// The engine died (`ENGINE_CORE_DEAD`; V0: it told its client that it is broken).
    Dead {
        /// When.
        at: MonoTime,
    },
}

/// A request as the engine gets it (`EngineCoreRequest`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineRequest {
    /// Internal id, unique in the engine.
    pub id: String,
    /// The id the frontend gave it (0.14 on).
    pub external_id: Option<String>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// The prompt's token ids; only where iteration events are collected.
    pub prompt_token_ids: Vec<u32>,
    /// Sampling parameters, for a generation.
    pub sampling: Option<Sampling>,
    /// Whether it is a pooling request (embeddings, scores).
    pub pooling: bool,
    /// When the frontend took it up, before tokenizing.
    pub arrival: Option<EpochTime>,
    /// API server it came from.
    pub client_index: Option<u32>,
    /// Data-parallel rank asked for.
    pub data_parallel_rank: Option<u32>,
    /// `traceparent` among the engine's own trace headers.
    pub traceparent: Option<String>,
    /// Whether it is none: the frontend lets the engine's KV connector know that a request is off, so that the prefill node
    /// lets its KV cache go (`abort_immediately`, 0.22 on).
    pub off: bool,
    /// Whether the message was cut, so that absent fields may have been sent.
    pub cut: bool,
}

/// Sampling parameters as the engine gets them, defaults filled in where the message leaves them out.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Candidates: always 1 in the engine's copies of an `n > 1` request from 0.8 on.
    pub n: u32,
    /// Temperature.
    pub temperature: f64,
    /// Top-p.
    pub top_p: f64,
    /// Top-k; `None`: all tokens (0 or -1 on the wire).
    pub top_k: Option<i64>,
    /// Most tokens to generate; `None`: up to the model's length.
    pub max_tokens: Option<u64>,
    /// Whether stop strings were given.
    pub stop: bool,
    /// Logprobs asked for, if any.
    pub logprobs: Option<i64>,
    /// Whether outputs are wanted as deltas (streaming).
    pub delta: bool,
    /// `kv_transfer_params` of the request.
    pub kv_transfer: Option<KvTransfer>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            n: 1,
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            max_tokens: None,
            stop: false,
            logprobs: None,
            delta: false,
            kv_transfer: None,
        }
    }
}

/// `kv_transfer_params`: which way a request's KV cache goes, and the join key of the two nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvTransfer {
    /// This node prefills for a remote decode (producer).
    pub do_remote_decode: bool,
    /// This node decodes from a remote prefill (consumer).
    pub do_remote_prefill: bool,
    /// The other node's engine.
    pub remote_engine_id: Option<String>,
    /// The request's id on the other node.
    pub remote_request_id: Option<String>,
}

/// A step of the engine (`EngineCoreOutputs`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStep {
    /// Which EngineCore.
    pub engine_index: u32,
    /// When the step ended, by the engine's clock; `None` in a message cut before it.
    pub timestamp: Option<EngineTime>,
    /// What each request got.
    pub outputs: Vec<EngineOutput>,
    /// The scheduler's state, where statistics are on.
    pub stats: Option<SchedulerStats>,
    /// Whether this only answers a utility call: no step.
    pub utility: bool,
    /// Whether the message was cut, so that outputs may be missing.
    pub cut: bool,
}

/// What one request got in one step (`EngineCoreOutput`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineOutput {
    /// The request's internal id.
    pub id: String,
    /// How many new tokens: none for pooling, several with speculative decoding.
    pub token_count: u32,
    /// The new tokens' ids; only where iteration events are collected.
    pub tokens: Vec<u32>,
    /// Logprob of each new token, where the request asked for them.
    pub logprobs: Vec<f64>,
    /// Why it ended, if it did.
    pub finish: Option<Finish>,
    /// What happened to it since its last output.
    pub events: Vec<EngineEvent>,
    /// Where its prompt's KV came from; with the first output only from 0.20 on, with every one before.
    pub cached: Option<CachedTokens>,
    /// `kv_transfer_params` the engine returned (a prefill node's answer).
    pub kv_transfer: Option<KvTransfer>,
    /// Whether it holds a pooling result.
    pub pooling: bool,
}

/// Why a request ended in the engine (`FinishReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// End of sequence or a stop token.
    Stop,
    /// Its token limit.
    Length,
    /// Aborted.
    Abort,
    /// An error (0.13 on).
    Error,
    /// Repetition found (0.18 on).
    Repetition,
    /// A reason that this build does not know, by its number.
    Other(u32),
}

impl Finish {
    /// The reason's name, as vLLM exports it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
            Self::Repetition => "repetition",
            Self::Other(_) => "unknown",
        }
    }
}

/// Something that happened to a request inside the engine (`EngineCoreEvent`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineEvent {
    /// What.
    pub kind: EngineEventKind,
    /// When.
    pub at: EngineTime,
}

/// Kinds of [`EngineEvent`] (`EngineCoreEventType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineEventKind {
    /// Entered the waiting queue.
    Queued,
    /// First scheduled, or resumed after a preemption.
    Scheduled,
    /// Preempted to free KV blocks.
    Preempted,
}

/// Where a prompt's KV came from, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedTokens {
    /// Not prefilled again: local hits plus remote.
    pub total: u64,
    /// From a remote node.
    pub external: u64,
    /// Prefilled here; `None` where the version does not say.
    pub computed: Option<u64>,
}

/// The scheduler's state at a step (`SchedulerStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// Requests running.
    pub running: u64,
    /// Requests waiting.
    pub waiting: u64,
    /// Requests waiting for something other than a place, e.g. a remote KV cache (0.20 on).
    pub skipped_waiting: u64,
    /// KV cache use, 0 to 1.
    pub kv_usage: f64,
    /// Prefix cache look-ups since the last report.
    pub prefix: Option<CacheStats>,
    /// Look-ups in the KV connector's cache since the last report.
    pub connector_prefix: Option<CacheStats>,
    /// Speculative decoding since the last report.
    pub spec: Option<SpecStats>,
    /// KV transfers that ended since the last report, by the connector's own count.
    pub transfers: Option<TransferStats>,
    /// Requests whose remote KV cache has not come yet (0.32: the stages `waiting_to_start` and `in_progress`).
    pub fetching: u64,
}

/// Cache look-ups, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests that looked.
    pub requests: u64,
    /// Tokens looked up.
    pub queries: u64,
    /// Tokens found.
    pub hits: u64,
}

/// Speculative decoding (`SpecDecodingStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecStats {
    /// Drafts made.
    pub drafts: u64,
    /// Tokens drafted.
    pub draft_tokens: u64,
    /// Tokens accepted.
    pub accepted_tokens: u64,
}

/// KV transfers that ended since the last report (`kv_connector_stats` of the NIXL connector).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransferStats {
    /// Seconds each took.
    pub durations: Vec<f64>,
    /// Bytes each moved.
    pub bytes: Vec<f64>,
    /// How many failed.
    pub failed: u64,
}

/// What an engine tells when it comes up (`EngineCoreReadyResponse`; a part of it before 0.32).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineReady {
    /// Longest sequence.
    pub max_model_len: Option<u64>,
    /// KV blocks.
    pub gpu_blocks: Option<u64>,
    /// Tokens a block holds.
    pub block_size: Option<u64>,
    /// The engine's version.
    pub version: Option<String>,
}
