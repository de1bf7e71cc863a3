//! What is collected: the command line over the environment over the defaults.

use anyhow::Result;
use enginetap_core::settings::Settings;

use crate::cli::Collect;
use crate::exit::Refusal;

/// Whether prompts and outputs are recorded.
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
/// Most characters kept of one input or output.
const CONTENT_LIMIT: &str = "OTEL_INSTRUMENTATION_GENAI_MESSAGE_CONTENT_MAX_LENGTH";
/// Whether vLLM metrics are kept.
const METRICS: &str = "OTEL_INSTRUMENTATION_VLLM_METRICS_ENABLED";
/// Whether SGLang metrics are kept.
const SGLANG_METRICS: &str = "OTEL_INSTRUMENTATION_SGLANG_METRICS_ENABLED";
/// Most events on one span.
const EVENTS: &str = "OTEL_SPAN_EVENT_COUNT_LIMIT";

/// The pipeline's settings. `seed`: of the ids made.
///
/// # Errors
/// A [`Refusal::Usage`] that names the variable that cannot be used.
pub fn settings(
    collect: &Collect,
    environment: &dyn Fn(&str) -> Option<String>,
    seed: u64,
) -> Result<Settings> {
    let Collect { level, sglang_level, no_content } = collect;
    let defaults = Settings::default();
    Ok(Settings {
        vllm_level: *level,
        vllm_metrics: truth(environment, METRICS)?.unwrap_or(defaults.vllm_metrics),
        sglang_level: *sglang_level,
        sglang_metrics: truth(environment, SGLANG_METRICS)?.unwrap_or(defaults.sglang_metrics),
        content: !no_content && truth(environment, CONTENT)?.unwrap_or(defaults.content),
        content_limit: number(environment, CONTENT_LIMIT)?.unwrap_or(defaults.content_limit),
        event_limit: number(environment, EVENTS)?.unwrap_or(defaults.event_limit),
        id_seed: seed,
        ..defaults
    })
}

fn set(environment: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    environment(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn truth(environment: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<bool>> {
    match set(environment, name) {
        None => Ok(None),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(value) => {
            let what = format!("{name}={value} is neither true nor false");
            Err(Refusal::usage(what, "set it to true or false, or unset it").into())
        }
    }
}

fn number(environment: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>> {
    let Some(value) = set(environment, name) else { return Ok(None) };
    let parsed = value.parse().map_err(|_| {
        Refusal::usage(format!("{name}={value} is no number"), "set it to a whole number, or unset it")
    });
    Ok(Some(parsed?))
}

#[cfg(test)]
mod tests {
    use enginetap_core::settings::{SglangLevel, VllmLevel};

    use super::*;
    use crate::exit::Exit;

    fn collect() -> Collect {
        Collect { level: VllmLevel::Stages, sglang_level: SglangLevel::default(), no_content: false }
    }

    #[test]
    fn the_environment_changes_the_defaults() {
        let environment = |name: &str| match name {
            CONTENT => Some("False".to_owned()),
            EVENTS => Some("7".to_owned()),
            CONTENT_LIMIT => Some(" ".to_owned()),
            _ => None,
        };
        let settings = settings(&collect(), &environment, 3).unwrap();
        assert!(!settings.content);
        assert_eq!((settings.event_limit, settings.content_limit, settings.id_seed), (7, 8192, 3));
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let environment = |name: &str| (name == CONTENT).then(|| "true".to_owned());
        let collect = Collect { no_content: true, ..collect() };
        assert!(!settings(&collect, &environment, 0).unwrap().content);
    }

    #[test]
    fn a_bad_variable_is_named() {
        for (name, value) in [(CONTENT, "perhaps"), (EVENTS, "many")] {
            let environment = |asked: &str| (asked == name).then(|| value.to_owned());
            let error = settings(&collect(), &environment, 0).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(Exit::of(&error), Exit::Usage);
        }
    }
}
