//! Requests that are over and forgotten, of which more may be told.

use std::collections::VecDeque;

use crate::hash::Set;

/// Ids of the requests that were last taken back.
#[derive(Debug, Default)]
pub(super) struct TakenBack {
    order: VecDeque<String>,
    known: Set<String>,
}

impl TakenBack {
    /// Most ids remembered.
    const LIMIT: usize = 4096;

    /// One more; the oldest goes where there are too many.
    pub fn insert(&mut self, name: &str) {
        if self.order.len() >= Self::LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        if self.known.insert(name.to_owned()) {
            self.order.push_back(name.to_owned());
        }
    }

    /// It is heard of again as a new one.
    pub fn remove(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// Whether it is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.known.contains(name)
    }
}
