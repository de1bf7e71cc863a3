//! Which engine requests belong to which exchange.

use super::exchange::Exchange;
use super::request::Request;
use crate::dialect::request_id;
use crate::dialect::signal::EngineRequest;
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

/// The id a response has whose parts this engine request makes: `cmpl-X` of `0_cmpl-X-1-deadbeef`.
pub(super) fn response_of_request(request: &EngineRequest) -> &str {
    request_id::likeliest(request.external_id.as_deref(), &request.id).response
}

/// The same of a request whose start was not seen.
pub(super) fn response_of_name(name: &str) -> &str {
    request_id::likeliest(None, name).response
}

/// The id of the `n > 1` request this is one candidate of.
pub(super) fn parent(request: &EngineRequest) -> Option<&str> {
    request_id::parent(&request.id)
}

/// Position of an engine request among those of its exchange: prompt, then candidate.
pub(super) fn order(name: &str) -> (u32, u32) {
    let reading = request_id::likeliest(None, name);
    (reading.prompt, reading.candidate)
}

/// The engine request that makes a candidate of the response.
pub(super) fn request_of_choice(exchange: &Exchange, index: u32) -> Option<&String> {
    exchange.requests.get(usize::try_from(index).ok()?)
}
