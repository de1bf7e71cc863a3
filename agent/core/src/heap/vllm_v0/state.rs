//! The engine's state and counters, as numbers.

use crate::dialect::signal::vllm_v0::{V0Counts, V0State};
use crate::heap::scalars::Cell;
use crate::heap::{Heap, Memory, Ref, Value, Verdicts};

type Path = &'static [&'static str];

/// A scheduler's queues: running, waiting, swapped.
const QUEUES: [Path; 3] = [&["running"], &["waiting"], &["swapped"]];
const PREEMPTIONS: Path = &["num_cumulative_preemption"];
/// Free blocks of an allocator: one that keeps no prefixes, or that part of one that does, and what the latter may evict.
const FREE: [Path; 3] =
    [&["_free_block_indices"], &["_hashless_allocator", "_free_block_indices"], &["evictor", "free_table"]];
const ALLOCATORS: Path = &["block_manager", "block_allocator", "_allocators"];
/// Blocks there are, by device.
const TOTALS: [(&str, Path); 2] =
    [("GPU", &["cache_config", "num_gpu_blocks"]), ("CPU", &["cache_config", "num_cpu_blocks"])];
const DEVICE: Path = &["device_config", "device_type"];
/// The engine's own metrics, where it keeps any: prompt tokens, generation tokens, tokens of an iteration.
const COUNTERS: [&str; 3] = ["counter_prompt_tokens", "counter_generation_tokens", "counter_num_preemption"];
const HISTOGRAM: &str = "histogram_iteration_tokens";

/// What was read, before it is known what of it is to be believed.
#[derive(Debug, Default)]
pub(super) struct StateReading {
    /// By queue, its length in each scheduler.
    queues: [Vec<Option<Cell>>; 3],
    preemptions: Vec<Option<Cell>>,
    /// By device: how many blocks there are, and the parts of those that are free.
    blocks: Vec<(String, Option<Cell>, Vec<Cell>)>,
    /// Whether the engine runs on a CPU: what it calls the GPU's blocks lie there.
    on_cpu: bool,
    counters: [Option<Cell>; 3],
    /// Tokens of all iterations, and how many iterations there were, by bucket.
    tokens: Option<Cell>,
    buckets: Option<Vec<Cell>>,
}

impl StateReading {
    /// Reads it.
    pub fn read<M: Memory>(heap: &mut Heap<M>, engine: Ref, schedulers: &[Ref]) -> Self {
        let mut reading = Self::default();
        for scheduler in schedulers {
            for (queue, cells) in QUEUES.iter().zip(&mut reading.queues) {
                let length = one(heap, *scheduler, queue).and_then(|queue| length(heap, queue));
                cells.push(length);
            }
            let preemptions = scalar(heap, *scheduler, PREEMPTIONS);
            reading.preemptions.push(preemptions);
        }
        let device = scalar(heap, engine, DEVICE);
        reading.on_cpu = device.is_some_and(|cell| cell.value.text() == Some("cpu"));
        // Blocks of several schedulers (pipeline stages) are counted together by the engine; one has them nearly always.
        if let [scheduler] = schedulers {
            reading.read_blocks(heap, engine, *scheduler);
        }
        reading.read_counters(heap, engine);
        reading
    }

    fn read_blocks<M: Memory>(&mut self, heap: &mut Heap<M>, engine: Ref, scheduler: Ref) {
        let entries = one(heap, scheduler, ALLOCATORS).and_then(|dict| heap.entries(dict).ok());
        for (device, allocator) in entries.unwrap_or_default().into_iter().take(4) {
            let Some(name) = scalar(heap, device, &["_name_"]) else { continue };
            let Some(name) = name.value.text().map(str::to_owned) else { continue };
            let total = TOTALS.iter().find(|(of, _)| *of == name);
            let total = total.and_then(|(_, path)| scalar(heap, engine, path));
            let free = FREE.iter().filter_map(|path| {
                let container = one(heap, allocator, path)?;
                length(heap, container)
            });
            let free = free.collect();
            self.blocks.push((name, total, free));
        }
    }

    fn read_counters<M: Memory>(&mut self, heap: &mut Heap<M>, engine: Ref) {
        let Some(loggers) = one(heap, engine, &["stat_loggers"]) else { return };
        let Ok(Some(logger)) = heap.entry(loggers, "prometheus") else { return };
        let Some(metrics) = one(heap, logger, &["metrics"]) else { return };
        for (name, cell) in COUNTERS.into_iter().zip(&mut self.counters) {
            *cell =
                series(heap, metrics, name).and_then(|series| scalar(heap, series, &["_value", "_value"]));
        }
        let Some(histogram) = series(heap, metrics, HISTOGRAM) else { return };
        self.tokens = scalar(heap, histogram, &["_sum", "_value"]);
        let Some(buckets) = one(heap, histogram, &["_buckets"]) else { return };
        let Ok(buckets) = heap.items_of(buckets) else { return };
        self.buckets = buckets.into_iter().map(|bucket| scalar(heap, bucket, &["_value"])).collect();
    }

    /// What of the state is to be believed.
    pub fn state(&self, verdicts: &Verdicts) -> V0State {
        let [running, waiting, swapped] = &self.queues;
        let sum = |cells: &[Option<Cell>]| sum(cells, verdicts);
        let mut state = V0State {
            running: sum(running),
            waiting: sum(waiting),
            swapped: sum(swapped),
            ..V0State::default()
        };
        for (device, total, free) in &self.blocks {
            let usage = usage(total.as_ref(), free, verdicts);
            // Without a GPU there is no cache on one.
            match (device.as_str(), self.on_cpu) {
                ("GPU", false) => state.gpu_cache = usage,
                ("CPU", false) | ("GPU", true) => state.cpu_cache = usage,
                _ => {}
            }
        }
        state
    }

    /// What of the counters is to be believed.
    pub fn counts(&self, verdicts: &Verdicts) -> V0Counts {
        let count = |cell: &Option<Cell>| whole(cell.as_ref()?, verdicts);
        let [prompt_tokens, generation_tokens, preemptions] = &self.counters;
        let iterations = self
            .buckets
            .as_ref()
            .and_then(|buckets| buckets.iter().map(|bucket| whole(bucket, verdicts)).sum::<Option<u64>>());
        V0Counts {
            iterations,
            prompt_tokens: count(prompt_tokens),
            generation_tokens: count(generation_tokens),
            tokens: count(&self.tokens),
            preemptions: count(preemptions).or_else(|| sum(&self.preemptions, verdicts)),
        }
    }
}

/// The share of blocks in use; 0 where there are none.
fn usage(total: Option<&Cell>, free: &[Cell], verdicts: &Verdicts) -> Option<f64> {
    let total = whole(total?, verdicts)?;
    let free = free.iter().map(|cell| whole(cell, verdicts)).sum::<Option<u64>>()?;
    if total == 0 {
        return Some(0.0);
    }
    #[allow(clippy::cast_precision_loss, reason = "numbers of blocks are far below 2^53")]
    let (free, all) = (free as f64, total as f64);
    Some(1.0 - free / all).filter(|usage| (0.0..=1.0).contains(usage))
}

/// The sum of what is to be believed; `None` unless all of it is.
fn sum(cells: &[Option<Cell>], verdicts: &Verdicts) -> Option<u64> {
    if cells.is_empty() {
        return None;
    }
    cells.iter().map(|cell| whole(cell.as_ref()?, verdicts)).sum()
}

/// A count, which metrics keep as a float.
fn whole(cell: &Cell, verdicts: &Verdicts) -> Option<u64> {
    if !cell.good(verdicts) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    let float = |number: f64| (0.0..1e18).contains(&number).then_some(number as u64);
    cell.value.count().or_else(|| cell.value.number().and_then(float))
}

fn one<M: Memory>(heap: &mut Heap<M>, root: Ref, path: Path) -> Option<Ref> {
    heap.paths(root, &[path]).pop()?.ok()?
}

fn scalar<M: Memory>(heap: &mut Heap<M>, root: Ref, path: Path) -> Option<Cell> {
    let end = one(heap, root, path)?;
    heap.scalars(&[end]).pop()?.ok()
}

fn length<M: Memory>(heap: &mut Heap<M>, container: Ref) -> Option<Cell> {
    let (length, seen) = heap.lengths(&[container]).pop()?.ok()??;
    Some(Cell { value: Value::Int(length.into()), seen })
}

/// The only series of a metric (a model's).
fn series<M: Memory>(heap: &mut Heap<M>, metrics: Ref, name: &'static str) -> Option<Ref> {
    let metric = heap.attribute(metrics, name).ok()??;
    let series = heap.attribute(metric, "_metrics").ok()??;
    heap.entries(series).ok()?.first().map(|(_, series)| *series)
}
