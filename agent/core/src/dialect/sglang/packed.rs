//! Values of a message in msgpack: structs are arrays that begin with their class's name.

use std::borrow::Cow;
use std::collections::HashMap;

use super::cell::Cell;
use crate::dialect::schema::Schema;
use crate::wire::msgpack::{Reader, Token};

/// Field names of each class, in the order of the arrays.
#[derive(Debug, Default)]
pub(super) struct Layout(HashMap<String, Vec<String>>);

impl Layout {
    pub(super) fn new(schema: &Schema) -> Self {
        Self(schema.classes.iter().cloned().collect())
    }

    fn fields(&self, class: &[u8]) -> Option<&[String]> {
        let class = std::str::from_utf8(class).ok()?;
        self.0.get(class).map(Vec::as_slice)
    }
}

/// A value in msgpack: what begins at a place. What the message's cut took away is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed<'m> {
    at: Reader<'m>,
    layout: &'m Layout,
}

/// The class of bytes that are a pickle.
const WRAPPER: &[u8] = b"PickleWrapper";

/// Numbers of an `array.array` (`_MSGPACK_EXT_ARRAY` of `srt/utils/msgpack_utils.py`).
const ARRAY: i8 = 1;

impl<'m> Packed<'m> {
    pub(super) fn new(bytes: &'m [u8], layout: &'m Layout) -> Self {
        Self { at: Reader::new(bytes), layout }
    }

    fn token(self) -> Option<Token<'m>> {
        self.at.peek().ok()
    }

    /// How many numbers a type's letter and data are (0.5.15 to 0.5.18).
    fn pair(self) -> Option<usize> {
        let mut values = self.values()?;
        let letter = values.next()?.token()?.str()?;
        let Token::Bin(data) = values.next()?.token()? else { return None };
        Some(data.len() / width(letter)?)
    }

    /// The values of an array, one after the other.
    fn values(self) -> Option<Values<'m>> {
        let mut at = self.at;
        let left = at.array().ok()?;
        Some(Values { at, left, layout: self.layout })
    }
}

/// See [`Packed::values`].
struct Values<'m> {
    at: Reader<'m>,
    left: u32,
    layout: &'m Layout,
}

impl<'m> Iterator for Values<'m> {
    type Item = Packed<'m>;

    fn next(&mut self) -> Option<Packed<'m>> {
        self.left = self.left.checked_sub(1)?;
        if self.at.is_empty() {
            return None;
        }
        let value = Packed { at: self.at, layout: self.layout };
        if self.at.skip().is_err() {
            // This one was cut: nothing follows.
            self.left = 0;
        }
        Some(value)
    }
}

impl<'m> Cell<'m> for Packed<'m> {
    fn is_none(self) -> bool {
        self.token() == Some(Token::Nil)
    }

    fn int(self) -> Option<i64> {
        self.token()?.i64()
    }

    fn number(self) -> Option<f64> {
        self.token()?.f64()
    }

    fn bool(self) -> Option<bool> {
        self.token()?.bool()
    }

    fn text(self) -> Option<Cow<'m, [u8]>> {
        self.token()?.str().map(Cow::Borrowed)
    }

    fn items(self) -> Option<impl Iterator<Item = Self>> {
        self.values()
    }

    fn len(self) -> Option<usize> {
        match self.token()? {
            Token::Array(len) => self.pair().or_else(|| usize::try_from(len).ok()),
            Token::Ext(ARRAY, bytes) => packed_len(bytes),
            Token::Nil
            | Token::Bool(_)
            | Token::Int(_)
            | Token::Big(_)
            | Token::Float(_)
            | Token::Str(_)
            | Token::Bin(_)
            | Token::Map(_)
            | Token::Ext(..) => None,
        }
    }

    fn class(self) -> Option<Cow<'m, [u8]>> {
        self.values()?.next()?.text()
    }

    fn fields(self, class: &str, each: &mut impl FnMut(&[u8], Self)) {
        if let Some(len) = self.token().and_then(Token::map) {
            let mut at = self.at;
            // The head was looked at already; the pairs end where the bytes do.
            let _ = at.map().and_then(|_| {
                at.pairs(len, |key, value| {
                    each(key, Self { at: *value, ..self });
                    value.skip()
                })
            });
            return;
        }
        let Some(mut values) = self.values() else { return };
        let own = self.class().filter(|own| self.layout.fields(own).is_some());
        if own.is_some() {
            values.next();
        }
        let fields = self.layout.fields(own.as_deref().unwrap_or(class.as_bytes()));
        for (field, value) in fields.unwrap_or_default().iter().zip(values) {
            each(field.as_bytes(), value);
        }
    }

    fn wrapped(self) -> Option<&'m [u8]> {
        let mut values = self.values()?;
        let is_wrapper = values.next()?.text()?.as_ref() == WRAPPER;
        values.next().filter(|_| is_wrapper)?.token()?.bytes()
    }
}

/// How many numbers an array holds (0.5.19 on): a length of 4 bytes, so many bytes of msgpack (the type's letter), the
/// data.
fn packed_len(bytes: &[u8]) -> Option<usize> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (letter, data) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
    Some(data.len() / width(Reader::new(letter).str().ok()?)?)
}

/// Bytes a number of an `array.array`, by its type's letter.
fn width(letter: &[u8]) -> Option<usize> {
    match letter {
        b"b" | b"B" => Some(1),
        b"h" | b"H" => Some(2),
        b"i" | b"I" | b"f" => Some(4),
        b"l" | b"L" | b"q" | b"Q" | b"d" => Some(8),
        _ => None,
    }
}
