//! Which log lines are made and handed on: the agent's substitutes for the engines' own log settings.

use super::Settings;
use crate::capture::fact::Engine;
use crate::model::log::Severity;

/// What of one engine's servers is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Whether the agent logs requests.
    pub requests: bool,
    /// How much such a line says, 0 to 3: as SGLang's `--log-requests-level`.
    pub detail: u8,
    /// Whether the agent logs iterations.
    pub iterations: bool,
    /// Whether the engine's own lines are handed on.
    pub lines: bool,
    /// The least grave of them that are.
    pub least: Severity,
}

impl LogSettings {
    /// Nothing; lines as detailed as `detail` once they are wanted.
    #[must_use]
    pub fn off(detail: u8) -> Self {
        Self { requests: false, detail, iterations: false, lines: false, least: Severity::Info }
    }
}

impl Settings {
    /// What of an engine's servers is logged.
    #[must_use]
    pub fn log_of(&self, engine: Engine) -> &LogSettings {
        match engine {
            Engine::Vllm => &self.vllm_log,
            Engine::Sglang => &self.sglang_log,
        }
    }
}
