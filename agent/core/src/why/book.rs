//! What is remembered of a server: its schedulers' latest steps and states, the requests that ended lately, and how
//! often each cause was found. Everything is bounded; what is forgotten is counted.

use std::collections::{BTreeMap, VecDeque};

use super::account::{Account, Life, Peer};
use super::cause::{CAUSES, Cause};
use super::explain::explain;
use super::pause::{Pause, PauseKind, Side};
use super::ring::{Core, Ring, State, Step};
use super::scene::Scene;
use super::verdict::Verdict;
use crate::model::metric::Number;
use crate::model::registry::{MetricDef, dim, own};
use crate::time::{MonoTime, Nanos};

/// Requests remembered after their end, to say who was beside those that end later.
const MAX_ENDED: usize = 4096;
/// Most schedulers told apart.
const MAX_CORES: usize = 256;
/// Most open requests looked at beside one.
const MAX_OPEN: usize = 4096;

/// Pauses remembered: at ten a second and process, some minutes.
const MAX_PAUSES: usize = 16_384;

/// A request that ended.
#[derive(Clone, Debug)]
struct Ended {
    name: String,
    group: String,
    life: Life,
    /// The latest end of it and of all before it: none of those was there after that.
    latest: MonoTime,
}

/// A metric, its dimensions and its value.
pub type Figure = (&'static MetricDef, Vec<(&'static str, String)>, Number);

/// How often a cause was found, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Requests.
    pub requests: u64,
    /// Time.
    pub time: Nanos,
}

/// What is remembered of a server.
#[derive(Clone, Debug)]
pub struct Book {
    cores: BTreeMap<u32, Core>,
    ended: VecDeque<Ended>,
    forgotten: u64,
    explained: u64,
    found: [Found; CAUSES.len()],
    pauses: Ring<Pause>,
    /// All of them, by kind and by whose they were.
    paused: BTreeMap<(PauseKind, Side), Nanos>,
    /// Pages that its processes had to wait for.
    faults: BTreeMap<Side, u64>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            cores: BTreeMap::new(),
            ended: VecDeque::new(),
            forgotten: 0,
            explained: 0,
            found: <[Found; CAUSES.len()]>::default(),
            pauses: Ring::new(MAX_PAUSES),
            paused: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }
}

impl Book {
    /// Threads of the server paused.
    pub fn pause(&mut self, pause: Pause) {
        let sum = self.paused.entry((pause.kind, pause.side)).or_default();
        sum.0 = sum.0.saturating_add(pause.took.0);
        self.pauses.push(pause);
    }

    /// Processes of the server had to wait for so many pages from a disk.
    pub fn faulted(&mut self, side: Side, pages: u64) {
        let sum = self.faults.entry(side).or_default();
        *sum = sum.saturating_add(pages);
    }

    /// A step of a scheduler ended.
    pub fn step(&mut self, core: u32, ended: MonoTime, outputs: usize) {
        if let Some(core) = self.core(core) {
            core.steps.push(Step { ended, outputs: u32::try_from(outputs).unwrap_or(u32::MAX) });
        }
    }

    /// A scheduler told its state.
    pub fn state(&mut self, core: u32, state: State) {
        if let Some(core) = self.core(core) {
            core.state(state);
        }
    }

    /// A scheduler told a part of its state; the rest is as it was told before.
    pub fn told(
        &mut self,
        core: u32,
        at: MonoTime,
        running: Option<u64>,
        waiting: Option<u64>,
        kv_usage: Option<f64>,
    ) {
        let last = self.cores.get(&core).and_then(|core| core.states.last().copied());
        let before = last.unwrap_or(State { at, running: 0, waiting: 0, kv_usage: 0.0 });
        let state = State {
            at,
            running: running.unwrap_or(before.running),
            waiting: waiting.unwrap_or(before.waiting),
            kv_usage: kv_usage.unwrap_or(before.kv_usage),
        };
        self.state(core, state);
    }

    fn core(&mut self, core: u32) -> Option<&mut Core> {
        let room = self.cores.len() < MAX_CORES || self.cores.contains_key(&core);
        room.then(|| self.cores.entry(core).or_default())
    }

    /// Ends of a scheduler's steps after one moment and up to another, the moment itself before them.
    #[must_use]
    pub fn steps(&self, core: u32, from: MonoTime, to: MonoTime) -> Vec<MonoTime> {
        let steps = self.cores.get(&core).into_iter().flat_map(|core| core.steps.between(from, to));
        std::iter::once(from).chain(steps.map(|step| step.ended)).collect()
    }

    /// A request ended.
    pub fn ended(&mut self, peer: &Peer<'_>) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        let Peer { name, group, life } = *peer;
        let latest = self.ended.back().map_or(life.over(), |before| before.latest.max(life.over()));
        self.ended.push_back(Ended { name: name.to_owned(), group: group.to_owned(), life, latest });
    }

    /// Explains a request that ended. `open`: those that have not.
    #[must_use]
    pub fn explain<'a>(&'a self, account: &'a Account, open: impl Iterator<Item = Peer<'a>>) -> Verdict {
        let nothing = Core::default();
        let core = self.cores.get(&account.core).unwrap_or(&nothing);
        // The newest first, as far back as any was beside it.
        let ended = self.ended.iter().rev().take_while(|ended| ended.latest > account.begun).map(|ended| {
            let Ended { name, group, life, latest: _ } = ended;
            Peer { name: name.as_str(), group: group.as_str(), life: *life }
        });
        // As long-lived as the scene only: `nothing` is.
        let peers = ended.chain(open.take(MAX_OPEN)).map(|peer| Peer { ..peer });
        explain(&Scene::new(account, core, peers), &self.pauses)
    }

    /// Counts a verdict.
    pub fn count(&mut self, verdict: &Verdict) {
        self.explained = self.explained.saturating_add(1);
        for blame in &verdict.causes {
            if let Some(found) = self.found.get_mut(blame.cause as usize) {
                found.requests = found.requests.saturating_add(1);
                found.time.0 = found.time.0.saturating_add(blame.took.0);
            }
        }
    }

    /// Requests explained.
    #[must_use]
    pub fn explained(&self) -> u64 {
        self.explained
    }

    /// What was found, cause by cause.
    pub fn found(&self) -> impl Iterator<Item = (Cause, Found)> + '_ {
        CAUSES.iter().zip(self.found).map(|(def, found)| (def.cause, found))
    }

    /// As metrics: what, its dimensions, and how much. A cause that never was has no point.
    #[must_use]
    pub fn points(&self) -> Vec<Figure> {
        let (steps, requests) = self.forgotten();
        let mut points = vec![
            (&own::REQUESTS_EXPLAINED, Vec::new(), Number::Int(self.explained)),
            (&own::WHY_FORGOTTEN, Vec::new(), Number::Int(steps.saturating_add(requests))),
        ];
        for (cause, found) in self.found().filter(|(_, found)| found.requests > 0) {
            let dims = || vec![(dim::CAUSE, cause.name().to_owned())];
            points.push((&own::REQUESTS_HELD_UP, dims(), Number::Int(found.requests)));
            points.push((&own::HELD_UP_SECONDS, dims(), Number::Float(found.time.seconds().0)));
        }
        for ((kind, side), took) in &self.paused {
            let dims = vec![(dim::PAUSE, kind.name().to_owned()), (dim::SIDE, side.name().to_owned())];
            points.push((&own::PAUSE_SECONDS, dims, Number::Float(took.seconds().0)));
        }
        for (side, pages) in &self.faults {
            let dims = vec![(dim::SIDE, side.name().to_owned())];
            points.push((&own::MAJOR_FAULTS, dims, Number::Int(*pages)));
        }
        points
    }

    /// What was forgotten for want of room: steps and states, and requests.
    #[must_use]
    pub fn forgotten(&self) -> (u64, u64) {
        let of_cores = self.cores.values().map(|core| core.steps.forgotten() + core.states.forgotten());
        (of_cores.sum::<u64>().saturating_add(self.pauses.forgotten()), self.forgotten)
    }
}
