//! The engine's state and counts, as its objects and files tell them.

use crate::dialect::signal::vllm_v0::{V0Counts, V0Source, V0State};

/// What is known of a V0 engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    /// Whether any of its messages was seen. An engine in the API server's process has none.
    pub messages: bool,
    /// Whether its objects were looked at.
    pub looked: bool,
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
        // What one reading missed stays as the one before told it.
        told.state = state.map(|state| state.or(told.state.unwrap_or_default())).or(told.state);
        let Some(counts) = counts else { return };
        match &mut told.counts {
            // A series that files have not held before was made since; one of the objects was not read.
            Some(known) => known.add(counts, source == V0Source::Files),
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
    fn add(&mut self, counts: V0Counts, new: bool) {
        let Self { last, since } = self;
        let worked = counts.tokens.is_none() || counts.tokens != last.tokens;
        let iterations = if worked { counts.iterations } else { last.iterations };
        for (since, last, now) in [
            (&mut since.iterations, &mut last.iterations, iterations),
            (&mut since.prompt_tokens, &mut last.prompt_tokens, counts.prompt_tokens),
            (&mut since.generation_tokens, &mut last.generation_tokens, counts.generation_tokens),
            (&mut since.tokens, &mut last.tokens, counts.tokens),
            (&mut since.preemptions, &mut last.preemptions, counts.preemptions),
        ] {
            if let Some(now) = now {
                let grown = now.saturating_sub(last.unwrap_or(if new { 0 } else { now }));
                *since = Some(since.unwrap_or(0).saturating_add(grown));
                *last = Some(now);
            }
        }
        // Counted or not, that is where the next begin.
        last.iterations = counts.iterations.or(last.iterations);
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
    fn a_count_that_one_reading_missed_is_caught_up_by_the_next() {
        let mut engine = Engine::default();
        engine.take(V0Source::Objects, None, Some(counts(10, 100)));
        engine.take(V0Source::Objects, None, Some(V0Counts { tokens: None, ..counts(11, 0) }));
        engine.take(V0Source::Objects, None, Some(counts(12, 120)));
        assert_eq!(engine.counts(), counts(2, 20));
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
