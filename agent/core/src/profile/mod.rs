//! A profile of CPU time: samples of stacks, counted.

mod table;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::heap::stacks::Function;
use crate::ids::Pid;

pub use table::{Row, Table};

/// Most different stacks kept of one profile; those beyond are counted without their functions.
const STACKS: usize = 1 << 16;

/// Where a sample was.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// In a function of Python, or in what it called.
    Function(Arc<Function>),
    /// In a thread that is none of Python's, by its name.
    Native(Arc<str>),
    /// In Python's own work, with no function: starting, ending.
    Interpreter,
    /// In a stack that could not be read to its end.
    Unread,
    /// In a stack that is one too many.
    Beyond,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(function) => {
                let Function { name, file, line } = &**function;
                write!(f, "{name} ({}:{line})", short(file))
            }
            Self::Native(name) => write!(f, "[native thread {name}]"),
            Self::Interpreter => f.write_str("[interpreter]"),
            Self::Unread => f.write_str("[not read]"),
            Self::Beyond => f.write_str("[too many different stacks]"),
        }
    }
}

/// A file's path without what all packages have in common before their name.
fn short(file: &str) -> &str {
    ["/site-packages/", "/dist-packages/"]
        .iter()
        .find_map(|folder| file.split_once(folder))
        .map_or(file, |(_, within)| within)
}

/// A process of the profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// What it is, for people: its title.
    pub title: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, title } = self;
        write!(f, "{title} (pid {})", pid.0)
    }
}

/// Stacks by process, the outermost place first, and how many samples saw each.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Samples a second and CPU.
    pub hertz: u32,
    stacks: BTreeMap<(Arc<Process>, Vec<Place>), u64>,
    /// Samples that found no room on their way here.
    pub lost: u64,
}

impl Profile {
    /// An empty one.
    #[must_use]
    pub fn new(hertz: u32) -> Self {
        Self { hertz, stacks: BTreeMap::new(), lost: 0 }
    }

    /// Counts a sample.
    pub fn add(&mut self, process: &Arc<Process>, stack: Vec<Place>) {
        let key = (Arc::clone(process), stack);
        let full = self.stacks.len() >= STACKS && !self.stacks.contains_key(&key);
        let key = if full { (key.0, vec![Place::Beyond]) } else { key };
        *self.stacks.entry(key).or_default() += 1;
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// The stacks: process, places from the outermost to the innermost, samples.
    pub fn stacks(&self) -> impl Iterator<Item = (&Process, &[Place], u64)> {
        self.stacks.iter().map(|((process, stack), samples)| (&**process, stack.as_slice(), *samples))
    }

    /// So many samples as seconds of CPU time.
    #[must_use]
    pub fn seconds(&self, samples: u64) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            reason = "a profile has far fewer samples than a float tells apart"
        )]
        let samples = samples as f64;
        samples / f64::from(self.hertz.max(1))
    }

    /// The stacks as lines `process;outer;inner N`, which flame graph tools take.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut lines = String::new();
        for (process, stack, samples) in self.stacks() {
            push_folded(&mut lines, process);
            for place in stack {
                lines.push(';');
                push_folded(&mut lines, place);
            }
            // Writing to a String does not fail.
            let _ = writeln!(lines, " {samples}");
        }
        lines
    }
}

/// What the target names may hold what ends a frame or a line: it is made harmless.
fn push_folded(lines: &mut String, name: impl fmt::Display) {
    let harmless = |letter: char| match letter {
        ';' => ':',
        letter if letter.is_control() => '?',
        letter => letter,
    };
    lines.extend(name.to_string().chars().map(harmless));
}

#[cfg(test)]
mod tests;
