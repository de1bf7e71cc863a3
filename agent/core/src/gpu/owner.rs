//! Which process is meant where the driver names one by the number it has in another PID namespace.

use crate::ids::Pid;

/// A process of an engine: its id on this machine, and in the namespace it lives in, where that is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// On this machine.
    pub pid: Pid,
    /// In its own namespace.
    pub inner: Option<Pid>,
}

/// The process that a driver means by a number: that of this machine, or else the only one that has the number in its own
/// namespace. A number that no engine's process has is some other process's, and stays.
#[must_use]
pub fn meant(told: Pid, known: &[Known]) -> Pid {
    if known.iter().any(|process| process.pid == told) {
        return told;
    }
    let mut inner = known.iter().filter(|process| process.inner == Some(told));
    match (inner.next(), inner.next()) {
        (Some(only), None) => only.pid,
        (Some(_), Some(_)) | (None, _) => told,
    }
}
