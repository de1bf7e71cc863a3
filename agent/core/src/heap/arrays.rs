//! `array.array`.

use super::heads::Head;
use super::kind::Kind;
use super::layout::Field;
use super::memory::Memory;
use super::reader::{Heap, Refusal};
use super::seen::Ref;
use super::value::Value;

/// Most numbers of an array.
const NUMBERS_LIMIT: u64 = 1 << 17;

impl<M: Memory> Heap<M> {
    /// The numbers of an `array.array`.
    ///
    /// # Errors
    /// When it is refused, or its type code is none of numbers.
    pub fn array(&mut self, array: Ref) -> Result<Vec<Value>, Refusal> {
        let head = self.head_of(array, Kind::Array)?;
        self.array_in(&head)
    }

    /// As [`Heap::array`], of an array whose head was read.
    pub(super) fn array_in(&mut self, head: &Head) -> Result<Vec<Value>, Refusal> {
        let seen = head.seen;
        let code = self.gather_one(self.field_of(seen, Field::ArrayDescr), 1, seen)?;
        let number =
            self.seen.bytes(code).first().and_then(|code| Number::of(*code)).ok_or(Refusal::Absurd)?;
        let len = self.word_of(seen, Field::ObSize);
        if len > NUMBERS_LIMIT {
            return Err(Refusal::Absurd);
        }
        let len = usize::try_from(len).map_err(|_| Refusal::Absurd)? * number.width();
        let data = self.gather_one(self.field_of(seen, Field::ArrayItems), len, code)?;
        Ok(self.seen.bytes(data).chunks_exact(number.width()).map(|chunk| number.read(chunk)).collect())
    }
}

/// A type code of `array.array`.
#[derive(Clone, Copy)]
enum Number {
    Signed(usize),
    Unsigned(usize),
    Float,
    Double,
}

impl Number {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            b'b' => Self::Signed(1),
            b'h' => Self::Signed(2),
            b'i' => Self::Signed(4),
            b'l' | b'q' => Self::Signed(8),
            b'B' => Self::Unsigned(1),
            b'H' => Self::Unsigned(2),
            b'I' => Self::Unsigned(4),
            b'L' | b'Q' => Self::Unsigned(8),
            b'f' => Self::Float,
            b'd' => Self::Double,
            _ => return None,
        })
    }

    fn width(self) -> usize {
        match self {
            Self::Signed(width) | Self::Unsigned(width) => width,
            Self::Float => 4,
            Self::Double => 8,
        }
    }

    fn read(self, chunk: &[u8]) -> Value {
        let raw = chunk.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        match self {
            Self::Unsigned(_) => Value::Int(raw.into()),
            Self::Signed(width) => {
                let unused = 64 - 8 * u32::try_from(width).unwrap_or(8);
                Value::Int((raw << unused).cast_signed().wrapping_shr(unused).into())
            }
            Self::Float => {
                let bits = chunk.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                Value::Float(f32::from_bits(bits).into())
            }
            Self::Double => Value::Float(f64::from_bits(raw)),
        }
    }
}
