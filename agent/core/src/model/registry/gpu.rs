//! Metrics of the machine's GPUs. Names, units and dimensions are those of OpenTelemetry's semantic conventions for
//! hardware (1.38) where those have one, our own elsewhere.

use super::def::dimension;
use super::metric::metrics;
use super::names::dim;
use super::{DimensionGroup, MetricDef, MetricKind};

metrics! {
    UTILIZATION = "hw.gpu.utilization", Gauge, "1", [], "share of the last sample period (up to a second) in which the GPU worked, by hw.gpu.task";
    MEMORY_LIMIT = "hw.gpu.memory.limit", UpDown, "By", [], "its memory";
    MEMORY_USAGE = "hw.gpu.memory.usage", UpDown, "By", [], "memory in use, the driver's own part too";
    MEMORY_UTILIZATION = "hw.gpu.memory.utilization", Gauge, "1", [], "share of its memory in use";
    IO = "hw.gpu.io", Counter, "By", [], "bytes received and transmitted, by interconnect (nvlink: all links together)", when "it has NVLink";
    ENERGY = "hw.energy", Counter, "J", [], "energy used since the driver was loaded";
    POWER = "hw.power", Gauge, "W", [], "power drawn";
    TEMPERATURE = "hw.temperature", Gauge, "Cel", [], "temperature of its die";
    ERRORS = "hw.errors", Counter, "{error}", [], "errors of its memory since the driver was loaded (corrected, uncorrected), and what the driver reported since the agent is there (xid_79: fallen off the bus)";
    STATUS = "hw.status", UpDown, "1", [], "1 for its state, 0 for the others: ok, degraded (slowed down by heat or by too little power), failed (fallen off the bus)";
    MEMORY_FREE = "enginetap_gpu_memory_free", Gauge, "By", [], "memory not in use";
    MEMORY_BUSY = "enginetap_gpu_memory_busy", Gauge, "1", [], "share of the last sample period in which its memory was read or written";
    POWER_LIMIT = "enginetap_gpu_power_limit", Gauge, "W", [], "most power it may draw";
    CLOCK = "enginetap_gpu_clock", Gauge, "Hz", [], "its clocks, by clock";
    THROTTLED = "enginetap_gpu_throttled", Gauge, "1", [], "1 while a reason for low clocks holds, by reason, as nvmlClocksEventReasons names them";
    PCIE_THROUGHPUT = "enginetap_gpu_pcie_throughput", Gauge, "By/s", [], "bytes a second over PCI Express, in 20 ms before the reading";
    PROCESS_MEMORY = "enginetap_gpu_process_memory", Gauge, "By", [], "GPU memory that a process of the server holds";
    PROCESS_UTILIZATION = "enginetap_gpu_process_utilization", Gauge, "1", [], "share of the time in which kernels of a process of the server ran, in its last sample";
    USED = "enginetap_gpu_used", Gauge, "1", [], "1 for each GPU of the server: its processes are on it (found_by process), or, where the driver shows none of them, their CUDA_VISIBLE_DEVICES names it (found_by environment)";
    NVML_UP = "enginetap_nvml_up", Gauge, "1", [], "1 while NVML answers, 0 when it was lost; no point where there never was one";
}

/// Dimensions.
pub static DIMENSIONS: &[DimensionGroup] = &[
    DimensionGroup {
        on: "metrics of GPUs",
        dimensions: &[
            dimension(dim::HW_ID, "UUID of the GPU, or of the part of one (MIG)"),
            dimension(dim::HW_TYPE, "gpu"),
            dimension(dim::HW_NAME, "its number in NVML's order; of a part, its number in its GPU"),
            dimension(dim::HW_MODEL, "its model"),
            dimension(dim::HW_VENDOR, "NVIDIA"),
            dimension(dim::HW_DRIVER_VERSION, "version of the driver"),
            dimension(dim::HW_PARENT, "of a part: UUID of its GPU"),
            dimension(dim::HW_GPU_TASK, "general, encoder or decoder"),
            dimension(dim::HW_STATE, "ok, degraded or failed"),
            dimension(dim::HW_SENSOR_LOCATION, "die"),
            dimension(dim::ERROR_TYPE, "corrected, uncorrected, or xid_ and the number of NVIDIA's driver"),
            dimension(dim::IO_DIRECTION, "receive or transmit, as the GPU sees it"),
            dimension(dim::INTERCONNECT, "nvlink"),
            dimension(dim::CLOCK, "graphics, sm, memory or video"),
            dimension(dim::REASON, "of enginetap_gpu_throttled: the reason"),
        ],
    },
    DimensionGroup {
        on: "enginetap_gpu_process_memory, enginetap_gpu_process_utilization, enginetap_gpu_used",
        dimensions: &[
            dimension(dim::HW_ID, "UUID of the GPU, or of the part of one (MIG)"),
            dimension(dim::PROCESS_PID, "the process, by its id on this machine"),
            dimension(dim::FOUND_BY, "process or environment"),
        ],
    },
];
