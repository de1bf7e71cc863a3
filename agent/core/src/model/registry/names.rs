//! Every name the product may put on a span, event or metric, as constants. A name that is not here cannot be
//! written without a string literal of its own, and the tests refuse one that no table of the registry holds.

/// Makes constants of names, and a list of them all.
macro_rules! names {
    ($($name:ident = $text:literal;)*) => {
        $(
            #[doc = concat!("`", $text, "`")]
            pub const $name: &str = $text;
        )*
        /// Every name above.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

/// Attribute keys.
pub mod attr {
    names! {
        ACCEPTED_TOKENS = "accepted_tokens";
        BATCH_SIZE = "batch_size";
        BID = "bid";
        BOOTSTRAP_ROOM = "bootstrap_room";
        DECODE_CT = "decode_ct";
        DP_RANK = "dp_rank";
        FORWARD_MODE = "forward_mode";
        COMPLETIONS_TOOL_CALLS_ARGUMENTS = "gen_ai.completions.{i}.tool_calls.{j}.arguments";
        COMPLETIONS_TOOL_CALLS_NAME = "gen_ai.completions.{i}.tool_calls.{j}.name";
        ENGINE_INDEX = "gen_ai.engine.index";
        INPUT_MESSAGES = "gen_ai.input.messages";
        KV_TRANSFER_CACHED_TOKENS = "gen_ai.kv_transfer.cached_tokens";
        KV_TRANSFER_DIRECTION = "gen_ai.kv_transfer.direction";
        KV_TRANSFER_FAILED = "gen_ai.kv_transfer.failed";
        LATENCY_E2E = "gen_ai.latency.e2e";
        LATENCY_TIME_IN_DETOKENIZE = "gen_ai.latency.time_in_detokenize";
        LATENCY_TIME_IN_KV_TRANSFER = "gen_ai.latency.time_in_kv_transfer";
        LATENCY_TIME_IN_MODEL_DECODE = "gen_ai.latency.time_in_model_decode";
        LATENCY_TIME_IN_MODEL_EXECUTE = "gen_ai.latency.time_in_model_execute";
        LATENCY_TIME_IN_MODEL_FORWARD = "gen_ai.latency.time_in_model_forward";
        LATENCY_TIME_IN_MODEL_INFERENCE = "gen_ai.latency.time_in_model_inference";
        LATENCY_TIME_IN_MODEL_PREFILL = "gen_ai.latency.time_in_model_prefill";
        LATENCY_TIME_IN_QUEUE = "gen_ai.latency.time_in_queue";
        LATENCY_TIME_IN_SCHEDULER = "gen_ai.latency.time_in_scheduler";
        LATENCY_TIME_IN_TOKENIZE = "gen_ai.latency.time_in_tokenize";
        LATENCY_TIME_TO_FIRST_TOKEN = "gen_ai.latency.time_to_first_token";
        OPERATION_NAME = "gen_ai.operation.name";
        OUTPUT_MESSAGES = "gen_ai.output.messages";
        PD_ROLE = "gen_ai.pd_role";
        REQUEST_CHOICE_COUNT = "gen_ai.request.choice.count";
        REQUEST_HAS_TOOL_CALLS = "gen_ai.request.has_tool_calls";
        REQUEST_ID = "gen_ai.request.id";
        REQUEST_IS_STREAM = "gen_ai.request.is_stream";
        REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens";
        REQUEST_MODEL = "gen_ai.request.model";
        REQUEST_MODEL_NAME = "gen_ai.request.model_name";
        REQUEST_N = "gen_ai.request.n";
        REQUEST_PREEMPTION_COUNT = "gen_ai.request.preemption_count";
        REQUEST_TEMPERATURE = "gen_ai.request.temperature";
        REQUEST_TOOL_CALL_DETECTED = "gen_ai.request.tool_call_detected";
        REQUEST_TOOL_CALLS_COUNT = "gen_ai.request.tool_calls_count";
        REQUEST_TOP_K = "gen_ai.request.top_k";
        REQUEST_TOP_P = "gen_ai.request.top_p";
        RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons";
        RESPONSE_ID = "gen_ai.response.id";
        RESPONSE_MODEL = "gen_ai.response.model";
        RESPONSE_TOKENS_STREAMED = "gen_ai.response.tokens_streamed";
        SPAN_KIND = "gen_ai.span.kind";
        TOKEN_COUNT = "gen_ai.token.count";
        TOKEN_IDS = "gen_ai.token.ids";
        TOKEN_LOGPROBS = "gen_ai.token.logprobs";
        TOKEN_TEXTS = "gen_ai.token.texts";
        USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens";
        USAGE_CACHED_TOKENS = "gen_ai.usage.cached_tokens";
        USAGE_COMPLETION_TOKENS = "gen_ai.usage.completion_tokens";
        USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens";
        USAGE_NUM_SEQUENCES = "gen_ai.usage.num_sequences";
        USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens";
        USAGE_PROMPT_TOKENS = "gen_ai.usage.prompt_tokens";
        USAGE_TOTAL_TOKENS = "gen_ai.usage.total_tokens";
        USER_ID = "gen_ai.user.id";
        HOST_ID = "host_id";
        MODULE = "module";
        NUM_CORRECT_DRAFTS = "num_correct_drafts";
        PID = "pid";
        PP_MB_ID = "pp_mb_id";
        PP_RANK = "pp_rank";
        RID = "rid";
        SESSION_ID = "session.id";
        THREAD_LABEL = "thread_label";
        TP_RANK = "tp_rank";
        // Our own, beyond the contract.
        PARTIAL = "enginetap.partial";
        ESTIMATED = "enginetap.estimated";
        LOSS = "enginetap.loss";
        WHY = "enginetap.why";
        CAUSES = "enginetap.causes";
        CAUSE_TIMES = "enginetap.cause_times";
        RUNQUEUE_DELAY = "enginetap.runqueue_delay";
        CPU_THROTTLED = "enginetap.cpu_throttled";
        GC_PAUSE = "enginetap.gc_pause";
        PAUSE_TIME = "enginetap.pause.time";
        PAUSE_SIDE = "enginetap.pause.side";
        FINISH_REASON = "enginetap.finish_reason";
        REMOTE_REQUEST_ID = "enginetap.kv_transfer.remote_request_id";
        REMOTE_ENGINE_ID = "enginetap.kv_transfer.remote_engine_id";
        CONTEXT_REQUESTS = "enginetap.iteration.context_requests";
        CONTEXT_TOKENS = "enginetap.iteration.context_tokens";
        GENERATION_REQUESTS = "enginetap.iteration.generation_requests";
        GENERATION_TOKENS = "enginetap.iteration.generation_tokens";
        ITERATION_SECONDS = "enginetap.iteration.seconds";
        HTTP_STATUS = "http.response.status_code";
        ERROR_TYPE = "error.type";
    }
}

/// Dimension keys of metrics.
pub mod dim {
    names! {
        CALL_TYPE = "callType";
        CALL_KIND = "callKind";
        RPC_TYPE = "rpcType";
        ENGINE_INDEX = "engine_index";
        MODEL_NAME = "model_name";
        API_MODEL_NAME = "modelName";
        SPAN_KIND = "spanKind";
        USAGE_TYPE = "usageType";
        FINISHED_REASON = "finished_reason";
        // Our own, beyond the contract.
        REASON = "reason";
        CAUSE = "cause";
        PAUSE = "pause";
        SIDE = "side";
        MODE = "mode";
        // OpenTelemetry's, of hardware.
        HW_ID = "hw.id";
        HW_TYPE = "hw.type";
        HW_NAME = "hw.name";
        HW_MODEL = "hw.model";
        HW_VENDOR = "hw.vendor";
        HW_DRIVER_VERSION = "hw.driver_version";
        HW_PARENT = "hw.parent";
        HW_GPU_TASK = "hw.gpu.task";
        HW_STATE = "hw.state";
        HW_SENSOR_LOCATION = "hw.sensor_location";
        ERROR_TYPE = "error.type";
        IO_DIRECTION = "network.io.direction";
        PROCESS_PID = "process.pid";
        INTERCONNECT = "interconnect";
        CLOCK = "clock";
        FOUND_BY = "found_by";
    }
}

/// Span names, those of SGLang's stages among them. Braces mark what varies.
pub mod span {
    names! {
        CHAT = "chat {model}";
        TEXT_COMPLETION = "text_completion {model}";
        EMBEDDINGS = "embeddings {model}";
        RERANK = "rerank {model}";
        LLM_REQUEST = "llm_request";
        WAIT = "wait";
        KV_TRANSFER = "kv_transfer";
        PREFILL = "prefill";
        DECODE = "decode";
        SGLANG_REQUEST = "{role} Req {first 8 characters of rid}";
        SGLANG_THREAD = "{thread label} [TP n] [PP n] [DP n] (host:{host id} | pid:{thread id})";
        TOKENIZE = "tokenize";
        API_SERVER_DISPATCH = "api_server_dispatch";
        DPC_DISPATCH = "dpc_dispatch";
        REQUEST_PROCESS = "request_process";
        PREFILL_WAITING = "prefill_waiting";
        PREFILL_FORWARD = "prefill_forward";
        CHUNKED_PREFILL = "chunked_prefill";
        DECODE_WAITING = "decode_waiting";
        DECODE_FORWARD = "decode_forward";
        DECODE_LOOP = "decode_loop";
        SPEC_DRAFT = "spec_draft";
        SPEC_VERIFY = "spec_verify";
        SPEC_DRAFT_EXTEND = "spec_draft_extend";
        RUN_BATCH_CPU = "run_batch_cpu";
        PREFILL_PREPARE = "prefill_prepare";
        PREFILL_BOOTSTRAP = "prefill_bootstrap";
        PREFILL_TRANSFER_KV_CACHE = "prefill_transfer_kv_cache";
        DECODE_PREPARE = "decode_prepare";
        DECODE_BOOTSTRAP = "decode_bootstrap";
        DECODE_TRANSFERRED = "decode_transferred";
        FAKE_OUTPUT = "fake_output";
    }

    /// A key of a tool call's attributes: call `call` of candidate `choice`.
    #[must_use]
    pub fn of_call(template: &str, choice: u32, call: u32) -> String {
        template.replace("{i}", &choice.to_string()).replace("{j}", &call.to_string())
    }

    /// The name of an entry span: the operation and the model, or the operation alone where no model is known.
    #[must_use]
    pub fn entry(operation: &str, model: Option<&str>) -> String {
        match model {
            Some(model) => format!("{operation} {model}"),
            None => operation.to_owned(),
        }
    }
}

/// Event names.
pub mod event {
    names! {
        WAIT = "WAIT";
        PREFILL = "PREFILL";
        DECODE = "DECODE";
        PREEMPTED = "PREEMPTED";
        RETRACT = "retract";
        SCHEDULE = "schedule";
        // Our own, beyond the contract.
        RUNQUEUE_DELAY = "runqueue.delay";
        CPU_THROTTLED = "cpu.throttled";
        GC_PAUSE = "gc.pause";
    }
}

/// Log event names.
pub mod log {
    names! {
        INFERENCE_DETAILS = "gen_ai.client.inference.operation.details";
        // Our own, beyond the contract.
        REQUEST_RECEIVED = "enginetap.request.received";
        REQUEST_ADDED = "enginetap.request.added";
        REQUEST_ABORTED = "enginetap.request.aborted";
        REQUEST_FAILED = "enginetap.request.failed";
        ITERATION = "enginetap.iteration";
    }
}
