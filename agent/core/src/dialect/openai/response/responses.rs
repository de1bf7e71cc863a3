//! OpenAI's Responses API.

use super::speech::{Speech, take_call_field};
use super::{FINISH, Reader, take_name, take_usage};
use crate::dialect::signal::{ApiDelta, ToolCall};
use crate::wire::json::{Kind, Scanner, Text, Walk};

/// Reads a body: a response, or an error.
pub fn body(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    let mut speech = Speech::default();
    let walked = take_response(reader, s, true, delta, &mut speech);
    delta.choices.extend((!speech.is_empty()).then(|| speech.finish(0)));
    walked
}

/// Takes a response object. Its output is read where it is not a repetition (`output`).
fn take_response(
    reader: Reader,
    s: &mut Scanner<'_>,
    output: bool,
    delta: &mut ApiDelta,
    speech: &mut Speech,
) -> Walk {
    let (mut status, mut reason) = (None, None);
    let walked = s.object(|s, key| match key.raw() {
        b"id" => take_name(s).map(|id| delta.id = id),
        b"model" => take_name(s).map(|model| delta.model = model),
        b"usage" => take_usage(s).map(|usage| delta.usage = usage),
        b"error" => reader.take_error(s).map(|error| delta.error = error),
        b"status" => s.take_whole_text().map(|text| status = text),
        b"incomplete_details" => s.object(|s, key| match key.raw() {
            b"reason" => s.take_whole_text().map(|text| reason = text),
            _ => s.skip(),
        }),
        b"output" if output => s.array(|s| take_item(reader, s, speech)),
        _ => s.skip(),
    });
    speech.finish = finish(status, reason);
    walked
}

/// Why it ended, by its status: `None` while it runs.
fn finish(status: Option<Text<'_>>, reason: Option<Text<'_>>) -> Option<String> {
    let status = status.map(Text::raw).filter(|&status| status != b"in_progress" && status != b"queued")?;
    let word = if status == b"incomplete" { reason.map_or(status, Text::raw) } else { status };
    let known = FINISH.iter().find(|(theirs, _)| *theirs == word);
    Some(known.map_or_else(|| String::from_utf8_lossy(word).into_owned(), |(_, ours)| (*ours).to_owned()))
}

/// Takes an item of the output: a message, reasoning, or a tool call.
fn take_item(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    let mut item =
        Item { call: ToolCall { index: speech.next_call(), ..ToolCall::default() }, ..Item::default() };
    let walked = s.object(|s, key| match key.raw() {
        b"type" => s.take_whole_text().map(|kind| item.kind = kind.map_or(b"", Text::raw)),
        b"content" | b"summary" => s.array(|s| take_piece(reader, s, speech)),
        _ => take_call_field(reader, s, key.raw(), &mut item.call),
    });
    if item.is_call() {
        speech.call(item.call);
    }
    walked
}

/// An item, its type wherever it stands.
#[derive(Debug, Default)]
struct Item<'a> {
    kind: &'a [u8],
    call: ToolCall,
}

impl Item<'_> {
    fn is_call(&self) -> bool {
        matches!(self.kind, b"function_call" | b"custom_tool_call" | b"mcp_call")
    }
}

/// Takes a piece of an item: `{"type":"output_text","text":".."}`, `{"type":"reasoning_text","text":".."}`.
fn take_piece(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    let (mut kind, mut text): (&[u8], _) = (b"", None);
    let walked = s.object(|s, key| match key.raw() {
        b"type" => s.take_whole_text().map(|found| kind = found.map_or(b"", Text::raw)),
        b"text" | b"refusal" => s.take_text().map(|found| text = found),
        _ => s.skip(),
    });
    match (kind, text) {
        (_, None) => {}
        (b"reasoning_text" | b"summary_text", Some(text)) => speech.reasoning(reader, text),
        (_, Some(text)) => speech.text(reader, text),
    }
    walked
}

/// Reads an event. Its type is the last of its fields, so the others are kept until it is known.
pub fn event<'a>(reader: Reader, s: &mut Scanner<'a>, name: Option<&'a [u8]>, delta: &mut ApiDelta) -> Walk {
    let mut speech = Speech::default();
    let mut parts = Parts { kind: name.unwrap_or_default(), ..Parts::default() };
    let walked = s.object(|s, key| match key.raw() {
        b"type" => s.take_whole_text().map(|kind| parts.kind = kind.map_or(parts.kind, Text::raw)),
        b"delta" => s.take_text().map(|text| parts.delta = text),
        b"output_index" => s.take_u32().map(|index| parts.index = index),
        b"response" => take_response(reader, s, false, delta, &mut speech),
        b"item" => s.object(|s, key| match key.raw() {
            b"type" => s.take_whole_text().map(|kind| parts.item.kind = kind.map_or(b"", Text::raw)),
            b"arguments" | b"function" => s.skip(),
            _ => take_call_field(reader, s, key.raw(), &mut parts.item.call),
        }),
        b"message" | b"code" => reader.take_error_field(s, key.raw(), &mut parts.error).map(drop),
        b"error" if s.kind()? == Kind::Object => reader.take_error(s).map(|error| delta.error = error),
        _ => s.skip(),
    });
    parts.tell(reader, delta, &mut speech);
    delta.choices.extend((!speech.is_empty()).then(|| speech.finish(0)));
    walked
}

/// The parts of an event.
#[derive(Debug, Default)]
struct Parts<'a> {
    kind: &'a [u8],
    delta: Option<Text<'a>>,
    index: Option<u32>,
    item: Item<'a>,
    error: crate::dialect::signal::ApiError,
}

impl Parts<'_> {
    fn tell(self, reader: Reader, delta: &mut ApiDelta, speech: &mut Speech) {
        let index = self.index.unwrap_or(0);
        match (self.kind, self.delta) {
            (b"response.output_text.delta" | b"response.refusal.delta", Some(text)) => {
                speech.text(reader, text)
            }
            (b"response.reasoning_text.delta" | b"response.reasoning_summary_text.delta", Some(text)) => {
                speech.reasoning(reader, text);
            }
            (
                b"response.function_call_arguments.delta"
                | b"response.custom_tool_call_input.delta"
                | b"response.mcp_call_arguments.delta",
                Some(text),
            ) => {
                let arguments = reader.collect.texts.then(|| text.decode().into_owned());
                speech.call(ToolCall { index, arguments, ..ToolCall::default() });
            }
            (b"response.output_item.added", None) if self.item.is_call() => {
                speech.call(ToolCall { index, ..self.item.call });
            }
            (b"error", None) => {
                delta.error.get_or_insert(self.error);
            }
            _ => {}
        }
        delta.done = matches!(
            self.kind,
            b"response.completed" | b"response.incomplete" | b"response.failed" | b"response.cancelled"
        );
    }
}
