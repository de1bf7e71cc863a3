//! Where SGLang keeps what is read, by every name it has had.

use crate::dialect::signal::sglang::{ForwardMode, FrontendTimes, Place, ReqState, ReqTimes, SglangLoad};
use crate::heap::Value;
use crate::time::{EngineTime, Seconds};

/// A chain of attributes.
pub(super) type Path = &'static [&'static str];

/// Functions whose `self` is the scheduler (`sglang/srt/managers/scheduler.py` and its mixins).
pub(super) const LOOPS: &[&str] = &[
    "event_loop_overlap",
    "event_loop_normal",
    "event_loop_pp",
    "event_loop_normal_disagg_prefill",
    "event_loop_overlap_disagg_prefill",
    "event_loop_pp_disagg_prefill",
    "event_loop_normal_disagg_decode",
    "event_loop_overlap_disagg_decode",
    "event_loop_pp_disagg_decode",
    "event_loop_pdmux",
];

/// Where requests are, the place that says most first: a request in several counts where it is found first.
pub(super) const REQUESTS: &[(Place, Path)] = &[
    (Place::Waiting, &["waiting_queue"]),
    (Place::Grammar, &["grammar_queue"]),
    (Place::Grammar, &["grammar_manager", "grammar_queue"]),
    (Place::Bootstrap, &["disagg_prefill_bootstrap_queue", "queue"]),
    (Place::Inflight, &["disagg_prefill_inflight_queue"]),
    (Place::Prealloc, &["disagg_decode_prealloc_queue", "queue"]),
    (Place::Transfer, &["disagg_decode_transfer_queue", "queue"]),
    (Place::Running, &["cur_batch", "reqs"]),
    (Place::Running, &["cur_batch_for_debug", "reqs"]),
    (Place::Running, &["last_batch", "reqs"]),
    (Place::Running, &["running_batch", "reqs"]),
];

/// The request whose prefill goes on in the next chunk.
pub(super) const CHUNKED: Path = &["chunked_req"];
/// The batch that was last put together: its mode's name and its requests.
pub(super) const BATCHES: &[(Path, Path)] = &[
    (&["cur_batch", "forward_mode", "_name_"], &["cur_batch", "reqs"]),
    (&["cur_batch_for_debug", "forward_mode", "_name_"], &["cur_batch_for_debug", "reqs"]),
];
/// When that batch was handed to the model (0.5.20 on), right after it was planned.
pub(super) const LAUNCHES: [Path; 2] = [&["cur_batch", "launch_ts"], &["cur_batch_for_debug", "launch_ts"]];
/// Forwards launched.
pub(super) const FORWARDS: Path = &["forward_ct"];

/// A moment of a request's `time_stats` and where it belongs.
pub(super) type Moment<T> = (&'static str, fn(&mut T) -> &mut Option<EngineTime>);

/// When a request ended.
pub(super) const COMPLETED: Moment<ReqTimes> = ("completion_time", |times| &mut times.completed);

/// `SchedulerReqTimeStats` (0.5.10 on), `TimeStats` (before).
pub(super) const TIMES: &[Moment<ReqTimes>] = &[
    ("scheduler_recv_time", |times| &mut times.received),
    ("wait_queue_entry_time", |times| &mut times.queued),
    ("forward_entry_time", |times| &mut times.forward),
    ("last_forward_entry_time", |times| &mut times.last_forward),
    ("prefill_finished_time", |times| &mut times.prefill_finished),
    ("last_prefill_finished_time", |times| &mut times.last_prefill_finished),
    COMPLETED,
    ("prefill_bootstrap_queue_entry_time", |times| &mut times.bootstrap_queued),
    ("prefill_transfer_queue_entry_time", |times| &mut times.transfer_queued),
    ("prefill_kv_transfer_finish_time", |times| &mut times.transfer_finished),
    ("decode_prealloc_queue_entry_time", |times| &mut times.prealloc_queued),
    ("decode_transfer_queue_entry_time", |times| &mut times.decode_transfer_queued),
    ("decode_prebuilt_finish_time", |times| &mut times.prebuilt_finished),
];

/// Those of them that change with every step.
pub(super) const STEP_TIMES: &[Moment<ReqTimes>] = &[
    ("last_chunked_prefill_finish_time", |times| &mut times.last_chunk_finished),
    ("last_decode_finish_time", |times| &mut times.last_decode_finished),
    ("last_decode_scheduled_time", |times| &mut times.last_scheduled),
];

/// A request's own moments, where it has no better (0.4.9).
pub(super) const REQ_TIMES: &[Moment<ReqTimes>] =
    &[("queue_time_start", |times| &mut times.queued), ("queue_time_end", |times| &mut times.forward)];

/// `APIServerReqTimeStats` (0.5.10 on).
pub(super) const FRONTEND_TIMES: &[Moment<FrontendTimes>] = &[
    ("created_time", |times| &mut times.created),
    ("tokenize_finish_time", |times| &mut times.tokenized),
    ("api_server_dispatch_time", |times| &mut times.dispatch),
    ("api_server_dispatch_finish_time", |times| &mut times.dispatched),
    ("first_token_time", |times| &mut times.first_token),
    ("last_time", |times| &mut times.last_token),
    ("finished_time", |times| &mut times.finished),
];

/// The frontend's module, the path in it to its requests by id, and what of a request holds its times.
pub(super) const FRONTEND: (&str, Path, &str) = (
    "sglang.srt.entrypoints.http_server",
    &["_global_state", "tokenizer_manager", "rid_to_state"],
    "time_stats",
);

/// A number of a request.
pub(super) type Count = (&'static str, fn(&mut ReqState) -> &mut Option<u64>);

/// A number, and whether it changes with every step.
pub(super) type Length = (&'static str, fn(&mut ReqState) -> &mut Option<u64>, bool);

/// Numbers that are lengths, and whether they change with every step.
pub(super) const REQ_LENGTHS: &[Length] = &[
    ("origin_input_ids", |request| &mut request.prompt_tokens, false),
    ("output_ids", |request| &mut request.output_tokens, true),
];

/// How often a request was sent back to the queue.
pub(super) const RETURNS: Count = ("retraction_count", |request| &mut request.retractions);

/// Numbers that are numbers.
pub(super) const REQ_COUNTS: &[Count] = &[
    ("cached_tokens", |request| &mut request.cached_tokens),
    RETURNS,
    ("spec_verify_ct", |request| &mut request.spec_verify_steps),
    ("spec_accepted_tokens", |request| &mut request.spec_accepted),
    ("spec_num_correct_drafts", |request| &mut request.spec_accepted),
    ("bootstrap_room", |request| &mut request.bootstrap_room),
];

/// A number of the scheduler's state.
pub(super) type Gauge = (Path, fn(&mut SglangLoad, &Value));

/// Numbers of the scheduler's state; of several names of one, the one that exists is read.
pub(super) const GAUGES: &[Gauge] = &[
    (&["last_gen_throughput"], |load, value| load.gen_throughput = value.number()),
    (&["metrics_reporter", "last_gen_throughput"], |load, value| load.gen_throughput = value.number()),
    (&["last_input_throughput"], |load, value| load.input_throughput = value.number()),
    (&["metrics_reporter", "last_input_throughput"], |load, value| load.input_throughput = value.number()),
];

/// Lengths of lists that are numbers of the scheduler's state.
pub(super) const RUNNING: Path = &["running_batch", "reqs"];
/// As [`RUNNING`].
pub(super) const QUEUED: Path = &["waiting_queue"];

/// Tokens accepted and forwards verified since the last report: their quotient is the accept length.
pub(super) const ACCEPTED: &[(Path, Path)] = &[
    (&["spec_num_accepted_tokens"], &["spec_num_forward_ct"]),
    (&["metrics_reporter", "spec_num_accept_tokens"], &["metrics_reporter", "spec_num_forward_ct"]),
];

/// Free KV slots are the tensors' lengths in pages, each of so many tokens; evictable ones are counted where the tree is
/// Python's own (until 0.5.10). Where it is not, used tokens cannot be told by this.
pub(super) const FREE_PAGES: &[Path] =
    &[&["token_to_kv_pool_allocator", "free_pages"], &["token_to_kv_pool_allocator", "release_pages"]];
/// Tokens there are.
pub(super) const MAX_TOKENS: Path = &["max_total_num_tokens"];
/// Tokens a page.
pub(super) const PAGE_SIZE: Path = &["page_size"];
/// Tokens kept for the case that they are asked for again.
pub(super) const EVICTABLE: Path = &["tree_cache", "evictable_size_"];

/// Offset of the process's clock to Unix time, in its requests' `time_stats`.
pub(super) const EPOCH_OFFSET: &str = "diff_realtime_monotonic";

/// Takes the offset over where it is one.
pub(super) fn epoch_offset(value: &Value) -> Option<Seconds> {
    value.number().filter(|offset| *offset > 0.0).map(Seconds)
}

/// Modes by name (`ForwardMode` of `model_executor/forward_batch_info.py`, 0.3.6 to 0.5.23).
const MODES: [(&str, ForwardMode); 11] = [
    ("EXTEND", ForwardMode::Prefill),
    ("MIXED", ForwardMode::Prefill),
    ("SPLIT_PREFILL", ForwardMode::Prefill),
    ("DRAFT_EXTEND", ForwardMode::Prefill),
    ("DRAFT_EXTEND_V2", ForwardMode::Prefill),
    ("DLLM_EXTEND", ForwardMode::Prefill),
    ("DECODE", ForwardMode::Decode),
    ("TARGET_VERIFY", ForwardMode::Decode),
    ("PREBUILT", ForwardMode::Prebuilt),
    ("IDLE", ForwardMode::Idle),
    ("DUMMY_FIRST", ForwardMode::Idle),
];

/// The mode of this name.
pub(super) fn mode(name: &str) -> Option<ForwardMode> {
    MODES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
}

/// Writes a moment by the name of its attribute, as tests read it from what SGLang's own class holds.
#[cfg(test)]
pub(crate) fn set_time(times: &mut ReqTimes, name: &str, at: EngineTime) {
    let known = TIMES.iter().chain(STEP_TIMES).find(|(known, _)| *known == name);
    let (_, field) = known.unwrap_or_else(|| panic!("{name} is in no table"));
    *field(times) = Some(at);
}
