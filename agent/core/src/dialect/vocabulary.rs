//! The texts of tokens, read from a Hugging Face `tokenizer.json`.
//!
//! Only what it takes to write one token of a running text: the vocabulary, the added tokens and the
//! decoder. Each piece is decoded once, when the file is read, and kept as bytes in one arena.
//!
//! A piece stands in the middle of a text: a word's leading blank is kept where the whole text's decoder
//! would take it off the very first word. A token may hold a part of a character; [`Vocabulary::bytes`] gives
//! it as it is, [`Vocabulary::text`] with U+FFFD in its place.

mod decoder;

use std::borrow::Cow;

use crate::wire::json::{Kind, Scanner, Stop, Walk};
use decoder::Decoder;

/// Largest id kept, plus one: several times the largest vocabularies known (256 k).
const MOST_TOKENS: u32 = 1 << 21;
/// Most bytes of all pieces together.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Token ids and their texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    arena: Vec<u8>,
    /// By id: where its piece is. An id that is not there has an empty place before the arena's start.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// One past the start, so that zero is nowhere.
    start: u32,
    len: u32,
}

/// Why a `tokenizer.json` gives no vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    /// It ends early.
    #[error("the tokenizer file ends early; token texts are left out of iteration events")]
    Cut,
    /// It is no JSON.
    #[error("the tokenizer file is no JSON; token texts are left out of iteration events")]
    Syntax,
    /// It has no vocabulary that we know how to read.
    #[error(
        "the tokenizer file has no vocabulary of a known form; token texts are left out of iteration events"
    )]
    NoVocabulary,
}

impl From<Stop> for VocabularyError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Cut => Self::Cut,
            Stop::Syntax => Self::Syntax,
        }
    }
}

impl Vocabulary {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// When it is cut or no JSON, or has no vocabulary.
    pub fn read(json: &[u8]) -> Result<Self, VocabularyError> {
        let mut decoder = Decoder::default();
        Scanner::new(json).object(|s, key| match key.raw() {
            b"decoder" => decoder.take(s),
            _ => s.skip(),
        })?;
        let mut vocabulary = Self::default();
        let mut added = Vec::new();
        Scanner::new(json).object(|s, key| match key.raw() {
            b"model" => vocabulary.take_model(s, &decoder),
            b"added_tokens" => take_added(s, &mut added),
            _ => s.skip(),
        })?;
        if vocabulary.places.is_empty() {
            return Err(VocabularyError::NoVocabulary);
        }
        // Added tokens go before those of the model, whatever their order in the file.
        for (id, content) in added {
            vocabulary.put(id, content.as_bytes());
        }
        vocabulary.arena.shrink_to_fit();
        vocabulary.places.shrink_to_fit();
        Ok(vocabulary)
    }

    /// A token's bytes.
    #[must_use]
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        let place = self.places.get(usize::try_from(id).ok()?)?;
        let start = usize::try_from(place.start.checked_sub(1)?).ok()?;
        self.arena.get(start..start.checked_add(usize::try_from(place.len).ok()?)?)
    }

    /// A token's text; what is no character by itself is U+FFFD.
    #[must_use]
    pub fn text(&self, id: u32) -> Option<Cow<'_, str>> {
        self.bytes(id).map(String::from_utf8_lossy)
    }

    /// How many ids it spans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.arena.capacity() + self.places.capacity() * size_of::<Place>()
    }

    fn take_model(&mut self, s: &mut Scanner<'_>, decoder: &Decoder) -> Walk {
        let mut piece = Vec::new();
        s.object(|s, key| match (key.raw(), s.kind()?) {
            // BPE, WordPiece, WordLevel: {"piece": id}.
            (b"vocab", Kind::Object) => s.object(|s, key| {
                let id = s.take_u32()?;
                decoder.decode(&key.decode(), &mut piece);
                if let Some(id) = id {
                    self.put(id, &piece);
                }
                Ok(())
            }),
            // Unigram: [["piece", score]], the id being the place.
            (b"vocab", Kind::Array) => {
                let mut id = 0;
                s.array(|s| {
                    let mut first = true;
                    s.array(|s| {
                        if !std::mem::take(&mut first) {
                            return s.skip();
                        }
                        if let Some(text) = s.take_whole_text()? {
                            decoder.decode(&text.decode(), &mut piece);
                            self.put(id, &piece);
                        }
                        Ok(())
                    })?;
                    id = id.saturating_add(1);
                    Ok(())
                })
            }
            _ => s.skip(),
        })
    }

    /// Puts a piece in its place. What goes beyond the bounds is left out.
    fn put(&mut self, id: u32, piece: &[u8]) {
        let Ok(place) = usize::try_from(id) else { return };
        let start = u32::try_from(self.arena.len()).ok().and_then(|start| start.checked_add(1));
        let (Some(start), Ok(len)) = (start, u32::try_from(piece.len())) else { return };
        if id >= MOST_TOKENS || self.arena.len().saturating_add(piece.len()) > MOST_BYTES {
            return;
        }
        if place >= self.places.len() {
            self.places.resize(place + 1, Place::default());
        }
        if let Some(place) = self.places.get_mut(place) {
            *place = Place { start, len };
            self.arena.extend_from_slice(piece);
        }
    }
}

/// Takes the added tokens: `[{"id":0,"content":"<s>",..}]`.
fn take_added(s: &mut Scanner<'_>, added: &mut Vec<(u32, String)>) -> Walk {
    s.array(|s| {
        let (mut id, mut content) = (None, None);
        s.object(|s, key| match key.raw() {
            b"id" => s.take_u32().map(|found| id = found),
            b"content" => {
                s.take_whole_text().map(|text| content = text.map(|text| text.decode().into_owned()))
            }
            _ => s.skip(),
        })?;
        added.extend(id.zip(content));
        Ok(())
    })
}

#[cfg(test)]
mod tests;
