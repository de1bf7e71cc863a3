//! Readings as metrics. Names and units are those of OpenTelemetry's hardware conventions where those have one; a
//! machine's GPUs are the agent's points, what a process does with them its server's.

use super::board::{Board, Times};
use super::reading::{Device, GpuId, Percent, Process, Reading, Traffic};
use crate::ids::{Pid, ServerId};
use crate::model::metric::{Number, Point};
use crate::model::registry::{MetricDef, MetricKind, dim, gpu};

/// `hw.type` of all of them.
const TYPE: &str = "gpu";
/// `hw.vendor` of all of them.
const VENDOR: &str = "NVIDIA";

/// A dimension.
type Dim = (&'static str, String);

/// Points of one device.
struct Points<'a> {
    times: Times,
    dims: &'a [Dim],
    server: Option<ServerId>,
    points: &'a mut Vec<Point>,
}

impl Points<'_> {
    fn push(&mut self, metric: &'static MetricDef, more: &[(&'static str, &str)], value: Number) {
        let start = match metric.kind {
            MetricKind::Counter => self.times.since,
            MetricKind::Gauge | MetricKind::UpDown => self.times.at,
        };
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let dimensions = self.dims.iter().cloned().chain(more).collect();
        self.points.push(Point { server: self.server, metric, dimensions, value, start, at: self.times.at });
    }

    fn share(&mut self, metric: &'static MetricDef, more: &[(&'static str, &str)], value: Option<Percent>) {
        if let Some(Percent(percent)) = value {
            self.push(metric, more, Number::Float(f64::from(percent) / 100.0));
        }
    }

    fn int(&mut self, metric: &'static MetricDef, more: &[(&'static str, &str)], value: Option<u64>) {
        if let Some(value) = value {
            self.push(metric, more, Number::Int(value));
        }
    }

    fn float(&mut self, metric: &'static MetricDef, value: Option<f64>) {
        if let Some(value) = value {
            self.push(metric, &[], Number::Float(value));
        }
    }
}

/// All points.
pub(super) fn of(board: &Board, times: Times, owner: &dyn Fn(Pid) -> Option<ServerId>) -> Vec<Point> {
    let mut points = Vec::new();
    let reading = board.last(times.now);
    let up = reading.is_some_and(|reading| reading.lost.is_none());
    Points { times, dims: &[], server: None, points: &mut points }.int(
        &gpu::NVML_UP,
        &[],
        Some(u64::from(up)),
    );
    let Some(reading) = reading else { return points };
    for device in &reading.devices {
        let dims = dims(device, reading.driver.as_deref());
        let mut of_device = Points { times, dims: &dims, server: None, points: &mut points };
        status(&mut of_device, device);
        errors(&mut of_device, device, board);
        use_of(&mut of_device, device);
        power(&mut of_device, device);
        traffic(&mut of_device, device);
    }
    processes(&mut points, reading, times, owner);
    points
}

fn dims(device: &Device, driver: Option<&str>) -> Vec<Dim> {
    let mut dims = vec![
        (dim::HW_ID, device.id.0.clone()),
        (dim::HW_TYPE, TYPE.to_owned()),
        (dim::HW_NAME, device.index.to_string()),
        (dim::HW_MODEL, device.model.clone()),
        (dim::HW_VENDOR, VENDOR.to_owned()),
    ];
    dims.extend(driver.map(|version| (dim::HW_DRIVER_VERSION, version.to_owned())));
    dims.extend(device.parent.as_ref().map(|parent| (dim::HW_PARENT, parent.0.clone())));
    dims
}

/// `failed`: fallen off the bus; `degraded`: slowed down by heat or by too little power.
fn status(points: &mut Points<'_>, device: &Device) {
    let slowed = device.throttles.is_some_and(|throttles| !throttles.harmful().is_empty());
    let state = match (device.gone, slowed) {
        (true, _) => "failed",
        (false, true) => "degraded",
        (false, false) => "ok",
    };
    for each in ["ok", "degraded", "failed"] {
        points.int(&gpu::STATUS, &[(dim::HW_STATE, each)], Some(u64::from(each == state)));
    }
}

fn errors(points: &mut Points<'_>, device: &Device, board: &Board) {
    points.int(&gpu::ERRORS, &[(dim::ERROR_TYPE, "corrected")], device.ecc_corrected);
    points.int(&gpu::ERRORS, &[(dim::ERROR_TYPE, "uncorrected")], device.ecc_uncorrected);
    for (xid, count) in board.xids(&device.id) {
        points.int(&gpu::ERRORS, &[(dim::ERROR_TYPE, &format!("xid_{}", xid.0))], Some(count));
    }
}

fn use_of(points: &mut Points<'_>, device: &Device) {
    let tasks =
        [("general", device.busy), ("encoder", device.encoder_busy), ("decoder", device.decoder_busy)];
    for (task, share) in tasks {
        points.share(&gpu::UTILIZATION, &[(dim::HW_GPU_TASK, task)], share);
    }
    points.share(&gpu::MEMORY_BUSY, &[], device.memory_busy);
    if let Some(memory) = device.memory {
        points.int(&gpu::MEMORY_LIMIT, &[], Some(memory.total.0));
        points.int(&gpu::MEMORY_USAGE, &[], Some(memory.used.0));
        points.int(&gpu::MEMORY_FREE, &[], Some(memory.free.0));
        #[allow(clippy::cast_precision_loss, reason = "a share of terabytes at most")]
        let share = (memory.total.0 > 0).then(|| memory.used.0 as f64 / memory.total.0 as f64);
        points.float(&gpu::MEMORY_UTILIZATION, share);
    }
    for (domain, clock) in &device.clocks {
        points.int(&gpu::CLOCK, &[(dim::CLOCK, domain.name())], Some(u64::from(clock.0) * 1_000_000));
    }
}

fn power(points: &mut Points<'_>, device: &Device) {
    let watts = |milli: super::reading::Milliwatts| f64::from(milli.0) / 1e3;
    points.float(&gpu::POWER, device.power.map(watts));
    points.float(&gpu::POWER_LIMIT, device.power_limit.map(watts));
    #[allow(clippy::cast_precision_loss, reason = "2^53 mJ are two million kWh")]
    points.float(&gpu::ENERGY, device.energy.map(|milli| milli.0 as f64 / 1e3));
    points.int(
        &gpu::TEMPERATURE,
        &[(dim::HW_SENSOR_LOCATION, "die")],
        device.temperature.map(|celsius| u64::from(celsius.0)),
    );
    for (reason, holds) in device.throttles.into_iter().flat_map(super::reading::Throttles::each) {
        points.int(&gpu::THROTTLED, &[(dim::REASON, reason)], Some(u64::from(holds)));
    }
}

fn traffic(points: &mut Points<'_>, device: &Device) {
    let directions = |Traffic { received, sent }: Traffic| [("receive", received), ("transmit", sent)];
    for (direction, bytes) in device.pcie.into_iter().flat_map(directions) {
        points.int(&gpu::PCIE_THROUGHPUT, &[(dim::IO_DIRECTION, direction)], Some(bytes.0));
    }
    for (direction, bytes) in device.nvlink.into_iter().flat_map(directions) {
        let more = [(dim::IO_DIRECTION, direction), (dim::INTERCONNECT, "nvlink")];
        points.int(&gpu::IO, &more, Some(bytes.0));
    }
}

/// What servers' processes use, and which GPUs are whose: those that a process of the server is at work on, or else those
/// that its environment leaves it.
fn processes(
    points: &mut Vec<Point>,
    reading: &Reading,
    times: Times,
    owner: &dyn Fn(Pid) -> Option<ServerId>,
) {
    let mut pairs: Vec<(ServerId, &GpuId, &str)> = Vec::new();
    for device in &reading.devices {
        for Process { pid, memory, busy } in &device.processes {
            let Some(server) = owner(*pid) else { continue };
            let dims = [(dim::HW_ID, device.id.0.clone()), (dim::PROCESS_PID, pid.0.to_string())];
            let mut of_process = Points { times, dims: &dims, server: Some(server), points };
            of_process.int(&gpu::PROCESS_MEMORY, &[], memory.map(|bytes| bytes.0));
            of_process.share(&gpu::PROCESS_UTILIZATION, &[], *busy);
            pairs.push((server, &device.id, "process"));
        }
    }
    for (pid, ids) in &reading.visible {
        let Some(server) = owner(*pid) else { continue };
        if !pairs.iter().any(|(other, _, by)| *other == server && *by == "process") {
            pairs.extend(ids.iter().map(|id| (server, id, "environment")));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    for (server, id, by) in pairs {
        let dims = [(dim::HW_ID, id.0.clone()), (dim::FOUND_BY, by.to_owned())];
        Points { times, dims: &dims, server: Some(server), points }.int(&gpu::USED, &[], Some(1));
    }
}
