//! What goes over the control socket: one JSON object a line, each way.

use serde::{Deserialize, Serialize};

use super::layers::Source;

/// What an operator asks of a running agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// A value over every other layer.
    Set {
        /// The setting.
        key: String,
        /// The value.
        value: String,
        /// For how many seconds; without it, until the agent ends.
        for_seconds: Option<u64>,
        /// Any process of the only server it is for.
        target: Option<u32>,
    },
    /// Takes such a value back.
    Unset {
        /// The setting.
        key: String,
        /// Any process of the server it was for.
        target: Option<u32>,
    },
    /// What holds now.
    Show {
        /// Any process of the server asked about.
        target: Option<u32>,
    },
    /// Reads the file again.
    Reload,
}

/// What the agent answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it was done.
    pub done: bool,
    /// What was done, or why not.
    pub text: String,
    /// What holds now, where that was asked.
    pub settings: Vec<Shown>,
}

/// One setting as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Everything that is said of it, the winner last.
    pub said: Vec<Said>,
}

/// What one layer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The layer.
    pub source: Source,
    /// The value.
    pub value: String,
}

impl Answer {
    /// It was done.
    pub fn done(text: impl Into<String>) -> Self {
        Self { done: true, text: text.into(), settings: Vec::new() }
    }

    /// It was not.
    pub fn refused(text: impl ToString) -> Self {
        Self { done: false, text: text.to_string(), settings: Vec::new() }
    }
}

impl Shown {
    /// What wins.
    #[must_use]
    pub fn winner(&self) -> Option<&Said> {
        self.said.last()
    }
}
