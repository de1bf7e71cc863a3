//! Lines that a scheduler writes to its log: statistics and retractions.
//!
//! Parsed by key, never by position: `Prefill batch, #new-seq: 1, #new-token: 1, .., token usage: 0.00, ..`.
//! Mirrors `log_prefill_stats`, `log_decode_stats` of 0.3.6 to 0.5.9 and `report_prefill_stats`,
//! `report_decode_stats` of 0.5.10 to 0.5.23.

use crate::dialect::signal::sglang::{LoadSource, SglangLoad};

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A report of the scheduler's state.
    Report(Box<SglangLoad>),
    /// So many requests were sent back to the queue.
    Retracted {
        /// How many.
        requests: u64,
        /// Data-parallel rank, where the line's prefix tells it.
        dp_rank: Option<u32>,
    },
}

/// Most bytes of a line that are looked at: the longest report has a few hundred.
pub const LIMIT: usize = 4096;

/// Reads a line; `None` where it says nothing of the kind.
#[must_use]
pub fn read(line: &[u8]) -> Option<Line> {
    // Most lines are something else: a look at the bytes comes before anything is made of them.
    let found = MARKS.iter().find_map(|(mark, kind)| Some((memchr::memmem::find(line, mark)?, mark, kind)));
    let (at, mark, kind) = found?;
    let text = String::from_utf8_lossy(line.get(..LIMIT).unwrap_or(line));
    let text = plain(&text);
    let mark = std::str::from_utf8(mark).ok()?;
    let (prefix, said) = text.split_once(mark)?;
    let dp_rank = rank(prefix);
    match kind {
        Kind::Report(source) => {
            // The name is followed by the forwards' count, or by the first key.
            let is_report = said.starts_with([',', '.', ' ']) && (at < PREFIX || prefix.ends_with("] "));
            is_report.then(|| Line::Report(Box::new(report(*source, dp_rank, said))))
        }
        Kind::Retraction => Some(Line::Retracted { requests: number(said)?, dp_rank }),
    }
}

/// What to look for in a line.
enum Kind {
    Report(LoadSource),
    Retraction,
}

const MARKS: [(&[u8], Kind); 3] = [
    (b"Decode batch", Kind::Report(LoadSource::DecodeLine)),
    (b"Prefill batch", Kind::Report(LoadSource::PrefillLine)),
    // `KV cache pool is full. Retract requests. #retracted_reqs: N, ..`, `Decode out of memory happened. ..`,
    // `Testing retraction. ..`
    (b"#retracted_reqs", Kind::Retraction),
];

/// Longest time stamp and ranks in front of a report, colours included.
const PREFIX: usize = 96;

fn report(source: LoadSource, dp_rank: Option<u32>, said: &str) -> SglangLoad {
    let mut load = SglangLoad { dp_rank, ..SglangLoad::of(source) };
    for pair in said.split(',') {
        if let Some((key, value)) = pair.split_once(':') {
            set(key.trim(), value, &mut load);
        }
    }
    load
}

fn set(key: &str, value: &str, load: &mut SglangLoad) {
    // `Prefill batch. #new-seq: 1`: the first key follows the name.
    let key = key.rsplit(['.', ']']).next().unwrap_or(key).trim();
    match key {
        "#running-req" => load.running = number(value),
        "#queue-req" => load.queued = number(value),
        // Under PD an unbootstrapped request waits before the queue; it is not in it.
        "#token" => load.used_tokens = number(value),
        // Of several pools the fullest counts, as in the engine's own `token_usage`.
        "token usage" | "full token usage" | "swa token usage" => {
            let known = load.token_usage.unwrap_or(0.0);
            load.token_usage = float(value).map(|usage| usage.max(known)).or(load.token_usage);
        }
        "gen throughput (token/s)" => load.gen_throughput = float(value),
        "input throughput (token/s)" => load.input_throughput = float(value),
        // Up to 0.4.5, in percent.
        "cache hit rate" => load.cache_hit_rate = float(value).map(|percent| percent / 100.0),
        "#new-token" => load.new_tokens = number(value),
        "#cached-token" => load.cached_tokens = number(value),
        "accept len" => load.accept_length = float(value),
        "accept rate" => load.accept_rate = float(value),
        _ => {}
    }
}

/// The rank in `[2026-11-30 15:14:17 DP1 TP0] `.
fn rank(prefix: &str) -> Option<u32> {
    let words = prefix.rsplit('[').next()?.split([' ', ']']);
    words.filter_map(|word| word.strip_prefix("DP")?.parse().ok()).next()
}

/// The whole number in front.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start_matches([' ', ':']);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The number in front.
fn float(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The text without what colours it (`ESC [ .. m`).
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('\x1b');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let rest =
            part.strip_prefix('[').and_then(|codes| codes.split_once(|c: char| c.is_ascii_alphabetic()));
        plain.push_str(rest.map_or(part, |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(line: &str) -> SglangLoad {
        match read(line.as_bytes()) {
            Some(Line::Report(load)) => *load,
            other => panic!("{other:?} of {line}"),
        }
    }

    #[test]
    fn reports_of_every_version_are_read() {
        let prefill = [
            // 0.3.6, 0.4.3
            "[2024-12-01 10:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 3, cache hit rate: \
             30.00%, token usage: 0.25, #running-req: 4, #queue-req: 2",
            // 0.4.9, as seen
            "[2026-11-30 15:49:55] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 3, #token: 0, token \
             usage: 0.25, #running-req: 4, #queue-req: 2",
            // 0.5.4
            "[2025-10-26 10:00:00] Prefill batch [12], #new-seq: 1, #new-token: 7, #cached-token: 3, token usage: \
             0.25, #running-req: 4, #queue-req: 2, ",
            // 0.5.6
            "[2026-11-30 15:26:52] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 3, token usage: 0.25, \
             #running-req: 4, #queue-req: 2, ",
            // 0.5.23
            "[2026-11-30 15:14:17 DP1 TP0] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 3, token usage: \
             0.25, #running-req: 4, #queue-req: 2, #pending-token: 9, cpu graph: False, input throughput (token/s): \
             0.07",
            // With two pools
            "[2026-11-30 15:14:17] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 3, full token usage: \
             0.10, swa token usage: 0.25, #running-req: 4, #queue-req: 2",
        ];
        for line in prefill {
            let load = load(line);
            assert_eq!(load.source, LoadSource::PrefillLine);
            assert_eq!((load.new_tokens, load.cached_tokens), (Some(7), Some(3)), "{line}");
            assert_eq!(
                (load.running, load.queued, load.token_usage),
                (Some(4), Some(2), Some(0.25)),
                "{line}"
            );
        }
        assert_eq!(load(prefill[0]).cache_hit_rate, Some(0.3));
        assert_eq!((load(prefill[4]).dp_rank, load(prefill[4]).input_throughput), (Some(1), Some(0.07)));
        assert_eq!(load(prefill[0]).dp_rank, None);
    }

    #[test]
    fn decode_reports_have_throughput_and_tokens() {
        let seen = [
            "[2026-11-30 15:30:32] Decode batch, #running-req: 6, #token: 328, token usage: 0.08, cpu graph: False, \
             gen throughput (token/s): 489.79, #queue-req: 0",
            "[2026-11-30 15:49:55] Decode batch. #running-req: 6, #token: 328, token usage: 0.08, cuda graph: False, \
             gen throughput (token/s): 489.79, #queue-req: 0",
            "[2026-11-30 15:27:24] Decode batch [7], #running-req: 6, #full token: 328, full token usage: 0.08, \
             #token: 328, accept len: 2.50, accept rate: 0.75, gen throughput (token/s): 489.79, #queue-req: 0, ",
        ];
        for line in seen {
            let load = load(line);
            assert_eq!(load.source, LoadSource::DecodeLine);
            assert_eq!(
                (load.running, load.queued, load.used_tokens),
                (Some(6), Some(0), Some(328)),
                "{line}"
            );
            assert_eq!((load.token_usage, load.gen_throughput), (Some(0.08), Some(489.79)), "{line}");
        }
        assert_eq!((load(seen[2]).accept_length, load(seen[2]).accept_rate), (Some(2.5), Some(0.75)));
    }

    #[test]
    fn colours_are_passed_over() {
        let line = "\x1b[32m[2026-11-30 15:27:24 DP0 TP0]\x1b[0m Decode batch, #running-req: \x1b[1m6\x1b[0m, #queue-req: 0";
        assert_eq!((load(line).running, load(line).dp_rank), (Some(6), Some(0)));
    }

    #[test]
    fn retractions_are_counted() {
        for line in [
            "[2026-11-30 15:33:11 DP2] Testing retraction. #retracted_reqs: 3, #new_tokens_gained: 10",
            "[2026-11-30 15:33:11 DP2] KV cache pool is full. Retract requests. #retracted_reqs: 3, #aborted: 0",
            "[2026-11-30 15:33:11 DP2] Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.5",
        ] {
            let retracted = Some(Line::Retracted { requests: 3, dp_rank: Some(2) });
            assert_eq!(read(line.as_bytes()), retracted, "{line}");
        }
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            &b""[..],
            b"[2026-11-30 15:14:17] The server is fired up and ready to roll!",
            b"Prefill batched requests",
            b"[2026-11-30 15:14:17] INFO: a prompt that quotes at length, far into the line, long after any prefix would be over, the words Decode batch, #running-req: 99",
            b"\xff\xfe\x00",
            b"#retracted_reqs: many",
        ] {
            assert_eq!(read(line), None, "{}", String::from_utf8_lossy(line));
        }
    }
}
