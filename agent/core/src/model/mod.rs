//! Spans, events and metrics as plain data, and the one registry of their names.

pub mod metric;
pub mod registry;
pub mod span;
