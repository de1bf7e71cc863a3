//! Engines' own objects, read beside the records: on a thread of its own, so that the rings are never kept waiting.

mod pace;
mod target;

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use enginetap_core::capture::fact::Fact;
use enginetap_core::capture::record::{Body, Mark, Record};
use enginetap_core::ids::Pid;
use enginetap_core::loss::Losses;
use enginetap_core::time::{MonoTime, Nanos};
use tokio::sync::{mpsc, oneshot};

use super::clock;
use crate::discover::proc::Proc;
use target::{Target, What};

/// Reports that may wait: the session takes them between two rounds of the rings.
const REPORTS: usize = 256;
/// A process that moves bytes is told of no more often.
const WAKE: Nanos = Nanos::from_millis(20);
/// How long the thread sleeps at most.
const LONGEST: Duration = Duration::from_secs(5);

/// What a reading gave.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// What it says.
    pub facts: Vec<Fact>,
    /// Reads that were refused.
    pub losses: Losses,
    /// CPU time it took.
    pub cost: Nanos,
}

/// What readings cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectCost {
    /// Readings.
    pub readings: u64,
    /// Their CPU time.
    pub cpu: Nanos,
    /// Reads refused.
    pub refused: u64,
}

impl ObjectCost {
    /// Counts one reading.
    pub fn add(&mut self, report: &Report) {
        let Report { facts: _, losses, cost } = report;
        self.readings += 1;
        self.cpu = Nanos(self.cpu.0.saturating_add(cost.0));
        self.refused = losses.iter().fold(self.refused, |sum, (_, count)| sum.saturating_add(count));
    }
}

/// What the thread is told.
enum Order {
    /// The processes to read, in place of those before, and whether each step of theirs is wanted.
    Follow { wanted: Vec<(Pid, What)>, steps: bool },
    /// A process has work to do.
    Wake(Pid),
    /// A scheduler began a forward.
    Mark { pid: Pid, at: MonoTime },
    /// Say so when the objects of every process are found or given up.
    Settle(oneshot::Sender<()>),
}

/// The reading of engines' objects.
#[derive(Debug)]
pub(super) struct Objects {
    orders: Option<Sender<Order>>,
    reports: mpsc::Receiver<Report>,
    thread: Option<JoinHandle<()>>,
    /// Processes that are read, and when each was told of last.
    read: HashMap<Pid, MonoTime>,
    /// Processes whose calls are a sign of work of another one, which is read.
    wakes: HashMap<Pid, Pid>,
    steps: bool,
    stepped: bool,
}

impl Objects {
    /// Starts the thread. It sleeps until there is a process to read. `steps`: whether what changes with every step of a
    /// scheduler is wanted.
    ///
    /// # Errors
    /// When there can be no other thread.
    pub fn start(proc: &Proc, steps: bool) -> std::io::Result<Self> {
        let (orders, taken) = channel();
        let (sender, reports) = mpsc::channel(REPORTS);
        let proc = proc.clone();
        let thread = std::thread::Builder::new().name("enginetap-objs".to_owned());
        let thread = thread.spawn(move || Reader::new(proc).run(&taken, &sender))?;
        Ok(Self {
            orders: Some(orders),
            reports,
            thread: Some(thread),
            read: HashMap::new(),
            wakes: HashMap::new(),
            steps,
            stepped: false,
        })
    }

    /// Reads these processes from now on, and no others. `v0_engines`: each with the frontends that hand it its work.
    pub fn follow(
        &mut self,
        schedulers: Vec<Pid>,
        frontends: Vec<Pid>,
        v0_engines: &BTreeMap<Pid, Vec<Pid>>,
    ) {
        let wakes = v0_engines.iter().flat_map(|(engine, of)| of.iter().map(|frontend| (*frontend, *engine)));
        self.wakes = wakes.collect();
        let of = |pids: Vec<Pid>, what| pids.into_iter().map(move |pid| (pid, what));
        let wanted: Vec<(Pid, What)> = of(schedulers, What::Scheduler)
            .chain(of(frontends, What::Frontend))
            .chain(of(v0_engines.keys().copied().collect(), What::V0))
            .collect();
        let pids: Vec<Pid> = wanted.iter().map(|(pid, _)| *pid).collect();
        if self.read.len() == pids.len() && pids.iter().all(|pid| self.read.contains_key(pid)) {
            return;
        }
        self.read.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            self.read.entry(pid).or_insert(MonoTime(0));
        }
        self.tell(Order::Follow { wanted, steps: self.steps });
    }

    /// Whether what changes with every step of a scheduler is wanted from now on. The processes are taken up anew by the
    /// next [`Objects::follow`].
    pub fn want_steps(&mut self, steps: bool) {
        if self.steps != steps {
            self.steps = steps;
            self.read.clear();
            self.tell(Order::Follow { wanted: Vec::new(), steps });
        }
    }

    /// Takes note of what a record says: that a process has work, or that a step began.
    pub fn notice(&mut self, record: &[u8]) {
        if self.read.is_empty() {
            return;
        }
        let Ok(Record { time, pid, tid: _, body }) = Record::parse(record) else { return };
        let pid = self.wakes.get(&pid).copied().unwrap_or(pid);
        let Some(told) = self.read.get_mut(&pid) else { return };
        if let Body::Mark(Mark::Forward) = body {
            self.stepped = self.steps;
            self.tell(Order::Mark { pid, at: time });
        } else if time.since(*told) >= WAKE {
            *told = time;
            self.tell(Order::Wake(pid));
        }
    }

    /// Whether a step that is wanted was marked since this was asked last.
    pub fn stepped(&mut self) -> bool {
        std::mem::take(&mut self.stepped)
    }

    /// Whether there is nothing to read.
    pub fn is_idle(&self) -> bool {
        self.read.is_empty()
    }

    /// Comes when the objects of every process that is to be read are found, or cannot be.
    pub fn settled(&self) -> oneshot::Receiver<()> {
        let (settled, answer) = oneshot::channel();
        self.tell(Order::Settle(settled));
        answer
    }

    /// The next report. Never comes where nothing is read.
    pub async fn next(&mut self) -> Report {
        match self.reports.recv().await {
            Some(report) => report,
            None => std::future::pending().await,
        }
    }

    /// Ends the thread; what it had still to say.
    pub async fn end(mut self) -> Vec<Report> {
        self.orders = None;
        let mut reports = Vec::new();
        // The thread may wait for room.
        while let Some(report) = self.reports.recv().await {
            reports.push(report);
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the reading of engines' objects broke");
        }
        reports
    }

    fn tell(&self, order: Order) {
        // Where the thread has ended, it said why.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }
}

/// The thread.
struct Reader {
    proc: Proc,
    targets: Vec<Target>,
    /// Who asked to be told when all are found.
    asked: Vec<oneshot::Sender<()>>,
}

impl Reader {
    fn new(proc: Proc) -> Self {
        Self { proc, targets: Vec::new(), asked: Vec::new() }
    }

    fn run(mut self, orders: &Receiver<Order>, reports: &mpsc::Sender<Report>) {
        loop {
            match orders.recv_timeout(self.pause()) {
                Ok(order) => {
                    self.obey(order);
                    orders.try_iter().for_each(|order| self.obey(order));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = clock().mono;
            for target in self.targets.iter_mut().filter(|target| target.due(now)) {
                let report = target.read(&self.proc, now);
                if report.cost > Nanos(0) && reports.blocking_send(report).is_err() {
                    return;
                }
            }
            if !self.targets.iter().any(Target::sought) {
                // Who asked may have gone on without.
                self.asked.drain(..).for_each(|asked| asked.send(()).unwrap_or_default());
            }
        }
    }

    /// Until the next reading.
    fn pause(&self) -> Duration {
        let now = clock().mono;
        let next = self.targets.iter().filter_map(Target::next).min();
        next.map_or(LONGEST, |next| Duration::from_nanos(next.since(now).0)).min(LONGEST)
    }

    fn obey(&mut self, order: Order) {
        let now = clock().mono;
        match order {
            Order::Follow { wanted, steps } => {
                self.targets.retain(|target| wanted.contains(&target.identity()));
                for (pid, what) in wanted {
                    if !self.targets.iter().any(|target| target.identity() == (pid, what)) {
                        self.targets.push(Target::new(pid, what, steps, now));
                    }
                }
            }
            Order::Wake(pid) => {
                self.targets.iter_mut().filter(|target| target.is(pid)).for_each(|target| target.wake(now));
            }
            Order::Mark { pid, at } => {
                self.targets
                    .iter_mut()
                    .filter(|target| target.is(pid))
                    .for_each(|target| target.mark(at, now));
            }
            Order::Settle(asked) => self.asked.push(asked),
        }
    }
}
