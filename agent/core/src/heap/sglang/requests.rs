//! The scheduler's requests: ids, times, numbers.

use super::parts::{Values, believed, moments, values};
use super::plan::{
    Count, EPOCH_OFFSET, Moment, REQ_COUNTS, REQ_LENGTHS, REQ_TIMES, STEP_TIMES, TIMES, epoch_offset,
};
use crate::dialect::signal::sglang::{Place, ReqState, ReqTimes};
use crate::heap::scalars::Cell;
use crate::heap::{Heap, Memory, Ref, Refusal, Value, Verdicts};
use crate::time::MonoTime;

/// The class of requests.
const REQ: &str = "Req";
/// Id and times.
const RID: &str = "rid";
const STATS: &str = "time_stats";

/// An object found in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// Where the list is.
    pub place: Place,
    /// The request, or what has it.
    pub object: Ref,
}

/// What was read of requests, before it is known what of it is to be believed.
#[derive(Default)]
pub(super) struct Requests {
    /// Id, moments and numbers of each.
    own: Vec<Values>,
    lengths: Vec<Values>,
    /// Moments of its `time_stats`, and the clock's offset.
    times: Vec<Values>,
    moments: Vec<Moment<ReqTimes>>,
    counted: Vec<Count>,
}

impl Requests {
    /// Reads them. What is no request and has none is dropped from the list. `steps`: with what changes at every step.
    pub fn read<M: Memory>(heap: &mut Heap<M>, listed: &mut Vec<Listed>, steps: bool) -> Self {
        resolve(heap, listed);
        let objects: Vec<Ref> = listed.iter().map(|listed| listed.object).collect();
        let moments: Vec<Moment<ReqTimes>> =
            TIMES.iter().chain(STEP_TIMES.iter().filter(|_| steps)).copied().collect();
        let counted: Vec<Count> = REQ_LENGTHS
            .iter()
            .filter(|(_, _, step)| steps || !step)
            .map(|(name, field, _)| (*name, *field))
            .collect();
        let own: Vec<&'static str> = std::iter::once(RID)
            .chain(REQ_TIMES.iter().map(|(name, _)| *name))
            .chain(REQ_COUNTS.iter().map(|(name, _)| *name))
            .collect();
        let names: Vec<&'static str> =
            own.iter().copied().chain(counted.iter().map(|(name, _)| *name)).chain([STATS]).collect();
        let wants: Vec<(Ref, &'static str)> =
            objects.iter().flat_map(|object| names.iter().map(|name| (*object, *name))).collect();
        let found = heap.attributes(&wants);
        let part = |from: usize, to: usize| -> Vec<_> {
            found
                .chunks(names.len())
                .flat_map(|of_one| of_one.get(from..to).unwrap_or_default())
                .copied()
                .collect()
        };
        let behind = own.len() + counted.len();
        let stats = part(behind, behind + 1);
        let scalars = of_refs(&part(0, own.len()), |refs| heap.scalars(refs));
        let lengths = of_refs(&part(own.len(), behind), |refs| lengths(heap, refs));
        Self {
            own: scalars.chunks(own.len().max(1)).map(<[_]>::to_vec).collect(),
            lengths: lengths.chunks(counted.len().max(1)).map(<[_]>::to_vec).collect(),
            times: times(heap, &stats, &moments),
            moments,
            counted,
        }
    }

    /// A request as it stood; `None` where the object is none.
    pub fn state(
        &self,
        number: usize,
        place: Place,
        verdicts: &Verdicts,
        now: MonoTime,
    ) -> Result<Option<ReqState>, Refusal> {
        let own = self.own.get(number).map(Vec::as_slice).unwrap_or_default();
        let Some((rid, own)) = own.split_first() else { return Ok(None) };
        let Some(rid) = believed(rid, verdicts)?.and_then(Value::text) else { return Ok(None) };
        let mut state = ReqState {
            rid: rid.to_owned(),
            place,
            times: ReqTimes::default(),
            prompt_tokens: None,
            output_tokens: None,
            cached_tokens: None,
            retractions: None,
            spec_verify_steps: None,
            spec_accepted: None,
            bootstrap_room: None,
        };
        let (times, counts) = own.split_at(REQ_TIMES.len().min(own.len()));
        moments(&mut state.times, REQ_TIMES, times, verdicts, now)?;
        fill(&mut state, REQ_COUNTS, counts, verdicts)?;
        // Every request has the counters; only with speculative decoding do they move.
        if state.spec_verify_steps == Some(0) {
            (state.spec_verify_steps, state.spec_accepted) = (None, None);
        }
        let lengths = self.lengths.get(number).map(Vec::as_slice).unwrap_or_default();
        fill(&mut state, &self.counted, lengths, verdicts)?;
        let values = self.times.get(number).map(Vec::as_slice).unwrap_or_default();
        let (times, offset) = values.split_at(self.moments.len().min(values.len()));
        moments(&mut state.times, &self.moments, times, verdicts, now)?;
        let offset = offset.first().map(|cell| believed(cell, verdicts)).transpose()?.flatten();
        state.times.epoch_offset = offset.and_then(epoch_offset);
        Ok(Some(state))
    }
}

fn fill(
    state: &mut ReqState,
    counts: &[Count],
    cells: &[Result<Option<Cell>, Refusal>],
    verdicts: &Verdicts,
) -> Result<(), Refusal> {
    for ((_, field), cell) in counts.iter().zip(cells) {
        if let Some(count) = believed(cell, verdicts)?.and_then(Value::count) {
            *field(state) = Some(count);
        }
    }
    Ok(())
}

/// Moments of requests' `time_stats`; none where a request has no such object.
fn times<M: Memory>(
    heap: &mut Heap<M>,
    stats: &[Result<Option<Ref>, Refusal>],
    moments: &[Moment<ReqTimes>],
) -> Vec<Values> {
    let names: Vec<&'static str> = moments.iter().map(|(name, _)| *name).chain([EPOCH_OFFSET]).collect();
    let objects: Vec<Ref> = stats.iter().filter_map(|found| found.ok()?).collect();
    let mut read = values(heap, &objects, &names).into_iter();
    let mut of_one = |found: &Result<Option<Ref>, Refusal>| match found {
        Ok(Some(_)) => read.next().unwrap_or_default(),
        Ok(None) => Vec::new(),
        Err(reason) => vec![Err(*reason)],
    };
    stats.iter().map(&mut of_one).collect()
}

/// Reads what exists; an attribute that is not there stays `None`.
fn of_refs(
    found: &[Result<Option<Ref>, Refusal>],
    read: impl FnOnce(&[Ref]) -> Vec<Result<Cell, Refusal>>,
) -> Values {
    let refs: Vec<Ref> = found.iter().filter_map(|found| found.ok()?).collect();
    let mut cells = read(&refs).into_iter();
    let mut cell = |found: &Result<Option<Ref>, Refusal>| match found {
        Ok(Some(_)) => cells.next().unwrap_or(Err(Refusal::Unreadable)).map(Some),
        Ok(None) => Ok(None),
        Err(reason) => Err(*reason),
    };
    found.iter().map(&mut cell).collect()
}

/// Lengths as values; `None` where an object has none.
fn lengths<M: Memory>(heap: &mut Heap<M>, refs: &[Ref]) -> Vec<Result<Cell, Refusal>> {
    let lengths = heap.lengths(refs).into_iter().zip(refs);
    let cell = |(length, of): (Result<Option<(u64, _)>, Refusal>, &Ref)| {
        Ok(match length? {
            Some((length, seen)) => Cell { value: Value::Int(length.into()), seen },
            None => Cell { value: Value::None, seen: of.seen },
        })
    };
    lengths.map(cell).collect()
}

/// What a queue holds is a request, or has one (PD: `DecodeRequest.req`). What is neither is dropped.
fn resolve<M: Memory>(heap: &mut Heap<M>, listed: &mut Vec<Listed>) {
    let objects: Vec<Ref> = listed.iter().map(|listed| listed.object).collect();
    let typed = heap.types_of(&objects);
    let is_req: Vec<bool> =
        typed.iter().map(|typed| typed.as_ref().is_ok_and(|(of_type, _)| of_type.name == REQ)).collect();
    let others: Vec<(Ref, &'static str)> = objects
        .iter()
        .zip(&is_req)
        .zip(&typed)
        .filter(|((_, is_req), typed)| !**is_req && typed.is_ok())
        .map(|((object, _), _)| (*object, "req"))
        .collect();
    let mut inner = heap.attributes(&others).into_iter();
    let mut number = 0;
    listed.retain_mut(|listed| {
        let (is_req, typed) = (is_req[number], typed[number].is_ok());
        number += 1;
        if is_req || !typed {
            // What could not be read is refused when its id is asked for.
            return true;
        }
        match inner.next() {
            Some(Ok(Some(object))) => {
                listed.object = object;
                true
            }
            Some(Ok(None) | Err(_)) | None => false,
        }
    });
}
