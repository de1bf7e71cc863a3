//! What V0's metrics say, as the engine keeps them in files for its API server to serve.
//!
//! Mirrors `vllm/engine/metrics.py` of 0.6 to 0.10.2: not every version has every one.

use crate::dialect::signal::vllm_v0::{V0Counts, V0State};
use crate::wire::promdb;

/// What the engine's own metrics say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Its state, as of its last step.
    pub state: V0State,
    /// What it counted since it started.
    pub counts: V0Counts,
}

/// What a series is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Running,
    Waiting,
    Swapped,
    GpuCache,
    CpuCache,
    Iterations,
    PromptTokens,
    GenerationTokens,
    Tokens,
    Preemptions,
}

/// Series by their samples. A histogram's count is that of all its buckets.
const FIGURES: &[(&[u8], Figure)] = &[
    (b"vllm:num_requests_running", Figure::Running),
    (b"vllm:num_requests_waiting", Figure::Waiting),
    (b"vllm:num_requests_swapped", Figure::Swapped),
    (b"vllm:gpu_cache_usage_perc", Figure::GpuCache),
    (b"vllm:cpu_cache_usage_perc", Figure::CpuCache),
    (b"vllm:iteration_tokens_total_bucket", Figure::Iterations),
    (b"vllm:prompt_tokens_total", Figure::PromptTokens),
    (b"vllm:generation_tokens_total", Figure::GenerationTokens),
    (b"vllm:iteration_tokens_total_sum", Figure::Tokens),
    (b"vllm:num_preemptions_total", Figure::Preemptions),
];

impl Figures {
    /// Takes in what a file holds.
    pub fn read(&mut self, file: &[u8]) {
        for series in promdb::series(file) {
            let sample = series.sample().unwrap_or_default();
            let figure = FIGURES.iter().find(|(name, _)| *name == sample).map(|(_, figure)| *figure);
            if let Some(figure) = figure.filter(|_| series.value.is_finite() && series.value >= 0.0) {
                self.add(figure, series.value);
            }
        }
    }

    fn add(&mut self, figure: Figure, value: f64) {
        let Self { state, counts } = self;
        let count = match figure {
            Figure::Running => &mut state.running,
            Figure::Waiting => &mut state.waiting,
            Figure::Swapped => &mut state.swapped,
            Figure::Iterations => &mut counts.iterations,
            Figure::PromptTokens => &mut counts.prompt_tokens,
            Figure::GenerationTokens => &mut counts.generation_tokens,
            Figure::Tokens => &mut counts.tokens,
            Figure::Preemptions => &mut counts.preemptions,
            Figure::GpuCache => return state.gpu_cache = Some(value),
            Figure::CpuCache => return state.cpu_cache = Some(value),
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count: saturating")]
        let value = value as u64;
        *count = Some(count.unwrap_or(0).saturating_add(value));
    }
}
