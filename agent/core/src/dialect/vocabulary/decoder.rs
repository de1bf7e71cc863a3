//! How a tokenizer's pieces are made text again (`tokenizers::decoders`).

use crate::wire::json::{Scanner, Text, Walk};

/// The steps, in the file's order. One of a kind nobody knows leaves pieces as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoder {
    steps: Vec<Step>,
}

/// Most steps kept.
const MOST_STEPS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Every byte is written as a printable character of its own (GPT-2's table).
    ByteLevel,
    /// `<0x0A>` is a byte.
    ByteFallback,
    /// One text stands for another: `▁` for a blank, `</w>` at a word's end too.
    Replace { from: String, to: String },
    /// A word's first piece comes after a blank, the others have a mark in front (`##`).
    WordPiece { prefix: String },
}

impl Decoder {
    /// Takes the file's `decoder`: a step, or a sequence of them.
    pub fn take(&mut self, s: &mut Scanner<'_>) -> Walk {
        let mut fields = Fields::default();
        let mut parts = Self::default();
        s.object(|s, key| match key.raw() {
            b"decoders" => s.array(|s| parts.take_step(s)),
            _ => fields.take(s, key.raw()),
        })?;
        self.steps.extend(fields.step());
        self.steps.append(&mut parts.steps);
        Ok(())
    }

    fn take_step(&mut self, s: &mut Scanner<'_>) -> Walk {
        let mut fields = Fields::default();
        s.object(|s, key| fields.take(s, key.raw()))?;
        if self.steps.len() < MOST_STEPS {
            self.steps.extend(fields.step());
        }
        Ok(())
    }

    /// Writes the bytes that a piece stands for into `out`.
    pub fn decode(&self, piece: &str, out: &mut Vec<u8>) {
        out.clear();
        let mut text = std::borrow::Cow::Borrowed(piece);
        for step in &self.steps {
            match step {
                Step::ByteLevel => return by_level(&text, out),
                Step::ByteFallback => {
                    if let Some(byte) = fallback(&text) {
                        return out.push(byte);
                    }
                }
                Step::Replace { from, to } => {
                    if text.contains(from.as_str()) {
                        text = text.replace(from.as_str(), to).into();
                    }
                }
                Step::WordPiece { prefix } => {
                    text = match text.strip_prefix(prefix.as_str()) {
                        Some(rest) => rest.to_owned().into(),
                        None => format!(" {text}").into(),
                    };
                }
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
}

/// The fields of a step, in any order.
#[derive(Debug, Default)]
struct Fields<'a> {
    kind: &'a [u8],
    pattern: Option<String>,
    content: Option<String>,
    replacement: Option<String>,
    prefix: Option<String>,
    suffix: Option<String>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, s: &mut Scanner<'a>, key: &[u8]) -> Walk {
        match key {
            b"type" => self.kind = s.take_whole_text()?.map_or(b"", Text::raw),
            b"content" => self.content = take(s)?,
            b"replacement" => self.replacement = take(s)?,
            b"prefix" => self.prefix = take(s)?,
            b"suffix" => self.suffix = take(s)?,
            b"pattern" => s.object(|s, key| match key.raw() {
                b"String" => take(s).map(|pattern| self.pattern = pattern),
                _ => s.skip(),
            })?,
            _ => s.skip()?,
        }
        Ok(())
    }

    fn step(self) -> Option<Step> {
        match self.kind {
            b"ByteLevel" => Some(Step::ByteLevel),
            b"ByteFallback" => Some(Step::ByteFallback),
            b"Metaspace" => Some(Step::Replace { from: or(self.replacement, "▁"), to: " ".to_owned() }),
            b"Replace" => {
                Some(Step::Replace { from: self.pattern.filter(|p| !p.is_empty())?, to: self.content? })
            }
            b"WordPiece" => Some(Step::WordPiece { prefix: or(self.prefix, "##") }),
            b"BPEDecoder" => Some(Step::Replace { from: or(self.suffix, "</w>"), to: " ".to_owned() }),
            // Fuse and Strip are about the text as a whole; CTC is of speech.
            _ => None,
        }
    }
}

/// What is written, or else the default.
fn or(written: Option<String>, default: &str) -> String {
    written.filter(|written| !written.is_empty()).unwrap_or_else(|| default.to_owned())
}

fn take(s: &mut Scanner<'_>) -> Walk<Option<String>> {
    Ok(s.take_whole_text()?.map(|text| text.prefix(256).into_owned()))
}

/// The byte of `<0x0A>`.
fn fallback(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Bytes written as characters. A piece with a character that stands for no byte is text as it is.
fn by_level(piece: &str, out: &mut Vec<u8>) {
    for char in piece.chars() {
        let Some(byte) = byte_of(char) else {
            out.clear();
            return out.extend_from_slice(piece.as_bytes());
        };
        out.push(byte);
    }
}

/// GPT-2's table: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and on, in order.
fn byte_of(char: char) -> Option<u8> {
    match u32::from(char) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x143 => u8::try_from(match code - 0x100 {
            nth @ 0..=0x20 => nth,
            nth @ 0x21..=0x42 => nth - 0x21 + 0x7f,
            _ => 0xad,
        })
        .ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = ('\0'..='\u{fff}').filter_map(byte_of).collect();
        assert_eq!(bytes.len(), 256);
        bytes.sort_unstable();
        assert!(bytes.iter().enumerate().all(|(n, &byte)| n == usize::from(byte)));
    }
}
