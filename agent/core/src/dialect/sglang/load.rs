//! `GetLoadReqOutput` (0.5.7 to 0.5.10 in every output message), `GetLoadsReqOutput` (0.5.11 to 0.5.13): the
//! scheduler's state in a message.

use super::cell::Cell;
use crate::dialect::signal::sglang::{LoadSource, SglangLoad};

/// Reads the state.
pub(super) fn read<'m, C: Cell<'m>>(class: &str, message: C) -> SglangLoad {
    let mut load = SglangLoad::of(LoadSource::Message);
    let (mut requests, mut tokens) = (None, None);
    message.fields(class, &mut |name, value| match name {
        b"dp_rank" => load.dp_rank = value.small(),
        b"num_reqs" => requests = value.count(),
        b"num_running_reqs" => load.running = value.count(),
        b"num_waiting_reqs" => load.queued = value.count(),
        b"num_tokens" => tokens = value.count(),
        b"num_used_tokens" => load.used_tokens = value.count(),
        b"max_total_num_tokens" => load.max_tokens = value.count(),
        b"token_usage" => load.token_usage = value.number(),
        b"gen_throughput" => load.gen_throughput = value.number(),
        b"cache_hit_rate" => load.cache_hit_rate = value.number(),
        _ => {}
    });
    // `num_reqs` counts those that wait too, and `num_tokens` their tokens.
    let queued = load.queued.unwrap_or(0);
    load.running = load.running.or(requests.map(|all: u64| all.saturating_sub(queued)));
    load.used_tokens = load.used_tokens.or(tokens.filter(|_| queued == 0));
    load
}
