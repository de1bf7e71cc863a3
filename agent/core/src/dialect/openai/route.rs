//! Every route of vLLM's HTTP server, and what is made of each.
//!
//! The table mirrors the routers of `vllm/entrypoints` at 0.32.0 and keeps the paths that older releases
//! (0.8 on) had. Four operations make entry spans; what asks the engine for the same kind of work by another
//! protocol (Responses, Anthropic Messages, Cohere) is given the operation it is by nature. Where the
//! contract has no operation for what a route does, it is passed over, and its engine requests make traces
//! of their own.

mod markdown;

pub use markdown::markdown;

use crate::dialect::signal::Operation;

/// An endpoint whose requests make entry spans: which bodies it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/chat/completions/batch`: a list of conversations.
    ChatBatch,
    /// `/v1/completions`.
    Completions,
    /// `/inference/v1/generate`: token ids in, token ids out.
    Generate,
    /// `/generate`, SGLang's own: texts or token ids in, texts and token ids out.
    Native,
    /// `/v1/embeddings`.
    Embeddings,
    /// `/v2/embed`, Cohere's embeddings.
    CohereEmbed,
    /// `/pooling`: hidden states, pooled as the model does. An embedding in all but name.
    Pooling,
    /// `/rerank`, `/v1/rerank`, `/v2/rerank`.
    Rerank,
    /// `/score`, `/v1/score`, and `/generative_scoring`.
    Score,
    /// `/v1/responses`, OpenAI's Responses API.
    Responses,
    /// `/v1/messages`, Anthropic's Messages API.
    Messages,
    /// `/cohere/v2/chat`, Cohere's chat.
    CohereChat,
    /// `/invocations`, SageMaker's: a body of any other endpoint, told apart by its fields.
    Invocations,
}

impl Endpoint {
    /// The operation its requests are; `None` where only the body tells ([`Self::Invocations`]).
    #[must_use]
    pub fn operation(self) -> Option<Operation> {
        match self {
            Self::Chat | Self::ChatBatch | Self::Responses | Self::Messages | Self::CohereChat => {
                Some(Operation::Chat)
            }
            Self::Completions | Self::Generate | Self::Native => Some(Operation::TextCompletion),
            Self::Embeddings | Self::CohereEmbed | Self::Pooling => Some(Operation::Embeddings),
            Self::Rerank | Self::Score => Some(Operation::Rerank),
            Self::Invocations => None,
        }
    }
}

/// Why no entry span is made of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassedOver {
    /// A probe: is the server alive, how loaded is it.
    Probe,
    /// Says what is served here; asks nothing of the engine's model.
    Catalogue,
    /// Tokenizes, renders or counts in the API server alone.
    Frontend,
    /// Runs the server: adapters, caches, profiling, sleep, weights, scaling.
    Control,
    /// Asks for, or ends, a response that an earlier request made.
    Stored,
    /// Runs the model, but the contract has no operation for it: its engine requests make traces of their own.
    NoOperation,
}

impl PassedOver {
    /// The reason in words, for the documentation and the debug log.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Probe => "a probe of the server's health or load",
            Self::Catalogue => "says what is served; runs no model",
            Self::Frontend => "done in the API server alone; runs no model",
            Self::Control => "runs the server itself; runs no model",
            Self::Stored => "asks for a response that an earlier request made",
            Self::NoOperation => "no operation of the contract; its engine requests make traces of their own",
        }
    }
}

/// What is made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// An entry span.
    Span(Endpoint),
    /// Nothing, knowingly.
    PassedOver(PassedOver),
    /// No route of the table: nothing.
    Unknown,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Methods it answers to, separated by a blank.
    pub methods: &'static str,
    /// Path without a prefix; `{}` stands for one segment of any text.
    pub path: &'static str,
    /// What is made of it.
    pub route: Route,
}

const fn span(path: &'static str, endpoint: Endpoint) -> Row {
    Row { methods: "POST", path, route: Route::Span(endpoint) }
}

const fn get(path: &'static str, why: PassedOver) -> Row {
    Row { methods: "GET HEAD", path, route: Route::PassedOver(why) }
}

const fn post(path: &'static str, why: PassedOver) -> Row {
    Row { methods: "POST", path, route: Route::PassedOver(why) }
}

/// Every known route.
pub const ROUTES: &[Row] = &[
    span("/v1/chat/completions", Endpoint::Chat),
    span("/v1/chat/completions/batch", Endpoint::ChatBatch),
    span("/v1/completions", Endpoint::Completions),
    span("/inference/v1/generate", Endpoint::Generate),
    span("/generate", Endpoint::Native),
    span("/v1/embeddings", Endpoint::Embeddings),
    span("/v2/embed", Endpoint::CohereEmbed),
    span("/pooling", Endpoint::Pooling),
    span("/rerank", Endpoint::Rerank),
    span("/v1/rerank", Endpoint::Rerank),
    span("/v2/rerank", Endpoint::Rerank),
    span("/score", Endpoint::Score),
    span("/v1/score", Endpoint::Score),
    span("/generative_scoring", Endpoint::Score),
    span("/v1/responses", Endpoint::Responses),
    span("/v1/messages", Endpoint::Messages),
    span("/cohere/v2/chat", Endpoint::CohereChat),
    span("/invocations", Endpoint::Invocations),
    // The model runs, but no operation of the contract names it.
    post("/classify", PassedOver::NoOperation),
    post("/v1/systemone", PassedOver::NoOperation),
    post("/v1/audio/transcriptions", PassedOver::NoOperation),
    post("/v1/audio/translations", PassedOver::NoOperation),
    get("/v1/realtime", PassedOver::NoOperation),
    // Responses kept by the server.
    get("/v1/responses/{}", PassedOver::Stored),
    post("/v1/responses/{}/cancel", PassedOver::Stored),
    post("/inference/v1/abort_requests", PassedOver::Stored),
    post("/abort_requests", PassedOver::Stored),
    // The API server alone.
    post("/tokenize", PassedOver::Frontend),
    post("/detokenize", PassedOver::Frontend),
    post("/v1/messages/count_tokens", PassedOver::Frontend),
    post("/v1/chat/completions/render", PassedOver::Frontend),
    post("/v1/chat/completions/derender", PassedOver::Frontend),
    post("/v1/completions/render", PassedOver::Frontend),
    post("/v1/completions/derender", PassedOver::Frontend),
    post("/v1/messages/render", PassedOver::Frontend),
    post("/v1/responses/render", PassedOver::Frontend),
    post("/cohere/v2/chat/render", PassedOver::Frontend),
    // Probes.
    get("/health", PassedOver::Probe),
    get("/ready", PassedOver::Probe),
    get("/readyz", PassedOver::Probe),
    get("/metrics", PassedOver::Probe),
    get("/load", PassedOver::Probe),
    get("/ping", PassedOver::Probe),
    post("/ping", PassedOver::Probe),
    get("/fault_tolerance/status", PassedOver::Probe),
    // What is served.
    get("/v1/models", PassedOver::Catalogue),
    get("/version", PassedOver::Catalogue),
    get("/server_info", PassedOver::Catalogue),
    get("/tokenizer_info", PassedOver::Catalogue),
    get("/get_tokenizer_info", PassedOver::Catalogue),
    get("/kv_event_sources", PassedOver::Catalogue),
    get("/docs", PassedOver::Catalogue),
    get("/docs/oauth2-redirect", PassedOver::Catalogue),
    get("/redoc", PassedOver::Catalogue),
    get("/openapi.json", PassedOver::Catalogue),
    // Running the server.
    post("/v1/load_lora_adapter", PassedOver::Control),
    post("/v1/unload_lora_adapter", PassedOver::Control),
    post("/start_profile", PassedOver::Control),
    post("/stop_profile", PassedOver::Control),
    post("/reset_prefix_cache", PassedOver::Control),
    post("/reset_mm_cache", PassedOver::Control),
    post("/reset_encoder_cache", PassedOver::Control),
    post("/release_kv_cache_memory", PassedOver::Control),
    post("/collective_rpc", PassedOver::Control),
    post("/sleep", PassedOver::Control),
    post("/wake_up", PassedOver::Control),
    get("/is_sleeping", PassedOver::Control),
    post("/pause", PassedOver::Control),
    post("/resume", PassedOver::Control),
    get("/is_paused", PassedOver::Control),
    post("/scale_elastic_ep", PassedOver::Control),
    post("/is_scaling_elastic_ep", PassedOver::Control),
    post("/fault_tolerance/apply", PassedOver::Control),
    post("/init_weight_transfer_engine", PassedOver::Control),
    post("/shutdown_weight_transfer_engine", PassedOver::Control),
    post("/start_weight_update", PassedOver::Control),
    post("/start_draft_weight_update", PassedOver::Control),
    post("/update_weights", PassedOver::Control),
    post("/update_weight_version", PassedOver::Control),
    post("/finish_weight_update", PassedOver::Control),
    get("/weight_info", PassedOver::Control),
    post("/weight_checker", PassedOver::Control),
    get("/get_world_size", PassedOver::Control),
];

/// What is made of a request with this method and target (the head's second word, query and all).
///
/// A path matches by its last segments, so that `--root-path` and gateways that keep their own prefix do
/// not hide a route. Of several rows that match, the longest path is the one.
#[must_use]
pub fn route(method: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Route {
    let (method, path) = (method.as_ref(), path_of(target.as_ref()));
    ROUTES
        .iter()
        .filter(|row| row.methods.split(' ').any(|m| m.as_bytes() == method))
        .filter(|row| ends_with(path, row.path.as_bytes()))
        .max_by_key(|row| row.path.len())
        .map_or(Route::Unknown, |row| row.route)
}

/// A target without its query and fragment.
#[must_use]
pub fn path_of(target: &[u8]) -> &[u8] {
    target.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default()
}

/// Whether the last segments of `path` are those of `pattern`.
fn ends_with(path: &[u8], pattern: &[u8]) -> bool {
    let mut segments = path.rsplit(|&b| b == b'/');
    let wanted = pattern.get(1..).unwrap_or_default();
    wanted
        .rsplit(|&b| b == b'/')
        .all(|want| segments.next().is_some_and(|have| have == want || (want == b"{}" && !have.is_empty())))
        && segments.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operations_of_the_contract_make_spans() {
        for (path, operation) in [
            ("/v1/chat/completions", Operation::Chat),
            ("/v1/completions", Operation::TextCompletion),
            ("/v1/embeddings", Operation::Embeddings),
            ("/rerank", Operation::Rerank),
            ("/v1/rerank", Operation::Rerank),
            ("/v2/rerank", Operation::Rerank),
            ("/score", Operation::Rerank),
            ("/v1/score", Operation::Rerank),
        ] {
            let Route::Span(endpoint) = route("POST", path) else { panic!("{path} makes no span") };
            assert_eq!(endpoint.operation(), Some(operation), "{path}");
        }
    }

    #[test]
    fn every_row_is_found_by_its_own_path_and_method() {
        for row in ROUTES {
            let path = row.path.replace("{}", "resp_1");
            for method in row.methods.split(' ') {
                assert_eq!(route(method, &path), row.route, "{method} {path}");
                assert_eq!(route(method, format!("/proxy/a{path}?x=/health")), row.route, "{method} {path}");
            }
            assert_eq!(route("DELETE", &path), Route::Unknown);
        }
    }

    #[test]
    fn no_path_is_listed_twice_for_one_method() {
        for (i, a) in ROUTES.iter().enumerate() {
            for b in ROUTES.iter().skip(i + 1) {
                let shared = a.methods.split(' ').any(|m| b.methods.split(' ').any(|n| m == n));
                assert!(a.path != b.path || !shared, "{}", a.path);
            }
        }
    }

    #[test]
    fn the_longest_path_is_the_route() {
        assert_eq!(route("POST", "/v1/responses/render"), Route::PassedOver(PassedOver::Frontend));
        assert_eq!(route("POST", "/v1/responses/resp_1/cancel"), Route::PassedOver(PassedOver::Stored));
        assert_eq!(route("POST", "http://host:8000/v1/completions"), Route::Span(Endpoint::Completions));
    }

    #[test]
    fn what_only_resembles_a_route_is_unknown() {
        for path in
            ["", "/", "v1", "/v1", "/v1/completions/", "/xv1/completions", "/v1/responses/", "rerank", "*"]
        {
            assert_eq!(route("POST", path), Route::Unknown, "{path}");
        }
    }
}
