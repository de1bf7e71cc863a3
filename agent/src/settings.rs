//! What is collected, by the flags of `attach` and `replay` over the environment over the defaults.

use anyhow::Result;
use enginetap_core::settings::{SglangLevel, VllmLevel};

use crate::cli::Collect;
use crate::config::layers::Layers;

/// What the flags and the environment say.
///
/// # Errors
/// A [`crate::exit::Refusal`] that names the variable that cannot be used.
pub fn layers(collect: &Collect, environment: &dyn Fn(&str) -> Option<String>) -> Result<Layers> {
    let Collect { level, sglang_level, no_content } = collect;
    let level = level.map(|level| ("otel.instrumentation.vllm.tracing.level", number(level)));
    let sglang =
        sglang_level.map(|level| ("otel.instrumentation.sglang.tracing.level", sglang_number(level)));
    let content = no_content.then_some(("otel.instrumentation.genai.capture-message-content", "false"));
    let flags = level.into_iter().chain(sglang).chain(content);
    let flags: Vec<_> = flags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Layers::new(environment, &flags)
}

fn number(level: VllmLevel) -> &'static str {
    match level {
        VllmLevel::Request => "0",
        VllmLevel::Stages => "1",
        VllmLevel::Iterations => "2",
    }
}

fn sglang_number(level: SglangLevel) -> &'static str {
    let deepest = ["4", "3", "2", "1"].into_iter().zip([4, 3, 2, 1]).find(|(_, number)| level.shows(*number));
    deepest.map_or("0", |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use enginetap_core::settings::Settings;

    use super::*;
    use crate::exit::Exit;

    const COLLECT: Collect = Collect { level: None, sglang_level: None, no_content: false };
    const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
    const LEVEL: &str = "OTEL_INSTRUMENTATION_VLLM_TRACING_LEVEL";
    const EVENTS: &str = "OTEL_SPAN_EVENT_COUNT_LIMIT";

    fn settings(collect: &Collect, environment: &dyn Fn(&str) -> Option<String>) -> Settings {
        layers(collect, environment).unwrap().settings(None, 3)
    }

    #[test]
    fn the_environment_changes_the_defaults() {
        let environment = |name: &str| match name {
            CONTENT => Some("False".to_owned()),
            EVENTS => Some("7".to_owned()),
            "OTEL_INSTRUMENTATION_GENAI_MESSAGE_CONTENT_MAX_LENGTH" => Some(" ".to_owned()),
            _ => None,
        };
        let settings = settings(&COLLECT, &environment);
        assert!(!settings.content);
        assert_eq!((settings.event_limit, settings.content_limit, settings.id_seed), (7, 8192, 3));
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let environment = |name: &str| match name {
            CONTENT => Some("true".to_owned()),
            LEVEL => Some("0".to_owned()),
            _ => None,
        };
        for level in 0..=4 {
            let collect = Collect { sglang_level: SglangLevel::new(level), ..COLLECT };
            assert_eq!(Some(settings(&collect, &environment).sglang_level), SglangLevel::new(level));
        }
        let collect = Collect { no_content: true, level: Some(VllmLevel::Iterations), ..COLLECT };
        let settings = settings(&collect, &environment);
        assert_eq!((settings.content, settings.vllm_level), (false, VllmLevel::Iterations));
    }

    #[test]
    fn a_bad_variable_is_named() {
        for (name, value) in [(CONTENT, "perhaps"), (EVENTS, "many"), (LEVEL, "3")] {
            let environment = |asked: &str| (asked == name).then(|| value.to_owned());
            let error = layers(&COLLECT, &environment).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(Exit::of(&error), Exit::Usage);
        }
    }
}
