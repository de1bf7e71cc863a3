//! MessagePack, read by pulling: one token at a time, borrowed from the bytes, in no tree.
//!
//! Made for prefixes: a message that was cut gives every token before the cut and then [`Error::End`].
//! Nothing recurses, so that no input can exhaust the stack.
//!
//! Mirrors the MessagePack specification as of ext type support (2013 and later), which `msgspec` writes.

use crate::wire;

/// One token. The items of an array, and the keys and values of a map, follow as tokens of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// Nothing.
    Nil,
    /// True or false.
    Bool(bool),
    /// A whole number from a signed or a small unsigned form.
    Int(i64),
    /// A whole number over `i64::MAX`.
    Big(u64),
    /// A number of 32 or 64 bits, widened.
    Float(f64),
    /// Text. The writer says that it is UTF-8; nobody checked.
    Str(&'a [u8]),
    /// Bytes.
    Bin(&'a [u8]),
    /// An array of so many items.
    Array(u32),
    /// A map of so many pairs.
    Map(u32),
    /// Bytes of a type that the application defines.
    Ext(i8, &'a [u8]),
}

/// Why there is no next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end here, before or inside the token.
    #[error("the message ends here")]
    End,
    /// The byte 0xc1, which begins no token.
    #[error("a byte that begins no msgpack token")]
    Invalid,
    /// A token of another type than was asked for. It was not consumed.
    #[error("a msgpack token of another type")]
    Type,
}

/// A place in some msgpack bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next token. After an error nothing was consumed.
    ///
    /// # Errors
    /// [`Error::End`] where the bytes end, [`Error::Invalid`] where they are no msgpack.
    pub fn token(&mut self) -> Result<Token<'a>, Error> {
        let mut cursor = Cursor(self.rest);
        let token = cursor.token()?;
        self.rest = cursor.0;
        Ok(token)
    }

    /// The next token, without going past it.
    ///
    /// # Errors
    /// As [`Reader::token`].
    pub fn peek(&self) -> Result<Token<'a>, Error> {
        Cursor(self.rest).token()
    }

    /// Goes past the next value, with everything inside it.
    ///
    /// # Errors
    /// As [`Reader::token`].
    pub fn skip(&mut self) -> Result<(), Error> {
        if self.nil() { Ok(()) } else { self.skip_values(1) }
    }

    /// Goes past `count` values.
    ///
    /// # Errors
    /// As [`Reader::skip`].
    pub fn skip_values(&mut self, count: u64) -> Result<(), Error> {
        // What is still to be skipped is one number, whatever the nesting.
        let mut left = count;
        let mut cursor = Cursor(self.rest);
        while left > 0 {
            left = (left - 1).saturating_add(cursor.token()?.inside());
        }
        self.rest = cursor.0;
        Ok(())
    }

    /// The next token; what is inside an array or a map is gone past.
    ///
    /// # Errors
    /// As [`Reader::skip`].
    pub fn scalar(&mut self) -> Result<Token<'a>, Error> {
        if self.nil() {
            return Ok(Token::Nil);
        }
        let token = self.token()?;
        self.skip_values(token.inside())?;
        Ok(token)
    }

    /// The bytes of the next value with everything inside it, and goes past it.
    ///
    /// # Errors
    /// As [`Reader::skip`].
    pub fn raw(&mut self) -> Result<&'a [u8], Error> {
        let before = self.rest;
        self.skip()?;
        Ok(before.get(..before.len() - self.rest.len()).unwrap_or_default())
    }

    /// The length of the array that comes next.
    ///
    /// # Errors
    /// [`Error::Type`] when something else comes (nothing is consumed), else as [`Reader::token`].
    pub fn array(&mut self) -> Result<u32, Error> {
        self.typed(Token::array)
    }

    /// The length of the array that comes next, or nothing for nil.
    ///
    /// # Errors
    /// As [`Reader::array`].
    pub fn array_or_nil(&mut self) -> Result<Option<u32>, Error> {
        self.or_nil(Token::array)
    }

    /// The length of the array that comes next; any other value is gone past.
    ///
    /// # Errors
    /// As [`Reader::skip`].
    pub fn array_or_skip(&mut self) -> Result<Option<u32>, Error> {
        self.or_skip(Token::array)
    }

    /// The number of pairs of the map that comes next.
    ///
    /// # Errors
    /// As [`Reader::array`].
    pub fn map(&mut self) -> Result<u32, Error> {
        self.typed(Token::map)
    }

    /// The number of pairs of the map that comes next, or nothing for nil.
    ///
    /// # Errors
    /// As [`Reader::array`].
    pub fn map_or_nil(&mut self) -> Result<Option<u32>, Error> {
        self.or_nil(Token::map)
    }

    /// The number of pairs of the map that comes next; any other value is gone past.
    ///
    /// # Errors
    /// As [`Reader::skip`].
    pub fn map_or_skip(&mut self) -> Result<Option<u32>, Error> {
        self.or_skip(Token::map)
    }

    /// The text that comes next.
    ///
    /// # Errors
    /// As [`Reader::array`].
    pub fn str(&mut self) -> Result<&'a [u8], Error> {
        self.typed(Token::str)
    }

    /// Goes through `len` pairs of a map: `each` gets every key that is text, and the reader before its value,
    /// which it goes past.
    ///
    /// # Errors
    /// As [`Reader::skip`], and whatever `each` gives.
    pub fn pairs(
        &mut self,
        len: u32,
        mut each: impl FnMut(&'a [u8], &mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for _ in 0..len {
            match self.scalar()?.str() {
                Some(key) => each(key, self)?,
                None => self.skip()?,
            }
        }
        Ok(())
    }

    /// Goes past nil, if it comes next: most fields of most messages are.
    #[inline]
    fn nil(&mut self) -> bool {
        match self.rest {
            [0xc0, rest @ ..] => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn or_nil<T>(&mut self, pick: impl FnOnce(Token<'a>) -> Option<T>) -> Result<Option<T>, Error> {
        self.typed(|token| if token.is_nil() { Some(None) } else { pick(token).map(Some) })
    }

    fn or_skip<T>(&mut self, pick: impl FnOnce(Token<'a>) -> Option<T>) -> Result<Option<T>, Error> {
        let token = self.token()?;
        let picked = pick(token);
        if picked.is_none() {
            self.skip_values(token.inside())?;
        }
        Ok(picked)
    }

    fn typed<T>(&mut self, pick: impl FnOnce(Token<'a>) -> Option<T>) -> Result<T, Error> {
        let mut cursor = Cursor(self.rest);
        let value = pick(cursor.token()?).ok_or(Error::Type)?;
        self.rest = cursor.0;
        Ok(value)
    }
}

impl<'a> Token<'a> {
    /// How many values follow that belong to this one.
    fn inside(self) -> u64 {
        match self {
            Self::Array(len) => u64::from(len),
            Self::Map(len) => 2 * u64::from(len),
            Self::Nil
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Big(_)
            | Self::Float(_)
            | Self::Str(_)
            | Self::Bin(_)
            | Self::Ext(..) => 0,
        }
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_nil(self) -> bool {
        matches!(self, Self::Nil)
    }

    /// The number, where it is a whole one that is not negative.
    #[must_use]
    pub fn u64(self) -> Option<u64> {
        if let Self::Big(number) = self { Some(number) } else { u64::try_from(self.i64()?).ok() }
    }

    /// The number, where it is a whole one that is not negative and fits.
    #[must_use]
    pub fn u32(self) -> Option<u32> {
        self.u64().and_then(|number| u32::try_from(number).ok())
    }

    /// The number, where it is a whole one that fits.
    #[must_use]
    pub fn i64(self) -> Option<i64> {
        if let Self::Int(number) = self { Some(number) } else { None }
    }

    /// The number, where it is written as a floating one.
    #[must_use]
    pub fn float(self) -> Option<f64> {
        if let Self::Float(number) = self { Some(number) } else { None }
    }

    /// The number, whole ones widened.
    #[must_use]
    pub fn f64(self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "a double is what was asked for")]
        self.float().or(self.i64().map(|number| number as f64)).or(self.u64().map(|number| number as f64))
    }

    /// The truth value.
    #[must_use]
    pub fn bool(self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(value) } else { None }
    }

    /// The text, as a string: bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn string(self) -> Option<String> {
        if let Self::Str(text) = self { Some(wire::text(text).into_owned()) } else { None }
    }

    /// The bytes, of any type.
    #[must_use]
    pub fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bin(bytes) | Self::Ext(_, bytes) = self { Some(bytes) } else { None }
    }

    /// The length of the array that begins here.
    #[must_use]
    pub fn array(self) -> Option<u32> {
        if let Self::Array(len) = self { Some(len) } else { None }
    }

    /// The number of pairs of the map that begins here.
    #[must_use]
    pub fn map(self) -> Option<u32> {
        if let Self::Map(len) = self { Some(len) } else { None }
    }

    /// The text's bytes.
    #[must_use]
    pub fn str(self) -> Option<&'a [u8]> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }
}

/// The bytes of one token and what follows it.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn token(&mut self) -> Result<Token<'a>, Error> {
        let [first] = self.fixed::<1>()?;
        Ok(match first {
            0x00..=0x7f => Token::Int(i64::from(first)),
            0x80..=0x8f => Token::Map(u32::from(first & 0x0f)),
            0x90..=0x9f => Token::Array(u32::from(first & 0x0f)),
            0xa0..=0xbf => Token::Str(self.bytes(u32::from(first & 0x1f))?),
            0xc0 => Token::Nil,
            _ => return self.longer(first),
        })
    }

    /// A token that is more than its first byte, out of the way of those that are not: they are nearly all.
    fn longer(&mut self, first: u8) -> Result<Token<'a>, Error> {
        Ok(match first {
            0xc1 => return Err(Error::Invalid),
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4..=0xc6 => {
                let len = self.len(first - 0xc4)?;
                Token::Bin(self.bytes(len)?)
            }
            0xc7..=0xc9 => {
                let len = self.len(first - 0xc7)?;
                self.ext(len)?
            }
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.fixed()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.fixed()?)),
            0xcc..=0xce => Token::Int(i64::from(self.len(first - 0xcc)?)),
            0xcf => {
                let number = u64::from_be_bytes(self.fixed()?);
                i64::try_from(number).map_or(Token::Big(number), Token::Int)
            }
            0xd0 => Token::Int(i64::from(i8::from_be_bytes(self.fixed()?))),
            0xd1 => Token::Int(i64::from(i16::from_be_bytes(self.fixed()?))),
            0xd2 => Token::Int(i64::from(i32::from_be_bytes(self.fixed()?))),
            0xd3 => Token::Int(i64::from_be_bytes(self.fixed()?)),
            0xd4..=0xd8 => self.ext(1 << (first - 0xd4))?,
            0xd9..=0xdb => {
                let len = self.len(first - 0xd9)?;
                Token::Str(self.bytes(len)?)
            }
            0xdc..=0xdd => Token::Array(self.len(first - 0xdc + 1)?),
            0xde..=0xdf => Token::Map(self.len(first - 0xde + 1)?),
            0xe0..=0xff => Token::Int(i64::from(first) - 0x100),
            // The others have no second byte: see `token`.
            0x00..=0xc0 => return Err(Error::Invalid),
        })
    }

    /// An unsigned number of 1, 2 or 4 bytes, for `log2` of 0, 1 or 2.
    fn len(&mut self, log2: u8) -> Result<u32, Error> {
        Ok(match log2 {
            0 => u32::from(u8::from_be_bytes(self.fixed()?)),
            1 => u32::from(u16::from_be_bytes(self.fixed()?)),
            _ => u32::from_be_bytes(self.fixed()?),
        })
    }

    fn ext(&mut self, len: u32) -> Result<Token<'a>, Error> {
        let kind = i8::from_be_bytes(self.fixed()?);
        Ok(Token::Ext(kind, self.bytes(len)?))
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], Error> {
        let len = usize::try_from(len).map_err(|_| Error::End)?;
        let (head, rest) = self.0.split_at_checked(len).ok_or(Error::End)?;
        self.0 = rest;
        Ok(head)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Error::End)?;
        self.0 = rest;
        Ok(*head)
    }
}

#[cfg(test)]
mod tests;
