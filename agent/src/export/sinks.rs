//! The front of all sinks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use enginetap_core::ids::ServerId;
use enginetap_core::loss::Losses;
use enginetap_core::model::log::Log;
use enginetap_core::model::metric::Point;
use enginetap_core::model::span::Trace;
use enginetap_core::time::Nanos;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::counts::{Counts, count};
use super::file::{self, File};
use super::health::Health;
use super::otlp::{self, Backoff, Batched, Full, Queue, Sampler, Shared};
use super::prometheus;
use super::resource::{Resource, Resources, Snapshot};
use super::settings::{Environment, OtlpFlags, OtlpSettings, Period};
use super::terminal::{Look, Terminal};
use super::writer::{Item, Overflow, Writer};
use crate::cli;

/// What is to be set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The terminal, if it is wanted.
    pub terminal: Option<Look>,
    /// OTLP receivers.
    pub otlp: OtlpSettings,
    /// File of OTLP JSON lines.
    pub file: Option<PathBuf>,
    /// Address for Prometheus.
    pub prometheus: Option<SocketAddr>,
    /// What the environment says of all resources.
    pub resource: Vec<(String, String)>,
    /// Which traces the OTLP outputs carry.
    pub sampler: Sampler,
    /// How often metrics are written to the file.
    pub period: Period,
    /// Waits between attempts at a receiver.
    pub backoff: Backoff,
    /// What happens where a queue is full.
    pub overflow: Overflow,
}

impl Config {
    /// What the command line and the environment say. The terminal is on where no other output for traces is
    /// named, and where a flag asks for something that only it gives.
    ///
    /// # Errors
    /// A [`crate::exit::Refusal`] that names the flag or variable that cannot be used.
    pub fn new(output: &cli::Output, environment: &Environment<'_>, overflow: Overflow) -> Result<Self> {
        let cli::Output {
            verbose,
            json,
            color,
            show_content,
            otlp_endpoint,
            otlp_protocol,
            otlp_file,
            prometheus,
        } = output;
        let flags = OtlpFlags { endpoint: otlp_endpoint.clone(), protocol: *otlp_protocol };
        let otlp = OtlpSettings::new(&flags, environment)?;
        let elsewhere = otlp.traces.is_some() || otlp_file.is_some();
        let stdout_taken = otlp_file.as_ref().is_some_and(|path| path.as_os_str() == "-");
        let wanted = !elsewhere || *verbose > 0 || *json;
        let look = || Look::stdout(*verbose, *json, *show_content, *color);
        Ok(Self {
            terminal: (wanted && !stdout_taken).then(look),
            otlp,
            file: otlp_file.clone(),
            prometheus: *prometheus,
            resource: environment.resource()?,
            sampler: Sampler::new(environment)?,
            period: environment.period()?,
            backoff: Backoff::default(),
            overflow,
        })
    }
}

/// Every sink that is on. Nothing here waits for a receiver, a disk or a pipe, unless the source can wait
/// ([`Overflow::Wait`]).
pub struct Sinks {
    resources: Mutex<Resources>,
    writers: Vec<Writer>,
    traces: Option<Queue<Trace>>,
    logs: Option<Queue<Log>>,
    latest: Option<watch::Sender<Arc<Snapshot>>>,
    sampler: Sampler,
    overflow: Overflow,
    counts: Arc<Counts>,
    health: Arc<Health>,
    stop: watch::Sender<Option<Instant>>,
    exporters: Option<oneshot::Receiver<()>>,
    prometheus: Option<SocketAddr>,
}

impl Sinks {
    /// Opens files and addresses, and starts a thread for each output that writes and one for all that speak to
    /// the network.
    ///
    /// # Errors
    /// When a file, an address or a certificate cannot be used.
    pub fn start(config: Config) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let (stop, stopping) = watch::channel(None);
        let mut sinks = Self {
            resources: Mutex::new(Resources::new(config.resource.clone())),
            writers: writers(&config, &counts)?,
            traces: None,
            logs: None,
            latest: None,
            sampler: config.sampler,
            overflow: config.overflow,
            counts: counts.clone(),
            health: Arc::new(Health::new(std::time::Instant::now())),
            stop,
            exporters: None,
            prometheus: None,
        };
        let OtlpSettings { traces, metrics, logs, .. } = &config.otlp;
        if traces.is_some() || metrics.is_some() || logs.is_some() || config.prometheus.is_some() {
            sinks.exporters(&config, &Shared { counts, stop: stopping, backoff: config.backoff })?;
        }
        Ok(sinks)
    }

    fn exporters(&mut self, config: &Config, shared: &Shared) -> Result<()> {
        let network = Network::new()?;
        let runtime = network.handle.clone();
        let mut tasks = Vec::new();
        let context = runtime.enter();
        if let Some(endpoint) = &config.otlp.traces {
            let (queue, task) = otlp::batches(endpoint, config.otlp.batch, shared)?;
            self.traces = Some(queue);
            tasks.push(runtime.spawn(task));
        }
        if let Some(endpoint) = &config.otlp.logs {
            let (queue, task) = otlp::batches(endpoint, config.otlp.log_batch, shared)?;
            self.logs = Some(queue);
            tasks.push(runtime.spawn(task));
        }
        let (latest, reader) = watch::channel(Arc::new(Snapshot::default()));
        if let Some(endpoint) = &config.otlp.metrics {
            let task = otlp::metrics(endpoint, config.otlp.metric, reader.clone(), shared)?;
            tasks.push(runtime.spawn(task));
        }
        if let Some(address) = config.prometheus {
            let listener = prometheus::bind(address)?;
            self.prometheus = listener.local_addr().ok();
            tasks.push(runtime.spawn(prometheus::serve(
                listener,
                reader,
                self.health.clone(),
                shared.stop.clone(),
            )));
        }
        drop(context);
        self.latest = Some(latest);
        self.exporters = Some(network.run(tasks)?);
        Ok(())
    }

    /// A server, new or known better: what is sent of it from now on carries these resource attributes.
    pub fn server(&self, server: ServerId, attributes: &[(String, String)]) {
        self.resources().insert(server, attributes);
    }

    /// A server is gone. To be called after its last trace.
    pub fn forget(&self, server: ServerId) {
        self.resources().remove(server);
    }

    /// A request is over.
    pub fn trace(&self, mut trace: Trace) {
        let logs = std::mem::take(&mut trace.logs);
        let resource = self.resources().of(Some(trace.server));
        if self.sampler.takes(&trace) {
            logs.into_iter().for_each(|log| self.log(log));
        }
        let trace = Arc::new(trace);
        for writer in &self.writers {
            writer.put(Item::Trace(resource.clone(), trace.clone()));
        }
        if let Some(queue) = self.traces.as_ref().filter(|_| self.sampler.takes(&trace)) {
            self.offer(queue, &resource, &trace);
        }
    }

    /// A line of a log.
    pub fn log(&self, log: Log) {
        let resource = self.resources().of(Some(log.server));
        let log = Arc::new(log);
        for writer in &self.writers {
            writer.put(Item::Log(resource.clone(), log.clone()));
        }
        if let Some(queue) = &self.logs {
            self.offer(queue, &resource, &log);
        }
    }

    fn offer<T: Batched>(&self, queue: &Queue<T>, resource: &Arc<Resource>, one: &Arc<T>) {
        while let Err(Full) = queue.offer(resource, one) {
            match self.overflow {
                Overflow::Drop => return self.counts.queue_full(count(one.weight())),
                // The exporter works on a thread of its own, and gives up on what it cannot deliver.
                Overflow::Wait => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// A reading of all metrics, the agent's own among them.
    pub fn metrics(&self, points: Vec<Point>) {
        self.health.beat(std::time::Instant::now());
        let snapshot = Arc::new(self.resources().snapshot(points));
        for writer in &self.writers {
            writer.put(Item::Metrics(snapshot.clone()));
        }
        if let Some(latest) = &self.latest {
            latest.send_replace(snapshot);
        }
    }

    /// What was lost on the way out so far, in spans and points.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.counts.losses()
    }

    /// How many spans and points were written or sent so far, all outputs together.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.counts.total_delivered()
    }

    /// Whether somebody closed what the results were written to (`| head`): nobody reads on, so there is no
    /// reason to go on.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.writers.iter().any(Writer::closed)
    }

    /// Where Prometheus finds the metrics.
    #[must_use]
    pub fn prometheus(&self) -> Option<SocketAddr> {
        self.prometheus
    }

    /// Writes and sends what is left, for at most this long, and ends. What could not be delivered by then is
    /// counted in the losses it returns.
    pub async fn shutdown(self, most: Duration) -> Losses {
        let deadline = Instant::now() + most;
        // A receiver that gives up at the deadline needs a moment to say so.
        let grace = deadline + Duration::from_millis(200);
        let Self { writers, traces, logs, latest, counts, stop, exporters, .. } = self;
        let _ = stop.send(Some(deadline));
        drop((traces, logs, latest));
        let ends = writers.into_iter().map(Writer::end).chain(exporters).collect::<Vec<_>>();
        for end in ends {
            // Late or gone: either way there is nothing to wait for.
            let _ = timeout_at(grace, end).await;
        }
        counts.losses()
    }

    /// The same, for a caller without a runtime.
    ///
    /// # Errors
    /// When no runtime can be made.
    pub fn shutdown_blocking(self, most: Duration) -> Result<Losses> {
        let runtime =
            Builder::new_current_thread().enable_time().build().context("cannot end the outputs")?;
        Ok(runtime.block_on(self.shutdown(most)))
    }

    fn resources(&self) -> MutexGuard<'_, Resources> {
        // A panic in between leaves the table whole: each change is one step.
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn writers(config: &Config, counts: &Arc<Counts>) -> Result<Vec<Writer>> {
    let mut writers = Vec::new();
    if let Some(look) = config.terminal.clone() {
        let terminal = Terminal::stdout(look);
        writers.push(Writer::start("the terminal", terminal, counts.clone(), config.overflow)?);
    }
    if let Some(path) = &config.file {
        let interval = Nanos(u64::try_from(config.period.interval.as_nanos()).unwrap_or(u64::MAX));
        let file = File::new(file::open(path)?, config.sampler, interval);
        writers.push(Writer::start("the OTLP file", file, counts.clone(), config.overflow)?);
    }
    Ok(writers)
}

/// The runtime of all that speak to the network. It may be dropped anywhere, in another runtime too.
struct Network {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Network {
    fn new() -> Result<Self> {
        let runtime =
            Builder::new_current_thread().enable_all().build().context("cannot start the exporters")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs the tasks to their ends on a thread; what it returns becomes ready then.
    fn run(self, tasks: Vec<JoinHandle<()>>) -> Result<oneshot::Receiver<()>> {
        let (over, done) = oneshot::channel();
        let body = move || {
            let all = async {
                for task in tasks {
                    // A task that panicked is over too.
                    let _ = task.await;
                }
            };
            if let Some(runtime) = &self.runtime {
                runtime.block_on(all);
            }
            drop(self);
            // The front may have stopped waiting.
            let _ = over.send(());
        };
        thread::Builder::new()
            .name("exporters".to_owned())
            .spawn(body)
            .context("cannot start the exporters' thread")?;
        Ok(done)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
