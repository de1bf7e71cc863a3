//! One process whose objects are read.

use enginetap_core::capture::fact::Fact;
use enginetap_core::heap::sglang::{Frontend, Sampled, Scheduler};
use enginetap_core::heap::vllm_v0;
use enginetap_core::heap::{Gone, Heap, Refusal, Refusals};
use enginetap_core::ids::Pid;
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::time::{MonoTime, Nanos};
use rustix::time::{ClockId, clock_gettime};

use super::Report;
use super::pace::Pace;
use crate::discover::proc::Proc;
use crate::heap::{Interpreter, ProcessMemory, Unreadable};
use crate::session::{clock, nanos};

/// Between two readings of a scheduler that works: as short as a step of a small model.
const SCHEDULER: Nanos = Nanos::from_millis(5);
/// The same of a frontend, whose requests stay for as long as their responses.
const FRONTEND: Nanos = Nanos::from_millis(10);
/// Most pieces of memory read in a second: a third of a core.
const PIECES: u64 = 400_000;
const SECOND: Nanos = Nanos::from_secs(1);
/// For so long a process is looked into again soon where its object was not found at once: it was at work.
const EAGER: Nanos = Nanos::from_secs(1);

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// SGLang's scheduler.
    Scheduler,
    /// SGLang's HTTP server and tokenizer manager.
    Frontend,
    /// vLLM's V0 engine.
    V0,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Frontend => "frontend",
            Self::V0 => "engine",
        }
    }
}

/// How far the reading of a process is.
enum State {
    /// The interpreter, or the object in it, is not found yet: the process is starting.
    Sought,
    Scheduler(Box<(Heap<ProcessMemory>, Scheduler)>),
    Frontend(Box<(Heap<ProcessMemory>, Frontend)>),
    V0(Box<(Heap<ProcessMemory>, vllm_v0::Engine)>),
    /// It cannot be read, which was said.
    Off,
}

/// A process whose objects are read.
pub(super) struct Target {
    pid: Pid,
    what: What,
    steps: bool,
    state: State,
    /// Since when it is to be read.
    since: MonoTime,
    pace: Pace,
    /// The forward's start to be read for.
    mark: Option<MonoTime>,
    /// Refusals that were told.
    told: Refusals,
    /// Begin of the present second, and the pieces that had been read by then.
    second: (MonoTime, u64),
    /// Losses not yet told.
    losses: Losses,
}

impl Target {
    pub fn new(pid: Pid, what: What, steps: bool, now: MonoTime) -> Self {
        let fast = match what {
            What::Scheduler => SCHEDULER,
            What::Frontend | What::V0 => FRONTEND,
        };
        Self {
            pid,
            what,
            steps,
            state: State::Sought,
            since: now,
            pace: Pace::new(fast, now),
            mark: None,
            told: Refusals::default(),
            second: (now, 0),
            losses: Losses::default(),
        }
    }

    pub fn identity(&self) -> (Pid, What) {
        (self.pid, self.what)
    }

    /// Whether its object is still looked for.
    pub fn sought(&self) -> bool {
        matches!(self.state, State::Sought)
    }

    pub fn is(&self, pid: Pid) -> bool {
        self.pid == pid
    }

    /// When it is to be read; `None`: never.
    pub fn next(&self) -> Option<MonoTime> {
        match self.state {
            State::Off => None,
            State::Sought | State::Scheduler(_) | State::Frontend(_) | State::V0(_) => Some(self.pace.next()),
        }
    }

    pub fn due(&self, now: MonoTime) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    pub fn wake(&mut self, now: MonoTime) {
        if !self.sought() {
            self.pace.wake(now);
        }
    }

    pub fn mark(&mut self, at: MonoTime, now: MonoTime) {
        if self.what != What::Scheduler || self.sought() {
            return;
        }
        // One that waits is overtaken: its step's moments are read with this one's, its members are not.
        let overtaken = if self.pace.mark(now) { self.mark.replace(at).is_some() } else { true };
        self.losses.add(Loss::HeapBudget, overtaken.into());
    }

    /// Reads it.
    pub fn read(&mut self, proc: &Proc, now: MonoTime) -> Report {
        let mut report = Report::default();
        let mark = self.mark.take();
        let before = cpu();
        let works = match &mut self.state {
            State::Off => return report,
            State::Sought => {
                self.find(proc);
                if self.sought() {
                    self.again();
                } else {
                    report.cost = Nanos(cpu().0.saturating_sub(before.0));
                    self.pace.found(clock().mono);
                }
                return report;
            }
            State::Scheduler(both) => {
                let (heap, scheduler) = both.as_mut();
                let Sampled { snapshot, requests, lost } = scheduler.sample(heap, now, mark);
                report.facts.extend(snapshot.map(Fact::Snapshot));
                if lost {
                    self.lost();
                    return report;
                }
                requests > 0
            }
            State::Frontend(both) => {
                let (heap, frontend) = both.as_mut();
                let (snapshot, requests) = frontend.sample(heap, now);
                report.facts.extend(snapshot.map(Fact::FrontendSnapshot));
                requests > 0
            }
            State::V0(both) => {
                let (heap, engine) = both.as_mut();
                let vllm_v0::Sampled { snapshot, requests, lost } = engine.sample(heap, now);
                report.facts.extend(snapshot.map(Fact::V0Snapshot));
                if lost {
                    self.lost();
                    return report;
                }
                requests > 0
            }
        };
        report.cost = Nanos(cpu().0.saturating_sub(before.0));
        self.after(&mut report, works);
        report
    }

    /// Counts what the reading cost and refused, and sets the next one.
    fn after(&mut self, report: &mut Report, works: bool) {
        let now = clock().mono;
        self.pace.was_read(now, report.cost, works);
        let heap = match &mut self.state {
            State::Scheduler(both) => &mut both.0,
            State::Frontend(both) => &mut both.0,
            State::V0(both) => &mut both.0,
            State::Sought | State::Off => return,
        };
        let pieces = heap.cost().pieces;
        if now.since(self.second.0) >= SECOND {
            self.second = (now, pieces);
        } else if pieces.saturating_sub(self.second.1) > PIECES {
            heap.refuse(Refusal::Budget, 1);
            self.pace.later(now);
        }
        report.losses = heap.refused().losses(&self.told);
        report.losses.merge(&std::mem::take(&mut self.losses));
        self.told = heap.refused();
        if let Some(gone) = heap.gone() {
            self.gone(gone);
        }
    }

    fn find(&mut self, proc: &Proc) {
        match self.open(proc) {
            Ok(Some(state)) => self.state = state,
            Ok(None) => log::debug!("process {}: its {} is not there yet", self.pid.0, self.what.name()),
            Err(Unreadable::Ended(_)) => self.state = State::Off,
            Err(error) => self.off(&error.to_string()),
        }
    }

    /// Sets when it is looked into again.
    fn again(&mut self) {
        let now = clock().mono;
        if now.since(self.since) < EAGER {
            self.pace.soon(now);
        } else {
            self.pace.later(now);
        }
    }

    fn open(&self, proc: &Proc) -> Result<Option<State>, Unreadable> {
        let found = Interpreter::find(proc, self.pid)?;
        let mut heap = found.open()?;
        let state = match self.what {
            What::Scheduler => Scheduler::find(&mut heap, self.pid).ok().flatten().map(|mut scheduler| {
                scheduler.steps(self.steps);
                log::info!("reading the scheduler's objects: {found}, {}", scheduler.function());
                State::Scheduler(Box::new((heap, scheduler)))
            }),
            What::Frontend => Frontend::find(&mut heap, self.pid).ok().flatten().map(|frontend| {
                log::info!("reading the frontend's objects: {found}");
                State::Frontend(Box::new((heap, frontend)))
            }),
            What::V0 => vllm_v0::Engine::find(&mut heap, self.pid).ok().flatten().map(|engine| {
                log::info!("reading the engine's objects: {found}");
                State::V0(Box::new((heap, engine)))
            }),
        };
        Ok(state)
    }

    fn lost(&mut self) {
        log::debug!("process {}: its {} is looked for again", self.pid.0, self.what.name());
        let gone = match &self.state {
            State::Scheduler(both) => both.0.gone(),
            State::Frontend(both) => both.0.gone(),
            State::V0(both) => both.0.gone(),
            State::Sought | State::Off => None,
        };
        self.told = Refusals::default();
        self.state = State::Sought;
        self.pace.later(clock().mono);
        if let Some(gone) = gone {
            self.gone(gone);
        }
    }

    fn gone(&mut self, gone: Gone) {
        match gone {
            Gone::Ended => self.state = State::Off,
            Gone::Forbidden | Gone::Unsupported => self.off(&Unreadable::Forbidden(self.pid).to_string()),
        }
    }

    /// Gives it up, and says so once.
    fn off(&mut self, reason: &str) {
        log::warn!(
            "the objects of the {} are not read: {reason}; its times come from messages, as far as those tell them",
            self.what.name()
        );
        self.state = State::Off;
    }
}

/// CPU time of this thread.
fn cpu() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}
