//! `OTEL_TRACES_SAMPLER`: which traces OTLP outputs carry. The terminal shows them all.

use anyhow::Result;
use enginetap_core::model::span::Trace;

use crate::exit::Refusal;
use crate::export::settings::Environment;

/// Which traces are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Whether the caller's decision counts where there is a caller.
    by_parent: bool,
    /// Share of the traces without a caller (of all, where callers do not count), 0 to 1.
    ratio: f64,
}

impl Default for Sampler {
    /// `parentbased_always_on`, as the specification has it.
    fn default() -> Self {
        Self { by_parent: true, ratio: 1.0 }
    }
}

impl Sampler {
    /// What the environment says.
    ///
    /// # Errors
    /// A [`Refusal`] when it names no sampler or no ratio.
    pub fn new(environment: &Environment<'_>) -> Result<Self> {
        let Some(name) = environment.get("OTEL_TRACES_SAMPLER") else { return Ok(Self::default()) };
        let (by_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name.as_str()),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => ratio(environment)?,
            _ => {
                let next = "set it to always_on, always_off, traceidratio or one of them after parentbased_";
                return Err(Refusal::usage(format!("OTEL_TRACES_SAMPLER={name} is no sampler"), next).into());
            }
        };
        Ok(Self { by_parent, ratio })
    }

    /// Whether a trace is sent.
    #[must_use]
    pub fn takes(self, trace: &Trace) -> bool {
        let Some(root) = trace.spans.first() else { return false };
        if self.by_parent && root.parent.is_some() {
            return trace.sampled;
        }
        // As the SDKs do: the low 8 bytes of the trace id, so that every agent decides the same.
        #[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
        let low = root.trace.0 as u64 >> 1;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a ratio of 2^63")]
        let bound = (self.ratio * 9_223_372_036_854_775_808.0) as u64;
        low < bound
    }
}

fn ratio(environment: &Environment<'_>) -> Result<f64> {
    let Some(text) = environment.get("OTEL_TRACES_SAMPLER_ARG") else { return Ok(1.0) };
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        Ok(_) | Err(_) => {
            let what = format!("OTEL_TRACES_SAMPLER_ARG={text} is no ratio");
            Err(Refusal::usage(what, "set it to a number from 0 to 1").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    fn sampler(name: &'static str, arg: &'static str) -> Sampler {
        let lookup = move |variable: &str| match variable {
            "OTEL_TRACES_SAMPLER" => Some(name.to_owned()),
            "OTEL_TRACES_SAMPLER_ARG" => Some(arg.to_owned()),
            _ => None,
        };
        Sampler::new(&Environment(&lookup)).unwrap()
    }

    #[test]
    fn by_default_a_callers_decision_counts() {
        let (mut called, root) = (sample::trace(), sample::refused());
        called.sampled = false;
        assert!(!Sampler::default().takes(&called));
        assert!(Sampler::default().takes(&root));
        assert!(sampler("always_on", "").takes(&called));
        assert!(!sampler("always_off", "").takes(&root));
        assert!(sampler("parentbased_always_off", "").takes(&sample::trace()));
    }

    #[test]
    fn a_ratio_is_taken_by_the_trace_id() {
        // 0x8448eb21… is 0.516 of 2^64.
        assert!(!sampler("traceidratio", "0.5").takes(&sample::refused()));
        assert!(sampler("traceidratio", "0.6").takes(&sample::refused()));
        assert!(sampler("traceidratio", "1").takes(&sample::refused()));
        assert!(!sampler("traceidratio", "0").takes(&sample::refused()));
    }
}
