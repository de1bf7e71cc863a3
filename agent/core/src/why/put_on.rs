//! A verdict on a trace, as attributes of its root.

use super::verdict::Verdict;
use crate::model::registry::attr;
use crate::model::span::Trace;

impl Verdict {
    /// Puts the sentence and the causes on the trace's first span.
    pub fn put_on(&self, trace: &mut Trace) {
        let Some(root) = trace.spans.first_mut() else { return };
        root.set(attr::WHY, self.sentence());
        if self.causes.is_empty() {
            return;
        }
        let names: Vec<String> = self.causes.iter().map(|blame| blame.cause.name().to_owned()).collect();
        let times = self.causes.iter().map(|blame| i64::try_from(blame.took.0).unwrap_or(i64::MAX));
        root.set(attr::CAUSES, names);
        root.set(attr::CAUSE_TIMES, times.collect::<Vec<i64>>());
    }
}
