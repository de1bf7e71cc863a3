//! Ends: when an exchange and its requests are over, and what is said of those that never end.

use super::engine::EngineCore;
use super::join::{self, GRACE};
use super::request::{Applied, Ending, Request};
use super::server::{Server, around};
use super::spans::{self, Parts};
use crate::dialect::request_id;
use crate::dialect::signal::Finish;
use crate::hash::in_order;
use crate::ids::{ExchangeId, Pid};
use crate::lifecycle::Context;
use crate::lifecycle::exchange::Exchange;
use crate::loss::Loss;
use crate::time::MonoTime;

impl Server {
    /// Makes the exchange's trace if it and all its requests have ended.
    pub(super) fn settle(&mut self, id: ExchangeId, now: MonoTime, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let Some((ended, complete)) = exchange.ended else { return };
        let late = now > ended.plus(GRACE);
        if exchange.requests.is_empty() && !self.claim(id) && !late && !self.needs_none(id) {
            return;
        }
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let gone = |request: &Request| request.v0.as_ref().is_some_and(|told| told.gone.is_some());
        let open =
            |request: &Request| request.ending.is_none() && request.abort_at.is_none() && !gone(request);
        let waiting = exchange.requests.iter().filter_map(|joined| self.requests.get(&joined.name)).any(open);
        if waiting && !late {
            return;
        }
        for joined in exchange.requests.clone() {
            self.conclude(id, &joined.name, complete, context);
        }
        self.emit(id, context);
    }

    /// Whether no engine request is to be expected of an exchange without one.
    fn needs_none(&self, id: ExchangeId) -> bool {
        self.exchanges.get(&id).is_none_or(|exchange| {
            let refused = exchange.status.is_some_and(|status| (400..500).contains(&status));
            refused && exchange.failed()
        })
    }

    /// Joins requests to an exchange whose response never had an id; says whether there were any.
    fn claim(&mut self, id: ExchangeId) -> bool {
        let Some(exchange) = self.exchanges.get(&id) else { return false };
        if exchange.response_id.is_some() || self.needs_none(id) {
            return false;
        }
        let Some(found) = join::guess(exchange, self.requests.iter()) else { return false };
        let Some(request) = self.requests.get(&found) else { return false };
        let Some(response) = join::responses(&found, request).next().map(str::to_owned) else { return false };
        self.join_all(id, &response);
        true
    }

    /// Ends a request of an exchange that is over.
    fn conclude(&mut self, id: ExchangeId, name: &str, complete: bool, context: &mut Context<'_>) {
        let (Some(exchange), Some(request)) = (self.exchanges.get(&id), self.requests.get(name)) else {
            return;
        };
        if request.ending.is_some() {
            return;
        }
        let alone = exchange.requests.len() == 1;
        let counted = exchange.usage.and_then(|usage| usage.completion).filter(|_| alone);
        let ended = exchange.ended.map_or(exchange.touched, |(at, _)| at);
        let at = request.abort_at.unwrap_or(ended);
        let stopped = complete && request.has_stop() && !exchange.failed();
        match (request.abort_at, complete) {
            (None, true) if self.unsaid() && !exchange.failed() => {
                self.conclude_unsaid(id, name, at, context)
            }
            (Some(_), _) if stopped => self.stopped(name, counted, at, context),
            (Some(_), _) | (None, false) => self.give_up(name, Ending::Aborted, at, context),
            // The client was told of an error, and nothing was taken back: there is no engine to take it from.
            (None, true) if exchange.failed() => self.give_up(name, Ending::Died, at, context),
            // The response was whole, so the engine finished: its last output was lost.
            (None, true) => {
                context.losses.add(Loss::RequestExpired, 1);
                self.give_up(name, Ending::Expired, at, context);
            }
        }
    }

    /// The frontend found a stop string: counts as finished, up to the tokens the client was told.
    fn stopped(&mut self, name: &str, counted: Option<u64>, at: MonoTime, context: &mut Context<'_>) {
        let applied = self.with_core(
            name,
            |request, core, context| {
                let applied = request.settle_until(counted, around(core, context));
                request.end(Ending::StopString, at);
                applied
            },
            context,
        );
        self.count(name, applied, context);
        self.observe_finished(name, "stop", context);
    }

    /// Ends a request that did not finish: what it got is counted, its times are not.
    pub(super) fn give_up(&mut self, name: &str, ending: Ending, at: MonoTime, context: &mut Context<'_>) {
        let applied = self.with_core(
            name,
            |request, core, context| {
                let applied = request.settle(around(core, context));
                // Taken back is taken back, whatever came after.
                request.end(request.abort_at.map_or(ending, |_| Ending::Aborted), at);
                applied
            },
            context,
        );
        self.count(name, applied, context);
    }

    fn with_core(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut Request, &EngineCore, &Context<'_>) -> Applied,
        context: &Context<'_>,
    ) -> Applied {
        let idle = EngineCore::default();
        let Some(request) = self.requests.get_mut(name) else { return Applied::default() };
        let core = request.engine_index.and_then(|index| self.cores.get(&index)).unwrap_or(&idle);
        act(request, core, context)
    }

    /// Makes the trace of an exchange and forgets both.
    fn emit(&mut self, id: ExchangeId, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        if let Some(response) = &exchange.response_id {
            self.by_response.remove(response);
        }
        let requests: Vec<(String, Request)> =
            exchange.requests.iter().filter_map(|joined| self.forget(&joined.name)).collect();
        self.use_tokens(&exchange, &requests);
        self.explained(Some(&exchange), &requests, context);
    }

    /// Makes the trace of a request without an exchange and forgets it.
    fn emit_alone(&mut self, name: &str, context: &mut Context<'_>) {
        let Some(request) = self.forget(name) else { return };
        self.explained(None, std::slice::from_ref(&request), context);
    }

    /// Makes a trace and the verdict that goes with it.
    fn explained(
        &mut self,
        exchange: Option<&Exchange>,
        requests: &[(String, Request)],
        context: &mut Context<'_>,
    ) {
        let verdict = self.verdict(exchange, requests, context.clock);
        let parts = self.parts(exchange, requests);
        let mut trace = spans::trace(&parts, context.settings, context.clock, context.mint);
        if let Some(verdict) = verdict {
            verdict.put_on(&mut trace);
            context.verdicts.push(verdict);
        }
        context.done.push(trace);
    }

    fn parts<'a>(&'a self, exchange: Option<&'a Exchange>, requests: &'a [(String, Request)]) -> Parts<'a> {
        Parts {
            server: &self.fact,
            v0: self.v0.is_some(),
            vocabulary: self.vocabulary.as_deref(),
            exchange,
            requests,
        }
    }

    fn forget(&mut self, name: &str) -> Option<(String, Request)> {
        let (name, request) = self.requests.remove_entry(name)?;
        if request.abort_at.is_some() {
            self.taken_back.insert(&name);
        }
        for response in join::responses(&name, &request) {
            if let Some(names) = self.by_base.get_mut(response) {
                names.retain(|other| *other != name);
                if names.is_empty() {
                    self.by_base.remove(response);
                }
            }
        }
        self.forget_sibling(&name);
        Some((name, request))
    }

    fn forget_sibling(&mut self, name: &str) {
        let Some(parent) = request_id::parent(name) else { return };
        if let Some(siblings) = self.siblings.get_mut(parent) {
            siblings.added = siblings.added.saturating_sub(1);
            if siblings.added == 0 {
                self.siblings.remove(parent);
            }
        }
    }

    /// Grace periods and expiry.
    pub(in crate::lifecycle) fn tick(&mut self, now: MonoTime, context: &mut Context<'_>) {
        for id in in_order(self.exchanges.values().filter(|e| e.ended.is_some()).map(|e| e.id)) {
            self.settle(id, now, context);
        }
        for name in in_order(self.ownerless(now).cloned()) {
            let aborted = self.requests.get(&name).and_then(|request| request.abort_at);
            if let Some(at) = aborted {
                self.give_up(&name, Ending::Aborted, at, context);
            }
            // Why it is gone nobody told: its client was not seen.
            if let Some(at) = self.requests.get(&name).and_then(|request| request.v0.as_ref()?.gone) {
                self.give_up(&name, Ending::Finished(Finish::Other(0)), at, context);
            }
            self.emit_alone(&name, context);
        }
        self.expire(now, context);
    }

    /// Requests that ended a while ago and that no open exchange can claim any more.
    fn ownerless(&self, now: MonoTime) -> impl Iterator<Item = &String> {
        self.requests.iter().filter_map(move |(name, request)| {
            let gone = || request.v0.as_ref()?.gone;
            let ended = request.ending.map(|(_, at)| at).or(request.abort_at).or_else(gone)?;
            let claimed = request.exchange.is_some_and(|id| self.exchanges.contains_key(&id));
            let late = now > ended.plus(GRACE);
            let free = !claimed && late && !join::may_be_claimed(request, self.exchanges.values());
            free.then_some(name)
        })
    }

    fn expire(&mut self, now: MonoTime, context: &mut Context<'_>) {
        let expiry = context.settings.expiry;
        let old = |touched: MonoTime| now > touched.plus(expiry);
        // A long wait in the engine's queue is no reason to give an exchange up: its requests count too.
        let exchanges = self
            .exchanges
            .values()
            .filter(|e| old(e.touched))
            .filter(|e| e.requests.iter().filter_map(|j| self.requests.get(&j.name)).all(|r| old(r.touched)))
            .map(|e| e.id);
        for id in in_order(exchanges) {
            context.losses.add(Loss::RequestExpired, 1);
            self.expire_exchange(id, now, context);
        }
        let requests = self
            .requests
            .iter()
            .filter(|(_, r)| old(r.touched) && r.exchange.is_none())
            .map(|(name, _)| name.clone());
        for name in in_order(requests) {
            context.losses.add(Loss::RequestExpired, 1);
            self.expire_request(&name, now, context);
        }
    }

    /// Ends an exchange that nobody hears of any more, with its requests.
    pub(super) fn expire_exchange(&mut self, id: ExchangeId, at: MonoTime, context: &mut Context<'_>) {
        self.close(id, Ending::Expired, at, context);
    }

    /// Ends a request that nobody hears of any more.
    pub(super) fn expire_request(&mut self, name: &str, at: MonoTime, context: &mut Context<'_>) {
        self.give_up(name, Ending::Expired, at, context);
        let exchange = self.requests.get(name).and_then(|request| request.exchange);
        match exchange.filter(|id| self.exchanges.contains_key(id)) {
            Some(id) => self.close(id, Ending::Expired, at, context),
            None => self.emit_alone(name, context),
        }
    }

    fn close(&mut self, id: ExchangeId, ending: Ending, at: MonoTime, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.ended.get_or_insert((at, false));
        exchange.unfinished = matches!(ending, Ending::Detached | Ending::Expired);
        for joined in exchange.requests.clone() {
            self.give_up(&joined.name, ending, at, context);
        }
        self.emit(id, context);
    }

    /// A process ended: its exchanges and requests end with it.
    pub(in crate::lifecycle) fn gone(&mut self, pid: Pid, at: MonoTime, context: &mut Context<'_>) {
        self.end_all(Some(pid), Ending::Died, at, context);
    }

    /// The agent leaves: everything open ends as it stands.
    pub(in crate::lifecycle) fn detached(&mut self, at: MonoTime, context: &mut Context<'_>) {
        self.end_all(None, Ending::Detached, at, context);
    }

    /// The engine behind a frontend died: its requests end. The exchanges go on until the frontend has told its
    /// clients.
    pub(super) fn engine_died(&mut self, pid: Pid, at: MonoTime, context: &mut Context<'_>) {
        for name in self.requests_of(Some(pid)) {
            self.give_up(&name, Ending::Died, at, context);
        }
    }

    fn requests_of(&self, pid: Option<Pid>) -> Vec<String> {
        let of = self.requests.iter().filter(|(_, request)| pid.is_none_or(|pid| pid == request.pid));
        let mut names: Vec<_> = of.map(|(name, request)| (request.added, name.clone())).collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    fn end_all(&mut self, pid: Option<Pid>, ending: Ending, at: MonoTime, context: &mut Context<'_>) {
        let requests = self.requests_of(pid);
        for name in &requests {
            self.give_up(name, ending, at, context);
        }
        let of = self.exchanges.values_mut().filter(|e| pid.is_none_or(|pid| pid == e.pid));
        let mut exchanges = Vec::new();
        for exchange in of {
            exchange.ended.get_or_insert((at, false));
            exchanges.push(exchange.id);
        }
        exchanges.sort();
        for id in exchanges {
            self.claim(id);
            self.close(id, ending, at, context);
        }
        for name in &requests {
            self.emit_alone(name, context);
        }
    }
}
