//! Spans of one API request: the entry span, an `llm_request` for each engine request, its stages and events.

use super::request::{Ending, Request};
use super::transfer::Sure;
use super::{stages, v0};
use crate::capture::fact;
use crate::dialect::signal::{Finish, Operation, Sampling};
use crate::dialect::vocabulary::Vocabulary;
use crate::ids::{Mint, SpanId};
use crate::lifecycle::entry;
use crate::lifecycle::exchange::Exchange;
use crate::lifecycle::maker::{Caller, Maker};
use crate::model::registry::{attr, span};
use crate::model::span::{Span, Status, Trace};
use crate::settings::{Settings, VllmLevel};
use crate::time::{Clock, MonoTime, Nanos, Seconds, WallTime};

/// What a trace is made of.
pub(super) struct Parts<'a> {
    pub server: &'a fact::Server,
    /// Whether its engine is V0, whose span has other attributes and no stages.
    pub v0: bool,
    pub vocabulary: Option<&'a Vocabulary>,
    pub exchange: Option<&'a Exchange>,
    /// Engine requests with their ids.
    pub requests: &'a [(String, Request)],
}

/// Makes the trace.
pub(super) fn trace(parts: &Parts<'_>, settings: &Settings, clock: Clock, mint: &mut Mint) -> Trace {
    let asked = parts.exchange.map(|exchange| &exchange.request);
    let handed = parts.requests.iter().find_map(|(_, r)| r.engine.as_ref()?.traceparent.as_deref());
    let caller = Caller::of(asked, handed);
    let mut maker = Maker::new(clock, settings, mint, &caller);
    let mut spans = Vec::new();
    let mut engine_parent = caller.span();
    if let Some(exchange) = parts.exchange {
        let entry = entry(exchange, parts, engine_parent, &mut maker);
        engine_parent = Some(entry.id);
        spans.push(entry);
    }
    for (name, request) in parts.requests {
        if parts.v0 {
            spans.push(v0::llm_request(name, request, parts, engine_parent, &mut maker));
            continue;
        }
        let span = llm_request(name, request, parts, engine_parent, &mut maker);
        let children = stages::of(name, request, &span, parts.server, &mut maker);
        spans.push(span);
        if settings.vllm_level >= VllmLevel::Stages {
            spans.extend(children);
        }
    }
    Trace { server: parts.server.id, sampled: caller.sampled(), spans, logs: Vec::new() }
}

fn entry(exchange: &Exchange, parts: &Parts<'_>, parent: Option<SpanId>, maker: &mut Maker<'_>) -> Span {
    let mut entry = entry::open(exchange, parts.server, parent, maker);
    entry_request(&mut entry, exchange, parts);
    entry_response(&mut entry, exchange, parts.requests);
    if maker.settings.content {
        entry::content(&mut entry, exchange);
    }
    let died = parts.requests.iter().any(|(_, r)| r.ending.is_some_and(|(e, _)| e == Ending::Died));
    entry::status(&mut entry, exchange, died, maker.settings.content);
    entry
}

fn entry_request(entry: &mut Span, exchange: &Exchange, parts: &Parts<'_>) {
    let asked = &exchange.request;
    let generates = match asked.operation {
        Operation::Chat | Operation::TextCompletion => true,
        Operation::Embeddings | Operation::Rerank => false,
    };
    if generates {
        // What the client left out, the server filled in: the engine was handed the value that counted.
        let handed = parts.requests.iter().find_map(|(_, r)| r.engine.as_ref()?.sampling.as_ref());
        entry.set(attr::REQUEST_CHOICE_COUNT, asked.choices.unwrap_or(1));
        entry.set_some(attr::REQUEST_TEMPERATURE, asked.temperature.or(handed.map(|s| s.temperature)));
        entry.set_some(attr::REQUEST_TOP_P, asked.top_p.or(handed.map(|s| s.top_p)));
        entry.set_some(attr::REQUEST_TOP_K, asked.top_k.or(handed.and_then(|s| s.top_k)));
        entry.set_some(attr::REQUEST_MAX_TOKENS, asked.max_tokens.or(handed.and_then(|s| s.max_tokens)));
        entry.set(attr::REQUEST_IS_STREAM, asked.stream);
    }
    entry.set_some(attr::USER_ID, asked.user.as_deref());
    if asked.stream {
        entry.set_some(attr::SESSION_ID, exchange.response_id.as_deref());
    }
}

fn entry_response(entry: &mut Span, exchange: &Exchange, requests: &[(String, Request)]) {
    entry.set_some(attr::RESPONSE_ID, exchange.response_id.as_deref());
    entry.set_some(attr::RESPONSE_MODEL, exchange.response_model.as_deref());
    entry::finish_reasons(entry, exchange);
    let (input, output) = usage(exchange, requests);
    entry.set_some(attr::USAGE_INPUT_TOKENS, input);
    entry.set_some(attr::USAGE_OUTPUT_TOKENS, output);
    let total = exchange.usage.and_then(|usage| usage.total);
    entry.set_some(attr::USAGE_TOTAL_TOKENS, total.or_else(|| Some(input? + output?)));
    entry.set_some(attr::HTTP_STATUS, exchange.status.map(u32::from));
}

/// Input and output tokens of an exchange: as the server told its client, else as the engine counted.
pub(super) fn usage(exchange: &Exchange, requests: &[(String, Request)]) -> (Option<u64>, Option<u64>) {
    let told = exchange.usage.unwrap_or_default();
    let counted = (!requests.is_empty()).then(|| {
        let output = requests.iter().map(|(_, request)| request.output_tokens).sum::<u64>();
        // Candidates of one prompt share its tokens.
        let first = |name: &str| exchange.requests.iter().any(|j| j.name == name && j.place.1 == 0);
        let first_candidates = requests.iter().filter(|(name, _)| first(name));
        let input = first_candidates.map(|(_, request)| request.prompt_tokens()).sum::<Option<u64>>();
        (input, output)
    });
    let output = match exchange.request.operation {
        Operation::Chat | Operation::TextCompletion => counted.map(|(_, output)| output),
        Operation::Embeddings | Operation::Rerank => Some(0),
    };
    (told.prompt.or(counted.and_then(|(input, _)| input)), told.completion.or(output))
}

fn llm_request(
    name: &str,
    request: &Request,
    parts: &Parts<'_>,
    parent: Option<SpanId>,
    maker: &mut Maker<'_>,
) -> Span {
    let arrival = request.engine.as_ref().and_then(|engine| engine.arrival).map(|arrival| arrival.wall());
    let start = arrival.unwrap_or_else(|| maker.wall(request.since));
    let end = maker.wall(request.last_at.max(request.ending.map(|(_, at)| at)).unwrap_or(request.touched));
    let mut span = maker.span(span::LLM_REQUEST, parent, start, end);
    span.set(attr::REQUEST_ID, name);
    span.set_some(attr::REQUEST_MODEL_NAME, model_name(parts.server));
    let sampling = request.engine.as_ref().and_then(|engine| engine.sampling.as_ref());
    if let Some(Sampling { temperature, top_p, max_tokens, n, .. }) = sampling {
        let candidates = parts.exchange.and_then(|exchange| exchange.request.choices);
        span.set(attr::REQUEST_TEMPERATURE, *temperature);
        span.set(attr::REQUEST_TOP_P, *top_p);
        span.set_some(attr::REQUEST_MAX_TOKENS, *max_tokens);
        span.set(attr::REQUEST_N, candidates.unwrap_or(*n));
    }
    span.set_some(attr::USAGE_PROMPT_TOKENS, request.prompt_tokens());
    span.set(attr::USAGE_COMPLETION_TOKENS, request.output_tokens);
    span.set_some(attr::USAGE_CACHE_READ_INPUT_TOKENS, request.cached.map(|cached| cached.total));
    latencies(&mut span, request, arrival, maker);
    if request.preemptions > 0 {
        span.set(attr::REQUEST_PREEMPTION_COUNT, request.preemptions);
    }
    span.set(attr::ENGINE_INDEX, request.engine_index.unwrap_or(0));
    span.set(attr::PD_ROLE, stages::role(request).name());
    let from = request.kv_transfer().filter(|kv| kv.do_remote_prefill);
    span.set_some(attr::REMOTE_REQUEST_ID, from.and_then(|kv| kv.remote_request_id.as_deref()));
    span.set_some(attr::REMOTE_ENGINE_ID, from.and_then(|kv| kv.remote_engine_id.as_deref()));
    ending(&mut span, request);
    stages::iterations(&mut span, request, parts.vocabulary, maker);
    span
}

/// The server's main model name.
pub(super) fn model_name(server: &fact::Server) -> Option<&str> {
    server.models.first().map(String::as_str)
}

fn latencies(span: &mut Span, request: &Request, arrival: Option<WallTime>, maker: &Maker<'_>) {
    let moments = &request.moments;
    let ns = |seconds: Option<Seconds>| seconds.map(|seconds| seconds.nanos().0);
    let since = |at: Option<MonoTime>| Some(maker.wall(at?).since(arrival?).0);
    let role = stages::role(request);
    span.set_some(attr::LATENCY_E2E, since(request.last_at));
    span.set_some(attr::LATENCY_TIME_IN_QUEUE, ns(moments.queue()));
    span.set_some(attr::LATENCY_TIME_TO_FIRST_TOKEN, since(request.first_at));
    span.set_some(attr::LATENCY_TIME_IN_MODEL_PREFILL, role.prefill(ns(moments.prefill())));
    span.set_some(attr::LATENCY_TIME_IN_MODEL_DECODE, role.decode(ns(moments.decode())));
    span.set_some(attr::LATENCY_TIME_IN_MODEL_INFERENCE, ns(moments.inference()));
    let tokenize = since(request.added);
    span.set_some(attr::LATENCY_TIME_IN_TOKENIZE, tokenize);
    span.set_some(attr::LATENCY_TIME_IN_DETOKENIZE, request.detokenize.map(|Nanos(sum)| sum));
    span.set_some(attr::LATENCY_TIME_IN_KV_TRANSFER, ns(request.transfer.map(|transfer| transfer.took)));
    estimates(span, request, tokenize.is_some());
}

/// Names the attributes that are estimates.
fn estimates(span: &mut Span, request: &Request, tokenize: bool) {
    let from_moments = [
        attr::LATENCY_TIME_IN_QUEUE,
        attr::LATENCY_TIME_IN_MODEL_PREFILL,
        attr::LATENCY_TIME_IN_MODEL_INFERENCE,
    ];
    let unsure = request.transfer.filter(|transfer| transfer.sure != Sure::Reported);
    let names = tokenize
        .then_some(attr::LATENCY_TIME_IN_TOKENIZE)
        .into_iter()
        .chain(request.detokenize.map(|_| attr::LATENCY_TIME_IN_DETOKENIZE))
        .chain(from_moments.into_iter().filter(|_| request.estimated))
        .chain(unsure.map(|_| attr::LATENCY_TIME_IN_KV_TRANSFER))
        .chain(request.overrun().then_some(attr::USAGE_COMPLETION_TOKENS));
    let names: Vec<String> = names.map(str::to_owned).collect();
    if !names.is_empty() {
        span.set(attr::ESTIMATED, names);
    }
}

pub(super) fn ending(span: &mut Span, request: &Request) {
    let ending = request.ending.map_or(Ending::Detached, |(ending, _)| ending);
    let (reason, error) = match ending {
        Ending::Finished(Finish::Error) => (Some("error"), Some("the engine reported an error")),
        Ending::Finished(finish) => (Some(finish.name()), None),
        Ending::StopString => (Some("stop"), None),
        Ending::Aborted => (Some("abort"), None),
        Ending::Died => (None, Some("the server died before the request ended")),
        Ending::Expired | Ending::Detached => (None, None),
    };
    span.set_some(attr::FINISH_REASON, reason);
    if let Some(error) = error {
        span.status = Status::Error(error.to_owned());
        span.set(attr::ERROR_TYPE, if reason.is_some() { "engine_error" } else { "server_died" });
    }
    let unfinished = matches!(ending, Ending::Expired | Ending::Detached);
    if request.partial() || unfinished {
        span.set(attr::PARTIAL, true);
    }
    if matches!(ending, Ending::Expired) {
        span.set(attr::LOSS, vec!["request_expired".to_owned()]);
    } else if request.engine.as_ref().is_some_and(|engine| engine.cut) {
        span.set(attr::LOSS, vec!["cut_message".to_owned()]);
    }
}
