//! OTLP to a receiver: batches, queues, retries.
//!
//! A receiver that is slow or down costs its own queue and nothing else: what does not fit is dropped and counted.

mod client;
mod grpc;
mod http;
mod retry;
mod sampler;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use enginetap_core::model::span::Trace;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout_at};

pub use self::retry::Backoff;
pub use self::sampler::Sampler;

use self::client::{Accepted, Client};
use super::counts::{Counts, count};
use super::message::{metrics_request, trace_request};
use super::resource::{Resource, Snapshot};
use super::settings::{Batch, Endpoint, Period};

/// When everything must be over: unset until the shutdown begins.
pub(super) type Stop = watch::Receiver<Option<Instant>>;

/// What is to be sent.
enum Payload {
    /// Traces.
    Traces(ExportTraceServiceRequest),
    /// Metrics.
    Metrics(ExportMetricsServiceRequest),
}

type Entry = (Arc<Resource>, Arc<Trace>);

/// The way into the trace exporter: bounded in spans.
pub(super) struct TraceQueue {
    entries: mpsc::UnboundedSender<Entry>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

impl TraceQueue {
    /// Hands a trace over; gives it back where there is no room. A trace larger than the whole queue fits into
    /// an empty one.
    pub(super) fn offer(&self, resource: &Arc<Resource>, trace: &Arc<Trace>) -> Result<(), Full> {
        let spans = trace.spans.len();
        let before = self.waiting.fetch_add(spans, Ordering::AcqRel);
        if before > 0 && before.saturating_add(spans) > self.limit {
            self.waiting.fetch_sub(spans, Ordering::AcqRel);
            return Err(Full);
        }
        // The receiver lives until this sender is dropped.
        self.entries.send((resource.clone(), trace.clone())).map_err(|_| Full)
    }
}

/// A queue has no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// One receiver of one signal, with what is known of it.
struct Receiver {
    client: Client,
    signal: &'static str,
    backoff: Backoff,
    timeout: Duration,
    counts: Arc<Counts>,
    stop: Stop,
    complaints: Complaints,
}

/// Sets up the export of traces. Must be called in the context of the runtime that is to run the task.
///
/// # Errors
/// When the endpoint's TLS files cannot be used.
pub(super) fn traces(
    endpoint: &Endpoint,
    batch: Batch,
    shared: &Shared,
) -> Result<(TraceQueue, impl Future<Output = ()> + use<>)> {
    let receiver = Receiver::new(endpoint, "traces", batch.timeout, shared)?;
    let (entries, incoming) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let queue = TraceQueue { entries, waiting: waiting.clone(), limit: batch.queue };
    Ok((queue, run_traces(receiver, incoming, waiting, batch)))
}

/// Sets up the export of metrics. Must be called in the context of the runtime that is to run the task.
///
/// # Errors
/// When the endpoint's TLS files cannot be used.
pub(super) fn metrics(
    endpoint: &Endpoint,
    period: Period,
    latest: watch::Receiver<Arc<Snapshot>>,
    shared: &Shared,
) -> Result<impl Future<Output = ()> + use<>> {
    let receiver = Receiver::new(endpoint, "metrics", period.timeout, shared)?;
    Ok(run_metrics(receiver, latest, period.interval))
}

/// What all exporters share.
#[derive(Clone)]
pub(super) struct Shared {
    /// Where losses are counted.
    pub(super) counts: Arc<Counts>,
    /// When everything must be over.
    pub(super) stop: Stop,
    /// How long to wait between attempts.
    pub(super) backoff: Backoff,
}

async fn run_traces(
    mut receiver: Receiver,
    mut incoming: mpsc::UnboundedReceiver<Entry>,
    waiting: Arc<AtomicUsize>,
    batch: Batch,
) {
    while let Some(first) = incoming.recv().await {
        let mut spans = first.1.spans.len();
        let mut entries = vec![first];
        let until = Instant::now() + batch.delay;
        while spans < batch.size {
            // Time out: the batch goes as it is. No sender any more: the same.
            let Ok(Some(entry)) = timeout_at(until, incoming.recv()).await else { break };
            spans += entry.1.spans.len();
            entries.push(entry);
        }
        let request = trace_request(&entries);
        drop(entries);
        waiting.fetch_sub(spans, Ordering::AcqRel);
        receiver.send(Payload::Traces(request), count(spans)).await;
    }
}

async fn run_metrics(mut receiver: Receiver, latest: watch::Receiver<Arc<Snapshot>>, interval: Duration) {
    let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent = Arc::new(Snapshot::default());
    loop {
        let open = tokio::select! {
            _ = ticks.tick() => true,
            () = closed(&latest) => false,
        };
        let snapshot = latest.borrow().clone();
        if !Arc::ptr_eq(&snapshot, &sent) && !snapshot.is_empty() {
            receiver.send(Payload::Metrics(metrics_request(&snapshot)), count(snapshot.len())).await;
            sent = snapshot;
        }
        if !open {
            return;
        }
    }
}

/// Waits until the sender is gone, leaving what it sent last unseen.
async fn closed(latest: &watch::Receiver<Arc<Snapshot>>) {
    let mut latest = latest.clone();
    while latest.changed().await.is_ok() {}
}

impl Receiver {
    fn new(endpoint: &Endpoint, signal: &'static str, timeout: Duration, shared: &Shared) -> Result<Self> {
        let Shared { counts, stop, backoff } = shared.clone();
        let client = Client::new(endpoint)?;
        let complaints = Complaints { address: client.address(), last: None };
        Ok(Self { client, signal, backoff, timeout, counts, stop, complaints })
    }

    /// Sends, and counts how it went. Ends by its timeout, or when everything must be over.
    async fn send(&mut self, payload: Payload, n: u64) {
        let mut why = None;
        let prepared = self.client.prepare(payload);
        let deadline = Instant::now() + self.timeout;
        let sent = tokio::select! {
            sent = retry::until_accepted(self.backoff, &mut why, || self.client.attempt(&prepared)) => sent,
            () = sleep_until(deadline) => None,
            () = passed(&mut self.stop) => None,
        };
        match sent {
            Some(Accepted { rejected, message }) => {
                let rejected = rejected.min(n);
                self.counts.delivered(n - rejected);
                self.counts.failed(rejected);
                self.complaints.accepted(self.signal, rejected, &message);
            }
            None => {
                self.counts.failed(n);
                self.complaints.dropped(self.signal, n, why.as_deref().unwrap_or("no answer in time"));
            }
        }
    }
}

/// Waits until everything must be over.
async fn passed(stop: &mut Stop) {
    let deadline = match stop.wait_for(Option::is_some).await {
        Ok(deadline) => *deadline,
        // The front is gone without a shutdown: nobody waits.
        Err(_) => None,
    };
    if let Some(deadline) = deadline {
        sleep_until(deadline).await;
    }
}

/// Says that a receiver fails, but not for every batch.
struct Complaints {
    address: String,
    last: Option<Instant>,
}

impl Complaints {
    const PAUSE: Duration = Duration::from_secs(60);

    fn due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.last.is_none_or(|last| now.duration_since(last) >= Self::PAUSE);
        if due {
            self.last = Some(now);
        }
        due
    }

    fn dropped(&mut self, signal: &str, n: u64, why: &str) {
        if self.due() {
            log::warn!(
                "cannot send {signal} to {}: {why}; {n} dropped and counted. Check the address, the protocol and \
                 the receiver; capture goes on",
                self.address
            );
        }
    }

    fn accepted(&mut self, signal: &str, rejected: u64, message: &str) {
        if rejected == 0 && message.is_empty() {
            if self.last.take().is_some() {
                log::warn!("{} takes {signal} again", self.address);
            }
        } else if self.due() {
            log::warn!("{} took {signal} but rejected {rejected} of them: {message}", self.address);
        }
    }
}
