//! Values as they stand in the target.

use super::heads::{Extent, Head};
use super::kind::Kind;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::Ref;

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
        if let Self::Float(value) = self {
            return Some(*value);
        }
        let Self::Int(value) = self else { return None };
        #[allow(clippy::cast_precision_loss, reason = "as Python's float() does")]
        Some(*value as f64)
    }

    /// A number of things.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        let Self::Int(value) = self else { return None };
        u64::try_from(*value).ok()
    }

    /// The text of a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        let Self::Str(text) = self else { return None };
        Some(text)
    }
}

impl<M: Memory> Heap<M> {
    /// The value of an object, `depth` containers deep. All that it rests upon is noted: whether to believe it, say the
    /// verdicts on every piece ([`super::Verdicts::all_good`]).
    ///
    /// # Errors
    /// When a part of it is refused.
    pub fn value(&mut self, object: Ref, depth: u32) -> Result<Value, Refusal> {
        self.values(&[object], depth)?.pop().ok_or(Refusal::Unreadable)
    }

    /// Values of objects: those without parts all at once.
    fn values(&mut self, objects: &[Ref], depth: u32) -> Result<Vec<Value>, Refusal> {
        let heads = self.heads(objects, Extent::Fields).into_iter().collect::<Result<Vec<Head>, _>>()?;
        let plain = self.scalars_of(heads.iter().cloned().map(Ok).collect());
        let mut values = Vec::with_capacity(heads.len());
        for (head, plain) in heads.into_iter().zip(plain) {
            values.push(match self.parts(&head, depth)? {
                Some(value) => value,
                None => plain?.value,
            });
        }
        Ok(values)
    }

    /// The value of an object with parts, as far as they are wanted.
    fn parts(&mut self, head: &Head, depth: u32) -> Result<Option<Value>, Refusal> {
        let deeper = depth.checked_sub(1);
        Ok(match (head.of_type.kind, deeper) {
            (Kind::List | Kind::Tuple | Kind::Deque, Some(depth)) => {
                let items = self.items_in(head)?;
                Some(Value::Items(self.values(&items, depth)?))
            }
            (Kind::Set, Some(depth)) => {
                let items = self.items_in(head)?;
                Some(Value::Set(self.values(&items, depth)?))
            }
            (Kind::Dict, Some(depth)) => {
                let (keys, values): (Vec<Ref>, Vec<Ref>) = self.entries_in(head)?.into_iter().unzip();
                let keys = self.values(&keys, depth)?;
                Some(Value::Dict(keys.into_iter().zip(self.values(&values, depth)?).collect()))
            }
            (Kind::Array, _) => Some(Value::Items(self.array_in(head)?)),
            (Kind::Enum, _) => Some(self.member(head)?),
            (
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
                | Kind::Other,
                _,
            ) => None,
        })
    }

    fn member(&mut self, head: &Head) -> Result<Value, Refusal> {
        let object = Ref { addr: head.addr, seen: head.seen };
        let name = self.attribute(object, "_name_")?.ok_or(Refusal::Absurd)?;
        let value = self.attribute(object, "_value_")?.ok_or(Refusal::Absurd)?;
        let name = self.value(name, 0)?.text().ok_or(Refusal::Absurd)?.to_owned();
        Ok(Value::Enum { class: head.of_type.name.clone(), name, value: Box::new(self.value(value, 1)?) })
    }
}
