//! The scheduler's requests: ids, times, numbers.

use super::parts::{Values, believed, moments, values};
use super::plan::{
    COMPLETED, Count, EPOCH_OFFSET, Moment, REQ_COUNTS, REQ_LENGTHS, REQ_TIMES, RETURNS, STEP_TIMES, TIMES,
    epoch_offset,
};
use crate::dialect::signal::sglang::{Place, ReqState, ReqTimes};
use crate::heap::scalars::Cell;
use crate::heap::{Addr, Heap, Memory, Ref, Refusal, Value, Verdicts};
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

/// How much is read of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// All.
    Whole,
    /// What changes with a decode step: the rest is known.
    Step,
}

impl Depth {
    /// How much is to be read of a request that stands at `place` and was last seen so. What a return to the queue
    /// changes is told by the count of those.
    pub fn of(known: Option<&ReqState>, place: Place) -> Self {
        let decodes = |known: &ReqState| {
            known.times.prefill_finished.is_some()
                && known.retractions.is_some()
                && known.spec_verify_steps.is_none()
        };
        match place {
            Place::Running | Place::Kept if known.is_some_and(decodes) => Self::Step,
            Place::Running | Place::Kept => Self::Whole,
            Place::Waiting | Place::Grammar | Place::Chunked => Self::Whole,
            Place::Bootstrap | Place::Inflight | Place::Prealloc | Place::Transfer => Self::Whole,
        }
    }
}

/// The attributes that are read of a request and of its `time_stats`.
#[derive(Default)]
struct Names {
    /// Moments that are the request's own.
    own: &'static [Moment<ReqTimes>],
    counts: Vec<Count>,
    lengths: Vec<Count>,
    times: Vec<Moment<ReqTimes>>,
}

impl Names {
    /// `steps`: with what changes at every step.
    fn of(depth: Depth, steps: bool) -> Self {
        let lengths =
            REQ_LENGTHS.iter().filter(|(_, _, step)| if *step { steps } else { depth == Depth::Whole });
        let step_times = STEP_TIMES.iter().filter(|_| steps);
        Self {
            own: if depth == Depth::Whole { REQ_TIMES } else { &[] },
            counts: if depth == Depth::Whole { REQ_COUNTS.to_vec() } else { vec![RETURNS] },
            lengths: lengths.map(|(name, field, _)| (*name, *field)).collect(),
            times: match depth {
                Depth::Whole => TIMES.iter().chain(step_times).copied().collect(),
                Depth::Step => step_times.chain([&COMPLETED]).copied().collect(),
            },
        }
    }
}

/// What was read of requests, before it is known what of it is to be believed.
#[derive(Default)]
pub(super) struct Requests {
    whole: Group,
    step: Group,
    /// Where each stands in its group.
    places: Vec<(Depth, usize)>,
}

/// Requests of which the same was read.
#[derive(Default)]
struct Group {
    names: Names,
    /// Id, moments and numbers of each.
    own: Vec<Values>,
    lengths: Vec<Values>,
    /// Moments of its `time_stats`, and the clock's offset.
    times: Vec<Values>,
}

impl Requests {
    /// Reads them. What is no request and has none is dropped from the list. `steps`: with what changes at every step;
    /// `known`: the requests by address, as they were seen last.
    pub fn read<'a, M: Memory>(
        heap: &mut Heap<M>,
        listed: &mut Vec<Listed>,
        steps: bool,
        known: impl Fn(Addr) -> Option<&'a ReqState>,
    ) -> Self {
        resolve(heap, listed);
        let (mut whole, mut step, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for Listed { place, object } in &*listed {
            let depth = Depth::of(known(object.addr), *place);
            let group = if depth == Depth::Whole { &mut whole } else { &mut step };
            places.push((depth, group.len()));
            group.push(*object);
        }
        let whole = Group::read(heap, &whole, Names::of(Depth::Whole, steps));
        let step = Group::read(heap, &step, Names::of(Depth::Step, steps));
        Self { whole, step, places }
    }

    /// A request as it stood; `None` where the object is none. `known`: as it was seen last, by its id.
    pub fn state<'a>(
        &self,
        number: usize,
        place: Place,
        verdicts: &Verdicts,
        now: MonoTime,
        known: impl Fn(&str) -> Option<&'a ReqState>,
    ) -> Result<Option<ReqState>, Refusal> {
        let Some((depth, index)) = self.places.get(number).copied() else { return Ok(None) };
        let group = if depth == Depth::Whole { &self.whole } else { &self.step };
        let Some(rid) = group.rid(index, verdicts)? else { return Ok(None) };
        let mut state = match depth {
            Depth::Whole => fresh(rid, place),
            // Another request stands where the known one was.
            Depth::Step => ReqState { place, ..known(rid).ok_or(Refusal::Torn)?.clone() },
        };
        let before = state.retractions;
        group.fill(index, &mut state, verdicts, now)?;
        if depth == Depth::Step && state.retractions != before {
            return Err(Refusal::Torn);
        }
        // Every request has the counters; only with speculative decoding do they move.
        if state.spec_verify_steps == Some(0) {
            (state.spec_verify_steps, state.spec_accepted) = (None, None);
        }
        Ok(Some(state))
    }
}

fn fresh(rid: &str, place: Place) -> ReqState {
    ReqState {
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
    }
}

impl Group {
    fn read<M: Memory>(heap: &mut Heap<M>, objects: &[Ref], names: Names) -> Self {
        let own: Vec<&'static str> = std::iter::once(RID)
            .chain(names.own.iter().map(|(name, _)| *name))
            .chain(names.counts.iter().map(|(name, _)| *name))
            .collect();
        let all: Vec<&'static str> =
            own.iter().copied().chain(names.lengths.iter().map(|(name, _)| *name)).chain([STATS]).collect();
        let wants: Vec<(Ref, &'static str)> =
            objects.iter().flat_map(|object| all.iter().map(|name| (*object, *name))).collect();
        let found = heap.attributes(&wants);
        let part = |from: usize, to: usize| -> Vec<_> {
            found
                .chunks(all.len())
                .flat_map(|of_one| of_one.get(from..to).unwrap_or_default())
                .copied()
                .collect()
        };
        let behind = own.len() + names.lengths.len();
        let stats = part(behind, behind + 1);
        let scalars = of_refs(&part(0, own.len()), |refs| heap.scalars(refs));
        let lengths = of_refs(&part(own.len(), behind), |refs| lengths(heap, refs));
        Self {
            own: scalars.chunks(own.len()).map(<[_]>::to_vec).collect(),
            lengths: lengths.chunks(names.lengths.len().max(1)).map(<[_]>::to_vec).collect(),
            times: times(heap, &stats, &names.times),
            names,
        }
    }

    fn rid(&self, index: usize, verdicts: &Verdicts) -> Result<Option<&str>, Refusal> {
        let Some(rid) = self.own.get(index).and_then(|own| own.first()) else { return Ok(None) };
        Ok(believed(rid, verdicts)?.and_then(Value::text))
    }

    /// Fills in what was read.
    fn fill(
        &self,
        index: usize,
        state: &mut ReqState,
        verdicts: &Verdicts,
        now: MonoTime,
    ) -> Result<(), Refusal> {
        let of = |values: &'_ [Values]| values.get(index).cloned().unwrap_or_default();
        let own = of(&self.own);
        let own = own.get(1..).unwrap_or_default();
        let (times, counts) = own.split_at(self.names.own.len().min(own.len()));
        moments(&mut state.times, self.names.own, times, verdicts, now)?;
        fill(state, &self.names.counts, counts, verdicts)?;
        fill(state, &self.names.lengths, &of(&self.lengths), verdicts)?;
        let values = of(&self.times);
        let (times, offset) = values.split_at(self.names.times.len().min(values.len()));
        moments(&mut state.times, &self.names.times, times, verdicts, now)?;
        let offset = offset.first().map(|cell| believed(cell, verdicts)).transpose()?.flatten();
        state.times.epoch_offset = offset.and_then(epoch_offset).or(state.times.epoch_offset);
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::EngineTime;

    #[test]
    fn of_a_request_that_decodes_only_what_a_step_changes_is_read() {
        let mut known = ReqState { retractions: Some(0), ..fresh("a", Place::Running) };
        assert_eq!(Depth::of(Some(&known), Place::Running), Depth::Whole, "its prefill goes on");
        known.times.prefill_finished = Some(EngineTime(7.0));
        assert_eq!(Depth::of(Some(&known), Place::Running), Depth::Step);
        assert_eq!(Depth::of(Some(&known), Place::Kept), Depth::Step);
        assert_eq!(Depth::of(Some(&known), Place::Waiting), Depth::Whole, "it was sent back");
        assert_eq!(Depth::of(None, Place::Running), Depth::Whole);
        let drafts = ReqState { spec_verify_steps: Some(1), ..known.clone() };
        assert_eq!(Depth::of(Some(&drafts), Place::Running), Depth::Whole);
        known.retractions = None;
        assert_eq!(Depth::of(Some(&known), Place::Running), Depth::Whole, "nothing tells of returns");
    }
}
