//! SGLang's part of the table.

use super::Dialect::Sglang;
use super::Type::{Bool, Float, Int, Json, Str, Strs};
use super::def::{attribute, dimension, stage};
use super::names::{attr, dim, event, span};
use super::{AttributeGroup, DimensionGroup, EventDef, Layer, SpanDef, StageGroup};

/// Spans beside the entry spans, which are vLLM's too.
pub static SPANS: &[SpanDef] = &[
    SpanDef {
        name: span::SGLANG_REQUEST,
        engines: &[Sglang],
        level: 1,
        layer: Layer::Request,
        parent: Some("entry"),
        when: "role is prefill or decode under PD, empty (no leading blank) otherwise; made and ended in the frontend process",
    },
    SpanDef {
        name: span::SGLANG_THREAD,
        engines: &[Sglang],
        level: 1,
        layer: Layer::Thread,
        parent: Some("request"),
        when: "label is Tokenizer, MultiTokenizer-{number}, DP Controller or Scheduler, with Prefill or Decode before it under PD; rank parts only where the rank exists; the detokenizer process has none",
    },
];

/// Every attribute group below.
pub static ATTRIBUTES: &[&AttributeGroup] = &[&ENTRY, &REQUEST, &THREAD, &STAGE];

/// Attributes on: sglang entry.
pub static ENTRY: AttributeGroup = AttributeGroup {
    on: "sglang entry",
    note: None,
    attributes: &[
        attribute(attr::SPAN_KIND, Str, "always LLM"),
        attribute(attr::OPERATION_NAME, Str, "chat or text_completion"),
        attribute(attr::REQUEST_MODEL, Str, "model named in the request"),
        attribute(attr::REQUEST_ID, Str, "request id").when("streaming chat"),
        attribute(attr::REQUEST_IS_STREAM, Bool, "streaming or not"),
        attribute(attr::REQUEST_TEMPERATURE, Float, "sampling temperature"),
        attribute(attr::REQUEST_TOP_P, Float, "top-p"),
        attribute(attr::REQUEST_TOP_K, Int, "top-k"),
        attribute(attr::REQUEST_MAX_TOKENS, Int, "most tokens to generate"),
        attribute(attr::REQUEST_CHOICE_COUNT, Int, "candidates"),
        attribute(attr::RESPONSE_ID, Str, "id of the response"),
        attribute(attr::RESPONSE_MODEL, Str, "model named in the response").when("not streaming"),
        attribute(attr::RESPONSE_FINISH_REASONS, Strs, "why generation ended"),
        attribute(attr::USAGE_INPUT_TOKENS, Int, "input tokens"),
        attribute(attr::USAGE_OUTPUT_TOKENS, Int, "output tokens"),
        attribute(attr::USAGE_TOTAL_TOKENS, Int, "input plus output"),
        attribute(attr::USAGE_CACHE_READ_INPUT_TOKENS, Int, "input tokens served from cache"),
        attribute(attr::LATENCY_E2E, Float, "end to end").unit("s"),
        attribute(attr::RESPONSE_TOKENS_STREAMED, Int, "estimate: streaming increments times the engine's stream_interval; fills output_tokens where the server sends no usage").when("streaming"),
        attribute(attr::INPUT_MESSAGES, Json, "input content").when("content collection on, strategy span-attributes"),
        attribute(attr::OUTPUT_MESSAGES, Json, "output content").when("content collection on, strategy span-attributes"),
        attribute(attr::REQUEST_HAS_TOOL_CALLS, Bool, "the request declares tools").when("streaming chat"),
        attribute(attr::REQUEST_TOOL_CALL_DETECTED, Bool, "a tool call was seen in the response").when("streaming chat"),
        attribute(attr::REQUEST_TOOL_CALLS_COUNT, Int, "tool calls seen").when("streaming chat"),
        attribute(attr::COMPLETIONS_TOOL_CALLS_NAME, Str, "name of call j of candidate i").when("streaming chat"),
        attribute(attr::COMPLETIONS_TOOL_CALLS_ARGUMENTS, Str, "its arguments").when("streaming chat"),
    ],
};

/// Attributes on: sglang request.
pub static REQUEST: AttributeGroup = AttributeGroup {
    on: "sglang request",
    note: Some(
        "filled only where the request ends normally; on an abnormal end the error and the finish reason stand on the thread span (status ERROR), the request span itself is not marked",
    ),
    attributes: &[
        attribute(attr::RID, Str, "request id"),
        attribute(attr::MODULE, Str, "always sglang::request"),
        attribute(
            attr::BOOTSTRAP_ROOM,
            Str,
            "hexadecimal; joins the prefill and the decode trace of one request",
        )
        .when("PD"),
        attribute(attr::REQUEST_ID, Str, "request id"),
        attribute(attr::REQUEST_TEMPERATURE, Float, "sampling temperature"),
        attribute(attr::REQUEST_TOP_P, Float, "top-p"),
        attribute(attr::REQUEST_TOP_K, Int, "top-k"),
        attribute(attr::REQUEST_N, Int, "candidates"),
        attribute(attr::REQUEST_MAX_TOKENS, Int, "most tokens to generate"),
        attribute(attr::RESPONSE_MODEL, Str, "model the server is configured with"),
        attribute(attr::RESPONSE_FINISH_REASONS, Str, "a JSON array, as a string"),
        attribute(attr::USAGE_PROMPT_TOKENS, Int, "input tokens"),
        attribute(attr::USAGE_COMPLETION_TOKENS, Int, "output tokens").when("not an embedding request"),
        attribute(attr::USAGE_CACHED_TOKENS, Int, "input tokens served from cache"),
        attribute(attr::LATENCY_TIME_TO_FIRST_TOKEN, Float, "to the first token").unit("s"),
        attribute(attr::LATENCY_E2E, Float, "end to end").unit("s"),
        attribute(
            attr::LATENCY_TIME_IN_MODEL_PREFILL,
            Float,
            "request dispatched until first token, as the frontend sees it",
        )
        .unit("s"),
        attribute(attr::LATENCY_TIME_IN_MODEL_DECODE, Float, "first token until the end").unit("s"),
        attribute(attr::LATENCY_TIME_IN_MODEL_INFERENCE, Float, "request dispatched until the end").unit("s"),
    ],
};

/// Attributes on: sglang thread.
pub static THREAD: AttributeGroup = AttributeGroup {
    on: "sglang thread",
    note: None,
    attributes: &[
        attribute(attr::HOST_ID, Str, "unique per host: tells equal pids on two nodes apart"),
        attribute(attr::PID, Int, "thread id"),
        attribute(attr::THREAD_LABEL, Str, "label"),
        attribute(attr::TP_RANK, Int, "tensor-parallel rank").when("exists"),
        attribute(attr::PP_RANK, Int, "pipeline-parallel rank").when("exists"),
        attribute(attr::DP_RANK, Int, "data-parallel rank").when("exists"),
    ],
};

/// Attributes on: sglang stage.
pub static STAGE: AttributeGroup = AttributeGroup {
    on: "sglang stage",
    note: None,
    attributes: &[
        attribute(attr::DECODE_CT, Int, "number of the decode iteration").when("decode_loop"),
        attribute(attr::NUM_CORRECT_DRAFTS, Int, "draft tokens that passed").when("spec_verify"),
        attribute(attr::ACCEPTED_TOKENS, Int, "alias of num_correct_drafts").when("spec_verify"),
        attribute(attr::PP_MB_ID, Int, "micro-batch").when("run_batch_cpu"),
    ],
};

/// Events.
pub static EVENTS: &[EventDef] = &[
    EventDef {
        names: &[event::RETRACT],
        engines: &[Sglang],
        on: "the stage span that covers the moment, else the thread span",
        level: 1,
        doc: "sent back to the queue for lack of memory",
        attributes: &[],
        limit: None,
    },
    EventDef {
        names: &[event::SCHEDULE],
        engines: &[Sglang],
        on: "the stage span that covers the moment, else the thread span",
        level: 3,
        doc: "placed in a batch",
        attributes: &[
            attribute(attr::BID, Int, ""),
            attribute(attr::BATCH_SIZE, Int, ""),
            attribute(attr::FORWARD_MODE, Str, "decode, prefill or prebuilt"),
        ],
        limit: None,
    },
];

/// Stage spans, by where they occur.
pub static STAGES: &[StageGroup] = &[
    StageGroup {
        group: "common",
        stages: &[
            stage(span::TOKENIZE, 1, "frontend", "tokenizing the prompt"),
            stage(span::API_SERVER_DISPATCH, 2, "frontend", "sending the request to the scheduler"),
            stage(span::DPC_DISPATCH, 2, "dp controller", "sending by the data-parallel controller")
                .when("DP"),
            stage(
                span::REQUEST_PROCESS,
                2,
                "scheduler",
                "from entering the scheduler to entering the waiting queue",
            )
            .when("not PD"),
            stage(span::PREFILL_WAITING, 1, "scheduler", "in the queue until scheduled for prefill"),
            stage(span::PREFILL_FORWARD, 1, "scheduler", "forward of the prefill"),
            stage(span::CHUNKED_PREFILL, 3, "scheduler", "prefill of one chunk")
                .parent(span::PREFILL_FORWARD),
            stage(
                span::DECODE_WAITING,
                1,
                "scheduler",
                "from the end of prefill to the first scheduled decode; on a PD decode node: from the end of the KV transfer to the start of forward",
            ),
            stage(
                span::DECODE_FORWARD,
                1,
                "scheduler",
                "the whole decode: first scheduled decode until the request ends (closed with the thread)",
            ),
            stage(span::DECODE_LOOP, 3, "scheduler", "one decode iteration")
                .parent(span::DECODE_FORWARD)
                .attributes(&[attr::DECODE_CT]),
        ],
    },
    StageGroup {
        group: "speculative decoding, inside the forward spans",
        stages: &[
            stage(span::SPEC_DRAFT, 2, "scheduler", "the draft model proposes tokens"),
            stage(span::SPEC_VERIFY, 2, "scheduler", "the target model verifies them")
                .attributes(&[attr::NUM_CORRECT_DRAFTS, attr::ACCEPTED_TOKENS]),
            stage(span::SPEC_DRAFT_EXTEND, 3, "scheduler", "extend stage of the draft model"),
        ],
    },
    StageGroup {
        group: "pipeline parallelism",
        stages: &[stage(span::RUN_BATCH_CPU, 4, "scheduler", "the batch's work on the CPU")
            .attributes(&[attr::PP_MB_ID])],
    },
    StageGroup {
        group: "PD, prefill node",
        stages: &[
            stage(span::PREFILL_PREPARE, 1, "scheduler", "preparing after the prefill node got the request"),
            stage(span::PREFILL_BOOTSTRAP, 1, "scheduler", "connecting to the decode node"),
            stage(span::PREFILL_TRANSFER_KV_CACHE, 1, "scheduler", "sending the KV cache to the decode node"),
        ],
    },
    StageGroup {
        group: "PD, decode node",
        stages: &[
            stage(span::DECODE_PREPARE, 1, "scheduler", "preparing after the decode node got the request"),
            stage(span::DECODE_BOOTSTRAP, 1, "scheduler", "connecting to the prefill node"),
            stage(span::DECODE_TRANSFERRED, 1, "scheduler", "waiting for the KV cache to arrive"),
            stage(span::FAKE_OUTPUT, 3, "scheduler", "the decode node ends the output of the prefill stage"),
        ],
    },
];

/// Dimensions of metrics.
pub static DIMENSIONS: &[DimensionGroup] = &[DimensionGroup {
    on: "SGLang engine metrics",
    dimensions: &[
        dimension(dim::CALL_TYPE, "always gen_ai"),
        dimension(dim::CALL_KIND, "always custom_entry"),
        dimension(dim::RPC_TYPE, "always 2100"),
        dimension(dim::API_MODEL_NAME, "on the token metrics"),
        dimension(dim::SPAN_KIND, "on the token metrics"),
        dimension(dim::USAGE_TYPE, "input or output, on the token metrics"),
    ],
}];
