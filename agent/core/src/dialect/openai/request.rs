//! Requests.

use super::content::{Conversation, Objects};
use super::{Collect, Endpoint, path_of};
use crate::dialect::signal::{ApiRequest, Operation};
use crate::wire::json::{Kind, Scanner, Stop, Text, Walk};

/// Most characters kept of a name, an id or a header.
const NAME_LIMIT: usize = 1024;

/// Reads a request.
///
/// `header` finds a header's value by its lower-case name. `body` is what is known of the body from its
/// first byte to the first gap; `cut` says that there was a gap (or that the body was over the limit).
#[must_use]
pub fn request<'h>(
    endpoint: Endpoint,
    target: &[u8],
    header: impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
    cut: bool,
    collect: Collect,
) -> ApiRequest {
    let mut draft = Draft::new(endpoint, collect);
    let walked = Scanner::new(body).object(|s, key| draft.take(s, key.raw()));
    let header = |name| header(name).map(latin1);
    // `_base_request_id`: the header goes before the body's field, save for the Responses API.
    let id_header = if endpoint == Endpoint::Responses { None } else { header("x-request-id") };
    ApiRequest {
        operation: draft.operation(),
        path: latin1(path_of(target)),
        request_id: id_header.or(draft.request_id),
        traceparent: header("traceparent"),
        tracestate: header("tracestate"),
        model: draft.model,
        choices: draft.choices,
        prompts: draft.prompts.unwrap_or(1),
        temperature: draft.temperature,
        top_p: draft.top_p,
        top_k: draft.top_k,
        max_tokens: draft.max_completion_tokens.or(draft.max_tokens),
        stream: draft.stream,
        user: draft.user,
        stop: draft.stop,
        logprobs: draft.logprobs,
        tools: draft.tools,
        content: draft.content.finish(),
        cut: cut || walked == Err(Stop::Cut),
    }
}

/// A header as Starlette reads it, within the limit.
fn latin1(value: &[u8]) -> String {
    value.iter().take(NAME_LIMIT).map(|&byte| char::from(byte)).collect()
}

/// A request as its fields are found.
struct Draft {
    endpoint: Endpoint,
    /// The operation the fields speak of.
    hint: Option<Operation>,
    request_id: Option<String>,
    model: Option<String>,
    choices: Option<u32>,
    prompts: Option<u32>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    stream: bool,
    user: Option<String>,
    stop: bool,
    logprobs: bool,
    tools: bool,
    content: Conversation,
}

impl Draft {
    fn new(endpoint: Endpoint, collect: Collect) -> Self {
        Self {
            endpoint,
            hint: None,
            request_id: None,
            model: None,
            choices: None,
            prompts: None,
            temperature: None,
            top_p: None,
            top_k: None,
            max_tokens: None,
            max_completion_tokens: None,
            stream: false,
            user: None,
            stop: false,
            logprobs: false,
            tools: false,
            content: Conversation::new(if collect.content { collect.limit } else { 0 }),
        }
    }

    fn operation(&self) -> Operation {
        self.endpoint.operation().or(self.hint).unwrap_or(Operation::TextCompletion)
    }

    fn take(&mut self, s: &mut Scanner<'_>, key: &[u8]) -> Walk {
        let cohere = self.endpoint == Endpoint::CohereChat;
        match key {
            b"model" => self.model = take_name(s)?,
            b"request_id" => self.request_id = take_name(s)?,
            b"user" => self.user = take_name(s)?,
            b"n" => self.choices = s.take_u32()?,
            b"temperature" => self.temperature = s.take_f64()?,
            b"top_p" => self.top_p = s.take_f64()?,
            b"p" if cohere => self.top_p = s.take_f64()?,
            b"top_k" => self.top_k = s.take_i64()?,
            b"k" if cohere => self.top_k = s.take_i64()?,
            b"max_tokens" | b"max_output_tokens" => self.max_tokens = self.take_limit(s)?,
            b"max_completion_tokens" => self.max_completion_tokens = self.take_limit(s)?,
            b"stream" => self.stream = s.take_bool()?.unwrap_or(false),
            b"stop" | b"stop_sequences" => self.stop |= s.take_truth()?,
            b"logprobs" => self.logprobs |= take_asked(s)?,
            b"top_logprobs" | b"prompt_logprobs" => self.logprobs |= s.take_truth()?,
            b"tools" | b"functions" => self.tools |= s.take_truth()?,
            b"max_new_tokens" if self.endpoint == Endpoint::Native => self.max_tokens = self.take_limit(s)?,
            b"rid" if self.endpoint == Endpoint::Native && s.kind()? == Kind::Text => {
                self.request_id = take_name(s)?;
            }
            b"return_logprob" => self.logprobs |= s.take_truth()?,
            // `/generate` and `/inference/v1/generate` have their parameters in an object of their own; of a list of
            // them, one for each prompt, none is the request's.
            b"sampling_params"
                if matches!(self.endpoint, Endpoint::Generate | Endpoint::Native)
                    && s.kind()? == Kind::Object =>
            {
                s.object(
                    |s, key| if key.raw() == b"sampling_params" { s.skip() } else { self.take(s, key.raw()) },
                )?;
            }
            b"metadata" if self.endpoint == Endpoint::Messages => s.object(|s, key| match key.raw() {
                b"user_id" => take_name(s).map(|user| self.user = user),
                _ => s.skip(),
            })?,
            _ => self.take_input(s, key)?,
        }
        Ok(())
    }

    /// A limit of generated tokens; Cohere's `/v2/embed` has one of input tokens by the same name.
    fn take_limit(&self, s: &mut Scanner<'_>) -> Walk<Option<u64>> {
        let limit = s.take_u64()?;
        Ok(match self.endpoint.operation() {
            Some(Operation::Chat | Operation::TextCompletion) | None => limit,
            Some(Operation::Embeddings | Operation::Rerank) => None,
        })
    }

    /// Takes the field that holds the prompt, by whatever name.
    fn take_input(&mut self, s: &mut Scanner<'_>, key: &[u8]) -> Walk {
        use Operation::{Chat, Embeddings, Rerank, TextCompletion};
        let (hint, objects) = match key {
            b"messages" => (Chat, Objects::Messages),
            b"prompt" | b"token_ids" => (TextCompletion, Objects::Inputs),
            b"text" | b"input_ids" if self.endpoint == Endpoint::Native => (TextCompletion, Objects::Inputs),
            b"input" => (Embeddings, Objects::Messages),
            b"inputs" | b"texts" => (Embeddings, Objects::Inputs),
            b"query" | b"queries" | b"documents" | b"items" | b"text_1" | b"text_2" | b"data_1"
            | b"data_2" => (Rerank, Objects::Inputs),
            b"prompt_embeds" | b"images" => return self.take_opaque(s),
            b"system" | b"instructions" if self.operation() == Chat => return self.content.take_system(s),
            _ => return s.skip(),
        };
        if !self.holds(hint) {
            return s.skip();
        }
        self.hint.get_or_insert(hint);
        let mut prompts = 0;
        let walked = self.content.take_input(s, "user", objects, &mut prompts);
        self.prompts = Some(match hint {
            Rerank => self.prompts.unwrap_or(0).max(prompts),
            Chat | TextCompletion | Embeddings => self.prompts.unwrap_or(0).saturating_add(prompts),
        });
        walked
    }

    /// Whether this endpoint's prompt may be in a field that speaks of `hint`. Cohere's chat has documents
    /// that are no prompts; an embedding may be of a chat; a Responses input is a chat.
    fn holds(&self, hint: Operation) -> bool {
        match self.endpoint {
            Endpoint::Invocations => true,
            Endpoint::Responses => hint == Operation::Embeddings,
            Endpoint::Embeddings | Endpoint::CohereEmbed | Endpoint::Pooling => {
                matches!(hint, Operation::Embeddings | Operation::Chat)
            }
            Endpoint::Chat
            | Endpoint::ChatBatch
            | Endpoint::Completions
            | Endpoint::Generate
            | Endpoint::Native
            | Endpoint::Rerank
            | Endpoint::Score
            | Endpoint::Messages
            | Endpoint::CohereChat => self.endpoint.operation() == Some(hint),
        }
    }

    /// Prompts that are no text: tensors, pictures. They are counted.
    fn take_opaque(&mut self, s: &mut Scanner<'_>) -> Walk {
        let mut prompts = 0_u32;
        let walked = match s.kind()? {
            Kind::Array => s.array(|s| {
                prompts = prompts.saturating_add(1);
                s.skip()
            }),
            Kind::Text => {
                prompts = 1;
                s.skip()
            }
            Kind::Object | Kind::Bool | Kind::Number | Kind::Null => s.skip(),
        };
        if prompts > 0 {
            self.hint.get_or_insert(Operation::TextCompletion);
            self.prompts = Some(self.prompts.unwrap_or(0).saturating_add(prompts));
        }
        walked
    }
}

fn take_name(s: &mut Scanner<'_>) -> Walk<Option<String>> {
    Ok(s.take_whole_text()?.map(|name| Text::prefix(name, NAME_LIMIT).into_owned()))
}

/// `logprobs`: a truth value in the chat API; a number in the completions API, where 0 asks too (for those
/// of the tokens chosen).
fn take_asked(s: &mut Scanner<'_>) -> Walk<bool> {
    if s.kind()? == Kind::Number { s.skip().map(|()| true) } else { s.take_truth() }
}

#[cfg(test)]
mod tests;
