//! A live session: the kernel programs in front of the pipeline.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use enginetap_common::loss::Loss as KernelLoss;
use enginetap_common::watch::Verdict;
use enginetap_core::capture::fact::{Fact, Socket};
use enginetap_core::ids::{ConnId, ServerId};
use enginetap_core::time::{Nanos, WallTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::clock;
use super::feed::Feed;
use super::follow::Follow;
use super::gc::Collections;
use super::haste::Haste;
use super::marks::Marks;
use super::objects::{ObjectCost, Objects, Report};
use super::own::{Cpu, Figures, Own, resident};
use super::shared::SharedStates;
use super::steer::next;
use super::tls::Libraries;
use super::v0::MetricFiles;
use crate::config::control::Asked;
use crate::config::steering::Steering;
use crate::discover::adopt::Adoption;
use crate::gpu::{Gpus, Owners, Source};
use crate::probe::{self, Probe, RunTime};
use crate::waits;

/// How often both clocks are read, against slews of the wall clock.
const CLOCKS: Duration = Duration::from_secs(10);
/// How often time passes for the pipeline where no record says so; records tell it as often.
const TICKS: Duration = Duration::from_millis(250);
/// How often what schedulers publish in shared memory is read. They write it every few steps.
const STATES: Duration = Duration::from_millis(500);
/// How often the metrics are handed to the sinks, which have periods of their own.
const METRICS: Duration = Duration::from_secs(1);

/// How long an attach waits for engines' objects to be found.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a session is to do.
pub struct Plan {
    /// Which servers.
    pub follow: Follow,
    /// The kernel side.
    pub kernel: probe::Options,
    /// How long; `None`: until a signal.
    pub duration: Option<Duration>,
    /// Stop when no server is left.
    pub until_exit: bool,
    /// The settings.
    pub steering: Steering,
    /// Orders that change them.
    pub orders: Option<mpsc::Receiver<Asked>>,
    /// Where GPUs are read.
    pub gpus: Source,
    /// Whether garbage collections are timed.
    pub gc: bool,
}

/// A live session.
pub struct Live {
    pub(super) probe: Probe,
    pub(super) follow: Follow,
    pub(super) feed: Feed,
    since: WallTime,
    duration: Option<Duration>,
    until_exit: bool,
    pub(super) steering: Steering,
    orders: Option<mpsc::Receiver<Asked>>,
    figures: Figures,
    states: SharedStates,
    metric_files: MetricFiles,
    pub(super) objects: Objects,
    /// What reading them cost.
    cost: ObjectCost,
    /// Connections the pipeline was told of.
    told: BTreeSet<ConnId>,
    libraries: Libraries,
    marks: Marks,
    gpus: Gpus,
    owners: Owners,
    waits: waits::Watch,
    /// When the attach began.
    begun: Instant,
    collections: Collections,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Signal,
    Duration,
    NoServer,
    Output,
}

impl Live {
    /// Loads the kernel programs and attaches to the servers.
    ///
    /// # Errors
    /// When there is no server, or the kernel programs cannot be loaded.
    pub fn attach(plan: Plan, feed: Feed) -> Result<Self> {
        let begun = Instant::now();
        let Plan { follow, kernel, duration, until_exit, steering, orders, gpus, gc } = plan;
        let objects = Objects::start(follow.proc(), steering.steps()).context("cannot start a thread")?;
        let gpus = Gpus::start(gpus).context("cannot start a thread")?;
        let haste = Haste::begin();
        let probe = Probe::load(&kernel)?;
        let since = clock().wall;
        let mut live = Self {
            probe,
            follow,
            feed,
            since,
            duration,
            until_exit,
            steering,
            orders,
            figures: Figures::default(),
            states: SharedStates::default(),
            metric_files: MetricFiles::default(),
            objects,
            cost: ObjectCost::default(),
            told: BTreeSet::new(),
            libraries: Libraries::default(),
            marks: Marks::default(),
            gpus,
            owners: Owners::default(),
            waits: waits::Watch::default(),
            begun,
            collections: Collections::new(gc),
        };
        live.feed.fact(Fact::Clock(clock()));
        live.look()?;
        drop(haste);
        live.figures.attach_ms = begun.elapsed().as_secs_f64() * 1e3;
        live.figures.attach_cpu_ns = Cpu::total().0;
        Ok(live)
    }

    /// Goes on once the engines' objects are found, or a second is over: what runs before is seen without them.
    ///
    /// # Errors
    /// When the kernel side breaks.
    pub async fn ready(&mut self) -> Result<()> {
        if self.objects.is_idle() {
            return Ok(());
        }
        let mut settled = self.objects.settled();
        let mut end = Box::pin(tokio::time::sleep(PATIENCE));
        loop {
            tokio::select! {
                biased;
                told = &mut settled => {
                    self.figures.objects_ms = told.is_ok().then(|| self.begun.elapsed().as_secs_f64() * 1e3);
                    return Ok(());
                }
                () = &mut end => {
                    log::warn!(
                        "not all engines' objects are found yet: of requests that run now, some of what only those \
                         tell will be missing; they are looked for further"
                    );
                    return Ok(());
                }
                report = self.objects.next() => self.take(report),
                // Nothing is to be lost meanwhile.
                ready = self.probe.ready() => { ready?; self.drain(); self.judge()?; }
            }
        }
    }

    /// Runs until a signal, the end of its time, or of its servers; then detaches and flushes.
    ///
    /// # Errors
    /// When the kernel side breaks, or an output cannot be written.
    pub async fn run(mut self) -> Result<Figures> {
        let reason = self.watch().await;
        let haste = Haste::begin();
        let begun = Instant::now();
        self.figures.watch_cpu_ns = Cpu::total().0.saturating_sub(self.figures.attach_cpu_ns);
        // What was counted in the last half second.
        self.states();
        let Self { mut probe, mut feed, mut figures, since, follow, steering, objects, mut cost, .. } = self;
        probe.flush(|record| feed.record(record));
        for report in objects.end().await {
            cost.add(&report);
            let Report { facts, losses, cost: _ } = report;
            feed.refused(&losses);
            facts.into_iter().for_each(|fact| feed.fact(fact));
        }
        let losses = probe.losses()?;
        let kernel = kernel_time(&probe);
        drop(probe);
        drop(haste);
        figures.detach_ms = begun.elapsed().as_secs_f64() * 1e3;
        feed.finish();
        let stats = feed.pipeline().stats();
        let own = Own {
            since,
            at: clock().wall,
            stats,
            losses: &feed.losses(),
            kernel_losses: &losses,
            kernel: Some(kernel.0),
            servers: follow.count(),
            config_invalid: steering.has_file().then(|| steering.is_invalid()),
        };
        feed.metrics(own.points());
        figures.records = stats.records;
        figures.bytes = stats.bytes;
        figures.spans = stats.spans;
        figures.lost = losses.iter().map(|(_, count)| count).sum();
        figures.kernel_ns = kernel.0.0;
        figures.kernel_calls = kernel.1;
        figures.cpu_ns = Cpu::total().0;
        figures.object_readings = cost.readings;
        figures.object_ns = cost.cpu.0;
        figures.object_refused = cost.refused;
        figures.rss_bytes = resident().1;
        figures.servers = follow.count();
        log::info!("detached: {reason:?}");
        if let Some(sinks) = feed.close(figures.lost)? {
            sinks.shutdown(Duration::from_secs(5)).await;
        }
        reason?;
        Ok(figures)
    }

    async fn watch(&mut self) -> Result<Reason> {
        let mut interrupt = on(SignalKind::interrupt())?;
        let mut terminate = on(SignalKind::terminate())?;
        let mut hangup = on(SignalKind::hangup())?;
        let (mut clocks, mut metrics, mut ticks) = (every(CLOCKS), every(METRICS), every(TICKS));
        let (mut states, mut waits) = (every(STATES), every(waits::PERIOD));
        let end = self.duration.map(|duration| tokio::time::Instant::now() + duration);
        loop {
            tokio::select! {
                biased;
                _ = interrupt.recv() => return Ok(Reason::Signal),
                _ = terminate.recv() => return Ok(Reason::Signal),
                _ = hangup.recv() => match self.steering.has_file() {
                    true => self.reload(),
                    false => return Ok(Reason::Signal),
                },
                () = until(end) => return Ok(Reason::Duration),
                Some(asked) = next(&mut self.orders) => self.obey(asked),
                _ = clocks.tick() => {
                    self.feed.fact(Fact::Clock(clock()));
                    self.reconcile()?;
                }
                _ = metrics.tick() => self.metrics()?,
                _ = states.tick() => self.states(),
                _ = waits.tick() => self.waits(),
                report = self.objects.next() => self.take(report),
                reading = self.gpus.next() => self.feed.fact(Fact::Gpus(self.owners.complete(reading))),
                _ = ticks.tick() => {
                    self.feed.tick(clock().mono);
                    self.expire();
                }
                // Last: records that never cease must not keep the others from their turn.
                ready = self.probe.ready() => { ready?; self.drain(); }
            }
            let now = clock().mono;
            if self.follow.due(now) {
                self.look()?;
            }
            self.judge()?;
            self.libraries.attach(self.follow.proc(), &mut self.probe, now);
            if self.feed.over() {
                return Ok(Reason::Output);
            }
            if self.until_exit && self.follow.count() == 0 {
                return Ok(Reason::NoServer);
            }
        }
    }

    /// Takes what the rings hold.
    fn drain(&mut self) {
        let Self { probe, feed, follow, marks, objects, .. } = self;
        probe.drain(|record| {
            follow.notice(record);
            marks.notice(record);
            objects.notice(record);
            feed.record(record);
        });
        if objects.stepped() {
            probe.hurry();
        }
    }

    /// Tells the kernel what is wanted of connections whose protocol is known.
    fn judge(&mut self) -> Result<()> {
        for judgement in self.feed.deliver() {
            log::debug!("{judgement:?}");
            self.probe.set_verdict(judgement.conn, judgement.verdict)?;
        }
        for pid in self.feed.encrypted() {
            self.libraries.want(pid, clock().mono);
        }
        Ok(())
    }

    /// Looks for processes that came and went, and attaches to those that matter.
    fn look(&mut self) -> Result<()> {
        let Self {
            probe, feed, follow, libraries, marks, steering, objects, owners, waits, collections, ..
        } = self;
        let changes = follow.look(clock().mono, &|engine, scope| steering.wants(engine, scope))?;
        let new = !changes.scopes.is_empty();
        for (server, scope) in changes.scopes {
            feed.set_server(server, steering.join(server, scope));
        }
        for fact in changes.facts {
            feed.fact(fact);
        }
        if new {
            // A server's own environment may want more than the others'.
            objects.want_steps(steering.steps());
            let texts = follow.want_texts(steering.texts());
            texts.into_iter().for_each(|(server, vocabulary)| feed.vocabulary(server, vocabulary));
        }
        for server in changes.ended {
            steering.leave(server);
        }
        for (server, vocabulary) in changes.vocabularies {
            feed.vocabulary(server, vocabulary);
        }
        self.states.follow(follow.proc(), &follow.schedulers());
        self.metric_files.follow(follow.proc(), follow.v0_engines().keys());
        objects.follow(follow.schedulers(), follow.frontends(), &follow.v0_engines());
        let members = follow.members();
        owners.follow(follow.proc(), members.iter().copied());
        let working = follow.working();
        waits.follow(follow.proc(), working.iter().copied(), clock().mono);
        collections.follow(&working);
        for pid in changes.gone {
            libraries.forget(pid);
            marks.forget(pid);
            probe.detach_gc(pid)?;
            probe.unwatch(pid)?;
        }
        for pid in changes.new {
            probe.watch(pid).with_context(|| format!("watching process {}", pid.0))?;
        }
        let now = clock().mono;
        for pid in changes.tls {
            libraries.want(pid, now);
        }
        libraries.attach(follow.proc(), probe, now);
        for pid in follow.schedulers() {
            marks.want(pid, now);
        }
        marks.attend(follow.proc(), probe, now);
        if new {
            self.lines()?;
        }
        // Twice: sockets made between watching and listing are seen by the second look.
        self.adopt(&changes.servers)?;
        self.adopt(&changes.servers)
    }

    /// Makes the sockets of these servers known to the kernel programs. Some are known already, since they moved bytes:
    /// then the pipeline is told what the kernel's own id stands for.
    pub(super) fn adopt(&mut self, servers: &BTreeSet<ServerId>) -> Result<()> {
        let Self { probe, follow, feed, told, .. } = self;
        let mut known = BTreeMap::new();
        let mut alive = BTreeSet::new();
        for Adoption { mut conn, verdict } in follow.sockets(servers) {
            let entered = match conn.socket {
                Socket::Log => probe.keep(conn.pid, conn.fd, conn.conn)?,
                Socket::Tcp { .. } | Socket::Unix { .. } | Socket::Other => {
                    probe.adopt(conn.pid, conn.fd, conn.conn)?
                }
            };
            if !entered {
                let of_process = match known.entry(conn.pid) {
                    Entry::Occupied(found) => found.into_mut(),
                    Entry::Vacant(place) => place.insert(BTreeMap::from_iter(probe.descriptors(conn.pid)?)),
                };
                let Some(id) = of_process.get(&conn.fd) else { continue };
                conn.conn = *id;
            }
            if verdict == Verdict::Ignore {
                probe.set_verdict(conn.conn, verdict)?;
            }
            alive.insert(conn.conn);
            if told.insert(conn.conn) {
                feed.fact(Fact::Conn(conn));
            }
        }
        if *servers == follow.all() {
            told.retain(|conn| alive.contains(conn));
        }
        Ok(())
    }

    /// Takes what was read of engines' objects.
    fn take(&mut self, report: Report) {
        self.cost.add(&report);
        let Report { facts, losses, cost: _ } = report;
        self.feed.refused(&losses);
        for fact in facts {
            self.feed.fact(fact);
        }
    }

    /// Reads what schedulers publish in shared memory, and the metrics that V0's engines keep in files.
    fn states(&mut self) {
        let now = clock().mono;
        if self.metric_files.lacks() {
            self.metric_files.follow(self.follow.proc(), self.follow.v0_engines().keys());
        }
        for fact in self.states.read(now).into_iter().chain(self.metric_files.read(now)) {
            self.feed.fact(fact);
        }
    }

    /// Reads what threads waited for, and has the next process's garbage collections timed.
    fn waits(&mut self) {
        self.collections.attend(self.follow.proc(), &mut self.probe);
        for fact in self.waits.read(self.follow.proc(), clock().mono) {
            self.feed.fact(fact);
        }
    }

    /// Finds what no call showed: descriptors that went in an exec or a `close_range`, sockets that another process
    /// handed over.
    fn reconcile(&mut self) -> Result<()> {
        for pid in self.follow.watched() {
            self.probe.reconcile(pid)?;
        }
        self.states.follow(self.follow.proc(), &self.follow.schedulers());
        self.metric_files.follow(self.follow.proc(), self.follow.v0_engines().keys());
        self.adopt(&self.follow.all())
    }

    fn metrics(&mut self) -> Result<()> {
        let losses: Vec<(KernelLoss, u64)> = self.probe.losses()?.into();
        let own = Own {
            since: self.since,
            at: clock().wall,
            stats: self.feed.pipeline().stats(),
            losses: &self.feed.losses(),
            kernel_losses: &losses,
            kernel: self.probe.measures().then(|| kernel_time(&self.probe).0),
            servers: self.follow.count(),
            config_invalid: self.steering.has_file().then(|| self.steering.is_invalid()),
        };
        self.feed.metrics(own.points());
        Ok(())
    }
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.follow.count();
        let plural = if servers == 1 { "" } else { "s" };
        write!(f, "attached to {servers} server{plural} in {:.0} ms", self.figures.attach_ms)?;
        self.figures.objects_ms.map_or(Ok(()), |ms| write!(f, ", objects found after {ms:.0} ms"))
    }
}

/// Run time and runs of the kernel programs.
fn kernel_time(probe: &Probe) -> (Nanos, u64) {
    let programs = probe.run_time().unwrap_or_default();
    let sum = |of: fn(&RunTime) -> u64| programs.iter().map(of).fold(0, u64::saturating_add);
    (Nanos(sum(|program| program.time.0)), sum(|program| program.runs))
}

fn on(kind: SignalKind) -> Result<Signal> {
    signal(kind).context("cannot listen for signals")
}

fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval.reset();
    interval
}

async fn until(end: Option<tokio::time::Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}
