//! Responses: whole bodies and the events of streams.
//!
//! What a body repeats at a stream's end (the `done` and `completed` events of the Responses API) is not
//! read again as text. Reasons why generation ended are given in the engine's words, whatever the API's.

mod anthropic;
mod chat;
mod cohere;
mod native;
mod openai;
mod responses;
mod speech;

use super::{Collect, Endpoint};
use crate::dialect::signal::{ApiDelta, ApiError, Usage};
use crate::wire::json::{Kind, Scanner, Stop, Text, Walk};

/// Most characters kept of a name or an id.
const NAME_LIMIT: usize = 1024;
/// Most candidates read of one body or event, and most tool calls of one candidate.
const MANY: usize = 16_384;

/// Reads a whole (not streamed) response body, or what is known of it up to the first gap (`cut`).
///
/// The text of each candidate is cut to the limit of [`Collect`].
#[must_use]
pub fn body(endpoint: Endpoint, bytes: &[u8], cut: bool, collect: Collect) -> ApiDelta {
    let reader = Reader { collect, texts: collect.limit };
    reader.read(bytes, cut, |reader, s, delta| match endpoint {
        Endpoint::Responses => responses::body(reader, s, delta),
        Endpoint::Messages => anthropic::body(reader, s, delta),
        Endpoint::CohereChat => cohere::body(reader, s, delta),
        Endpoint::Native => native::body(reader, s, delta),
        Endpoint::Chat
        | Endpoint::ChatBatch
        | Endpoint::Completions
        | Endpoint::Generate
        | Endpoint::Embeddings
        | Endpoint::CohereEmbed
        | Endpoint::Pooling
        | Endpoint::Rerank
        | Endpoint::Score
        | Endpoint::Invocations => openai::message(reader, s, delta),
    })
}

/// Reads one server-sent event: its `event` field, where it had one, and its data.
///
/// An event whose first part was lost is no JSON, and says nothing but that it was `cut`.
#[must_use]
pub fn event<'a>(
    endpoint: Endpoint,
    name: Option<&'a [u8]>,
    data: &'a [u8],
    cut: bool,
    collect: Collect,
) -> ApiDelta {
    if data.trim_ascii() == b"[DONE]" {
        return ApiDelta { done: true, cut, ..ApiDelta::default() };
    }
    let reader = Reader { collect, texts: usize::MAX };
    reader.read(data, cut, |reader, s, delta| match endpoint {
        Endpoint::Responses => responses::event(reader, s, name, delta),
        Endpoint::Messages => anthropic::event(reader, s, name, delta),
        Endpoint::CohereChat => cohere::event(reader, s, delta),
        Endpoint::Native => native::event(reader, s, delta),
        Endpoint::Chat
        | Endpoint::ChatBatch
        | Endpoint::Completions
        | Endpoint::Generate
        | Endpoint::Embeddings
        | Endpoint::CohereEmbed
        | Endpoint::Pooling
        | Endpoint::Rerank
        | Endpoint::Score
        | Endpoint::Invocations => openai::message(reader, s, delta),
    })
}

/// How a response is read.
#[derive(Clone, Copy, Debug)]
struct Reader {
    collect: Collect,
    /// Most characters kept of a candidate's text.
    texts: usize,
}

impl Reader {
    fn read<'a>(
        self,
        bytes: &'a [u8],
        cut: bool,
        walk: impl FnOnce(Self, &mut Scanner<'a>, &mut ApiDelta) -> Walk,
    ) -> ApiDelta {
        let mut delta = ApiDelta::default();
        let walked = walk(self, &mut Scanner::new(bytes), &mut delta);
        delta.cut = cut || (walked == Err(Stop::Cut) && !bytes.trim_ascii().is_empty());
        delta
    }

    /// Takes an error, told as an object (`{"message":..,"type":..,"code":..}`) or as a text.
    fn take_error(self, s: &mut Scanner<'_>) -> Walk<Option<ApiError>> {
        let mut error = ApiError::default();
        match s.kind()? {
            Kind::Text => error.message = s.take_whole_text()?.and_then(|text| self.message(text)),
            Kind::Object => s.object(|s, key| self.take_error_field(s, key.raw(), &mut error).map(drop))?,
            // FastAPI tells what is wrong with a body in a list.
            Kind::Array => s.skip()?,
            Kind::Bool | Kind::Number | Kind::Null => return s.skip().map(|()| None),
        }
        Ok(Some(error))
    }

    /// Takes a field of an error; `false` if it is none, and was passed.
    fn take_error_field(self, s: &mut Scanner<'_>, key: &[u8], error: &mut ApiError) -> Walk<bool> {
        match key {
            b"message" => error.message = s.take_whole_text()?.and_then(|text| self.message(text)),
            b"type" => error.kind = take_name(s)?,
            b"code" => match s.kind()? {
                Kind::Number => error.code = s.take_i64()?,
                // The Responses API has words for codes.
                Kind::Text => error.kind = take_name(s)?.or(error.kind.take()),
                Kind::Object | Kind::Array | Kind::Bool | Kind::Null => s.skip()?,
            },
            _ => return s.skip().map(|()| false),
        }
        Ok(true)
    }

    /// An error's text may quote the prompt.
    fn message(self, text: Text<'_>) -> Option<String> {
        self.collect.content.then(|| text.prefix(self.collect.limit).into_owned())
    }
}

/// Takes a name or an id.
fn take_name(s: &mut Scanner<'_>) -> Walk<Option<String>> {
    Ok(s.take_whole_text()?.map(|name| name.prefix(NAME_LIMIT).into_owned()))
}

/// Reasons why generation ended, in the words of the other APIs and of the engine.
const FINISH: [(&[u8], &str); 12] = [
    (b"end_turn", "stop"),
    (b"stop_sequence", "stop"),
    (b"max_tokens", "length"),
    (b"tool_use", "tool_calls"),
    (b"COMPLETE", "stop"),
    (b"STOP_SEQUENCE", "stop"),
    (b"MAX_TOKENS", "length"),
    (b"TOOL_CALL", "tool_calls"),
    (b"ERROR", "error"),
    (b"completed", "stop"),
    (b"max_output_tokens", "length"),
    (b"failed", "error"),
];

/// Takes a reason why generation ended.
fn take_finish(s: &mut Scanner<'_>) -> Walk<Option<String>> {
    let Some(reason) = s.take_whole_text()? else { return Ok(None) };
    let known = FINISH.iter().find(|(theirs, _)| *theirs == reason.raw());
    Ok(Some(known.map_or_else(|| reason.prefix(NAME_LIMIT).into_owned(), |(_, ours)| (*ours).to_owned())))
}

/// Takes token counts, by the names of any of the APIs.
fn take_usage(s: &mut Scanner<'_>) -> Walk<Option<Usage>> {
    if s.kind()? != Kind::Object {
        return s.skip().map(|()| None);
    }
    let mut usage = Usage::default();
    s.object(|s, key| take_usage_field(s, key.raw(), &mut usage))?;
    Ok(Some(usage))
}

fn take_usage_field(s: &mut Scanner<'_>, key: &[u8], usage: &mut Usage) -> Walk {
    match key {
        b"prompt_tokens" | b"input_tokens" => usage.prompt = s.take_u64()?,
        b"completion_tokens" | b"output_tokens" => usage.completion = s.take_u64()?,
        b"total_tokens" => usage.total = s.take_u64()?,
        b"cached_tokens" => usage.cached = s.take_u64()?,
        // Cohere's counts are one level down; the details of the OpenAI API hold `cached_tokens`.
        b"tokens" | b"prompt_tokens_details" | b"input_tokens_details" => {
            s.object(|s, key| take_usage_field(s, key.raw(), usage))?;
        }
        _ => s.skip()?,
    }
    Ok(())
}

#[cfg(test)]
mod tests;
