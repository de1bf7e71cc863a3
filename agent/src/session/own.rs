//! What the agent itself costs and loses: its own metrics, and the figures it writes at its end.

use enginetap_common::loss::Loss as KernelLoss;
use enginetap_core::loss::Losses;
use enginetap_core::model::metric::{Number, Point};
use enginetap_core::model::registry::{MetricDef, MetricKind, dim, own};
use enginetap_core::pipeline::Stats;
use enginetap_core::time::{Nanos, WallTime};
use serde::Serialize;

/// What a session did and cost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Milliseconds from the start until the first probe was live and the first server watched.
    pub attach_ms: f64,
    /// Milliseconds from the start until the engines' own objects were found, where some are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_ms: Option<f64>,
    /// Milliseconds from the decision to stop until nothing of ours was in the kernel any more.
    pub detach_ms: f64,
    /// Records read.
    pub records: u64,
    /// Payload bytes read.
    pub bytes: u64,
    /// Records lost in the kernel.
    pub lost: u64,
    /// Run time of the kernel programs.
    pub kernel_ns: u64,
    /// Runs of the kernel programs.
    pub kernel_calls: u64,
    /// CPU time of the agent, user and system, from its start to its end.
    pub cpu_ns: u64,
    /// The part of it before it was attached: loading the kernel programs, finding and reading the servers.
    pub attach_cpu_ns: u64,
    /// The part of it between attaching and leaving: what watching costs.
    pub watch_cpu_ns: u64,
    /// Readings of engines' objects.
    pub object_readings: u64,
    /// CPU time of those, user and system.
    pub object_ns: u64,
    /// Reads of engines' objects that were refused: they had changed.
    pub object_refused: u64,
    /// Greatest resident memory.
    pub rss_bytes: u64,
    /// Spans made.
    pub spans: u64,
    /// Servers watched at the end.
    pub servers: u64,
}

/// CPU time of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cpu {
    pub user: Nanos,
    pub system: Nanos,
}

impl Cpu {
    pub fn now() -> Self {
        let ticks = procfs::process::Process::myself().and_then(|me| me.stat());
        let of = |ticks: u64| Nanos(ticks.saturating_mul(1_000_000_000 / procfs::ticks_per_second().max(1)));
        ticks.map_or_else(|_| Self::default(), |stat| Self { user: of(stat.utime), system: of(stat.stime) })
    }

    /// User and system time together, to the nanosecond: the kernel tells the two apart by its ticks only.
    pub fn total() -> Nanos {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let spent = std::time::Duration::try_from(time).unwrap_or_default();
        Nanos(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Resident memory of this process: now, and at its greatest.
pub(super) fn resident() -> (u64, u64) {
    let status = procfs::process::Process::myself().and_then(|me| me.status());
    let bytes = |kib: Option<u64>| kib.unwrap_or(0).saturating_mul(1024);
    status.map_or((0, 0), |status| (bytes(status.vmrss), bytes(status.vmhwm)))
}

/// What the agent's own metrics are made of.
pub(super) struct Own<'a> {
    pub since: WallTime,
    pub at: WallTime,
    pub stats: Stats,
    pub losses: &'a Losses,
    pub kernel_losses: &'a [(KernelLoss, u64)],
    pub kernel: Option<Nanos>,
    pub servers: u64,
    /// Whether the configuration file cannot be used; `None` where there is none.
    pub config_invalid: Option<bool>,
}

impl Own<'_> {
    /// The agent's own metrics.
    pub fn points(&self) -> Vec<Point> {
        let cpu = Cpu::now();
        let mut points = vec![
            self.point(&own::RECORDS, &[], Number::Int(self.stats.records)),
            self.point(&own::SPANS, &[], Number::Int(self.stats.spans)),
            self.point(&own::CPU_SECONDS, &[(dim::MODE, "user")], Number::Float(cpu.user.seconds().0)),
            self.point(&own::CPU_SECONDS, &[(dim::MODE, "system")], Number::Float(cpu.system.seconds().0)),
            self.point(&own::RESIDENT_BYTES, &[], Number::Int(resident().0)),
            self.point(&own::SERVERS, &[], Number::Int(self.servers)),
        ];
        if let Some(kernel) = self.kernel {
            points.push(self.point(&own::KERNEL_SECONDS, &[], Number::Float(kernel.seconds().0)));
        }
        if let Some(invalid) = self.config_invalid {
            points.push(self.point(&own::CONFIG_INVALID, &[], Number::Int(u64::from(invalid))));
        }
        for (reason, count) in self.losses.iter() {
            points.push(self.loss(reason.name(), "agent", count));
        }
        for (reason, count) in self.kernel_losses {
            points.push(self.loss(reason.name(), "kernel", *count));
        }
        points
    }

    fn loss(&self, reason: &str, side: &str, count: u64) -> Point {
        self.point(&own::LOSSES, &[(dim::REASON, reason), (dim::SIDE, side)], Number::Int(count))
    }

    fn point(&self, metric: &'static MetricDef, dims: &[(&'static str, &str)], value: Number) -> Point {
        let start = match metric.kind {
            MetricKind::Counter => self.since,
            MetricKind::Gauge | MetricKind::UpDown => self.at,
        };
        let dimensions = dims.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Point { server: None, metric, dimensions, value, start, at: self.at }
    }
}
