//! Facts: what user space knows of servers, processes and connections. They enter the pipeline in the same
//! stream as the kernel's records, so that a capture replays without the machine it was made on.

use serde::{Deserialize, Serialize};

use crate::dialect::schema::Schema;
use crate::dialect::signal::sglang::{FrontendSnapshot, Snapshot};
use crate::dialect::signal::vllm_v0::V0Snapshot;
use crate::gpu::reading::Reading;
use crate::ids::{ConnId, Fd, Pid, ServerId};
use crate::time::{Clock, MonoTime, Nanos};

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// Both clocks, read at once.
    Clock(Clock),
    /// A server, new or known better.
    Server(Server),
    /// A process of a server.
    Process(Process),
    /// A connection of a process.
    Conn(Conn),
    /// A scheduler's objects, as they were read.
    Snapshot(Snapshot),
    /// A frontend's objects, as they were read.
    FrontendSnapshot(FrontendSnapshot),
    /// What was read of a vLLM V0 engine outside its messages.
    V0Snapshot(V0Snapshot),
    /// A shared-memory state that a scheduler published, as its bytes.
    Shared(Shared),
    /// What the machine's GPUs told.
    Gpus(Reading),
    /// Threads of a process waited for a CPU, or for pages.
    Waits(Waits),
    /// A server has ended, or the agent stopped looking at it: whatever is unfinished is ended as it stands.
    Detached(ServerId),
}

/// Which engine a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

impl Engine {
    /// The engine's name, lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }
}

/// An inference server: one engine instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its id in this capture.
    pub id: ServerId,
    /// The engine.
    pub engine: Engine,
    /// The engine's version, where its package says one (`0.32.0`).
    pub version: Option<String>,
    /// Model names the server answers to, the first one its main name.
    pub models: Vec<String>,
    /// Field orders of the engine's messages, read from its installed package; `None`: use the tables.
    pub schema: Option<Schema>,
    /// OTLP resource attributes: host.name, process.pid, container.id and so on.
    pub resource: Vec<(String, String)>,
    /// How an SGLang server was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sglang: Option<SglangLaunch>,
    /// Whether it runs vLLM's V0 engine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub v0: bool,
}

/// What an SGLang server was told at its start that decides how its messages and moments read; the engine's defaults
/// where it was told nothing. Mirrors `ServerArgs` of `sglang/srt/server_args.py` (0.5.23).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SglangLaunch {
    /// Tensor-parallel size.
    pub tensor_parallel: u32,
    /// Pipeline-parallel size.
    pub pipeline_parallel: u32,
    /// Data-parallel size.
    pub data_parallel: u32,
    /// Steps between two messages of a streamed request.
    pub stream_interval: u32,
    /// Prompt tokens of one chunk at most; `None`: the engine chooses by its memory. 0: prompts are not chunked.
    pub chunked_prefill: Option<u32>,
    /// Which part of a disaggregated pair it is.
    pub disaggregation: Disaggregation,
    /// Speculative decoding's algorithm, where it is on.
    pub speculative: Option<String>,
    /// Whether the scheduler prepares a step while the one before runs.
    pub overlap: bool,
    /// Whether its own metrics are on: then its messages carry the scheduler's times (0.5.5 on).
    pub metrics: bool,
    /// Whether its own tracing is on.
    pub tracing: bool,
    /// Whether texts are made by the client: then the scheduler answers the frontend directly.
    pub skip_tokenizer: bool,
    /// Whether HTTP and tokenizer are Rust code inside the scheduler (`SGLANG_RUST_SERVER=1`): then neither the
    /// frontend's messages nor its objects are there.
    pub rust_server: bool,
}

impl Default for SglangLaunch {
    fn default() -> Self {
        Self {
            tensor_parallel: 1,
            pipeline_parallel: 1,
            data_parallel: 1,
            stream_interval: 1,
            chunked_prefill: None,
            disaggregation: Disaggregation::default(),
            speculative: None,
            overlap: true,
            metrics: false,
            tracing: false,
            skip_tokenizer: false,
            rust_server: false,
        }
    }
}

/// Which part of a disaggregated pair a server is (`--disaggregation-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disaggregation {
    /// It does both.
    #[default]
    Unified,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

/// What a process does in its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Serves HTTP and talks to the engine core (vLLM's API server).
    ApiServer,
    /// Schedules (vLLM's EngineCore).
    EngineCore,
    /// Runs the model.
    Worker,
    /// Balances data-parallel engines (vLLM's DPCoordinator).
    Coordinator,
    /// Starts the others and serves nothing itself.
    Supervisor,
    /// Anything else in the tree.
    Other,
}

/// A process of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: Pid,
    /// The server it belongs to.
    pub server: ServerId,
    /// What it does there.
    pub role: Role,
    /// Its title or command name, for people.
    pub title: String,
}

/// One of the ways in which an engine is split over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parallel {
    /// Data: each rank its own requests.
    Data,
    /// Pipeline: each rank some of the layers.
    Pipeline,
    /// Tensor: each rank a part of each layer.
    Tensor,
    /// Expert: each rank some of the experts.
    Expert,
}

impl Process {
    /// The process's rank by its title (`sglang::scheduler_DP0_PP1_TP2_EP3`, `VLLM::Worker_TP0`); `None` where the
    /// title tells none: then there is one rank only.
    #[must_use]
    pub fn rank(&self, of: Parallel) -> Option<u32> {
        let mark = match of {
            Parallel::Data => "DP",
            Parallel::Pipeline => "PP",
            Parallel::Tensor => "TP",
            Parallel::Expert => "EP",
        };
        let words: Vec<&str> = self.title.split('_').collect();
        words.windows(2).find_map(|pair| match pair {
            // `MOE_DP1`, `ATTN_CP0`: ranks of other groups.
            ["MOE" | "ATTN", _] => None,
            [_, word] => word.strip_prefix(mark)?.parse().ok(),
            _ => None,
        })
    }
}

/// What kind of socket a connection is, and who is at its other end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    /// TCP, addresses as `ip:port`.
    Tcp {
        /// This end.
        local: String,
        /// The other end.
        peer: String,
    },
    /// A Unix stream socket.
    Unix {
        /// Path this end is bound to, if any (the listener's path on an accepted one).
        local: Option<String>,
        /// Path the other end is bound to, if any.
        peer: Option<String>,
        /// Process at the other end, where the kernel tells.
        peer_pid: Option<Pid>,
    },
    /// No socket: the process's standard error, lines of text.
    Log,
    /// Not a stream socket: of no interest.
    Other,
}

/// A connection of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conn {
    /// Its id.
    pub conn: ConnId,
    /// The process.
    pub pid: Pid,
    /// The descriptor in that process.
    pub fd: Fd,
    /// The socket.
    pub socket: Socket,
    /// Whether the connection existed before the agent attached: its streams start somewhere in the middle.
    pub midstream: bool,
}

/// What the kernel says that a process waited for in a span of time: `/proc/PID/task/TID/schedstat`, `cpu.stat` of its
/// cgroup, `/proc/PID/stat`. Told where it is worth telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The process.
    pub pid: Pid,
    /// The begin of the span of time.
    pub from: MonoTime,
    /// Its end.
    pub to: MonoTime,
    /// The most that one of its threads at work was ready to run and did not.
    pub waited: Nanos,
    /// How long its cgroup's CPU quota was used up, on all CPUs together.
    pub throttled: Nanos,
    /// Pages it had to wait for from a disk.
    pub faults: u64,
}

/// What a process published in shared memory, as it lay there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The process that writes it.
    pub pid: Pid,
    /// When it was read.
    pub at: MonoTime,
    /// The bytes.
    pub bytes: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(title: &str) -> [Option<u32>; 4] {
        let process =
            Process { pid: Pid(1), server: ServerId(1), role: Role::EngineCore, title: title.to_owned() };
        [Parallel::Data, Parallel::Pipeline, Parallel::Tensor, Parallel::Expert].map(|of| process.rank(of))
    }

    #[test]
    fn ranks_stand_in_the_title() {
        assert_eq!(ranks("sglang::scheduler"), [None; 4]);
        assert_eq!(ranks("sglang::scheduler_DP1_PP0_TP12_EP3"), [Some(1), Some(0), Some(12), Some(3)]);
        assert_eq!(ranks("sglang::scheduler_ATTN_CP1_MOE_DP1_TP0"), [None, None, Some(0), None]);
        assert_eq!(ranks("VLLM::EngineCore_DP1"), [Some(1), None, None, None]);
        assert_eq!(ranks("sglang::tokenizer_worker:77"), [None; 4]);
        assert_eq!(ranks("x_TP_TPx_"), [None; 4]);
    }

    #[test]
    fn a_capture_made_before_launch_options_were_kept_still_reads() {
        let old = r#"{"id":1,"engine":"sglang","version":"0.5.6","models":[],"schema":null,"resource":[]}"#;
        let server: Server = serde_json::from_str(old).unwrap();
        assert_eq!(server.sglang, None);
    }
}
