//! The configuration file: TOML, whose dotted keys are the settings' names.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layers::Values;
use super::setting::{Setting, Unknown};
use crate::discover::proc::read_at_most;
use crate::exit::Refusal;

/// Most bytes of a file: every setting fits many times over.
const LIMIT: u64 = 1024 * 1024;

/// Something wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// The values of a file, each in its one spelling.
///
/// # Errors
/// Everything that is wrong in it.
pub fn parse(text: &str) -> Result<Values, Vec<Problem>> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![Problem { line: line(text, at), what: error.message().to_owned() }]
    })?;
    let mut reading = Reading { text, values: Values::new(), problems: Vec::new() };
    reading.table(table.get_ref(), "");
    if reading.problems.is_empty() { Ok(reading.values) } else { Err(reading.problems) }
}

/// The values of the file at a path.
///
/// # Errors
/// When it cannot be read, or anything in it is wrong: a [`Refusal`] that says where.
pub fn read(path: &Path) -> Result<Values> {
    let bytes = read_at_most(path, LIMIT).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Refusal::usage(format!("{} is no text", path.display()), "write it as TOML, in UTF-8")
    })?;
    parse(&text).map_err(|problems| {
        let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let what = format!("{}: {}", path.display(), list.join("; "));
        Refusal::usage(what, "`enginetap config explain KEY` says what a setting takes").into()
    })
}

struct Reading<'a> {
    text: &'a str,
    values: Values,
    problems: Vec<Problem>,
}

impl Reading<'_> {
    fn table(&mut self, table: &DeTable<'_>, prefix: &str) {
        for (key, value) in table {
            let name = match prefix {
                "" => key.get_ref().to_string(),
                prefix => format!("{prefix}.{}", key.get_ref()),
            };
            let at = key.span().start;
            match value.get_ref() {
                DeValue::Table(inner) if inner.is_empty() => self.empty(&name, at),
                DeValue::Table(inner) => self.table(inner, &name),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => self.value(&name, at, value),
            }
        }
    }

    /// A table with nothing in it says nothing, but its name may be wrong.
    fn empty(&mut self, name: &str, at: usize) {
        let within = format!("{name}.");
        if !Setting::all().any(|setting| setting.name().starts_with(&within)) {
            self.unknown(name, at);
        }
    }

    fn unknown(&mut self, name: &str, at: usize) {
        if let Err(error) = Setting::find(name) {
            self.wrong(at, &error);
        }
    }

    fn value(&mut self, name: &str, at: usize, value: &Spanned<DeValue<'_>>) {
        let setting = match Setting::find(name) {
            Ok(setting) => setting,
            Err(error) => return self.wrong::<Unknown>(at, &error),
        };
        let read = match scalar(value.get_ref()) {
            Some(text) => setting.read(&text).map_err(|error| error.to_string()),
            None => Err(format!("is not {}", setting.wanted())),
        };
        match read {
            Ok(value) => drop(self.values.insert(setting.name(), value)),
            Err(error) => self.wrong(at, &format!("{name}: {error}")),
        }
    }

    fn wrong<T: fmt::Display>(&mut self, at: usize, what: &T) {
        self.problems.push(Problem { line: line(self.text, at), what: what.to_string() });
    }
}

/// A plain value as text.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// The line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dotted_keys_and_tables_say_the_same() {
        let dotted = "otel.instrumentation.vllm.tracing.level = 2\noutput.prometheus = 'none'\n";
        let tables =
            "[otel.instrumentation.vllm]\ntracing = { level = \"2\" }\n[output]\nprometheus = \"none\"";
        let values = parse(dotted).unwrap();
        assert_eq!(values, parse(tables).unwrap());
        assert_eq!(values.get("otel.instrumentation.vllm.tracing.level").map(String::as_str), Some("2"));
    }

    #[test]
    fn a_setting_without_a_key_goes_by_its_variable() {
        let values = parse("OTEL_SPAN_EVENT_COUNT_LIMIT = 9").unwrap();
        assert_eq!(values.get("OTEL_SPAN_EVENT_COUNT_LIMIT").map(String::as_str), Some("9"));
    }

    #[test]
    fn everything_wrong_is_told_with_its_line_and_what_was_meant() {
        let text = "[otel.instrumentation.vllm]\ntracing.levle = 2\nenabled = 'perhaps'\n\n[kernels]\n[output]\nterminal = [1]";
        let problems: Vec<String> = parse(text).unwrap_err().iter().map(ToString::to_string).collect();
        let has = |line: &str, what: &str| problems.iter().any(|p| p.starts_with(line) && p.contains(what));
        assert!(has("line 2: ", "did you mean `otel.instrumentation.vllm.tracing.level`?"), "{problems:?}");
        assert!(
            has("line 3: otel.instrumentation.vllm.enabled", "`perhaps` is not true or false"),
            "{problems:?}"
        );
        assert!(has("line 5: ", "no setting `kernels`"), "{problems:?}");
        assert!(has("line 7: output.terminal", "is not true or false"), "{problems:?}");
        assert_eq!(problems.len(), 4);
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let problems = parse("a = 1\n]]] rubbish").unwrap_err();
        assert_eq!(problems.first().map(|problem| problem.line), Some(2), "{problems:?}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]a-z.=\"'{}0-9\n ]{0,200}") {
            let _ = parse(&text);
        }
    }
}
