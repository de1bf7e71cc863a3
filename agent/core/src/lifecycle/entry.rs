//! The entry span of an exchange: what every engine's has in common.

use super::exchange::Exchange;
use super::maker::Maker;
use crate::capture::fact;
use crate::dialect::signal::Operation;
use crate::ids::SpanId;
use crate::model::registry::{attr, span};
use crate::model::span::{Span, Status};

/// The contract's operation name and span kind.
pub(super) fn operation(operation: Operation) -> (&'static str, &'static str) {
    match operation {
        Operation::Chat => ("chat", "LLM"),
        Operation::TextCompletion => ("text_completion", "LLM"),
        Operation::Embeddings => ("embeddings", "EMBEDDING"),
        Operation::Rerank => ("rerank", "RERANKER"),
    }
}

/// The span with its name, times, kind, operation and model.
pub(super) fn open(
    exchange: &Exchange,
    server: &fact::Server,
    parent: Option<SpanId>,
    maker: &mut Maker<'_>,
) -> Span {
    let end = exchange.ended.map_or(exchange.touched, |(at, _)| at);
    let (name, kind) = operation(exchange.request.operation);
    let model = exchange.request.model.as_deref().or(server.models.first().map(String::as_str));
    let (start, end) = (maker.wall(exchange.first_byte), maker.wall(end));
    let mut entry = maker.span(span::entry(name, model), parent, start, end);
    entry.set(attr::SPAN_KIND, kind);
    entry.set(attr::OPERATION_NAME, name);
    entry.set_some(attr::REQUEST_MODEL, model);
    entry
}

/// Why each candidate ended.
pub(super) fn finish_reasons(entry: &mut Span, exchange: &Exchange) {
    let reasons: Vec<String> =
        exchange.choices.values().filter_map(|choice| choice.finish_reason.clone()).collect();
    if !reasons.is_empty() {
        entry.set(attr::RESPONSE_FINISH_REASONS, reasons);
    }
}

/// Input and output.
pub(super) fn content(entry: &mut Span, exchange: &Exchange) {
    entry.set_some(attr::INPUT_MESSAGES, exchange.request.content.clone());
    entry.set_some(attr::OUTPUT_MESSAGES, output_messages(exchange));
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

/// How it ended; `died`: the engine or the server died before one of its requests ended. `content`: whether an
/// error's text, which may quote the prompt, is told.
pub(super) fn status(entry: &mut Span, exchange: &Exchange, died: bool, content: bool) {
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
    } else if died {
        entry.set(attr::ERROR_TYPE, "server_died");
        entry.status = Status::Error("the server died before the response was complete".to_owned());
    } else if !exchange.ended.is_some_and(|(_, complete)| complete) {
        entry.set(attr::ERROR_TYPE, "client_disconnected");
        entry.status =
            Status::Error("the client closed the connection before the response was complete".to_owned());
    }
    if exchange.cut || exchange.request.cut {
        entry.set(attr::LOSS, vec!["gap_bytes".to_owned()]);
    }
}
