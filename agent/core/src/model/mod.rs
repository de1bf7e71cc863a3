//! Spans, events, log lines and metrics as plain data, and the one registry of their names.

pub mod log;
pub mod metric;
pub mod registry;
pub mod span;
