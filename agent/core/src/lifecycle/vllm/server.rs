//! One server: signals to the exchanges, requests and engine cores they are about.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::EngineCore;
use super::join;
use super::points::since_first;
use super::request::{Around, Ending, Request};
use super::totals::EngineTotals;
use super::v0;
use crate::capture::fact;
use crate::dialect::request_id;
use crate::dialect::signal::{
    ApiDelta, ApiSignal, ChoiceDelta, EngineOutput, EngineSignal, EngineStep, Finish,
};
use crate::dialect::vocabulary::Vocabulary;
use crate::hash::Map;
use crate::ids::{ExchangeId, Pid};
use crate::lifecycle::Context;
use crate::lifecycle::exchange::{Exchange, Joined, Keep};
use crate::lifecycle::taken_back::TakenBack;
use crate::lifecycle::totals::Usages;
use crate::loss::Loss;
use crate::time::{Clock, EngineTime, MonoTime, WallTime};
use crate::why::book::Book;

/// The children of one `n > 1` request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Siblings {
    /// Handed to the engine.
    pub added: u32,
    /// Finished.
    pub finished: u32,
}

/// One server.
#[derive(Debug)]
pub(in crate::lifecycle) struct Server {
    pub fact: fact::Server,
    /// Texts of its model's tokens, where they are collected.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// When its totals began.
    pub since: WallTime,
    pub cores: BTreeMap<u32, EngineCore>,
    pub totals: BTreeMap<u32, EngineTotals>,
    pub usages: Usages,
    /// Requests by the engine's id.
    pub requests: Map<String, Request>,
    /// Requests' ids by the ids of the responses they can be part of.
    pub by_base: Map<String, Vec<String>>,
    /// Open exchanges.
    pub exchanges: Map<ExchangeId, Exchange>,
    /// Open exchanges by response id.
    pub by_response: Map<String, ExchangeId>,
    /// Children of `n > 1` requests by the parent's id.
    pub(super) siblings: Map<String, Siblings>,
    /// Requests taken back and forgotten: the engine sends up to five outputs more.
    pub taken_back: TakenBack,
    /// Requests that waited for a remote KV cache at the step that is being taken.
    pub fetches: usize,
    /// What only a V0 engine has; `None` of V1.
    pub v0: Option<Box<v0::Engine>>,
    /// What is remembered to say why a request was slow.
    pub why: Book,
}

impl Server {
    pub fn new(fact: fact::Server, clock: Clock) -> Self {
        Self {
            v0: fact.v0.then(Box::default),
            fact,
            vocabulary: None,
            since: clock.wall,
            cores: BTreeMap::new(),
            totals: BTreeMap::new(),
            usages: Usages::default(),
            requests: Map::default(),
            by_base: Map::default(),
            exchanges: Map::default(),
            by_response: Map::default(),
            siblings: Map::default(),
            taken_back: TakenBack::default(),
            fetches: 0,
            why: Book::default(),
        }
    }

    /// It is known better.
    pub fn learn(&mut self, fact: fact::Server) {
        if fact.v0 {
            self.v0.get_or_insert_default();
        }
        self.fact = fact;
    }

    /// It has ended: its gauges say nothing any more.
    pub fn server_stopped(&mut self) {
        self.cores.values_mut().for_each(|core| core.state = None);
        if let Some(engine) = &mut self.v0 {
            engine.stopped();
        }
    }

    pub fn open(&self) -> usize {
        self.requests.len() + self.exchanges.len()
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
            ApiSignal::Text { exchange, at, said } => self.text(exchange, &said, at, context),
            ApiSignal::End { exchange, at, complete } => {
                if let Some(open) = self.exchanges.get_mut(&exchange) {
                    open.ended = Some((at, complete));
                    open.touched = at;
                }
                self.settle(exchange, at, context);
            }
        }
    }

    fn delta(&mut self, id: ExchangeId, delta: &ApiDelta, at: MonoTime, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let named = exchange.response_id.is_some();
        exchange.take(delta, at, Keep::from(context.settings));
        if !named && let Some(response) = exchange.response_id.clone() {
            self.name_exchange(id, &response);
        }
        for choice in &delta.choices {
            self.written(id, choice, at, context);
        }
    }

    fn text(&mut self, id: ExchangeId, said: &ChoiceDelta, at: MonoTime, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.take_text(said, at, Keep::from(context.settings));
        self.written(id, said, at, context);
    }

    /// The client was sent something of a candidate: so was whatever waited of its engine request.
    fn written(&mut self, id: ExchangeId, choice: &ChoiceDelta, at: MonoTime, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let Some(request) = join::of_choice(exchange, choice.index) else { return };
        let Some(request) = self.requests.get_mut(request) else { return };
        request.written(at);
        if let (true, Some(text)) = (context.settings.content, &choice.text) {
            request.streamed(text);
        }
    }

    /// The exchange's response id is known: its engine requests are too.
    fn name_exchange(&mut self, id: ExchangeId, response: &str) {
        self.join_all(id, response);
        self.by_response.insert(response.to_owned(), id);
    }

    /// Joins the requests of a response id to an exchange. Clients choose ids (`X-Request-Id`) and may choose one
    /// twice: an exchange gets no request older than itself, and no more than it asked for.
    pub fn join_all(&mut self, id: ExchangeId, response: &str) {
        let (Some(exchange), Some(names)) = (self.exchanges.get(&id), self.by_base.get(response)) else {
            return;
        };
        let mut found: Vec<(Option<MonoTime>, String)> = names
            .iter()
            .filter_map(|name| Some((name, self.requests.get(name)?)))
            .filter(|(_, request)| request.exchange.is_none() && request.pid == exchange.pid)
            .filter(|(_, request)| request.added.is_none_or(|added| added >= exchange.first_byte))
            .map(|(name, request)| (request.added, name.clone()))
            .collect();
        found.sort();
        let expected = join::expected(&exchange.request).unwrap_or(usize::MAX);
        found.truncate(expected.saturating_sub(exchange.requests.len()));
        for (_, name) in found {
            self.join(id, response, &name);
        }
    }

    fn join(&mut self, id: ExchangeId, response: &str, name: &str) {
        let Some(request) = self.requests.get_mut(name) else { return };
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        request.exchange = Some(id);
        let place = join::place(response, name, request);
        exchange.requests.push(Joined { place, name: name.to_owned() });
        exchange.requests.sort();
    }

    pub fn engine(&mut self, pid: Pid, signal: EngineSignal, context: &mut Context<'_>) {
        match signal {
            // It is over before it begins, and has no output.
            EngineSignal::Added { at: _, request } if request.off => {}
            EngineSignal::Added { at, request } => {
                self.make_room(context);
                if let Some(engine) = &mut self.v0 {
                    engine.messages = true;
                }
                let name = request.id.clone();
                if let Some(parent) = request_id::parent(&name) {
                    self.siblings.entry(parent.to_owned()).or_default().added += 1;
                }
                match self.requests.get_mut(&name) {
                    // Its outputs were told first: the protocol of their connection was clear sooner.
                    Some(known) => known.learn(*request, at),
                    None => self.insert(name, Request::added(*request, pid, at)),
                }
            }
            EngineSignal::Aborted { at, ids } => {
                for name in ids {
                    self.aborted(&name, at, context);
                }
            }
            EngineSignal::Step { at, step } => self.step(pid, *step, at, context),
            EngineSignal::Ready { at: _, ready: _ } => {}
            EngineSignal::Outputs { at, outputs } => self.outputs(pid, outputs, at, context),
            EngineSignal::Failed { at, id } => self.failed(&id, at, context),
            EngineSignal::Dead { at } => self.engine_died(pid, at, context),
        }
    }

    pub(super) fn insert(&mut self, name: String, request: Request) {
        let responses: Vec<String> = join::responses(&name, &request).map(str::to_owned).collect();
        self.requests.insert(name.clone(), request);
        for response in responses {
            self.by_base.entry(response.clone()).or_default().push(name.clone());
            if let Some(&exchange) = self.by_response.get(&response) {
                self.join_all(exchange, &response);
            }
        }
    }

    fn aborted(&mut self, name: &str, at: MonoTime, context: &mut Context<'_>) {
        let Some(request) = self.requests.get_mut(name) else { return };
        request.touched = at;
        request.abort_at.get_or_insert(at);
        if let Some(exchange) = request.exchange {
            self.settle(exchange, at, context);
        }
    }

    fn step(&mut self, pid: Pid, mut step: EngineStep, at: MonoTime, context: &mut Context<'_>) {
        let outputs = std::mem::take(&mut step.outputs);
        let count = outputs.len();
        let index = step.engine_index;
        let mut core = std::mem::take(self.cores.entry(index).or_default());
        self.transfers(&step, &mut core);
        let mut settled = Vec::new();
        if let Some(timestamp) = step.timestamp {
            let now = Now { pid, index, timestamp, at, stats: step.stats.is_some() };
            for output in outputs {
                settled.extend(self.output(output, now, &mut core, context));
            }
        }
        let core = self.cores.entry(index).insert_entry(core).into_mut();
        let before = core.iterations;
        core.take(&step, count > 0, pid, at);
        let stepped = core.iterations > before;
        self.remember(&step, count, stepped);
        for exchange in settled {
            self.settle(exchange, at, context);
        }
    }

    /// Gives an output to its request; the exchange to look at again, if the request ended.
    fn output(
        &mut self,
        mut output: EngineOutput,
        now: Now,
        core: &mut EngineCore,
        context: &mut Context<'_>,
    ) -> Option<ExchangeId> {
        let Now { pid, index, timestamp, at, stats } = now;
        let name = std::mem::take(&mut output.id);
        let alone = self.fetches < 2;
        let request = match self.requests.get_mut(&name) {
            Some(request) => request,
            None if self.taken_back.contains(&name) => return None,
            None => {
                self.make_room(context);
                self.insert(name.clone(), Request::seen(pid, at));
                self.requests.get_mut(&name)?
            }
        };
        request.engine_index = Some(index);
        if request.moments.first.is_none() && !stats && output.events.is_empty() {
            request.step_before_first = request.step_before_first.or(core.last_step());
            request.no_events = true;
        }
        request.pulled(&output, timestamp, &mut core.transfers, alone);
        let finish = output.finish;
        let applied = request.output(output, timestamp, at, around(core, context));
        let first_token = since_first(request, applied, context);
        self.add(Some(index), applied, first_token);
        finish.and_then(|reason| self.finished(&name, reason, at, core, context))
    }

    /// A request finished in the engine; its exchange, if known.
    fn finished(
        &mut self,
        name: &str,
        reason: Finish,
        at: MonoTime,
        core: &EngineCore,
        context: &mut Context<'_>,
    ) -> Option<ExchangeId> {
        let request = self.requests.get_mut(name)?;
        if request.ending.is_some() || request.abort_at.is_some() {
            return None;
        }
        let applied = request.settle(around(core, context));
        request.end(Ending::Finished(reason), at);
        let exchange = request.exchange;
        self.count(name, applied, context);
        self.observe_finished(name, reason.name(), context);
        exchange
    }

    /// Takes what a step says of KV transfers, before its outputs are given to their requests.
    fn transfers(&mut self, step: &EngineStep, core: &mut EngineCore) {
        let (Some(at), Some(stats)) = (step.timestamp, &step.stats) else { return };
        self.fetches = 0;
        if stats.transfers.is_none() && stats.fetching == 0 && core.transfers.is_empty() {
            return;
        }
        if let Some(transfers) = &stats.transfers {
            core.transfers.take(transfers, at);
        }
        for request in self.requests.values_mut().filter(|request| request.awaits_transfer()) {
            self.fetches += 1;
            if stats.fetching > 0 {
                request.fetching(at);
            }
        }
        if self.fetches == 0 {
            core.transfers.clear();
        }
    }
}

/// The step an output came with.
#[derive(Clone, Copy)]
struct Now {
    pid: Pid,
    index: u32,
    timestamp: EngineTime,
    at: MonoTime,
    stats: bool,
}

/// What a request needs to know around an output.
pub(super) fn around<'a>(core: &'a EngineCore, context: &Context<'_>) -> Around<'a> {
    Around {
        steps: &core.steps,
        iterations: context.settings.vllm_level >= crate::settings::VllmLevel::Iterations,
        limit: context.settings.event_limit,
    }
}

impl Server {
    /// Makes room for one more request or exchange by giving up the one longest without news.
    pub(super) fn make_room(&mut self, context: &mut Context<'_>) {
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
}
