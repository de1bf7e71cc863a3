//! The one table of names: every span, attribute, event and metric, with type, unit, level and condition.

/// Counter or gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// A cumulative monotonic sum.
    Counter,
    /// A value at the moment of reading.
    Gauge,
}

/// A metric's definition.
#[derive(Debug, PartialEq, Eq)]
pub struct MetricDef {
    /// Its name.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Its unit as the contract writes it (`Count`, `Seconds`, `Ratio`, `Times`).
    pub unit: &'static str,
    /// One sentence.
    pub doc: &'static str,
}
