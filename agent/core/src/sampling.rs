//! Which traces and log lines leave the agent: a share of all, those that matter, and no more than a receiver bears.
//!
//! Head: a share by trace id, so that every agent decides the same; a caller's own decision counts where there is a caller.
//! Tail: of those that are not among it, the failed and the slow, and one in so many. Then a rate a server, so that a flood
//! of one cannot drown the others' receiver. What does not leave is counted.

use std::collections::BTreeMap;

use crate::ids::{ServerId, TraceId};
use crate::loss::Loss;
use crate::model::span::{Status, Trace};
use crate::time::{MonoTime, Nanos};

/// Parts of a share: settings are in millionths, so that a share is a whole number everywhere.
pub const WHOLE: u32 = 1_000_000;

/// What is to leave. Zero turns a limit or a rule off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The share of traces without a caller, in millionths.
    pub share: u32,
    /// Whether failed requests leave, whatever the share.
    pub failed: bool,
    /// Requests that took this long leave, whatever the share.
    pub slow: Nanos,
    /// One in so many of the rest leaves.
    pub every: u64,
    /// Most spans a second.
    pub spans: u64,
    /// Most log lines a second.
    pub lines: u64,
}

impl Default for Policy {
    /// Every trace; no rate.
    fn default() -> Self {
        Self { share: WHOLE, failed: true, slow: Nanos(0), every: 0, spans: 0, lines: 0 }
    }
}

/// What was decided so far, by server.
#[derive(Debug, Default)]
pub struct Sampling(BTreeMap<ServerId, Server>);

#[derive(Debug, Default)]
struct Server {
    /// Traces that no rule wanted.
    unwanted: u64,
    spans: Bucket,
    lines: Bucket,
}

/// What may still leave: a second's worth at most.
#[derive(Debug, Default)]
struct Bucket {
    /// In billionths.
    left: u64,
    filled: Option<MonoTime>,
}

impl Sampling {
    /// Whether a trace leaves; why not, where it does not.
    ///
    /// # Errors
    /// [`Loss::Sampled`] where no rule wants it, [`Loss::RateLimited`] where its server has sent too much.
    pub fn trace(&mut self, trace: &Trace, policy: &Policy, now: MonoTime) -> Result<(), Loss> {
        let server = self.0.entry(trace.server).or_default();
        if !server.wants(trace, policy) {
            return Err(Loss::Sampled);
        }
        let spans = u64::try_from(trace.spans.len()).unwrap_or(u64::MAX);
        server.spans.take(spans, policy.spans, now).then_some(()).ok_or(Loss::RateLimited)
    }

    /// Whether a log line of a server leaves.
    ///
    /// # Errors
    /// [`Loss::RateLimited`] where its server has sent too many.
    pub fn line(&mut self, server: ServerId, policy: &Policy, now: MonoTime) -> Result<(), Loss> {
        let server = self.0.entry(server).or_default();
        server.lines.take(1, policy.lines, now).then_some(()).ok_or(Loss::RateLimited)
    }

    /// A server is gone.
    pub fn forget(&mut self, server: ServerId) {
        self.0.remove(&server);
    }
}

impl Server {
    fn wants(&mut self, trace: &Trace, policy: &Policy) -> bool {
        let Some(root) = trace.spans.first() else { return false };
        // Not sampled by its caller: the sinks' sampler decides of it.
        if root.parent.is_some() || within(root.trace, policy.share) {
            return true;
        }
        let failed = trace.spans.iter().any(|span| span.status != Status::Unset);
        let slow = policy.slow != Nanos(0) && root.end.since(root.start) >= policy.slow;
        if (policy.failed && failed) || slow {
            return true;
        }
        self.unwanted = self.unwanted.wrapping_add(1);
        policy.every != 0 && self.unwanted.is_multiple_of(policy.every)
    }
}

/// Whether a trace is among a share of all, by the low half of its id.
fn within(TraceId(trace): TraceId, share: u32) -> bool {
    let low = u64::try_from(trace & u128::from(u64::MAX)).unwrap_or(0);
    u128::from(low) * u128::from(WHOLE) < u128::from(share) << 64
}

impl Bucket {
    /// Takes from it, where there is anything left; what is larger than what is left leaves it empty. `rate`: of a
    /// second; 0: there is no end to it.
    fn take(&mut self, n: u64, rate: u64, now: MonoTime) -> bool {
        const ONE: u64 = 1_000_000_000;
        if rate == 0 {
            return true;
        }
        let full = rate.saturating_mul(ONE);
        let since = self.filled.map(|filled| now.since(filled).0.min(ONE));
        let more = since.map_or(full, |since| since.saturating_mul(rate));
        self.left = self.left.saturating_add(more).min(full);
        self.filled = Some(now);
        if self.left < ONE {
            return false;
        }
        self.left = self.left.saturating_sub(n.saturating_mul(ONE));
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::SpanId;
    use crate::model::span::Span;
    use crate::time::WallTime;

    const SERVER: ServerId = ServerId(1);

    fn trace(id: u128, millis: u64, failed: bool) -> Trace {
        let root = Span {
            trace: TraceId(id),
            id: SpanId(1),
            parent: None,
            trace_state: None,
            name: "chat".into(),
            start: WallTime(0),
            end: WallTime(millis * 1_000_000),
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            links: Vec::new(),
            status: if failed { Status::Error("bad".into()) } else { Status::Unset },
        };
        Trace { server: SERVER, sampled: true, spans: vec![root], logs: Vec::new() }
    }

    const NONE: Policy = Policy { share: 0, failed: false, slow: Nanos(0), every: 0, spans: 0, lines: 0 };
    const START: MonoTime = MonoTime(5);

    fn judge(policy: Policy, trace: &Trace) -> Result<(), Loss> {
        Sampling::default().trace(trace, &policy, START)
    }

    #[test]
    fn by_default_everything_leaves() {
        let mut sampling = Sampling::default();
        for id in 0..1000 {
            let trace = trace(id << 54, 1, false);
            assert_eq!(sampling.trace(&trace, &Policy::default(), START), Ok(()));
            assert_eq!(sampling.line(SERVER, &Policy::default(), START), Ok(()));
        }
    }

    #[test]
    fn the_failed_and_the_slow_leave_whatever_the_share() {
        let slow = Nanos::from_millis(100);
        assert_eq!(judge(NONE, &trace(1, 500, true)), Err(Loss::Sampled));
        assert_eq!(judge(Policy { failed: true, ..NONE }, &trace(1, 5, true)), Ok(()));
        assert_eq!(judge(Policy { slow, ..NONE }, &trace(1, 100, false)), Ok(()));
        assert_eq!(judge(Policy { slow, ..NONE }, &trace(1, 99, false)), Err(Loss::Sampled));
    }

    #[test]
    fn one_in_so_many_of_the_rest_leaves() {
        let mut sampling = Sampling::default();
        let policy = Policy { every: 4, ..NONE };
        let left =
            (0..100).filter(|id| sampling.trace(&trace(*id, 1, false), &policy, START).is_ok()).count();
        assert_eq!(left, 25);
    }

    #[test]
    fn a_callers_trace_is_not_for_the_share_to_decide() {
        let mut called = trace(1, 1, false);
        called.spans[0].parent = Some(SpanId(9));
        assert_eq!(judge(NONE, &called), Ok(()));
    }

    #[test]
    fn a_flood_is_held_to_its_rate_and_others_do_not_feel_it() {
        let mut sampling = Sampling::default();
        let policy = Policy { spans: 10, lines: 3, ..Policy::default() };
        let second = Nanos::from_secs(1);
        let mut burst =
            |now| (0..50).filter(|id| sampling.trace(&trace(*id, 1, false), &policy, now).is_ok()).count();
        assert_eq!((burst(START), burst(START), burst(START.plus(second))), (10, 0, 10));
        assert_eq!(burst(START.plus(Nanos(second.0 * 3 / 2))), 5);
        let other = Trace { server: ServerId(2), ..trace(1, 1, false) };
        assert_eq!(sampling.trace(&other, &policy, START.plus(second)), Ok(()));
        let lines = (0..9).filter(|_| sampling.line(SERVER, &policy, START).is_ok()).count();
        assert_eq!(lines, 3);
    }

    proptest! {
        #[test]
        fn a_share_takes_about_as_many(seed in any::<u64>(), share in 0..=WHOLE) {
            let mut mint = crate::ids::Mint::new(seed);
            let taken = (0..2000).filter(|_| within(mint.trace(), share)).count();
            let wanted = f64::from(share) / f64::from(WHOLE) * 2000.0;
            let taken = f64::from(u32::try_from(taken).unwrap());
            prop_assert!((taken - wanted).abs() < 200.0, "{taken} of {wanted}");
        }
    }
}
