//! Values as they stand in the target.

use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::Ref;
use super::types::Kind;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An int of up to 120 bits.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text.
    Str(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list, tuple, deque or array.
    Items(Vec<Self>),
    /// A set, in no order.
    Set(Vec<Self>),
    /// A dict, in its order.
    Dict(Vec<(Self, Self)>),
    /// A member of an enum.
    Enum {
        /// The enum.
        class: String,
        /// The member.
        name: String,
        /// Its value.
        value: Box<Self>,
    },
    /// An object that was not looked into.
    Object {
        /// Its type.
        class: String,
        /// Where it lies.
        addr: Addr,
    },
}

impl Value {
    /// The number of a float or an int.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "as Python's float() does")]
        match self {
            Self::Float(value) => Some(*value),
            Self::Int(value) => Some(*value as f64),
            Self::None
            | Self::Bool(_)
            | Self::Str(_)
            | Self::Bytes(_)
            | Self::Items(_)
            | Self::Set(_)
            | Self::Dict(_)
            | Self::Enum { .. }
            | Self::Object { .. } => None,
        }
    }

    /// A number of things.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            Self::None
            | Self::Bool(_)
            | Self::Float(_)
            | Self::Str(_)
            | Self::Bytes(_)
            | Self::Items(_)
            | Self::Set(_)
            | Self::Dict(_)
            | Self::Enum { .. }
            | Self::Object { .. } => None,
        }
    }

    /// The text of a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            Self::None
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Bytes(_)
            | Self::Items(_)
            | Self::Set(_)
            | Self::Dict(_)
            | Self::Enum { .. }
            | Self::Object { .. } => None,
        }
    }
}

impl<M: Memory> Heap<M> {
    /// The value of an object, `depth` containers deep. All that it rests upon is noted: whether to believe it, say the
    /// verdicts on every piece ([`super::Verdicts::all_good`]).
    ///
    /// # Errors
    /// When a part of it is refused.
    pub fn value(&mut self, object: Ref, depth: u32) -> Result<Value, Refusal> {
        let of_type = self.type_of(object.addr)?;
        match of_type.kind {
            Kind::List | Kind::Tuple | Kind::Deque if depth > 0 => {
                let items = self.items_of(object)?;
                Ok(Value::Items(self.values(&items, depth - 1)?))
            }
            Kind::Array => Ok(Value::Items(self.array(object)?)),
            Kind::Set if depth > 0 => {
                let items = self.items_of(object)?;
                Ok(Value::Set(self.values(&items, depth - 1)?))
            }
            Kind::Dict if depth > 0 => {
                let entries = self.entries(object)?;
                let keys: Vec<Ref> = entries.iter().map(|(key, _)| *key).collect();
                let values: Vec<Ref> = entries.iter().map(|(_, value)| *value).collect();
                let keys = self.values(&keys, depth - 1)?;
                Ok(Value::Dict(keys.into_iter().zip(self.values(&values, depth - 1)?).collect()))
            }
            Kind::Enum => self.member(object, of_type.name.clone()),
            Kind::None
            | Kind::Bool
            | Kind::Int
            | Kind::Float
            | Kind::Str
            | Kind::Bytes
            | Kind::List
            | Kind::Tuple
            | Kind::Dict
            | Kind::Set
            | Kind::Deque
            | Kind::Cell
            | Kind::Code
            | Kind::Type
            | Kind::Other => self.scalar(object),
        }
    }

    fn values(&mut self, objects: &[Ref], depth: u32) -> Result<Vec<Value>, Refusal> {
        objects.iter().map(|object| self.value(*object, depth)).collect()
    }

    fn scalar(&mut self, object: Ref) -> Result<Value, Refusal> {
        self.scalars(&[object]).pop().unwrap_or(Err(Refusal::Unreadable)).map(|cell| cell.value)
    }

    fn member(&mut self, object: Ref, class: String) -> Result<Value, Refusal> {
        let name = self.attribute(object, "_name_")?.ok_or(Refusal::Absurd)?;
        let value = self.attribute(object, "_value_")?.ok_or(Refusal::Absurd)?;
        let name = self.scalar(name)?.text().ok_or(Refusal::Absurd)?.to_owned();
        Ok(Value::Enum { class, name, value: Box::new(self.value(value, 1)?) })
    }
}
