//! Log lines as plain data: OTLP's log records. (A record here is what the kernel saw; so this is a [`Log`].)

use crate::ids::{ServerId, SpanId, TraceId};
use crate::model::span::Attribute;
use crate::time::WallTime;

/// One line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The server it is about.
    pub server: ServerId,
    /// Name of the event that it is, of the registry; `None` for a line that is text.
    pub event: Option<&'static str>,
    /// How grave it is.
    pub severity: Severity,
    /// When.
    pub at: WallTime,
    /// The span it belongs to, where that is known.
    pub context: Option<LogContext>,
    /// Its text, if it has one.
    pub body: Option<String>,
    /// Attributes, each key once.
    pub attributes: Vec<Attribute>,
}

/// The span that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogContext {
    /// Its trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}

/// How grave a line is, as Python's `logging` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Severity {
    /// For who looks for a fault.
    Debug,
    /// The ordinary course.
    #[default]
    Info,
    /// Something to look at.
    Warning,
    /// Something failed.
    Error,
    /// Nothing goes on.
    Critical,
}

impl Severity {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Debug, Self::Info, Self::Warning, Self::Error, Self::Critical];

    /// Its name, as Python has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Critical => "CRITICAL",
        }
    }

    /// The one of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}
