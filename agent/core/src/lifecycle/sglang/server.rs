//! One SGLang server: signals to the exchanges and requests they are about.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::forwards::Forwards;
use super::load::Loads;
use super::moment::{Moment, Source};
use super::request::{Ending, Request, health_check};
use super::timeline::{Batch, Schedule};
use super::totals::Totals;
use super::{batch, join};
use crate::capture::fact::{self, Parallel, Process, Role};
use crate::dialect::signal::sglang::{
    FrontendSnapshot, FrontendTimes, Hop, LoadSource, Place, SglangFinish, SglangOutput, SglangRequest,
    SglangSignal, Snapshot,
};
use crate::dialect::signal::{ApiDelta, ApiSignal};
use crate::ids::{ExchangeId, Pid};
use crate::lifecycle::Context;
use crate::lifecycle::exchange::{Exchange, Joined, Keep};
use crate::lifecycle::taken_back::TakenBack;
use crate::lifecycle::totals::Usages;
use crate::loss::Loss;
use crate::time::{Clock, MonoTime, Nanos, WallTime};
use crate::why::book::Book;

/// Most readings of a frontend's objects kept for requests not yet handed over.
const MAX_EARLY: usize = 4096;

/// A message is seen within this of the moment that the frontend takes for its sending.
const SAME: Nanos = Nanos::from_millis(5);

/// An output whose prefill's end, if it came by the wall clock (0.5.7 to 0.5.9), stands in the engine's own.
fn with_monotonic(output: &SglangOutput, clock: Clock) -> Cow<'_, SglangOutput> {
    let Some(mut times) = output.times else { return Cow::Borrowed(output) };
    let Some(epoch) = times.prefill_finished_epoch.filter(|_| times.prefill_finished.is_none()) else {
        return Cow::Borrowed(output);
    };
    times.prefill_finished = Some(clock.mono(epoch.wall()).engine());
    Cow::Owned(SglangOutput { times: Some(times), ..output.clone() })
}

/// One server.
#[derive(Debug)]
pub(in crate::lifecycle) struct Server {
    pub fact: fact::Server,
    /// When its totals began.
    pub since: WallTime,
    /// Its processes.
    pub(super) processes: BTreeMap<Pid, Process>,
    /// Requests by id.
    pub(super) requests: HashMap<String, Request>,
    /// Open exchanges.
    pub(super) exchanges: HashMap<ExchangeId, Exchange>,
    /// Open exchanges by the request ids their responses named.
    pub(super) named: HashMap<String, ExchangeId>,
    /// Requests that are over and forgotten: more may be told of them.
    pub(super) over: TakenBack,
    /// What a frontend's objects held of requests that are not handed over yet.
    early: HashMap<String, FrontendTimes>,
    /// Whether a scheduler's objects are read: what they held last comes after the response.
    pub(super) looked_into: bool,
    /// Forwards of each scheduler.
    pub(super) forwards: BTreeMap<Pid, Forwards>,
    /// Requests handed over.
    orders: u64,
    pub(super) totals: Totals,
    pub(super) usages: Usages,
    pub(super) loads: Loads,
    /// What is remembered to say why a request was slow.
    pub why: Book,
}

impl Server {
    pub fn new(fact: fact::Server, clock: Clock) -> Self {
        Self {
            fact,
            since: clock.wall,
            processes: BTreeMap::new(),
            requests: HashMap::new(),
            exchanges: HashMap::new(),
            named: HashMap::new(),
            over: TakenBack::default(),
            early: HashMap::new(),
            looked_into: false,
            forwards: BTreeMap::new(),
            orders: 0,
            totals: Totals::default(),
            usages: Usages::default(),
            loads: Loads::default(),
            why: Book::default(),
        }
    }

    pub fn open(&self) -> usize {
        self.requests.len() + self.exchanges.len()
    }

    /// One of its processes is known, or known better.
    pub fn process(&mut self, process: Process) {
        self.processes.insert(process.pid, process);
    }

    pub fn api(&mut self, pid: Pid, signal: ApiSignal, context: &mut Context<'_>) {
        match signal {
            ApiSignal::Request { exchange, first_byte, last_byte, request } => {
                self.make_room(context);
                let new = Exchange::new(exchange, pid, first_byte, last_byte, *request);
                self.exchanges.insert(exchange, new);
            }
            ApiSignal::Head { exchange, at, status, streaming: _ } => {
                if let Some(open) = self.exchanges.get_mut(&exchange) {
                    open.status = Some(status);
                    open.touched = at;
                }
            }
            ApiSignal::Delta { exchange, at, delta } => self.delta(exchange, &delta, at, context),
            // Its request was named by an earlier part that was alike.
            ApiSignal::Text { exchange, at, said } => {
                if let Some(open) = self.exchanges.get_mut(&exchange) {
                    open.take_text(&said, at, Keep::from(context.settings));
                }
            }
            ApiSignal::End { exchange, at, complete } => {
                if let Some(open) = self.exchanges.get_mut(&exchange) {
                    open.ended = Some((at, complete));
                    open.touched = at;
                }
                self.settle(exchange, at, context);
            }
        }
    }

    fn delta(&mut self, id: ExchangeId, delta: &ApiDelta, at: MonoTime, context: &Context<'_>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.take(delta, at, Keep::from(context.settings));
        let of_choices = delta.choices.iter().filter_map(|choice| choice.id.as_ref());
        for rid in delta.id.iter().chain(of_choices) {
            self.name(id, rid);
        }
    }

    /// A response named one of its requests. The ids of parallel samples each come with their own chunks.
    fn name(&mut self, id: ExchangeId, rid: &str) {
        if self.named.get(rid) == Some(&id) || self.named.len() >= self.requests.len().max(1) * 64 {
            return;
        }
        self.named.insert(rid.to_owned(), id);
        self.join(id, rid);
    }

    /// Joins a request to an exchange, if it can be one of its.
    pub(super) fn join(&mut self, id: ExchangeId, rid: &str) {
        let (Some(exchange), Some(request)) = (self.exchanges.get_mut(&id), self.requests.get_mut(rid))
        else {
            return;
        };
        if request.exchange.is_some() || request.pid.is_some_and(|pid| pid != exchange.pid) {
            return;
        }
        request.exchange = Some(id);
        // The handler stamps a request right after its last byte was read.
        request.frontend.created.seen(exchange.last_byte, Source::Estimate);
        let place = (u32::try_from(request.order).unwrap_or(u32::MAX), 0);
        exchange.requests.push(Joined { place, name: rid.to_owned() });
        exchange.requests.sort();
        self.count_times(rid, false);
    }

    pub fn sglang(&mut self, pid: Pid, signal: SglangSignal, context: &mut Context<'_>) {
        match signal {
            SglangSignal::Dispatched { at, requests } => {
                for request in requests {
                    self.dispatched(pid, request, at, context);
                }
            }
            SglangSignal::Outputs { at, hop, outputs, cut: _ } => {
                self.remember(at, hop, &outputs);
                if hop == Hop::Scheduler {
                    self.forwards.entry(pid).or_default().sent(at);
                }
                for output in outputs {
                    self.output(pid, &output, at, hop, context);
                }
            }
            SglangSignal::Aborted { at, rid, finish } => self.aborted(rid.as_deref(), finish, at, context),
            // The requests' own moments say which of them, and when.
            SglangSignal::Retracted { at: _, requests: _, dp_rank: _ } => {}
            SglangSignal::Load { at, load } => {
                self.reported(pid, at, load.source);
                self.load(pid, at, &load);
            }
        }
    }

    /// Takes note of a prefill that a scheduler reports.
    fn reported(&mut self, pid: Pid, at: MonoTime, source: LoadSource) {
        if source == LoadSource::PrefillLine {
            let overlap = self.overlaps();
            self.forwards.entry(pid).or_default().reported(at, overlap);
        }
    }

    /// Whether its schedulers prepare a step while the one before runs.
    pub(super) fn overlaps(&self) -> bool {
        self.fact.sglang.as_ref().is_some_and(|launch| launch.overlap)
    }

    fn dispatched(&mut self, pid: Pid, request: SglangRequest, at: MonoTime, context: &mut Context<'_>) {
        let rid = request.rid.clone();
        if health_check(&rid) {
            return;
        }
        if self.processes.get(&pid).is_some_and(|process| process.role == Role::Coordinator) {
            if let Some(known) = self.requests.get_mut(&rid) {
                known.controller.get_or_insert((pid, at));
            }
            return;
        }
        self.over.remove(&rid);
        let Some(known) = self.reach(&rid, at, context) else { return };
        known.touched = known.touched.max(at);
        let order = self.orders;
        self.orders += 1;
        let early = self.early.remove(&rid);
        if let Some(known) = self.requests.get_mut(&rid) {
            known.handed(pid, at, order, request);
            if let Some(times) = early {
                known.frontend(&times);
            }
        }
        if let Some(&exchange) = self.named.get(&rid) {
            self.join(exchange, &rid);
        }
    }

    /// The request of an id, made if it is not known; `None`: it is not to be known.
    fn reach(&mut self, rid: &str, at: MonoTime, context: &mut Context<'_>) -> Option<&mut Request> {
        if health_check(rid) || rid.is_empty() || self.over.contains(rid) {
            return None;
        }
        if !self.requests.contains_key(rid) {
            self.make_room(context);
            self.requests.insert(rid.to_owned(), Request::seen(rid, at));
            if let Some(&exchange) = self.named.get(rid) {
                self.join(exchange, rid);
            }
        }
        self.requests.get_mut(rid)
    }

    fn output(&mut self, pid: Pid, output: &SglangOutput, at: MonoTime, hop: Hop, context: &mut Context<'_>) {
        if self.reach(&output.rid, at, context).is_none() {
            return;
        }
        let speaker = match hop {
            Hop::Scheduler => Some(pid),
            Hop::Frontend => self.scheduler_of(&output.rid, output.dp_rank),
        };
        let Some(request) = self.requests.get_mut(&output.rid) else { return };
        if request.ending.is_some() {
            return;
        }
        let source = match hop {
            Hop::Scheduler => Source::Scheduler,
            Hop::Frontend => {
                request.pid.get_or_insert(pid);
                Source::Frontend
            }
        };
        if let Some(speaker) = speaker {
            request.speaker.get_or_insert(speaker);
            let output = &with_monotonic(output, context.clock);
            request.schedulers.entry(speaker).or_default().output(output, at, source);
        }
        request.output(output, at, hop);
        if hop == Hop::Frontend {
            self.arrived(output, at, context);
        }
    }

    /// What the frontend does with an output, after it was taken in.
    fn arrived(&mut self, output: &SglangOutput, at: MonoTime, context: &mut Context<'_>) {
        self.count_output(output, at);
        if output.finish.is_none() {
            return;
        }
        let Some(request) = self.requests.get_mut(&output.rid) else { return };
        request.end(request.by_engine(), at);
        if let Some(exchange) = request.exchange {
            self.settle(exchange, at, context);
        }
    }

    /// The scheduler that a request's outputs come from, where only the frontend's end of them is seen.
    fn scheduler_of(&self, rid: &str, dp_rank: Option<u32>) -> Option<Pid> {
        let request = self.requests.get(rid)?;
        if request.speaker.is_some() {
            return request.speaker;
        }
        let wanted = dp_rank.or(request.dp_rank);
        let first = |process: &Process, of| process.rank(of).is_none_or(|rank| rank == 0);
        let mut speakers = self.processes.values().filter(|process| {
            process.role == Role::EngineCore
                && first(process, Parallel::Tensor)
                && first(process, Parallel::Pipeline)
                && wanted.is_none_or(|rank| process.rank(Parallel::Data).is_none_or(|own| own == rank))
        });
        let only = speakers.next()?;
        speakers.next().is_none().then_some(only.pid)
    }

    fn aborted(
        &mut self,
        rid: Option<&str>,
        finish: Option<SglangFinish>,
        at: MonoTime,
        context: &mut Context<'_>,
    ) {
        // The scheduler takes back every request whose id begins so (`Scheduler.abort_request`).
        let meant = |name: &str| rid.is_none_or(|rid| name.starts_with(rid) && !rid.is_empty());
        let names: Vec<String> = self.requests.keys().filter(|name| meant(name)).cloned().collect();
        for name in names {
            let Some(request) = self.requests.get_mut(&name) else { continue };
            request.touched = request.touched.max(at);
            match &finish {
                Some(finish) => {
                    request.finish.get_or_insert_with(|| finish.clone());
                    request.frontend.finished.seen(at, Source::Frontend);
                    request.end(Ending::Aborted, at);
                }
                None => {
                    request.abort_at.get_or_insert(at);
                }
            }
            if let Some(exchange) = request.exchange {
                self.settle(exchange, at, context);
            }
        }
    }

    /// What a scheduler's objects held.
    pub fn snapshot(&mut self, snapshot: Snapshot, context: &mut Context<'_>) {
        let Snapshot { pid, at, mark, requests, batch, members, launched, load } = snapshot;
        self.looked_into = true;
        if let (Some(mark), Some(batch)) = (mark, batch) {
            if let Some(forwards) = self.forwards.get_mut(&pid) {
                forwards.did(mark, &batch);
                forwards.launched(launched);
            }
            let batch = Batch { id: batch::id(&members, &batch, mark), size: batch.size, mode: batch.mode };
            let begun = Moment::seen(mark, Source::Estimate);
            let at = launched.map_or(begun, |at| Moment { at, source: Source::Scheduler });
            self.scheduled(pid, &members, Schedule { at, batch });
        }
        for state in &requests {
            self.forwards.entry(pid).or_default().state(state);
            // One that is kept was over before the agent came, unless it is known.
            if state.place == Place::Kept && !self.requests.contains_key(&state.rid) {
                continue;
            }
            let Some(request) = self.reach(&state.rid, at, context) else { continue };
            request.touched = request.touched.max(at);
            request.prompt_tokens = state.prompt_tokens.or(request.prompt_tokens);
            request.cached_tokens = state.cached_tokens.or(request.cached_tokens);
            request.bootstrap_room = state.bootstrap_room.or(request.bootstrap_room);
            request.schedulers.entry(pid).or_default().state(state, at);
            self.speaks(&state.rid, pid);
        }
        if let Some(load) = load {
            self.load(pid, at, &load);
        }
    }

    /// A scheduler that works on a request speaks for it, if it is its group's first.
    fn speaks(&mut self, rid: &str, pid: Pid) {
        let first = |of| self.processes.get(&pid).and_then(|p| p.rank(of)).is_none_or(|rank| rank == 0);
        let speaks = first(Parallel::Tensor) && first(Parallel::Pipeline);
        if let Some(request) = self.requests.get_mut(rid).filter(|_| speaks) {
            request.speaker.get_or_insert(pid);
        }
    }

    /// A forward of a scheduler began.
    pub fn forward(&mut self, pid: Pid, at: MonoTime) {
        self.forwards.entry(pid).or_default().began(at);
    }

    fn scheduled(&mut self, pid: Pid, members: &[String], schedule: Schedule) {
        for rid in members {
            if let Some(request) = self.requests.get_mut(rid).filter(|request| request.ending.is_none()) {
                request.schedulers.entry(pid).or_default().scheduled(schedule);
            }
        }
    }

    /// What a frontend's objects held.
    pub fn frontend_snapshot(&mut self, snapshot: FrontendSnapshot) {
        let FrontendSnapshot { pid, at, requests } = snapshot;
        for (rid, times) in requests {
            if health_check(&rid) || self.over.contains(&rid) {
                continue;
            }
            match self.requests.get_mut(&rid) {
                Some(request) => {
                    request.pid.get_or_insert(pid);
                    request.touched = request.touched.max(at);
                    request.frontend(&times);
                    self.count_times(&rid, false);
                }
                None if self.early.len() < MAX_EARLY || self.early.contains_key(&rid) => {
                    self.early.insert(rid, times);
                }
                // Requests that never were handed over fill it up: the engine's own copies of parallel samples.
                None => self.early.clear(),
            }
        }
    }

    /// The request that parallel samples were asked for by, of one that fills the cache for them: it was never handed over
    /// itself, and its clock shows when this one was.
    pub(super) fn parent_of(&mut self, request: &Request) -> Option<(String, FrontendTimes)> {
        let sent = request.frontend.dispatched.get().filter(|_| request.warms_up())?.mono();
        let apart = |times: &FrontendTimes| {
            let told = times.dispatched?.mono();
            Some(sent.since(told).max(told.since(sent)))
        };
        let near = self.early.iter().filter_map(|(rid, times)| Some((apart(times)?, rid)));
        let (_, rid) = near.filter(|(apart, _)| *apart < SAME).min()?;
        self.early.remove_entry(&rid.clone())
    }

    /// Makes room for one more request or exchange by giving up the one longest without news.
    fn make_room(&mut self, context: &mut Context<'_>) {
        let limit = context.settings.request_limit;
        if self.exchanges.len() >= limit {
            let oldest = self.exchanges.values().min_by_key(|e| e.touched).map(|e| (e.id, e.touched));
            if let Some((id, at)) = oldest {
                context.losses.add(Loss::RequestExpired, 1);
                self.expire_exchange(id, at, context);
            }
        }
        if self.requests.len() >= limit {
            let oldest =
                self.requests.iter().min_by_key(|(_, r)| r.touched).map(|(n, r)| (n.clone(), r.touched));
            if let Some((name, at)) = oldest {
                context.losses.add(Loss::RequestExpired, 1);
                self.expire_request(&name, at, context);
            }
        }
    }

    /// Joins to an exchange what its response did not name: the siblings of the requests it did.
    pub(super) fn join_siblings(&mut self, id: ExchangeId) {
        let Some(exchange) = self.exchanges.get(&id) else { return };
        for rid in join::siblings(exchange, &self.requests) {
            self.join(id, &rid);
        }
    }
}
