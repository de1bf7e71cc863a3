//! A candidate's message in the chat API, whole or a delta. Cohere's have the same fields.

use super::speech::{Speech, take_call};
use super::{MANY, Reader};
use crate::dialect::signal::ToolCall;
use crate::wire::json::{Kind, Scanner, Walk};

/// Takes a message.
pub fn take_message(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    let mut reasoned = false;
    s.object(|s, key| match key.raw() {
        b"content" => take_content(reader, s, speech),
        b"refusal" => speech.take_text(reader, s),
        // Some versions (0.11, 0.12) send the same text under both names.
        b"reasoning" | b"reasoning_content" | b"tool_plan" if s.kind()? == Kind::Text && !reasoned => {
            reasoned = true;
            speech.take_reasoning(reader, s)
        }
        b"tool_calls" => take_calls(reader, s, speech),
        b"function_call" if s.kind()? == Kind::Object => take_one(reader, s, speech),
        _ => s.skip(),
    })
}

/// Takes content: a text, or a list of blocks, or (in Cohere's deltas) one block.
fn take_content(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    match s.kind()? {
        Kind::Text => speech.take_text(reader, s),
        Kind::Array => s.array(|s| take_block(reader, s, speech)),
        Kind::Object => take_block(reader, s, speech),
        Kind::Bool | Kind::Number | Kind::Null => s.skip(),
    }
}

fn take_block(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    s.object(|s, key| match key.raw() {
        b"text" => speech.take_text(reader, s),
        b"thinking" => speech.take_reasoning(reader, s),
        _ => s.skip(),
    })
}

/// Takes tool calls: a list, or (in Cohere's deltas) one.
fn take_calls(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    if s.kind()? == Kind::Object {
        return take_one(reader, s, speech);
    }
    let mut seen = 0;
    s.array(|s| {
        seen += 1;
        if seen > MANY { s.skip() } else { take_one(reader, s, speech) }
    })
}

fn take_one(reader: Reader, s: &mut Scanner<'_>, speech: &mut Speech) -> Walk {
    let mut call = ToolCall { index: speech.next_call(), ..ToolCall::default() };
    let walked = take_call(reader, s, &mut call);
    speech.call(call);
    walked
}

/// Takes a field of a candidate; one that is none of them is passed.
pub fn take_choice_field(reader: Reader, s: &mut Scanner<'_>, key: &[u8], speech: &mut Speech) -> Walk {
    match key {
        b"index" => speech.index = s.take_u32()?,
        b"text" => speech.take_text(reader, s)?,
        b"delta" | b"message" => take_message(reader, s, speech)?,
        b"finish_reason" => speech.finish = super::take_finish(s)?,
        b"token_ids" => speech.tokens(s.take_truth()?),
        _ => s.skip()?,
    }
    Ok(())
}
