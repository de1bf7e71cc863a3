//! The accounts of vLLM's requests: their moments, for [`crate::why`].

use super::join;
use super::request::{Ending, Request};
use super::server::Server;
use crate::dialect::signal::EngineStep;
use crate::lifecycle::exchange::Exchange;
use crate::time::{Clock, EngineTime, MonoTime, Nanos};
use crate::why::account::{self, Account, Cuts, Life, Part, Peer, Size};
use crate::why::ring::State;
use crate::why::verdict::Verdict;

/// The requests of an exchange that its times are taken from.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    /// That which gave the first token.
    lead: &'a Request,
    /// That which ended last.
    tail: &'a Request,
}

impl Server {
    /// Remembers a step and the state that came with it.
    pub(super) fn remember(&mut self, step: &EngineStep, outputs: usize, stepped: bool) {
        let Some(at) = step.timestamp.map(EngineTime::mono) else { return };
        if stepped {
            self.why.step(step.engine_index, at, outputs);
        }
        if let Some(stats) = step.stats.as_ref().filter(|_| stepped) {
            let waiting = stats.waiting.saturating_add(stats.skipped_waiting);
            let state = State { at, running: stats.running, waiting, kv_usage: stats.kv_usage };
            self.why.state(step.engine_index, state);
        }
    }

    /// The verdict on an exchange, or on a request without one.
    pub(super) fn verdict(
        &mut self,
        exchange: Option<&Exchange>,
        requests: &[(String, Request)],
        clock: Clock,
    ) -> Option<Verdict> {
        let account = self.account(exchange, requests, clock)?;
        let ended = exchange.and_then(|exchange| exchange.ended).map(|(at, _)| at);
        for (name, request) in requests {
            let tail = request.last_at.zip(ended).map(|(last, ended)| ended.since(last));
            self.why.ended(&peer(name, request, tail));
        }
        let open = self.requests.iter().map(|(name, request)| peer(name, request, None));
        let verdict = self.why.explain(&account, open);
        self.why.count(&verdict);
        Some(verdict)
    }

    fn account(
        &self,
        exchange: Option<&Exchange>,
        requests: &[(String, Request)],
        clock: Clock,
    ) -> Option<Account> {
        let (_, any) = requests.first()?;
        let lead =
            requests.iter().map(|(_, request)| request).min_by_key(|r| (r.first_at.is_none(), r.first_at));
        let tail = requests.iter().map(|(_, request)| request).max_by_key(|r| r.last_at);
        let chosen = Chosen { lead: lead.unwrap_or(any), tail: tail.unwrap_or(any) };
        let (begun, ended) = span(exchange, chosen, clock);
        let core = chosen.lead.engine_index.unwrap_or(0);
        let response = exchange.and_then(|exchange| exchange.response_id.clone());
        let names = requests.iter().map(|(name, _)| name.clone());
        let decoded = chosen.tail.moments;
        let steps = match (decoded.first, decoded.last) {
            (Some(first), Some(last)) => self.why.steps(core, first.mono(), last.mono()),
            (Some(_) | None, _) => Vec::new(),
        };
        Some(Account {
            server: self.fact.id,
            core,
            ids: response.into_iter().chain(names).collect(),
            begun,
            at: clock.wall(begun),
            ended,
            ending: ending(exchange, chosen.tail),
            cuts: cuts(exchange, chosen, begun, ended),
            size: size(requests, chosen.lead),
            mixes: true,
            handed: chosen.lead.added,
            life: life(chosen.tail, None),
            preempted: chosen
                .tail
                .preempted
                .iter()
                .map(|(at, again)| (at.mono(), again.map(EngineTime::mono)))
                .collect(),
            steps,
            partial: chosen.lead.partial() || chosen.lead.estimated,
        })
    }
}

/// From the first byte, or when it was taken up, to the end.
fn span(exchange: Option<&Exchange>, chosen: Chosen<'_>, clock: Clock) -> (MonoTime, MonoTime) {
    let Chosen { lead, tail } = chosen;
    let arrival = lead.engine.as_ref().and_then(|engine| engine.arrival);
    let taken_up = arrival.map_or(lead.since, |arrival| clock.mono(arrival.wall()));
    let begun = exchange.map_or(taken_up, |exchange| exchange.first_byte);
    let unseen = |ending: Ending| matches!(ending, Ending::Expired | Ending::Detached);
    let ending = tail.ending.filter(|(ending, _)| !unseen(*ending)).map(|(_, at)| at);
    let over = tail.last_at.max(ending).unwrap_or(tail.touched);
    let told = |exchange: &Exchange| exchange.ended.filter(|_| !exchange.unfinished).map(|(at, _)| at);
    let ended = exchange.map_or(over, |exchange| told(exchange).unwrap_or(exchange.touched.max(over)));
    (begun, ended.max(begun))
}

/// Where the time went. A response that is no stream has its first token when that reached the API server.
fn cuts(exchange: Option<&Exchange>, chosen: Chosen<'_>, begun: MonoTime, ended: MonoTime) -> Cuts {
    let Chosen { lead, tail } = chosen;
    let mut cuts = Cuts::new(begun, ended);
    if let Some(exchange) = exchange {
        cuts.to(Part::Receive, Some(exchange.last_byte));
    }
    cuts.to(Part::Frontend, lead.added);
    let moment = |at: Option<EngineTime>| at.map(EngineTime::mono);
    if lead.first_at.is_some() {
        cuts.to(Part::Handover, moment(lead.moments.queued));
        queue(&mut cuts, lead);
        cuts.to(Part::Prefill, moment(lead.moments.first));
        cuts.to(Part::Return, lead.first_at);
        let streamed = exchange.filter(|exchange| exchange.request.stream);
        if let Some(sent) = streamed.and_then(|exchange| exchange.first_sent) {
            cuts.to(Part::Send, Some(sent));
        }
        cuts.first_token();
        cuts.to(Part::Decode, moment(tail.moments.last));
        cuts.to(Part::Return, tail.last_at);
    } else if lead.added.is_some() {
        if lead.transfer.is_some() {
            queue(&mut cuts, lead);
        }
        // Its events come with its first output.
        cuts.to(Part::Untold, Some(ended));
    }
    cuts.to(Part::Send, Some(ended));
    cuts
}

/// The queue, and in it the transfer of its KV cache.
fn queue(cuts: &mut Cuts, lead: &Request) {
    let scheduled = lead.moments.scheduled.map(EngineTime::mono);
    if let Some(transfer) = lead.transfer {
        let done = transfer.ended.mono().min(scheduled.unwrap_or(MonoTime(u64::MAX)));
        cuts.to(Part::Queue, Some(MonoTime(done.0.saturating_sub(transfer.took.nanos().0))));
        cuts.to(Part::Transfer, Some(done));
    }
    cuts.to(Part::Queue, scheduled);
}

fn ending(exchange: Option<&Exchange>, tail: &Request) -> account::Ending {
    let told = tail.ending.map(|(ending, _)| ending);
    let unseen = matches!(told, Some(Ending::Expired | Ending::Detached) | None);
    match exchange {
        Some(exchange) if exchange.failed() => account::Ending::Failed,
        Some(exchange) if exchange.unfinished => account::Ending::Unseen,
        Some(exchange) => match exchange.ended {
            Some((_, true)) => account::Ending::Complete,
            Some((_, false)) if told == Some(Ending::Died) => account::Ending::Failed,
            Some((_, false)) => account::Ending::ClientGone,
            None => account::Ending::Unseen,
        },
        None if unseen => account::Ending::Unseen,
        None => match told {
            Some(Ending::Died) => account::Ending::Failed,
            Some(Ending::Aborted) => account::Ending::ClientGone,
            Some(Ending::Finished(_) | Ending::StopString | Ending::Expired | Ending::Detached) | None => {
                account::Ending::Complete
            }
        },
    }
}

fn size(requests: &[(String, Request)], lead: &Request) -> Size {
    let candidates = u32::try_from(requests.len()).unwrap_or(u32::MAX);
    Size {
        prompt: lead.prompt_tokens().unwrap_or(0),
        computed: computed(lead),
        output: requests.iter().map(|(_, request)| request.output_tokens).sum(),
        candidates,
        logprobs: logprobs(lead),
    }
}

/// Prompt tokens prefilled here.
fn computed(request: &Request) -> u64 {
    let prompt = request.prompt_tokens().unwrap_or(0);
    let cached = request.cached.map_or(0, |cached| cached.total);
    request.cached.and_then(|cached| cached.computed).unwrap_or(prompt.saturating_sub(cached))
}

fn logprobs(request: &Request) -> bool {
    let sampling = request.engine.as_ref().and_then(|engine| engine.sampling.as_ref());
    sampling.is_some_and(|sampling| sampling.logprobs.is_some())
}

fn life(request: &Request, tail: Option<Nanos>) -> Life {
    let moments = &request.moments;
    let mono = |at: Option<EngineTime>| at.map(EngineTime::mono);
    Life {
        core: request.engine_index.unwrap_or(0),
        handed: request.added,
        queued: mono(moments.queued),
        scheduled: mono(moments.scheduled),
        first: mono(moments.first),
        last: mono(moments.last),
        ended: request.ending.map(|(_, at)| at).or(request.abort_at),
        computed: computed(request),
        chunks: None,
        logprobs: logprobs(request),
        preemptions: request.preemptions,
        tail,
    }
}

/// A request as others see it.
fn peer<'a>(name: &'a str, request: &'a Request, tail: Option<Nanos>) -> Peer<'a> {
    Peer { name, group: join::responses(name, request).next().unwrap_or(name), life: life(request, tail) }
}
