//! The log event of an exchange's content: `gen_ai.client.inference.operation.details` of the OpenTelemetry GenAI
//! conventions. With the strategy `event` it takes prompts and outputs off the entry span.

use crate::model::log::{Log, LogContext, Severity};
use crate::model::registry::{attr, log};
use crate::model::span::{Attribute, Span, Trace};

/// What goes from the span into the event.
const CONTENT: [&str; 2] = [attr::INPUT_MESSAGES, attr::OUTPUT_MESSAGES];

/// What the event says of the exchange besides, as the conventions have it; it stays on the span too.
const ABOUT: [&str; 14] = [
    attr::OPERATION_NAME,
    attr::REQUEST_MODEL,
    attr::REQUEST_CHOICE_COUNT,
    attr::REQUEST_MAX_TOKENS,
    attr::REQUEST_TEMPERATURE,
    attr::REQUEST_TOP_P,
    attr::REQUEST_TOP_K,
    attr::RESPONSE_ID,
    attr::RESPONSE_MODEL,
    attr::RESPONSE_FINISH_REASONS,
    attr::USAGE_INPUT_TOKENS,
    attr::USAGE_OUTPUT_TOKENS,
    attr::SESSION_ID,
    attr::ERROR_TYPE,
];

/// Moves the content of a trace's entry span into a log event of the trace.
pub(super) fn take_content(trace: &mut Trace) {
    let server = trace.server;
    let entry = trace.spans.iter_mut().find(|span| CONTENT.iter().any(|key| span.attribute(key).is_some()));
    let Some(entry) = entry else { return };
    let (content, kept): (Vec<_>, Vec<_>) =
        std::mem::take(&mut entry.attributes).into_iter().partition(|a| CONTENT.contains(&a.key.as_ref()));
    entry.attributes = kept;
    let context = LogContext { trace: entry.trace, span: entry.id };
    let attributes = about(entry).into_iter().chain(content).collect();
    trace.logs.push(Log {
        server,
        event: Some(log::INFERENCE_DETAILS),
        severity: Severity::Info,
        at: entry.end,
        context: Some(context),
        body: None,
        attributes,
    });
}

fn about(entry: &Span) -> Vec<Attribute> {
    let told = entry.attributes.iter().filter(|attribute| ABOUT.contains(&attribute.key.as_ref()));
    told.cloned().collect()
}
