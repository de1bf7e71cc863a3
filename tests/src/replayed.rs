//! A capture, replayed through the whole pipeline.

use anyhow::Result;
use enginetap_core::loss::Losses;
use enginetap_core::model::metric::Point;
use enginetap_core::model::span::{Span, Trace, Value};
use enginetap_core::pipeline::{Output, Pipeline};
use enginetap_core::settings::Settings;
use enginetap_core::why::verdict::Verdict;

use crate::captures::{Capture, Input};

/// What came out of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Every trace, in the order in which they ended.
    pub traces: Vec<Trace>,
    /// Every verdict on a request, in that order too.
    pub verdicts: Vec<Verdict>,
    /// Every metric at the end.
    pub points: Vec<Point>,
    /// What was lost.
    pub losses: Losses,
}

impl Replayed {
    /// Replays a capture.
    ///
    /// # Errors
    /// When the capture is damaged.
    pub fn of(capture: &Capture, settings: Settings) -> Result<Self> {
        Ok(Self::through(capture.inputs()?, settings))
    }

    /// Runs inputs through the pipeline.
    #[must_use]
    pub fn through(inputs: impl IntoIterator<Item = Input>, settings: Settings) -> Self {
        let mut pipeline = Pipeline::new(settings);
        for input in inputs {
            match input {
                Input::Record(bytes) => pipeline.push_bytes(&bytes),
                Input::Fact(fact) => pipeline.fact(*fact),
            }
        }
        pipeline.finish();
        let (mut traces, mut verdicts) = (Vec::new(), Vec::new());
        for output in pipeline.outputs() {
            match output {
                Output::Trace(trace) => traces.push(trace),
                Output::Why(verdict) => verdicts.push(*verdict),
                Output::Log(_) | Output::Verdict { .. } | Output::Encrypted { .. } => {}
            }
        }
        Self { traces, verdicts, points: pipeline.points(), losses: pipeline.losses() }
    }

    /// The sum of every series of a metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let of_name = self.points.iter().filter(|point| point.metric.name == name);
        of_name.map(|point| point.value.as_f64()).sum::<f64>() + 0.0
    }

    /// Every span of a name.
    pub fn spans<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Span> {
        self.traces.iter().flat_map(|trace| &trace.spans).filter(move |span| span.name == name)
    }
}

/// The whole number that an attribute holds.
#[must_use]
pub fn int(span: &Span, key: &str) -> Option<i64> {
    match span.attribute(key) {
        Some(Value::Int(value)) => Some(*value),
        Some(Value::Str(_) | Value::Float(_) | Value::Bool(_) | Value::Strs(_) | Value::Ints(_)) | None => {
            None
        }
    }
}
