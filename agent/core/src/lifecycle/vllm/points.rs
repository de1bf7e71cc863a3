//! Totals to metric points, and what is added to the totals when.

use super::request::{Applied, Request};
use super::server::Server;
use super::totals::EngineTotals;
use crate::dialect::request_id;
use crate::dialect::signal::Operation;
use crate::ids::ServerId;
use crate::lifecycle::Context;
use crate::lifecycle::exchange::Exchange;
use crate::model::metric::{Number, Point};
use crate::model::registry::{MetricDef, MetricKind, dim, metric};
use crate::time::{Seconds, WallTime};

/// `callType` of every metric.
pub(super) const CALL_TYPE: &str = "gen_ai";
/// `callKind` of the API-layer metrics.
const CALL_KIND: &str = "custom_entry";
/// `rpcType` of every metric.
pub(super) const RPC_TYPE: &str = "2100";

impl Server {
    /// Its metrics.
    pub fn points(&self, at: WallTime) -> Vec<Point> {
        of(self, at)
    }

    pub(super) fn totals_of(&mut self, request: Option<u32>) -> &mut EngineTotals {
        self.totals.entry(request.unwrap_or(0)).or_default()
    }

    /// Counts what an output brought.
    pub(super) fn count(&mut self, name: &str, applied: Applied, context: &Context<'_>) {
        let Some(request) = self.requests.get(name) else { return };
        let (index, first_token) = (request.engine_index, since_first(request, applied, context));
        self.add(index, applied, first_token);
    }

    /// Adds what applying outputs changed; `first_token`: the time to the first token, where it was among them.
    pub(super) fn add(&mut self, index: Option<u32>, applied: Applied, first_token: Option<Seconds>) {
        let Applied { tokens, prompt_tokens, preemptions, first_token_at: _ } = applied;
        let totals = self.totals_of(index);
        totals.generation_tokens += tokens;
        totals.prompt_tokens += prompt_tokens;
        totals.preemptions += preemptions;
        totals.first_token.add(first_token);
    }

    /// Adds a finished request's times.
    ///
    /// Mirrors `IterationStats.update_from_finished_request` of `vllm/v1/metrics/stats.py` (0.32.0).
    pub(super) fn observe_finished(&mut self, name: &str, reason: &'static str, context: &Context<'_>) {
        let Some(request) = self.requests.get(name) else { return };
        let exact = !request.estimated;
        let candidates = self.finish_sibling(request_id::parent(name));
        let Some(request) = self.requests.get(name) else { return };
        let Request { moments, output_tokens, engine_index, last_at, .. } = request;
        let (moments, tokens, index) = (*moments, *output_tokens, *engine_index);
        let duration = last_at.and_then(|at| since_arrival(request, context, at));
        let max_tokens = request.engine.as_ref().and_then(|e| e.sampling.as_ref()).and_then(|s| s.max_tokens);
        let partial = request.partial();
        let totals = self.totals_of(index);
        *totals.finished.entry(reason).or_default() += 1;
        totals.params_max_tokens += max_tokens.unwrap_or(0);
        totals.params_n += candidates;
        totals.duration.add(duration);
        totals.queue.add(moments.queue().filter(|_| exact));
        totals.prefill.add(moments.prefill().filter(|_| exact));
        totals.inference.add(moments.inference().filter(|_| exact));
        if !partial || moments.scheduled.is_some() {
            totals.decode.add(moments.decode());
            totals.per_output_token.add(moments.decode().map(|decode| per_output_token(decode, tokens)));
        }
    }

    /// The parameter `n` to add when a request ends: once for the siblings of one API request.
    fn finish_sibling(&mut self, parent: Option<&str>) -> u64 {
        let Some(parent) = parent else { return 1 };
        let Some(siblings) = self.siblings.get_mut(parent) else { return 0 };
        siblings.finished += 1;
        if siblings.finished == siblings.added { u64::from(siblings.added) } else { 0 }
    }

    /// Adds an exchange's tokens to the API-layer usage.
    pub(super) fn use_tokens(&mut self, exchange: &Exchange, requests: &[(String, Request)]) {
        let kind = match exchange.request.operation {
            Operation::Chat | Operation::TextCompletion => "LLM",
            Operation::Embeddings => "EMBEDDING",
            Operation::Rerank => "RERANKER",
        };
        let model = exchange.request.model.as_deref().or(exchange.response_model.as_deref());
        let model = model.or(self.fact.models.first().map(String::as_str)).unwrap_or("unknown").to_owned();
        let (input, output) = super::spans::usage(exchange, requests);
        if let (Some(input), Some(output)) = (input, output) {
            self.usages.add(&model, kind, input, output);
        }
    }
}

/// Seconds from the frontend's taking a request up (`arrival_time`) to a moment, as the frontend computes it.
pub(super) fn since_arrival(
    request: &Request,
    context: &Context<'_>,
    at: crate::time::MonoTime,
) -> Option<Seconds> {
    let arrival = request.engine.as_ref()?.arrival?;
    Some(context.clock.wall(at).since(arrival.wall()).seconds())
}

/// The time to the first token, where it was among what was applied.
pub(super) fn since_first(request: &Request, applied: Applied, context: &Context<'_>) -> Option<Seconds> {
    applied.first_token_at.and_then(|at| since_arrival(request, context, at))
}

/// Mean time of an output token after the first; 0 where there is no such token.
pub(super) fn per_output_token(decode: Seconds, tokens: u64) -> Seconds {
    match tokens {
        0 | 1 => Seconds(0.0),
        #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        n => Seconds(decode.0 / (n - 1) as f64),
    }
}

/// The server's metrics.
fn of(server: &Server, at: WallTime) -> Vec<Point> {
    let mut points = Points { server: server.fact.id, since: server.since, at, points: Vec::new() };
    if let Some(engine) = &server.v0 {
        points.v0(engine, server.totals.get(&0));
        points.usages(server);
        return points.points;
    }
    let model = server.fact.models.first().map_or("unknown", String::as_str);
    for (index, core) in &server.cores {
        let dims = engine_dimensions(*index, model);
        points.push(&metric::VLLM_ITER_COUNT, &dims, Number::Int(core.iterations));
        if core.stats {
            points.push(&metric::PREFIX_CACHE_QUERIES, &dims, Number::Int(core.prefix.queries));
            points.push(&metric::PREFIX_CACHE_HITS, &dims, Number::Int(core.prefix.hits));
        }
        if let Some(state) = core.state {
            points.push(&metric::NUM_REQUESTS_RUNNING, &dims, Number::Int(state.running));
            points.push(&metric::NUM_REQUESTS_WAITING, &dims, Number::Int(state.waiting));
            points.push(&metric::KV_CACHE_USAGE_PERC, &dims, Number::Float(state.kv_usage));
        }
    }
    for (index, totals) in &server.totals {
        let told = server.cores.get(index).is_none_or(|core| core.stats);
        points.totals(totals, &engine_dimensions(*index, model), told);
    }
    points.usages(server);
    points.why(server);
    points.points
}

fn engine_dimensions(index: u32, model: &str) -> Vec<(&'static str, String)> {
    vec![
        (dim::CALL_TYPE, CALL_TYPE.to_owned()),
        (dim::RPC_TYPE, RPC_TYPE.to_owned()),
        (dim::ENGINE_INDEX, index.to_string()),
        (dim::MODEL_NAME, model.to_owned()),
    ]
}

pub(super) struct Points {
    server: ServerId,
    since: WallTime,
    at: WallTime,
    points: Vec<Point>,
}

impl Points {
    pub(super) fn push(
        &mut self,
        def: &'static MetricDef,
        dimensions: &[(&'static str, String)],
        value: Number,
    ) {
        let start = match def.kind {
            MetricKind::Counter => self.since,
            MetricKind::Gauge | MetricKind::UpDown => self.at,
        };
        let (server, at) = (Some(self.server), self.at);
        self.points.push(Point { server, metric: def, dimensions: dimensions.to_vec(), value, start, at });
    }

    /// Totals of an engine. One that sends no statistics (`--disable-log-stats`) tells nothing of scheduling and
    /// preemption: no point, rather than a zero (`told`).
    fn totals(&mut self, totals: &EngineTotals, dims: &[(&'static str, String)], told: bool) {
        let counts = [
            (&metric::PROMPT_TOKENS, totals.prompt_tokens),
            (&metric::GENERATION_TOKENS, totals.generation_tokens),
            (&metric::REQUEST_PARAMS_N, totals.params_n),
            (&metric::REQUEST_PARAMS_MAX_TOKENS, totals.params_max_tokens),
        ];
        for (def, count) in counts {
            self.push(def, dims, Number::Int(count));
        }
        let sums = [
            (&metric::FIRST_TOKEN_SECONDS, totals.first_token),
            (&metric::TIME_PER_OUTPUT_TOKEN, totals.per_output_token),
            (&metric::REQUEST_DURATION, totals.duration),
            (&metric::REQUEST_DECODE_TIME_SECONDS, totals.decode),
        ];
        let scheduling = [
            (&metric::REQUEST_QUEUE_TIME_SECONDS, totals.queue),
            (&metric::REQUEST_PREFILL_TIME_SECONDS, totals.prefill),
            (&metric::REQUEST_INFERENCE_TIME_SECONDS, totals.inference),
        ];
        for (def, sum) in sums.into_iter().chain(scheduling.into_iter().filter(|_| told)) {
            self.push(def, dims, Number::Float(sum.seconds));
        }
        if told {
            self.push(&metric::NUM_PREEMPTIONS, dims, Number::Int(totals.preemptions));
        }
        for (reason, count) in &totals.finished {
            let mut dims = dims.to_vec();
            dims.push((dim::FINISHED_REASON, (*reason).to_owned()));
            self.push(&metric::REQUEST_SUCCESS, &dims, Number::Int(*count));
        }
    }

    /// What held requests up.
    fn why(&mut self, server: &Server) {
        for (def, dims, value) in server.why.points() {
            self.push(def, &dims, value);
        }
    }

    fn usages(&mut self, server: &Server) {
        for ((model, kind), (input, output)) in &server.usages.0 {
            for (usage, count) in [("input", input), ("output", output)] {
                let dims = [
                    (dim::CALL_TYPE, CALL_TYPE.to_owned()),
                    (dim::CALL_KIND, CALL_KIND.to_owned()),
                    (dim::RPC_TYPE, RPC_TYPE.to_owned()),
                    (dim::API_MODEL_NAME, model.clone()),
                    (dim::SPAN_KIND, (*kind).to_owned()),
                    (dim::USAGE_TYPE, usage.to_owned()),
                ];
                self.push(&metric::USAGE_TOKENS, &dims, Number::Int(*count));
            }
        }
    }
}
