//! The agent's own log of requests: received, added, aborted, failed.

use super::{About, set, set_some};
use crate::dialect::signal::sglang::{SglangOutput, SglangRequest, SglangSampling, SglangSignal};
use crate::dialect::signal::{
    ApiError, ApiRequest, ApiSignal, EngineRequest, EngineSignal, Finish, Operation, Sampling,
};
use crate::hash::Map;
use crate::ids::{ExchangeId, ServerId};
use crate::model::log::{Log, Severity};
use crate::model::registry::{attr, log};
use crate::time::MonoTime;

/// Most exchanges and requests remembered; those beyond have no line at their end.
const MOST: usize = 16_384;
/// Most characters of an input at level 2, as SGLang has it.
const PART: usize = 2048;

/// Level from which on sampling parameters are told.
const PARAMETERS: u8 = 1;
/// Level from which on a part of the input is told, where content is collected.
const SOME_INPUT: u8 = 2;
/// Level from which on all of the input is told that is kept.
const WHOLE_INPUT: u8 = 3;

/// Requests whose end may have a line.
#[derive(Debug, Default)]
pub(super) struct Requests {
    exchanges: Map<ExchangeId, Open>,
    /// Requests with stop strings: their frontend takes them back when it finds one, which is no abort.
    stopping: Map<(ServerId, String), ()>,
}

/// An exchange that goes on.
#[derive(Debug)]
struct Open {
    server: ServerId,
    operation: Operation,
    id: Option<String>,
    status: Option<u16>,
    error: Option<ApiError>,
}

impl Requests {
    pub fn api(&mut self, about: &About<'_>, signal: &ApiSignal, out: &mut Vec<Log>) {
        if !about.log().requests {
            return;
        }
        match signal {
            ApiSignal::Request { exchange, first_byte: _, last_byte, request } => {
                out.push(received(about, request, *last_byte));
                self.open(*exchange, about.server, request);
            }
            ApiSignal::Head { exchange, at: _, status, streaming: _ } => {
                if let Some(open) = self.exchanges.get_mut(exchange) {
                    open.status = Some(*status);
                }
            }
            ApiSignal::Delta { exchange, at: _, delta } => {
                if let Some(open) = self.exchanges.get_mut(exchange) {
                    open.id = open.id.take().or_else(|| delta.id.clone());
                    open.error = delta.error.clone().or_else(|| open.error.take());
                }
            }
            ApiSignal::Text { .. } => {}
            ApiSignal::End { exchange, at, complete: _ } => {
                let open = self.exchanges.remove(exchange);
                out.extend(open.and_then(|open| failed_exchange(about, open, *at)));
            }
        }
    }

    fn open(&mut self, exchange: ExchangeId, server: ServerId, request: &ApiRequest) {
        if self.exchanges.len() < MOST {
            let (operation, id) = (request.operation, request.request_id.clone());
            self.exchanges.insert(exchange, Open { server, operation, id, status: None, error: None });
        }
    }

    pub fn engine(&mut self, about: &About<'_>, signal: &EngineSignal, out: &mut Vec<Log>) {
        if !about.log().requests {
            return;
        }
        match signal {
            EngineSignal::Added { at, request } => {
                out.push(added(about, request, *at));
                if request.sampling.as_ref().is_some_and(|s| s.stop) && self.stopping.len() < MOST {
                    self.stopping.insert((about.server, request.id.clone()), ());
                }
            }
            EngineSignal::Aborted { at, ids } => {
                for id in ids {
                    if self.stopping.remove(&(about.server, id.clone())).is_none() {
                        out.push(ended(about, log::REQUEST_ABORTED, id, *at));
                    }
                }
            }
            EngineSignal::Step { at, step } => {
                for output in step.outputs.iter().filter(|output| output.finish.is_some()) {
                    self.stopping.remove(&(about.server, output.id.clone()));
                    if output.finish == Some(Finish::Error) {
                        out.push(ended(about, log::REQUEST_FAILED, &output.id, *at));
                    }
                }
            }
            EngineSignal::Failed { at, id } => out.push(ended(about, log::REQUEST_FAILED, id, *at)),
            EngineSignal::Outputs { .. } | EngineSignal::Ready { .. } | EngineSignal::Dead { .. } => {}
        }
    }

    pub fn sglang(&mut self, about: &About<'_>, signal: &SglangSignal, out: &mut Vec<Log>) {
        if !about.log().requests {
            return;
        }
        match signal {
            SglangSignal::Dispatched { at, requests } => {
                out.extend(requests.iter().map(|request| dispatched(about, request, *at)));
            }
            SglangSignal::Aborted { at, rid, finish: _ } => {
                let rid = rid.as_deref().unwrap_or("all");
                out.push(ended(about, log::REQUEST_ABORTED, rid, *at));
            }
            SglangSignal::Outputs { at, hop: _, outputs, cut: _ } => {
                out.extend(outputs.iter().filter_map(|output| failed_output(about, output, *at)));
            }
            SglangSignal::Retracted { .. } | SglangSignal::Load { .. } => {}
        }
    }

    pub fn forget(&mut self, server: ServerId) {
        self.exchanges.retain(|_, open| open.server != server);
        self.stopping.retain(|(of, _), ()| *of != server);
    }
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Chat => "chat",
        Operation::TextCompletion => "text_completion",
        Operation::Embeddings => "embeddings",
        Operation::Rerank => "rerank",
    }
}

fn received(about: &About<'_>, request: &ApiRequest, at: MonoTime) -> Log {
    let body = format!("received a request to {}", request.path);
    let mut log = about.event(log::REQUEST_RECEIVED, Severity::Info, at, body);
    set_some(&mut log, attr::REQUEST_ID, request.request_id.clone());
    set(&mut log, attr::OPERATION_NAME, name(request.operation));
    set_some(&mut log, attr::REQUEST_MODEL, request.model.clone());
    set_some(&mut log, attr::USER_ID, request.user.clone());
    let detail = about.log().detail;
    if detail >= PARAMETERS {
        set(&mut log, attr::REQUEST_IS_STREAM, request.stream);
        set_some(&mut log, attr::REQUEST_CHOICE_COUNT, request.choices);
        set_some(&mut log, attr::REQUEST_MAX_TOKENS, request.max_tokens);
        set_some(&mut log, attr::REQUEST_TEMPERATURE, request.temperature);
        set_some(&mut log, attr::REQUEST_TOP_P, request.top_p);
        set_some(&mut log, attr::REQUEST_TOP_K, request.top_k);
    }
    if about.settings.content && detail >= SOME_INPUT {
        let part = |text: &String| if detail >= WHOLE_INPUT { text.clone() } else { cut(text, PART) };
        set_some(&mut log, attr::INPUT_MESSAGES, request.content.as_ref().map(part));
    }
    log
}

/// As many characters of a text.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn added(about: &About<'_>, request: &EngineRequest, at: MonoTime) -> Log {
    let body = format!("added request {}", request.id);
    let mut log = about.event(log::REQUEST_ADDED, Severity::Info, at, body);
    set(&mut log, attr::REQUEST_ID, request.id.as_str());
    set_some(&mut log, attr::USAGE_PROMPT_TOKENS, request.prompt_tokens);
    if let (Some(sampling), true) = (&request.sampling, about.log().detail >= PARAMETERS) {
        let Sampling { n, temperature, top_p, top_k, max_tokens, .. } = sampling;
        set(&mut log, attr::REQUEST_N, *n);
        set(&mut log, attr::REQUEST_TEMPERATURE, *temperature);
        set(&mut log, attr::REQUEST_TOP_P, *top_p);
        set_some(&mut log, attr::REQUEST_TOP_K, *top_k);
        set_some(&mut log, attr::REQUEST_MAX_TOKENS, *max_tokens);
    }
    log
}

fn dispatched(about: &About<'_>, request: &SglangRequest, at: MonoTime) -> Log {
    let body = format!("added request {}", request.rid);
    let mut log = about.event(log::REQUEST_ADDED, Severity::Info, at, body);
    set(&mut log, attr::REQUEST_ID, request.rid.as_str());
    set_some(&mut log, attr::USAGE_PROMPT_TOKENS, request.prompt_tokens);
    if let (Some(sampling), true) = (&request.sampling, about.log().detail >= PARAMETERS) {
        let SglangSampling { max_new_tokens, temperature, top_p, top_k, n, stop: _ } = sampling;
        set_some(&mut log, attr::REQUEST_N, *n);
        set_some(&mut log, attr::REQUEST_TEMPERATURE, *temperature);
        set_some(&mut log, attr::REQUEST_TOP_P, *top_p);
        set_some(&mut log, attr::REQUEST_TOP_K, *top_k);
        set_some(&mut log, attr::REQUEST_MAX_TOKENS, *max_new_tokens);
    }
    log
}

fn ended(about: &About<'_>, event: &'static str, id: &str, at: MonoTime) -> Log {
    let (severity, how) = match event {
        log::REQUEST_FAILED => (Severity::Error, "failed"),
        _ => (Severity::Info, "aborted"),
    };
    let mut log = about.event(event, severity, at, format!("{how} request {id}"));
    set(&mut log, attr::REQUEST_ID, id);
    log
}

/// An output that the scheduler ended with an error of its own.
fn failed_output(about: &About<'_>, output: &SglangOutput, at: MonoTime) -> Option<Log> {
    let status = output.finish.as_ref()?.status?;
    let mut log = ended(about, log::REQUEST_FAILED, &output.rid, at);
    set(&mut log, attr::HTTP_STATUS, status);
    Some(log)
}

/// The line of an exchange that the server refused, or broke down over.
fn failed_exchange(about: &About<'_>, open: Open, at: MonoTime) -> Option<Log> {
    let Open { server: _, operation, id, status, error } = open;
    let status = status.filter(|status| *status >= 400);
    if status.is_none() && error.is_none() {
        return None;
    }
    let mut log = ended(about, log::REQUEST_FAILED, id.as_deref().unwrap_or("without an id"), at);
    set(&mut log, attr::OPERATION_NAME, name(operation));
    set_some(&mut log, attr::HTTP_STATUS, status.map(u32::from));
    set_some(&mut log, attr::ERROR_TYPE, error.and_then(|error| error.kind));
    Some(log)
}
