//! The one table of names: every span, attribute, event and metric, with type, unit, level and condition.
//!
//! It holds the documented telemetry row by row (`tests/spec/telemetry.toml`, to which a test holds it) and, apart
//! from that, what the product adds of its own ([`own`]). Code takes names from here ([`attr`], [`span`],
//! [`event`], [`dim`], [`metric`]); `docs/TELEMETRY.md` is [`markdown`].

pub mod check;
pub mod collection;
mod def;
pub mod evidence;
pub mod gpu;
mod markdown;
pub mod metric;
mod names;
pub mod own;
pub mod sglang;
pub mod vllm;

pub use def::{
    Alias, AttributeDef, AttributeGroup, Dialect, DimensionDef, DimensionGroup, EventDef, Layer, LogDef,
    MetricDef, MetricKind, SpanDef, StageDef, StageGroup, SwitchDef, SwitchKind, Type,
};
pub use markdown::markdown;
pub use names::{attr, dim, event, log, span};

/// Every span of the contract; SGLang's stages are in [`sglang::STAGES`].
pub fn spans() -> impl Iterator<Item = &'static SpanDef> {
    vllm::SPANS.iter().chain(sglang::SPANS)
}

/// Every attribute group of the contract.
pub fn attributes() -> impl Iterator<Item = &'static AttributeGroup> {
    vllm::ATTRIBUTES.iter().chain(sglang::ATTRIBUTES).copied()
}

/// Every event of the contract.
pub fn events() -> impl Iterator<Item = &'static EventDef> {
    vllm::EVENTS.iter().chain(sglang::EVENTS)
}

/// Every group of dimensions of the contract.
pub fn dimensions() -> impl Iterator<Item = &'static DimensionGroup> {
    vllm::DIMENSIONS.iter().chain(sglang::DIMENSIONS)
}

/// Every metric beyond the contract: the agent's own, and those of GPUs.
pub fn beyond() -> impl Iterator<Item = &'static MetricDef> {
    own::ALL.iter().chain(gpu::ALL).copied()
}

#[cfg(test)]
mod tests;
