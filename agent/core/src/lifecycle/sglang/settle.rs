//! Ends: when an exchange and its requests are over, and what is said of those that never end.

use super::join::{self, ABORT_GRACE, GRACE};
use super::request::{Ending, Request};
use super::server::Server;
use super::spans::{self, Parts};
use crate::ids::{ExchangeId, Pid};
use crate::lifecycle::Context;
use crate::lifecycle::exchange::Exchange;
use crate::loss::Loss;
use crate::time::{MonoTime, Nanos};

/// What a scheduler's objects held at a request's last step is told within this of its end.
const LINGER: Nanos = Nanos::from_millis(200);

impl Server {
    /// Makes the exchange's trace if it and all its requests have ended.
    pub(super) fn settle(&mut self, id: ExchangeId, now: MonoTime, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let Some((ended, complete)) = exchange.ended else { return };
        let grace = if complete { GRACE } else { ABORT_GRACE };
        let late = now > ended.plus(grace);
        if exchange.requests.is_empty() && !self.claim(id, late) && !late && !self.needs_none(id) {
            return;
        }
        self.join_siblings(id);
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let joined = || exchange.requests.iter().filter_map(|joined| self.requests.get(&joined.name));
        if joined().any(|request| request.ending.is_none()) && !late {
            return;
        }
        let lingers = self.looked_into && joined().next().is_some();
        if lingers && now < ended.plus(LINGER) {
            return;
        }
        for joined in exchange.requests.clone() {
            self.conclude(id, &joined.name, complete, context);
        }
        self.emit(id, context);
    }

    /// Whether no request is to be expected of an exchange without one.
    fn needs_none(&self, id: ExchangeId) -> bool {
        self.exchanges.get(&id).is_none_or(|exchange| {
            let refused = exchange.status.is_some_and(|status| (400..500).contains(&status));
            refused && exchange.failed()
        })
    }

    /// Joins a request to an exchange whose response named none; says whether there was one.
    fn claim(&mut self, id: ExchangeId, late: bool) -> bool {
        let Some(exchange) = self.exchanges.get(&id) else { return false };
        if exchange.response_id.is_some() || self.needs_none(id) {
            return false;
        }
        let Some(found) = join::guess(exchange, &self.requests, late) else { return false };
        self.join(id, &found);
        true
    }

    /// Ends a request of an exchange that is over.
    fn conclude(&mut self, id: ExchangeId, rid: &str, complete: bool, context: &mut Context<'_>) {
        let (Some(exchange), Some(request)) = (self.exchanges.get(&id), self.requests.get_mut(rid)) else {
            return;
        };
        let ended = exchange.ended.map_or(exchange.touched, |(at, _)| at);
        match (request.done_at, request.abort_at, complete) {
            // The frontend's end of the last message was lost.
            (Some(at), _, _) => request.end(request.by_engine(), at),
            (None, Some(at), _) => request.end(Ending::Aborted, at),
            (None, None, false) => request.end(Ending::Aborted, ended),
            (None, None, true) if exchange.failed() => request.end(Ending::Died, ended),
            (None, None, true) => {
                if request.ending.is_none() {
                    context.losses.add(Loss::RequestExpired, 1);
                }
                request.end(Ending::Expired, ended);
            }
        }
    }

    /// Makes the trace of an exchange and forgets both.
    fn emit(&mut self, id: ExchangeId, context: &mut Context<'_>) {
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        self.named.retain(|_, named| *named != id);
        let names: Vec<String> = exchange.requests.iter().map(|joined| joined.name.clone()).collect();
        let requests: Vec<Request> = names.iter().filter_map(|name| self.forget(name)).collect();
        self.use_tokens(&exchange, &requests);
        self.trace(Some(&exchange), &requests, context);
    }

    /// Makes the trace of a request without an exchange and forgets it.
    fn emit_alone(&mut self, rid: &str, context: &mut Context<'_>) {
        if let Some(request) = self.forget(rid) {
            self.trace(None, std::slice::from_ref(&request), context);
        }
    }

    fn trace(&mut self, exchange: Option<&Exchange>, requests: &[Request], context: &mut Context<'_>) {
        let verdict = self.verdict(exchange, requests, context.clock);
        let parts = Parts {
            server: &self.fact,
            processes: &self.processes,
            forwards: &self.forwards,
            exchange,
            requests,
        };
        let mut made = spans::trace(&parts, context.settings, context.clock, context.mint);
        context.losses.add(Loss::StepUnseen, made.unseen);
        if let Some(verdict) = verdict {
            verdict.put_on(&mut made.trace);
            context.verdicts.push(verdict);
        }
        if !made.trace.spans.is_empty() {
            context.done.push(made.trace);
        }
    }

    fn forget(&mut self, rid: &str) -> Option<Request> {
        self.count_last(rid);
        self.over.insert(rid);
        let mut request = self.requests.remove(rid)?;
        request.parent = self.parent_of(&request);
        Some(request)
    }

    /// Grace periods and expiry.
    pub(in crate::lifecycle) fn tick(&mut self, now: MonoTime, context: &mut Context<'_>) {
        self.loads.tick(now);
        let over: Vec<ExchangeId> =
            self.exchanges.values().filter(|e| e.ended.is_some()).map(|e| e.id).collect();
        for id in over {
            self.settle(id, now, context);
        }
        self.late_ends(now);
        let alone: Vec<String> = self.ownerless(now).cloned().collect();
        for rid in alone {
            self.emit_alone(&rid, context);
        }
        self.expire(now, context);
    }

    /// Requests that are done as far as the scheduler said, and of which the frontend says nothing.
    fn late_ends(&mut self, now: MonoTime) {
        for request in self.requests.values_mut().filter(|request| request.ending.is_none()) {
            let done = request.done_at.filter(|at| now > at.plus(GRACE));
            let aborted = request.abort_at.filter(|at| now > at.plus(ABORT_GRACE));
            if let Some(at) = done {
                request.end(request.by_engine(), at);
            } else if let Some(at) = aborted {
                request.end(Ending::Aborted, at);
            }
        }
    }

    /// Requests that ended a while ago and that no open exchange can claim any more.
    fn ownerless(&self, now: MonoTime) -> impl Iterator<Item = &String> {
        self.requests.iter().filter_map(move |(rid, request)| {
            let (_, ended) = request.ending?;
            let claimed = request.exchange.is_some_and(|id| self.exchanges.contains_key(&id));
            let late = now > ended.plus(GRACE);
            let free = !claimed && late && !join::may_be_claimed(request, self.exchanges.values());
            free.then_some(rid)
        })
    }

    fn expire(&mut self, now: MonoTime, context: &mut Context<'_>) {
        let expiry = context.settings.expiry;
        let old = |touched: MonoTime| now > touched.plus(expiry);
        // A long wait in the engine's queue is no reason to give an exchange up: its requests count too.
        let exchanges: Vec<ExchangeId> = self
            .exchanges
            .values()
            .filter(|e| old(e.touched))
            .filter(|e| e.requests.iter().filter_map(|j| self.requests.get(&j.name)).all(|r| old(r.touched)))
            .map(|e| e.id)
            .collect();
        for id in exchanges {
            context.losses.add(Loss::RequestExpired, 1);
            self.expire_exchange(id, now, context);
        }
        let requests: Vec<String> = self
            .requests
            .iter()
            .filter(|(_, r)| old(r.touched) && r.exchange.is_none())
            .map(|(rid, _)| rid.clone())
            .collect();
        for rid in requests {
            context.losses.add(Loss::RequestExpired, 1);
            self.expire_request(&rid, now, context);
        }
    }

    /// Ends an exchange that nobody hears of any more, with its requests.
    pub(super) fn expire_exchange(&mut self, id: ExchangeId, at: MonoTime, context: &mut Context<'_>) {
        self.close(id, Ending::Expired, at, context);
    }

    /// Ends a request that nobody hears of any more.
    pub(super) fn expire_request(&mut self, rid: &str, at: MonoTime, context: &mut Context<'_>) {
        let Some(request) = self.requests.get_mut(rid) else { return };
        request.end(Ending::Expired, at);
        let exchange = request.exchange;
        match exchange.filter(|id| self.exchanges.contains_key(id)) {
            Some(id) => self.close(id, Ending::Expired, at, context),
            None => self.emit_alone(rid, context),
        }
    }

    fn close(&mut self, id: ExchangeId, ending: Ending, at: MonoTime, context: &mut Context<'_>) {
        self.join_siblings(id);
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.ended.get_or_insert((at, false));
        exchange.unfinished = matches!(ending, Ending::Detached | Ending::Expired);
        for joined in exchange.requests.clone() {
            if let Some(request) = self.requests.get_mut(&joined.name) {
                request.end(ending, at);
            }
        }
        self.emit(id, context);
    }

    /// A process ended: a frontend's exchanges and requests end with it, a scheduler's requests do; their exchanges
    /// go on until the frontend has told its clients.
    pub(in crate::lifecycle) fn gone(&mut self, pid: Pid, at: MonoTime, context: &mut Context<'_>) {
        self.loads.gone(pid);
        let frontend = self.exchanges.values().any(|exchange| exchange.pid == pid)
            || self.requests.values().any(|request| request.pid == Some(pid));
        for request in self.requests.values_mut().filter(|request| join::concerns(request, pid)) {
            request.end(Ending::Died, at);
        }
        if frontend {
            self.end_all(Some(pid), Ending::Died, at, context);
        }
        self.processes.remove(&pid);
        self.forwards.remove(&pid);
    }

    /// The agent leaves: everything open ends as it stands.
    pub(in crate::lifecycle) fn detached(&mut self, at: MonoTime, context: &mut Context<'_>) {
        self.loads.flush();
        self.end_all(None, Ending::Detached, at, context);
    }

    fn end_all(&mut self, pid: Option<Pid>, ending: Ending, at: MonoTime, context: &mut Context<'_>) {
        let of = |other: Option<Pid>| pid.is_none() || pid == other;
        let mut exchanges: Vec<ExchangeId> =
            self.exchanges.values().filter(|e| of(Some(e.pid))).map(|e| e.id).collect();
        exchanges.sort();
        for id in exchanges {
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                // One that is over already only waited for the last of what is told of it.
                let over = exchange.ended.is_some_and(|(_, complete)| complete);
                exchange.ended.get_or_insert((at, false));
                if over {
                    self.settle(id, MonoTime(u64::MAX), context);
                }
            }
            self.claim(id, true);
            self.close(id, ending, at, context);
        }
        let mut requests: Vec<(u64, String)> = self
            .requests
            .iter()
            .filter(|(_, request)| of(request.pid))
            .map(|(rid, request)| (request.order, rid.clone()))
            .collect();
        requests.sort();
        for (_, rid) in requests {
            if let Some(request) = self.requests.get_mut(&rid) {
                match request.done_at {
                    Some(done) => request.end(request.by_engine(), done),
                    None => request.end(ending, at),
                }
            }
            self.emit_alone(&rid, context);
        }
    }
}
