//! What a row of the table says.

use crate::settings::switch::Switch;

/// The engine a row belongs to, as the contract tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// vLLM, V0 engine.
    VllmV0,
    /// vLLM, V1 engine.
    VllmV1,
    /// SGLang.
    Sglang,
}

impl Dialect {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::VllmV0 => "vllm-v0",
            Self::VllmV1 => "vllm-v1",
            Self::Sglang => "sglang",
        }
    }
}

/// Type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Text.
    Str,
    /// A whole number.
    Int,
    /// A double.
    Float,
    /// A truth value.
    Bool,
    /// A list of texts.
    Strs,
    /// A list of whole numbers.
    Ints,
    /// JSON, as text.
    Json,
}

impl Type {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Str => "str",
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Strs => "str[]",
            Self::Ints => "int[]",
            Self::Json => "json",
        }
    }
}

/// Where in a trace a span stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The HTTP request.
    Entry,
    /// The request inside vLLM's engine.
    Engine,
    /// A stage of it.
    Stage,
    /// The request inside SGLang.
    Request,
    /// A thread that worked on it.
    Thread,
}

impl Layer {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Engine => "engine",
            Self::Stage => "stage",
            Self::Request => "request",
            Self::Thread => "thread",
        }
    }
}

/// A span.
#[derive(Debug)]
pub struct SpanDef {
    /// Its name; braces mark what varies.
    pub name: &'static str,
    /// Engines that have it.
    pub engines: &'static [Dialect],
    /// The lowest collection level at which it appears.
    pub level: u8,
    /// Where in a trace it stands.
    pub layer: Layer,
    /// Name or layer of its parent.
    pub parent: Option<&'static str>,
    /// When it is made, or what it covers.
    pub when: &'static str,
}

/// An attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttributeDef {
    /// Its key.
    pub key: &'static str,
    /// Its type.
    pub ty: Type,
    /// Its unit (`ns`, `s`).
    pub unit: Option<&'static str>,
    /// The condition under which it is reported; `None`: always.
    pub when: Option<&'static str>,
    /// What it says.
    pub doc: &'static str,
}

/// The attributes of a kind of span.
#[derive(Debug)]
pub struct AttributeGroup {
    /// The kind of span, as the contract names it.
    pub on: &'static str,
    /// What holds for the whole group.
    pub note: Option<&'static str>,
    /// The attributes.
    pub attributes: &'static [AttributeDef],
}

/// Events of one kind.
#[derive(Debug)]
pub struct EventDef {
    /// Their names.
    pub names: &'static [&'static str],
    /// Engines that have them.
    pub engines: &'static [Dialect],
    /// The span they are on.
    pub on: &'static str,
    /// The lowest collection level at which they appear.
    pub level: u8,
    /// What they say.
    pub doc: &'static str,
    /// Their attributes.
    pub attributes: &'static [AttributeDef],
    /// What bounds their number.
    pub limit: Option<&'static str>,
}

/// A stage span of SGLang.
#[derive(Clone, Copy, Debug)]
pub struct StageDef {
    /// Its name.
    pub name: &'static str,
    /// The lowest collection level at which it appears.
    pub level: u8,
    /// The process it is measured in.
    pub process: &'static str,
    /// The stage it lies in; `None`: straight under the thread.
    pub parent: Option<&'static str>,
    /// The condition under which it is made; `None`: always.
    pub when: Option<&'static str>,
    /// Keys of its attributes.
    pub attributes: &'static [&'static str],
    /// What it covers.
    pub doc: &'static str,
}

/// Stage spans that occur together.
#[derive(Debug)]
pub struct StageGroup {
    /// Where they occur.
    pub group: &'static str,
    /// The stages.
    pub stages: &'static [StageDef],
}

/// Counter, gauge or what goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// A cumulative monotonic sum.
    Counter,
    /// A value at the moment of reading.
    Gauge,
    /// A value at the moment of reading that may be added up over components (an OpenTelemetry `UpDownCounter`).
    UpDown,
}

impl MetricKind {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::UpDown => "updowncounter",
        }
    }
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
    /// Engines that have it; none: the agent itself.
    pub engines: &'static [Dialect],
    /// The condition under which it is reported; `None`: always.
    pub when: Option<&'static str>,
    /// One sentence.
    pub doc: &'static str,
}

/// A dimension of metrics. Its values are always strings.
#[derive(Clone, Copy, Debug)]
pub struct DimensionDef {
    /// Its key.
    pub key: &'static str,
    /// What it says.
    pub doc: &'static str,
}

/// The dimensions of a group of metrics.
#[derive(Debug)]
pub struct DimensionGroup {
    /// The metrics.
    pub on: &'static str,
    /// Their dimensions.
    pub dimensions: &'static [DimensionDef],
}

/// Names that mean the same.
#[derive(Debug)]
pub struct Alias {
    /// What they mean.
    pub meaning: &'static str,
    /// Where, and the name there.
    pub names: &'static [(&'static str, &'static str)],
}

/// A log event.
#[derive(Debug)]
pub struct LogDef {
    /// Its name.
    pub name: &'static str,
    /// Engines that have it.
    pub engines: &'static [Dialect],
    /// When it is made.
    pub when: &'static str,
}

/// What may be said of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// `true` or `false`.
    Truth,
    /// A whole number.
    Count,
    /// From 0 to 1, to the millionth.
    Share,
    /// From 0 up.
    Level {
        /// The greatest.
        most: u8,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A collection setting.
#[derive(Debug)]
pub struct SwitchDef {
    /// Which it is.
    pub switch: Switch,
    /// What may be said.
    pub kind: SwitchKind,
    /// Its key in configuration.
    pub key: Option<&'static str>,
    /// Its environment variable.
    pub env: Option<&'static str>,
    /// Its default.
    pub default: &'static str,
    /// What it does.
    pub doc: Option<&'static str>,
    /// For a switch of the engine itself, which the agent cannot set: what the agent does instead.
    pub outside: Option<&'static str>,
}

/// A row of an attribute table.
pub(super) const fn attribute(key: &'static str, ty: Type, doc: &'static str) -> AttributeDef {
    AttributeDef { key, ty, unit: None, when: None, doc }
}

impl AttributeDef {
    /// With a unit.
    pub(super) const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// With a condition.
    pub(super) const fn when(self, when: &'static str) -> Self {
        Self { when: Some(when), ..self }
    }
}

/// A row of a dimension table.
pub(super) const fn dimension(key: &'static str, doc: &'static str) -> DimensionDef {
    DimensionDef { key, doc }
}

/// A row of a stage table.
pub(super) const fn stage(
    name: &'static str,
    level: u8,
    process: &'static str,
    doc: &'static str,
) -> StageDef {
    StageDef { name, level, process, parent: None, when: None, attributes: &[], doc }
}

impl StageDef {
    /// Inside another stage.
    pub(super) const fn parent(self, parent: &'static str) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// With a condition.
    pub(super) const fn when(self, when: &'static str) -> Self {
        Self { when: Some(when), ..self }
    }

    /// With attributes.
    pub(super) const fn attributes(self, attributes: &'static [&'static str]) -> Self {
        Self { attributes, ..self }
    }
}
