//! A pull scanner over JSON that may be cut short, or not be what the API says.
//!
//! It builds nothing: the caller walks objects and arrays with closures and takes out of them what it
//! wants. Each closure must take exactly one value; the `take_*` readers always do, and answer `None` for a
//! value of another type, so that a wrong field loses only itself. A [`Stop`] ends the walk; what was taken
//! before it stays. Nothing recurses: depth costs no stack.

mod text;

pub use text::Text;

use memchr::memchr2;

/// Why the walk cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The bytes end in the middle of a value.
    Cut,
    /// The bytes are no JSON from here on.
    Syntax,
}

/// What a walk answers.
pub type Walk<T = ()> = Result<T, Stop>;

/// The type of the next value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `"`.
    Text,
    /// `{`.
    Object,
    /// `[`.
    Array,
    /// `t` or `f`.
    Bool,
    /// A digit or a minus sign.
    Number,
    /// `null`, or what is no JSON.
    Null,
}

/// A place in the bytes of a JSON document.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The next byte that is no white space, left in place.
    fn peek(&mut self) -> Walk<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err(Stop::Cut),
            }
        }
    }

    /// The next byte that is no white space.
    fn next(&mut self) -> Walk<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, wanted: u8) -> Walk {
        if self.next()? == wanted { Ok(()) } else { Err(Stop::Syntax) }
    }

    /// The type of the next value.
    pub fn kind(&mut self) -> Walk<Kind> {
        Ok(match self.peek()? {
            b'"' => Kind::Text,
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b't' | b'f' => Kind::Bool,
            b'-' | b'0'..=b'9' => Kind::Number,
            _ => Kind::Null,
        })
    }

    /// Walks an object: `each` is given every key and must take its value. A value of another type is passed.
    pub fn object(&mut self, mut each: impl FnMut(&mut Self, Text<'a>) -> Walk) -> Walk {
        if self.peek()? != b'{' {
            return self.skip();
        }
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.whole_text()?;
            self.expect(b':')?;
            each(self, key)?;
            match self.next()? {
                b',' => {}
                b'}' => return Ok(()),
                _ => return Err(Stop::Syntax),
            }
        }
    }

    /// Walks an array: `each` must take one element. A value of another type is passed.
    pub fn array(&mut self, mut each: impl FnMut(&mut Self) -> Walk) -> Walk {
        if self.peek()? != b'[' {
            return self.skip();
        }
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            each(self)?;
            match self.next()? {
                b',' => {}
                b']' => return Ok(()),
                _ => return Err(Stop::Syntax),
            }
        }
    }

    /// Takes a string. Of one that is cut, what there is ([`Text::whole`] tells); the next step then stops.
    pub fn take_text(&mut self) -> Walk<Option<Text<'a>>> {
        if self.peek()? != b'"' {
            self.skip()?;
            return Ok(None);
        }
        self.text().map(Some)
    }

    /// Takes a string that is whole.
    pub fn take_whole_text(&mut self) -> Walk<Option<Text<'a>>> {
        match self.take_text()? {
            Some(text) if !text.whole() => Err(Stop::Cut),
            text => Ok(text),
        }
    }

    fn whole_text(&mut self) -> Walk<Text<'a>> {
        if self.peek()? != b'"' {
            return Err(Stop::Syntax);
        }
        let text = self.text()?;
        if text.whole() { Ok(text) } else { Err(Stop::Cut) }
    }

    /// Reads a string, its opening quote being next.
    fn text(&mut self) -> Walk<Text<'a>> {
        let start = self.at + 1;
        let (mut at, mut escaped) = (start, false);
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            let Some(found) = memchr2(b'"', b'\\', rest) else {
                self.at = self.bytes.len();
                return Ok(Text::cut(self.bytes.get(start..).unwrap_or_default()));
            };
            if rest.get(found) == Some(&b'"') {
                self.at = at + found + 1;
                let raw = self.bytes.get(start..at + found).unwrap_or_default();
                return Ok(Text::new(raw, escaped));
            }
            escaped = true;
            at += found + 2;
        }
    }

    /// Takes the bytes of a number, truth value or null.
    fn scalar(&mut self) -> Walk<&'a [u8]> {
        self.peek()?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.'));
        match end {
            None => Err(Stop::Cut),
            Some(0) => Err(Stop::Syntax),
            Some(end) => {
                self.at += end;
                Ok(rest.get(..end).unwrap_or_default())
            }
        }
    }

    /// Takes a number or a truth value as it is written, from a string too: the server's models take
    /// `"0.5"` for 0.5.
    fn take_scalar(&mut self) -> Walk<Option<&'a str>> {
        let raw = match self.kind()? {
            Kind::Text => self.take_whole_text()?.map_or(&[][..], Text::raw),
            Kind::Number | Kind::Bool | Kind::Null => self.scalar()?,
            Kind::Object | Kind::Array => {
                self.skip()?;
                return Ok(None);
            }
        };
        Ok(std::str::from_utf8(raw).ok().map(str::trim))
    }

    /// Takes a finite number.
    pub fn take_f64(&mut self) -> Walk<Option<f64>> {
        let raw = self.take_scalar()?;
        Ok(raw.and_then(|raw| raw.parse().ok()).filter(|number: &f64| number.is_finite()))
    }

    /// Takes a whole number; one written as a fraction of nothing (`12.0`) too.
    pub fn take_i64(&mut self) -> Walk<Option<i64>> {
        Ok(self.take_scalar()?.and_then(|raw| {
            let whole = raw.split_once('.').filter(|(_, part)| part.bytes().all(|b| b == b'0'));
            whole.map_or(raw, |(whole, _)| whole).parse().ok()
        }))
    }

    /// Takes a whole number that is not negative.
    pub fn take_u64(&mut self) -> Walk<Option<u64>> {
        Ok(self.take_i64()?.and_then(|number| u64::try_from(number).ok()))
    }

    /// Takes a whole number of 32 bits that is not negative.
    pub fn take_u32(&mut self) -> Walk<Option<u32>> {
        Ok(self.take_i64()?.and_then(|number| u32::try_from(number).ok()))
    }

    /// Takes a truth value, `1` and `0` too.
    pub fn take_bool(&mut self) -> Walk<Option<bool>> {
        Ok(match self.take_scalar()? {
            Some("true" | "True" | "1") => Some(true),
            Some("false" | "False" | "0") => Some(false),
            _ => None,
        })
    }

    /// Takes any value and says whether it says anything: is not null, `false`, 0 and not empty.
    pub fn take_truth(&mut self) -> Walk<bool> {
        match self.kind()? {
            Kind::Text => Ok(!self.text()?.raw().is_empty()),
            Kind::Bool | Kind::Number | Kind::Null => {
                Ok(!matches!(self.scalar()?, b"null" | b"false" | b"0" | b"0.0"))
            }
            Kind::Object | Kind::Array => {
                self.at += 1;
                let truth = !matches!(self.peek()?, b']' | b'}');
                self.leave(1)?;
                Ok(truth)
            }
        }
    }

    /// Passes any value.
    pub fn skip(&mut self) -> Walk {
        match self.kind()? {
            Kind::Text if self.text()?.whole() => Ok(()),
            Kind::Text => Err(Stop::Cut),
            Kind::Object | Kind::Array => self.leave(0),
            Kind::Bool | Kind::Number | Kind::Null => self.scalar().map(drop),
        }
    }

    /// Passes values up to the end of the container that `depth` openings are already behind.
    fn leave(&mut self, mut depth: usize) -> Walk {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let mark = rest.iter().position(|b| matches!(b, b'"' | b'[' | b']' | b'{' | b'}'));
            self.at += mark.ok_or(Stop::Cut)?;
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    if !self.text()?.whole() {
                        return Err(Stop::Cut);
                    }
                    continue;
                }
                Some(b'[' | b'{') => depth += 1,
                _ => depth = depth.saturating_sub(1),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Takes any value as the bytes it is written in. Of one that is cut, what there is.
    pub fn take_raw(&mut self) -> &'a [u8] {
        let start = match self.peek() {
            Ok(_) => self.at,
            Err(_) => return &[],
        };
        let end = if self.skip().is_ok() { self.at } else { self.bytes.len() };
        self.bytes.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
