//! Holds what was made against the table: for the tests of everything that makes spans and points.

use super::{
    AttributeDef, AttributeGroup, Dialect, EventDef, Layer, Type, dimensions, events, gpu, own, sglang,
    spans, vllm,
};
use crate::model::metric::Point;
use crate::model::span::{Attribute, Event, Span, Value};

/// What of a span an engine's table does not allow: unknown names, other types, keys that stand twice. Empty when
/// all is in order.
#[must_use]
pub fn span(span: &Span, engine: Dialect) -> Vec<String> {
    let Some(groups) = groups(&span.name, engine) else {
        return vec![format!("{}: no such span in {}", span.name, engine.name())];
    };
    let allowed: Vec<&AttributeDef> = groups.into_iter().flat_map(|group| group.attributes).collect();
    let mut wrong = attributes(&span.name, &span.attributes, &allowed);
    if span.end < span.start {
        wrong.push(format!("{}: ends before it starts", span.name));
    }
    for Event { name, at: _, attributes: list } in &span.events {
        let own = own::EVENTS.iter().find(|event| event.names.contains(&name.as_ref()));
        let contract =
            || events().find(|event| event.names.contains(&name.as_ref()) && known(event, span, engine));
        match own.or_else(contract) {
            Some(event) => wrong.extend(attributes(name, list, &event.attributes.iter().collect::<Vec<_>>())),
            None => wrong.push(format!("{}: no event {name} on it", span.name)),
        }
    }
    wrong
}

/// What of a point the table does not allow.
#[must_use]
pub fn point(point: &Point, engine: Dialect) -> Vec<String> {
    let metric = point.metric;
    let of_engine = metric.engines.contains(&engine) || metric.engines.is_empty();
    let mut wrong = Vec::new();
    if !of_engine {
        wrong.push(format!("{}: not a metric of {}", metric.name, engine.name()));
    }
    for (nth, (key, _)) in point.dimensions.iter().enumerate() {
        let mut rows =
            dimensions().chain(own::DIMENSIONS).chain(gpu::DIMENSIONS).flat_map(|group| group.dimensions);
        if !rows.any(|row| row.key == *key) {
            wrong.push(format!("{}: no dimension {key}", metric.name));
        }
        if point.dimensions.iter().take(nth).any(|(other, _)| other == key) {
            wrong.push(format!("{}: {key} stands twice", metric.name));
        }
    }
    wrong
}

fn known(event: &EventDef, span: &Span, engine: Dialect) -> bool {
    let on = match engine {
        Dialect::VllmV0 | Dialect::VllmV1 => event.on == span.name,
        // SGLang's stand on the stage that covers them, else on the thread.
        Dialect::Sglang => of_sglang(&span.name).is_some_and(|layer| layer != Layer::Request),
    };
    event.engines.contains(&engine) && on
}

/// The layer of a span of SGLang's own, by its name: of a request's and of a thread's only the shape is fixed.
pub(super) fn of_sglang(name: &str) -> Option<Layer> {
    let named =
        |role: &str| name.strip_prefix(role).is_some_and(|rid| !rid.is_empty() && rid.chars().count() <= 8);
    let thread = || {
        name.split_once(" (host:").is_some_and(|(_, rest)| rest.contains(" | pid:") && rest.ends_with(')'))
    };
    if sglang::STAGES.iter().flat_map(|group| group.stages).any(|stage| stage.name == name) {
        Some(Layer::Stage)
    } else if ["Req ", "prefill Req ", "decode Req "].into_iter().any(named) {
        Some(Layer::Request)
    } else {
        thread().then_some(Layer::Thread)
    }
}

/// The groups of attributes a span may have; `None` for a span the engine does not have.
pub(super) fn groups(name: &str, engine: Dialect) -> Option<Vec<&'static AttributeGroup>> {
    if let (Dialect::Sglang, Some(layer)) = (engine, of_sglang(name)) {
        let own: &[&'static AttributeGroup] = match layer {
            Layer::Stage => &[&sglang::STAGE],
            Layer::Request => &[&sglang::REQUEST],
            Layer::Thread => &[&sglang::THREAD, &own::SGLANG_THREAD],
            Layer::Entry | Layer::Engine => &[],
        };
        return Some([&own::ANY_SPAN].into_iter().chain(own.iter().copied()).collect());
    }
    let def = spans().find(|def| def.engines.contains(&engine) && is_named(def.name, name))?;
    let mut groups = vec![&own::ANY_SPAN];
    match (def.layer, engine) {
        (Layer::Entry, Dialect::VllmV0 | Dialect::VllmV1) => groups.extend([&vllm::ENTRY, &own::ENTRY]),
        (Layer::Entry, Dialect::Sglang) => groups.extend([&sglang::ENTRY, &own::ENTRY]),
        (Layer::Engine, Dialect::VllmV0) => groups.extend([&vllm::V0_LLM_REQUEST, &own::LLM_REQUEST]),
        (Layer::Engine, _) => groups.extend([&vllm::V1_LLM_REQUEST, &own::LLM_REQUEST]),
        (Layer::Stage, _) if def.name == super::span::KV_TRANSFER => {
            groups.extend([&vllm::V1_STAGE, &vllm::V1_KV_TRANSFER]);
        }
        (Layer::Stage, _) => groups.push(&vllm::V1_STAGE),
        (Layer::Request, _) => groups.push(&sglang::REQUEST),
        (Layer::Thread, _) => groups.push(&sglang::THREAD),
    }
    Some(groups)
}

fn attributes(on: &str, list: &[Attribute], allowed: &[&AttributeDef]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (nth, Attribute { key, value }) in list.iter().enumerate() {
        match allowed.iter().find(|def| is_of(def.key, key)) {
            None => wrong.push(format!("{on}: no attribute {key}")),
            Some(def) if !fits(value, def.ty) => {
                wrong.push(format!("{on}: {key} = {value:?} is no {}", def.ty.name()));
            }
            Some(_) => {}
        }
        if list.iter().take(nth).any(|other| other.key == *key) {
            wrong.push(format!("{on}: {key} stands twice"));
        }
    }
    wrong
}

/// Whether a span has a name of the table: of an entry span's only the operation is fixed.
pub(super) fn is_named(def: &str, name: &str) -> bool {
    def == name || def.strip_suffix("{model}").is_some_and(|o| name.starts_with(o.trim_end()))
}

/// Whether a key is a row's.
pub(super) fn is_of(def: &str, key: &str) -> bool {
    def == key || of_a_call(def, key)
}

/// Whether a key is one of a template's, such as `gen_ai.completions.{i}.tool_calls.{j}.name`.
fn of_a_call(template: &str, key: &str) -> bool {
    let parts = template.split('.').zip(key.split('.'));
    let same = |(part, actual): (&str, &str)| {
        part == actual || (part.starts_with('{') && actual.parse::<u32>().is_ok())
    };
    template.contains('{')
        && template.split('.').count() == key.split('.').count()
        && parts.into_iter().all(same)
}

fn fits(value: &Value, ty: Type) -> bool {
    match (value, ty) {
        (Value::Str(text), Type::Json) => serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
        (Value::Str(_), Type::Str)
        | (Value::Int(_), Type::Int)
        | (Value::Float(_), Type::Float)
        | (Value::Bool(_), Type::Bool)
        | (Value::Strs(_), Type::Strs)
        | (Value::Ints(_), Type::Ints) => true,
        (
            Value::Str(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Strs(_)
            | Value::Ints(_),
            _,
        ) => false,
    }
}
