//! `SchedulerStats`: a map, so that every version is read alike.

use crate::dialect::signal::{CacheStats, SchedulerStats, SpecStats, TransferStats};
use crate::wire::msgpack::{Error, Reader};

/// How deep connectors nest their statistics: `MultiConnector` puts those of others one level down.
const DEPTH: u32 = 3;

/// Reads the statistics that come next, if they do.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<SchedulerStats>, Error> {
    let Some(len) = reader.map_or_nil()? else { return Ok(None) };
    let mut stats = SchedulerStats::default();
    reader.pairs(len, |key, value| {
        match key {
            b"num_running_reqs" => stats.running = count(value)?,
            b"num_waiting_reqs" => stats.waiting = count(value)?,
            b"num_skipped_waiting_reqs" => stats.skipped_waiting = count(value)?,
            // Called gpu_cache_usage up to 0.8.
            b"kv_cache_usage" | b"gpu_cache_usage" => {
                stats.kv_usage = value.scalar()?.f64().unwrap_or_default()
            }
            b"prefix_cache_stats" => stats.prefix = cache(value)?,
            b"connector_prefix_cache_stats" => stats.connector_prefix = cache(value)?,
            b"spec_decoding_stats" => stats.spec = spec(value)?,
            b"num_kv_fetch_reqs_by_stage" => stats.fetching = fetching(value)?,
            b"kv_connector_stats" => {
                let mut found = TransferStats::default();
                transfers(value, &mut found, DEPTH)?;
                stats.transfers = (found != TransferStats::default()).then_some(found);
            }
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(Some(stats))
}

fn count(reader: &mut Reader<'_>) -> Result<u64, Error> {
    Ok(reader.scalar()?.u64().unwrap_or_default())
}

/// Reads how many requests are at each stage of fetching their KV cache: those whose fetch is not over.
fn fetching(reader: &mut Reader<'_>) -> Result<u64, Error> {
    let Some(len) = reader.map_or_skip()? else { return Ok(0) };
    let mut sum = 0_u64;
    reader.pairs(len, |key, value| {
        match key {
            b"waiting_to_start" | b"in_progress" => sum = sum.saturating_add(count(value)?),
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(sum)
}

/// Reads a `PrefixCacheStats`.
fn cache(reader: &mut Reader<'_>) -> Result<Option<CacheStats>, Error> {
    let Some(len) = reader.map_or_skip()? else { return Ok(None) };
    let mut stats = CacheStats::default();
    reader.pairs(len, |key, value| {
        match key {
            b"requests" => stats.requests = count(value)?,
            b"queries" => stats.queries = count(value)?,
            b"hits" => stats.hits = count(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(Some(stats))
}

/// Reads a `SpecDecodingStats`.
fn spec(reader: &mut Reader<'_>) -> Result<Option<SpecStats>, Error> {
    let Some(len) = reader.map_or_skip()? else { return Ok(None) };
    let mut stats = SpecStats::default();
    reader.pairs(len, |key, value| {
        match key {
            b"num_drafts" => stats.drafts = count(value)?,
            b"num_draft_tokens" => stats.draft_tokens = count(value)?,
            b"num_accepted_tokens" => stats.accepted_tokens = count(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(Some(stats))
}

/// Reads the NIXL connector's statistics, wherever they are nested.
fn transfers(reader: &mut Reader<'_>, stats: &mut TransferStats, depth: u32) -> Result<(), Error> {
    if depth == 0 {
        return reader.skip();
    }
    let Some(len) = reader.map_or_skip()? else { return Ok(()) };
    reader.pairs(len, |key, value| match key {
        b"transfer_duration" => numbers(value, |number| stats.durations.push(number)),
        b"bytes_transferred" => numbers(value, |number| stats.bytes.push(number)),
        b"num_failed_transfers" | b"num_failed_handshakes" => numbers(value, |number| {
            stats.failed = stats.failed.saturating_add(whole(number));
        }),
        _ => transfers(value, stats, depth - 1),
    })
}

/// Gives every number of a list, or the one number that is there instead of a list.
fn numbers(reader: &mut Reader<'_>, mut each: impl FnMut(f64)) -> Result<(), Error> {
    let len = match reader.peek()?.array() {
        Some(_) => reader.array()?,
        None => 1,
    };
    for _ in 0..len {
        if let Some(number) = reader.scalar()?.f64() {
            each(number);
        }
    }
    Ok(())
}

fn whole(number: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating by definition")]
    let whole = number as u64;
    whole
}
