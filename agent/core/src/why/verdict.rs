//! A verdict: where a request's time went, why, and how sure that is.

use serde::Serialize;

use super::account::{Ending, Part, Size};
use super::cause::Cause;
use super::pause::{Pause, PauseKind, Side};
use crate::ids::ServerId;
use crate::time::{MonoTime, Nanos, WallTime};

/// How sure something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It fits what was seen, and so may other things.
    Possible,
    /// What was seen speaks for it.
    Likely,
    /// The engine or the sockets said so.
    Certain,
}

impl Certainty {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

/// Something that was seen, beside a part or a cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Most KV cache use meanwhile, 0 to 1.
    KvUsage(f64),
    /// Requests that were in the queue before it, and left it before it.
    Ahead(u32),
    /// Most requests running meanwhile.
    Running(u64),
    /// Most requests waiting meanwhile.
    Waiting(u64),
    /// Times it was preempted.
    Preemptions(u32),
    /// Chunks its prefill was cut into.
    Chunks(u32),
    /// Prompt tokens prefilled.
    Prefilled(u64),
    /// Most other requests decoding in the same steps.
    Decodes(u32),
    /// Most other requests that were decoded meanwhile, in steps of their own.
    Alongside(u32),
    /// Steps.
    Steps(u32),
    /// The ordinary length of such a step.
    Pace(Nanos),
    /// Tokens made.
    Tokens(u64),
    /// The longest step.
    Longest(Nanos),
    /// Another request that took part: its name, prompt tokens it had prefilled, and its candidates.
    Beside(Beside),
    /// Other responses that were sent meanwhile, none of which took long.
    OthersSent(u32),
    /// Whose processes paused.
    Whose(Side),
    /// How often they did, or how many spans of time in which they did were seen.
    Pauses(u32),
    /// How long after its begin it was first so.
    Since(Nanos),
    /// What it was waiting for when the client went away.
    LeftDuring(Part),
}

/// Another request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// Its name.
    pub id: String,
    /// Prompt tokens that were prefilled.
    pub prefilled: u64,
    /// Candidates of it in the steps.
    pub candidates: u32,
    /// Whether it asked for logprobs.
    pub logprobs: bool,
}

/// A part of the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slice {
    /// Which part.
    pub part: Part,
    /// When it began.
    pub from: MonoTime,
    /// When it ended. Parts of one span of time, as decoding and what lengthened it, have its begin and end.
    pub to: MonoTime,
    /// How long it took.
    pub took: Nanos,
    /// Whether it lies before the first token.
    pub before_first: bool,
    /// What was seen.
    pub notes: Vec<Note>,
}

/// A cause and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blame {
    /// The cause.
    pub cause: Cause,
    /// Time it cost.
    pub took: Nanos,
    /// How sure it is.
    pub certainty: Certainty,
    /// What was seen.
    pub notes: Vec<Note>,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The server.
    pub server: ServerId,
    /// The request's names: the response's id, then the engine's.
    pub ids: Vec<String>,
    /// When it began.
    pub begun: MonoTime,
    /// The same moment by the wall clock.
    pub at: WallTime,
    /// How it ended.
    pub ending: Ending,
    /// From its first byte to the first token's being sent; where the response is no stream, to its reaching the API
    /// server.
    pub ttft: Option<Nanos>,
    /// From its first byte to its end.
    pub e2e: Nanos,
    /// What it had the engine do.
    pub size: Size,
    /// Where the time went, in order.
    pub parts: Vec<Slice>,
    /// Why, the costliest first. Empty: nothing held it up.
    pub causes: Vec<Blame>,
    /// Pauses of the server's threads that fell into its time, the longest of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// All of them, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<(PauseKind, Nanos)>,
    /// Time that nothing explains.
    pub unexplained: Nanos,
    /// Whether the agent came after its begin, or moments of it are estimates.
    pub partial: bool,
    /// Whether steps of it are not kept any more: what lengthened them is not known.
    pub forgotten: bool,
}

impl Verdict {
    /// The name it goes by.
    #[must_use]
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// Whether a name is one of its, whole or by its first characters (four at least).
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.ids.iter().any(|id| id == name || (name.len() >= 4 && id.starts_with(name)))
    }
}
