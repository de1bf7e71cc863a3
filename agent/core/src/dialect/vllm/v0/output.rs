//! `RequestOutput`: what one request got.

use super::{OUTPUTS, number};
use crate::dialect::signal::Finish;
use crate::dialect::signal::vllm_v0::{V0Candidate, V0Metrics, V0Output};
use crate::time::{EpochTime, Seconds};
use crate::wire::pickle::{Pickle, Value};

/// `RequestMetrics.model_forward_time` is in milliseconds, all its other times in seconds.
const FORWARD_UNIT: f64 = 1000.0;

/// Most fields of a class that are looked at.
const FIELDS: usize = 64;

/// Reads an output; `None` where it is none, names no request, or takes more than the `room` left.
pub(super) fn read(pickle: &Pickle<'_>, value: Value, room: &mut usize) -> Option<V0Output> {
    let instance = pickle.instance(value)?;
    if !OUTPUTS.iter().any(|name| name.as_bytes() == instance.class.name.as_ref()) {
        return None;
    }
    let mut output = V0Output::default();
    for (key, value) in instance.fields.take(FIELDS) {
        match pickle.text(key).as_deref() {
            Some(b"request_id") => output.id = pickle.string(value).unwrap_or_default(),
            Some(b"prompt_token_ids") => {
                output.prompt_tokens = pickle.integers(value).and_then(|ids| u32::try_from(ids.len()).ok());
            }
            // Of a pooling request it is an object, not a list.
            Some(b"outputs") => {
                let items = pickle.items(value).into_iter().flatten();
                output.candidates = items.take(*room).filter_map(|item| candidate(pickle, item)).collect();
            }
            Some(b"finished") => output.finished = value.bool().unwrap_or_default(),
            Some(b"metrics") => output.metrics = metrics(pickle, value),
            Some(b"num_cached_tokens") => {
                output.cached_tokens = value.int().and_then(|count| u64::try_from(count).ok());
            }
            Some(_) | None => {}
        }
    }
    *room = room.checked_sub(output.id.len().saturating_add(output.candidates.len()))?;
    (!output.id.is_empty()).then_some(output)
}

fn candidate(pickle: &Pickle<'_>, value: Value) -> Option<V0Candidate> {
    let mut candidate = V0Candidate::default();
    for (key, value) in pickle.instance(value)?.fields.take(FIELDS) {
        match pickle.text(key).as_deref() {
            Some(b"index") => {
                candidate.index = value.int().and_then(|index| u32::try_from(index).ok()).unwrap_or_default();
            }
            Some(b"token_ids") => {
                let count = pickle.integers(value).map(|ids| ids.len()).unwrap_or_default();
                candidate.tokens = u64::try_from(count).unwrap_or(u64::MAX);
            }
            Some(b"finish_reason") => candidate.finish = pickle.text(value).map(|name| finish(&name)),
            Some(_) | None => {}
        }
    }
    Some(candidate)
}

/// Mirrors `SequenceStatus.get_finished_reason` of `vllm/sequence.py`.
fn finish(name: &[u8]) -> Finish {
    match name {
        b"stop" => Finish::Stop,
        b"length" => Finish::Length,
        b"abort" => Finish::Abort,
        _ => Finish::Other(0),
    }
}

fn metrics(pickle: &Pickle<'_>, value: Value) -> V0Metrics {
    let mut metrics = V0Metrics::default();
    let Some(instance) = pickle.instance(value) else { return metrics };
    for (key, value) in instance.fields.take(FIELDS) {
        let moment = number(value).map(EpochTime);
        let length = number(value).map(Seconds);
        match pickle.text(key).as_deref() {
            Some(b"arrival_time") => metrics.arrival = moment,
            Some(b"first_scheduled_time") => metrics.scheduled = moment,
            Some(b"first_token_time") => metrics.first_token = moment,
            Some(b"last_token_time") => metrics.last_token = moment,
            Some(b"finished_time") => metrics.finished = moment,
            Some(b"time_in_queue") => metrics.queue = length,
            Some(b"scheduler_time") => metrics.scheduler = length,
            Some(b"model_forward_time") => {
                metrics.forward = length.map(|Seconds(millis)| Seconds(millis / FORWARD_UNIT));
            }
            Some(b"model_execute_time") => metrics.execute = length,
            Some(_) | None => {}
        }
    }
    metrics
}
