//! vLLM's V0 engine: its messages tell what requests got and, with the last one, when; its scheduler's state comes from
//! elsewhere ([`V0Snapshot`]).

mod engine;
mod points;
mod spans;
mod told;

pub(super) use engine::Engine;
pub(super) use spans::llm_request;
pub(super) use told::{Told, Unsaid};

use super::points::per_output_token;
use super::request::{Ending, Request};
use super::server::Server;
use crate::dialect::signal::vllm_v0::{V0Metrics, V0Output, V0Reading, V0Snapshot, V0Source};
use crate::dialect::signal::{EngineRequest, Finish};
use crate::ids::{ExchangeId, Pid};
use crate::lifecycle::Context;
use crate::time::{EpochTime, MonoTime};

/// How the engine calls its parts of a request for several candidates (0.7 on): `ID_parallel_sample_0`.
/// Mirrors `ParallelSampleSequenceGroup` of `vllm/sequence.py`.
const PART: &str = "_parallel_sample_";

impl Server {
    /// The engine told what requests got.
    pub(super) fn outputs(
        &mut self,
        pid: Pid,
        outputs: Vec<V0Output>,
        at: MonoTime,
        context: &mut Context<'_>,
    ) {
        self.v0.get_or_insert_default().messages = true;
        let mut settled = Vec::new();
        for output in outputs {
            settled.extend(self.v0_output(pid, &output, at, context));
        }
        for exchange in settled {
            self.settle(exchange, at, context);
        }
    }

    /// Gives an output to its request; the exchange to look at again, if the request ended.
    fn v0_output(
        &mut self,
        pid: Pid,
        output: &V0Output,
        at: MonoTime,
        context: &mut Context<'_>,
    ) -> Option<ExchangeId> {
        let name = &output.id;
        if !self.requests.contains_key(name) {
            if self.taken_back.contains(name) {
                return None;
            }
            self.make_room(context);
            self.insert(name.clone(), Request::seen(pid, at));
        }
        let request = self.requests.get_mut(name)?;
        if request.ending.is_some() || request.abort_at.is_some() {
            return None;
        }
        let first = request.first_at.is_none();
        let tokens = request.take_v0(output, at);
        let prompt = request.prompt_tokens().filter(|_| first).unwrap_or(0);
        let totals = self.totals_of(None);
        totals.generation_tokens = totals.generation_tokens.saturating_add(tokens);
        totals.prompt_tokens = totals.prompt_tokens.saturating_add(prompt);
        if output.finished { self.v0_finished(name, at) } else { None }
    }

    /// A request is over; its exchange, if known.
    fn v0_finished(&mut self, name: &str, at: MonoTime) -> Option<ExchangeId> {
        let request = self.requests.get_mut(name)?;
        let told = request.v0.get_or_insert_default();
        let (metrics, reasons) = (told.metrics, told.reasons());
        request.end(Ending::Finished(reasons.first().copied().unwrap_or(Finish::Stop)), at);
        let (exchange, tokens, whole) = (request.exchange, request.output_tokens, !request.partial());
        let totals = self.totals_of(None);
        // The engine counts candidates; a pooling request counts as one that stopped.
        for reason in if reasons.is_empty() { vec![Finish::Stop] } else { reasons } {
            *totals.finished.entry(reason.name()).or_default() += 1;
        }
        totals.duration.add(metrics.e2e());
        totals.first_token.add(metrics.time_to_first_token().filter(|_| whole));
        totals.per_output_token.add(metrics.decode().map(|decode| per_output_token(decode, tokens)));
        exchange
    }

    /// The engine could not serve a request.
    pub(super) fn failed(&mut self, name: &str, at: MonoTime, context: &mut Context<'_>) {
        self.give_up(name, Ending::Finished(Finish::Error), at, context);
        let exchange = self.requests.get(name).and_then(|request| request.exchange);
        if let Some(exchange) = exchange {
            self.settle(exchange, at, context);
        }
    }

    /// What was read outside the messages. `alone`: of an engine with a process of its own.
    pub(in crate::lifecycle) fn v0_snapshot(
        &mut self,
        snapshot: V0Snapshot,
        alone: bool,
        context: &mut Context<'_>,
    ) {
        let V0Snapshot { pid, at, source, state, counts, requests, gone } = snapshot;
        let engine = self.v0.get_or_insert_default();
        engine.take(source, state, counts);
        engine.messages |= alone;
        let messages = engine.messages;
        // What is there at the first look began before it.
        let first = source == V0Source::Objects && !std::mem::replace(&mut engine.looked, true);
        for (name, reading) in requests {
            let whole = name.split_once(PART).map_or(name.as_str(), |(whole, _)| whole);
            // Without messages its objects are all that tells of a request.
            if !messages && !gone.contains(&name) && !self.requests.contains_key(whole) {
                self.make_room(context);
                let request =
                    if first { Request::seen(pid, at) } else { Request::added(unsaid(whole), pid, at) };
                self.insert(whole.to_owned(), request);
            }
            self.v0_reading(whole, reading, whole.len() < name.len(), at);
        }
        if !messages {
            gone.iter().for_each(|name| self.v0_gone(name, at, context));
        }
    }

    /// The engine has a request no more, and no message told why.
    fn v0_gone(&mut self, name: &str, at: MonoTime, context: &mut Context<'_>) {
        let Some(request) = self.requests.get_mut(name) else { return };
        request.v0.get_or_insert_default().gone = Some(at);
        if let Some(exchange) = request.exchange {
            self.settle(exchange, at, context);
        }
    }

    /// Whether the engine is one whose messages nobody can see.
    pub(super) fn unsaid(&self) -> bool {
        self.v0.as_ref().is_some_and(|engine| !engine.messages)
    }

    /// A request of such an engine is over with its exchange: what its client was told is what is known of its end.
    pub(super) fn conclude_unsaid(
        &mut self,
        id: ExchangeId,
        name: &str,
        at: MonoTime,
        context: &Context<'_>,
    ) {
        let (Some(exchange), Some(request)) = (self.exchanges.get(&id), self.requests.get_mut(name)) else {
            return;
        };
        let usage = exchange.usage.unwrap_or_default();
        let tokens = usage.completion.unwrap_or(exchange.increments);
        let told = request.v0.get_or_insert_default();
        told.unsaid = Some(if usage.completion.is_none() { Unsaid::Tokens } else { Unsaid::Times });
        // The response's end is a little later than the engine's.
        let end = EpochTime::of(context.clock.wall(at));
        told.metrics.learn(V0Metrics { last_token: Some(end), finished: Some(end), ..V0Metrics::default() });
        told.prompt_tokens = told.prompt_tokens.or(usage.prompt);
        told.said(exchange.choices.values().map(|choice| choice.finish_reason.as_deref()), tokens);
        request.output_tokens = told.tokens();
        let tokens = request.output_tokens;
        let totals = self.totals_of(None);
        totals.generation_tokens = totals.generation_tokens.saturating_add(tokens);
        totals.prompt_tokens = totals.prompt_tokens.saturating_add(usage.prompt.unwrap_or(0));
        self.v0_finished(name, at);
    }

    /// What the engine's objects hold of a request, or of a part of one.
    fn v0_reading(&mut self, name: &str, reading: V0Reading, part: bool, at: MonoTime) {
        let Some(request) = self.requests.get_mut(name) else { return };
        request.touched = request.touched.max(at);
        request.v0.get_or_insert_default().read(reading, part);
    }
}

/// A request of which nothing was handed over that could be seen.
fn unsaid(name: &str) -> EngineRequest {
    EngineRequest { id: name.to_owned(), ..EngineRequest::default() }
}

impl Request {
    /// Takes an output in; how many new tokens it told of.
    fn take_v0(&mut self, output: &V0Output, at: MonoTime) -> u64 {
        self.touched = at;
        self.first_at.get_or_insert(at);
        self.last_at = Some(at);
        self.unwritten.get_or_insert(at);
        let sampling = self.engine.as_ref().and_then(|engine| engine.sampling.as_ref());
        // Of a request of before the agent only a message that is its only one tells all its tokens.
        let deltas = sampling.is_none_or(|sampling| sampling.delta);
        let told = self.v0.get_or_insert_default();
        told.take(output, deltas);
        let before = std::mem::replace(&mut self.output_tokens, told.tokens());
        self.output_tokens.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests;
