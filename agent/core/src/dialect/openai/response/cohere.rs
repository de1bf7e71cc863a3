//! Cohere's chat API (`/cohere/v2/chat`).

use super::chat::take_message;
use super::speech::Speech;
use super::{Reader, take_finish, take_name, take_usage};
use crate::dialect::signal::{ApiDelta, ApiError};
use crate::wire::json::{Kind, Scanner, Walk};

/// Reads a body: a message in its envelope, or an error (`{"message":"..","id":..}`).
pub fn body(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    read(reader, s, delta)
}

/// Reads an event. Its type says nothing that its fields do not.
pub fn event(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    read(reader, s, delta)
}

fn read(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    let mut speech = Speech::default();
    let mut place = None;
    let walked = s.object(|s, key| match key.raw() {
        b"index" => s.take_u32().map(|index| place = index),
        b"delta" => s.object(|s, key| take_field(reader, s, key.raw(), delta, &mut speech)),
        _ => take_field(reader, s, key.raw(), delta, &mut speech),
    });
    let mut choices = (!speech.is_empty()).then(|| speech.finish(0));
    for call in choices.iter_mut().flat_map(|choice| &mut choice.tool_calls) {
        call.index = place.unwrap_or(call.index);
    }
    delta.choices.extend(choices);
    walked
}

fn take_field(
    reader: Reader,
    s: &mut Scanner<'_>,
    key: &[u8],
    delta: &mut ApiDelta,
    speech: &mut Speech,
) -> Walk {
    match key {
        b"id" => delta.id = take_name(s)?,
        b"finish_reason" => speech.finish = take_finish(s)?,
        b"usage" => delta.usage = take_usage(s)?,
        b"error" => delta.error = reader.take_error(s)?,
        b"message" if s.kind()? == Kind::Text => {
            let mut error = ApiError::default();
            reader.take_error_field(s, key, &mut error)?;
            delta.error = Some(error);
        }
        b"message" => take_message(reader, s, speech)?,
        _ => s.skip()?,
    }
    Ok(())
}
