//! Metrics as plain data: a snapshot of cumulative sums and gauges.

use crate::ids::ServerId;
use crate::model::registry::MetricDef;
use crate::time::WallTime;

/// One time series at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The server it is about; `None`: the agent itself.
    pub server: Option<ServerId>,
    /// The metric, from the registry.
    pub metric: &'static MetricDef,
    /// Dimensions, each key once, values always strings.
    pub dimensions: Vec<(&'static str, String)>,
    /// The value.
    pub value: Number,
    /// When the sum began (for a gauge: the same as `at`).
    pub start: WallTime,
    /// When the value was read.
    pub at: WallTime,
}

/// A metric's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Int(u64),
    /// Seconds, ratios.
    Float(f64),
}

impl Number {
    /// As a double.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "for display; counts below 2^53 are exact")]
            Self::Int(n) => n as f64,
            Self::Float(x) => x,
        }
    }
}
