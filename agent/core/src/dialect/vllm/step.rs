//! `EngineCoreOutputs`: what a step of the engine gave.

use super::layout::{Layout, StepField};
use super::{Context, Refusal, output, shape, stats};
use crate::dialect::signal::EngineStep;
use crate::time::EngineTime;
use crate::wire::msgpack::{Error, Reader};

/// Reads an outputs message.
pub(super) fn read(body: &[u8], layout: &Layout, context: Context<'_>) -> Result<EngineStep, Refusal> {
    let by_schema = read_as(body, &layout.step, layout, context);
    by_schema.or_else(|| read_as(body, &shape::step(body), layout, context)).ok_or(Refusal::Unknown)
}

/// Reads by a field order; `None` when the message does not fit it.
fn read_as(body: &[u8], fields: &[StepField], layout: &Layout, context: Context<'_>) -> Option<EngineStep> {
    let mut reader = Reader::new(body);
    let len = reader.array().ok()?;
    if usize::try_from(len).ok()? != fields.len() {
        return None;
    }
    let mut step = EngineStep { cut: context.cut, ..EngineStep::default() };
    for field in fields {
        match element(*field, &mut reader, &mut step, layout, context) {
            Ok(()) => {}
            Err(Error::End) if context.cut => break,
            Err(_) => return None,
        }
    }
    step.utility &= step.outputs.is_empty() && step.stats.is_none();
    Some(step)
}

/// Reads one element. [`Error::Type`] where it cannot be what the field order says.
fn element(
    field: StepField,
    reader: &mut Reader<'_>,
    step: &mut EngineStep,
    layout: &Layout,
    context: Context<'_>,
) -> Result<(), Error> {
    match field {
        StepField::EngineIndex => step.engine_index = reader.scalar()?.u32().ok_or(Error::Type)?,
        StepField::Outputs => {
            for _ in 0..reader.array()? {
                output::read(reader, &mut step.outputs, layout, context)?;
            }
        }
        StepField::Stats => step.stats = stats::read(reader)?,
        StepField::Timestamp => {
            step.timestamp = Some(EngineTime(reader.scalar()?.float().ok_or(Error::Type)?));
        }
        StepField::Utility => step.utility = !reader.scalar()?.is_nil(),
        StepField::Other => reader.skip()?,
    }
    Ok(())
}
