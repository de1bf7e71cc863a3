//! The agent's own log of vLLM's iterations: what its `--enable-logging-iteration-details` says, from outside.
//!
//! One line a step and frontend: with several API servers each is told of its own requests.

use super::{About, set, set_some};
use crate::dialect::signal::{EngineEventKind, EngineOutput, EngineSignal, EngineStep};
use crate::hash::Map;
use crate::ids::{Pid, ServerId};
use crate::model::log::{Log, Severity};
use crate::model::registry::{attr, log};
use crate::time::{EngineTime, MonoTime};

/// Most requests remembered that have had no output; those beyond count as generating.
const MOST: usize = 16_384;

/// What is known of the iterations so far.
#[derive(Debug, Default)]
pub(super) struct Iterations {
    /// Requests without an output, with their prompts' lengths.
    unstarted: Map<(ServerId, String), Option<u32>>,
    cores: Map<(ServerId, Pid, u32), Core>,
}

/// One engine, as one frontend is told of it.
#[derive(Debug, Default)]
struct Core {
    iterations: u64,
    last: Option<EngineTime>,
}

/// One part of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    requests: u64,
    tokens: u64,
}

impl Part {
    fn add(&mut self, tokens: u64) {
        self.requests += 1;
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

impl Iterations {
    pub fn engine(&mut self, about: &About<'_>, pid: Pid, signal: &EngineSignal, out: &mut Vec<Log>) {
        if !about.log().iterations {
            return;
        }
        match signal {
            EngineSignal::Added { at: _, request } => {
                if self.unstarted.len() < MOST {
                    self.unstarted.insert((about.server, request.id.clone()), request.prompt_tokens);
                }
            }
            EngineSignal::Aborted { at: _, ids } => {
                for id in ids {
                    self.unstarted.remove(&(about.server, id.clone()));
                }
            }
            EngineSignal::Step { at, step } => out.extend(self.step(about, pid, step, *at)),
            // The V0 engine does not tell its steps.
            EngineSignal::Outputs { .. } | EngineSignal::Failed { .. } => {}
            EngineSignal::Ready { .. } | EngineSignal::Dead { .. } => {}
        }
    }

    fn step(&mut self, about: &About<'_>, pid: Pid, step: &EngineStep, at: MonoTime) -> Option<Log> {
        if step.outputs.is_empty() {
            return None;
        }
        let (mut context, mut generation) = (Part::default(), Part::default());
        for output in &step.outputs {
            match self.unstarted.remove(&(about.server, output.id.clone())) {
                Some(prompt) => context.add(computed(output, prompt)),
                None => generation.add(u64::from(output.token_count)),
            }
        }
        let core = self.cores.entry((about.server, pid, step.engine_index)).or_default();
        core.iterations += 1;
        let began = if generation.requests > 0 { core.last } else { scheduled(step) };
        core.last = step.timestamp;
        let took =
            step.timestamp.zip(began).map(|(end, begin)| end.since(begin).0).filter(|took| *took >= 0.0);
        Some(line(about, core.iterations, (context, generation), took, at))
    }

    pub fn forget(&mut self, server: ServerId) {
        self.unstarted.retain(|(of, _), _| *of != server);
        self.cores.retain(|(of, _, _), _| *of != server);
    }
}

/// Prompt tokens of a request that this step ended the prefill of: those that no cache had.
fn computed(output: &EngineOutput, prompt: Option<u32>) -> u64 {
    let cached = output.cached.map_or(0, |cached| cached.total);
    u64::from(prompt.unwrap_or(0)).saturating_sub(cached)
}

/// When the first of a step's requests was scheduled.
fn scheduled(step: &EngineStep) -> Option<EngineTime> {
    let events = step.outputs.iter().flat_map(|output| &output.events);
    let scheduled = events.filter(|event| event.kind == EngineEventKind::Scheduled).map(|event| event.at);
    scheduled.min_by(|a, b| a.0.total_cmp(&b.0))
}

fn line(about: &About<'_>, nth: u64, parts: (Part, Part), took: Option<f64>, at: MonoTime) -> Log {
    let (context, generation) = parts;
    let elapsed = took.map_or_else(String::new, |seconds| format!(", {:.3} ms", seconds * 1e3));
    let body = format!(
        "iteration {nth}: {} context requests, {} context tokens, {} generation requests, {} generation tokens{elapsed}",
        context.requests, context.tokens, generation.requests, generation.tokens,
    );
    let mut log = about.event(log::ITERATION, Severity::Info, at, body);
    set(&mut log, attr::CONTEXT_REQUESTS, context.requests);
    set(&mut log, attr::CONTEXT_TOKENS, context.tokens);
    set(&mut log, attr::GENERATION_REQUESTS, generation.requests);
    set(&mut log, attr::GENERATION_TOKENS, generation.tokens);
    set_some(&mut log, attr::ITERATION_SECONDS, took);
    log
}
