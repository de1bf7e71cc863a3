//! Running totals of a server: the cumulative sums behind its metrics.

use std::collections::BTreeMap;

use crate::time::Seconds;

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

/// A sum of seconds, and of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The sum.
    pub seconds: f64,
    /// How many were added.
    pub count: u64,
}

impl Sum {
    /// Adds one, if there is one.
    pub fn add(&mut self, value: Option<Seconds>) {
        if let Some(Seconds(seconds)) = value {
            self.seconds += seconds;
            self.count += 1;
        }
    }
}

/// Tokens used at the API, by model and kind of span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usages(pub BTreeMap<(String, &'static str), (u64, u64)>);

/// Most models told apart: a client can name any model it likes.
const MAX_MODELS: usize = 256;

impl Usages {
    /// Adds an exchange's tokens.
    pub fn add(&mut self, model: &str, kind: &'static str, input: u64, output: u64) {
        let known = self.0.keys().any(|(m, k)| m == model && *k == kind);
        let model = if known || self.0.len() < MAX_MODELS { model } else { "other" };
        let (inputs, outputs) = self.0.entry((model.to_owned(), kind)).or_default();
        *inputs = inputs.saturating_add(input);
        *outputs = outputs.saturating_add(output);
    }
}
