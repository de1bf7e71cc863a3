//! Strings as they are written in JSON.

use std::borrow::Cow;

use crate::wire;

/// A string between its quotes, escapes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
    whole: bool,
}

impl<'a> Text<'a> {
    /// A whole string.
    pub(super) fn new(raw: &'a [u8], escaped: bool) -> Self {
        Self { raw, escaped, whole: true }
    }

    /// A string whose end is missing.
    pub(super) fn cut(raw: &'a [u8]) -> Self {
        Self { raw, escaped: true, whole: false }
    }

    /// The bytes as written. Keys are compared by them: nobody escapes a letter of a key.
    pub fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// Whether its end was there.
    pub fn whole(self) -> bool {
        self.whole
    }

    /// Whether it is written as nothing.
    pub fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// The text. What is no UTF-8, and half of a surrogate pair, is read as U+FFFD; what is cut at the end
    /// in the middle of a character is left out.
    pub fn decode(self) -> Cow<'a, str> {
        let raw = if self.whole { self.raw } else { without_torn_end(self.raw) };
        if self.escaped { Cow::Owned(unescape(raw)) } else { wire::text(raw) }
    }

    /// The first `chars` characters of the text; no more of it is looked at than that needs.
    pub fn prefix(self, chars: usize) -> Cow<'a, str> {
        // The longest way to write one character: a surrogate pair, twelve bytes.
        let most = chars.saturating_mul(12);
        let text = match self.raw.get(..most) {
            Some(raw) if raw.len() < self.raw.len() => Self { raw, whole: false, ..self }.decode(),
            _ => self.decode(),
        };
        match text.char_indices().nth(chars) {
            None => text,
            Some((end, _)) => match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.get(..end).unwrap_or_default()),
                Cow::Owned(mut text) => {
                    text.truncate(end);
                    Cow::Owned(text)
                }
            },
        }
    }
}

/// Bytes without the character or escape that their end tears.
fn without_torn_end(raw: &[u8]) -> &[u8] {
    let from = raw.len().saturating_sub(12);
    let tail = raw.get(from..).unwrap_or_default();
    let torn = tail.iter().rposition(|&b| b == b'\\').filter(|&at| {
        let slashes =
            raw.get(..from + at).unwrap_or_default().iter().rev().take_while(|&&b| b == b'\\').count();
        let escape = tail.get(at..).unwrap_or_default();
        slashes % 2 == 0 && (escape.len() < 2 || (escape.starts_with(b"\\u") && escape.len() < 6))
    });
    if let Some(at) = torn {
        return raw.get(..from + at).unwrap_or_default();
    }
    match raw.get(raw.len().saturating_sub(4)..).unwrap_or_default().utf8_chunks().last() {
        // A chunk's invalid part at the very end may be the start of a character.
        Some(chunk) if is_torn(chunk.invalid()) => {
            raw.get(..raw.len() - chunk.invalid().len()).unwrap_or_default()
        }
        _ => raw,
    }
}

/// Whether these bytes, at the end of a text, may start a character of UTF-8.
fn is_torn(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn unescape(raw: &[u8]) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        text.push_str(&wire::text(plain));
        let (char, len) = escaped(escape);
        text.push(char);
        rest = escape.get(len..).unwrap_or_default();
    }
    text.push_str(&wire::text(rest));
    text
}

/// The character that an escape stands for, and the escape's length.
fn escaped(escape: &[u8]) -> (char, usize) {
    let plain = match escape.get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(&other @ (b'"' | b'\\' | b'/')) => char::from(other),
        Some(b'u') => return unicode(escape),
        Some(_) | None => return (char::REPLACEMENT_CHARACTER, 2),
    };
    (plain, 2)
}

fn unicode(escape: &[u8]) -> (char, usize) {
    let Some(high) = hex4(escape.get(2..6)) else { return (char::REPLACEMENT_CHARACTER, 2) };
    if let Some(char) = char::from_u32(high) {
        return (char, 6);
    }
    let low = match escape.get(6..8) {
        Some(b"\\u") => hex4(escape.get(8..12)),
        _ => None,
    };
    match low {
        Some(low @ 0xDC00..=0xDFFF) if high < 0xDC00 => {
            let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
        }
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}

fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}
