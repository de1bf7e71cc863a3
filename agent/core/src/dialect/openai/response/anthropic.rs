//! Anthropic's Messages API.

use super::speech::{Speech, take_call_field};
use super::{Reader, take_finish, take_name};
use crate::dialect::signal::{ApiDelta, ToolCall, Usage};
use crate::wire::json::{Kind, Scanner, Text, Walk};

/// Reads a body: a message, or an error.
pub fn body(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    let mut speech = Speech::default();
    let walked = s.object(|s, key| take_message_field(reader, s, key.raw(), delta, &mut speech));
    delta.choices.extend((!speech.is_empty()).then(|| speech.finish(0)));
    walked
}

fn take_message_field(
    reader: Reader,
    s: &mut Scanner<'_>,
    key: &[u8],
    delta: &mut ApiDelta,
    speech: &mut Speech,
) -> Walk {
    match key {
        b"id" => delta.id = take_name(s)?,
        b"model" => delta.model = take_name(s)?,
        b"usage" => delta.usage = usage(s)?,
        b"stop_reason" => speech.finish = take_finish(s)?,
        b"error" => delta.error = reader.take_error(s)?,
        b"content" => {
            let mut place = 0;
            s.array(|s| {
                let walked = take_block(reader, s, place, speech);
                place += 1;
                walked
            })?;
        }
        _ => s.skip()?,
    }
    Ok(())
}

/// Reads an event. Its type is in its data and in its name; the name is asked only where the data says none.
pub fn event(reader: Reader, s: &mut Scanner<'_>, name: Option<&[u8]>, delta: &mut ApiDelta) -> Walk {
    let mut speech = Speech::default();
    let mut parts = Parts { kind: name.unwrap_or_default(), ..Parts::default() };
    let walked = s.object(|s, key| match key.raw() {
        b"type" => s.take_whole_text().map(|kind| parts.kind = kind.map_or(parts.kind, Text::raw)),
        b"message" => s.object(|s, key| take_message_field(reader, s, key.raw(), delta, &mut speech)),
        b"index" => s.take_u32().map(|index| parts.index = index),
        b"content_block" => take_block(reader, s, 0, &mut speech),
        b"delta" => s.object(|s, key| parts.take_delta_field(reader, s, key.raw(), &mut speech)),
        b"usage" => usage(s).map(|usage| delta.usage = usage),
        b"error" => reader.take_error(s).map(|error| delta.error = error),
        _ => s.skip(),
    });
    delta.done = parts.kind == b"message_stop";
    if let Some(arguments) = parts.arguments {
        speech.call(ToolCall { arguments: Some(arguments), ..ToolCall::default() });
    }
    let mut choices = (!speech.is_empty()).then(|| speech.finish(0));
    for call in choices.iter_mut().flat_map(|choice| &mut choice.tool_calls) {
        call.index = parts.index.unwrap_or(call.index);
    }
    delta.choices.extend(choices);
    walked
}

/// The parts of an event, in whatever order they come.
#[derive(Debug, Default)]
struct Parts<'a> {
    kind: &'a [u8],
    index: Option<u32>,
    arguments: Option<String>,
}

impl Parts<'_> {
    fn take_delta_field(
        &mut self,
        reader: Reader,
        s: &mut Scanner<'_>,
        key: &[u8],
        speech: &mut Speech,
    ) -> Walk {
        match key {
            b"text" => speech.take_text(reader, s)?,
            b"thinking" => speech.take_reasoning(reader, s)?,
            b"partial_json" => self.arguments = super::speech::take_arguments(reader, s)?,
            b"stop_reason" => speech.finish = take_finish(s)?,
            _ => s.skip()?,
        }
        Ok(())
    }
}

/// Takes a content block: text, thinking, or a tool call (`tool_use`).
fn take_block(reader: Reader, s: &mut Scanner<'_>, place: u32, speech: &mut Speech) -> Walk {
    let mut call = ToolCall { index: place, ..ToolCall::default() };
    let mut is_call = false;
    let walked = s.object(|s, key| match key.raw() {
        b"type" => {
            s.take_whole_text().map(|kind| is_call = kind.is_some_and(|kind| kind.raw() == b"tool_use"))
        }
        b"text" => speech.take_text(reader, s),
        b"thinking" => speech.take_reasoning(reader, s),
        // An empty object stands for arguments that are to come.
        b"input" => {
            let raw = s.take_raw();
            let texts = reader.collect.texts && raw != b"{}";
            call.arguments = texts.then(|| String::from_utf8_lossy(raw).chars().take(reader.texts).collect());
            Ok(())
        }
        _ => take_call_field(reader, s, key.raw(), &mut call),
    });
    if is_call {
        speech.call(call);
    }
    walked
}

/// Takes token counts. Anthropic's input tokens leave out those that came from the cache; here they are
/// counted in, as everywhere else.
fn usage(s: &mut Scanner<'_>) -> Walk<Option<Usage>> {
    let (mut usage, mut written) = (Usage::default(), None);
    if s.kind()? != Kind::Object {
        return s.skip().map(|()| None);
    }
    s.object(|s, key| match key.raw() {
        b"cache_read_input_tokens" => s.take_u64().map(|cached| usage.cached = cached),
        b"cache_creation_input_tokens" => s.take_u64().map(|n| written = n),
        key => super::take_usage_field(s, key, &mut usage),
    })?;
    let outside = usage.cached.unwrap_or(0).saturating_add(written.unwrap_or(0));
    usage.prompt = usage.prompt.map(|prompt| prompt.saturating_add(outside));
    Ok(Some(usage))
}
