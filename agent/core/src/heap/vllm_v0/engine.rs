//! The engine's objects.

use std::collections::{HashMap, HashSet};

use super::state::StateReading;
use crate::dialect::signal::vllm_v0::{V0Counts, V0Metrics, V0Reading, V0Snapshot, V0Source, V0State};
use crate::heap::scalars::Cell;
use crate::heap::sglang::parts::{Values, believed, values};
use crate::heap::{Addr, Heap, Memory, Ref, Refusal, Value, Verdicts, Wanted};
use crate::ids::Pid;
use crate::time::{EpochTime, MonoTime, Nanos, Seconds};

/// Frames that lead to the engine: the function, the end of its file, and the attribute of its `self` that is the engine.
/// The second row is of an engine in the API server's process, whose frame is there while it makes a step.
const FRAMES: &[(&str, &str, Option<&str>)] = &[
    ("run_engine_loop", "vllm/engine/multiprocessing/engine.py", Some("engine")),
    ("step_async", "vllm/engine/async_llm_engine.py", None),
];
/// Pieces of one reading.
const PIECES: usize = 1 << 15;
/// Requests looked at in one reading.
const REQUESTS_LIMIT: usize = 1024;
/// Readings in one sample.
const TRIES: usize = 3;
/// Walks through frames that move.
const WALKS: usize = 200;
/// How often the engine's state is told.
const STATE_PERIOD: Nanos = Nanos::from_millis(500);

/// What one sample gave.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// What changed; `None`: nothing.
    pub snapshot: Option<V0Snapshot>,
    /// Requests the engine has.
    pub requests: usize,
    /// Whether the engine is not where it was: it is to be found again.
    pub lost: bool,
}

/// A field of a request's times.
type Field = fn(&mut V0Metrics, f64);

/// Attributes of `RequestMetrics` that are read.
const METRICS: &[(&str, Field)] = &[
    ("arrival_time", |metrics, at| metrics.arrival = Some(EpochTime(at))),
    ("first_scheduled_time", |metrics, at| metrics.scheduled = Some(EpochTime(at))),
    ("first_token_time", |metrics, at| metrics.first_token = Some(EpochTime(at))),
    ("last_token_time", |metrics, at| metrics.last_token = Some(EpochTime(at))),
    ("finished_time", |metrics, at| metrics.finished = Some(EpochTime(at))),
    ("time_in_queue", |metrics, time| metrics.queue = Some(Seconds(time))),
    ("scheduler_time", |metrics, time| metrics.scheduler = Some(Seconds(time))),
    ("model_forward_time", |metrics, time| metrics.forward = Some(Seconds(time / 1000.0))),
    ("model_execute_time", |metrics, time| metrics.execute = Some(Seconds(time))),
];

/// An engine that was found.
#[derive(Debug)]
pub struct Engine {
    pid: Pid,
    object: Addr,
    of_type: Addr,
    known: HashMap<String, V0Reading>,
    state: Option<V0State>,
    counts: Option<V0Counts>,
    state_at: Option<MonoTime>,
}

/// One reading, before it is known what of it is to be believed.
struct Reading {
    rids: Vec<Result<Cell, Refusal>>,
    times: Vec<Values>,
    /// An item of each queue, with the piece it was read from.
    queues: Vec<Ref>,
    whole: bool,
    state: Option<StateReading>,
}

impl Engine {
    /// Finds the engine of a process.
    ///
    /// # Errors
    /// When its frames could not be walked, however often it was tried.
    pub fn find<M: Memory>(heap: &mut Heap<M>, pid: Pid) -> Result<Option<Self>, Refusal> {
        let mut refused = None;
        for _ in 0..WALKS {
            for (function, file, attribute) in FRAMES {
                heap.begin(PIECES);
                let wanted = Wanted { functions: &[function], file, local: "self" };
                match heap.find(wanted).and_then(|found| match found {
                    Some(found) => Self::of(heap, pid, Ref::root(found.object), *attribute),
                    None => Ok(None),
                }) {
                    Ok(Some(engine)) => return Ok(Some(engine)),
                    Ok(None) => refused = None,
                    Err(reason) => refused = Some(reason),
                }
            }
            if heap.gone().is_some() {
                break;
            }
        }
        refused.map_or(Ok(None), Err)
    }

    fn of<M: Memory>(
        heap: &mut Heap<M>,
        pid: Pid,
        found: Ref,
        attribute: Option<&'static str>,
    ) -> Result<Option<Self>, Refusal> {
        let object = match attribute {
            Some(name) => heap.attribute(found, name)?,
            None => Some(found),
        };
        let Some(object) = object.map(|object| object.addr) else { return Ok(None) };
        let of_type = heap.type_of(object)?.addr;
        let (known, state, counts, state_at) = (HashMap::new(), None, None, None);
        let engine = Self { pid, object, of_type, known, state, counts, state_at };
        // What has no scheduler is no engine.
        Ok(heap.attribute(Ref::root(object), "scheduler")?.map(|_| engine))
    }

    /// Reads its objects; what changed since the sample before. `at`: now.
    pub fn sample<M: Memory>(&mut self, heap: &mut Heap<M>, at: MonoTime) -> Sampled {
        let mut snapshot =
            V0Snapshot { pid: self.pid, at, source: V0Source::Objects, ..V0Snapshot::default() };
        let mut requests = 0;
        for _ in 0..TRIES {
            heap.begin(PIECES);
            let Ok(reading) = self.read(heap, at) else {
                return Sampled { lost: true, ..Sampled::default() };
            };
            let verdicts = heap.verify();
            requests = reading.rids.len();
            if self.take(heap, &reading, &verdicts, &mut snapshot) {
                break;
            }
        }
        let V0Snapshot { state, counts, requests: changed, gone, .. } = &snapshot;
        let empty = state.is_none() && counts.is_none() && changed.is_empty() && gone.is_empty();
        Sampled { snapshot: (!empty).then_some(snapshot), requests, lost: false }
    }

    /// One reading. Fails where the engine is not where it was.
    fn read<M: Memory>(&self, heap: &mut Heap<M>, at: MonoTime) -> Result<Reading, Refusal> {
        if heap.type_of(self.object)?.addr != self.of_type {
            return Err(Refusal::Torn);
        }
        let root = Ref::root(self.object);
        let schedulers = heap.attribute(root, "scheduler")?.ok_or(Refusal::Torn)?;
        let schedulers = heap.items_of(schedulers)?;
        let mut whole = true;
        let mut queues = Vec::new();
        for scheduler in &schedulers {
            for queue in heap.paths(*scheduler, &[&["running"], &["waiting"], &["swapped"]]) {
                match queue {
                    Ok(Some(queue)) => queues.push(queue),
                    Ok(None) => {}
                    Err(_) => whole = false,
                }
            }
        }
        let mut groups = Vec::new();
        let mut firsts = Vec::new();
        for items in heap.items(&queues) {
            match items {
                Ok(items) => {
                    firsts.extend(items.first().copied());
                    groups.extend(items);
                }
                Err(_) => whole = false,
            }
        }
        whole &= groups.len() <= REQUESTS_LIMIT;
        groups.truncate(REQUESTS_LIMIT);
        let due = self.state_at.is_none_or(|told| at.since(told) >= STATE_PERIOD);
        let state = due.then(|| StateReading::read(heap, root, &schedulers));
        let (rids, times) = requests(heap, &groups);
        Ok(Reading { rids, times, queues: firsts, whole, state })
    }

    /// Takes over what is to be believed; whether all of it was.
    fn take<M: Memory>(
        &mut self,
        heap: &mut Heap<M>,
        reading: &Reading,
        verdicts: &Verdicts,
        snapshot: &mut V0Snapshot,
    ) -> bool {
        let mut whole = reading.whole && reading.queues.iter().all(|first| verdicts.good(first.seen));
        let mut there = HashSet::new();
        for (rid, times) in reading.rids.iter().zip(&reading.times) {
            let Some(rid) = rid.as_ref().ok().filter(|cell| cell.good(verdicts)) else {
                whole = false;
                continue;
            };
            let Some(rid) = rid.value.text() else { continue };
            there.insert(rid.to_owned());
            match times_of(times, verdicts) {
                Ok(metrics) => self.changed(rid, metrics, snapshot),
                Err(reason) => {
                    if reason == Refusal::Absurd {
                        heap.refuse(reason, 1);
                    }
                    whole = false;
                }
            }
        }
        if whole {
            // Of one that is gone the last that was read is told.
            let gone: Vec<String> = self.known.keys().filter(|rid| !there.contains(*rid)).cloned().collect();
            for rid in &gone {
                snapshot.requests.retain(|(earlier, _)| earlier != rid);
                snapshot.requests.extend(self.known.remove_entry(rid));
            }
            snapshot.gone = gone;
        }
        self.take_state(reading, verdicts, snapshot);
        whole
    }

    fn changed(&mut self, rid: &str, metrics: V0Metrics, snapshot: &mut V0Snapshot) {
        let reading = V0Reading { metrics, ..V0Reading::default() };
        let known = self.known.insert(rid.to_owned(), reading);
        // Times that grow with every step are told with the next one that stands still.
        let still = |reading: &V0Reading| {
            let V0Metrics { scheduled, first_token, finished, queue, .. } = reading.metrics;
            (scheduled, first_token, finished, queue)
        };
        if known.as_ref().map(still) != Some(still(&reading)) {
            snapshot.requests.retain(|(earlier, _)| earlier != rid);
            snapshot.requests.push((rid.to_owned(), reading));
        }
    }

    fn take_state(&mut self, reading: &Reading, verdicts: &Verdicts, snapshot: &mut V0Snapshot) {
        let Some(read) = &reading.state else { return };
        self.state_at = Some(snapshot.at);
        let (state, counts) = (read.state(verdicts), read.counts(verdicts));
        if state != V0State::default() && self.state != Some(state) {
            snapshot.state = Some(state);
            self.state = Some(state);
        }
        if counts != V0Counts::default() && self.counts != Some(counts) {
            snapshot.counts = Some(counts);
            self.counts = Some(counts);
        }
    }
}

/// Ids and times of requests (`SequenceGroup`).
fn requests<M: Memory>(heap: &mut Heap<M>, groups: &[Ref]) -> (Vec<Result<Cell, Refusal>>, Vec<Values>) {
    let wants: Vec<(Ref, &'static str)> =
        groups.iter().flat_map(|group| [(*group, "request_id"), (*group, "metrics")]).collect();
    let found = heap.attributes(&wants);
    let pairs: Vec<(Ref, Ref)> = found
        .chunks(2)
        .filter_map(|pair| match pair {
            [Ok(Some(rid)), Ok(Some(metrics))] => Some((*rid, *metrics)),
            _ => None,
        })
        .collect();
    let rids = heap.scalars(&pairs.iter().map(|(rid, _)| *rid).collect::<Vec<_>>());
    let names: Vec<&'static str> = METRICS.iter().map(|(name, _)| *name).collect();
    let times = values(heap, &pairs.iter().map(|(_, metrics)| *metrics).collect::<Vec<_>>(), &names);
    (rids, times)
}

fn times_of(times: &Values, verdicts: &Verdicts) -> Result<V0Metrics, Refusal> {
    let mut metrics = V0Metrics::default();
    for ((_, set), cell) in METRICS.iter().zip(times) {
        match believed(cell, verdicts)? {
            None | Some(Value::None) => {}
            Some(value) => {
                let number = value.number().filter(|number| (0.0..1e10).contains(number));
                set(&mut metrics, number.ok_or(Refusal::Absurd)?);
            }
        }
    }
    Ok(metrics)
}
