//! Values without parts: numbers, texts, bytes.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Field, Layout};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId, Verdicts, word};
use super::types::{Kind, Type};
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
    /// The piece that it stood in.
    pub seen: SeenId,
    /// The piece with the reference that led to it.
    pub by: SeenId,
}

impl Cell {
    /// Whether to believe it.
    #[must_use]
    pub fn good(&self, verdicts: &Verdicts) -> bool {
        verdicts.good(self.seen) && verdicts.good(self.by)
    }
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

/// From an object's type on: all of a number of up to two digits. No object that is allocated ends before.
const WINDOW: usize = 24;
/// From `length` to behind `state`.
const TEXT_HEAD: usize = 24;

impl<M: Memory> Heap<M> {
    /// Values of objects without parts; others give [`Value::Object`]. One to four calls whatever their number; an object
    /// that is asked for several times is read once.
    pub fn scalars(&mut self, objects: &[Ref]) -> Vec<Result<Cell, Refusal>> {
        let mut places: HashMap<Addr, usize> = HashMap::with_capacity(objects.len());
        let mut distinct = Vec::with_capacity(objects.len());
        for object in objects {
            places.entry(object.addr).or_insert_with(|| {
                distinct.push(object.addr);
                distinct.len() - 1
            });
        }
        let read = self.distinct(&distinct);
        let of = |object: &Ref| {
            let read = places.get(&object.addr).and_then(|place| read.get(*place)).cloned();
            let (value, seen) = read.unwrap_or(Err(Refusal::Unreadable))?;
            Ok(Cell { value, seen, by: object.seen })
        };
        objects.iter().map(of).collect()
    }

    /// The first bytes of each object hold its type, and all of a number.
    fn distinct(&mut self, objects: &[Addr]) -> Vec<Result<Read, Refusal>> {
        let at = self.layout.at(Field::ObType);
        let wants: Vec<Want> =
            objects.iter().map(|object| Want::new(object.plus(at), WINDOW, SeenId::ROOT)).collect();
        let windows = self.gather(&wants);
        let mut longer = Vec::new();
        let mut out = Vec::with_capacity(objects.len());
        for (number, (object, seen)) in objects.iter().zip(windows).enumerate() {
            out.push(seen.and_then(|seen| {
                let of_type = self.type_at(self.pointer(seen, 0).addr)?;
                let rest = self.longer(of_type.kind, *object, seen)?;
                longer.extend(rest.map(|rest| (number, rest)));
                Ok((self.short(&of_type, *object, seen)?, seen))
            }));
        }
        self.heads(&mut longer, &mut out);
        self.long(longer, &mut out);
        out
    }

    /// A field's bytes in the first bytes of an object.
    fn window(&self, seen: SeenId, field: Field) -> &[u8] {
        let offset = self.layout.at(field).wrapping_sub(self.layout.at(Field::ObType));
        let bytes = self.seen.bytes(seen);
        usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default()
    }

    /// The value, as far as the first bytes tell it.
    fn short(&self, of_type: &Type, object: Addr, seen: SeenId) -> Result<Value, Refusal> {
        Ok(match of_type.kind {
            Kind::None => Value::None,
            Kind::Float => Value::Float(f64::from_bits(word(self.window(seen, Field::FloatValue), 0))),
            Kind::Int => Value::Int(self.small(seen)?),
            Kind::Bool => Value::Bool(self.small(seen)? != 0),
            Kind::Str
            | Kind::Bytes
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
            | Kind::Other => Value::Object { class: of_type.name.clone(), addr: object },
        })
    }

    /// An int of up to two digits.
    fn small(&self, seen: SeenId) -> Result<i128, Refusal> {
        let (digits, negative) = self.int_head(word(self.window(seen, Field::IntTag), 0))?;
        Ok(int(self.window(seen, Field::IntDigits), digits.min(2), negative))
    }

    /// What is still to be read behind the first bytes.
    fn longer(&self, kind: Kind, object: Addr, seen: SeenId) -> Result<Option<Longer>, Refusal> {
        let at = |field| object.plus(self.layout.at(field));
        Ok(match kind {
            Kind::Str => Some(Longer::Head { object, seen }),
            Kind::Int => {
                let (digits, negative) = self.int_head(word(self.window(seen, Field::IntTag), 0))?;
                (digits > 2).then(|| Longer::Int { at: at(Field::IntDigits), digits, negative, seen })
            }
            Kind::Bytes => {
                let len = word(self.window(seen, Field::ObSize), 0);
                if len > BYTES_LIMIT {
                    return Err(Refusal::Absurd);
                }
                Some(Longer::Bytes { at: at(Field::BytesData), len, seen })
            }
            Kind::None
            | Kind::Bool
            | Kind::Float
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
        })
    }

    /// Reads the heads of texts: where their characters are.
    fn heads(&mut self, longer: &mut Vec<(usize, Longer)>, out: &mut [Result<Read, Refusal>]) {
        let length = self.layout.at(Field::StrLength);
        let wants: Vec<Want> = longer
            .iter()
            .filter_map(|(_, rest)| match rest {
                Longer::Head { object, seen } => Some(Want::new(object.plus(length), TEXT_HEAD, *seen)),
                Longer::Int { .. } | Longer::Text { .. } | Longer::Bytes { .. } => None,
            })
            .collect();
        let mut heads = self.gather(&wants).into_iter();
        longer.retain_mut(|(number, rest)| {
            let Longer::Head { object, .. } = rest else { return true };
            let head = heads.next().unwrap_or(Err(Refusal::Unreadable));
            let text = head.and_then(|seen| {
                Ok(Longer::Text { text: Text::read(&self.layout, *object, self.seen.bytes(seen))?, seen })
            });
            match text {
                Ok(text) => *rest = text,
                Err(reason) => out[*number] = Err(reason),
            }
            out[*number].is_ok()
        });
    }

    /// Reads what did not stand in the first bytes.
    fn long(&mut self, longer: Vec<(usize, Longer)>, out: &mut [Result<Read, Refusal>]) {
        let pointers: Vec<(usize, Want)> = longer
            .iter()
            .filter_map(|(number, rest)| match rest {
                Longer::Text { text: Text { at: Place::Behind(at), .. }, seen } => {
                    Some((*number, Want::new(*at, 8, *seen)))
                }
                Longer::Head { .. } | Longer::Text { .. } | Longer::Int { .. } | Longer::Bytes { .. } => None,
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
                Ok((value, seen))
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

/// A value, and the piece it was read from.
type Read = (Value, SeenId);

/// What is still to be read of a value.
enum Longer {
    /// Where a text's characters are.
    Head {
        object: Addr,
        seen: SeenId,
    },
    Int {
        at: Addr,
        digits: u64,
        negative: bool,
        seen: SeenId,
    },
    Text {
        text: Text,
        seen: SeenId,
    },
    Bytes {
        at: Addr,
        len: u64,
        seen: SeenId,
    },
}

impl Longer {
    fn want(&self) -> Want {
        let (at, seen) = match self {
            Self::Head { object: at, seen } | Self::Int { at, seen, .. } | Self::Bytes { at, seen, .. } => {
                (*at, *seen)
            }
            Self::Text { text: Text { at: Place::Inside(at) | Place::Behind(at), .. }, seen } => (*at, *seen),
        };
        Want::new(at, self.len(), seen)
    }

    fn len(&self) -> usize {
        match self {
            Self::Head { .. } => TEXT_HEAD,
            Self::Int { digits, .. } => usize::try_from(4 * digits).unwrap_or(usize::MAX),
            Self::Text { text, .. } => text.bytes(),
            Self::Bytes { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }

    fn value(&self, bytes: &[u8]) -> Result<Value, Refusal> {
        match self {
            Self::Head { .. } => Err(Refusal::Absurd),
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
