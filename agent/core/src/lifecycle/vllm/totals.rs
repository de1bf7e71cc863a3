//! Running totals of a server: the cumulative sums behind its metrics.

use std::collections::BTreeMap;

use crate::lifecycle::totals::Sum;

/// Sums of one EngineCore's requests, added up in the engine's own order and arithmetic, so that they equal
/// the engine's own (`PrometheusStatLogger.record` of `vllm/v1/metrics/loggers.py`, 0.32.0).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineTotals {
    /// Prompt tokens of requests that got their first output.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Sum of `n` over finished API requests.
    pub params_n: u64,
    /// Sum of `max_tokens` over finished requests.
    pub params_max_tokens: u64,
    /// Requests finished, by reason.
    pub finished: BTreeMap<&'static str, u64>,
    /// Summed time to first token.
    pub first_token: Sum,
    /// Summed mean time per output token after the first.
    pub per_output_token: Sum,
    /// Summed end-to-end time.
    pub duration: Sum,
    /// Summed time waiting.
    pub queue: Sum,
    /// Summed prefill time.
    pub prefill: Sum,
    /// Summed decode time.
    pub decode: Sum,
    /// Summed time running.
    pub inference: Sum,
}
