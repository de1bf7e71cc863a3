//! Shape rules: field orders guessed from one message, where no schema fits it.
//!
//! They hold for every version from 0.8 to 0.33; what cannot be told by shape (`client_index`,
//! `data_parallel_rank`) is left out.
#![allow(clippy::wildcard_enum_match_arm, reason = "the types of msgpack are closed by its specification")]

use super::layout::{OutputField, RequestField, StepField};
use crate::wire::msgpack::{Reader, Token};

/// Elements looked at: no class has as many fields.
const MOST: u32 = 64;

/// `EngineCoreOutputs` has had 8 fields since 0.8.
const STEP_FIELDS: u32 = 8;

/// Outputs have had the pooling result before the finish reason since 0.9, and then 10 fields.
const POOLING_SINCE: usize = 10;

/// Earlier than any request: 2020-09-13.
const EPOCH: f64 = 1.6e9;

/// Whether an array is an outputs message, as far as the front of it tells: an index, a list, and more.
pub(super) fn is_step(body: &[u8]) -> bool {
    let mut reader = Reader::new(body);
    let Ok(Token::Array(STEP_FIELDS..=MOST)) = reader.token() else { return false };
    if !matches!(reader.token(), Ok(Token::Int(0..))) {
        return false;
    }
    matches!(reader.token(), Ok(Token::Array(_)))
}

/// The order of an outputs message.
pub(super) fn step(body: &[u8]) -> Vec<StepField> {
    let mut seen = Seen::default();
    elements(&mut Reader::new(body), StepField::Other, |i, token, _| match token {
        Token::Int(_) if i == 0 => StepField::EngineIndex,
        Token::Array(_) if seen.first(0) => StepField::Outputs,
        Token::Map(_) if seen.first(1) => StepField::Stats,
        Token::Float(_) if seen.first(2) => StepField::Timestamp,
        // [call_id, failure_message, result]
        Token::Array(3) if i == 4 => StepField::Utility,
        _ => StepField::Other,
    })
}

/// The order of the output that comes next.
pub(super) fn output(reader: &Reader<'_>) -> Vec<OutputField> {
    let len = length(reader);
    let finish = if len >= POOLING_SINCE { 5 } else { 4 };
    elements(&mut reader.clone(), OutputField::Other, |i, token, rest| match (i, token) {
        (0, _) => OutputField::Id,
        (1, _) => OutputField::Tokens,
        (2, Token::Array(_)) => OutputField::Logprobs,
        (4, _) if len >= POOLING_SINCE => OutputField::Pooling,
        (_, Token::Int(_)) if i == finish => OutputField::Finish,
        (_, Token::Array(_)) if i == finish + 2 => OutputField::Events,
        (_, Token::Map(_)) if has_key(&rest, b"do_remote_prefill") => OutputField::KvTransfer,
        (_, Token::Map(_)) if has_key(&rest, b"num_prompt_tokens") => OutputField::PrefillStats,
        // Before prefill_stats: at 9 in 0.9, then at 10, with the external ones behind from 0.16 to 0.19.
        (9, Token::Int(_)) if len == 10 => OutputField::CachedTokens,
        (10, Token::Int(_)) if (11..=14).contains(&len) => OutputField::CachedTokens,
        (11, Token::Int(_)) if len == 14 => OutputField::ExternalTokens,
        _ => OutputField::Other,
    })
}

/// The order of a request.
pub(super) fn request(body: &[u8]) -> Vec<RequestField> {
    let mut seen = Seen::default();
    let id = first_string(body);
    let fields = elements(&mut Reader::new(body), RequestField::Other, |i, token, rest| match token {
        Token::Str(_) if i == 0 => RequestField::Id,
        Token::Array(len) if is_ints(&rest, len) && seen.first(0) => RequestField::PromptTokenIds,
        Token::Map(_) if has_key(&rest, b"traceparent") => RequestField::TraceHeaders,
        Token::Map(_) if seen.first(1) => RequestField::Sampling,
        Token::Float(at) if at > EPOCH && seen.first(2) => RequestField::Arrival,
        // The internal id is made of the external one.
        Token::Str(text) if !text.is_empty() && contains(id, text) => RequestField::ExternalId,
        _ => RequestField::Other,
    });
    pooling(body, fields)
}

/// A request without sampling parameters has pooling parameters: an array, after the prompt.
fn pooling(body: &[u8], mut fields: Vec<RequestField>) -> Vec<RequestField> {
    if fields.contains(&RequestField::Sampling) {
        return fields;
    }
    let arrays = elements(&mut Reader::new(body), false, |_, token, rest| match token {
        Token::Array(len) => len > 0 && !is_ints(&rest, len),
        _ => false,
    });
    if let Some(last) = arrays.iter().rposition(|is_array| *is_array)
        && let Some(field) = fields.get_mut(last)
    {
        *field = RequestField::Pooling;
    }
    fields
}

/// Which of a few fields were seen.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    /// Whether this is the first time for a field.
    fn first(&mut self, field: u32) -> bool {
        let before = self.0;
        self.0 |= 1 << field;
        self.0 != before
    }
}

/// Asks `tell` of each element of the array that comes next: its position, its first token, and the reader after
/// that. What a cut message does not hold is `other`.
fn elements<'a, F: Clone>(
    reader: &mut Reader<'a>,
    other: F,
    mut tell: impl FnMut(usize, Token<'a>, Reader<'a>) -> F,
) -> Vec<F> {
    let len = length(reader);
    let mut fields = vec![other; len];
    if reader.token().is_err() {
        return fields;
    }
    for (i, field) in fields.iter_mut().enumerate() {
        let mut inside = *reader;
        let Ok(token) = inside.token() else { break };
        *field = tell(i, token, inside);
        if reader.skip().is_err() {
            break;
        }
    }
    fields
}

/// Elements of the array that comes next; 0 where there is none, or it is too long to be a message.
fn length(reader: &Reader<'_>) -> usize {
    match reader.peek() {
        Ok(Token::Array(len)) if len <= MOST => usize::try_from(len).unwrap_or_default(),
        Ok(_) | Err(_) => 0,
    }
}

/// Whether a map, the reader after its head, has this key among its first ones.
fn has_key(inside: &Reader<'_>, key: &[u8]) -> bool {
    let mut reader = *inside;
    (0..MOST)
        .map_while(|_| {
            let Ok(Token::Str(name)) = reader.token() else { return None };
            reader.skip().is_ok().then_some(name)
        })
        .any(|name| name == key)
}

/// Whether an array, the reader after its head, begins with a whole number or is empty.
fn is_ints(inside: &Reader<'_>, len: u32) -> bool {
    len == 0 || matches!(inside.peek(), Ok(Token::Int(_)))
}

/// The string that an array begins with.
fn first_string(body: &[u8]) -> &[u8] {
    let mut reader = Reader::new(body);
    let _ = reader.array();
    reader.str().unwrap_or_default()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
