//! What the pipeline may be told: the collection settings of the contract and the bounds on memory.

pub mod log;
pub mod scoped;
pub mod switch;

use crate::sampling::Policy;
use crate::time::Nanos;

use log::LogSettings;

/// How deep vLLM traces go (`otel.instrumentation.vllm.tracing.level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum VllmLevel {
    /// `llm_request` only.
    Request = 0,
    /// The stages too: wait, kv_transfer, prefill, decode.
    #[default]
    Stages = 1,
    /// An event an iteration too.
    Iterations = 2,
}

/// How deep SGLang traces go (`SGLANG_TRACE_LEVEL`): 0 no spans of SGLang's own, 1 to 4 as its stage table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SglangLevel(u8);

impl SglangLevel {
    /// The deepest.
    pub const MAX: Self = Self(4);

    /// A level; `None` for one that there is not.
    #[must_use]
    pub fn new(level: u8) -> Option<Self> {
        (level <= Self::MAX.0).then_some(Self(level))
    }

    /// Whether something of a level is collected.
    #[must_use]
    pub fn shows(self, level: u8) -> bool {
        level <= self.0
    }
}

impl Default for SglangLevel {
    /// SGLang's own.
    fn default() -> Self {
        Self(3)
    }
}

/// Where recorded prompts and outputs go (`otel.instrumentation.genai.message-content.capture-strategy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Onto the entry span.
    #[default]
    SpanAttributes,
    /// Into a log event, and not onto the span.
    Event,
}

impl Strategy {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SpanAttributes => "span-attributes",
            Self::Event => "event",
        }
    }
}

/// Settings of the pipeline. All of them may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Depth of vLLM traces.
    pub vllm_level: VllmLevel,
    /// Whether vLLM metrics are kept.
    pub vllm_metrics: bool,
    /// Depth of SGLang traces.
    pub sglang_level: SglangLevel,
    /// Whether SGLang metrics are kept.
    pub sglang_metrics: bool,
    /// Most events on one span (`OTEL_SPAN_EVENT_COUNT_LIMIT`).
    pub event_limit: usize,
    /// Whether prompts and outputs leave the decoder
    /// (`otel.instrumentation.genai.capture-message-content`).
    pub content: bool,
    /// Most characters kept of one input or output.
    pub content_limit: usize,
    /// Where recorded prompts and outputs go.
    pub content_strategy: Strategy,
    /// Whether vLLM servers are looked at.
    pub vllm_enabled: bool,
    /// Whether SGLang servers are looked at.
    pub sglang_enabled: bool,
    /// What of vLLM servers is logged.
    pub vllm_log: LogSettings,
    /// What of SGLang servers is logged.
    pub sglang_log: LogSettings,
    /// Which traces and log lines leave the agent.
    pub policy: Policy,
    /// Seed of the trace and span ids made here: random when live, fixed in a replay.
    pub id_seed: u64,
    /// A request with nothing new for this long is given up.
    pub expiry: Nanos,
    /// Most bytes kept of one HTTP body or engine message.
    pub body_limit: usize,
    /// Most requests tracked at once.
    pub request_limit: usize,
    /// Most connections tracked at once.
    pub conn_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            vllm_level: VllmLevel::Stages,
            vllm_metrics: true,
            sglang_level: SglangLevel::default(),
            sglang_metrics: true,
            event_limit: 128,
            content: true,
            content_limit: 8192,
            content_strategy: Strategy::SpanAttributes,
            vllm_enabled: true,
            sglang_enabled: true,
            vllm_log: LogSettings::off(1),
            sglang_log: LogSettings::off(2),
            policy: Policy::default(),
            id_seed: 0,
            expiry: Nanos::from_secs(3600),
            body_limit: 4 * 1024 * 1024,
            request_limit: 16_384,
            conn_limit: 65_536,
        }
    }
}
