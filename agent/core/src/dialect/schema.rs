//! Field orders of the engines' positional messages.

use serde::{Deserialize, Serialize};

/// Field orders of one vLLM version's message classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Fields of `EngineCoreRequest`, in order.
    pub request: Vec<String>,
    /// Fields of `EngineCoreOutput`, in order.
    pub output: Vec<String>,
    /// Fields of `EngineCoreOutputs`, in order.
    pub outputs: Vec<String>,
}
