//! Messages and their parts, in the forms of the OpenAI, Anthropic and Cohere APIs.

use super::{Budget, CALL_COST, Conversation, Message, PART_COST, Part, ROLE_LIMIT};
use crate::wire::json::{Kind, Scanner, Text, Walk};

impl Conversation {
    /// Takes one message. `role` is of a message that names none.
    pub(super) fn take_message(&mut self, s: &mut Scanner<'_>, role: &str) -> Walk {
        if self.budget.left == 0 {
            return s.skip();
        }
        let mut draft = Draft::default();
        let walked = s.object(|s, key| self.take_message_field(s, key.raw(), &mut draft));
        let message = draft.finish(role, &mut self.budget);
        self.push(message);
        walked
    }

    fn take_message_field<'a>(&mut self, s: &mut Scanner<'a>, key: &[u8], draft: &mut Draft<'a>) -> Walk {
        match key {
            b"role" => draft.role = s.take_whole_text()?.map(|role| role.prefix(ROLE_LIMIT).into_owned()),
            b"tool_call_id" => draft.call_id = s.take_text()?,
            b"content" => self.take_parts(s, &mut draft.parts)?,
            b"reasoning" | b"reasoning_content" => {
                if let Some(text) = s.take_text()?.filter(|text| !text.is_empty())
                    && self.budget.open(PART_COST)
                {
                    draft.parts.push(Part::Reasoning { content: self.budget.text(text) });
                }
            }
            b"tool_calls" => s.array(|s| {
                let mut fields = Fields { kind: b"tool_use", ..Fields::default() };
                let walked = s.object(|s, key| fields.take_call_field(s, key.raw()));
                draft.parts.extend(fields.finish(&mut self.budget));
                walked
            })?,
            // An item of the Responses API that is no message: its fields are those of a part.
            _ => draft.item.take(s, key)?,
        }
        Ok(())
    }

    /// Takes a message's content: a text, or a list of parts.
    pub(super) fn take_parts(&mut self, s: &mut Scanner<'_>, parts: &mut Vec<Part>) -> Walk {
        match s.kind()? {
            Kind::Text => {
                if let Some(text) = s.take_text()?
                    && self.budget.open(PART_COST)
                {
                    parts.push(Part::Text { content: self.budget.text(text) });
                }
                Ok(())
            }
            Kind::Array => s.array(|s| self.take_part(s, parts)),
            Kind::Object | Kind::Bool | Kind::Number | Kind::Null => s.skip(),
        }
    }

    fn take_part(&mut self, s: &mut Scanner<'_>, parts: &mut Vec<Part>) -> Walk {
        if self.budget.left == 0 {
            return s.skip();
        }
        let mut fields = Fields::default();
        let walked = match s.kind()? {
            Kind::Text => s.take_text().map(|text| fields.text = text),
            Kind::Object | Kind::Array | Kind::Bool | Kind::Number | Kind::Null => {
                s.object(|s, key| fields.take(s, key.raw()))
            }
        };
        parts.extend(fields.finish(&mut self.budget));
        walked
    }
}

/// A message as it is found: its fields come in any order.
#[derive(Debug, Default)]
struct Draft<'a> {
    role: Option<String>,
    call_id: Option<Text<'a>>,
    parts: Vec<Part>,
    item: Fields<'a>,
}

impl Draft<'_> {
    fn finish(self, role: &str, budget: &mut Budget) -> Message {
        let Self { role: named, call_id, mut parts, item } = self;
        let by_kind = match item.kind {
            b"function_call" | b"reasoning" | b"mcp_call" | b"custom_tool_call" => "assistant",
            b"function_call_output" | b"custom_tool_call_output" => "tool",
            _ => role,
        };
        parts.extend(item.finish(budget));
        if let Some(call_id) = call_id {
            let id = budget.text(call_id);
            parts = parts.into_iter().map(|part| answer(part, &id)).collect();
        }
        Message { role: named.unwrap_or_else(|| by_kind.to_owned()), parts }
    }
}

/// A part of a tool's message is the tool's answer.
fn answer(part: Part, id: &str) -> Part {
    match part {
        Part::Text { content } => Part::ToolCallResponse { id: id.to_owned(), response: content },
        other @ (Part::Reasoning { .. }
        | Part::TokenIds { .. }
        | Part::ToolCall { .. }
        | Part::ToolCallResponse { .. }
        | Part::Uri { .. }
        | Part::Blob { .. }) => other,
    }
}

/// The fields of a part, whatever its type.
#[derive(Debug, Default)]
struct Fields<'a> {
    kind: &'a [u8],
    text: Option<Text<'a>>,
    url: Option<Text<'a>>,
    id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    raw: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, s: &mut Scanner<'a>, key: &[u8]) -> Walk {
        match key {
            b"type" => self.kind = s.take_whole_text()?.map_or(b"", Text::raw),
            b"text" | b"thinking" | b"refusal" => self.text = s.take_text()?,
            b"image_url" | b"video_url" | b"audio_url" | b"source" | b"image" => self.take_url(s)?,
            b"id" if self.id.is_some() => s.skip()?,
            b"id" | b"call_id" | b"tool_use_id" => self.id = s.take_text()?,
            b"name" => self.name = s.take_text()?,
            b"arguments" | b"input" | b"content" | b"output" | b"summary" => self.take_value(s)?,
            _ => s.skip()?,
        }
        Ok(())
    }

    /// Takes a field of a tool call of the chat API: `{"id":..,"function":{"name":..,"arguments":..}}`.
    fn take_call_field(&mut self, s: &mut Scanner<'a>, key: &[u8]) -> Walk {
        match key {
            b"function" => s.object(|s, key| self.take_call_field(s, key.raw())),
            b"type" => s.skip(),
            _ => self.take(s, key),
        }
    }

    /// A text as it is, anything else as the JSON it is written in.
    fn take_value(&mut self, s: &mut Scanner<'a>) -> Walk {
        if s.kind()? == Kind::Text {
            self.text = s.take_text()?;
        } else {
            self.raw = Some(s.take_raw());
        }
        Ok(())
    }

    fn take_url(&mut self, s: &mut Scanner<'a>) -> Walk {
        if s.kind()? == Kind::Text {
            self.url = s.take_text()?;
            return Ok(());
        }
        s.object(|s, key| match key.raw() {
            b"url" => s.take_text().map(|url| self.url = url),
            _ => s.skip(),
        })
    }

    fn finish(self, budget: &mut Budget) -> Option<Part> {
        match self.kind {
            b"image_url" | b"input_image" | b"image" => self.media("image", budget),
            b"input_audio" | b"audio_url" => self.media("audio", budget),
            b"video_url" => self.media("video", budget),
            b"file" | b"input_file" | b"document" => self.media("file", budget),
            b"tool_use" | b"function_call" | b"custom_tool_call" | b"mcp_call" => self.call(budget),
            b"tool_result" | b"function_call_output" | b"custom_tool_call_output" => self.result(budget),
            b"thinking" | b"reasoning" | b"reasoning_text" => self.reasoning(budget),
            _ => self.plain(budget),
        }
    }

    fn plain(self, budget: &mut Budget) -> Option<Part> {
        let text = self.text?;
        budget.open(PART_COST).then(|| Part::Text { content: budget.text(text) })
    }

    fn reasoning(self, budget: &mut Budget) -> Option<Part> {
        if !budget.open(PART_COST) {
            return None;
        }
        Some(Part::Reasoning { content: self.value(budget) })
    }

    fn call(self, budget: &mut Budget) -> Option<Part> {
        if !budget.open(CALL_COST) {
            return None;
        }
        let id = self.id.map(|id| budget.text(id)).unwrap_or_default();
        let name = self.name.map(|name| budget.text(name)).unwrap_or_default();
        Some(Part::ToolCall { id, name, arguments: self.value(budget) })
    }

    fn result(self, budget: &mut Budget) -> Option<Part> {
        if !budget.open(CALL_COST) {
            return None;
        }
        let id = self.id.map(|id| budget.text(id)).unwrap_or_default();
        Some(Part::ToolCallResponse { id, response: self.value(budget) })
    }

    fn value(&self, budget: &mut Budget) -> String {
        match (self.text, self.raw) {
            (Some(text), _) => budget.text(text),
            (None, Some(raw)) => budget.raw(raw),
            (None, None) => String::new(),
        }
    }

    /// An address is kept; bytes in the message itself (`data:` and base64) are not: they are no text.
    fn media(self, modality: &'static str, budget: &mut Budget) -> Option<Part> {
        if !budget.open(PART_COST + modality.len()) {
            return None;
        }
        Some(match self.url {
            Some(url) if !url.raw().starts_with(b"data:") => Part::Uri { modality, uri: budget.text(url) },
            Some(_) | None => Part::Blob { modality },
        })
    }
}
