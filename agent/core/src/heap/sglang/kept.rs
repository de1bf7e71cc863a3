//! Requests that are in no list any more: a scheduler that plans ahead keeps the batches whose results it has not worked
//! in yet, and those that its device may still use, with all the requests that were in them. So one that ended is still
//! there for the length of a forward, and for as long as the scheduler idles after it.

use super::plan::Path;
use crate::heap::{Heap, Memory, Ref, Refusal};

/// `(batch, result)` of forwards whose results are not worked in (`event_loop_overlap`, 0.3 to 0.5.23).
const RESULTS: Path = &["result_queue"];
/// The last two forwards' batches: `ModelWorkerBatch` (0.5.6 to 0.5.12), `[batch, [value of each field]]` (0.5.13 on).
const PINNED: Path = &["batch_record_buf"];
/// Where they stand.
pub(super) const PATHS: [Path; 2] = [RESULTS, PINNED];
/// A batch's requests.
const REQS: &str = "reqs";

/// The lists of requests in batches that are kept; what cannot be read, or is nothing of the kind, has none.
pub(super) fn lists<M: Memory>(heap: &mut Heap<M>, ends: Vec<Result<Option<Ref>, Refusal>>) -> Vec<Ref> {
    let containers: Vec<Ref> = ends.into_iter().filter_map(|end| end.ok()?).collect();
    let kept: Vec<Ref> = items(heap, &containers).into_iter().flatten().flatten().collect();
    let (mut batches, mut values) = (Vec::new(), Vec::new());
    for (kept, inside) in kept.iter().zip(items(heap, &kept)) {
        match inside.as_deref() {
            // Both pairs begin with the batch. That of the second was changed since; the values are as they were.
            Some([_, snapshot, ..]) if is_list(heap, *snapshot) => values.push(*snapshot),
            Some([batch, ..]) => batches.push(*batch),
            Some([]) => {}
            None => batches.push(*kept),
        }
    }
    let fields = items(heap, &values);
    // `reqs` is the first field.
    let mut lists: Vec<Ref> = fields.into_iter().filter_map(|fields| fields?.first().copied()).collect();
    let wants: Vec<(Ref, &'static str)> = batches.iter().map(|batch| (*batch, REQS)).collect();
    lists.extend(heap.attributes(&wants).into_iter().filter_map(|found| found.ok()?));
    lists
}

/// The items of each that is a container.
fn items<M: Memory>(heap: &mut Heap<M>, objects: &[Ref]) -> Vec<Option<Vec<Ref>>> {
    heap.items(objects).into_iter().map(Result::ok).collect()
}

fn is_list<M: Memory>(heap: &mut Heap<M>, object: Ref) -> bool {
    heap.type_of(object.addr).is_ok_and(|of_type| of_type.name == "list")
}
