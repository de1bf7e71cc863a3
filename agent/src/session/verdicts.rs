//! Verdicts on requests: those that were asked for are kept, of the others only their names and the counts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use enginetap_core::time::Nanos;
use enginetap_core::why::cause::Cause;
use enginetap_core::why::verdict::Verdict;

use crate::cli::why::By;

/// Most verdicts kept: some ten megabytes.
const MAX_KEPT: usize = 5_000;
/// Most names remembered, to say which ones a mistyped one is near to.
const MAX_NAMES: usize = 20_000;

/// Which requests are asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// One, by its name or the beginning of it.
    Called(String),
    /// The slowest.
    Slowest(usize, By),
    /// Those over a time to the first token, or over a whole time.
    Over {
        /// The time to the first token.
        ttft: Option<Duration>,
        /// The whole time.
        e2e: Option<Duration>,
    },
}

/// How often a cause was found, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Found {
    /// Requests.
    pub requests: u64,
    /// Nanoseconds.
    pub time: Nanos,
}

/// The verdicts.
#[derive(Debug)]
pub struct Verdicts {
    pick: Pick,
    kept: Vec<Verdict>,
    names: VecDeque<String>,
    /// Requests seen.
    pub seen: u64,
    /// Of them, those that something held up.
    pub held_up: u64,
    /// By cause.
    pub causes: BTreeMap<Cause, Found>,
    /// Verdicts that were asked for and are not kept any more: there were too many.
    pub forgotten: u64,
}

impl Verdicts {
    /// None yet.
    #[must_use]
    pub fn new(pick: Pick) -> Self {
        Self {
            pick,
            kept: Vec::new(),
            names: VecDeque::new(),
            seen: 0,
            held_up: 0,
            causes: BTreeMap::new(),
            forgotten: 0,
        }
    }

    /// Takes one.
    pub fn take(&mut self, verdict: Verdict) {
        self.count(&verdict);
        if self.names.len() >= MAX_NAMES {
            self.names.pop_front();
        }
        self.names.push_back(verdict.id().to_owned());
        let wanted = match &self.pick {
            Pick::Called(name) => verdict.is_called(name),
            Pick::Slowest(..) => true,
            Pick::Over { ttft, e2e } => over(verdict.ttft, *ttft) || over(Some(verdict.e2e), *e2e),
        };
        if wanted {
            self.keep(verdict);
        }
    }

    fn count(&mut self, verdict: &Verdict) {
        self.seen += 1;
        self.held_up += u64::from(!verdict.causes.is_empty());
        for blame in &verdict.causes {
            let found = self.causes.entry(blame.cause).or_default();
            found.requests += 1;
            found.time.0 = found.time.0.saturating_add(blame.took.0);
        }
    }

    fn keep(&mut self, verdict: Verdict) {
        self.kept.push(verdict);
        let (limit, counted) = match self.pick {
            Pick::Slowest(count, _) => (count.min(MAX_KEPT), false),
            Pick::Called(_) | Pick::Over { .. } => (MAX_KEPT, true),
        };
        // Sorting only now and then makes it cheap.
        if self.kept.len() >= limit.saturating_mul(2).max(64) {
            let before = self.kept.len();
            self.cut(limit);
            if counted {
                self.forgotten += u64::try_from(before - self.kept.len()).unwrap_or(0);
            }
        }
    }

    fn cut(&mut self, limit: usize) {
        let by = match self.pick {
            Pick::Slowest(_, by) => by,
            Pick::Called(_) | Pick::Over { ttft: None, .. } => By::E2e,
            Pick::Over { ttft: Some(_), .. } => By::Ttft,
        };
        self.kept.sort_by_key(|verdict| Reverse(length(verdict, by)));
        self.kept.truncate(limit);
    }

    /// Those that were asked for, the slowest first.
    pub fn kept(&mut self) -> &[Verdict] {
        let limit = match self.pick {
            Pick::Slowest(count, _) => count,
            Pick::Called(_) | Pick::Over { .. } => MAX_KEPT,
        };
        self.cut(limit);
        &self.kept
    }

    /// The names most like one, the likest first.
    #[must_use]
    pub fn nearest(&self, name: &str, count: usize) -> Vec<&str> {
        let like = |known: &str| strsim::jaro_winkler(name, known);
        let mut names: Vec<(f64, &str)> =
            self.names.iter().map(|known| (like(known), known.as_str())).collect();
        names.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        names.into_iter().take(count).map(|(_, known)| known).collect()
    }
}

fn length(verdict: &Verdict, by: By) -> Nanos {
    match by {
        By::E2e => verdict.e2e,
        By::Ttft => verdict.ttft.unwrap_or_default(),
    }
}

fn over(time: Option<Nanos>, limit: Option<Duration>) -> bool {
    time.zip(limit).is_some_and(|(time, limit)| u128::from(time.0) > limit.as_nanos())
}
