//! Which engine requests belong to which exchange.

use super::request::Request;
use crate::dialect::request_id;
use crate::dialect::signal::{ApiRequest, Operation};
use crate::lifecycle::exchange::{Exchange, Joined};
use crate::time::{MonoTime, Nanos};

/// The frontend takes requests of a client that went away back within this (10 ms measured).
pub(super) const GRACE: Nanos = Nanos::from_secs(2);

/// Whether an engine request can be one that this exchange made, judged without an id: same process, handed
/// over while the exchange was open, and not contradicted by a parameter.
pub(super) fn plausible(exchange: &Exchange, request: &Request) -> bool {
    let (Some(engine), Some(added)) = (&request.engine, request.added) else { return false };
    let end = exchange.ended.map_or(MonoTime(u64::MAX), |(at, _)| at);
    if request.pid != exchange.pid || request.exchange.is_some() || added < exchange.first_byte || added > end
    {
        return false;
    }
    let Some(sampling) = &engine.sampling else { return engine.pooling };
    let asked = &exchange.request;
    let same_limit = asked.max_tokens.is_none() || asked.max_tokens == sampling.max_tokens;
    same_limit && asked.stream == sampling.delta && asked.stop == sampling.stop
}

/// How many engine requests an API request makes at most, where its id may be another's too since the client
/// chose it; `None`: no limit.
pub(super) fn expected(request: &ApiRequest) -> Option<usize> {
    request.request_id.as_ref()?;
    let count = match request.operation {
        Operation::Chat | Operation::TextCompletion if !request.cut => {
            request.prompts.max(1).saturating_mul(request.choices.unwrap_or(1).max(1))
        }
        Operation::Chat | Operation::TextCompletion | Operation::Embeddings | Operation::Rerank => {
            return None;
        }
    };
    usize::try_from(count).ok()
}

/// The earliest request, not yet joined, that an exchange without an id can have made.
pub(super) fn guess<'a>(
    exchange: &Exchange,
    requests: impl Iterator<Item = (&'a String, &'a Request)>,
) -> Option<String> {
    let ended = exchange.ended.map(|(at, _)| at)?;
    requests
        .filter(|(_, request)| plausible(exchange, request))
        // The client went away: the request was taken back right after. The server failed: it ended by then.
        .filter(|(_, request)| match (request.abort_at, request.ending) {
            (Some(at), _) => at.plus(Nanos::from_millis(5)) >= ended && at <= ended.plus(GRACE),
            (None, Some((_, at))) => at <= ended,
            (None, None) => false,
        })
        .min_by_key(|(_, request)| request.added)
        .map(|(name, _)| name.clone())
}

/// Whether an open exchange whose response has no id yet may claim this request.
pub(super) fn may_be_claimed<'a>(
    request: &Request,
    mut exchanges: impl Iterator<Item = &'a Exchange>,
) -> bool {
    exchanges.any(|exchange| exchange.response_id.is_none() && plausible(exchange, request))
}

/// The ids of the responses that an engine request can be a part of, the likeliest first.
pub(super) fn responses<'a>(name: &'a str, request: &'a Request) -> impl Iterator<Item = &'a str> {
    request_id::readings(external(request), name).map(|reading| reading.response)
}

/// Place of an engine request among those of a response: prompt, then candidate.
pub(super) fn place(response: &str, name: &str, request: &Request) -> (u32, u32) {
    let reading = request_id::belongs(response, external(request), name);
    let reading = reading.unwrap_or_else(|| request_id::likeliest(external(request), name));
    (reading.prompt, reading.candidate)
}

fn external(request: &Request) -> Option<&str> {
    request.engine.as_ref()?.external_id.as_deref()
}

/// The engine request that makes a candidate of the response.
pub(super) fn of_choice(exchange: &Exchange, index: u32) -> Option<&str> {
    let candidates = exchange.request.choices.unwrap_or(1).max(1);
    let at = |joined: &&Joined| {
        let (prompt, candidate) = joined.place;
        prompt.saturating_mul(candidates).saturating_add(candidate) == index
    };
    exchange.requests.iter().find(at).map(|joined| joined.name.as_str())
}
