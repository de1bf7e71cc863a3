//! What a line says of a request, taken from its spans.

use enginetap_core::model::registry::{attr, event, span};
use enginetap_core::model::span::{Span, Status, Trace, Value};
use enginetap_core::time::{Nanos, Seconds, WallTime};

use super::style::Tone;

/// A request at one glance. `None` where it was not seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) start: WallTime,
    pub(super) operation: String,
    pub(super) model: Option<String>,
    pub(super) outcome: Outcome,
    pub(super) http_status: Option<i64>,
    pub(super) error: Option<String>,
    pub(super) finish_reasons: Vec<String>,
    pub(super) input_tokens: Option<i64>,
    pub(super) output_tokens: Option<i64>,
    pub(super) cached_tokens: Option<i64>,
    pub(super) queue: Option<Nanos>,
    pub(super) prefill: Option<Nanos>,
    pub(super) decode: Option<Nanos>,
    pub(super) ttft: Option<Nanos>,
    pub(super) e2e: Nanos,
    pub(super) tpot: Option<Nanos>,
    /// Requests inside the engine: several where candidates or prompts are several.
    pub(super) engine_requests: usize,
    pub(super) preemptions: i64,
    pub(super) partial: bool,
    pub(super) estimated: Vec<String>,
    pub(super) losses: Vec<String>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// In a word.
    pub(super) text: String,
    /// How bad that is.
    pub(super) tone: Tone,
}

impl Row {
    /// `None` for a trace without spans.
    pub(super) fn of(trace: &Trace) -> Option<Self> {
        let root = trace.spans.first()?;
        let inside = |span: &&Span| span.name == span::LLM_REQUEST || span.attribute(attr::RID).is_some();
        let engine: Vec<&Span> = trace.spans.iter().filter(inside).collect();
        // The request inside the engine that ended last is the one the client waited for.
        let slowest = engine.iter().copied().max_by_key(|span| span.end);
        let time = |key| nanos(slowest?, key);
        // SGLang's own stages, where vLLM has attributes.
        let stage = |name| stage(trace, slowest?, name);
        let decode = time(attr::LATENCY_TIME_IN_MODEL_DECODE);
        let sum = |key| total(engine.iter().copied(), key);
        let error = trace.spans.iter().find_map(|span| text(span, attr::ERROR_TYPE));
        let finish_reasons = finish_reasons(root, &engine);
        let http_status = int(root, attr::HTTP_STATUS);
        Some(Self {
            start: root.start,
            operation: text(root, attr::OPERATION_NAME).unwrap_or_else(|| root.name.to_string()),
            model: text(root, attr::REQUEST_MODEL).or_else(|| text(root, attr::REQUEST_MODEL_NAME)),
            outcome: outcome(trace, error.as_deref(), http_status, &finish_reasons),
            http_status,
            error,
            finish_reasons,
            input_tokens: int(root, attr::USAGE_INPUT_TOKENS).or(sum(attr::USAGE_PROMPT_TOKENS)),
            output_tokens: int(root, attr::USAGE_OUTPUT_TOKENS).or(sum(attr::USAGE_COMPLETION_TOKENS)),
            cached_tokens: sum(attr::USAGE_CACHE_READ_INPUT_TOKENS).or(sum(attr::USAGE_CACHED_TOKENS)),
            queue: time(attr::LATENCY_TIME_IN_QUEUE).or(stage(span::PREFILL_WAITING)),
            prefill: stage(span::PREFILL_FORWARD).or(time(attr::LATENCY_TIME_IN_MODEL_PREFILL)),
            decode,
            ttft: time(attr::LATENCY_TIME_TO_FIRST_TOKEN),
            e2e: root.end.since(root.start),
            tpot: per_token(decode, slowest.and_then(|s| int(s, attr::USAGE_COMPLETION_TOKENS))),
            engine_requests: engine.len(),
            preemptions: sum(attr::REQUEST_PREEMPTION_COUNT).unwrap_or(0).saturating_add(retractions(trace)),
            partial: trace.spans.iter().any(|s| s.attribute(attr::PARTIAL) == Some(&Value::Bool(true))),
            estimated: union(trace, attr::ESTIMATED),
            losses: union(trace, attr::LOSS),
        })
    }

    /// What is unusual about it, most important first.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.partial {
            notes.push("partial".to_owned());
        }
        if !self.losses.is_empty() {
            notes.push(format!("lost:{}", self.losses.join("+")));
        }
        if self.preemptions > 0 {
            notes.push(format!("preempted×{}", self.preemptions));
        }
        if let Some(share) = self.cached_share() {
            notes.push(format!("cached {share}%"));
        }
        if self.engine_requests > 1 {
            notes.push(format!("×{}", self.engine_requests));
        }
        notes
    }

    /// Percent of the input that came from the cache, where any did. Candidates of one prompt each count it, so
    /// this can say more than the input holds: never over 100.
    fn cached_share(&self) -> Option<i64> {
        let (cached, input) = (self.cached_tokens?, self.input_tokens?);
        let share = cached.saturating_mul(100).checked_div(input)?;
        (cached > 0).then_some(share.min(100))
    }
}

fn outcome(trace: &Trace, error: Option<&str>, http: Option<i64>, reasons: &[String]) -> Outcome {
    let failed = trace.spans.iter().any(|span| matches!(span.status, Status::Error(_)));
    let (text, tone) = match (failed, http, error) {
        (true, Some(status @ 400..), _) => (format!("HTTP {status}"), Tone::Bad),
        (true, _, Some("client_disconnected")) => ("left".to_owned(), Tone::Notice),
        (true, _, Some(kind)) => (kind.to_owned(), Tone::Bad),
        (true, _, None) => ("error".to_owned(), Tone::Bad),
        (false, _, _) if reasons.is_empty() => {
            (http.map_or_else(|| "-".to_owned(), |_| "ok".to_owned()), Tone::Plain)
        }
        (false, _, _) => {
            let odd =
                reasons.iter().any(|reason| matches!(reason.as_str(), "abort" | "error" | "repetition"));
            (distinct(reasons).join(","), if odd { Tone::Notice } else { Tone::Plain })
        }
    };
    Outcome { text, tone }
}

fn distinct(reasons: &[String]) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for reason in reasons {
        if !seen.contains(reason) {
            seen.push(reason.clone());
        }
    }
    seen
}

/// As told to the client; as the engine says where the client was told nothing.
fn finish_reasons(root: &Span, engine: &[&Span]) -> Vec<String> {
    match root.attribute(attr::RESPONSE_FINISH_REASONS) {
        Some(Value::Strs(reasons)) => reasons.clone(),
        Some(Value::Str(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Ints(_)) | None => {
            engine.iter().filter_map(|span| text(span, attr::FINISH_REASON)).collect()
        }
    }
}

fn text(span: &Span, key: &str) -> Option<String> {
    match span.attribute(key)? {
        Value::Str(text) => Some(text.clone()),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Strs(_) | Value::Ints(_) => None,
    }
}

fn int(span: &Span, key: &str) -> Option<i64> {
    match span.attribute(key)? {
        Value::Int(number) => Some(*number),
        Value::Str(_) | Value::Float(_) | Value::Bool(_) | Value::Strs(_) | Value::Ints(_) => None,
    }
}

/// A length of time: vLLM's are nanoseconds, SGLang's seconds.
fn nanos(span: &Span, key: &str) -> Option<Nanos> {
    match span.attribute(key)? {
        Value::Int(nanos) => Some(Nanos(u64::try_from(*nanos).unwrap_or(0))),
        Value::Float(seconds) => Some(Seconds(*seconds).nanos()),
        Value::Str(_) | Value::Bool(_) | Value::Strs(_) | Value::Ints(_) => None,
    }
}

/// How long the first stage of a name took in a request to SGLang: its spans follow it.
fn stage(trace: &Trace, request: &Span, name: &str) -> Option<Nanos> {
    let mut after = trace.spans.iter().skip_while(|span| span.id != request.id).skip(1);
    let stage = after
        .by_ref()
        .take_while(|span| span.attribute(attr::RID).is_none())
        .find(|span| span.name == name)?;
    Some(stage.end.since(stage.start))
}

/// How often SGLang sent requests back to its queue.
fn retractions(trace: &Trace) -> i64 {
    let events = trace.spans.iter().flat_map(|span| &span.events);
    i64::try_from(events.filter(|seen| seen.name == event::RETRACT).count()).unwrap_or(i64::MAX)
}

/// The sum over spans that have the attribute; `None` where none has.
fn total<'a>(spans: impl Iterator<Item = &'a Span>, key: &str) -> Option<i64> {
    spans.filter_map(|span| int(span, key)).reduce(i64::saturating_add)
}

/// All members of a list attribute over all spans, each once.
fn union(trace: &Trace, key: &str) -> Vec<String> {
    let lists = trace.spans.iter().filter_map(|span| match span.attribute(key)? {
        Value::Strs(list) => Some(list),
        Value::Str(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Ints(_) => None,
    });
    distinct(&lists.flatten().cloned().collect::<Vec<_>>())
}

/// Time per output token after the first.
fn per_token(decode: Option<Nanos>, output: Option<i64>) -> Option<Nanos> {
    let after_first = u64::try_from(output?.checked_sub(1)?).ok()?;
    decode?.0.checked_div(after_first).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    #[test]
    fn a_request_is_summed_up_from_its_spans() {
        let row = Row::of(&sample::trace()).unwrap();
        assert_eq!((row.operation.as_str(), row.model.as_deref()), ("chat", Some("tiny/llama")));
        assert_eq!((row.input_tokens, row.output_tokens, row.cached_tokens), (Some(20), Some(11), Some(15)));
        assert_eq!(row.tpot, Some(Nanos(75_700_000)));
        assert_eq!(row.e2e, Nanos::from_millis(812));
        assert_eq!(row.notes(), ["preempted×2", "cached 75%"]);
        assert_eq!(row.outcome, Outcome { text: "stop".to_owned(), tone: Tone::Plain });
    }

    #[test]
    fn a_refused_request_says_its_status() {
        let row = Row::of(&sample::refused()).unwrap();
        assert_eq!(row.outcome, Outcome { text: "HTTP 400".to_owned(), tone: Tone::Bad });
        assert_eq!(row.notes(), ["partial", "lost:gap_bytes"]);
        assert_eq!((row.queue, row.tpot), (None, None));
    }

    #[test]
    fn odd_figures_from_outside_do_no_harm() {
        let mut trace = sample::trace();
        for (key, value) in [
            (attr::USAGE_COMPLETION_TOKENS, i64::MIN),
            (attr::USAGE_CACHE_READ_INPUT_TOKENS, i64::MAX),
            (attr::LATENCY_TIME_IN_MODEL_DECODE, -1),
        ] {
            trace.spans[1].set(key, value);
        }
        trace.spans[0].set(attr::USAGE_INPUT_TOKENS, 0_i64);
        let row = Row::of(&trace).unwrap();
        assert_eq!((row.tpot, row.decode), (None, Some(Nanos(0))));
        assert_eq!(row.notes(), ["preempted×2"]);
    }
}
