//! The middle and the far end of a session: pipeline and sinks, and the capture file where one is written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use enginetap_common::watch::Verdict;
use enginetap_core::capture::fact::Fact;
use enginetap_core::dialect::vocabulary::Vocabulary;
use enginetap_core::ids::{ConnId, Pid, ServerId};
use enginetap_core::lifecycle::MAX_ENDED;
use enginetap_core::loss::Losses;
use enginetap_core::model::metric::Point;
use enginetap_core::pipeline::{Output, Pipeline};
use enginetap_core::sampling::Sampling;
use enginetap_core::settings::Settings;
use enginetap_core::stream::protocol::Protocol;
use enginetap_core::time::MonoTime;

use super::capture::CaptureFile;
use super::verdicts::Verdicts;
use crate::export::Sinks;

/// What the kernel is to be told of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The connection.
    pub conn: ConnId,
    /// The process.
    pub pid: Pid,
    /// What it speaks.
    pub protocol: Protocol,
    /// What is wanted of it.
    pub verdict: Verdict,
}

/// Pipeline, sinks and capture file.
pub struct Feed {
    pipeline: Pipeline,
    sinks: Option<Sinks>,
    capture: Option<CaptureFile>,
    /// Servers that ended, oldest first: their counters are still told, under their names.
    ended: VecDeque<ServerId>,
    /// Processes that serve TLS, not yet asked for.
    encrypted: Vec<Pid>,
    /// Which traces and log lines leave.
    sampling: Sampling,
    /// Spans and log lines that did not leave, and reads of engines' objects that were refused.
    refused: Losses,
    /// Why the capture could not be written on.
    failure: Option<anyhow::Error>,
    /// Where verdicts on requests go.
    verdicts: Option<Arc<Mutex<Verdicts>>>,
}

impl Feed {
    /// Puts them together. Without sinks only the capture is written.
    #[must_use]
    pub fn new(settings: Settings, sinks: Option<Sinks>, capture: Option<CaptureFile>) -> Self {
        Self {
            pipeline: Pipeline::new(settings),
            sinks,
            capture,
            ended: VecDeque::new(),
            encrypted: Vec::new(),
            sampling: Sampling::default(),
            refused: Losses::default(),
            failure: None,
            verdicts: None,
        }
    }

    /// With a place for verdicts on requests.
    #[must_use]
    pub fn with_verdicts(self, verdicts: Arc<Mutex<Verdicts>>) -> Self {
        Self { verdicts: Some(verdicts), ..self }
    }

    /// Changes the settings from here on, for every server that has none of its own.
    pub fn set(&mut self, settings: Settings) {
        self.pipeline.set(settings);
    }

    /// Changes one server's settings from here on.
    pub fn set_server(&mut self, server: ServerId, settings: Settings) {
        self.pipeline.set_server(server, settings);
    }

    /// Takes the bytes of a record.
    pub fn record(&mut self, bytes: &[u8]) {
        self.keep(|capture| capture.record(bytes));
        self.pipeline.push_bytes(bytes);
    }

    /// Takes a fact.
    pub fn fact(&mut self, fact: Fact) {
        self.keep(|capture| capture.fact(&fact));
        if let (Fact::Server(server), Some(sinks)) = (&fact, &self.sinks) {
            sinks.server(server.id, &server.resource);
        }
        if let Fact::Detached(server) = &fact {
            self.ended.push_back(*server);
        }
        self.pipeline.fact(fact);
        if self.ended.len() > MAX_ENDED
            && let (Some(oldest), Some(sinks)) = (self.ended.pop_front(), &self.sinks)
        {
            self.sampling.forget(oldest);
            sinks.forget(oldest);
        }
    }

    /// Learns the texts of a server's tokens.
    pub fn vocabulary(&mut self, server: ServerId, vocabulary: Arc<Vocabulary>) {
        self.pipeline.vocabulary(server, vocabulary);
    }

    /// Time passes.
    pub fn tick(&mut self, now: MonoTime) {
        self.pipeline.tick(now);
    }

    /// Hands finished traces to the sinks; what the kernel is to be told.
    pub fn deliver(&mut self) -> Vec<Judgement> {
        let mut judgements = Vec::new();
        for output in self.pipeline.outputs() {
            match (output, &self.sinks) {
                (Output::Trace(trace), Some(sinks)) => {
                    let spans = u64::try_from(trace.spans.len()).unwrap_or(u64::MAX);
                    let policy = &self.pipeline.settings_of(trace.server).policy;
                    match self.sampling.trace(&trace, policy, self.pipeline.now()) {
                        Ok(()) => sinks.trace(trace),
                        Err(reason) => self.refused.add(reason, spans),
                    }
                }
                (Output::Log(log), Some(sinks)) => {
                    let policy = &self.pipeline.settings_of(log.server).policy;
                    match self.sampling.line(log.server, policy, self.pipeline.now()) {
                        Ok(()) => sinks.log(log),
                        Err(reason) => self.refused.add(reason, 1),
                    }
                }
                (Output::Trace(_) | Output::Log(_), None) => {}
                (Output::Why(verdict), _) => {
                    let verdicts = self.verdicts.as_ref().and_then(|verdicts| verdicts.lock().ok());
                    if let Some(mut verdicts) = verdicts {
                        verdicts.take(*verdict);
                    }
                }
                (Output::Verdict { conn, pid, protocol, verdict }, _) => {
                    judgements.push(Judgement { conn, pid, protocol, verdict });
                }
                (Output::Encrypted { pid }, _) => self.encrypted.push(pid),
            }
        }
        judgements
    }

    /// Processes that were found to serve TLS since the last call.
    pub fn encrypted(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.encrypted)
    }

    /// Hands a reading of all metrics, and of the agent's own, to the sinks.
    pub fn metrics(&self, own: Vec<Point>) {
        if let Some(sinks) = &self.sinks {
            let mut points = self.pipeline.points();
            points.extend(own);
            sinks.metrics(points);
        }
    }

    /// The pipeline, to read of it.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Counts reads of engines' objects that were refused.
    pub fn refused(&mut self, losses: &Losses) {
        self.refused.merge(losses);
    }

    /// What was lost on this side of the kernel, the sinks' losses too.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = self.pipeline.losses();
        losses.merge(&self.refused);
        if let Some(sinks) = &self.sinks {
            losses.merge(&sinks.losses());
        }
        losses
    }

    /// Whether nobody reads what is written, or the capture file cannot be written: no reason to go on.
    #[must_use]
    pub fn over(&self) -> bool {
        self.failure.is_some() || self.sinks.as_ref().is_some_and(Sinks::closed)
    }

    /// Nothing more comes: what is open ends as it stands.
    pub fn finish(&mut self) {
        self.pipeline.finish();
        self.deliver();
    }

    /// Ends the capture file and gives back the sinks, to be shut down. `lost`: what the kernel lost.
    ///
    /// # Errors
    /// When the capture file could not be written.
    pub fn close(self, lost: u64) -> Result<Option<Sinks>> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let Some(capture) = self.capture {
            let summary = capture.end(lost)?;
            log::info!("{} records and {} facts recorded", summary.records, summary.facts);
        }
        Ok(self.sinks)
    }

    /// Writes to the capture file; a failure ends the session.
    fn keep(&mut self, write: impl FnOnce(&mut CaptureFile) -> Result<()>) {
        let Some(capture) = &mut self.capture else { return };
        if let Err(error) = write(capture) {
            self.capture = None;
            self.failure = Some(error);
        }
    }
}
