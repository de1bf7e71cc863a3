//! Values without parts: numbers, texts, bytes.

use super::heads::{Extent, Head};
use super::kind::Kind;
use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId, Verdicts};
use super::text::{Place, Text};
use super::value::Value;

/// Most bytes of a `bytes`.
const BYTES_LIMIT: u64 = 1 << 19;
/// Most digits of 30 bits: a number of 120 bits.
const DIGITS_LIMIT: u64 = 4;
/// Digits that stand in an int's first bytes.
const DIGITS_NEAR: u64 = 2;

/// A value, and the piece it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The value.
    pub value: Value,
    /// The piece that it stood in.
    pub seen: SeenId,
}

impl Cell {
    /// Whether to believe it.
    #[must_use]
    pub fn good(&self, verdicts: &Verdicts) -> bool {
        verdicts.good(self.seen)
    }
}

/// A value, as far as an object's first bytes tell it.
enum Begun {
    Whole(Value),
    Rest(Rest),
}

/// What is still to be read of a value.
struct Rest {
    of: Of,
    at: Place,
    len: usize,
    /// Its object.
    head: Head,
}

/// What bytes are those of.
enum Of {
    Int(IntHead),
    Text(Text),
    Bytes,
}

/// How many digits an int has, and whether it is negative.
#[derive(Clone, Copy)]
struct IntHead {
    digits: u64,
    negative: bool,
}

impl Of {
    fn value(&self, bytes: &[u8]) -> Result<Value, Refusal> {
        match self {
            Self::Int(head) => Ok(Value::Int(head.value(bytes))),
            Self::Text(text) => text.decode(bytes).map(Value::Str),
            Self::Bytes => Ok(Value::Bytes(bytes.to_vec())),
        }
    }
}

impl IntHead {
    /// From `ob_size`, or from `lv_tag` (`tagged`: 3.12 on).
    fn read(word: u64, tagged: bool) -> Result<Self, Refusal> {
        let (digits, negative) = if tagged {
            // Bit 2 is set on immortal ones from 3.14 on.
            match word & 3 {
                0 => (word >> 3, false),
                1 => (0, false),
                2 => (word >> 3, true),
                _ => return Err(Refusal::Absurd),
            }
        } else {
            let size = word.cast_signed();
            (size.unsigned_abs(), size < 0)
        };
        if digits > DIGITS_LIMIT { Err(Refusal::Absurd) } else { Ok(Self { digits, negative }) }
    }

    /// The number of digits of 30 bits, lowest first.
    fn value(self, bytes: &[u8]) -> i128 {
        let digits = bytes.chunks_exact(4).take(usize::try_from(self.digits).unwrap_or(0)).rev();
        let digit = |chunk: &[u8]| chunk.iter().rev().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
        let value = digits.fold(0, |sum, chunk| sum << 30 | (digit(chunk) & ((1 << 30) - 1)));
        if self.negative { -value } else { value }
    }
}

impl<M: Memory> Heap<M> {
    /// Values of objects without parts; others give [`Value::Object`]. One to three calls whatever their number.
    pub fn scalars(&mut self, objects: &[Ref]) -> Vec<Result<Cell, Refusal>> {
        let heads = self.heads(objects, Extent::Fields);
        self.scalars_of(heads)
    }

    /// As [`Heap::scalars`], of objects whose heads were read.
    pub(super) fn scalars_of(&mut self, heads: Vec<Result<Head, Refusal>>) -> Vec<Result<Cell, Refusal>> {
        let mut out = Vec::with_capacity(heads.len());
        let (mut places, mut rests) = (Vec::new(), Vec::new());
        for (number, head) in heads.into_iter().enumerate() {
            out.push(head.and_then(|head| {
                let value = match self.begun(&head)? {
                    Begun::Whole(value) => value,
                    Begun::Rest(rest) => {
                        places.push(number);
                        rests.push(rest);
                        Value::None
                    }
                };
                Ok(Cell { value, seen: head.seen })
            }));
        }
        let found = self.rests(&rests);
        for (number, cell) in places.into_iter().zip(found) {
            out[number] = cell;
        }
        out
    }

    /// The value, as far as the first bytes tell it.
    fn begun(&self, head: &Head) -> Result<Begun, Refusal> {
        let Head { addr, of_type, seen } = head;
        let whole = match of_type.kind {
            Kind::None => Value::None,
            Kind::Float => Value::Float(f64::from_bits(self.word_of(*seen, Field::FloatValue))),
            Kind::Bool => Value::Bool(self.int_head(*seen)?.value(self.digits(*seen)) != 0),
            Kind::Int => {
                let int = self.int_head(*seen)?;
                if int.digits > DIGITS_NEAR {
                    let len = usize::try_from(4 * int.digits).unwrap_or(usize::MAX);
                    return Ok(Begun::Rest(self.rest(head, Of::Int(int), Field::IntDigits, len)));
                }
                Value::Int(int.value(self.digits(*seen)))
            }
            Kind::Str => {
                let text = Text::read(&self.layout, *addr, self.seen.bytes(*seen))?;
                let (at, len) = (text.at, text.bytes());
                return Ok(Begun::Rest(Rest { of: Of::Text(text), at, len, head: head.clone() }));
            }
            Kind::Bytes => {
                let len = self.word_of(*seen, Field::ObSize);
                if len > BYTES_LIMIT {
                    return Err(Refusal::Absurd);
                }
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                return Ok(Begun::Rest(self.rest(head, Of::Bytes, Field::BytesData, len)));
            }
            Kind::List
            | Kind::Tuple
            | Kind::Dict
            | Kind::Set
            | Kind::Deque
            | Kind::Array
            | Kind::Enum
            | Kind::Cell
            | Kind::Code
            | Kind::Type
            | Kind::Other => Value::Object { class: of_type.name.clone(), addr: *addr },
        };
        Ok(Begun::Whole(whole))
    }

    fn rest(&self, head: &Head, of: Of, from: Field, len: usize) -> Rest {
        Rest { of, at: Place::At(head.addr.plus(self.layout.at(from))), len, head: head.clone() }
    }

    fn int_head(&self, seen: SeenId) -> Result<IntHead, Refusal> {
        IntHead::read(self.word_of(seen, Field::IntTag), self.layout.tagged_int)
    }

    /// The digits in the first bytes.
    fn digits(&self, seen: SeenId) -> &[u8] {
        self.seen.bytes(seen).get(self.offset(Field::IntDigits)..).unwrap_or_default()
    }

    /// Reads what does not stand in the first bytes: that behind them with them, that elsewhere by its pointer.
    fn rests(&mut self, rests: &[Rest]) -> Vec<Result<Cell, Refusal>> {
        let inside: Vec<(SeenId, usize)> = rests.iter().filter_map(Rest::inside).collect();
        let behind: Vec<Want> = rests.iter().filter_map(Rest::pointer).collect();
        let mut inside = self.lengthen(&inside).into_iter();
        let mut behind = self.behind(rests, &behind).into_iter();
        let mut cells = Vec::with_capacity(rests.len());
        for rest in rests {
            let piece = match rest.at {
                Place::At(at) => {
                    let offset = usize::try_from(at.0.wrapping_sub(rest.head.addr.0)).unwrap_or(usize::MAX);
                    inside.next().unwrap_or(Err(Refusal::Unreadable)).map(|()| (rest.head.seen, offset))
                }
                Place::Behind(_) => behind.next().unwrap_or(Err(Refusal::Unreadable)).map(|seen| (seen, 0)),
            };
            cells.push(piece.and_then(|(seen, offset)| {
                let bytes = self.seen.bytes(seen).get(offset..offset.saturating_add(rest.len));
                Ok(Cell { value: rest.of.value(bytes.ok_or(Refusal::Torn)?)?, seen })
            }));
        }
        cells
    }

    fn behind(&mut self, rests: &[Rest], pointers: &[Want]) -> Vec<Result<SeenId, Refusal>> {
        let lens = rests.iter().filter(|rest| rest.pointer().is_some()).map(|rest| rest.len);
        let pointers = self.gather(pointers);
        let mut wants = Vec::with_capacity(pointers.len());
        for (pointer, len) in pointers.into_iter().zip(lens) {
            wants.push(match pointer {
                Ok(seen) => Want::new(self.pointer(seen, 0).addr, len, seen),
                // Refused like any address that cannot be.
                Err(_) => Want::new(Addr(0), len.max(1), SeenId::ROOT),
            });
        }
        self.gather(&wants)
    }
}

impl Rest {
    /// The piece that must be longer, and how long, where the rest stands in the object.
    fn inside(&self) -> Option<(SeenId, usize)> {
        let Place::At(at) = self.at else { return None };
        let offset = usize::try_from(at.0.wrapping_sub(self.head.addr.0)).unwrap_or(usize::MAX);
        Some((self.head.seen, offset.saturating_add(self.len)))
    }

    /// The pointer to it, where it stands elsewhere.
    fn pointer(&self) -> Option<Want> {
        let Place::Behind(at) = self.at else { return None };
        Some(Want::new(at, 8, self.head.seen))
    }
}
