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
        // Sorting only now and then makes it cheap.
        if self.kept.len() >= self.limit().saturating_mul(2).max(64) {
            self.cut();
        }
    }

    fn limit(&self) -> usize {
        match self.pick {
            Pick::Slowest(count, _) => count.min(MAX_KEPT),
            Pick::Called(_) | Pick::Over { .. } => MAX_KEPT,
        }
    }

    /// Leaves the slowest. Others that were asked for are counted: of the slowest so many, nobody asked for more.
    fn cut(&mut self) {
        let (by, counted) = match self.pick {
            Pick::Slowest(_, by) => (by, false),
            Pick::Called(_) | Pick::Over { ttft: None, .. } => (By::E2e, true),
            Pick::Over { ttft: Some(_), .. } => (By::Ttft, true),
        };
        self.kept.sort_by_key(|verdict| Reverse(length(verdict, by)));
        let beyond = self.kept.len().saturating_sub(self.limit());
        self.kept.truncate(self.limit());
        if counted {
            self.forgotten += u64::try_from(beyond).unwrap_or(0);
        }
    }

    /// Those that were asked for, the slowest first. What is beyond the limit is counted as forgotten.
    pub fn kept(&mut self) -> &[Verdict] {
        self.cut();
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

#[cfg(test)]
mod tests {
    use enginetap_core::ids::ServerId;
    use enginetap_core::time::{MonoTime, WallTime};
    use enginetap_core::why::account::{Ending, Size};
    use enginetap_core::why::verdict::{Blame, Certainty};

    use super::*;

    /// A request of so many milliseconds, a tenth of them to the first token.
    fn verdict(id: &str, millis: u64) -> Verdict {
        let took = Nanos::from_millis(millis);
        let blame = Blame { cause: Cause::KvFull, took, certainty: Certainty::Certain, notes: Vec::new() };
        Verdict {
            server: ServerId(1),
            ids: vec![id.to_owned(), format!("{id}-0-aa")],
            begun: MonoTime(0),
            at: WallTime(0),
            ending: Ending::Complete,
            ttft: Some(Nanos::from_millis(millis / 10)),
            e2e: took,
            size: Size::default(),
            parts: Vec::new(),
            causes: if millis > 500 { vec![blame] } else { Vec::new() },
            pauses: Vec::new(),
            paused: Vec::new(),
            unexplained: Nanos(0),
            partial: false,
            forgotten: false,
        }
    }

    fn kept(pick: Pick, requests: impl IntoIterator<Item = (String, u64)>) -> Vec<String> {
        let mut verdicts = Verdicts::new(pick);
        requests.into_iter().for_each(|(id, millis)| verdicts.take(verdict(&id, millis)));
        verdicts.kept().iter().map(|verdict| verdict.id().to_owned()).collect()
    }

    #[test]
    fn of_more_than_are_kept_the_others_are_counted_whatever_their_number() {
        for beyond in [0, 1, MAX_KEPT, MAX_KEPT + 1] {
            let mut verdicts = Verdicts::new(Pick::Over { ttft: None, e2e: Some(Duration::from_millis(1)) });
            (0..MAX_KEPT + beyond).for_each(|n| verdicts.take(verdict(&format!("cmpl-{n}"), 9)));
            let kept = verdicts.kept().len();
            assert_eq!((kept, verdicts.forgotten), (MAX_KEPT, u64::try_from(beyond).unwrap()));
        }
    }

    #[test]
    fn of_many_the_slowest_are_kept_the_slowest_first() {
        let many = (1..=10_000).map(|n| (format!("cmpl-{n}"), n * 7919 % 10_007));
        let slowest: Vec<u64> = kept(Pick::Slowest(3, By::E2e), many)
            .iter()
            .map(|id| id.strip_prefix("cmpl-").unwrap().parse::<u64>().unwrap() * 7919 % 10_007)
            .collect();
        assert_eq!(slowest.len(), 3);
        assert!(slowest.iter().all(|millis| *millis > 10_000) && slowest.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn those_over_a_time_are_kept_by_either_time() {
        let three = || [("a", 100), ("b", 900), ("c", 5000)].map(|(id, millis)| (id.to_owned(), millis));
        let over = |ttft, e2e| {
            let some = |millis: Option<u64>| millis.map(Duration::from_millis);
            kept(Pick::Over { ttft: some(ttft), e2e: some(e2e) }, three())
        };
        assert_eq!(over(Some(80), None), ["c", "b"]);
        assert_eq!(over(None, Some(900)), ["c"]);
    }

    #[test]
    fn a_request_is_found_by_any_of_its_names_and_a_mistyped_one_has_near_ones() {
        let three = || ["cmpl-aaa1", "cmpl-bbb2", "other"].map(|id| (id.to_owned(), 10));
        assert_eq!(kept(Pick::Called("cmpl-b".to_owned()), three()), ["cmpl-bbb2"]);
        assert_eq!(kept(Pick::Called("cmpl-aaa1-0-aa".to_owned()), three()), ["cmpl-aaa1"]);
        assert!(kept(Pick::Called("c".to_owned()), three()).is_empty(), "too short to mean one");
        let mut verdicts = Verdicts::new(Pick::Called("cmpl-aab1".to_owned()));
        three().into_iter().for_each(|(id, millis)| verdicts.take(verdict(&id, millis)));
        assert_eq!(verdicts.nearest("cmpl-aab1", 1), ["cmpl-aaa1"]);
    }

    #[test]
    fn all_are_counted_whichever_are_kept() {
        let mut verdicts = Verdicts::new(Pick::Slowest(1, By::Ttft));
        for millis in [100, 600, 700] {
            verdicts.take(verdict("x", millis));
        }
        assert_eq!((verdicts.seen, verdicts.held_up), (3, 2));
        let found = Found { requests: 2, time: Nanos::from_millis(1300) };
        assert_eq!(verdicts.causes, BTreeMap::from([(Cause::KvFull, found)]));
    }
}
