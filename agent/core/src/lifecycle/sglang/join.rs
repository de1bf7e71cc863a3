//! Which requests belong to which exchange, where the response does not name them.

use std::collections::HashMap;

use super::request::Request;
use crate::dialect::signal::Operation;
use crate::ids::Pid;
use crate::lifecycle::exchange::Exchange;
use crate::time::{MonoTime, Nanos};

/// The engine is done with what was told within this of the response's end.
pub(super) const GRACE: Nanos = Nanos::from_secs(2);
/// The frontend takes requests of a client that went away back within this: it looks every four seconds, and waits
/// two more where it streams (`TokenizerManager._wait_one_response` and `create_abort_task`, 0.5.23).
pub(super) const ABORT_GRACE: Nanos = Nanos::from_secs(10);

/// How many requests an exchange makes, beside those that only fill the cache.
fn expected(exchange: &Exchange) -> usize {
    let asked = &exchange.request;
    let count = asked.prompts.max(1).saturating_mul(asked.choices.unwrap_or(1).max(1));
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Whether a request can be one that this exchange made: same process, handed over while the exchange was open, and
/// not contradicted by a parameter.
fn plausible(exchange: &Exchange, request: &Request) -> bool {
    let (Some(handed), Some(sent)) = (&request.handed, request.frontend.dispatched.get()) else {
        return false;
    };
    let end = exchange.ended.map_or(MonoTime(u64::MAX), |(at, _)| at);
    let in_time = sent.mono() >= exchange.first_byte && sent.mono() <= end;
    if request.exchange.is_some() || request.pid != Some(exchange.pid) || !in_time {
        return false;
    }
    let asked = &exchange.request;
    let generates = match asked.operation {
        Operation::Chat | Operation::TextCompletion => true,
        Operation::Embeddings | Operation::Rerank => false,
    };
    if handed.embedding == generates {
        return false;
    }
    let Some(sampling) = &handed.sampling else { return true };
    let same_limit = asked.max_tokens.is_none() || asked.max_tokens == sampling.max_new_tokens;
    let same_count = sampling.n.is_none_or(|n| n == asked.choices.unwrap_or(1));
    (request.warms_up() || (same_limit && asked.stream == handed.stream)) && same_count
}

/// The requests that go with those that a response named. The frontend hands parallel samples over one right after
/// the other, and before them, for each prompt, a prefill that fills the cache.
pub(super) fn siblings(exchange: &Exchange, requests: &HashMap<String, Request>) -> Vec<String> {
    let joined = exchange.requests.iter().filter_map(|joined| requests.get(&joined.name));
    let Some(first) = joined.map(|request| request.order).min() else { return Vec::new() };
    let mut others: Vec<&Request> =
        requests.values().filter(|request| plausible(exchange, request)).collect();
    others.sort_by_key(|request| request.order);
    let missing = expected(exchange).saturating_sub(exchange.requests.len());
    let after = others.iter().filter(|request| request.order > first && !request.warms_up()).take(missing);
    let prompts = usize::try_from(exchange.request.prompts.max(1)).unwrap_or(usize::MAX);
    let parallel = exchange.request.choices.is_some_and(|choices| choices > 1);
    let before = others.iter().rev().filter(|request| request.order < first && request.warms_up());
    let before = before.take(if parallel { prompts } else { 0 });
    after.chain(before).map(|request| request.rid.clone()).collect()
}

/// The requests of an exchange that named none: the client went away before it got an answer. They were taken back
/// soon after; where nothing tells, and only one can be meant, it is that one.
pub(super) fn guess(exchange: &Exchange, requests: &HashMap<String, Request>, late: bool) -> Option<String> {
    let (ended, complete) = exchange.ended?;
    let mut possible: Vec<&Request> =
        requests.values().filter(|request| plausible(exchange, request) && !request.warms_up()).collect();
    possible.sort_by_key(|request| request.order);
    let taken_back = |request: &&&Request| match (request.abort_at, request.ending) {
        (Some(at), _) => at >= ended && at <= ended.plus(ABORT_GRACE),
        (None, Some((_, at))) => complete && at <= ended,
        (None, None) => false,
    };
    let sure = possible.iter().find(taken_back);
    let only = (late && possible.len() == 1).then(|| possible.first()).flatten();
    sure.or(only).map(|request| request.rid.clone())
}

/// Whether an open exchange whose response has named nothing yet may claim this request.
pub(super) fn may_be_claimed<'a>(
    request: &Request,
    mut exchanges: impl Iterator<Item = &'a Exchange>,
) -> bool {
    exchanges.any(|exchange| exchange.requests.len() < expected(exchange) && plausible(exchange, request))
}

/// Whether a request went through a process, or was worked on in it.
pub(super) fn concerns(request: &Request, pid: Pid) -> bool {
    request.pid == Some(pid) || request.schedulers.contains_key(&pid)
}
