//! Readings that the scheduler's and the frontend's objects share: requests' times and numbers.

use super::plan::Moment;
use crate::heap::scalars::Cell;
use crate::heap::{Heap, Memory, Ref, Refusal, Value, Verdicts};
use crate::time::{EngineTime, MonoTime};

/// A moment lies no further back than this.
const OLDEST: f64 = 30.0 * 86_400.0;
/// A reading is no longer than this.
const LATEST: f64 = 5.0;

/// Some attributes' values of one object; `None` where it has no such attribute.
pub(in crate::heap) type Values = Vec<Result<Option<Cell>, Refusal>>;

/// Values of attributes of objects, by object. An attribute that is not there is `None`.
pub(in crate::heap) fn values<M: Memory>(
    heap: &mut Heap<M>,
    objects: &[Ref],
    names: &[&'static str],
) -> Vec<Values> {
    let wants: Vec<(Ref, &'static str)> =
        objects.iter().flat_map(|object| names.iter().map(|name| (*object, *name))).collect();
    let found = heap.attributes(&wants);
    let refs: Vec<Ref> = found.iter().filter_map(|found| found.ok()?).collect();
    let mut cells = heap.scalars(&refs).into_iter();
    let mut values = found.into_iter().map(|found| match found {
        Ok(Some(_)) => cells.next().unwrap_or(Err(Refusal::Unreadable)).map(Some),
        Ok(None) => Ok(None),
        Err(reason) => Err(reason),
    });
    objects.iter().map(|_| values.by_ref().take(names.len()).collect()).collect()
}

/// A value that was read, with all that led to it, twice alike; `Err` where it was not.
pub(in crate::heap) fn believed<'a>(
    cell: &'a Result<Option<Cell>, Refusal>,
    verdicts: &Verdicts,
) -> Result<Option<&'a Value>, Refusal> {
    match cell {
        Ok(Some(cell)) if cell.good(verdicts) => Ok(Some(&cell.value)),
        Ok(Some(_)) => Err(Refusal::Torn),
        Ok(None) => Ok(None),
        Err(reason) => Err(*reason),
    }
}

/// Fills in moments from the values of their attributes. `now`: when the reading began.
pub(super) fn moments<T>(
    into: &mut T,
    moments: &[Moment<T>],
    values: &[Result<Option<Cell>, Refusal>],
    verdicts: &Verdicts,
    now: MonoTime,
) -> Result<(), Refusal> {
    for ((_, field), cell) in moments.iter().zip(values) {
        if let Some(value) = believed(cell, verdicts)? {
            let at = moment(value, now)?;
            if at.is_some() {
                *field(into) = at;
            }
        }
    }
    Ok(())
}

/// A moment: `None` where it has not come (0, `None`) or is of another clock (Unix time); refused where no clock of the
/// machine can have shown it.
pub(super) fn moment(value: &Value, now: MonoTime) -> Result<Option<EngineTime>, Refusal> {
    let now = now.engine().0;
    match value.number() {
        None if *value == Value::None => Ok(None),
        Some(0.0) => Ok(None),
        Some(at) if at > (now - OLDEST).max(0.0) && at < now + LATEST => Ok(Some(EngineTime(at))),
        // 2001 to 2286: time.time().
        Some(at) if (1e9..1e10).contains(&at) => Ok(None),
        None | Some(_) => Err(Refusal::Absurd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_moments_that_the_clock_can_have_shown_are_taken() {
        let now = MonoTime(5_000_000_000_000);
        let of = |value| moment(&value, now);
        assert_eq!(of(Value::Float(4999.25)), Ok(Some(EngineTime(4999.25))));
        assert_eq!(of(Value::Float(0.0)), Ok(None));
        assert_eq!(of(Value::None), Ok(None));
        assert_eq!(of(Value::Float(1.78e9)), Ok(None), "of time.time()");
        assert_eq!(of(Value::Float(5010.0)), Err(Refusal::Absurd));
        assert_eq!(of(Value::Float(-1.0)), Err(Refusal::Absurd));
        assert_eq!(of(Value::Float(f64::NAN)), Err(Refusal::Absurd));
        assert_eq!(of(Value::Str("x".to_owned())), Err(Refusal::Absurd));
    }
}
