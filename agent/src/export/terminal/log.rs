//! A line of a log on the terminal.

use std::fmt::Write as _;

use enginetap_core::model::log::Log;
use jiff::tz::TimeZone;

use super::line::clock;
use super::text::clean;
use super::tree::shown;

/// Time, severity, event, text and attributes. `content`: prompts and outputs are shown.
pub(super) fn line(log: &Log, content: bool, zone: &TimeZone) -> String {
    let Log { server: _, event, severity, at, context: _, body, attributes } = log;
    let mut line = format!("{} {}", clock(*at, zone), severity.name());
    if let Some(event) = event {
        line.push(' ');
        line.push_str(event);
    }
    if let Some(body) = body {
        line.push(' ');
        line.push_str(&clean(body));
    }
    for attribute in attributes {
        // Writing to a string does not fail.
        let _ = write!(line, " {}={}", attribute.key, shown(&attribute.key, &attribute.value, content));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    #[test]
    fn a_line_hides_content_unless_it_is_asked_for() {
        let hidden = line(&sample::log(), false, &TimeZone::UTC);
        assert!(
            hidden.starts_with("17:00:00.812 INFO gen_ai.client.inference.operation.details "),
            "{hidden}"
        );
        assert!(hidden.contains("gen_ai.usage.input_tokens=20") && !hidden.contains("role"), "{hidden}");
        assert!(line(&sample::log(), true, &TimeZone::UTC).contains("role"));
    }

    #[test]
    fn control_characters_of_a_target_do_not_reach_the_terminal() {
        let mut log = sample::log();
        log.body = Some("\u{1b}[2Jgone".to_owned());
        assert!(!line(&log, true, &TimeZone::UTC).contains('\u{1b}'));
    }
}
