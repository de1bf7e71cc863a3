//! `EngineCoreOutput`: what one request got in one step.

use super::layout::{Layout, OutputField};
use super::{Context, kv, shape, tensor};
use crate::dialect::signal::{CachedTokens, EngineEvent, EngineOutput};
use crate::time::EngineTime;
use crate::wire;
use crate::wire::msgpack::{Error, Reader};

/// Reads the output that comes next and appends it to `outputs`: of a cut one, what there is, if it names its
/// request.
pub(super) fn read(
    reader: &mut Reader<'_>,
    outputs: &mut Vec<EngineOutput>,
    layout: &Layout,
    context: Context<'_>,
) -> Result<(), Error> {
    let before = *reader;
    let len = usize::try_from(reader.array()?).unwrap_or(usize::MAX);
    let mut output = EngineOutput::default();
    let read = if len == layout.output.len() {
        elements(&layout.output, reader, &mut output, layout, context)
    } else {
        Err(Error::Type)
    };
    let read = match read {
        Err(Error::Type) => {
            output = EngineOutput::default();
            let fields = shape::output(&before);
            *reader = before;
            reader.array()?;
            elements(&fields, reader, &mut output, layout, context)
        }
        read => read,
    };
    if read.is_ok() || context.cut && !output.id.is_empty() {
        outputs.push(output);
    }
    read
}

fn elements(
    fields: &[OutputField],
    reader: &mut Reader<'_>,
    output: &mut EngineOutput,
    layout: &Layout,
    context: Context<'_>,
) -> Result<(), Error> {
    fields.iter().try_for_each(|field| element(*field, reader, output, layout, context))
}

/// Reads one element. [`Error::Type`] where it cannot be what the field order says.
fn element(
    field: OutputField,
    reader: &mut Reader<'_>,
    output: &mut EngineOutput,
    layout: &Layout,
    context: Context<'_>,
) -> Result<(), Error> {
    match field {
        OutputField::Id => output.id = wire::text(reader.str()?).into_owned(),
        OutputField::Tokens => tokens(reader, output, context)?,
        OutputField::Logprobs if context.options.token_ids => {
            output.logprobs = tensor::sampled_logprobs(reader, context.aux)?;
        }
        OutputField::Pooling => output.pooling = !reader.scalar()?.is_nil(),
        OutputField::Finish => {
            let reason = reader.scalar()?;
            if !reason.is_nil() {
                output.finish = Some(layout.finish(reason.u32().ok_or(Error::Type)?));
            }
        }
        OutputField::Events => events(reader, output, layout)?,
        OutputField::KvTransfer => kv::read(reader, &mut output.kv_transfer)?,
        OutputField::CachedTokens => {
            if let Some(total) = reader.scalar()?.u64() {
                output.cached.get_or_insert_default().total = total;
            }
        }
        OutputField::ExternalTokens => {
            if let Some(external) = reader.scalar()?.u64() {
                output.cached.get_or_insert_default().external = external;
            }
        }
        OutputField::PrefillStats => prefill_stats(reader, output)?,
        OutputField::Logprobs | OutputField::Other => reader.skip()?,
    }
    Ok(())
}

fn tokens(reader: &mut Reader<'_>, output: &mut EngineOutput, context: Context<'_>) -> Result<(), Error> {
    let len = reader.array()?;
    output.token_count = len;
    if !context.options.token_ids {
        return reader.skip_values(u64::from(len));
    }
    for _ in 0..len {
        output.tokens.push(reader.scalar()?.u32().unwrap_or_default());
    }
    Ok(())
}

/// Reads a list of `EngineCoreEvent`; kinds that nobody knows are passed over.
fn events(reader: &mut Reader<'_>, output: &mut EngineOutput, layout: &Layout) -> Result<(), Error> {
    let len = reader.array_or_nil()?.unwrap_or_default();
    for _ in 0..len {
        let (mut kind, mut at) = (None, None);
        let pairs = reader.map()?;
        reader.pairs(pairs, |key, value| {
            let value = value.scalar()?;
            match key {
                b"type" => kind = value.u32().and_then(|number| layout.event(number)),
                b"timestamp" => at = value.f64().map(EngineTime),
                _ => {}
            }
            Ok(())
        })?;
        output.events.extend(kind.zip(at).map(|(kind, at)| EngineEvent { kind, at }));
    }
    Ok(())
}

/// Reads a `PrefillStats`.
fn prefill_stats(reader: &mut Reader<'_>, output: &mut EngineOutput) -> Result<(), Error> {
    let Some(len) = reader.map_or_nil()? else { return Ok(()) };
    let cached = output.cached.insert(CachedTokens::default());
    reader.pairs(len, |key, value| {
        let value = value.scalar()?.u64();
        match key {
            b"num_cached_tokens" => cached.total = value.unwrap_or_default(),
            b"num_external_cached_tokens" => cached.external = value.unwrap_or_default(),
            b"num_computed_tokens" => cached.computed = value,
            _ => {}
        }
        Ok(())
    })
}
