//! Which position of a message's array means what.

use crate::dialect::schema::Schema;
use crate::dialect::signal::{EngineEventKind, Finish};

/// What an element of `EngineCoreRequest` is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestField {
    Id,
    PromptTokenIds,
    Sampling,
    Pooling,
    Arrival,
    DataParallelRank,
    ClientIndex,
    TraceHeaders,
    ExternalId,
    Off,
    Other,
}

/// What an element of `EngineCoreOutput` is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputField {
    Id,
    Tokens,
    Logprobs,
    Pooling,
    Finish,
    Events,
    KvTransfer,
    CachedTokens,
    ExternalTokens,
    PrefillStats,
    Other,
}

/// What an element of `EngineCoreOutputs` is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepField {
    EngineIndex,
    Outputs,
    Stats,
    Timestamp,
    Utility,
    Other,
}

const REQUEST: &[(&str, RequestField)] = &[
    ("request_id", RequestField::Id),
    ("prompt_token_ids", RequestField::PromptTokenIds),
    ("sampling_params", RequestField::Sampling),
    ("pooling_params", RequestField::Pooling),
    ("arrival_time", RequestField::Arrival),
    ("data_parallel_rank", RequestField::DataParallelRank),
    ("client_index", RequestField::ClientIndex),
    ("trace_headers", RequestField::TraceHeaders),
    ("external_req_id", RequestField::ExternalId),
    ("abort_immediately", RequestField::Off),
];

const OUTPUT: &[(&str, OutputField)] = &[
    ("request_id", OutputField::Id),
    ("new_token_ids", OutputField::Tokens),
    ("new_logprobs", OutputField::Logprobs),
    ("pooling_output", OutputField::Pooling),
    ("finish_reason", OutputField::Finish),
    ("events", OutputField::Events),
    ("kv_transfer_params", OutputField::KvTransfer),
    ("num_cached_tokens", OutputField::CachedTokens),
    ("num_external_computed_tokens", OutputField::ExternalTokens),
    ("prefill_stats", OutputField::PrefillStats),
];

const STEP: &[(&str, StepField)] = &[
    ("engine_index", StepField::EngineIndex),
    ("outputs", StepField::Outputs),
    ("scheduler_stats", StepField::Stats),
    ("timestamp", StepField::Timestamp),
    ("utility_output", StepField::Utility),
];

const FINISH: &[(&str, Finish)] = &[
    ("STOP", Finish::Stop),
    ("LENGTH", Finish::Length),
    ("ABORT", Finish::Abort),
    ("ERROR", Finish::Error),
    ("REPETITION", Finish::Repetition),
];

const EVENTS: &[(&str, EngineEventKind)] = &[
    ("QUEUED", EngineEventKind::Queued),
    ("SCHEDULED", EngineEventKind::Scheduled),
    ("PREEMPTED", EngineEventKind::Preempted),
];

/// Field orders and numbers, ready for use.
#[derive(Debug)]
pub(super) struct Layout {
    /// Empty where no order is known: then every message is read by shape.
    pub(super) request: Vec<RequestField>,
    pub(super) output: Vec<OutputField>,
    pub(super) step: Vec<StepField>,
    finish: Vec<(u32, Finish)>,
    events: Vec<(u32, EngineEventKind)>,
}

impl Layout {
    pub(super) fn new(schema: &Schema) -> Self {
        let Schema { request, output, outputs, finish_reasons, event_types, request_types: _, classes: _ } =
            schema;
        Self {
            request: fields(request, REQUEST, RequestField::Other),
            output: fields(output, OUTPUT, OutputField::Other),
            step: fields(outputs, STEP, StepField::Other),
            finish: numbers(finish_reasons, FINISH, 0),
            events: numbers(event_types, EVENTS, 1),
        }
    }

    pub(super) fn finish(&self, number: u32) -> Finish {
        find(&self.finish, number).unwrap_or(Finish::Other(number))
    }

    pub(super) fn event(&self, number: u32) -> Option<EngineEventKind> {
        find(&self.events, number)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::new(&Schema::default())
    }
}

fn fields<F: Copy>(names: &[String], known: &[(&str, F)], other: F) -> Vec<F> {
    names
        .iter()
        .map(|name| known.iter().find(|(known, _)| known == name).map_or(other, |(_, f)| *f))
        .collect()
}

/// Numbers of an enum's members: those that the schema gives, or counted from `first` in the order of the table.
fn numbers<T: Copy>(members: &[(String, u32)], known: &[(&str, T)], first: u32) -> Vec<(u32, T)> {
    if members.is_empty() {
        return (first..).zip(known.iter().map(|(_, value)| *value)).collect();
    }
    let value = |name: &str| known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    members.iter().filter_map(|(name, number)| Some((*number, value(name)?))).collect()
}

fn find<T: Copy>(numbers: &[(u32, T)], number: u32) -> Option<T> {
    numbers.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
}
