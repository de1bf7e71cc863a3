//! Signals of SGLang: what its processes told each other, what its log lines and shared memory said, and what its
//! objects held when they were looked at.

use serde::{Deserialize, Serialize};

use crate::ids::Pid;
use crate::time::{EngineTime, EpochTime, MonoTime, Seconds};

/// What SGLang said. The process it came from is told beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum SglangSignal {
    /// The frontend handed requests to the scheduler (`TokenizedGenerateReqInput` and kin).
    Dispatched {
        /// When the call that sent the message's last byte returned.
        at: MonoTime,
        /// The requests.
        requests: Vec<SglangRequest>,
    },
    /// What requests got in one message.
    Outputs {
        /// When the message's last byte was sent by the scheduler or received by the frontend.
        at: MonoTime,
        /// Which way it went.
        hop: Hop,
        /// What each request got.
        outputs: Vec<SglangOutput>,
        /// Whether the message was cut, so that outputs may be missing.
        cut: bool,
    },
    /// Requests were taken back (`AbortReq`).
    Aborted {
        /// When.
        at: MonoTime,
        /// The request; `None`: all of them (`abort_all`).
        rid: Option<String>,
        /// Why, where the scheduler said so: then it refused or dropped the request itself.
        finish: Option<SglangFinish>,
    },
    /// The scheduler sent requests back to its queue, and wrote so to its log, which does not say which ones.
    Retracted {
        /// When it wrote so.
        at: MonoTime,
        /// How many.
        requests: u64,
        /// Data-parallel rank.
        dp_rank: Option<u32>,
    },
    /// The scheduler's state, from whichever source tells it.
    Load {
        /// When it was written or sent.
        at: MonoTime,
        /// The state.
        load: SglangLoad,
    },
}

/// Which way outputs went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hop {
    /// Out of the scheduler (`BatchTokenIDOutput`, `BatchEmbeddingOutput`): the step has just ended.
    Scheduler,
    /// Into the frontend (`BatchStrOutput`; `BatchEmbeddingOutput` and, without a detokenizer,
    /// `BatchTokenIDOutput` too): detokenized.
    Frontend,
}

/// A request as the scheduler gets it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SglangRequest {
    /// Request id.
    pub rid: String,
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Sampling parameters, for a generation.
    pub sampling: Option<SglangSampling>,
    /// Whether the engine is to send every token as it comes.
    pub stream: bool,
    /// Whether it is an embedding or score request (`TokenizedEmbeddingReqInput`).
    pub embedding: bool,
    /// Whether logprobs were asked for.
    pub logprobs: bool,
    /// Adapter, by path or id.
    pub lora: Option<String>,
    /// Data-parallel rank asked for (`data_parallel_rank`, `routed_dp_rank`).
    pub dp_rank: Option<u32>,
    /// Joins the prefill and the decode node's parts of one request.
    pub bootstrap_room: Option<u64>,
    /// Priority.
    pub priority: Option<i64>,
    /// Whether the message was cut, so that absent fields may have been sent.
    pub cut: bool,
}

/// Sampling parameters (`SamplingParams`); a field is `None` where the message leaves it out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SglangSampling {
    /// Most tokens to generate.
    pub max_new_tokens: Option<u64>,
    /// Temperature, as the engine uses it.
    pub temperature: Option<f64>,
    /// Top-p.
    pub top_p: Option<f64>,
    /// Top-k; `None` where all tokens are meant (-1, or 1 << 30 inside the engine).
    pub top_k: Option<i64>,
    /// Candidates.
    pub n: Option<u32>,
    /// Whether stop strings were given.
    pub stop: bool,
}

/// What one request got.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SglangOutput {
    /// Request id.
    pub rid: String,
    /// Why it ended, if it did.
    pub finish: Option<SglangFinish>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated so far (a running total); `None` for an embedding.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens served from the cache.
    pub cached_tokens: Option<u64>,
    /// Reasoning tokens so far.
    pub reasoning_tokens: Option<u64>,
    /// Times it was sent back to the queue so far.
    pub retractions: Option<u64>,
    /// Verify steps of speculative decoding so far.
    pub spec_verify_steps: Option<u64>,
    /// Draft tokens that passed so far.
    pub spec_accepted: Option<u64>,
    /// Data-parallel rank that ran it.
    pub dp_rank: Option<u32>,
    /// Whether it holds an embedding.
    pub embedding: bool,
    /// The scheduler's times, where the message carries them (with `--enable-metrics`).
    pub times: Option<ReqTimes>,
}

/// Why a request ended (`finished_reasons`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SglangFinish {
    /// `stop`, `length`, `abort`.
    pub kind: String,
    /// The engine's word on an abnormal end. May quote the prompt: kept only where content is collected.
    pub message: Option<String>,
    /// HTTP status the engine gave an abort.
    pub status: Option<u32>,
}

/// The scheduler's own moments of a request, each as SGLang wrote it (seconds of `time.perf_counter()`, which is
/// `CLOCK_MONOTONIC`). From the wire (0.5.5 on, with `--enable-metrics`) or from the scheduler's objects.
///
/// Mirrors `SchedulerReqTimeStats` of `sglang/srt/observability/req_time_stats.py` (0.5.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReqTimes {
    /// The scheduler took it up (`scheduler_recv_time`).
    pub received: Option<EngineTime>,
    /// It entered the waiting queue; a retraction sets it anew (`wait_queue_entry_time`).
    pub queued: Option<EngineTime>,
    /// It was first put in a batch (`forward_entry_time`).
    pub forward: Option<EngineTime>,
    /// It was last put in a prefill batch (`last_forward_entry_time`).
    pub last_forward: Option<EngineTime>,
    /// Its prefill's result was worked in (`prefill_finished_time`).
    pub prefill_finished: Option<EngineTime>,
    /// The same moment by the wall clock, where the message carries that only (0.5.7 to 0.5.9:
    /// `prefill_finished_ts`).
    pub prefill_finished_epoch: Option<EpochTime>,
    /// The prefill after it was last sent back, or the first one: its result was worked in
    /// (`last_prefill_finished_time`, 0.5.10 on).
    pub last_prefill_finished: Option<EngineTime>,
    /// Its last chunk's result was worked in (`last_chunked_prefill_finish_time`).
    pub last_chunk_finished: Option<EngineTime>,
    /// Its last decode step's result was worked in (`last_decode_finish_time`).
    pub last_decode_finished: Option<EngineTime>,
    /// It was last put in a batch, prefill or decode (`last_scheduled_time`; kept only while SGLang traces).
    pub last_scheduled: Option<EngineTime>,
    /// It was sent back to the queue (`retract_time`).
    pub retracted: Option<EngineTime>,
    /// It ended (`completion_time`).
    pub completed: Option<EngineTime>,
    /// Time in the queue, where the message carries that only (0.5.5 to 0.5.9: `queue_time`).
    pub queue: Option<Seconds>,
    /// PD prefill node: entered the bootstrap queue (`prefill_bootstrap_queue_entry_time`).
    pub bootstrap_queued: Option<EngineTime>,
    /// PD prefill node: entered the transfer queue (`prefill_transfer_queue_entry_time`).
    pub transfer_queued: Option<EngineTime>,
    /// PD prefill node: its KV cache was sent (`prefill_kv_transfer_finish_time`).
    pub transfer_finished: Option<EngineTime>,
    /// PD decode node: entered the pre-allocation queue (`decode_prealloc_queue_entry_time`).
    pub prealloc_queued: Option<EngineTime>,
    /// PD decode node: entered the transfer queue (`decode_transfer_queue_entry_time`).
    pub decode_transfer_queued: Option<EngineTime>,
    /// PD decode node: the prefill stage's output was ended (`decode_prebuilt_finish_time`).
    pub prebuilt_finished: Option<EngineTime>,
    /// `time.time() - time.perf_counter()` of the process, in seconds.
    pub epoch_offset: Option<Seconds>,
}

/// The frontend's own moments of a request (`APIServerReqTimeStats`, 0.5.10 on; before, what `ReqState` has).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrontendTimes {
    /// The frontend took it up (`created_time`).
    pub created: Option<EngineTime>,
    /// It was tokenized (`tokenize_finish_time`).
    pub tokenized: Option<EngineTime>,
    /// Sending it began (`api_server_dispatch_time`).
    pub dispatch: Option<EngineTime>,
    /// It was sent (`api_server_dispatch_finish_time`).
    pub dispatched: Option<EngineTime>,
    /// Its first output came (`first_token_time`).
    pub first_token: Option<EngineTime>,
    /// Its last output came (`last_time`).
    pub last_token: Option<EngineTime>,
    /// It was done (`finished_time`).
    pub finished: Option<EngineTime>,
}

/// Where a scheduler keeps a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Waiting queue.
    Waiting,
    /// Waiting for its grammar.
    Grammar,
    /// In the batch that runs.
    Running,
    /// The request whose prefill goes on in the next chunk.
    Chunked,
    /// PD prefill node: connecting to the decode node.
    Bootstrap,
    /// PD prefill node: its KV cache is being sent.
    Inflight,
    /// PD decode node: waiting for room.
    Prealloc,
    /// PD decode node: its KV cache is on its way.
    Transfer,
    /// In no list any more, but in a batch that the scheduler keeps for a while: most likely it has ended.
    Kept,
}

/// A request as it stood in the scheduler's objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReqState {
    /// Request id.
    pub rid: String,
    /// Where it stood.
    pub place: Place,
    /// The scheduler's moments.
    #[serde(default)]
    pub times: ReqTimes,
    /// Prompt tokens.
    #[serde(default)]
    pub prompt_tokens: Option<u64>,
    /// Tokens generated so far.
    #[serde(default)]
    pub output_tokens: Option<u64>,
    /// Prompt tokens served from the cache.
    #[serde(default)]
    pub cached_tokens: Option<u64>,
    /// Times it was sent back to the queue.
    #[serde(default)]
    pub retractions: Option<u64>,
    /// Verify steps of speculative decoding.
    #[serde(default)]
    pub spec_verify_steps: Option<u64>,
    /// Draft tokens that passed.
    #[serde(default)]
    pub spec_accepted: Option<u64>,
    /// Joins both nodes' parts of one request, under PD.
    #[serde(default)]
    pub bootstrap_room: Option<u64>,
}

/// What the batch that a scheduler last put together was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchState {
    /// What it does.
    pub mode: ForwardMode,
    /// Requests in it.
    pub size: u32,
    /// Forwards the scheduler has launched (`forward_ct`).
    #[serde(default)]
    pub forward_count: Option<u64>,
}

/// What a forward does (`ForwardMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardMode {
    /// Prefill (EXTEND, MIXED, SPLIT_PREFILL, and the draft model's).
    Prefill,
    /// Decode (and TARGET_VERIFY).
    Decode,
    /// A batch that was prefilled on another node (PREBUILT).
    Prebuilt,
    /// Nothing (IDLE).
    Idle,
}

/// A scheduler's objects, as they were read: a [`crate::capture::fact::Fact`], so that a capture holds it. Only
/// requests that changed since the snapshot before are in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The scheduler process.
    pub pid: Pid,
    /// When the reading began.
    pub at: MonoTime,
    /// The forward's start that made the agent look ([`crate::capture::record::Body`]'s mark), where one did.
    #[serde(default)]
    pub mark: Option<MonoTime>,
    /// Requests that changed.
    #[serde(default)]
    pub requests: Vec<ReqState>,
    /// The batch last put together, where there is one.
    #[serde(default)]
    pub batch: Option<BatchState>,
    /// Requests in that batch, where the reading was made for a mark: who takes part in the step.
    #[serde(default)]
    pub members: Vec<String>,
    /// When that batch was handed to the model (`ScheduleBatch.launch_ts`, 0.5.20 on), where the reading was made for a
    /// mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<EngineTime>,
    /// The scheduler's state, where it changed and no better source is there.
    #[serde(default)]
    pub load: Option<SglangLoad>,
}

/// A frontend's objects, as they were read: requests that changed since the reading before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontendSnapshot {
    /// The frontend process.
    pub pid: Pid,
    /// When the reading began.
    pub at: MonoTime,
    /// Requests that changed: id and moments.
    pub requests: Vec<(String, FrontendTimes)>,
}

/// Where a scheduler's state was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadSource {
    /// A prefill statistics line on stderr.
    PrefillLine,
    /// A decode statistics line on stderr.
    DecodeLine,
    /// The snapshot in shared memory (0.5.13 on).
    SharedMemory,
    /// The field `load` of a message (0.5.7 to 0.5.13).
    Message,
    /// The scheduler's objects.
    Objects,
}

impl LoadSource {
    /// Whether this is one of the engine's own statistics reports, which `sglang_log_count` counts.
    #[must_use]
    pub fn is_report(self) -> bool {
        matches!(self, Self::PrefillLine | Self::DecodeLine)
    }
}

/// A scheduler's state. A field is `None` where the source does not tell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SglangLoad {
    /// Where it was read.
    pub source: LoadSource,
    /// Data-parallel rank.
    #[serde(default)]
    pub dp_rank: Option<u32>,
    /// Requests running.
    #[serde(default)]
    pub running: Option<u64>,
    /// Requests queued.
    #[serde(default)]
    pub queued: Option<u64>,
    /// KV tokens in use.
    #[serde(default)]
    pub used_tokens: Option<u64>,
    /// KV tokens there are.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// KV cache use, 0 to 1.
    #[serde(default)]
    pub token_usage: Option<f64>,
    /// Tokens generated a second.
    #[serde(default)]
    pub gen_throughput: Option<f64>,
    /// Prompt tokens a second.
    #[serde(default)]
    pub input_throughput: Option<f64>,
    /// Cache hit rate, 0 to 1.
    #[serde(default)]
    pub cache_hit_rate: Option<f64>,
    /// New prompt tokens of the prefill batch.
    #[serde(default)]
    pub new_tokens: Option<u64>,
    /// Cached prompt tokens of the prefill batch.
    #[serde(default)]
    pub cached_tokens: Option<u64>,
    /// Accept length of speculative decoding.
    #[serde(default)]
    pub accept_length: Option<f64>,
    /// Accept rate of speculative decoding, 0 to 1.
    #[serde(default)]
    pub accept_rate: Option<f64>,
}

impl SglangLoad {
    /// Nothing but its source.
    #[must_use]
    pub fn of(source: LoadSource) -> Self {
        Self {
            source,
            dp_rank: None,
            running: None,
            queued: None,
            used_tokens: None,
            max_tokens: None,
            token_usage: None,
            gen_throughput: None,
            input_throughput: None,
            cache_hit_rate: None,
            new_tokens: None,
            cached_tokens: None,
            accept_length: None,
            accept_rate: None,
        }
    }
}

/// Whether a request is the server's own look at its health: its id says so (`HEALTH_CHECK_RID_PREFIX`, 0.4.0 on).
#[must_use]
pub fn is_health_check(rid: &str) -> bool {
    rid.starts_with("HEALTH_CHECK_")
}
