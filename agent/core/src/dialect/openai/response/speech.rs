//! What is said of one candidate, as it is found.

use super::{MANY, Reader};
use crate::dialect::signal::{ChoiceDelta, ToolCall};
use crate::wire::json::{Scanner, Text, Walk};

/// A candidate's part of a response.
#[derive(Debug, Default)]
pub struct Speech {
    /// Which candidate; `None` where the API has but one, or did not say.
    pub index: Option<u32>,
    /// The request inside the engine that made it, where the API names each one's.
    pub id: Option<String>,
    /// Why it ended.
    pub finish: Option<String>,
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    spoke: bool,
}

impl Speech {
    /// Takes text of the answer.
    pub fn take_text(&mut self, reader: Reader, s: &mut Scanner<'_>) -> Walk {
        if let Some(text) = s.take_text()? {
            self.text(reader, text);
        }
        Ok(())
    }

    /// Takes text of the reasoning.
    pub fn take_reasoning(&mut self, reader: Reader, s: &mut Scanner<'_>) -> Walk {
        if let Some(text) = s.take_text()? {
            self.reasoning(reader, text);
        }
        Ok(())
    }

    /// Adds text of the answer.
    pub fn text(&mut self, reader: Reader, text: Text<'_>) {
        self.spoke |= !text.is_empty();
        append(&mut self.text, reader, text);
    }

    /// Adds text of the reasoning.
    pub fn reasoning(&mut self, reader: Reader, text: Text<'_>) {
        self.spoke |= !text.is_empty();
        append(&mut self.reasoning, reader, text);
    }

    /// Tokens came, though no text of them was sent.
    pub fn tokens(&mut self, any: bool) {
        self.spoke |= any;
    }

    /// Text was said, but what of it is new will be told later.
    pub fn forget_text(&mut self) {
        self.text.clear();
    }

    /// Adds a tool call, or a part of one.
    pub fn call(&mut self, call: ToolCall) {
        if self.calls.len() < MANY {
            self.calls.push(call);
        }
    }

    /// The place of the next tool call, where the API gives none.
    pub fn next_call(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap_or(u32::MAX)
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        !self.spoke && self.finish.is_none() && self.calls.is_empty()
    }

    /// The whole of it. `position` is its place in the list of candidates.
    pub fn finish(self, position: u32) -> ChoiceDelta {
        let Self { index, id, finish, mut text, mut reasoning, calls, spoke } = self;
        let reasoned = reasoning.len();
        if reasoned > 0 {
            reasoning.push_str(&text);
            text = reasoning;
        }
        ChoiceDelta {
            id,
            index: index.unwrap_or(position),
            text: spoke.then_some(text),
            reasoning: reasoned,
            finish_reason: finish,
            tool_calls: calls,
        }
    }
}

fn append(to: &mut String, reader: Reader, text: Text<'_>) {
    if !reader.collect.texts {
        return;
    }
    if to.is_empty() {
        *to = text.prefix(reader.texts).into_owned();
    } else {
        let left = reader.texts.saturating_sub(to.chars().count());
        to.push_str(&text.prefix(left));
    }
}

/// Takes a tool call of the chat API: `{"index":..,"id":..,"function":{"name":..,"arguments":..}}`.
/// Cohere's are the same.
pub fn take_call(reader: Reader, s: &mut Scanner<'_>, call: &mut ToolCall) -> Walk {
    s.object(|s, key| take_call_field(reader, s, key.raw(), call))
}

/// Takes a field of a tool call, by the names of any of the APIs.
pub fn take_call_field(reader: Reader, s: &mut Scanner<'_>, key: &[u8], call: &mut ToolCall) -> Walk {
    match key {
        b"index" => call.index = s.take_u32()?.unwrap_or(call.index),
        b"id" if call.id.is_some() => s.skip()?,
        b"id" => call.id = super::take_name(s)?,
        b"call_id" => call.id = super::take_name(s)?.or(call.id.take()),
        b"name" => call.name = super::take_name(s)?,
        b"arguments" => call.arguments = take_arguments(reader, s)?,
        b"function" => s.object(|s, key| take_call_field(reader, s, key.raw(), call))?,
        _ => s.skip()?,
    }
    Ok(())
}

/// Takes a call's arguments, or a part of them; kept where text is collected.
pub fn take_arguments(reader: Reader, s: &mut Scanner<'_>) -> Walk<Option<String>> {
    let text = s.take_text()?;
    Ok(text.filter(|_| reader.collect.texts).map(|text| text.prefix(reader.texts).into_owned()))
}
