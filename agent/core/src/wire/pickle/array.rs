//! Whole numbers in a row: lists and tuples of them, and `array.array`.

use super::view::{Items, Pickle};
use super::{Place, Value};

/// Whole numbers of a list, a tuple or an array, read when they are asked for.
#[derive(Clone, Copy, Debug)]
pub enum Integers<'r> {
    /// Values.
    Items(Items<'r>),
    /// An array's data.
    Packed {
        /// The numbers, one after the other.
        bytes: &'r [u8],
        /// How each lies there.
        format: Format,
    },
}

/// How a number of an array lies in its bytes (`machine_format_code` in CPython's `Modules/arraymodule.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bytes a number.
    width: usize,
    signed: bool,
    big_endian: bool,
}

impl Format {
    /// `None` for codes of numbers that are not whole, and unknown ones.
    pub(super) fn of_code(code: i64) -> Option<Self> {
        let code = usize::try_from(code).ok()?;
        let (width, signed, big_endian) = match code {
            0 | 1 => (1, code == 1, false),
            2..=13 => (2 << ((code - 2) / 4), (code - 2) / 2 % 2 == 1, code % 2 == 1),
            _ => return None,
        };
        Some(Self { width, signed, big_endian })
    }

    fn read(self, bytes: &[u8]) -> Option<i64> {
        let byte = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number =
            if self.big_endian { bytes.iter().fold(0, byte) } else { bytes.iter().rev().fold(0, byte) };
        let unused = 64_u32.checked_sub(u32::try_from(self.width * 8).ok()?)?;
        if self.signed {
            return Some((number << unused).cast_signed() >> unused);
        }
        i64::try_from(number).ok()
    }
}

impl<'r> Integers<'r> {
    /// How many numbers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Items(items) => items.len(),
            Self::Packed { bytes, format } => bytes.len() / format.width,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers; one that does not fit is left out.
    #[must_use]
    pub fn iter(&self) -> IntegersIter<'r> {
        IntegersIter(*self)
    }
}

/// See [`Integers::iter`].
#[derive(Clone, Debug)]
pub struct IntegersIter<'r>(Integers<'r>);

impl Iterator for IntegersIter<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match &mut self.0 {
            Integers::Items(items) => items.find_map(Value::int),
            Integers::Packed { bytes, format } => loop {
                let (number, rest) = bytes.split_at_checked(format.width)?;
                *bytes = rest;
                if let Some(number) = format.read(number) {
                    return Some(number);
                }
            },
        }
    }
}

impl<'r> Pickle<'r> {
    /// The whole numbers in a row that a value is; `None` where it is nothing of the kind.
    #[must_use]
    pub fn integers(&self, value: Value) -> Option<Integers<'r>> {
        if let Value::Object(_) = value {
            return self.array(value);
        }
        self.items(value).map(Integers::Items)
    }

    /// `array._array_reconstructor(array, typecode, format, data)` (protocol 3 on) or `array(typecode, list)`.
    fn array(&self, value: Value) -> Option<Integers<'r>> {
        let object = self.object(value)?;
        let class = self.class(object.callee)?;
        let mut args = self.items(object.args)?;
        match (class.module.as_ref(), class.name.as_ref()) {
            (b"array", b"_array_reconstructor") => {
                let format = Format::of_code(args.nth(2)?.int()?)?;
                let bytes = self.bytes(args.next()?)?;
                Some(Integers::Packed { bytes, format })
            }
            (b"array", b"array") => self.items(args.nth(1)?).map(Integers::Items),
            _ => None,
        }
    }
}

impl Value {
    /// The number, where it is a whole one of 64 bits. Python's truth values are numbers, but none here.
    #[must_use]
    pub fn int(self) -> Option<i64> {
        if let Self::Int(number) = self { Some(number) } else { None }
    }

    /// The number, where it is written as a floating one.
    #[must_use]
    pub fn float(self) -> Option<f64> {
        if let Self::Float(number) = self { Some(number) } else { None }
    }

    /// The truth value.
    #[must_use]
    pub fn bool(self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(value) } else { None }
    }

    /// The part of the bytes it lies in, for texts and bytes.
    pub(super) fn place(self) -> Option<Place> {
        match self {
            Self::Long(place)
            | Self::Digits(place)
            | Self::Text(place)
            | Self::Escaped(place)
            | Self::Quoted(place)
            | Self::Bytes(place)
            | Self::ByteArray(place) => Some(place),
            Self::None
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Buffer(_)
            | Self::Tuple(_)
            | Self::FrozenSet(_)
            | Self::List(_)
            | Self::Dict(_)
            | Self::Set(_)
            | Self::Global(_)
            | Self::Extension(_)
            | Self::Object(_) => None,
        }
    }
}
