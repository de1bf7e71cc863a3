//! The scheduler's state, as numbers.

use super::plan::{ACCEPTED, EVICTABLE, FREE_PAGES, GAUGES, MAX_TOKENS, PAGE_SIZE, Path, QUEUED, RUNNING};
use crate::dialect::signal::sglang::{LoadSource, SglangLoad};
use crate::heap::scalars::Cell;
use crate::heap::{Heap, Memory, Ref, Refusal, Value, Verdicts};

/// What was read of it, before it is known what of it is to be believed.
#[derive(Debug, Default)]
pub(super) struct LoadReading {
    gauges: Vec<Option<Cell>>,
    accepted: Vec<Option<Cell>>,
    /// Running and queued.
    lengths: Vec<Option<Cell>>,
    /// Tokens there are, tokens a page, evictable tokens.
    sizes: Vec<Option<Cell>>,
    pages: Vec<Option<Cell>>,
}

impl LoadReading {
    /// Reads it.
    pub fn read<M: Memory>(heap: &mut Heap<M>, root: Ref) -> Self {
        let gauges: Vec<Path> = GAUGES.iter().map(|(path, _)| *path).collect();
        let accepted: Vec<Path> =
            ACCEPTED.iter().flat_map(|(tokens, forwards)| [*tokens, *forwards]).collect();
        let lengths = heap.paths(root, &[RUNNING, QUEUED]);
        let sizes = cells(heap, root, &[MAX_TOKENS, PAGE_SIZE, EVICTABLE]);
        let pages = if sizes.iter().all(Option::is_some) { pages(heap, root) } else { Vec::new() };
        Self {
            gauges: cells(heap, root, &gauges),
            accepted: cells(heap, root, &accepted),
            lengths: lengths.into_iter().map(|list| length(heap, list)).collect(),
            sizes,
            pages,
        }
    }

    /// What of it is to be believed.
    pub fn load(&self, verdicts: &Verdicts) -> SglangLoad {
        let mut load = SglangLoad::of(LoadSource::Objects);
        let good = |cell: &Option<Cell>| {
            cell.as_ref().filter(|cell| cell.good(verdicts)).map(|cell| cell.value.clone())
        };
        for ((_, set), cell) in GAUGES.iter().zip(&self.gauges) {
            if let Some(value) = good(cell) {
                set(&mut load, &value);
            }
        }
        let count = |cell: Option<&Option<Cell>>| cell.and_then(good).and_then(|value| value.count());
        load.running = count(self.lengths.first());
        load.queued = count(self.lengths.get(1));
        load.max_tokens = count(self.sizes.first());
        load.accept_length = self.accepted.chunks(2).find_map(|pair| {
            let number = |cell: Option<&Option<Cell>>| cell.and_then(good).and_then(|value| value.number());
            let (tokens, forwards) = (number(pair.first())?, number(pair.get(1))?);
            (forwards > 0.0).then(|| tokens / forwards)
        });
        load.used_tokens = self.used(|cell| count(Some(cell)));
        load
    }

    /// Tokens in use: those that are neither free nor evictable.
    fn used(&self, count: impl Fn(&Option<Cell>) -> Option<u64>) -> Option<u64> {
        let sizes: Option<Vec<u64>> = self.sizes.iter().map(&count).collect();
        let sizes = sizes?;
        let [max, page, evictable] = sizes.as_slice() else { return None };
        // Released pages are kept apart from 0.5.6 on; free ones always.
        let free = count(self.pages.first()?)?;
        let released =
            self.pages.get(1).map_or(Some(0), |cell| if cell.is_some() { count(cell) } else { Some(0) })?;
        max.checked_sub(free.checked_add(released)?.checked_mul(*page)?)?.checked_sub(*evictable)
    }
}

fn cells<M: Memory>(heap: &mut Heap<M>, root: Ref, paths: &[Path]) -> Vec<Option<Cell>> {
    let ends = heap.paths(root, paths);
    let refs: Vec<Ref> = ends.iter().filter_map(|end| end.ok()?).collect();
    let mut cells = heap.scalars(&refs).into_iter();
    let cell = |end: Result<Option<Ref>, Refusal>| {
        end.ok()??;
        cells.next()?.ok()
    };
    ends.into_iter().map(cell).collect()
}

fn length<M: Memory>(heap: &mut Heap<M>, list: Result<Option<Ref>, Refusal>) -> Option<Cell> {
    let (length, seen) = heap.lengths(&[list.ok()??]).pop()?.ok()??;
    Some(Cell { value: Value::Int(length.into()), seen })
}

fn pages<M: Memory>(heap: &mut Heap<M>, root: Ref) -> Vec<Option<Cell>> {
    let tensors = heap.paths(root, FREE_PAGES);
    tensors.into_iter().map(|tensor| heap.tensor_length(tensor.ok()??).ok()).collect()
}
