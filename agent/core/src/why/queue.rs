//! Why a request waited in the queue.

use super::cause::Cause;
use super::ring::State;
use super::scene::{Guest, Scene};
use super::verdict::{Blame, Certainty, Note};
use crate::time::{MonoTime, Nanos};

/// A KV cache this full has no room for one more.
const FULL: f64 = 0.95;
/// One this full may have none: a prompt takes several blocks.
const NEARLY: f64 = 0.85;
/// A wait of so many ordinary steps is ordinary: the step that runs, and, with asynchronous scheduling, the next.
const ORDINARY_STEPS: u64 = 3;
/// Prompts at least this long are long.
const LONG: u64 = 128;

/// A wait: from its being handed over until it was first in a step.
pub(super) struct Wait {
    pub notes: Vec<Note>,
    pub blame: Option<Blame>,
}

/// What the scheduler told meanwhile.
#[derive(Clone, Copy, Default)]
struct Meanwhile {
    /// Most KV cache use, most requests running, most waiting.
    kv: f64,
    running: u64,
    waiting: u64,
    /// How many states were told, and in how many of them requests waited.
    told: usize,
    crowded: usize,
}

/// Looks at a wait.
pub(super) fn of(
    scene: &Scene<'_>,
    from: MonoTime,
    to: MonoTime,
    prefills: &[Guest],
    pace: Option<Nanos>,
) -> Wait {
    let told = meanwhile(scene.core.states.around(from, to, 1));
    let ahead = ahead(scene, to);
    let mut notes = Vec::new();
    if told.told > 0 {
        notes.push(Note::KvUsage(told.kv));
    }
    if ahead > 0 {
        notes.push(Note::Ahead(ahead));
    }
    if told.told > 0 {
        notes.extend([Note::Running(told.running), Note::Waiting(told.waiting)]);
    }
    let blame = blame(scene, from, to, &told, prefills, pace);
    let blame = blame.map(|(cause, certainty, mut more)| {
        more.extend(notes.iter().cloned());
        Blame { cause, took: to.since(from), certainty, notes: more }
    });
    Wait { notes, blame }
}

fn meanwhile<'a>(states: impl Iterator<Item = &'a State>) -> Meanwhile {
    states.fold(Meanwhile::default(), |so_far, state| Meanwhile {
        kv: so_far.kv.max(state.kv_usage),
        running: so_far.running.max(state.running),
        waiting: so_far.waiting.max(state.waiting),
        told: so_far.told + 1,
        crowded: so_far.crowded + usize::from(state.waiting > 0),
    })
}

/// Requests that were there before it and came to run while it waited.
fn ahead(scene: &Scene<'_>, to: MonoTime) -> u32 {
    let Some(own) = scene.account.life.queued.or(scene.account.handed) else { return 0 };
    let before = scene.peers.iter().filter(|peer| {
        let entered = peer.life.queued.or(peer.life.handed);
        entered.is_some_and(|entered| entered < own)
            && peer.life.scheduled.is_some_and(|scheduled| scheduled > own && scheduled <= to)
    });
    u32::try_from(before.count()).unwrap_or(u32::MAX)
}

fn blame(
    scene: &Scene<'_>,
    from: MonoTime,
    to: MonoTime,
    told: &Meanwhile,
    prefills: &[Guest],
    pace: Option<Nanos>,
) -> Option<(Cause, Certainty, Vec<Note>)> {
    let waited = to.since(from);
    // It waits for the step that runs, whatever is in it.
    let long = long_prefill(from, to, prefills);
    if told.waiting > 0 && told.kv >= FULL {
        return Some((Cause::KvFull, Certainty::Certain, Vec::new()));
    }
    if told.waiting > 0 && told.kv >= NEARLY {
        return Some((Cause::KvFull, Certainty::Likely, Vec::new()));
    }
    if let Some(guest) = long {
        return Some((Cause::LongPrefill, Certainty::Likely, vec![Note::Beside(guest.who.clone())]));
    }
    // Some of the states were told when requests had ended and none had taken their places yet.
    if told.crowded * 2 >= told.told.max(1) && told.running >= scene.core.most_running.max(2) {
        return Some((Cause::BatchFull, Certainty::Likely, Vec::new()));
    }
    let ordinary = pace.is_none_or(|pace| waited.0 <= pace.0.saturating_mul(ORDINARY_STEPS));
    if ordinary {
        return None;
    }
    if prefills.iter().any(|guest| guest.from < to && guest.to > from) {
        return Some((Cause::Arrivals, Certainty::Possible, Vec::new()));
    }
    // It only waited for the step that ran, and that took long.
    let cause = if scene.core.count(from, to) <= 2 { Cause::EngineStall } else { Cause::Unknown };
    Some((cause, Certainty::Possible, Vec::new()))
}

/// The long prompt that was prefilled for at least half of the wait.
fn long_prefill(from: MonoTime, to: MonoTime, prefills: &[Guest]) -> Option<&Guest> {
    let overlap = |guest: &Guest| guest.to.min(to).since(guest.from.max(from));
    let long = prefills.iter().filter(|guest| guest.who.prefilled >= LONG && guest.from < to);
    let longest = long.max_by_key(|guest| overlap(guest))?;
    (overlap(longest).0.saturating_mul(2) >= to.since(from).0).then_some(longest)
}
