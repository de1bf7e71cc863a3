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
use enginetap_core::model::log::Log;
use enginetap_core::model::span::Trace;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout_at};

pub use self::retry::Backoff;
pub use self::sampler::Sampler;

use self::client::{Accepted, Client};
use super::counts::{Counts, count};
use super::message::{logs_request, metrics_request, trace_request};
use super::resource::{Resource, Snapshot};
use super::settings::{Batch, Endpoint, Period};

/// When everything must be over: unset until the shutdown begins.
pub(super) type Stop = watch::Receiver<Option<Instant>>;

/// What is to be sent.
pub(super) enum Payload {
    /// Traces.
    Traces(ExportTraceServiceRequest),
    /// Metrics.
    Metrics(ExportMetricsServiceRequest),
    /// Log lines.
    Logs(ExportLogsServiceRequest),
}

type Entry<T> = (Arc<Resource>, Arc<T>);

/// What is sent in batches.
pub(super) trait Batched: Send + Sync + Sized + 'static {
    /// What a receiver calls them.
    const SIGNAL: &'static str;
    /// Spans or lines in it.
    fn weight(&self) -> usize;
    /// A batch as one request.
    fn payload(entries: &[Entry<Self>]) -> Payload;
}

impl Batched for Trace {
    const SIGNAL: &'static str = "traces";

    fn weight(&self) -> usize {
        self.spans.len()
    }

    fn payload(entries: &[Entry<Self>]) -> Payload {
        Payload::Traces(trace_request(entries))
    }
}

impl Batched for Log {
    const SIGNAL: &'static str = "logs";

    fn weight(&self) -> usize {
        1
    }

    fn payload(entries: &[Entry<Self>]) -> Payload {
        Payload::Logs(logs_request(entries))
    }
}

/// The way into an exporter of batches: bounded in spans, or in lines.
pub(super) struct Queue<T> {
    entries: mpsc::UnboundedSender<Entry<T>>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

impl<T: Batched> Queue<T> {
    /// Hands one over; gives it back where there is no room. One larger than the whole queue fits into an empty one.
    pub(super) fn offer(&self, resource: &Arc<Resource>, one: &Arc<T>) -> Result<(), Full> {
        let weight = one.weight();
        let before = self.waiting.fetch_add(weight, Ordering::AcqRel);
        if before > 0 && before.saturating_add(weight) > self.limit {
            self.waiting.fetch_sub(weight, Ordering::AcqRel);
            return Err(Full);
        }
        // The receiver lives until this sender is dropped.
        self.entries.send((resource.clone(), one.clone())).map_err(|_| Full)
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

/// Sets up the export of traces, or of log lines. Must be called in the context of the runtime that is to run the task.
///
/// # Errors
/// When the endpoint's TLS files cannot be used.
pub(super) fn batches<T: Batched>(
    endpoint: &Endpoint,
    batch: Batch,
    shared: &Shared,
) -> Result<(Queue<T>, impl Future<Output = ()> + use<T>)> {
    let receiver = Receiver::new(endpoint, T::SIGNAL, batch.timeout, shared)?;
    let (entries, incoming) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let queue = Queue { entries, waiting: waiting.clone(), limit: batch.queue };
    Ok((queue, run_batches(receiver, incoming, waiting, batch)))
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

async fn run_batches<T: Batched>(
    mut receiver: Receiver,
    mut incoming: mpsc::UnboundedReceiver<Entry<T>>,
    waiting: Arc<AtomicUsize>,
    batch: Batch,
) {
    while let Some(first) = incoming.recv().await {
        let mut weight = first.1.weight();
        let mut entries = vec![first];
        let until = Instant::now() + batch.delay;
        while weight < batch.size {
            // Time out: the batch goes as it is. No sender any more: the same.
            let Ok(Some(entry)) = timeout_at(until, incoming.recv()).await else { break };
            weight += entry.1.weight();
            entries.push(entry);
        }
        let payload = T::payload(&entries);
        drop(entries);
        waiting.fetch_sub(weight, Ordering::AcqRel);
        receiver.send(payload, count(weight)).await;
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
