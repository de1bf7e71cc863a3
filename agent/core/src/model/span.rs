//! Spans as plain data. Every span is of kind INTERNAL (the contract's `span_kind`).

use std::borrow::Cow;

use crate::ids::{ServerId, SpanId, TraceId};
use crate::model::log::Log;
use crate::time::WallTime;

/// The spans of one request: the root first, each parent before its children.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The server that handled the request.
    pub server: ServerId,
    /// Whether the caller records its own spans of this trace; true where there is no caller.
    pub sampled: bool,
    /// The spans.
    pub spans: Vec<Span>,
    /// Log events that go where the spans go.
    pub logs: Vec<Log>,
}

/// One span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Trace it belongs to.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// Its parent: a span of this trace, or the caller's from a `traceparent`.
    pub parent: Option<SpanId>,
    /// `tracestate` of the caller, passed on.
    pub trace_state: Option<String>,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Start.
    pub start: WallTime,
    /// End, never before the start.
    pub end: WallTime,
    /// Attributes, each key once.
    pub attributes: Vec<Attribute>,
    /// Events in order of time.
    pub events: Vec<Event>,
    /// Events left out over the limit.
    pub dropped_events: u32,
    /// Links to other spans.
    pub links: Vec<Link>,
    /// How it ended.
    pub status: Status,
}

/// A key and its value. Keys come from [`super::registry`].
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// The key.
    pub key: Cow<'static, str>,
    /// The value.
    pub value: Value,
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text; JSON too.
    Str(String),
    /// A whole number.
    Int(i64),
    /// A double.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A list of texts.
    Strs(Vec<String>),
    /// A list of whole numbers.
    Ints(Vec<i64>),
}

/// Something that happened at one moment of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name.
    pub name: Cow<'static, str>,
    /// When.
    pub at: WallTime,
    /// Attributes.
    pub attributes: Vec<Attribute>,
}

/// A link to a span, not parenthood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Trace of the other span.
    pub trace: TraceId,
    /// The other span.
    pub span: SpanId,
}

/// How a span ended.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Status {
    /// Nothing said.
    #[default]
    Unset,
    /// An error, with its description.
    Error(String),
}

impl Span {
    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&Value> {
        self.attributes.iter().find(|a| a.key == key).map(|a| &a.value)
    }

    /// Sets an attribute, replacing one of the same key.
    pub fn set(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.attributes.iter_mut().find(|a| a.key == key) {
            Some(attribute) => attribute.value = value,
            None => self.attributes.push(Attribute { key, value }),
        }
    }

    /// Sets an attribute where there is a value; leaves it out where there is none.
    pub fn set_some(&mut self, key: impl Into<Cow<'static, str>>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Str(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Vec<String>> for Value {
    fn from(value: Vec<String>) -> Self {
        Self::Strs(value)
    }
}

impl From<Vec<i64>> for Value {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}
