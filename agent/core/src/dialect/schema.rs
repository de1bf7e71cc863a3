//! Field orders of the engines' positional messages.
//!
//! vLLM's messages, and SGLang's in msgpack, are arrays whose layout changes with nearly every release. The orders come, best first, from
//! the target's own sources ([`Schema::read`]), from the table of known versions ([`Schema::for_version`]), or
//! from the shape of the message alone (the dialect's own rules, where there is no schema).

mod python;
pub mod sglang;
mod table;

use python::Classes;
use serde::{Deserialize, Serialize};

/// The file of vLLM's package that holds the message classes, for [`Schema::read`].
pub const SOURCE: &str = "v1/engine/__init__.py";

/// The file of vLLM's package that holds `SamplingParams`, whose order V0's pickles go by.
pub const SAMPLING: &str = "sampling_params.py";

/// vLLM's class of sampling parameters.
pub const SAMPLING_PARAMS: &str = "SamplingParams";

/// Field orders of one engine version's message classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Fields of `EngineCoreRequest`, in order.
    pub request: Vec<String>,
    /// Fields of `EngineCoreOutput`, in order.
    pub output: Vec<String>,
    /// Fields of `EngineCoreOutputs`, in order.
    pub outputs: Vec<String>,
    /// Names and numbers of `FinishReason`; empty: those of the newest known version.
    #[serde(default)]
    pub finish_reasons: Vec<(String, u32)>,
    /// Names and numbers of `EngineCoreEventType`; empty: those of the newest known version.
    #[serde(default)]
    pub event_types: Vec<(String, u32)>,
    /// Names and first bytes of `EngineCoreRequestType`; empty: those of the newest known version.
    #[serde(default)]
    pub request_types: Vec<(String, u32)>,
    /// Classes with their fields in order: SGLang's (see [`sglang`]), and vLLM's [`SAMPLING_PARAMS`]. vLLM's messages
    /// have fields of their own above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<(String, Vec<String>)>,
}

/// Why field orders cannot be read from a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A class that every version has is not there.
    #[error("the source has no class {0} with fields: is it vllm/{SOURCE}?")]
    NoClass(&'static str),
    /// The class of SGLang's messages that every version has is not there.
    #[error("the source has no class {0} with fields: is it sglang/{messages}?", messages = sglang::MESSAGES)]
    NoMessages(&'static str),
}

impl Schema {
    /// Reads the field orders from the text of `vllm/v1/engine/__init__.py`.
    ///
    /// # Errors
    /// [`SchemaError::NoClass`] when a message class is missing.
    pub fn read(source: &str) -> Result<Self, SchemaError> {
        let classes = Classes::read(source);
        let fields = |class: &'static str| {
            let fields: Vec<String> = classes.fields(class).into_iter().map(String::from).collect();
            if fields.is_empty() { Err(SchemaError::NoClass(class)) } else { Ok(fields) }
        };
        let members = |class| {
            classes.members(class).into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
        };
        Ok(Self {
            request: fields("EngineCoreRequest")?,
            output: fields("EngineCoreOutput")?,
            outputs: fields("EngineCoreOutputs")?,
            finish_reasons: members("FinishReason"),
            event_types: members("EngineCoreEventType"),
            request_types: members("EngineCoreRequestType"),
            classes: Vec::new(),
        })
    }

    /// Takes in the order of `SamplingParams` from the text of `vllm/sampling_params.py`.
    pub fn read_sampling(&mut self, source: &str) {
        let classes = Classes::read(source);
        let fields: Vec<String> = classes.fields(SAMPLING_PARAMS).into_iter().map(String::from).collect();
        if !fields.is_empty() {
            self.classes.push((SAMPLING_PARAMS.to_owned(), fields));
        }
    }

    /// The fields of a class among [`Schema::classes`].
    #[must_use]
    pub fn fields(&self, class: &str) -> Option<&[String]> {
        self.classes.iter().find(|(name, _)| name == class).map(|(_, fields)| fields.as_slice())
    }

    /// The orders of `SamplingParams` that V0's versions had, that of this version first.
    #[must_use]
    pub fn sampling_orders(version: Option<&str>) -> Vec<Vec<String>> {
        let minor = version.and_then(minor).unwrap_or(u32::MAX);
        let rows = table::SAMPLING.iter();
        let (mut likely, others): (Vec<_>, Vec<_>) = rows.rev().partition(|(since, _)| *since <= minor);
        likely.extend(others);
        likely.into_iter().map(|(_, row)| row.split_whitespace().map(String::from).collect()).collect()
    }

    /// The field orders of a version (`0.32.0`, `0.9.2.post2+cpu`), or of the nearest lower one that is known;
    /// `None` where the text is no version or one older than all that are known.
    #[must_use]
    pub fn for_version(version: &str) -> Option<Self> {
        let minor = minor(version)?;
        let fields = |rows: &[table::Row]| {
            let row = rows.iter().rev().find(|(since, _)| *since <= minor)?;
            Some(row.1.split_whitespace().map(String::from).collect())
        };
        Some(Self {
            request: fields(table::REQUEST)?,
            output: fields(table::OUTPUT)?,
            outputs: fields(table::OUTPUTS)?,
            ..Self::default()
        })
    }
}

/// Whether a version of vLLM has the V0 engine: those before 0.11, and whatever is no version.
#[must_use]
pub fn has_v0(version: &str) -> bool {
    minor(version).is_none_or(|minor| minor < 11)
}

/// The minor version, all later majors being newer than any known minor.
fn minor(version: &str) -> Option<u32> {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(if major == 0 { minor } else { u32::MAX })
}

#[cfg(test)]
mod tests;
