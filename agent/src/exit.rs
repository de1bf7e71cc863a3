//! Exit codes, and the errors that carry one.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | failed while working |
//! | 2 | wrong usage or configuration |
//! | 3 | a capability, kernel feature or target is missing; the message says what to do about it |

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Did what was asked.
    Done,
    /// Failed while working.
    Failed,
    /// Wrong usage or configuration.
    Usage,
    /// A capability, kernel feature or target is missing.
    Missing,
}

impl Exit {
    /// The process's exit status.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Missing => 3,
        }
    }

    /// The exit that an error asks for: the first [`Refusal`] in its chain decides, else [`Exit::Failed`].
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(|cause| cause.downcast_ref::<Refusal>()).map_or(Self::Failed, Refusal::exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why the program does not start to work. The text says what is wrong and, after it, what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Wrong usage or configuration: exit code 2.
    #[error("{what}\n  {next}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to do.
        next: String,
    },
    /// A capability, kernel feature or target is missing: exit code 3.
    #[error("{what}\n  {next}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to do.
        next: String,
    },
}

impl Refusal {
    /// Wrong usage or configuration.
    pub fn usage(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), next: next.into() }
    }

    /// A capability, kernel feature or target is missing.
    pub fn missing(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), next: next.into() }
    }

    /// The exit it asks for.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } => Exit::Usage,
            Self::Missing { .. } => Exit::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_refusal_decides_the_exit_code_however_deep_it_lies() {
        let missing: anyhow::Result<()> = Err(Refusal::missing("no BTF", "use another kernel").into());
        let error = missing.context("loading").context("attach").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Missing);
        assert_eq!(Exit::of(&Refusal::usage("bad", "fix it").into()), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("disk full")), Exit::Failed);
    }

    #[test]
    fn a_refusal_says_what_to_do_next() {
        assert_eq!(Refusal::missing("no server", "start one").to_string(), "no server\n  start one");
    }
}
