//! Values without parts: numbers, texts, bytes.

use std::sync::Arc;

use super::layout::{Field, Layout};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId, word};
use super::types::Kind;
use super::value::Value;

/// Most code points of a text.
const TEXT_LIMIT: u64 = 1 << 19;
/// Most bytes of a `bytes`.
const BYTES_LIMIT: u64 = 1 << 19;
/// Most digits of 30 bits: a number of 120 bits.
const DIGITS_LIMIT: u64 = 4;
/// The bits of a string's state that say that it is interned: it stays where it is.
const INTERNED: u32 = 3;

/// A value, and the piece it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The value.
    pub value: Value,
    /// The piece that it stood in: whether to believe it.
    pub seen: SeenId,
}

/// Where a text's characters lie.
#[derive(Clone, Copy, Debug)]
struct Text {
    at: Place,
    /// Code points.
    len: u64,
    /// Bytes a code point.
    width: u64,
    interned: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the object.
    Inside(Addr),
    /// Where this field points.
    Behind(Addr),
}

impl Text {
    /// From the 24 bytes at `length` of an object.
    fn read(layout: &Layout, object: Addr, head: &[u8]) -> Result<Self, Refusal> {
        let len = word(head, 0);
        let state = usize::try_from(layout.at(Field::StrState) - layout.at(Field::StrLength));
        let state = state.ok().and_then(|at| head.get(at..)?.first_chunk::<4>()).ok_or(Refusal::Absurd)?;
        let state = u32::from_le_bytes(*state);
        let (width, compact, ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1, state >> 6 & 1);
        if len > TEXT_LIMIT || !matches!(width, 1 | 2 | 4) {
            return Err(Refusal::Absurd);
        }
        let at = |field| object.plus(layout.at(field));
        let at = match (compact, ascii) {
            (0, _) => Place::Behind(at(Field::StrAny)),
            (_, 0) => Place::Inside(at(Field::StrCompactData)),
            (_, _) => Place::Inside(at(Field::StrAsciiData)),
        };
        Ok(Self { at, len, width, interned: state & INTERNED != 0 })
    }

    fn bytes(self) -> usize {
        usize::try_from(self.len * self.width).unwrap_or(usize::MAX)
    }

    fn decode(self, bytes: &[u8]) -> Result<String, Refusal> {
        let code = |chunk: &[u8]| chunk.iter().rev().fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
        let width = usize::try_from(self.width).unwrap_or(1);
        bytes.chunks(width).map(|chunk| char::from_u32(code(chunk)).ok_or(Refusal::Absurd)).collect()
    }
}

/// From `length` to behind `state`.
const TEXT_HEAD: usize = 24;

impl<M: Memory> Heap<M> {
    /// Values of objects without parts; others give [`Value::Object`]. Two to four calls whatever their number.
    pub fn scalars(&mut self, objects: &[Ref]) -> Vec<Result<Cell, Refusal>> {
        let typed = self.types_of(objects);
        let mut wants = Vec::new();
        let mut out: Vec<Result<Cell, Refusal>> = Vec::with_capacity(objects.len());
        for (number, (object, typed)) in objects.iter().zip(typed).enumerate() {
            out.push(typed.map(|(of_type, seen)| {
                if let Some(head) = self.head(of_type.kind, object.addr, seen) {
                    wants.push((number, of_type.kind, head));
                }
                let value = match of_type.kind {
                    Kind::None => Value::None,
                    _ => Value::Object { class: of_type.name.clone(), addr: object.addr },
                };
                Cell { value, seen }
            }));
        }
        let heads = self.gather(&wants.iter().map(|(_, _, want)| *want).collect::<Vec<_>>());
        let mut longer = Vec::new();
        for ((number, kind, _), seen) in wants.into_iter().zip(heads) {
            match seen.and_then(|seen| self.short(kind, objects[number].addr, seen)) {
                Ok(Short::Whole(cell)) => out[number] = Ok(cell),
                Ok(Short::Longer(rest)) => longer.push((number, rest)),
                Err(reason) => out[number] = Err(reason),
            }
        }
        self.long(longer, &mut out);
        out
    }

    /// What is to be read first of an object of a kind.
    fn head(&self, kind: Kind, object: Addr, seen: SeenId) -> Option<Want> {
        let at = |field, len| Some(Want::new(object.plus(self.layout.at(field)), len, seen));
        match kind {
            Kind::Float => at(Field::FloatValue, 8),
            // Length and sign, and the first two digits: an int has room for two.
            Kind::Int | Kind::Bool => at(Field::IntTag, 16),
            Kind::Str => at(Field::StrLength, TEXT_HEAD),
            Kind::Bytes => at(Field::ObSize, 8),
            Kind::None
            | Kind::List
            | Kind::Tuple
            | Kind::Dict
            | Kind::Set
            | Kind::Deque
            | Kind::Array
            | Kind::Enum
            | Kind::Cell
            | Kind::Code
            | Kind::Type
            | Kind::Other => None,
        }
    }

    /// The value, or what else is to be read for it.
    fn short(&self, kind: Kind, object: Addr, seen: SeenId) -> Result<Short, Refusal> {
        let bytes = self.seen.bytes(seen);
        let whole = |value| Ok(Short::Whole(Cell { value, seen }));
        match kind {
            Kind::Float => whole(Value::Float(f64::from_bits(word(bytes, 0)))),
            Kind::Int | Kind::Bool => {
                let (digits, negative) = self.int_head(word(bytes, 0))?;
                if digits > 2 {
                    let at = object.plus(self.layout.at(Field::IntDigits));
                    return Ok(Short::Longer(Longer::Int { at, digits, negative, seen }));
                }
                let value = int(&bytes[8..], digits, negative);
                whole(if kind == Kind::Bool { Value::Bool(value != 0) } else { Value::Int(value) })
            }
            Kind::Str => {
                let text = Text::read(&self.layout, object, bytes)?;
                Ok(Short::Longer(Longer::Text { text, seen }))
            }
            Kind::Bytes => {
                let len = word(bytes, 0);
                let at = object.plus(self.layout.at(Field::BytesData));
                if len > BYTES_LIMIT {
                    Err(Refusal::Absurd)
                } else {
                    Ok(Short::Longer(Longer::Bytes { at, len, seen }))
                }
            }
            Kind::None
            | Kind::List
            | Kind::Tuple
            | Kind::Dict
            | Kind::Set
            | Kind::Deque
            | Kind::Array
            | Kind::Enum
            | Kind::Cell
            | Kind::Code
            | Kind::Type
            | Kind::Other => Err(Refusal::Absurd),
        }
    }

    /// Reads what did not stand in the first bytes.
    fn long(&mut self, longer: Vec<(usize, Longer)>, out: &mut [Result<Cell, Refusal>]) {
        let pointers: Vec<(usize, Want)> = longer
            .iter()
            .filter_map(|(number, rest)| match rest {
                Longer::Text { text: Text { at: Place::Behind(at), .. }, seen } => {
                    Some((*number, Want::new(*at, 8, *seen)))
                }
                Longer::Text { .. } | Longer::Int { .. } | Longer::Bytes { .. } => None,
            })
            .collect();
        let seen = self.gather(&pointers.iter().map(|(_, want)| *want).collect::<Vec<_>>());
        let mut behind = pointers.iter().map(|(number, _)| *number).zip(seen).peekable();
        let mut wants = Vec::with_capacity(longer.len());
        for (number, rest) in &longer {
            let pointer = behind.next_if(|(of, _)| of == number).map(|(_, seen)| seen);
            wants.push(match pointer {
                Some(Ok(seen)) => Want::new(self.pointer(seen, 0).addr, rest.len(), seen),
                // Refused like any address that cannot be.
                Some(Err(_)) => Want::new(Addr(0), rest.len(), SeenId::ROOT),
                None => rest.want(),
            });
        }
        let seen = self.gather(&wants);
        for ((number, rest), seen) in longer.into_iter().zip(seen) {
            out[number] = seen.and_then(|seen| {
                let value = rest.value(self.seen.bytes(seen))?;
                Ok(Cell { value, seen })
            });
        }
    }

    /// How many digits an int has, and whether it is negative.
    fn int_head(&self, tag: u64) -> Result<(u64, bool), Refusal> {
        let (digits, negative) = if self.layout.tagged_int {
            // Bit 2 is set on immortal ones from 3.14 on.
            match tag & 3 {
                0 => (tag >> 3, false),
                1 => (0, false),
                2 => (tag >> 3, true),
                _ => return Err(Refusal::Absurd),
            }
        } else {
            let size = tag.cast_signed();
            (size.unsigned_abs(), size < 0)
        };
        if digits > DIGITS_LIMIT { Err(Refusal::Absurd) } else { Ok((digits, negative)) }
    }

    /// The text of a string, not noted, many at once. Interned ones are kept by their address.
    pub(super) fn peek_names(&mut self, strings: &[Addr]) -> Vec<Result<Arc<str>, Refusal>> {
        let unknown: Vec<Addr> = strings.iter().filter(|at| !self.names.contains_key(at)).copied().collect();
        let mut read: Vec<Result<Arc<str>, Refusal>> = self.read_names(&unknown);
        read.reverse();
        let mut known = |at: &Addr| match self.names.get(at) {
            Some(name) if !unknown.contains(at) => Ok(Arc::clone(name)),
            Some(_) | None => read.pop().unwrap_or(Err(Refusal::Unreadable)),
        };
        strings.iter().map(&mut known).collect()
    }

    /// The text of one string, not noted.
    pub(super) fn peek_name(&mut self, string: Addr) -> Result<Arc<str>, Refusal> {
        self.peek_names(&[string]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    fn read_names(&mut self, strings: &[Addr]) -> Vec<Result<Arc<str>, Refusal>> {
        let at = self.layout.at(Field::StrLength);
        let heads =
            self.peek_many(&strings.iter().map(|string| (string.plus(at), TEXT_HEAD)).collect::<Vec<_>>());
        let texts: Vec<Result<Text, Refusal>> = strings
            .iter()
            .zip(heads)
            .map(|(string, head)| Text::read(&self.layout, *string, &head?))
            .collect();
        let mut wants = Vec::with_capacity(texts.len());
        for text in &texts {
            wants.push(match text.as_ref().map(|text| (text.at, text.bytes())) {
                Ok((Place::Inside(at), len)) => (at, len),
                Ok((Place::Behind(at), len)) => (self.peek_addr(at).unwrap_or_default(), len),
                Err(_) => (Addr(0), 0),
            });
        }
        let data = self.peek_many(&wants);
        let mut names = Vec::with_capacity(strings.len());
        for ((string, text), data) in strings.iter().zip(texts).zip(data) {
            names.push(text.and_then(|text| {
                let name: Arc<str> = text.decode(&data?)?.into();
                if text.interned {
                    self.keep_name(*string, &name);
                }
                Ok(name)
            }));
        }
        names
    }
}

/// What the first bytes gave.
enum Short {
    Whole(Cell),
    Longer(Longer),
}

/// What is still to be read of a value.
enum Longer {
    Int { at: Addr, digits: u64, negative: bool, seen: SeenId },
    Text { text: Text, seen: SeenId },
    Bytes { at: Addr, len: u64, seen: SeenId },
}

impl Longer {
    fn want(&self) -> Want {
        let (at, seen) = match self {
            Self::Int { at, seen, .. } | Self::Bytes { at, seen, .. } => (*at, *seen),
            Self::Text { text: Text { at: Place::Inside(at) | Place::Behind(at), .. }, seen } => (*at, *seen),
        };
        Want::new(at, self.len(), seen)
    }

    fn len(&self) -> usize {
        match self {
            Self::Int { digits, .. } => usize::try_from(4 * digits).unwrap_or(usize::MAX),
            Self::Text { text, .. } => text.bytes(),
            Self::Bytes { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }

    fn value(&self, bytes: &[u8]) -> Result<Value, Refusal> {
        match self {
            Self::Int { digits, negative, .. } => Ok(Value::Int(int(bytes, *digits, *negative))),
            Self::Text { text, .. } => text.decode(bytes).map(Value::Str),
            Self::Bytes { .. } => Ok(Value::Bytes(bytes.to_vec())),
        }
    }
}

/// A number from its digits of 30 bits, lowest first.
fn int(bytes: &[u8], digits: u64, negative: bool) -> i128 {
    let digits = bytes.chunks_exact(4).take(usize::try_from(digits).unwrap_or(0)).rev();
    let digit = |chunk: &[u8]| chunk.iter().rev().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
    let value = digits.fold(0, |sum, chunk| sum << 30 | (digit(chunk) & ((1 << 30) - 1)));
    if negative { -value } else { value }
}
