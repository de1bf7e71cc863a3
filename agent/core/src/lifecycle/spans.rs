//! Spans of one API request: the entry span, an `llm_request` for each engine request, its stages and events.

use super::exchange::Exchange;
use super::request::{Ending, Request};
use super::stages;
use crate::capture::fact;
use crate::dialect::signal::{Finish, Operation, Sampling};
use crate::dialect::traceparent::{self, TraceParent};
use crate::dialect::vocabulary::Vocabulary;
use crate::ids::{Mint, SpanId, TraceId};
use crate::model::registry::{attr, span};
use crate::model::span::{Span, Status, Trace};
use crate::settings::{Settings, VllmLevel};
use crate::time::{Clock, MonoTime, Nanos, Seconds, WallTime};

/// What a trace is made of.
pub(super) struct Parts<'a> {
    pub server: &'a fact::Server,
    pub vocabulary: Option<&'a Vocabulary>,
    pub exchange: Option<&'a Exchange>,
    /// Engine requests with their ids.
    pub requests: &'a [(String, Request)],
}

/// Makes spans of one trace.
pub(super) struct Maker<'a> {
    pub clock: Clock,
    pub settings: &'a Settings,
    mint: &'a mut Mint,
    trace: TraceId,
    state: Option<String>,
}

impl Maker<'_> {
    pub fn span(
        &mut self,
        name: &'static str,
        parent: Option<SpanId>,
        start: WallTime,
        end: WallTime,
    ) -> Span {
        Span {
            trace: self.trace,
            id: self.mint.span(),
            parent,
            trace_state: self.state.clone(),
            name: name.into(),
            start,
            end: end.max(start),
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            links: Vec::new(),
            status: Status::Unset,
        }
    }

    pub fn wall(&self, at: MonoTime) -> WallTime {
        self.clock.wall(at)
    }
}

/// Makes the trace.
pub(super) fn trace(parts: &Parts<'_>, settings: &Settings, clock: Clock, mint: &mut Mint) -> Trace {
    let (parent, state) = caller(parts);
    let trace = parent.map_or_else(|| mint.trace(), |parent| parent.trace);
    let mut maker = Maker { clock, settings, mint, trace, state };
    let mut spans = Vec::new();
    let mut engine_parent = parent.map(|parent| parent.span);
    if let Some(exchange) = parts.exchange {
        let entry = entry(exchange, parts, engine_parent, &mut maker);
        engine_parent = Some(entry.id);
        spans.push(entry);
    }
    for (name, request) in parts.requests {
        let span = llm_request(name, request, parts, engine_parent, &mut maker);
        let children = stages::of(name, request, &span, parts.server, &mut maker);
        spans.push(span);
        if settings.vllm_level >= VllmLevel::Stages {
            spans.extend(children);
        }
    }
    let sampled = parent.is_none_or(|parent| parent.sampled);
    Trace { server: parts.server.id, sampled, spans }
}

/// The caller's span, by the HTTP header or by what the engine was handed.
fn caller(parts: &Parts<'_>) -> (Option<TraceParent>, Option<String>) {
    let asked = parts.exchange.map(|exchange| &exchange.request);
    let header = asked.and_then(|request| request.traceparent.as_deref());
    let handed = parts.requests.iter().find_map(|(_, r)| r.engine.as_ref()?.traceparent.as_deref());
    let parent = header.or(handed).and_then(traceparent::parse);
    let state = asked.and_then(|request| request.tracestate.as_deref());
    (parent, parent.and(state).and_then(traceparent::state))
}

/// The contract's operation name and span kind.
fn operation(operation: Operation) -> (&'static str, &'static str) {
    match operation {
        Operation::Chat => ("chat", "LLM"),
        Operation::TextCompletion => ("text_completion", "LLM"),
        Operation::Embeddings => ("embeddings", "EMBEDDING"),
        Operation::Rerank => ("rerank", "RERANKER"),
    }
}

fn entry(exchange: &Exchange, parts: &Parts<'_>, parent: Option<SpanId>, maker: &mut Maker<'_>) -> Span {
    let (end, complete) = exchange.ended.unwrap_or((exchange.touched, false));
    let (name, kind) = operation(exchange.request.operation);
    let model = exchange.request.model.as_deref().or(parts.server.models.first().map(String::as_str));
    let (start, end) = (maker.wall(exchange.first_byte), maker.wall(end));
    let mut entry = maker.span(span::CHAT, parent, start, end);
    entry.name = span::entry(name, model).into();
    entry.set(attr::SPAN_KIND, kind);
    entry.set(attr::OPERATION_NAME, name);
    entry.set_some(attr::REQUEST_MODEL, model);
    entry_request(&mut entry, exchange, parts);
    entry_response(&mut entry, exchange, parts.requests);
    if maker.settings.content {
        entry.set_some(attr::INPUT_MESSAGES, exchange.request.content.clone());
        entry.set_some(attr::OUTPUT_MESSAGES, output_messages(exchange));
    }
    entry_status(&mut entry, exchange, complete, parts.requests, maker.settings.content);
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
    let reasons: Vec<String> =
        exchange.choices.values().filter_map(|choice| choice.finish_reason.clone()).collect();
    if !reasons.is_empty() {
        entry.set(attr::RESPONSE_FINISH_REASONS, reasons);
    }
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

/// The output as the GenAI conventions' JSON: one message a candidate.
fn output_messages(exchange: &Exchange) -> Option<String> {
    if exchange.choices.is_empty() {
        return None;
    }
    let messages: Vec<serde_json::Value> = exchange
        .choices
        .values()
        .map(|choice| {
            let mut parts = Vec::new();
            if !choice.reasoning.is_empty() {
                parts.push(serde_json::json!({"type": "reasoning", "content": choice.reasoning}));
            }
            if !choice.text.is_empty() {
                parts.push(serde_json::json!({"type": "text", "content": choice.text}));
            }
            for call in &choice.tool_calls {
                parts.push(serde_json::json!({
                    "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments,
                }));
            }
            serde_json::json!({"role": "assistant", "parts": parts, "finish_reason": choice.finish_reason})
        })
        .collect();
    serde_json::to_string(&messages).ok()
}

fn entry_status(
    entry: &mut Span,
    exchange: &Exchange,
    complete: bool,
    requests: &[(String, Request)],
    content: bool,
) {
    let ending = |wanted: Ending| requests.iter().any(|(_, r)| r.ending.is_some_and(|(e, _)| e == wanted));
    if exchange.failed() {
        let error = exchange.error.clone().unwrap_or_default();
        let status = exchange.status.filter(|status| *status >= 400).map(|status| status.to_string());
        let kind = error.kind.or(status).unwrap_or_else(|| "error".to_owned());
        // The message may quote the prompt.
        let message = error.message.filter(|_| content).unwrap_or_else(|| kind.clone());
        entry.set(attr::ERROR_TYPE, kind);
        entry.status = Status::Error(message);
    } else if exchange.unfinished {
        entry.set(attr::PARTIAL, true);
    } else if ending(Ending::Died) {
        entry.set(attr::ERROR_TYPE, "server_died");
        entry.status = Status::Error("the server died before the response was complete".to_owned());
    } else if !complete {
        entry.set(attr::ERROR_TYPE, "client_disconnected");
        entry.status =
            Status::Error("the client closed the connection before the response was complete".to_owned());
    }
    if exchange.cut || exchange.request.cut {
        entry.set(attr::LOSS, vec!["gap_bytes".to_owned()]);
    }
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
    span.set_some(attr::LATENCY_TIME_IN_KV_TRANSFER, ns(request.transfer.map(|(_, took)| took)));
    estimates(span, request, tokenize.is_some());
}

/// Names the attributes that are estimates.
fn estimates(span: &mut Span, request: &Request, tokenize: bool) {
    let from_moments = [
        attr::LATENCY_TIME_IN_QUEUE,
        attr::LATENCY_TIME_IN_MODEL_PREFILL,
        attr::LATENCY_TIME_IN_MODEL_INFERENCE,
    ];
    let names = tokenize
        .then_some(attr::LATENCY_TIME_IN_TOKENIZE)
        .into_iter()
        .chain(request.detokenize.map(|_| attr::LATENCY_TIME_IN_DETOKENIZE))
        .chain(from_moments.into_iter().filter(|_| request.estimated));
    let names: Vec<String> = names.map(str::to_owned).collect();
    if !names.is_empty() {
        span.set(attr::ESTIMATED, names);
    }
}

fn ending(span: &mut Span, request: &Request) {
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
