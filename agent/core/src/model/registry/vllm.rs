//! vLLM's part of the table, V0 and V1, and the entry spans it shares with SGLang.

use super::Dialect::{Sglang, VllmV0, VllmV1};
use super::Type::{Bool, Float, Int, Ints, Json, Str, Strs};
use super::def::{attribute, dimension};
use super::names::{attr, dim, event, span};
use super::{AttributeGroup, DimensionGroup, EventDef, Layer, SpanDef};

/// Spans.
pub static SPANS: &[SpanDef] = &[
    SpanDef {
        name: span::CHAT,
        engines: &[VllmV0, VllmV1, Sglang],
        level: 0,
        layer: Layer::Entry,
        parent: None,
        when: "POST /v1/chat/completions",
    },
    SpanDef {
        name: span::TEXT_COMPLETION,
        engines: &[VllmV0, VllmV1, Sglang],
        level: 0,
        layer: Layer::Entry,
        parent: None,
        when: "POST /v1/completions",
    },
    SpanDef {
        name: span::EMBEDDINGS,
        engines: &[VllmV0, VllmV1],
        level: 0,
        layer: Layer::Entry,
        parent: None,
        when: "POST /v1/embeddings",
    },
    SpanDef {
        name: span::RERANK,
        engines: &[VllmV0, VllmV1],
        level: 0,
        layer: Layer::Entry,
        parent: None,
        when: "POST /rerank, /v1/rerank, /v2/rerank, /score, /v1/score",
    },
    SpanDef {
        name: span::LLM_REQUEST,
        engines: &[VllmV0, VllmV1],
        level: 0,
        layer: Layer::Engine,
        parent: Some("entry"),
        when: "the whole life of a request inside the engine",
    },
    SpanDef {
        name: span::WAIT,
        engines: &[VllmV1],
        level: 1,
        layer: Layer::Stage,
        parent: Some("llm_request"),
        when: "queued until scheduled",
    },
    SpanDef {
        name: span::KV_TRANSFER,
        engines: &[VllmV1],
        level: 1,
        layer: Layer::Stage,
        parent: Some("wait"),
        when: "a remote KV cache was pulled",
    },
    SpanDef {
        name: span::PREFILL,
        engines: &[VllmV1],
        level: 1,
        layer: Layer::Stage,
        parent: Some("llm_request"),
        when: "scheduled until first token; absent on a PD decode node",
    },
    SpanDef {
        name: span::DECODE,
        engines: &[VllmV1],
        level: 1,
        layer: Layer::Stage,
        parent: Some("llm_request"),
        when: "first token until last token; absent on a PD prefill node",
    },
];

/// Every attribute group below.
pub static ATTRIBUTES: &[&AttributeGroup] =
    &[&ENTRY, &V0_LLM_REQUEST, &V1_LLM_REQUEST, &V1_STAGE, &V1_KV_TRANSFER];

/// Attributes on: vllm entry.
pub static ENTRY: AttributeGroup = AttributeGroup {
    on: "vllm entry",
    note: None,
    attributes: &[
        attribute(attr::SPAN_KIND, Str, "LLM, EMBEDDING or RERANKER"),
        attribute(attr::OPERATION_NAME, Str, "chat, text_completion, embeddings or rerank"),
        attribute(attr::REQUEST_MODEL, Str, "model named in the request"),
        attribute(attr::REQUEST_CHOICE_COUNT, Int, "candidates asked for, the parameter n"),
        attribute(attr::REQUEST_TEMPERATURE, Float, "sampling temperature"),
        attribute(attr::REQUEST_TOP_P, Float, "top-p"),
        attribute(attr::REQUEST_TOP_K, Int, "top-k"),
        attribute(attr::REQUEST_MAX_TOKENS, Int, "most tokens to generate"),
        attribute(attr::REQUEST_IS_STREAM, Bool, "streaming or not"),
        attribute(attr::USER_ID, Str, "the request's field user").when("sent"),
        attribute(attr::SESSION_ID, Str, "request identifier").when("streaming"),
        attribute(attr::RESPONSE_ID, Str, "id of the response"),
        attribute(attr::RESPONSE_MODEL, Str, "model named in the response"),
        attribute(attr::RESPONSE_FINISH_REASONS, Strs, "why generation ended, one per candidate"),
        attribute(attr::USAGE_INPUT_TOKENS, Int, "input tokens"),
        attribute(attr::USAGE_OUTPUT_TOKENS, Int, "output tokens"),
        attribute(attr::USAGE_TOTAL_TOKENS, Int, "input plus output"),
        attribute(attr::INPUT_MESSAGES, Json, "input content")
            .when("content collection on, strategy span-attributes"),
        attribute(attr::OUTPUT_MESSAGES, Json, "output content")
            .when("content collection on, strategy span-attributes"),
    ],
};

/// Attributes on: vllm-v0 llm_request.
pub static V0_LLM_REQUEST: AttributeGroup = AttributeGroup {
    on: "vllm-v0 llm_request",
    note: None,
    attributes: &[
        attribute(attr::REQUEST_ID, Str, "the engine's own request id"),
        attribute(attr::RESPONSE_MODEL, Str, "model name"),
        attribute(attr::REQUEST_TEMPERATURE, Float, "sampling temperature"),
        attribute(attr::REQUEST_TOP_P, Float, "top-p"),
        attribute(attr::REQUEST_MAX_TOKENS, Int, "most tokens to generate"),
        attribute(attr::REQUEST_N, Int, "candidates"),
        attribute(attr::USAGE_NUM_SEQUENCES, Int, "sequences"),
        attribute(attr::USAGE_PROMPT_TOKENS, Int, "input tokens"),
        attribute(attr::USAGE_COMPLETION_TOKENS, Int, "output tokens"),
        attribute(attr::LATENCY_E2E, Float, "end to end").unit("s"),
        attribute(attr::LATENCY_TIME_IN_QUEUE, Float, "in the queue").unit("s"),
        attribute(attr::LATENCY_TIME_TO_FIRST_TOKEN, Float, "to the first token").unit("s"),
        attribute(attr::LATENCY_TIME_IN_SCHEDULER, Float, "scheduling")
            .unit("s")
            .when("the engine provides it"),
        attribute(attr::LATENCY_TIME_IN_MODEL_FORWARD, Float, "model forward")
            .unit("s")
            .when("the engine provides it"),
        attribute(
            attr::LATENCY_TIME_IN_MODEL_EXECUTE,
            Float,
            "forward, worker sync, CPU-GPU sync and sampling",
        )
        .unit("s")
        .when("the engine provides it"),
    ],
};

/// Attributes on: vllm-v1 llm_request.
pub static V1_LLM_REQUEST: AttributeGroup = AttributeGroup {
    on: "vllm-v1 llm_request",
    note: None,
    attributes: &[
        attribute(attr::REQUEST_ID, Str, "the engine's own request id"),
        attribute(attr::REQUEST_MODEL_NAME, Str, "model name"),
        attribute(attr::REQUEST_TEMPERATURE, Float, "sampling temperature"),
        attribute(attr::REQUEST_TOP_P, Float, "top-p"),
        attribute(attr::REQUEST_MAX_TOKENS, Int, "most tokens to generate"),
        attribute(attr::REQUEST_N, Int, "candidates"),
        attribute(attr::USAGE_PROMPT_TOKENS, Int, "input tokens"),
        attribute(attr::USAGE_COMPLETION_TOKENS, Int, "output tokens"),
        attribute(
            attr::USAGE_CACHE_READ_INPUT_TOKENS,
            Int,
            "input tokens not prefilled again: local prefix hits and remote KV reuse; reported at 0 too",
        ),
        attribute(attr::LATENCY_E2E, Int, "end to end").unit("ns"),
        attribute(attr::LATENCY_TIME_IN_QUEUE, Int, "in the queue").unit("ns"),
        attribute(attr::LATENCY_TIME_TO_FIRST_TOKEN, Int, "to the first token").unit("ns"),
        attribute(attr::LATENCY_TIME_IN_MODEL_PREFILL, Int, "prefill").unit("ns"),
        attribute(attr::LATENCY_TIME_IN_MODEL_DECODE, Int, "decode").unit("ns"),
        attribute(attr::LATENCY_TIME_IN_MODEL_INFERENCE, Int, "prefill plus decode").unit("ns"),
        attribute(attr::LATENCY_TIME_IN_TOKENIZE, Int, "tokenizing the prompt, in the frontend process")
            .unit("ns"),
        attribute(attr::LATENCY_TIME_IN_DETOKENIZE, Int, "incremental detokenization, summed").unit("ns"),
        attribute(attr::LATENCY_TIME_IN_KV_TRANSFER, Int, "all remote KV transfers")
            .unit("ns")
            .when("a transfer happened"),
        attribute(attr::REQUEST_PREEMPTION_COUNT, Int, "times preempted").when("preempted"),
        attribute(attr::ENGINE_INDEX, Int, "EngineCore instance"),
        attribute(attr::PD_ROLE, Str, "producer (prefill node), consumer (decode node) or none"),
    ],
};

/// Attributes on: vllm-v1 stage.
pub static V1_STAGE: AttributeGroup = AttributeGroup {
    on: "vllm-v1 stage",
    note: None,
    attributes: &[
        attribute(attr::REQUEST_ID, Str, "the engine's own request id"),
        attribute(attr::REQUEST_MODEL_NAME, Str, "model name"),
        attribute(attr::ENGINE_INDEX, Int, "EngineCore instance"),
        attribute(attr::PD_ROLE, Str, "producer, consumer or none"),
    ],
};

/// Attributes on: vllm-v1 kv_transfer.
pub static V1_KV_TRANSFER: AttributeGroup = AttributeGroup {
    on: "vllm-v1 kv_transfer",
    note: None,
    attributes: &[
        attribute(attr::KV_TRANSFER_DIRECTION, Str, "recv: the decode node pulls"),
        attribute(
            attr::KV_TRANSFER_CACHED_TOKENS,
            Int,
            "tokens this transfer covered: those the connector resolved remotely",
        ),
        attribute(attr::KV_TRANSFER_FAILED, Bool, "the connector reported a load error for this request"),
    ],
};

/// Events.
pub static EVENTS: &[EventDef] = &[EventDef {
    names: &[event::WAIT, event::PREFILL, event::DECODE, event::PREEMPTED],
    engines: &[VllmV1],
    on: "llm_request",
    level: 2,
    doc: "entered waiting; one prefill iteration; one decode iteration; preempted to free KV blocks",
    attributes: &[
        attribute(attr::ENGINE_INDEX, Int, ""),
        attribute(attr::TOKEN_IDS, Ints, ""),
        attribute(attr::TOKEN_TEXTS, Strs, ""),
        attribute(attr::TOKEN_COUNT, Int, ""),
        attribute(attr::TOKEN_LOGPROBS, Json, "")
            .when("the request itself asked for logprobs: the engine's computation is never changed"),
    ],
    limit: Some(
        "OTEL_SPAN_EVENT_COUNT_LIMIT, 128 by default; those beyond are dropped and counted in dropped_events_count",
    ),
}];

/// Dimensions of metrics.
pub static DIMENSIONS: &[DimensionGroup] = &[
    DimensionGroup {
        on: "vLLM engine metrics",
        dimensions: &[
            dimension(dim::CALL_TYPE, "always gen_ai"),
            dimension(dim::RPC_TYPE, "always 2100"),
            dimension(dim::ENGINE_INDEX, "EngineCore instance; V1 only"),
            dimension(dim::MODEL_NAME, "model name; V1 only"),
            dimension(dim::FINISHED_REASON, "on gen_ai_vllm_request_success only"),
        ],
    },
    DimensionGroup {
        on: "vLLM API-layer token metrics (genai_llm_usage_tokens)",
        dimensions: &[
            dimension(dim::CALL_TYPE, "always gen_ai"),
            dimension(dim::CALL_KIND, "always custom_entry"),
            dimension(dim::RPC_TYPE, "always 2100"),
            dimension(dim::API_MODEL_NAME, "model name"),
            dimension(dim::SPAN_KIND, "LLM or EMBEDDING"),
            dimension(dim::USAGE_TYPE, "input or output"),
        ],
    },
];
