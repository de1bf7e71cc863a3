//! The engine's state and counts, as its objects and files tell them.

use crate::dialect::signal::vllm_v0::{V0Counts, V0Source, V0State};

/// What is known of a V0 engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    objects: Told,
    files: Told,
}

/// What one source told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Told {
    state: Option<V0State>,
    counts: Option<Counted>,
}

/// Counts of the engine's own, which began before the agent: what was added since counts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    last: V0Counts,
    since: V0Counts,
}

impl Engine {
    /// Takes what a source told.
    pub fn take(&mut self, source: V0Source, state: Option<V0State>, counts: Option<V0Counts>) {
        let told = match source {
            V0Source::Objects => &mut self.objects,
            V0Source::Files => &mut self.files,
        };
        told.state = state.or(told.state);
        let Some(counts) = counts else { return };
        match &mut told.counts {
            Some(known) => known.add(counts),
            None => told.counts = Some(Counted::from_now(counts)),
        }
    }

    /// It has ended: its state says nothing any more.
    pub fn stopped(&mut self) {
        self.objects.state = None;
        self.files.state = None;
    }

    /// Its state, where any source told it: the engine's metrics before its objects.
    pub fn state(&self) -> Option<V0State> {
        match (self.files.state, self.objects.state) {
            (Some(files), Some(objects)) => Some(files.or(objects)),
            (files, objects) => files.or(objects),
        }
    }

    /// What it counted since the agent came.
    pub fn counts(&self) -> V0Counts {
        let [files, objects] = [self.files, self.objects].map(|told| told.counts.map(|counts| counts.since));
        let (files, objects) = (files.unwrap_or_default(), objects.unwrap_or_default());
        V0Counts {
            iterations: files.iterations.or(objects.iterations),
            prompt_tokens: files.prompt_tokens.or(objects.prompt_tokens),
            generation_tokens: files.generation_tokens.or(objects.generation_tokens),
            tokens: files.tokens.or(objects.tokens),
            preemptions: files.preemptions.or(objects.preemptions),
        }
    }
}

impl Counted {
    fn from_now(counts: V0Counts) -> Self {
        let zero = |count: Option<u64>| count.map(|_| 0);
        let V0Counts { iterations, prompt_tokens, generation_tokens, tokens, preemptions } = counts;
        let since = V0Counts {
            iterations: zero(iterations),
            prompt_tokens: zero(prompt_tokens),
            generation_tokens: zero(generation_tokens),
            tokens: zero(tokens),
            preemptions: zero(preemptions),
        };
        Self { last: counts, since }
    }

    /// Adds what grew. An engine that did nothing for ten seconds reports an iteration without tokens: it is none.
    fn add(&mut self, counts: V0Counts) {
        let Self { last, since } = self;
        let worked = counts.tokens.is_none() || counts.tokens != last.tokens;
        let iterations = if worked { counts.iterations } else { last.iterations };
        for (since, last, now) in [
            (&mut since.iterations, last.iterations, iterations),
            (&mut since.prompt_tokens, last.prompt_tokens, counts.prompt_tokens),
            (&mut since.generation_tokens, last.generation_tokens, counts.generation_tokens),
            (&mut since.tokens, last.tokens, counts.tokens),
            (&mut since.preemptions, last.preemptions, counts.preemptions),
        ] {
            if let Some(now) = now {
                let grown = now.saturating_sub(last.unwrap_or(0));
                *since = Some(since.unwrap_or(0).saturating_add(grown));
            }
        }
        *last = counts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(iterations: u64, tokens: u64) -> V0Counts {
        V0Counts { iterations: Some(iterations), tokens: Some(tokens), ..V0Counts::default() }
    }

    #[test]
    fn what_the_engine_counted_before_the_agent_does_not_count() {
        let mut engine = Engine::default();
        engine.take(V0Source::Files, None, Some(counts(100, 900)));
        assert_eq!(engine.counts(), counts(0, 0));
        engine.take(V0Source::Files, None, Some(counts(103, 930)));
        assert_eq!(engine.counts(), counts(3, 30));
    }

    #[test]
    fn the_report_of_an_idle_engine_is_no_iteration() {
        let mut engine = Engine::default();
        engine.take(V0Source::Files, None, Some(counts(0, 0)));
        engine.take(V0Source::Files, None, Some(counts(2, 8)));
        engine.take(V0Source::Files, None, Some(counts(3, 8)));
        engine.take(V0Source::Files, None, Some(counts(4, 9)));
        assert_eq!(engine.counts(), counts(3, 9));
    }

    #[test]
    fn what_no_source_tells_is_not_there() {
        let mut engine = Engine::default();
        assert_eq!((engine.state(), engine.counts()), (None, V0Counts::default()));
        let files = V0State { running: Some(2), ..V0State::default() };
        let objects = V0State { running: Some(3), swapped: Some(1), ..V0State::default() };
        engine.take(V0Source::Objects, Some(objects), None);
        engine.take(V0Source::Files, Some(files), None);
        assert_eq!(
            engine.state(),
            Some(V0State { running: Some(2), swapped: Some(1), ..V0State::default() })
        );
        engine.stopped();
        assert_eq!(engine.state(), None);
    }
}
