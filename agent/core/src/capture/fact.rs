//! Facts: what user space knows of servers, processes and connections. They enter the pipeline in the same
//! stream as the kernel's records, so that a capture replays without the machine it was made on.

use serde::{Deserialize, Serialize};

use crate::dialect::schema::Schema;
use crate::dialect::signal::sglang::{FrontendSnapshot, Snapshot};
use crate::ids::{ConnId, Fd, Pid, ServerId};
use crate::time::{Clock, MonoTime};

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
    /// A shared-memory state that a scheduler published, as its bytes.
    Shared(Shared),
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
