//! `BatchTokenIDOutput`, `BatchStrOutput`, `BatchEmbeddingOutput`: a column a field, a row a request.

use super::cell::Cell;
use super::{Context, Options, Refusal, load, times};
use crate::dialect::signal::sglang::{Hop, SglangFinish, SglangOutput, SglangSignal};
use crate::wire::pickle;

/// What a column is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Finish,
    PromptTokens,
    CompletionTokens,
    CachedTokens,
    ReasoningTokens,
    Retractions,
    SpecVerifySteps,
    SpecAccepted,
    DpRank,
    /// 0.3.6: the counts, a dict a request.
    MetaInfo,
    Times(times::Column),
}

const COLUMNS: &[(&str, Column)] = &[
    ("finished_reasons", Column::Finish),
    // Up to 0.4.0.
    ("finished_reason", Column::Finish),
    ("meta_info", Column::MetaInfo),
    ("prompt_tokens", Column::PromptTokens),
    ("completion_tokens", Column::CompletionTokens),
    ("cached_tokens", Column::CachedTokens),
    ("reasoning_tokens", Column::ReasoningTokens),
    ("retraction_counts", Column::Retractions),
    ("spec_verify_ct", Column::SpecVerifySteps),
    // Renamed in 0.5.13.
    ("spec_accepted_tokens", Column::SpecAccepted),
    ("spec_num_correct_drafts", Column::SpecAccepted),
    ("dp_ranks", Column::DpRank),
    ("time_stats", Column::Times(times::Column::Stats)),
    ("queue_time", Column::Times(times::Column::Queue)),
    ("forward_entry_time", Column::Times(times::Column::Forward)),
    ("prefill_finished_ts", Column::Times(times::Column::PrefillFinishedEpoch)),
];

/// Reads an outputs message.
pub(super) fn read<'m, C: Cell<'m>>(
    class: &str,
    message: C,
    embedding: bool,
    hop: Hop,
    inner: &mut pickle::Reader,
    context: Context,
    signals: &mut Vec<SglangSignal>,
) -> Result<(), Refusal> {
    let (mut rids, mut state) = (None, None);
    let mut columns: Vec<(Column, C)> = Vec::with_capacity(COLUMNS.len());
    message.fields(class, &mut |name, value| match name {
        b"rids" => rids = Some(value),
        b"load" if !value.is_none() => state = Some(load::read("GetLoadReqOutput", value)),
        _ => {
            let known = COLUMNS.iter().find(|(known, _)| known.as_bytes() == name);
            columns.extend(known.map(|(_, column)| (*column, value)));
        }
    });
    let mut outputs = rows(rids, embedding).ok_or(Refusal::Unknown)?;
    for (column, values) in columns {
        if let Column::Times(column) = column {
            times::fill(column, values, inner, &mut outputs, context.cut);
        } else {
            fill(values, &mut outputs, context.cut, |output, value| {
                column.set(output, value, context.options);
            });
        }
    }
    // A request whose id was cut off cannot be told from another.
    outputs.retain(|output| !output.rid.is_empty());
    let Context { at, cut, .. } = context;
    signals.push(SglangSignal::Outputs { at, hop, outputs, cut });
    // The same state comes again with the detokenizer's message.
    if hop == Hop::Scheduler {
        signals.extend(state.map(|load| SglangSignal::Load { at, load }));
    }
    Ok(())
}

fn rows<'m, C: Cell<'m>>(rids: Option<C>, embedding: bool) -> Option<Vec<SglangOutput>> {
    let row =
        |rid: C| SglangOutput { rid: rid.string().unwrap_or_default(), embedding, ..SglangOutput::default() };
    rids?.items().map(|rids| rids.map(row).collect())
}

/// Gives each row its value. A column of another length belongs to other rows, unless it was cut.
pub(super) fn fill<'m, C: Cell<'m>>(
    values: C,
    outputs: &mut [SglangOutput],
    cut: bool,
    mut set: impl FnMut(&mut SglangOutput, C),
) {
    if values.len() != Some(outputs.len()) && !cut {
        return;
    }
    for (output, value) in outputs.iter_mut().zip(values.items().into_iter().flatten()) {
        set(output, value);
    }
}

impl Column {
    fn set<'m, C: Cell<'m>>(self, output: &mut SglangOutput, value: C, options: Options) {
        match self {
            Self::Finish => output.finish = finish(value, options),
            Self::PromptTokens => output.prompt_tokens = value.count(),
            Self::CompletionTokens => output.completion_tokens = value.count(),
            Self::CachedTokens => output.cached_tokens = value.count(),
            Self::ReasoningTokens => output.reasoning_tokens = value.count(),
            Self::Retractions => output.retractions = value.count(),
            Self::SpecVerifySteps => output.spec_verify_steps = value.count(),
            Self::SpecAccepted => output.spec_accepted = value.count(),
            Self::DpRank => output.dp_rank = value.small(),
            Self::MetaInfo => value.fields("", &mut |name, value| {
                let known = COLUMNS.iter().find(|(known, _)| known.as_bytes() == name);
                match known {
                    Some((_, Self::MetaInfo | Self::Times(_))) | None => {}
                    Some((_, column)) => column.set(output, value, options),
                }
            }),
            Self::Times(_) => {}
        }
    }
}

/// Reads why a request ended: `{"type": .., "message": .., "status_code": ..}`, up to 0.4.0 an object of a class of
/// `schedule_batch.py`.
pub(super) fn finish<'m, C: Cell<'m>>(value: C, options: Options) -> Option<SglangFinish> {
    if value.is_none() {
        return None;
    }
    let kind = value.class().and_then(|class| kind_of(&class)).unwrap_or_default().to_owned();
    let mut finish = SglangFinish { kind, ..SglangFinish::default() };
    value.fields("", &mut |name, value| match name {
        b"type" => finish.kind = value.string().unwrap_or_default(),
        b"message" if options.content => finish.message = value.string(),
        b"status_code" => finish.status = value.small(),
        _ => {}
    });
    (!finish.kind.is_empty()).then_some(finish)
}

/// The kind that a class of finish reasons stands for.
fn kind_of(class: &[u8]) -> Option<&'static str> {
    match class {
        b"FINISH_MATCHED_TOKEN" | b"FINISH_MATCHED_STR" | b"FINISHED_MATCHED_REGEX" => Some("stop"),
        b"FINISH_LENGTH" => Some("length"),
        b"FINISH_ABORT" => Some("abort"),
        _ => None,
    }
}
