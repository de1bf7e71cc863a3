//! Who lengthened a request's steps.

use super::cause::Cause;
use super::ring::median;
use super::scene::{ENOUGH, Guest, Scene, Sweep, pairs};
use super::verdict::{Blame, Certainty, Note};
use crate::time::{MonoTime, Nanos};

/// A step that took this many times the ordinary, and nobody to blame, is a stall.
const STALL: u64 = 4;
/// A stall is at least this much longer than the ordinary step.
const STALL_LEAST: Nanos = Nanos::from_millis(20);
/// Steps with a wide request count as lengthened where their middle is this much over the ordinary, in per cent.
const WIDE_LEAST: u64 = 15;
/// Prompts at least this long are long.
const LONG: u64 = 128;

/// What a request's decode steps came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengthened {
    /// The ordinary length of a step, where it can be told.
    pub pace: Option<Nanos>,
    /// Time in steps over the ordinary.
    pub took: Nanos,
    /// Steps it took part in.
    pub all: u32,
    /// Of them, those that were longer.
    pub steps: u32,
    /// The longest of all.
    pub longest: Nanos,
    /// Who it was.
    pub blames: Vec<Blame>,
}

/// What each guest cost.
struct Costs {
    prefills: Vec<Nanos>,
    wide: Vec<Nanos>,
    stall: Nanos,
    longest_stall: Nanos,
    steps: [u32; 3],
}

/// Looks at every step between the first token and the last.
pub(super) fn of(scene: &Scene<'_>, prefills: &[Guest], wide: &[Guest]) -> Lengthened {
    let gaps: Vec<(MonoTime, MonoTime)> = pairs(scene.account.steps.iter().copied())
        .filter(|&(from, to)| !preempted(scene, from, to))
        .collect();
    let all = u32::try_from(gaps.len()).unwrap_or(u32::MAX);
    let longest = gaps.iter().map(|(from, to)| to.since(*from)).max().unwrap_or_default();
    let (pace, told) = match scene.pace(prefills, wide) {
        Some(pace) => (pace, Certainty::Likely),
        // No step was without guests: the shortest of them tell what one would have taken.
        None => match shortest(&gaps) {
            Some(pace) => (pace, Certainty::Possible),
            None => return Lengthened { longest, all, ..Lengthened::default() },
        },
    };
    let costs = costs(&gaps, pace, prefills, wide);
    let mut blames = blame_prefills(prefills, &costs, told);
    blames.extend(blame_wide(wide, &costs, told));
    blames.extend(blame_stalls(&costs));
    let took = blames.iter().fold(Nanos(0), |sum, blame| Nanos(sum.0 + blame.took.0));
    Lengthened { pace: Some(pace), took, all, steps: costs.steps.iter().sum(), longest, blames }
}

fn preempted(scene: &Scene<'_>, from: MonoTime, to: MonoTime) -> bool {
    let mut times = scene.account.preempted.iter();
    times.any(|&(out, back)| out < to && back.is_none_or(|back| back > from))
}

/// The lower quarter's upper end.
fn shortest(gaps: &[(MonoTime, MonoTime)]) -> Option<Nanos> {
    let mut lengths: Vec<Nanos> = gaps.iter().map(|(from, to)| to.since(*from)).collect();
    lengths.sort_unstable();
    (lengths.len() >= ENOUGH).then(|| lengths.get(lengths.len() / 4).copied()).flatten()
}

fn costs(gaps: &[(MonoTime, MonoTime)], pace: Nanos, prefills: &[Guest], wide: &[Guest]) -> Costs {
    let mut costs = Costs {
        prefills: vec![Nanos(0); prefills.len()],
        wide: vec![Nanos(0); wide.len()],
        stall: Nanos(0),
        longest_stall: Nanos(0),
        steps: [0; 3],
    };
    let wide_counts = wide_counts(gaps, pace, prefills, wide);
    let (mut filling, mut widening) = (Sweep::new(prefills), Sweep::new(wide));
    for &(from, to) in gaps {
        let (filling, widening) = (filling.within(from, to), widening.within(from, to));
        let over = Nanos(to.since(from).0.saturating_sub(pace.0));
        if over.0 == 0 {
            continue;
        }
        if !filling.is_empty() {
            share(over, filling, prefills, &mut costs.prefills);
            costs.steps[0] += 1;
        } else if !widening.is_empty() && wide_counts {
            share(over, widening, wide, &mut costs.wide);
            costs.steps[1] += 1;
        } else if over.0 >= pace.0.saturating_mul(STALL - 1) && over >= STALL_LEAST {
            costs.stall.0 += over.0;
            costs.longest_stall = costs.longest_stall.max(to.since(from));
            costs.steps[2] += 1;
        }
    }
    costs
}

/// Whether steps with a wide request are longer than the others: one long step alone says nothing.
fn wide_counts(gaps: &[(MonoTime, MonoTime)], pace: Nanos, prefills: &[Guest], wide: &[Guest]) -> bool {
    let (mut filling, mut widening) = (Sweep::new(prefills), Sweep::new(wide));
    let with = gaps.iter().filter(|&&(from, to)| {
        let (filling, widening) = (filling.within(from, to), widening.within(from, to));
        filling.is_empty() && !widening.is_empty()
    });
    let mut lengths: Vec<Nanos> = with.map(|(from, to)| to.since(*from)).collect();
    let enough = lengths.len() >= ENOUGH;
    let middle = median(&mut lengths).unwrap_or_default();
    enough && middle.0.saturating_mul(100) > pace.0.saturating_mul(100 + WIDE_LEAST)
}

/// Shares what a step took over the ordinary among its guests, by their weight.
fn share(over: Nanos, here: &[usize], guests: &[Guest], costs: &mut [Nanos]) {
    let weight = |place: &usize| guests.get(*place).map_or(0, |guest| guest.weight);
    let all = here.iter().map(weight).sum::<u64>().max(1);
    for place in here {
        if let Some(cost) = costs.get_mut(*place) {
            let part = u128::from(over.0) * u128::from(weight(place)) / u128::from(all);
            cost.0 = cost.0.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
    }
}

/// Long prompts first; what many short ones cost is one cause of its own.
fn blame_prefills(guests: &[Guest], costs: &Costs, certainty: Certainty) -> Vec<Blame> {
    let all = guests.iter().zip(&costs.prefills).filter(|(_, cost)| cost.0 > 0);
    let (long, short): (Vec<_>, Vec<_>) = all.partition(|(guest, _)| guest.who.prefilled >= LONG);
    let causes = [(Cause::LongPrefill, long), (Cause::Arrivals, short)];
    causes.into_iter().filter_map(|(cause, who)| blame(cause, who, costs.steps[0], certainty)).collect()
}

fn blame_wide(guests: &[Guest], costs: &Costs, certainty: Certainty) -> Option<Blame> {
    let who = guests.iter().zip(&costs.wide).filter(|(_, cost)| cost.0 > 0).collect();
    blame(Cause::WideRequest, who, costs.steps[1], certainty)
}

/// Names the guest that cost most.
fn blame(cause: Cause, who: Vec<(&Guest, &Nanos)>, steps: u32, certainty: Certainty) -> Option<Blame> {
    let took = who.iter().fold(0_u64, |sum, (_, cost)| sum.saturating_add(cost.0));
    let (worst, _) = who.into_iter().max_by_key(|(_, cost)| **cost)?;
    let notes = vec![Note::Beside(worst.who.clone()), Note::Steps(steps)];
    Some(Blame { cause, took: Nanos(took), certainty, notes })
}

fn blame_stalls(costs: &Costs) -> Option<Blame> {
    let notes = vec![Note::Steps(costs.steps[2]), Note::Longest(costs.longest_stall)];
    let blame = Blame { cause: Cause::EngineStall, took: costs.stall, certainty: Certainty::Possible, notes };
    (costs.stall.0 > 0).then_some(blame)
}
