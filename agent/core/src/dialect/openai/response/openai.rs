//! The OpenAI API's own: chat, completions, embeddings, and vLLM's scores, in bodies and events alike.

use super::chat::take_choice_field;
use super::speech::Speech;
use super::{MANY, Reader, take_name, take_usage};
use crate::dialect::signal::{ApiDelta, ApiError};
use crate::wire::json::{Kind, Scanner, Walk};

/// Reads a body or an event. Vectors, scores and logprobs are passed unread.
pub fn message(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    // Before 0.10 an error is the body itself: `{"object":"error","message":..,"type":..,"code":..}`.
    let (mut flat, mut is_error) = (ApiError::default(), false);
    let walked = s.object(|s, key| match key.raw() {
        b"id" | b"request_id" => take_name(s).map(|id| delta.id = id.or(delta.id.take())),
        b"model" => take_name(s).map(|model| delta.model = model),
        b"choices" => choices(reader, s, delta),
        b"usage" => take_usage(s).map(|usage| delta.usage = usage),
        b"meta" => meta(s, delta),
        b"error" | b"detail" => reader.take_error(s).map(|error| delta.error = error),
        b"object" => s.take_whole_text().map(|text| is_error = text.is_some_and(|t| t.raw() == b"error")),
        b"message" | b"type" | b"code" => reader.take_error_field(s, key.raw(), &mut flat).map(drop),
        _ => s.skip(),
    });
    if is_error {
        delta.error = Some(flat);
    }
    walked
}

fn choices(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    let mut position = 0_u32;
    s.array(|s| {
        if delta.choices.len() >= MANY || s.kind()? != Kind::Object {
            return s.skip();
        }
        let mut speech = Speech::default();
        let walked = s.object(|s, key| take_choice_field(reader, s, key.raw(), &mut speech));
        delta.choices.push(speech.finish(position));
        position = position.saturating_add(1);
        walked
    })
}

/// `meta.billed_units` of `/v2/embed` is its usage.
fn meta(s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    s.object(|s, key| match key.raw() {
        b"billed_units" => take_usage(s).map(|usage| delta.usage = usage),
        _ => s.skip(),
    })
}
