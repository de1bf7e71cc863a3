//! What is counted of requests, and the server's metric points.

use super::load::Sums;
use super::moment::{Moment, Source};
use super::request::Request;
use super::server::Server;
use crate::capture::fact::Disaggregation;
use crate::dialect::signal::Operation;
use crate::dialect::signal::sglang::SglangOutput;
use crate::lifecycle::exchange::Exchange;
use crate::lifecycle::totals::Sum;
use crate::model::metric::{Number, Point};
use crate::model::registry::{MetricDef, dim, metric};
use crate::time::{MonoTime, Seconds, WallTime};

/// Sums over requests, as SGLang's frontend adds them up (`TokenizerManager.collect_metrics` of
/// `sglang/srt/managers/tokenizer_manager.py`, 0.5.23).
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub requests: u64,
    pub prompt_tokens: u64,
    pub generation_tokens: u64,
    pub cached_tokens: u64,
    pub first_token: Sum,
    pub inter_token: Seconds,
    pub per_output_token: Sum,
    pub duration: Sum,
}

impl Server {
    /// Counts an output that reached the frontend, after its request took it in.
    pub(super) fn count_output(&mut self, output: &SglangOutput, at: MonoTime) {
        // A prefill node's frontend counts no first token, and no intervals.
        let node = self.fact.sglang.as_ref().map(|launch| launch.disaggregation).unwrap_or_default();
        let prefill_node = node == Disaggregation::Prefill;
        let Some(request) = self.requests.get_mut(&output.rid) else { return };
        let aborted = output.finish.as_ref().is_some_and(|finish| finish.kind == "abort");
        let tokens = output.completion_tokens.unwrap_or(0);
        let now = Moment::seen(at, Source::Frontend);
        let counted = &mut request.counted;
        if let Some(last) = counted.last {
            // A new interval begins with each message that brought tokens.
            if tokens > counted.tokens {
                self.totals.inter_token.0 += now.at.since(last.at).0.max(0.0);
            }
            if tokens != counted.tokens {
                (counted.tokens, counted.last) = (tokens, Some(now));
            }
        } else if !aborted && !prefill_node {
            (counted.first_due, counted.tokens, counted.last) = (true, tokens, Some(now));
        }
        if output.finish.is_some() && !counted.end {
            counted.end = true;
            counted.duration_due = true;
            self.totals.requests += 1;
            self.totals.prompt_tokens += request.prompt_tokens.unwrap_or(0);
            self.totals.generation_tokens += tokens;
            self.totals.cached_tokens += request.cached_tokens.unwrap_or(0);
        }
        self.count_times(&output.rid, false);
    }

    /// Counts the times of a request that are due and known; `last`: nothing more will be told of it.
    pub(super) fn count_times(&mut self, rid: &str, last: bool) {
        let Some(request) = self.requests.get_mut(rid) else { return };
        // The frontend writes when its first token came; where its objects are read, that is soon told.
        let told = request.frontend.first_token.get().is_some_and(|first| first.exact());
        if request.counted.first_due && !request.counted.first && (told || last || !self.looked_into) {
            // An agent that came later did not see the first token.
            let first = request.since_created(request.frontend.first_token).filter(|_| !request.partial());
            request.counted.first = first.is_some();
            self.totals.first_token.add(first);
        }
        let Some(duration) = request.since_created(request.frontend.finished) else { return };
        if !std::mem::take(&mut request.counted.duration_due) {
            return;
        }
        self.totals.duration.add(Some(duration));
        let whole = request.finish.as_ref().is_some_and(|finish| finish.kind != "abort");
        let tokens = request.completion_tokens.filter(|&tokens| whole && tokens > 0);
        #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        self.totals.per_output_token.add(tokens.map(|tokens| Seconds(duration.0 / tokens as f64)));
    }

    /// Counts what is left of a request before it is forgotten: one that joined no exchange was taken up when it
    /// was first seen, as far as anybody can tell.
    pub(super) fn count_last(&mut self, rid: &str) {
        let Some(request) = self.requests.get_mut(rid) else { return };
        if !request.partial() {
            request.frontend.created.seen(request.since, Source::Estimate);
        }
        self.count_times(rid, true);
    }

    /// Adds an exchange's tokens to the API-layer usage.
    pub(super) fn use_tokens(&mut self, exchange: &Exchange, requests: &[Request]) {
        let kind = match exchange.request.operation {
            Operation::Chat | Operation::TextCompletion => "LLM",
            Operation::Embeddings => "EMBEDDING",
            Operation::Rerank => "RERANKER",
        };
        let model = exchange.request.model.as_deref().or(exchange.response_model.as_deref());
        let model = model.or(self.fact.models.first().map(String::as_str)).unwrap_or("unknown").to_owned();
        let (input, output) = super::entry::usage(exchange, requests);
        if let (Some(input), Some(output)) = (input, output) {
            self.usages.add(&model, kind, input, output);
        }
    }

    /// Its metrics.
    pub fn points(&self, at: WallTime) -> Vec<Point> {
        let mut points = Points { server: self, at, points: Vec::new() };
        points.state(&self.loads.sums);
        points.requests(&self.totals);
        points.usages();
        points.why();
        points.points
    }
}

struct Points<'a> {
    server: &'a Server,
    at: WallTime,
    points: Vec<Point>,
}

impl Points<'_> {
    fn push(&mut self, metric: &'static MetricDef, more: &[(&'static str, String)], value: Number) {
        let mut dimensions = vec![
            (dim::CALL_TYPE, "gen_ai".to_owned()),
            (dim::CALL_KIND, "custom_entry".to_owned()),
            (dim::RPC_TYPE, "2100".to_owned()),
        ];
        dimensions.extend_from_slice(more);
        self.put(metric, dimensions, value);
    }

    fn put(&mut self, metric: &'static MetricDef, dimensions: Vec<(&'static str, String)>, value: Number) {
        let (server, start, at) = (Some(self.server.fact.id), self.server.since, self.at);
        self.points.push(Point { server, metric, dimensions, value, start, at });
    }

    /// What held requests up.
    fn why(&mut self) {
        for (def, dims, value) in self.server.why.points() {
            self.put(def, dims, value);
        }
    }

    /// State metrics: no point where no source ever told, rather than a zero.
    fn state(&mut self, sums: &Sums) {
        let Sums {
            reports,
            running,
            queued,
            used_tokens,
            token_usage,
            gen_throughput,
            cache_hit_rate,
            accept_length,
        } = sums;
        let counts = [
            (&metric::SGLANG_LOG_COUNT, Some(*reports)),
            (&metric::SGLANG_NUM_RUNNING_REQS, *running),
            (&metric::SGLANG_NUM_QUEUE_REQS, *queued),
            (&metric::SGLANG_NUM_USED_TOKENS, *used_tokens),
        ];
        let values = [
            (&metric::SGLANG_TOKEN_USAGE, *token_usage),
            (&metric::SGLANG_GEN_THROUGHPUT, *gen_throughput),
            (&metric::CACHE_HIT_RATE, *cache_hit_rate),
            (&metric::SGLANG_SPEC_ACCEPT_LENGTH, *accept_length),
        ];
        let counts = counts.into_iter().filter_map(|(def, count)| Some((def, Number::Int(count?))));
        let values = values.into_iter().filter_map(|(def, value)| Some((def, Number::Float(value?))));
        for (def, value) in counts.chain(values) {
            self.push(def, &[], value);
        }
    }

    fn requests(&mut self, totals: &Totals) {
        let Totals {
            requests,
            prompt_tokens,
            generation_tokens,
            cached_tokens,
            first_token,
            inter_token,
            per_output_token,
            duration,
        } = totals;
        let model = self.server.fact.models.first().map_or("unknown", String::as_str).to_owned();
        for (def, usage, tokens) in [
            (&metric::PROMPT_TOKENS_TOTAL, "input", prompt_tokens),
            (&metric::GENERATION_TOKENS_TOTAL, "output", generation_tokens),
            (&metric::CACHED_TOKENS_TOTAL, "input", cached_tokens),
        ] {
            self.push(def, &of_tokens(&model, "LLM", usage), Number::Int(*tokens));
        }
        self.push(&metric::NUM_REQUESTS_TOTAL, &[], Number::Int(*requests));
        for (def, seconds) in [
            (&metric::TIME_TO_FIRST_TOKEN, first_token.seconds),
            (&metric::SGLANG_INTER_TOKEN_LATENCY_SECONDS, inter_token.0),
            (&metric::TIME_PER_OUTPUT_TOKEN, per_output_token.seconds),
            (&metric::REQUEST_DURATION, duration.seconds),
        ] {
            self.push(def, &[], Number::Float(seconds));
        }
    }

    fn usages(&mut self) {
        for ((model, kind), (input, output)) in &self.server.usages.0 {
            for (usage, count) in [("input", input), ("output", output)] {
                self.push(&metric::USAGE_TOKENS, &of_tokens(model, kind, usage), Number::Int(*count));
            }
        }
    }
}

/// Dimensions of the token metrics beside those of all.
fn of_tokens(model: &str, kind: &str, usage: &str) -> [(&'static str, String); 3] {
    [
        (dim::API_MODEL_NAME, model.to_owned()),
        (dim::SPAN_KIND, kind.to_owned()),
        (dim::USAGE_TYPE, usage.to_owned()),
    ]
}
