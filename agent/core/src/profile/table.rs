//! A profile as a table: where each process spent its CPU time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Place, Process, Profile};

/// What one process did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The process.
    pub process: Process,
    /// Its samples.
    pub samples: u64,
    /// Places, those with most samples of their own first, then those with most in all.
    pub rows: Vec<Row>,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is.
    pub place: String,
    /// Samples in it itself, not in a function that it called.
    pub own: u64,
    /// Samples in it and in what it called.
    pub total: u64,
}

impl Table {
    /// The tables of a profile, the busiest process first.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        let mut counts: BTreeMap<&Process, Counts<'_>> = BTreeMap::new();
        for (process, stack, samples) in profile.stacks() {
            counts.entry(process).or_default().add(stack, samples);
        }
        let mut tables: Vec<Self> =
            counts.into_iter().map(|(process, counts)| counts.table(process)).collect();
        tables.sort_by_key(|table| std::cmp::Reverse(table.samples));
        tables
    }
}

#[derive(Default)]
struct Counts<'a> {
    samples: u64,
    own: BTreeMap<&'a Place, u64>,
    total: BTreeMap<&'a Place, u64>,
}

impl<'a> Counts<'a> {
    fn add(&mut self, stack: &'a [Place], samples: u64) {
        self.samples += samples;
        if let Some(innermost) = stack.last() {
            *self.own.entry(innermost).or_default() += samples;
        }
        // One that calls itself is there once.
        for place in stack.iter().collect::<BTreeSet<_>>() {
            *self.total.entry(place).or_default() += samples;
        }
    }

    fn table(self, process: &Process) -> Table {
        let Self { samples, own, total } = self;
        let mut rows: Vec<Row> = total
            .into_iter()
            .map(|(place, total)| Row {
                place: place.to_string(),
                own: own.get(place).copied().unwrap_or(0),
                total,
            })
            .collect();
        rows.sort_by(|a, b| (b.own, b.total, &a.place).cmp(&(a.own, a.total, &b.place)));
        Table { process: process.clone(), samples, rows }
    }
}
