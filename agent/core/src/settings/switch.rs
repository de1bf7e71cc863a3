//! The settings of the contract by what they change: from the table's rows and an operator's words to [`Settings`].

use std::fmt;

use super::{Settings, SglangLevel, Strategy, VllmLevel};
use crate::model::log::Severity;
use crate::model::registry::collection::{OWN_SWITCHES, SWITCHES};
use crate::model::registry::{SwitchDef, SwitchKind};
use crate::sampling::WHOLE;
use crate::time::Nanos;

/// A setting that takes effect while the agent runs; the tables [`SWITCHES`] and [`OWN_SWITCHES`] have a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Switch {
    /// Whether vLLM servers are looked at.
    VllmEnabled,
    /// Whether SGLang servers are looked at.
    SglangEnabled,
    /// Whether prompts and outputs are recorded.
    Content,
    /// Most characters kept of one of them.
    ContentLimit,
    /// Where they go.
    ContentStrategy,
    /// Whether vLLM metrics are kept.
    VllmMetrics,
    /// Depth of vLLM traces.
    VllmLevel,
    /// Whether SGLang metrics are kept.
    SglangMetrics,
    /// Depth of SGLang traces.
    SglangLevel,
    /// Most events on one span.
    EventLimit,
    /// The agent's own log of vLLM requests.
    VllmRequestLog,
    /// The agent's own log of vLLM iterations.
    VllmIterationLog,
    /// Whether vLLM's log lines are exported with trace and span.
    VllmLogTraceContext,
    /// Least severity of vLLM's log lines exported.
    VllmLogLevel,
    /// The agent's own log of SGLang requests.
    SglangRequestLog,
    /// How much a line of it says.
    SglangRequestLogLevel,
    /// Least severity of SGLang's log lines exported.
    SglangLogLevel,
    /// Whether SGLang's log lines are exported.
    SglangLogLines,
    /// The share of traces that are sent.
    SampleShare,
    /// Whether those of failed requests are, whatever the share.
    SampleFailed,
    /// From how many milliseconds on slow ones are.
    SampleSlow,
    /// Of how many of the rest one is.
    SampleEvery,
    /// Most spans a second and server.
    SpanRate,
    /// Most log lines a second and server.
    LineRate,
}

/// A value that a setting does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {wanted}")]
pub struct Unfit {
    /// What was said.
    pub value: String,
    /// What may be said.
    pub wanted: String,
}

impl SwitchDef {
    /// What it is called in a configuration file: its key, or its variable where it has no key.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.or(self.env).unwrap_or_default()
    }

    /// What it does.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.doc.or(self.outside).unwrap_or_default()
    }
}

impl SwitchKind {
    /// What may be said, in words.
    #[must_use]
    pub fn wanted(self) -> String {
        match self {
            Self::Truth => "true or false".to_owned(),
            Self::Count => "a whole number".to_owned(),
            Self::Share => "a share from 0 to 1".to_owned(),
            Self::Level { most } => format!("a level from 0 to {most}"),
            Self::Choice(words) => words.join(" or "),
        }
    }

    /// A value in its one spelling.
    ///
    /// # Errors
    /// When it is none that the setting takes.
    pub fn read(self, value: &str) -> Result<String, Unfit> {
        let value = value.trim();
        let spelled = match self {
            Self::Truth => ["true", "false"].iter().find(|word| word.eq_ignore_ascii_case(value)),
            Self::Choice(words) => words.iter().find(|word| word.eq_ignore_ascii_case(value)),
            Self::Share => return millionths(value).map(share).ok_or(self.unfit(value)),
            Self::Count => return number(value, usize::MAX).map(|n| n.to_string()).ok_or(self.unfit(value)),
            Self::Level { most } => {
                return number(value, usize::from(most)).map(|n| n.to_string()).ok_or(self.unfit(value));
            }
        };
        spelled.map(|word| (*word).to_owned()).ok_or(self.unfit(value))
    }

    fn unfit(self, value: &str) -> Unfit {
        Unfit { value: value.to_owned(), wanted: self.wanted() }
    }
}

/// A share from 0 to 1, in millionths.
fn millionths(value: &str) -> Option<u32> {
    let share: f64 = value.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a million")]
    let millionths = (share * f64::from(WHOLE)).round() as u32;
    Some(millionths)
}

/// Millionths as a share.
fn share(millionths: u32) -> String {
    (f64::from(millionths) / f64::from(WHOLE)).to_string()
}

/// A whole number of at most `most`.
fn number(value: &str, most: usize) -> Option<usize> {
    value.parse().ok().filter(|&number| number <= most)
}

impl fmt::Display for SwitchDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Settings {
    /// Changes one setting.
    ///
    /// # Errors
    /// When it does not take the value; nothing is changed then.
    pub fn set(&mut self, def: &SwitchDef, value: &str) -> Result<(), Unfit> {
        let value = def.kind.read(value)?;
        let truth = value == "true";
        let count = || value.parse().unwrap_or_default();
        let rate = || value.parse().unwrap_or_default();
        match def.switch {
            Switch::VllmEnabled => self.vllm_enabled = truth,
            Switch::SglangEnabled => self.sglang_enabled = truth,
            Switch::Content => self.content = truth,
            Switch::ContentLimit => self.content_limit = count(),
            Switch::ContentStrategy => self.content_strategy = strategy(&value),
            Switch::VllmMetrics => self.vllm_metrics = truth,
            Switch::VllmLevel => self.vllm_level = vllm_level(count()),
            Switch::SglangMetrics => self.sglang_metrics = truth,
            Switch::SglangLevel => self.sglang_level = sglang_level(count()),
            Switch::EventLimit => self.event_limit = count(),
            Switch::VllmRequestLog => self.vllm_log.requests = truth,
            Switch::VllmIterationLog => self.vllm_log.iterations = truth,
            Switch::VllmLogTraceContext => self.vllm_log.lines = truth,
            Switch::VllmLogLevel => self.vllm_log.least = Severity::of(&value).unwrap_or_default(),
            Switch::SglangRequestLog => self.sglang_log.requests = truth,
            Switch::SglangRequestLogLevel => self.sglang_log.detail = value.parse().unwrap_or_default(),
            Switch::SglangLogLevel => self.sglang_log.least = Severity::of(&value).unwrap_or_default(),
            Switch::SglangLogLines => self.sglang_log.lines = truth,
            Switch::SampleShare => self.policy.share = millionths(&value).unwrap_or(WHOLE),
            Switch::SampleFailed => self.policy.failed = truth,
            Switch::SampleSlow => self.policy.slow = Nanos::from_millis(rate()),
            Switch::SampleEvery => self.policy.every = rate(),
            Switch::SpanRate => self.policy.spans = rate(),
            Switch::LineRate => self.policy.lines = rate(),
        }
        Ok(())
    }
}

fn strategy(value: &str) -> Strategy {
    if value == Strategy::Event.name() { Strategy::Event } else { Strategy::SpanAttributes }
}

fn vllm_level(level: usize) -> VllmLevel {
    match level {
        0 => VllmLevel::Request,
        1 => VllmLevel::Stages,
        _ => VllmLevel::Iterations,
    }
}

fn sglang_level(level: usize) -> SglangLevel {
    u8::try_from(level).ok().and_then(SglangLevel::new).unwrap_or(SglangLevel::MAX)
}

/// The row of a setting, by its name in a configuration file.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static SwitchDef> {
    all().find(|def| def.name() == name)
}

/// Every row: those of the contract, then our own.
pub fn all() -> impl Iterator<Item = &'static SwitchDef> {
    SWITCHES.iter().chain(OWN_SWITCHES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn def(switch: Switch) -> &'static SwitchDef {
        all().find(|def| def.switch == switch).unwrap()
    }

    #[test]
    fn every_setting_has_one_row_and_one_name() {
        let names: BTreeSet<_> = all().map(SwitchDef::name).collect();
        let switches: BTreeSet<_> = all().map(|def| def.switch).collect();
        assert_eq!((names.len(), switches.len()), (all().count(), all().count()));
        assert!(!names.contains(""));
    }

    #[test]
    fn the_tables_defaults_are_those_of_the_settings() {
        let mut settings = Settings::default();
        for def in all() {
            settings.set(def, def.default).unwrap();
            assert_eq!(settings, Settings::default(), "{def}");
        }
    }

    #[test]
    fn every_setting_changes_something() {
        let other = |def: &SwitchDef| match def.kind {
            SwitchKind::Truth => if def.default == "true" { "false" } else { "true" }.to_owned(),
            SwitchKind::Count => "7".to_owned(),
            SwitchKind::Share => "0.25".to_owned(),
            SwitchKind::Level { .. } => "0".to_owned(),
            SwitchKind::Choice(words) => words.iter().find(|word| **word != def.default).unwrap().to_string(),
        };
        for def in all() {
            let mut settings = Settings::default();
            settings.set(def, &other(def)).unwrap();
            assert_ne!(settings, Settings::default(), "{def}");
        }
    }

    #[test]
    fn values_have_one_spelling_and_wrong_ones_are_told_what_is_right() {
        assert_eq!(SwitchKind::Truth.read(" False "), Ok("false".to_owned()));
        assert_eq!(SwitchKind::Level { most: 2 }.read("02"), Ok("2".to_owned()));
        assert_eq!(def(Switch::VllmLogLevel).kind.read("warning"), Ok("WARNING".to_owned()));
        for (switch, value, wanted) in [
            (Switch::Content, "yes", "true or false"),
            (Switch::ContentLimit, "-1", "a whole number"),
            (Switch::VllmLevel, "3", "a level from 0 to 2"),
            (Switch::SglangLevel, "5", "a level from 0 to 4"),
            (Switch::ContentStrategy, "spans", "span-attributes or event"),
        ] {
            let mut settings = Settings::default();
            let error = settings.set(def(switch), value).unwrap_err();
            assert_eq!(error.to_string(), format!("`{value}` is not {wanted}"));
            assert_eq!(settings, Settings::default());
        }
    }

    #[test]
    fn a_setting_without_a_key_goes_by_its_variable() {
        assert_eq!(by_name("OTEL_SPAN_EVENT_COUNT_LIMIT").unwrap().switch, Switch::EventLimit);
        assert!(by_name("SGLANG_TRACE_LEVEL").is_none(), "it has a key");
    }
}
