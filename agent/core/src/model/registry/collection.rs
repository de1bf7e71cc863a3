//! What is not a name on the wire: conventions, aliases, log events and the collection settings.

use super::Dialect::{Sglang, VllmV0, VllmV1};
use super::def::SwitchKind::{Choice, Count, Level, Share, Truth};
use super::names::log;
use super::{Alias, LogDef, SwitchDef};
use crate::settings::switch::Switch;

/// Rules that hold for several names.
pub static CONVENTIONS: &[(&str, &str)] = &[
    ("span_kind", "INTERNAL"),
    ("vllm_v0_duration_unit", "s"),
    ("vllm_v1_duration_unit", "ns"),
    ("sglang_duration_unit", "s"),
    ("gen_ai_span_kind_values", "LLM, EMBEDDING, RERANKER"),
    ("true_queue_time", "wait - kv_transfer"),
    ("pd_prefill_node", "only prefill is true there; the prefill child only, time_in_model_decode is 0"),
    ("pd_decode_node", "only decode is true there; the decode child only, time_in_model_prefill is 0"),
    (
        "preemption",
        "the scheduled timestamp is not reset by a preemption: prefill, decode and inference include the pause; preemption_count is the evidence",
    ),
];

/// Names that mean the same in different places.
pub static ALIASES: &[Alias] = &[
    Alias {
        meaning: "input tokens",
        names: &[("entry", "gen_ai.usage.input_tokens"), ("engine_span", "gen_ai.usage.prompt_tokens")],
    },
    Alias {
        meaning: "output tokens",
        names: &[("entry", "gen_ai.usage.output_tokens"), ("engine_span", "gen_ai.usage.completion_tokens")],
    },
    Alias {
        meaning: "number of candidates",
        names: &[("entry", "gen_ai.request.choice.count"), ("engine_span", "gen_ai.request.n")],
    },
    Alias {
        meaning: "model name",
        names: &[
            ("entry", "gen_ai.request.model"),
            ("engine_span", "gen_ai.request.model_name (vLLM V1 llm_request)"),
            (
                "metric_dimension",
                "model_name (vLLM V1 engine metrics), modelName (API-layer token metrics, SGLang token metrics)",
            ),
        ],
    },
    Alias {
        meaning: "input tokens served from cache",
        names: &[
            ("entry", "gen_ai.usage.cache_read.input_tokens (SGLang entry, vLLM V1 llm_request)"),
            ("engine_span", "gen_ai.usage.cached_tokens (SGLang request span)"),
        ],
    },
    Alias {
        meaning: "time to first token, metric",
        names: &[("vllm", "genai_llm_first_token_seconds"), ("sglang", "gen_ai_server_time_to_first_token")],
    },
];

/// Log events.
pub static LOGS: &[LogDef] = &[LogDef {
    name: log::INFERENCE_DETAILS,
    engines: &[VllmV0, VllmV1, Sglang],
    when: "content collection on, strategy event: content goes into this log event, not into span attributes",
}];

/// Severities of an engine's log lines, as Python names them.
const SEVERITIES: &[&str] = &["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

/// Collection settings. A setting pushed at run time wins over its environment variable, that over the default.
pub static SWITCHES: &[SwitchDef] = &[
    SwitchDef {
        switch: Switch::VllmEnabled,
        kind: Truth,
        key: Some("otel.instrumentation.vllm.enabled"),
        env: Some("OTEL_INSTRUMENTATION_VLLM_ENABLED"),
        default: "true",
        doc: Some("profile vLLM processes at all"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SglangEnabled,
        kind: Truth,
        key: Some("otel.instrumentation.sglang.enabled"),
        env: Some("SGLANG_INSTRUMENTATION_ENABLED"),
        default: "true",
        doc: Some("profile SGLang processes at all"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::Content,
        kind: Truth,
        key: Some("otel.instrumentation.genai.capture-message-content"),
        env: Some("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
        default: "true",
        doc: Some(
            "record prompts and outputs. When off, content never leaves the decoder; entry spans are still made (better than the documented agent, which drops them). The shipped DaemonSet configuration sets it to false",
        ),
        outside: None,
    },
    SwitchDef {
        switch: Switch::ContentLimit,
        kind: Count,
        key: Some("otel.instrumentation.genai.message-content.max-length"),
        env: Some("OTEL_INSTRUMENTATION_GENAI_MESSAGE_CONTENT_MAX_LENGTH"),
        default: "8192",
        doc: Some("most characters kept of one input or output; the rest is cut"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::ContentStrategy,
        kind: Choice(&["span-attributes", "event"]),
        key: Some("otel.instrumentation.genai.message-content.capture-strategy"),
        env: Some("OTEL_INSTRUMENTATION_GENAI_MESSAGE_CONTENT_CAPTURE_STRATEGY"),
        default: "span-attributes",
        doc: Some("span-attributes, or event: log event gen_ai.client.inference.operation.details"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::VllmMetrics,
        kind: Truth,
        key: Some("otel.instrumentation.vllm.metrics.enabled"),
        env: Some("OTEL_INSTRUMENTATION_VLLM_METRICS_ENABLED"),
        default: "true",
        doc: Some("vLLM metrics"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::VllmLevel,
        kind: Level { most: 2 },
        key: Some("otel.instrumentation.vllm.tracing.level"),
        env: Some("OTEL_INSTRUMENTATION_VLLM_TRACING_LEVEL"),
        default: "1",
        doc: Some(
            "0 llm_request only; 1 also wait, kv_transfer, prefill, decode; 2 also an event per iteration with tokens",
        ),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SglangMetrics,
        kind: Truth,
        key: Some("otel.instrumentation.sglang.metrics.enabled"),
        env: Some("OTEL_INSTRUMENTATION_SGLANG_METRICS_ENABLED"),
        default: "true",
        doc: Some("SGLang metrics; the engine needs no --enable-metrics"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SglangLevel,
        kind: Level { most: 4 },
        key: Some("otel.instrumentation.sglang.tracing.level"),
        env: Some("SGLANG_TRACE_LEVEL"),
        default: "3",
        doc: Some("0 no native spans; 1..4 as the stage table"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::EventLimit,
        kind: Count,
        key: None,
        env: Some("OTEL_SPAN_EVENT_COUNT_LIMIT"),
        default: "128",
        doc: Some("most events on one span"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::VllmRequestLog,
        kind: Truth,
        key: Some("apsara.apm.inference.vllm.log_requests.enabled"),
        env: None,
        default: "false",
        doc: None,
        outside: Some(
            "the agent's own request log: received, added, aborted, failed, one structured line each",
        ),
    },
    SwitchDef {
        switch: Switch::VllmIterationLog,
        kind: Truth,
        key: Some("apsara.apm.inference.vllm.log_iteration_details.enabled"),
        env: None,
        default: "false",
        doc: None,
        outside: Some(
            "the agent's own iteration log: requests, tokens and duration of the context and the generation part of each iteration",
        ),
    },
    SwitchDef {
        switch: Switch::VllmLogTraceContext,
        kind: Truth,
        key: Some("apsara.apm.inference.vllm.log_trace_context.enabled"),
        env: None,
        default: "false",
        doc: None,
        outside: Some(
            "engine log lines seen on stdout/stderr are exported as OTLP logs carrying trace and span id",
        ),
    },
    SwitchDef {
        switch: Switch::VllmLogLevel,
        kind: Choice(SEVERITIES),
        key: Some("apsara.apm.inference.vllm.logging.level"),
        env: None,
        default: "INFO",
        doc: None,
        outside: Some("least severity of the engine log lines exported"),
    },
    SwitchDef {
        switch: Switch::SglangRequestLog,
        kind: Truth,
        key: Some("apsara.apm.inference.sglang.log_requests.enabled"),
        env: None,
        default: "false",
        doc: None,
        outside: Some("as for vLLM"),
    },
    SwitchDef {
        switch: Switch::SglangRequestLogLevel,
        kind: Level { most: 3 },
        key: Some("apsara.apm.inference.sglang.log_requests.level"),
        env: None,
        default: "2",
        doc: None,
        outside: Some("how much a request line says, 0..3"),
    },
    SwitchDef {
        switch: Switch::SglangLogLevel,
        kind: Choice(SEVERITIES),
        key: Some("apsara.apm.inference.sglang.logging.level"),
        env: None,
        default: "INFO",
        doc: None,
        outside: Some("least severity of the engine log lines exported"),
    },
];

/// Collection settings beyond the contract.
pub static OWN_SWITCHES: &[SwitchDef] = &[
    SwitchDef {
        switch: Switch::SglangLogLines,
        kind: Truth,
        key: Some("collect.sglang.log-lines"),
        env: None,
        default: "false",
        doc: Some(
            "SGLang's log lines seen on stdout and stderr are exported as OTLP logs carrying trace and span id",
        ),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SampleShare,
        kind: Share,
        key: Some("sampling.share"),
        env: None,
        default: "1",
        doc: Some(
            "share of the traces without a caller that leave the agent, by trace id; a caller decides of its own traces (OTEL_TRACES_SAMPLER)",
        ),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SampleFailed,
        kind: Truth,
        key: Some("sampling.failed"),
        env: None,
        default: "true",
        doc: Some("traces of failed requests leave, whatever the share"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SampleSlow,
        kind: Count,
        key: Some("sampling.slow-ms"),
        env: None,
        default: "0",
        doc: Some(
            "traces of requests that took this many milliseconds or more leave, whatever the share; 0: the rule is off",
        ),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SampleEvery,
        kind: Count,
        key: Some("sampling.every"),
        env: None,
        default: "0",
        doc: Some("one in so many of the traces that no rule wants leaves; 0: none"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::SpanRate,
        kind: Count,
        key: Some("limit.spans-per-second"),
        env: None,
        default: "0",
        doc: Some("most spans that leave of a server in a second; 0: no limit"),
        outside: None,
    },
    SwitchDef {
        switch: Switch::LineRate,
        kind: Count,
        key: Some("limit.log-lines-per-second"),
        env: None,
        default: "0",
        doc: Some(
            "most log lines that leave of a server in a second, events not counted that belong to a trace; 0: no limit",
        ),
        outside: None,
    },
];
