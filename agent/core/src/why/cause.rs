//! The causes there are: one row each, with what is said of it and what an operator would do.

use serde::Serialize;

/// Why a request took longer than it had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum Cause {
    /// The KV cache had no room: it waited, or was preempted.
    KvFull,
    /// Every place in the batch was taken.
    BatchFull,
    /// Another request's long prompt took the steps.
    LongPrefill,
    /// Other requests' prompts, many and none of them long, took the steps.
    Arrivals,
    /// A request with many candidates or with logprobs lengthened the steps.
    WideRequest,
    /// It waited for its KV cache from another node.
    KvTransfer,
    /// Its own prompt is long.
    OwnPrompt,
    /// Steps took long, and no request explains why.
    EngineStall,
    /// The client sent its request slowly.
    SlowUpload,
    /// The API server took long before it handed the request on.
    FrontendBefore,
    /// The API server took long to detokenize and to send.
    FrontendAfter,
    /// The client read its response slowly.
    SlowClient,
    /// The client went away.
    ClientGone,
    /// It was sent back to the queue though the KV cache had room.
    SentBack,
    /// Threads of the server waited for a CPU that other threads had.
    CpuStarved,
    /// The CPU quota of the server's cgroup was used up.
    CpuThrottled,
    /// The interpreter collected garbage.
    Gc,
    /// A long time that nothing explains.
    Unknown,
}

/// What is said of a cause.
#[derive(Clone, Copy, Debug)]
pub struct CauseDef {
    /// The cause.
    pub cause: Cause,
    /// Its name in metrics, attributes and JSON.
    pub name: &'static str,
    /// What happened, as a sentence.
    pub says: &'static str,
    /// What an operator would do.
    pub advice: &'static str,
}

/// A row.
const fn row(cause: Cause, name: &'static str, says: &'static str, advice: &'static str) -> CauseDef {
    CauseDef { cause, name, says, advice }
}

/// Every cause, in the order of [`Cause`].
pub static CAUSES: [CauseDef; 18] = [
    row(
        Cause::KvFull,
        "kv_full",
        "the KV cache was full: it waited for room, or was preempted",
        "give the KV cache more memory (vLLM --gpu-memory-utilization, SGLang --mem-fraction-static), shorten --max-model-len, use an fp8 KV cache, or add a replica",
    ),
    row(
        Cause::BatchFull,
        "batch_full",
        "as many requests ran as the scheduler allows, though the KV cache had room",
        "raise --max-num-seqs (SGLang --max-running-requests), or add a replica",
    ),
    row(
        Cause::LongPrefill,
        "long_prefill",
        "another request's long prompt was prefilled in its steps or ahead of it",
        "make chunks smaller (--max-num-batched-tokens, --long-prefill-token-threshold; SGLang --chunked-prefill-size), or send long prompts to a server of their own (disaggregated prefill)",
    ),
    row(
        Cause::Arrivals,
        "arrivals",
        "the prompts of many new requests were prefilled in its steps",
        "make chunks smaller (--max-num-batched-tokens; SGLang --chunked-prefill-size), or add a replica",
    ),
    row(
        Cause::WideRequest,
        "wide_request",
        "a request with many candidates (n) or with logprobs lengthened its steps",
        "bound n and logprobs of clients (vLLM --max-logprobs), or send such requests to a server of their own",
    ),
    row(
        Cause::KvTransfer,
        "kv_transfer",
        "it waited for its KV cache from the prefill node",
        "look at the network between the nodes and at the prefill nodes' load",
    ),
    row(
        Cause::OwnPrompt,
        "own_prompt",
        "its own prompt is long and was not in the prefix cache",
        "let prompts share their beginning (prefix caching), or raise --max-num-batched-tokens (SGLang --chunked-prefill-size) if others may wait",
    ),
    row(
        Cause::EngineStall,
        "engine_stall",
        "steps took long and nothing that was seen explains why",
        "look at the GPU (`enginetap_gpu_throttled`, `hw_errors`), at its neighbours and at what else the engine's process does",
    ),
    row(
        Cause::SlowUpload,
        "slow_upload",
        "the client sent its request slowly",
        "look at the client and the network before it",
    ),
    row(
        Cause::FrontendBefore,
        "frontend_before",
        "the API server took long before it handed the request to the engine",
        "give the API server CPU, or run more of them (--api-server-count; SGLang --tokenizer-worker-num); long prompts and images cost it most",
    ),
    row(
        Cause::FrontendAfter,
        "frontend_after",
        "the API server took long to detokenize and to send what the engine had made",
        "give the API server CPU, or run more of them (--api-server-count; SGLang --tokenizer-worker-num)",
    ),
    row(
        Cause::SlowClient,
        "slow_client",
        "the client read its response slowly: the engine was done long before",
        "look at the client and the network before it; a proxy that buffers helps",
    ),
    row(
        Cause::ClientGone,
        "client_gone",
        "the client closed the connection before the response was complete",
        "look at the client's timeout, and at what it was waiting for",
    ),
    row(
        Cause::SentBack,
        "sent_back",
        "it was sent back to the queue though the KV cache had room",
        "look at priorities and at how the scheduler plans ahead (SGLang --schedule-conservativeness)",
    ),
    row(
        Cause::CpuStarved,
        "cpu_starved",
        "threads of the server waited for a CPU that other threads had",
        "give the server CPUs of its own (Kubernetes: static CPU manager and whole CPUs, or a higher resources.requests.cpu), or move its neighbours",
    ),
    row(
        Cause::CpuThrottled,
        "cpu_throttled",
        "its container had used up its CPU quota and was stopped until the next period",
        "raise the CPU limit of its container (Kubernetes resources.limits.cpu, docker --cpus), or take it away",
    ),
    row(
        Cause::Gc,
        "gc",
        "the interpreter collected garbage meanwhile, and nothing else ran in it",
        "have it freeze what stays after the start (gc.freeze), or collect less often (gc.set_threshold)",
    ),
    row(
        Cause::Unknown,
        "unknown",
        "nothing that was seen explains this time",
        "record it (`enginetap record`) and look at the machine meanwhile",
    ),
];

impl Cause {
    /// Its row.
    #[must_use]
    pub fn def(self) -> &'static CauseDef {
        // The test below holds the table to the order of the enum.
        &CAUSES[self as usize]
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.def().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_says_something_of_each() {
        for (place, def) in CAUSES.iter().enumerate() {
            assert_eq!(def.cause as usize, place);
            assert_eq!(serde_json::to_value(def.cause).unwrap(), def.name);
            assert!(def.says.len() > 20 && def.advice.len() > 20, "{}", def.name);
        }
        assert_eq!(Cause::Unknown as usize + 1, CAUSES.len());
    }
}
