//! The entry span of an exchange with SGLang.

use super::request::Request;
use super::spans::Parts;
use crate::dialect::signal::Operation;
use crate::ids::SpanId;
use crate::lifecycle::entry;
use crate::lifecycle::exchange::Exchange;
use crate::lifecycle::maker::Maker;
use crate::model::registry::{attr, span};
use crate::model::span::Span;

use super::request::Ending;

/// The entry span; `None` where the contract has none: SGLang's are chat and text completion only.
pub(super) fn of(
    exchange: &Exchange,
    parts: &Parts<'_>,
    parent: Option<SpanId>,
    maker: &mut Maker<'_>,
) -> Option<Span> {
    match exchange.request.operation {
        Operation::Chat | Operation::TextCompletion => {}
        Operation::Embeddings | Operation::Rerank => return None,
    }
    let mut entry = entry::open(exchange, parts.server, parent, maker);
    asked(&mut entry, exchange, parts);
    answered(&mut entry, exchange, parts);
    if exchange.request.stream && exchange.request.operation == Operation::Chat {
        tool_calls(&mut entry, exchange, maker.settings.content);
    }
    if maker.settings.content {
        entry::content(&mut entry, exchange);
    }
    let died = parts.requests.iter().any(|r| r.ending.is_some_and(|(ending, _)| ending == Ending::Died));
    entry::status(&mut entry, exchange, died, maker.settings.content);
    Some(entry)
}

fn asked(entry: &mut Span, exchange: &Exchange, parts: &Parts<'_>) {
    let asked = &exchange.request;
    // What the client left out, the server filled in: the engine was handed the value that counted.
    let real = parts.requests.iter().filter(|request| !request.warms_up());
    let handed = real.filter_map(|request| request.handed.as_ref()?.sampling.as_ref()).next();
    entry.set(attr::REQUEST_IS_STREAM, asked.stream);
    entry.set(attr::REQUEST_CHOICE_COUNT, asked.choices.or(handed.and_then(|s| s.n)).unwrap_or(1));
    entry.set_some(attr::REQUEST_TEMPERATURE, asked.temperature.or(handed.and_then(|s| s.temperature)));
    entry.set_some(attr::REQUEST_TOP_P, asked.top_p.or(handed.and_then(|s| s.top_p)));
    entry.set_some(attr::REQUEST_TOP_K, asked.top_k.or(handed.and_then(|s| s.top_k)));
    entry.set_some(attr::REQUEST_MAX_TOKENS, asked.max_tokens.or(handed.and_then(|s| s.max_new_tokens)));
}

fn answered(entry: &mut Span, exchange: &Exchange, parts: &Parts<'_>) {
    let asked = &exchange.request;
    let streamed = streamed(exchange, parts);
    entry.set_some(attr::RESPONSE_ID, exchange.response_id.as_deref());
    if asked.stream {
        if asked.operation == Operation::Chat {
            let rid = parts.requests.iter().find(|request| !request.warms_up()).map(|r| r.rid.as_str());
            entry.set_some(attr::REQUEST_ID, rid.or(exchange.response_id.as_deref()));
        }
        entry.set(attr::RESPONSE_TOKENS_STREAMED, streamed);
    } else {
        entry.set_some(attr::RESPONSE_MODEL, exchange.response_model.as_deref());
    }
    entry::finish_reasons(entry, exchange);
    let (input, output) = usage(exchange, parts.requests);
    let estimated = output.is_none() && asked.stream && streamed > 0;
    let output = output.or(estimated.then_some(streamed));
    entry.set_some(attr::USAGE_INPUT_TOKENS, input);
    entry.set_some(attr::USAGE_OUTPUT_TOKENS, output);
    let total = exchange.usage.and_then(|usage| usage.total);
    entry.set_some(attr::USAGE_TOTAL_TOKENS, total.or_else(|| Some(input? + output?)));
    entry.set_some(attr::USAGE_CACHE_READ_INPUT_TOKENS, cached(exchange, parts.requests));
    entry.set_some(attr::HTTP_STATUS, exchange.status.map(u32::from));
    if let Some((ended, _)) = exchange.ended {
        entry.set(attr::LATENCY_E2E, ended.since(exchange.first_byte).seconds().0);
    }
    if estimated {
        entry.set(attr::ESTIMATED, vec![attr::USAGE_OUTPUT_TOKENS.to_owned()]);
    }
}

/// Increments of the stream times the steps between two of them.
fn streamed(exchange: &Exchange, parts: &Parts<'_>) -> u64 {
    let interval = parts.server.sglang.as_ref().map_or(1, |launch| launch.stream_interval).max(1);
    exchange.increments.saturating_mul(u64::from(interval))
}

/// Input and output tokens of an exchange: as the server told its client, else as the engine counted.
pub(super) fn usage(exchange: &Exchange, requests: &[Request]) -> (Option<u64>, Option<u64>) {
    let told = exchange.usage.unwrap_or_default();
    let mut real = requests.iter().filter(|request| !request.warms_up()).peekable();
    if real.peek().is_none() {
        return (told.prompt, told.completion);
    }
    // Candidates of one prompt share its tokens: they come one after the other.
    let candidates = usize::try_from(exchange.request.choices.unwrap_or(1).max(1)).unwrap_or(usize::MAX);
    let input = real.clone().step_by(candidates).map(|request| request.prompt_tokens).sum::<Option<u64>>();
    let output = match exchange.request.operation {
        Operation::Chat | Operation::TextCompletion => {
            real.map(|request| request.completion_tokens).sum::<Option<u64>>()
        }
        Operation::Embeddings | Operation::Rerank => Some(0),
    };
    (told.prompt.or(input), told.completion.or(output))
}

fn cached(exchange: &Exchange, requests: &[Request]) -> Option<u64> {
    let told = exchange.usage.and_then(|usage| usage.cached);
    let first = requests.iter().find(|request| request.warms_up()).or(requests.first());
    // Of parallel samples all but the first prefill find the prompt in the cache: what the client is told, if it is,
    // is the count of one.
    told.or(first?.cached_tokens)
}

fn tool_calls(entry: &mut Span, exchange: &Exchange, content: bool) {
    let calls = || {
        let choices = exchange.choices.iter();
        choices.flat_map(|(index, choice)| choice.tool_calls.iter().map(move |call| (index, call)))
    };
    entry.set(attr::REQUEST_HAS_TOOL_CALLS, exchange.request.tools);
    entry.set(attr::REQUEST_TOOL_CALL_DETECTED, calls().next().is_some());
    entry.set(attr::REQUEST_TOOL_CALLS_COUNT, u64::try_from(calls().count()).unwrap_or(u64::MAX));
    for (choice, call) in calls() {
        let key = |template: &str| span::of_call(template, *choice, call.index);
        entry.set_some(key(attr::COMPLETIONS_TOOL_CALLS_NAME), call.name.clone());
        let arguments = call.arguments.clone().filter(|_| content);
        entry.set_some(key(attr::COMPLETIONS_TOOL_CALLS_ARGUMENTS), arguments);
    }
}
