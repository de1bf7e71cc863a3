//! The scheduler's times of a request, where messages carry them.

use super::cell::Cell;
use super::pickled::Pickled;
use crate::dialect::signal::sglang::{ReqTimes, SglangOutput};
use crate::time::{EngineTime, EpochTime, Seconds};
use crate::wire::pickle;

/// Columns of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// `time_stats` (0.5.10 on): objects of `SchedulerReqTimeStats`.
    Stats,
    /// `queue_time` (0.5.5 to 0.5.9): seconds.
    Queue,
    /// `forward_entry_time` (0.5.5 to 0.5.9): a moment of `perf_counter()`.
    Forward,
    /// `prefill_finished_ts` (0.5.7 to 0.5.9): a moment of `time()`.
    PrefillFinishedEpoch,
}

/// Gives each request its times.
pub(super) fn fill<'m, C: Cell<'m>>(
    column: Column,
    values: C,
    inner: &mut pickle::Reader,
    outputs: &mut [SglangOutput],
    cut: bool,
) {
    match values.wrapped() {
        Some(bytes) => {
            let pickle = inner.read(bytes);
            if let Some(root) = pickle.root() {
                rows(column, Pickled::new(&pickle, root), outputs, cut);
            }
        }
        None => rows(column, values, outputs, cut),
    }
}

fn rows<'m, C: Cell<'m>>(column: Column, values: C, outputs: &mut [SglangOutput], cut: bool) {
    super::output::fill(values, outputs, cut, |output, value| {
        if value.is_none() {
            return;
        }
        let mut times = output.times.unwrap_or_default();
        column.set(&mut times, value);
        output.times = (times != ReqTimes::default()).then_some(times);
    });
}

impl Column {
    fn set<'m, C: Cell<'m>>(self, times: &mut ReqTimes, value: C) {
        match self {
            Self::Stats => value.fields("", &mut |name, value| stat(name, value, times)),
            Self::Queue => times.queue = value.number().map(Seconds),
            Self::Forward => times.forward = moment(value),
            Self::PrefillFinishedEpoch => {
                times.prefill_finished_epoch = value.number().filter(|at| *at > 0.0).map(EpochTime);
            }
        }
    }
}

/// Moments that `SchedulerReqTimeStats.__getstate__` sends (0.5.10 to 0.5.23), and those that it could.
fn stat<'m, C: Cell<'m>>(name: &[u8], value: C, times: &mut ReqTimes) {
    match name {
        b"scheduler_recv_time" => times.received = moment(value),
        b"wait_queue_entry_time" => times.queued = moment(value),
        b"forward_entry_time" => times.forward = moment(value),
        b"last_forward_entry_time" => times.last_forward = moment(value),
        b"prefill_finished_time" => times.prefill_finished = moment(value),
        b"completion_time" => times.completed = moment(value),
        b"queue_duration_s" => times.queue = value.number().map(Seconds),
        b"diff_realtime_monotonic" => times.epoch_offset = value.number().map(Seconds),
        _ => {}
    }
}

/// A moment; 0 stands for none.
fn moment<'m, C: Cell<'m>>(value: C) -> Option<EngineTime> {
    value.number().filter(|at| *at > 0.0).map(EngineTime)
}
