//! The scheduler's requests: ids, times, numbers.

use super::parts::{Values, believed, moments};
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
    /// changes is told by the count of those; its prefill after one by `last_prefill_finished` alone, since
    /// `prefill_finished` stays the first's (`set_prefill_finished_time` of 0.5.16's `req_time_stats.py`).
    pub fn of(known: Option<&ReqState>, place: Place) -> Self {
        let prefilled = |known: &ReqState| match known.retractions {
            None => false,
            Some(0) => known.times.prefill_finished.is_some(),
            Some(1..) => known.times.last_prefill_finished.is_some(),
        };
        let decodes = |known: &ReqState| prefilled(known) && known.spec_verify_steps.is_none();
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

    /// Id, moments and numbers of the request itself.
    fn own(&self) -> impl Iterator<Item = &'static str> + '_ {
        let moments = self.own.iter().map(|(name, _)| *name);
        [RID].into_iter().chain(moments).chain(self.counts.iter().map(|(name, _)| *name))
    }
}

/// What was read of requests, before it is known what of it is to be believed.
#[derive(Default)]
pub(super) struct Requests {
    whole: Names,
    step: Names,
    read: Vec<Read>,
}

/// What was read of one.
struct Read {
    depth: Depth,
    /// Id, moments and numbers.
    own: Values,
    lengths: Values,
    /// Moments of its `time_stats`, and the clock's offset.
    times: Values,
}

impl Requests {
    /// Reads them, all together. What is no request and has none is dropped from the list. `steps`: with what changes at
    /// every step; `known`: the requests by address, as they were seen last.
    pub fn read<'a, M: Memory>(
        heap: &mut Heap<M>,
        listed: &mut Vec<Listed>,
        steps: bool,
        known: impl Fn(Addr) -> Option<&'a ReqState>,
    ) -> Self {
        resolve(heap, listed);
        let depth = |listed: &Listed| Depth::of(known(listed.object.addr), listed.place);
        let depths: Vec<Depth> = listed.iter().map(depth).collect();
        let (whole, step) = (Names::of(Depth::Whole, steps), Names::of(Depth::Step, steps));
        let names = |depth: Depth| if depth == Depth::Whole { &whole } else { &step };
        let (mut own, mut lengthy, mut stats) = (Vec::new(), Vec::new(), Vec::new());
        for (listed, depth) in listed.iter().zip(&depths) {
            own.extend(names(*depth).own().map(|name| (listed.object, name)));
            lengthy.extend(names(*depth).lengths.iter().map(|(name, _)| (listed.object, *name)));
            stats.push((listed.object, STATS));
        }
        let wants: Vec<(Ref, &'static str)> = own.iter().chain(&lengthy).chain(&stats).copied().collect();
        let found = heap.attributes(&wants);
        let (of_own, rest) = found.split_at(own.len().min(found.len()));
        let (of_lengths, of_stats) = rest.split_at(lengthy.len().min(rest.len()));
        let mut own = of_refs(of_own, |refs| heap.scalars(refs)).into_iter();
        let mut lengths = of_refs(of_lengths, |refs| lengths(heap, refs)).into_iter();
        let counts = depths.iter().map(|depth| names(*depth).times.len() + 1);
        let mut times = times(heap, of_stats, depths.iter().map(|depth| names(*depth))).into_iter();
        let read = depths.iter().zip(counts).zip(of_stats).map(|((depth, count), stats)| Read {
            depth: *depth,
            own: own.by_ref().take(names(*depth).own().count()).collect(),
            lengths: lengths.by_ref().take(names(*depth).lengths.len()).collect(),
            times: match stats {
                Ok(Some(_)) => times.by_ref().take(count).collect(),
                Ok(None) => Vec::new(),
                Err(reason) => vec![Err(*reason)],
            },
        });
        let read = read.collect();
        Self { whole, step, read }
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
        let Some(read) = self.read.get(number) else { return Ok(None) };
        let Some(rid) = read.rid(verdicts)? else { return Ok(None) };
        let (names, mut state) = match read.depth {
            Depth::Whole => (&self.whole, fresh(rid, place)),
            // Another request may stand where the known one was.
            Depth::Step => (&self.step, ReqState { place, ..known(rid).ok_or(Refusal::Torn)?.clone() }),
        };
        let before = state.retractions;
        read.fill(names, &mut state, verdicts, now)?;
        if read.depth == Depth::Step && state.retractions != before {
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

impl Read {
    fn rid(&self, verdicts: &Verdicts) -> Result<Option<&str>, Refusal> {
        let Some(rid) = self.own.first() else { return Ok(None) };
        Ok(believed(rid, verdicts)?.and_then(Value::text))
    }

    /// Fills in what was read.
    fn fill(
        &self,
        names: &Names,
        state: &mut ReqState,
        verdicts: &Verdicts,
        now: MonoTime,
    ) -> Result<(), Refusal> {
        let own = self.own.get(1..).unwrap_or_default();
        let (times, counts) = own.split_at(names.own.len().min(own.len()));
        moments(&mut state.times, names.own, times, verdicts, now)?;
        fill(state, &names.counts, counts, verdicts)?;
        fill(state, &names.lengths, &self.lengths, verdicts)?;
        let (times, offset) = self.times.split_at(names.times.len().min(self.times.len()));
        moments(&mut state.times, &names.times, times, verdicts, now)?;
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

/// Moments of requests' `time_stats`, one after the other; none where a request has no such object.
fn times<'a, M: Memory>(
    heap: &mut Heap<M>,
    stats: &[Result<Option<Ref>, Refusal>],
    names: impl Iterator<Item = &'a Names>,
) -> Values {
    let there = stats.iter().zip(names).filter_map(|(found, names)| Some((found.ok()??, names)));
    let wants: Vec<(Ref, &'static str)> = there
        .flat_map(|(object, names)| {
            names.times.iter().map(|(name, _)| *name).chain([EPOCH_OFFSET]).map(move |name| (object, name))
        })
        .collect();
    let found = heap.attributes(&wants);
    of_refs(&found, |refs| heap.scalars(refs))
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
        known.retractions = Some(1);
        assert_eq!(
            Depth::of(Some(&known), Place::Running),
            Depth::Whole,
            "the first prefill's end is told only"
        );
        known.times.last_prefill_finished = Some(EngineTime(9.0));
        assert_eq!(Depth::of(Some(&known), Place::Running), Depth::Step);
        known.retractions = None;
        assert_eq!(Depth::of(Some(&known), Place::Running), Depth::Whole, "nothing tells of returns");
    }
}
