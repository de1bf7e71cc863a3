//! Running totals that every engine's server keeps.

use std::collections::BTreeMap;

use crate::time::Seconds;

/// A sum of seconds, and of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The sum.
    pub seconds: f64,
    /// How many were added.
    pub count: u64,
}

impl Sum {
    /// Adds one, if there is one.
    pub fn add(&mut self, value: Option<Seconds>) {
        if let Some(Seconds(seconds)) = value {
            self.seconds += seconds;
            self.count += 1;
        }
    }
}

/// Tokens used at the API, by model and kind of span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usages(pub BTreeMap<(String, &'static str), (u64, u64)>);

/// Most models told apart: a client can name any model it likes.
const MAX_MODELS: usize = 256;

impl Usages {
    /// Adds an exchange's tokens.
    pub fn add(&mut self, model: &str, kind: &'static str, input: u64, output: u64) {
        let known = self.0.keys().any(|(m, k)| m == model && *k == kind);
        let model = if known || self.0.len() < MAX_MODELS { model } else { "other" };
        let (inputs, outputs) = self.0.entry((model.to_owned(), kind)).or_default();
        *inputs = inputs.saturating_add(input);
        *outputs = outputs.saturating_add(output);
    }
}
