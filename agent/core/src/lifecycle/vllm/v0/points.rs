//! A V0 engine's metrics.

use super::Engine;
use crate::dialect::signal::vllm_v0::V0Counts;
use crate::lifecycle::vllm::points::{CALL_TYPE, Points, RPC_TYPE};
use crate::lifecycle::vllm::totals::EngineTotals;
use crate::model::metric::Number;
use crate::model::registry::{dim, metric};

impl Points {
    /// The engine's metrics: what no source told has no point, rather than a zero.
    pub(in crate::lifecycle::vllm) fn v0(&mut self, engine: &Engine, totals: Option<&EngineTotals>) {
        let dims = [(dim::CALL_TYPE, CALL_TYPE.to_owned()), (dim::RPC_TYPE, RPC_TYPE.to_owned())];
        self.v0_state(engine, &dims);
        self.v0_iterations(engine, totals, &dims);
        let Some(totals) = totals else { return };
        for (def, sum) in [
            (&metric::FIRST_TOKEN_SECONDS, totals.first_token),
            (&metric::TIME_PER_OUTPUT_TOKEN, totals.per_output_token),
            (&metric::REQUEST_DURATION, totals.duration),
        ] {
            self.push(def, &dims, Number::Float(sum.seconds));
        }
        for (reason, count) in &totals.finished {
            let mut dims = dims.to_vec();
            dims.push((dim::FINISHED_REASON, (*reason).to_owned()));
            self.push(&metric::REQUEST_SUCCESS, &dims, Number::Int(*count));
        }
    }

    fn v0_state(&mut self, engine: &Engine, dims: &[(&'static str, String)]) {
        let Some(state) = engine.state() else { return };
        let counts = [
            (&metric::NUM_RUNNING_SYS, state.running),
            (&metric::NUM_WAITING_SYS, state.waiting),
            (&metric::NUM_SWAPPED_SYS, state.swapped),
        ];
        for (def, count) in counts {
            if let Some(count) = count {
                self.push(def, dims, Number::Int(count));
            }
        }
        let uses = [
            (&metric::GPU_CACHE_USAGE_SYS, state.gpu_cache),
            (&metric::CPU_CACHE_USAGE_SYS, state.cpu_cache),
        ];
        for (def, usage) in uses {
            if let Some(usage) = usage {
                self.push(def, dims, Number::Float(usage));
            }
        }
    }

    /// Tokens are the engine's count where it is known, else what its messages told.
    fn v0_iterations(
        &mut self,
        engine: &Engine,
        totals: Option<&EngineTotals>,
        dims: &[(&'static str, String)],
    ) {
        let V0Counts { iterations, prompt_tokens, generation_tokens, tokens, preemptions } = engine.counts();
        let prompt_tokens = prompt_tokens.or(totals.map(|totals| totals.prompt_tokens));
        let generation_tokens = generation_tokens.or(totals.map(|totals| totals.generation_tokens));
        let both = prompt_tokens.zip(generation_tokens).map(|(prompt, output)| prompt.saturating_add(output));
        for (def, count) in [
            (&metric::VLLM_ITER_COUNT, iterations),
            (&metric::NUM_PROMPT_TOKENS_ITER, prompt_tokens),
            (&metric::NUM_GENERATION_TOKENS_ITER, generation_tokens),
            (&metric::NUM_TOKENS_ITER, tokens.or(both)),
            (&metric::NUM_PREEMPTION_ITER, preemptions),
        ] {
            if let Some(count) = count {
                self.push(def, dims, Number::Int(count));
            }
        }
    }
}
