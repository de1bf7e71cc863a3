//! How the tasks talk: to stderr, so that stdout stays for results that a script may read.

use std::fmt::Display;

/// A step begins.
pub fn step(what: impl Display) {
    eprintln!("==> {what}");
}

/// Why, or how far, within the step.
pub fn detail(what: impl Display) {
    eprintln!("    {what}");
}

/// Something that the reader should know and that does not stop the task.
pub fn warn(what: impl Display) {
    eprintln!("warning: {what}");
}
