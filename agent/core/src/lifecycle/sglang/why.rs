//! The accounts of SGLang's requests: their moments, for [`crate::why`].

use super::moment::{Moment, Slot};
use super::request::{Ending, Request};
use super::server::Server;
use super::timeline::Timeline;
use super::{spans, stages};
use crate::dialect::signal::sglang::{Hop, SglangLoad, SglangOutput};
use crate::ids::Pid;
use crate::lifecycle::exchange::Exchange;
use crate::time::{Clock, MonoTime, Nanos};
use crate::why::account::{self, Account, Cuts, Life, Part, Peer, Size};
use crate::why::verdict::Verdict;

/// Most steps between two that were told that are put in as equally long.
const MAX_UNTOLD: u64 = 4096;

impl Server {
    /// Remembers that a step's outputs came.
    pub(super) fn remember(&mut self, at: MonoTime, hop: Hop, outputs: &[SglangOutput]) {
        match hop {
            // The same outputs come to the frontend, whose end is always seen.
            Hop::Scheduler => {}
            Hop::Frontend => {
                let rank = outputs.first().and_then(|output| output.dp_rank).unwrap_or(0);
                self.why.step(rank, at, outputs.len());
            }
        }
    }

    /// A scheduler's state was told.
    pub(super) fn load(&mut self, pid: Pid, at: MonoTime, load: &SglangLoad) {
        self.loads.take(pid, at, load);
        let rank = load.dp_rank.unwrap_or(0);
        self.why.told(rank, at, load.running, load.queued, load.token_usage);
    }

    /// The verdict on an exchange, or on a request without one.
    pub(super) fn verdict(
        &mut self,
        exchange: Option<&Exchange>,
        requests: &[Request],
        clock: Clock,
    ) -> Option<Verdict> {
        let account = self.account(exchange, requests, clock)?;
        let over = exchange.and_then(|exchange| exchange.ended).map(|(at, _)| at);
        for request in requests {
            let last = request.frontend.last_token.get().map(Moment::mono);
            let tail = last.zip(over).map(|(last, over)| over.since(last));
            self.why.ended(&peer(request, tail));
        }
        let open = self.requests.values().map(|request| peer(request, None));
        let verdict = self.why.explain(&account, open);
        self.why.count(&verdict);
        Some(verdict)
    }

    fn account(&self, exchange: Option<&Exchange>, requests: &[Request], clock: Clock) -> Option<Account> {
        // Those that only fill the cache before parallel samples give no token.
        let samples = || requests.iter().filter(|request| !request.warms_up());
        let first_at = |request: &Request| request.frontend.first_token.get().map(Moment::mono);
        let lead = samples().min_by_key(|request| (first_at(request).is_none(), first_at(request)));
        let lead = lead.or(requests.first())?;
        let tail = samples().max_by_key(|request| end(request)).unwrap_or(lead);
        let warm = requests.iter().find(|request| request.warms_up() && request.rid != lead.rid);
        let begun = exchange.map_or(spans::begin(lead).mono(), |exchange| exchange.first_byte);
        let told = |exchange: &Exchange| exchange.ended.filter(|_| !exchange.unfinished).map(|(at, _)| at);
        let ended =
            exchange.map_or(end(tail), |exchange| told(exchange).unwrap_or(exchange.touched.max(end(tail))));
        let ended = ended.max(begun);
        let response = exchange.and_then(|exchange| exchange.response_id.clone());
        let names = requests.iter().map(|request| request.rid.clone());
        let ids = response.into_iter().chain(names).collect();
        Some(Account {
            server: self.fact.id,
            core: lead.dp_rank.unwrap_or(0),
            ids,
            begun,
            at: clock.wall(begun),
            ended,
            ending: ending(exchange, tail),
            cuts: cuts(exchange, warm, lead, tail, begun, ended),
            size: size(requests, lead),
            // Unless told to (`--enable-mixed-chunk`).
            mixes: false,
            handed: mono(lead.frontend.dispatched),
            life: life(tail, None),
            preempted: tail.spoken().map(preempted).unwrap_or_default(),
            steps: self.steps(tail),
            partial: lead.partial() || lead.spoken().is_none_or(|timeline| timeline.queued.get().is_none()),
        })
    }

    /// The end of its prefill and of each decode step after it. Where steps between two were not told, they are taken
    /// to be equally long.
    fn steps(&self, request: &Request) -> Vec<MonoTime> {
        let Some(timeline) = request.spoken() else { return Vec::new() };
        let Some(first) = prefilled(timeline) else { return Vec::new() };
        let marked = request.speaker.and_then(|speaker| self.forwards.get(&speaker));
        let counted = |forwards| stages::steps(timeline, forwards, self.overlaps());
        let steps = marked.map_or_else(|| timeline.steps.clone(), counted);
        let (mut ends, mut before) = (vec![first], (0, first));
        for (ordinal, step) in steps {
            let end = step.end.mono();
            if end <= before.1 || ordinal <= before.0 {
                continue;
            }
            let missing = (ordinal - before.0).min(MAX_UNTOLD);
            let each = Nanos(end.since(before.1).0 / missing);
            ends.extend((1..missing).map(|nth| before.1.plus(Nanos(each.0.saturating_mul(nth)))));
            ends.push(end);
            before = (ordinal, end);
        }
        ends
    }
}

fn mono(slot: Slot) -> Option<MonoTime> {
    slot.get().map(Moment::mono)
}

/// The end of its first prefill.
fn prefilled(timeline: &Timeline) -> Option<MonoTime> {
    mono(timeline.rounds.first()?.prefilled)
}

/// When the frontend had its last output, or gave it up.
fn end(request: &Request) -> MonoTime {
    let unseen = matches!(request.ending, Some((Ending::Expired | Ending::Detached, _)));
    let ended = request.ending.filter(|_| !unseen).map(|(_, at)| at);
    mono(request.frontend.finished).or(ended).unwrap_or(request.touched)
}

fn preempted(timeline: &Timeline) -> Vec<(MonoTime, Option<MonoTime>)> {
    let rounds = timeline.rounds.iter().skip(1);
    rounds
        .filter_map(|round| Some((mono(round.retracted)?, mono(round.prefilled).or(mono(round.forward)))))
        .collect()
}

/// Where the time went. A response that is no stream has its first token when its prefill was done.
fn cuts(
    exchange: Option<&Exchange>,
    warm: Option<&Request>,
    lead: &Request,
    tail: &Request,
    begun: MonoTime,
    ended: MonoTime,
) -> Cuts {
    let mut cuts = Cuts::new(begun, ended);
    if let Some(exchange) = exchange {
        cuts.to(Part::Receive, Some(exchange.last_byte));
    }
    if let Some(warm) = warm {
        // Before parallel samples their prompt is prefilled once, to fill the cache.
        cuts.to(Part::Frontend, mono(warm.frontend.dispatched));
        warm.spoken().into_iter().for_each(|timeline| in_scheduler(&mut cuts, timeline));
        cuts.to(Part::Return, mono(warm.frontend.last_token));
    }
    cuts.to(Part::Frontend, mono(lead.frontend.dispatched));
    if let Some(timeline) = lead.spoken() {
        in_scheduler(&mut cuts, timeline);
    }
    if lead.frontend.first_token.is_some() {
        cuts.to(Part::Return, mono(lead.frontend.first_token));
        let streamed = exchange.filter(|exchange| exchange.request.stream);
        if let Some(sent) = streamed.and_then(|exchange| exchange.first_sent) {
            cuts.to(Part::Send, Some(sent));
        }
        cuts.first_token();
        let timeline = tail.spoken();
        let last = timeline.and_then(|timeline| timeline.steps.values().next_back());
        let completed = timeline.and_then(|timeline| mono(timeline.completed));
        cuts.to(Part::Decode, last.map(|step| step.end.mono()).max(completed));
        cuts.to(Part::Return, mono(tail.frontend.last_token));
    }
    cuts.to(Part::Send, Some(ended));
    cuts
}

/// From its reaching the scheduler to the end of its prefill.
fn in_scheduler(cuts: &mut Cuts, timeline: &Timeline) {
    let (queued, forward) = (mono(timeline.queued), mono(timeline.forward));
    if let Some(asked) = mono(timeline.pair.decode_transfer_queued) {
        cuts.to(Part::Queue, Some(asked));
        cuts.to(Part::Transfer, queued);
    } else {
        cuts.to(Part::Handover, queued);
    }
    cuts.to(Part::Queue, forward);
    cuts.to(Part::Prefill, prefilled(timeline));
}

fn ending(exchange: Option<&Exchange>, tail: &Request) -> account::Ending {
    let of_request = match tail.ending.map(|(ending, _)| ending) {
        Some(Ending::Finished) => account::Ending::Complete,
        Some(Ending::Aborted) => account::Ending::ClientGone,
        Some(Ending::Died) => account::Ending::Failed,
        Some(Ending::Expired | Ending::Detached) | None => account::Ending::Unseen,
    };
    match exchange {
        Some(exchange) if exchange.failed() => account::Ending::Failed,
        Some(exchange) if exchange.unfinished => account::Ending::Unseen,
        Some(exchange) => match exchange.ended {
            Some((_, true)) => account::Ending::Complete,
            Some((_, false)) if of_request == account::Ending::Failed => of_request,
            Some((_, false)) => account::Ending::ClientGone,
            None => account::Ending::Unseen,
        },
        None => of_request,
    }
}

fn size(requests: &[Request], lead: &Request) -> Size {
    let samples = requests.iter().filter(|request| !request.warms_up());
    let candidates = u32::try_from(samples.clone().count()).unwrap_or(u32::MAX);
    Size {
        prompt: lead.prompt_tokens.unwrap_or(0),
        computed: computed(lead),
        output: samples.filter_map(|request| request.completion_tokens).sum(),
        candidates,
        logprobs: logprobs(lead),
    }
}

fn computed(request: &Request) -> u64 {
    request.prompt_tokens.unwrap_or(0).saturating_sub(request.cached_tokens.unwrap_or(0))
}

fn logprobs(request: &Request) -> bool {
    request.handed.as_ref().is_some_and(|handed| handed.logprobs)
}

fn life(request: &Request, tail: Option<Nanos>) -> Life {
    let timeline = request.spoken();
    let slot = |of: fn(&Timeline) -> Slot| timeline.and_then(|timeline| mono(of(timeline)));
    let last_step = timeline.and_then(|timeline| timeline.steps.values().next_back());
    let first = timeline.and_then(prefilled);
    let round = timeline.and_then(|timeline| timeline.rounds.first());
    let chunks = round.filter(|round| !round.chunks.is_empty()).map(|round| round.chunks.len() + 1);
    let returns = timeline.map_or(0, |timeline| timeline.rounds.len().saturating_sub(1));
    Life {
        core: request.dp_rank.unwrap_or(0),
        handed: mono(request.frontend.dispatched),
        queued: slot(|timeline| timeline.queued),
        scheduled: slot(|timeline| timeline.forward),
        first,
        last: last_step.map(|step| step.end.mono()).max(slot(|timeline| timeline.completed)).or(first),
        ended: request.ending.map(|(_, at)| at).or(request.abort_at),
        computed: computed(request),
        chunks: Some(chunks.and_then(|chunks| u32::try_from(chunks).ok()).unwrap_or(1)),
        logprobs: logprobs(request),
        preemptions: u64::try_from(returns).unwrap_or(u64::MAX),
        tail,
    }
}

/// A request as others see it. Candidates of one API request have ids of their own and are taken for requests.
fn peer(request: &Request, tail: Option<Nanos>) -> Peer<'_> {
    Peer { name: &request.rid, group: &request.rid, life: life(request, tail) }
}
