use std::time::Duration;

use enginetap_core::settings::VllmLevel;

use super::*;
use crate::exit::Exit;

const LEVEL: &str = "otel.instrumentation.vllm.tracing.level";
const LEVEL_ENV: &str = "OTEL_INSTRUMENTATION_VLLM_TRACING_LEVEL";
const CONTENT: &str = "otel.instrumentation.genai.capture-message-content";

fn environ(lines: &str) -> Environ {
    Environ::of(lines.split(' '))
}

fn push(name: &'static str, value: &str) -> Push {
    Push { name, value: value.to_owned(), target: None, until: None }
}

fn level(layers: &Layers, scope: Option<&Scope>) -> VllmLevel {
    layers.settings(scope, 0).vllm_level
}

#[test]
fn each_layer_wins_over_those_below_it() {
    let scope = Scope::new(Pid(7), &environ("A=b OTEL_INSTRUMENTATION_VLLM_TRACING_LEVEL=2"));
    let mut layers = Layers::default();
    assert_eq!(level(&layers, None), VllmLevel::Stages);
    layers = Layers::new(&|name| (name == LEVEL_ENV).then(|| "0".to_owned()), &[]).unwrap();
    assert_eq!(
        (level(&layers, None), level(&layers, Some(&scope))),
        (VllmLevel::Request, VllmLevel::Iterations)
    );
    layers.set_file(Values::from([(LEVEL, "1".to_owned())]));
    assert_eq!((level(&layers, None), level(&layers, Some(&scope))), (VllmLevel::Stages, VllmLevel::Stages));
    layers.push(push(LEVEL, "0"));
    assert_eq!(level(&layers, Some(&scope)), VllmLevel::Request);
    let sources: Vec<Source> = layers
        .stack(Setting::find(LEVEL).unwrap(), Some(&scope))
        .into_iter()
        .map(|(source, _)| source)
        .collect();
    let all = [Source::Default, Source::Environment, Source::Server, Source::File, Source::Pushed];
    assert_eq!(sources, all);
}

#[test]
fn the_command_line_wins_over_the_file_and_the_environment() {
    let flags = [(CONTENT.to_owned(), "FALSE".to_owned())];
    let mut layers = Layers::new(&|_| None, &flags).unwrap();
    layers.set_file(Values::from([(CONTENT, "true".to_owned())]));
    assert!(!layers.settings(None, 0).content);
}

#[test]
fn what_was_pushed_for_a_server_is_for_that_server_only_and_ends_in_time() {
    let (one, other) =
        (Scope { root: Pid(1), said: Values::new() }, Scope { root: Pid(2), said: Values::new() });
    let now = Instant::now();
    let mut layers = Layers::default();
    let until = Some(now + Duration::from_secs(60));
    layers.push(Push { target: Some(Pid(1)), until, ..push(LEVEL, "2") });
    assert_eq!(level(&layers, Some(&one)), VllmLevel::Iterations);
    assert_eq!((level(&layers, Some(&other)), level(&layers, None)), (VllmLevel::Stages, VllmLevel::Stages));
    assert!(layers.expire(now).is_empty());
    assert_eq!(layers.expire(now + Duration::from_secs(60)).len(), 1);
    assert_eq!(level(&layers, Some(&one)), VllmLevel::Stages);
}

#[test]
fn a_second_push_takes_the_place_of_the_first_and_can_be_taken_back() {
    let mut layers = Layers::default();
    layers.push(push(LEVEL, "2"));
    layers.push(push(LEVEL, "0"));
    assert_eq!(level(&layers, None), VllmLevel::Request);
    assert!(layers.unset(LEVEL, None) && !layers.unset(LEVEL, None));
    assert_eq!(level(&layers, None), VllmLevel::Stages);
}

#[test]
fn a_servers_environment_may_hold_anything_the_agents_own_may_not() {
    let scope = Scope::new(Pid(7), &environ("SGLANG_TRACE_LEVEL=99"));
    assert!(scope.said.is_empty());
    let error = Layers::new(&|name| (name == LEVEL_ENV).then(|| "9".to_owned()), &[]).unwrap_err();
    assert!(error.to_string().contains(LEVEL_ENV), "{error}");
    assert_eq!(Exit::of(&error), Exit::Usage);
    let flags = [("otel.instrumentation.vlm.enabled".to_owned(), "true".to_owned())];
    let error = Layers::new(&|_| None, &flags).unwrap_err();
    assert!(error.to_string().contains("did you mean `otel.instrumentation.vllm.enabled`?"), "{error}");
}
