//! What the product adds of its own, beyond the contract.

use super::Type::{Bool, Float, Int, Ints, Str, Strs};
use super::def::{attribute, dimension};
use super::metric::metrics;
use super::names::{attr, dim, event, log};
use super::{AttributeGroup, DimensionGroup, EventDef, MetricDef, MetricKind};

/// Attribute groups.
pub static ATTRIBUTES: &[&AttributeGroup] = &[&ANY_SPAN, &ENTRY, &LLM_REQUEST, &SGLANG_THREAD, &ITERATION];

/// Attributes on any span.
pub static ANY_SPAN: AttributeGroup = AttributeGroup {
    on: "any span",
    note: None,
    attributes: &[
        attribute(
            attr::PARTIAL,
            Bool,
            "a part of the request was not seen: the agent came or left in its middle",
        )
        .when("true"),
        attribute(
            attr::ESTIMATED,
            Strs,
            "keys of this span's attributes that are estimates, not the engine's figures; `start` and `end` for its own",
        )
        .when("any"),
        attribute(attr::LOSS, Strs, "reasons of the losses that touched this span (enginetap_losses)")
            .when("any"),
        attribute(attr::ERROR_TYPE, Str, "kind of the error, as the server or the engine names it")
            .when("status ERROR"),
        attribute(attr::WHY, Str, "where the request's time went and why, as `enginetap why` says it (docs/WHY.md)")
            .when("the trace's first span"),
        attribute(attr::CAUSES, Strs, "what held the request up, the costliest first (docs/WHY.md has the causes)")
            .when("the trace's first span, where something did"),
        attribute(attr::CAUSE_TIMES, Ints, "time that each of the causes cost").unit("ns").when("with the causes"),
        attribute(attr::RUNQUEUE_DELAY, Int, "time in which threads at work on it waited for a CPU that others had")
            .unit("ns")
            .when("the trace's first span, where they did"),
        attribute(attr::CPU_THROTTLED, Int, "time in which they waited since their cgroup's CPU quota was used up")
            .unit("ns")
            .when("the trace's first span, where they did"),
        attribute(attr::GC_PAUSE, Int, "time in which the interpreter of one of them collected garbage")
            .unit("ns")
            .when("the trace's first span, where it did"),
    ],
};

/// Events on spans.
pub static EVENTS: &[EventDef] = &[EventDef {
    names: &[event::RUNQUEUE_DELAY, event::CPU_THROTTLED, event::GC_PAUSE],
    engines: &[],
    on: "the shortest span of the request that was going on",
    level: 0,
    doc: "threads at work on the request waited for a CPU that others had; they waited since their cgroup's quota was used up; the interpreter collected garbage",
    attributes: &[
        attribute(attr::PAUSE_TIME, Int, "how long, within the request's time").unit("ns"),
        attribute(attr::PAUSE_SIDE, Str, "whose threads: api_server or engine"),
    ],
    limit: Some("the 32 longest of a request"),
}];

/// Attributes on entry spans.
pub static ENTRY: AttributeGroup = AttributeGroup {
    on: "entry",
    note: None,
    attributes: &[
        attribute(attr::HTTP_STATUS, Int, "HTTP status of the response").when("a response head was seen")
    ],
};

/// Attributes on vLLM's engine span.
pub static LLM_REQUEST: AttributeGroup = AttributeGroup {
    on: "llm_request",
    note: None,
    attributes: &[
        attribute(
            attr::FINISH_REASON,
            Str,
            "why the engine ended it: stop, length, abort, error or repetition",
        )
        .when("the engine ended it"),
        attribute(attr::REMOTE_REQUEST_ID, Str, "gen_ai.request.id of the same request on the prefill node")
            .when("on a decode node, where the connector names it (vLLM's NIXL)"),
        attribute(attr::REMOTE_ENGINE_ID, Str, "the prefill node's engine, as the connector calls it")
            .when("on a decode node, where the connector names it (vLLM's NIXL)"),
    ],
};

/// Attributes on SGLang's thread spans.
pub static SGLANG_THREAD: AttributeGroup = AttributeGroup {
    on: "sglang thread",
    note: None,
    attributes: &[
        attribute(attr::FINISH_REASON, Str, "why the engine ended the request").when("status ERROR")
    ],
};

/// Attributes of the agent's own iteration log.
pub static ITERATION: AttributeGroup = AttributeGroup {
    on: "log event enginetap.iteration",
    note: None,
    attributes: &[
        attribute(attr::CONTEXT_REQUESTS, Int, "requests that got their first output in the iteration"),
        attribute(attr::CONTEXT_TOKENS, Int, "their prompt tokens that no cache had"),
        attribute(attr::GENERATION_REQUESTS, Int, "requests that got a later output"),
        attribute(attr::GENERATION_TOKENS, Int, "the tokens they got"),
        attribute(
            attr::ITERATION_SECONDS,
            Float,
            "how long the iteration took, both parts together: since the one before, or since the first was scheduled",
        )
        .when("known"),
    ],
};

/// Log events: name and when.
pub static LOGS: &[(&str, &str)] = &[
    (log::REQUEST_RECEIVED, "log_requests on: a request has come in over HTTP"),
    (log::REQUEST_ADDED, "log_requests on: a frontend has handed a request to its engine"),
    (log::REQUEST_ABORTED, "log_requests on: a frontend has taken a request back"),
    (log::REQUEST_FAILED, "log_requests on: the server or the engine ended a request with an error"),
    (log::ITERATION, "vLLM's log_iteration_details on: a step of the engine, as one frontend was told of it"),
];

metrics! {
    LOSSES = "enginetap_losses", Counter, "Count", [], "what was lost or left out, by reason and by the side (kernel, agent) that lost it; bytes for gap_bytes, occurrences for the others";
    RECORDS = "enginetap_records", Counter, "Count", [], "records read from the kernel";
    SPANS = "enginetap_spans", Counter, "Count", [], "spans made";
    KERNEL_SECONDS = "enginetap_kernel_seconds", Counter, "Seconds", [], "run time of the agent's kernel programs";
    CPU_SECONDS = "enginetap_cpu_seconds", Counter, "Seconds", [], "CPU time of the agent itself, by mode (user, system)";
    RESIDENT_BYTES = "enginetap_resident_bytes", Gauge, "Bytes", [], "resident memory of the agent";
    SERVERS = "enginetap_servers", Gauge, "Count", [], "servers attached to";
    REQUESTS_EXPLAINED = "enginetap_requests_explained", Counter, "Count", [], "requests looked at for what held them up";
    REQUESTS_HELD_UP = "enginetap_requests_held_up", Counter, "Count", [], "requests that something held up, by cause; a request counts once for each of its causes";
    HELD_UP_SECONDS = "enginetap_held_up_seconds", Counter, "Seconds", [], "time that causes cost requests, by cause";
    WHY_FORGOTTEN = "enginetap_why_forgotten", Counter, "Count", [], "steps, states and ended requests that made room for newer ones: a slow request that is as old is explained without them";
    PAUSE_SECONDS = "enginetap_pause_seconds", Counter, "Seconds", [], "time in which threads of a server did not run though they had work, by pause: run_queue (other threads had the CPU), cgroup (its quota was used up), gc (its interpreter collected garbage), and by side";
    MAJOR_FAULTS = "enginetap_major_faults", Counter, "Count", [], "pages that a server's processes had to wait for from a disk, by side";
    CONFIG_INVALID = "enginetap_config_invalid", Gauge, "Count", [], "1 while the configuration file cannot be used, and what it said before holds; enginetap run only";
}

/// Dimensions of the metrics.
pub static DIMENSIONS: &[DimensionGroup] = &[
    DimensionGroup {
        on: "enginetap_losses",
        dimensions: &[dimension(dim::REASON, "why"), dimension(dim::SIDE, "kernel or agent")],
    },
    DimensionGroup {
        on: "enginetap_requests_held_up, enginetap_held_up_seconds",
        dimensions: &[dimension(dim::CAUSE, "a cause of docs/WHY.md")],
    },
    DimensionGroup {
        on: "enginetap_pause_seconds, enginetap_major_faults",
        dimensions: &[
            dimension(dim::PAUSE, "run_queue, cgroup or gc"),
            dimension(dim::SIDE, "api_server or engine"),
        ],
    },
    DimensionGroup { on: "enginetap_cpu_seconds", dimensions: &[dimension(dim::MODE, "user or system")] },
];
