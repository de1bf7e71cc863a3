//! Times at which a server's threads did not run though they had work: they waited for a CPU, their cgroup had used up
//! its quota, or the interpreter collected garbage.

use std::collections::BTreeMap;

use serde::Serialize;

use super::account::{Account, Part};
use super::cause::Cause;
use super::ring::{At, Ring};
use super::verdict::{Blame, Certainty, Note};
use crate::capture::fact::Role;
use crate::time::{MonoTime, Nanos};

/// Most pauses shown of one request: the longest.
const MAX_SHOWN: usize = 32;

/// What paused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// Other threads had the CPU.
    RunQueue,
    /// Its cgroup had used up its share of the period.
    Cgroup,
    /// The interpreter collected garbage.
    Gc,
}

/// Which of a server's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// One that serves HTTP, tokenizes and detokenizes.
    ApiServer,
    /// One that schedules or runs the model.
    Engine,
}

/// A pause, or the pauses within a span of time that was looked at as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// What.
    pub kind: PauseKind,
    /// Whose.
    pub side: Side,
    /// The begin of the span of time.
    pub from: MonoTime,
    /// Its end.
    pub to: MonoTime,
    /// How much of it was paused.
    pub took: Nanos,
}

impl At for Pause {
    fn at(&self) -> MonoTime {
        self.to
    }
}

impl PauseKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RunQueue, Self::Cgroup, Self::Gc];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunQueue => "run_queue",
            Self::Cgroup => "cgroup",
            Self::Gc => "gc",
        }
    }

    /// The cause it is.
    #[must_use]
    pub fn cause(self) -> Cause {
        match self {
            Self::RunQueue => Cause::CpuStarved,
            Self::Cgroup => Cause::CpuThrottled,
            Self::Gc => Cause::Gc,
        }
    }
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ApiServer, Self::Engine];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "api_server",
            Self::Engine => "engine",
        }
    }

    /// What it is called in a sentence.
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            Self::ApiServer => "in the API server",
            Self::Engine => "in the engine",
        }
    }

    /// That of a process; `None` for those that no request waits for.
    #[must_use]
    pub fn of(role: Role) -> Option<Self> {
        match role {
            Role::ApiServer => Some(Self::ApiServer),
            Role::EngineCore | Role::Worker => Some(Self::Engine),
            Role::Coordinator | Role::Supervisor | Role::Other => None,
        }
    }

    /// Whether it works on a request during a part of its time.
    fn works_in(self, part: Part) -> bool {
        let of_engine = match part {
            Part::Receive | Part::Frontend | Part::Return | Part::Send => false,
            Part::Handover
            | Part::Queue
            | Part::Prefill
            | Part::Decode
            | Part::Lengthened
            | Part::Preempted
            | Part::Untold => true,
            // Another node's work.
            Part::Transfer => return false,
        };
        of_engine == (self == Self::Engine)
    }
}

/// What pauses cost a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Paused {
    /// The longest, as much of each as fell into the request's time, in order.
    pub shown: Vec<Pause>,
    /// All of each kind.
    pub sums: Vec<(PauseKind, Nanos)>,
    /// As causes.
    pub blames: Vec<Blame>,
    /// All, by whose they were.
    sides: [Nanos; 2],
}

impl Paused {
    /// Lays pauses over a request's parts.
    pub fn of(pauses: &Ring<Pause>, account: &Account) -> Self {
        let (cuts, _) = account.cuts.parts();
        let mut paused = Self::default();
        for kind in PauseKind::ALL {
            let mut all: Vec<Pause> = Vec::new();
            for side in Side::ALL {
                let mine = |pause: &&Pause| pause.kind == kind && pause.side == side;
                for cut in cuts.iter().filter(|cut| side.works_in(cut.part)) {
                    let near = pauses.between(cut.from, MonoTime(u64::MAX)).filter(mine);
                    let within = longest(near, cut.from, cut.to);
                    let took = sum(&within).0.min(cut.to.since(cut.from).0);
                    if let Some(of_side) = paused.sides.get_mut(side as usize) {
                        of_side.0 = of_side.0.saturating_add(took);
                    }
                    paused.add(kind, side, Nanos(took), &within, account.begun);
                    all.extend(within);
                }
            }
            paused.shown.extend(all);
        }
        paused.shown.sort_by_key(|pause| std::cmp::Reverse(pause.took));
        paused.shown.truncate(MAX_SHOWN);
        paused.shown.sort_by_key(|pause| pause.from);
        paused
    }

    fn add(&mut self, kind: PauseKind, side: Side, took: Nanos, within: &[Pause], begun: MonoTime) {
        let Some(first) = within.iter().min_by_key(|pause| pause.from).filter(|_| took.0 > 0) else { return };
        match self.sums.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => sum.0 = sum.0.saturating_add(took.0),
            None => self.sums.push((kind, took)),
        }
        let longest = within.iter().map(|pause| pause.took).max().unwrap_or_default();
        let notes = vec![
            Note::Whose(side),
            Note::Pauses(u32::try_from(within.len()).unwrap_or(u32::MAX)),
            Note::Longest(longest),
            Note::Since(first.from.since(begun)),
        ];
        let certainty = match kind {
            // The interpreter stops for it, whatever it was at.
            PauseKind::Gc => Certainty::Certain,
            PauseKind::RunQueue | PauseKind::Cgroup => Certainty::Likely,
        };
        self.blames.push(Blame { cause: kind.cause(), took, certainty, notes });
    }

    /// Takes what pauses explain from causes that only say that it is not explained.
    pub fn explain(&self, causes: &mut Vec<Blame>) {
        let [of_api_server, of_engine] = self.sides;
        relieve(causes, &[Cause::EngineStall, Cause::Unknown], of_engine);
        relieve(causes, &[Cause::FrontendBefore, Cause::FrontendAfter], of_api_server);
        causes.retain(|blame| blame.took.0 > 0);
        causes.extend(self.blames.iter().cloned());
    }
}

/// The parts of pauses between two moments. Processes that were looked at at one time made it wait once: for the one that
/// paused longest.
fn longest<'a>(pauses: impl Iterator<Item = &'a Pause>, from: MonoTime, to: MonoTime) -> Vec<Pause> {
    let mut found: BTreeMap<MonoTime, Pause> = BTreeMap::new();
    for pause in pauses {
        let Some(part) = pause.within(from, to) else { continue };
        let known = found.entry(pause.to).or_insert(part);
        if part.took > known.took {
            *known = part;
        }
    }
    found.into_values().collect()
}

fn relieve(causes: &mut [Blame], which: &[Cause], mut explained: Nanos) {
    for blame in causes.iter_mut().filter(|blame| which.contains(&blame.cause)) {
        let part = blame.took.0.min(explained.0);
        blame.took.0 -= part;
        explained.0 -= part;
    }
}

fn sum(pauses: &[Pause]) -> Nanos {
    Nanos(pauses.iter().fold(0, |sum, pause| sum.saturating_add(pause.took.0)))
}

impl Pause {
    /// The part of it that falls between two moments: as much of what was paused as of its span of time.
    fn within(&self, from: MonoTime, to: MonoTime) -> Option<Self> {
        let (begin, end) = (self.from.max(from), self.to.min(to));
        let (whole, part) = (self.to.since(self.from).0, end.since(begin).0);
        if part == 0 {
            return None;
        }
        let took = u128::from(self.took.0) * u128::from(part) / u128::from(whole.max(1));
        let took = Nanos(u64::try_from(took).unwrap_or(u64::MAX));
        (took.0 > 0).then_some(Self { from: begin, to: end, took, ..*self })
    }
}
