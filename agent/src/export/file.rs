//! `--otlp-file`: OTLP JSON lines as the OpenTelemetry collector's file exporter writes them, one
//! `ExportTraceServiceRequest`, `ExportMetricsServiceRequest` or `ExportLogsServiceRequest` a line.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use enginetap_core::model::log::Log;
use enginetap_core::model::span::Trace;
use enginetap_core::time::{Nanos, WallTime};

use super::json;
use super::message::{logs_request, metrics_request, trace_request};
use super::otlp::Sampler;
use super::resource::{Resource, Snapshot};
use super::writer::Output;
use crate::exit::Refusal;

/// Writes OTLP JSON lines.
pub(super) struct File {
    out: Box<dyn Write + Send>,
    sampler: Sampler,
    interval: Nanos,
    /// When metrics were last written, by the readings' own time: a replay writes as often as the live run did.
    written: Option<WallTime>,
    held: Option<Arc<Snapshot>>,
}

/// Opens the file, replacing what it held; `-` is standard output. Traces hold prompts: nobody else may read it.
///
/// # Errors
/// A [`Refusal`] when it cannot be opened.
pub(super) fn open(path: &Path) -> Result<Box<dyn Write + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(io::stdout())));
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.map_err(|error| {
        let what = format!("cannot write {}: {error}", path.display());
        Refusal::usage(what, "name a file in a directory you may write to")
    })?;
    Ok(Box::new(BufWriter::new(file)))
}

impl File {
    pub(super) fn new(out: Box<dyn Write + Send>, sampler: Sampler, interval: Nanos) -> Self {
        Self { out, sampler, interval, written: None, held: None }
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }
}

impl Output for File {
    fn trace(&mut self, resource: &Arc<Resource>, trace: &Arc<Trace>) -> io::Result<()> {
        if !self.sampler.takes(trace) {
            return Ok(());
        }
        self.line(&json::traces(&trace_request(&[(resource.clone(), trace.clone())])))
    }

    fn log(&mut self, resource: &Arc<Resource>, log: &Arc<Log>) -> io::Result<()> {
        self.line(&json::logs(&logs_request(&[(resource.clone(), log.clone())])))
    }

    fn metrics(&mut self, snapshot: &Arc<Snapshot>) -> io::Result<()> {
        let Some(at) = snapshot.at() else { return Ok(()) };
        let since = *self.written.get_or_insert(at);
        self.held = Some(snapshot.clone());
        if at.since(since) < self.interval {
            return Ok(());
        }
        self.written = Some(at);
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.held.take() {
            Some(snapshot) => self.line(&json::metrics(&metrics_request(&snapshot))),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::resource::Resources;
    use crate::export::sample;

    fn reading(after: Nanos) -> Arc<Snapshot> {
        let mut points = sample::points();
        points.iter_mut().for_each(|point| point.at = WallTime(sample::START + after.0));
        Arc::new(Resources::new(Vec::new()).snapshot(points))
    }

    /// The first key of each line.
    fn written(fill: impl FnOnce(&mut File)) -> Vec<String> {
        let path = tempfile::NamedTempFile::new().unwrap();
        let out = open(path.path()).unwrap();
        let mut file = File::new(out, Sampler::default(), Nanos::from_secs(60));
        fill(&mut file);
        file.flush().unwrap();
        let text = std::fs::read_to_string(path.path()).unwrap();
        text.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn each_trace_is_a_line() {
        let lines = written(|file| {
            file.trace(&sample::resource(), &Arc::new(sample::trace())).unwrap();
            file.trace(&sample::resource(), &Arc::new(sample::refused())).unwrap();
        });
        assert_eq!(lines, ["resourceSpans", "resourceSpans"]);
    }

    #[test]
    fn a_trace_whose_caller_does_not_record_is_left_out() {
        let mut trace = sample::trace();
        trace.sampled = false;
        assert!(written(|file| file.trace(&sample::resource(), &Arc::new(trace)).unwrap()).is_empty());
    }

    #[test]
    fn metrics_are_written_once_an_interval_and_at_the_end() {
        let lines = written(|file| {
            for seconds in 0..=125 {
                file.metrics(&reading(Nanos::from_secs(seconds))).unwrap();
            }
            file.finish().unwrap();
            file.finish().unwrap();
        });
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_wrong_usage() {
        let error = open(Path::new("/no/such/directory/file")).err().unwrap();
        assert_eq!(crate::exit::Exit::of(&error), crate::exit::Exit::Usage);
    }
}
