//! `SamplingParams` in a pickle: a `msgspec.Struct` is remade of its values in the order of its fields.

use super::number;
use crate::dialect::schema::{SAMPLING_PARAMS, Schema};
use crate::dialect::signal::Sampling;
use crate::wire::pickle::{Instance, Pickle, Value};

/// `RequestOutputKind.DELTA`.
const DELTA: i64 = 1;

/// What a field of `SamplingParams` is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    N,
    Temperature,
    TopP,
    TopK,
    Stop,
    IgnoreEos,
    MaxTokens,
    Logprobs,
    OutputKind,
    Other,
}

const FIELDS: &[(&str, Field)] = &[
    ("n", Field::N),
    ("temperature", Field::Temperature),
    ("top_p", Field::TopP),
    ("top_k", Field::TopK),
    ("stop", Field::Stop),
    ("ignore_eos", Field::IgnoreEos),
    ("max_tokens", Field::MaxTokens),
    ("logprobs", Field::Logprobs),
    ("output_kind", Field::OutputKind),
];

/// Orders of the fields that are known, the likeliest first.
#[derive(Debug)]
pub(super) struct Orders(Vec<Vec<Field>>);

impl Orders {
    /// The target's own, that of its version, then all others that are known.
    pub fn new(schema: Option<&Schema>, version: Option<&str>) -> Self {
        let own = schema.and_then(|schema| schema.fields(SAMPLING_PARAMS)).map(<[String]>::to_vec);
        let known = Schema::sampling_orders(version);
        Self(own.into_iter().chain(known).map(|names| names.iter().map(|name| of(name)).collect()).collect())
    }
}

fn of(name: &str) -> Field {
    FIELDS.iter().find(|(known, _)| *known == name).map_or(Field::Other, |(_, field)| *field)
}

/// Reads sampling parameters: by names where the pickle has them, else by the first order that they fit.
pub(super) fn read(
    pickle: &Pickle<'_>,
    value: Value,
    instance: Instance<'_>,
    orders: &Orders,
) -> Option<Sampling> {
    let mut sampling = Sampling { max_tokens: Some(16), ..Sampling::default() };
    let mut named = false;
    for (key, value) in instance.fields {
        let Some(key) = pickle.string(key) else { continue };
        named = true;
        set(pickle, of(&key), value, &mut sampling);
    }
    if named {
        return Some(sampling);
    }
    let args = pickle.object(value)?.args;
    let values: Vec<Value> = pickle.items(args)?.collect();
    let order = orders.0.iter().find(|order| fits(pickle, order, &values))?;
    order.iter().zip(&values).for_each(|(field, value)| set(pickle, *field, *value, &mut sampling));
    Some(sampling)
}

/// Whether every value is of a type that its field can have.
fn fits(pickle: &Pickle<'_>, order: &[Field], values: &[Value]) -> bool {
    let whole = |value: Value| value.int().is_some();
    values.len() <= order.len()
        && !values.is_empty()
        && order.iter().zip(values).all(|(field, &value)| match field {
            Field::N | Field::TopK => whole(value),
            Field::Temperature | Field::TopP => number(value).is_some(),
            Field::Stop => {
                value == Value::None || pickle.items(value).is_some() || pickle.text(value).is_some()
            }
            Field::IgnoreEos => value.bool().is_some(),
            Field::MaxTokens => value == Value::None || whole(value),
            // 0.10 on: -1 for all of them, 0.8 and before a truth value at times.
            Field::Logprobs => value == Value::None || whole(value) || value.bool().is_some(),
            Field::OutputKind => member(pickle, value).is_some(),
            Field::Other => true,
        })
}

fn set(pickle: &Pickle<'_>, field: Field, value: Value, sampling: &mut Sampling) {
    let count = || value.int().and_then(|number| u64::try_from(number).ok());
    match field {
        Field::N => sampling.n = count().and_then(|n| u32::try_from(n).ok()).unwrap_or(sampling.n),
        Field::Temperature => sampling.temperature = number(value).unwrap_or(sampling.temperature),
        Field::TopP => sampling.top_p = number(value).unwrap_or(sampling.top_p),
        Field::TopK => sampling.top_k = value.int().filter(|k| *k > 0),
        Field::Stop => {
            let several = pickle.items(value).is_some_and(|items| !items.is_empty());
            sampling.stop = several || pickle.text(value).is_some();
        }
        Field::MaxTokens => sampling.max_tokens = count(),
        Field::Logprobs => sampling.logprobs = value.int(),
        Field::OutputKind => sampling.delta = member(pickle, value) == Some(DELTA),
        Field::IgnoreEos | Field::Other => {}
    }
}

/// The value of a member of an enum.
fn member(pickle: &Pickle<'_>, value: Value) -> Option<i64> {
    if let Some(number) = value.int() {
        return Some(number);
    }
    let object = pickle.object(value)?;
    pickle.items(object.args)?.next()?.int()
}
