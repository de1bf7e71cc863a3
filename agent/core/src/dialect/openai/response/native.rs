//! SGLang's own `/generate`: one object, or one for each request of a batch; streamed, an event each.
//!
//! `{"text":..,"output_ids":[..],"meta_info":{"id":..,"finish_reason":{"type":..},"prompt_tokens":..,..},"index":..}`
//! (`sglang/srt/managers/tokenizer_manager.py`, 0.5.23).

use super::speech::Speech;
use super::{MANY, Reader, take_name};
use crate::dialect::signal::{ApiDelta, Usage};
use crate::wire::json::{Kind, Scanner, Walk};

/// Reads a whole body.
pub fn body(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    if s.kind()? != Kind::Array {
        return one(reader, s, delta, 0, false);
    }
    let mut position = 0_u32;
    s.array(|s| {
        if delta.choices.len() >= MANY || s.kind()? != Kind::Object {
            return s.skip();
        }
        let walked = one(reader, s, delta, position, false);
        position = position.saturating_add(1);
        walked
    })
}

/// Reads an event of a stream.
pub fn event(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta) -> Walk {
    one(reader, s, delta, 0, true)
}

/// What one object says beside its text.
#[derive(Default)]
struct Said {
    speech: Speech,
    tokens: u64,
    usage: Option<Usage>,
    indexed: bool,
}

fn one(reader: Reader, s: &mut Scanner<'_>, delta: &mut ApiDelta, position: u32, streamed: bool) -> Walk {
    let mut said = Said::default();
    let walked = s.object(|s, key| match key.raw() {
        b"text" if s.kind()? == Kind::Text => said.speech.take_text(reader, s),
        b"output_ids" if s.kind()? == Kind::Array => s.array(|s| {
            said.tokens = said.tokens.saturating_add(1);
            s.skip()
        }),
        b"meta_info" if s.kind()? == Kind::Object => meta(s, &mut said),
        b"index" => s.take_u32().map(|index| {
            said.speech.index = index;
            said.indexed = index.is_some();
        }),
        b"error" | b"detail" => reader.take_error(s).map(|error| delta.error = error),
        _ => s.skip(),
    });
    let Said { mut speech, tokens, usage, indexed } = said;
    speech.tokens(tokens > 0);
    // Each event repeats the text from the start, unless the server was told to send increments: the last one is all.
    let repeats = usage.and_then(|usage| usage.completion).is_some_and(|completion| completion == tokens);
    if streamed && repeats && speech.finish.is_none() {
        speech.forget_text();
    }
    if delta.id.is_none() {
        delta.id.clone_from(&speech.id);
    }
    // What an event of several requests counts is one's alone.
    if let (Some(usage), false) = (usage, streamed && indexed) {
        delta.usage = Some(sum(delta.usage, usage));
    }
    if !speech.is_empty() {
        delta.choices.push(speech.finish(position));
    }
    walked
}

fn meta(s: &mut Scanner<'_>, said: &mut Said) -> Walk {
    let mut usage = Usage::default();
    let walked = s.object(|s, key| match key.raw() {
        b"id" => take_name(s).map(|id| said.speech.id = id),
        b"finish_reason" if s.kind()? == Kind::Object => s.object(|s, key| match key.raw() {
            b"type" => super::take_finish(s).map(|finish| said.speech.finish = finish),
            _ => s.skip(),
        }),
        b"prompt_tokens" => s.take_u64().map(|count| usage.prompt = count),
        b"completion_tokens" => s.take_u64().map(|count| usage.completion = count),
        b"cached_tokens" => s.take_u64().map(|count| usage.cached = count),
        _ => s.skip(),
    });
    said.usage = Some(usage);
    walked
}

fn sum(before: Option<Usage>, more: Usage) -> Usage {
    let Some(before) = before else { return more };
    let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
    Usage {
        prompt: add(before.prompt, more.prompt),
        completion: add(before.completion, more.completion),
        total: None,
        cached: add(before.cached, more.cached),
    }
}
