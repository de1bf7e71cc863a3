//! The pull of a request's KV cache from another node: which of the connector's reports is whose.
//!
//! A connector reports lengths without names. The step that reports an end also makes the request ready, and the step after it
//! schedules the request: so a request's pull is the last reported before it was scheduled
//! (`Scheduler._update_waiting_for_remote_kv` of `vllm/v1/core/sched/scheduler.py`, 0.32.0).

use std::collections::VecDeque;

use super::request::{Ending, Request};
use crate::dialect::signal::{EngineEventKind, EngineOutput, Finish, TransferStats};
use crate::time::{EngineTime, MonoTime, Seconds};

/// Most reports kept that no request has claimed.
const MAX_REPORTS: usize = 1024;

/// How sure it is when a pull began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// The connector reported it, and only one request can be meant.
    Reported,
    /// Reported, where several requests waited: it may be another one's.
    Shared,
    /// Not reported: from the engine's state, and from when the request ended.
    Derived,
}

/// A pull of a remote KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// When it was over.
    pub ended: EngineTime,
    /// How long it took.
    pub took: Seconds,
    /// Whether the connector reported an error.
    pub failed: bool,
    /// How sure that is.
    pub sure: Sure,
}

/// A pull that the connector reported.
#[derive(Clone, Copy, Debug)]
struct Report {
    at: EngineTime,
    took: Seconds,
    /// Whether another request may have got this one's instead of its own.
    shared: bool,
}

/// What the connector of one EngineCore reported last.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// Pulls that ended and that no request has claimed.
    ended: VecDeque<Report>,
    /// When it last reported an error.
    failed: Option<EngineTime>,
}

impl Reports {
    /// Takes what a step reported.
    pub fn take(&mut self, stats: &TransferStats, at: EngineTime) {
        let TransferStats { durations, bytes: _, failed } = stats;
        let reports = durations.iter().map(|&took| Report { at, took: Seconds(took), shared: false });
        self.ended.extend(reports);
        while self.ended.len() > MAX_REPORTS {
            self.ended.pop_front();
        }
        if *failed > 0 {
            self.failed = Some(at);
        }
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Nobody waits: what was not claimed is nobody's.
    pub fn clear(&mut self) {
        self.ended.clear();
    }

    /// The pull of a request that was scheduled then. `alone`: no other request waited for one.
    fn claim(&mut self, scheduled: EngineTime, alone: bool) -> Option<Transfer> {
        let fits = |report: &Report| report.at <= scheduled;
        let ended = self.ended.iter().rev().find(|report| fits(report))?.at;
        if alone {
            return Some(self.claim_all(ended));
        }
        let only = self.ended.iter().filter(|report| fits(report)).count() == 1;
        let place = self.ended.iter().position(|report| report.at == ended)?;
        let Report { at: _, took, shared } = self.ended.remove(place)?;
        let sure = if only && !shared { Sure::Reported } else { Sure::Shared };
        if sure == Sure::Shared {
            self.ended.iter_mut().filter(|report| fits(report)).for_each(|report| report.shared = true);
        }
        Some(Transfer { ended, took, failed: false, sure })
    }

    /// Everything that was reported last is one request's: each worker of a tensor-parallel engine reports its part, and the
    /// longest counts.
    fn claim_all(&mut self, ended: EngineTime) -> Transfer {
        let of_it = || self.ended.iter().filter(|report| report.at == ended);
        let took = Seconds(of_it().map(|report| report.took.0).fold(0.0, f64::max));
        let sure = if of_it().any(|report| report.shared) { Sure::Shared } else { Sure::Reported };
        self.clear();
        Transfer { ended, took, failed: false, sure }
    }
}

impl Request {
    /// Whether it waits for its KV cache from another node.
    #[must_use]
    pub fn awaits_transfer(&self) -> bool {
        let asked = self.kv_transfer().is_some_and(|kv| kv.do_remote_prefill);
        asked && self.transfer.is_none() && self.moments.first.is_none() && self.ending.is_none()
    }

    /// The engine says that KV caches are being fetched.
    pub fn fetching(&mut self, at: EngineTime) {
        if self.awaits_transfer() {
            self.fetch_since.get_or_insert(at);
        }
    }

    /// Learns of its pull from its first output. `alone`: no other request waits for one.
    pub fn pulled(&mut self, output: &EngineOutput, at: EngineTime, reports: &mut Reports, alone: bool) {
        if !self.awaits_transfer() {
            return;
        }
        let event = |kind| output.events.iter().find(|event| event.kind == kind).map(|event| event.at);
        let queued = event(EngineEventKind::Queued);
        let scheduled = event(EngineEventKind::Scheduled);
        let failed = reports.failed.filter(|failed| queued.is_some_and(|queued| *failed >= queued));
        self.transfer = match (scheduled, failed) {
            // Never scheduled: the engine gives up a request whose cache cannot be loaded (the policy `fail`).
            (None, _) if output.finish == Some(Finish::Error) => Some(self.failed_at(at, queued)),
            // Prefilled here instead (the policy `recompute`).
            (Some(scheduled), Some(failed)) if failed <= scheduled && !self.has_external(output) => {
                Some(self.failed_at(failed, queued))
            }
            (Some(scheduled), _) => reports.claim(scheduled, alone),
            (None, _) => None,
        };
    }

    fn has_external(&self, output: &EngineOutput) -> bool {
        output.cached.is_some_and(|cached| cached.external > 0)
    }

    fn failed_at(&self, ended: EngineTime, queued: Option<EngineTime>) -> Transfer {
        let began = self.fetch_since.or(queued).unwrap_or(ended);
        let took = Seconds(ended.since(began).0.max(0.0));
        Transfer { ended, took, failed: true, sure: Sure::Derived }
    }

    /// It ended while its KV cache was on its way.
    pub(super) fn transfer_left(&mut self, ending: Ending, at: MonoTime) {
        let Some(began) = self.fetch_since.filter(|_| self.awaits_transfer()) else { return };
        let ended = at.engine();
        let took = Seconds(ended.since(began).0.max(0.0));
        let failed = match ending {
            Ending::Died | Ending::Aborted | Ending::Expired | Ending::Detached | Ending::StopString => false,
            Ending::Finished(finish) => finish == Finish::Error,
        };
        self.transfer = Some(Transfer { ended, took, failed, sure: Sure::Derived });
    }
}
