//! One reading of all GPUs, as NVML (`nvml.h` of CUDA 12 and 13) tells it. What a GPU or its driver does not tell is
//! `None`, never 0.

use serde::{Deserialize, Serialize};

use crate::ids::Pid;
use crate::time::MonoTime;

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Percent, 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u32);

/// Thousandths of a watt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Milliwatts(pub u32);

/// Thousandths of a joule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millijoules(pub u64);

/// Degrees Celsius.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Celsius(pub u32);

/// Millions of cycles a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Megahertz(pub u32);

/// The number that NVIDIA's driver gives a kind of error (`Xid 79`: the GPU has fallen off the bus).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Xid(pub u64);

/// Why clocks are lower than they could be: the bits of `nvmlDeviceGetCurrentClocksEventReasons`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Throttles(pub u64);

/// A GPU's identity: its UUID (`GPU-...`), or that of a part of one (`MIG-...`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuId(pub String);

/// All GPUs at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// When.
    pub at: MonoTime,
    /// Why there is none any more, where NVML was lost; then there are no devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// The driver's version (`570.86.15`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The GPUs; those that are cut into parts (MIG) are followed by their parts.
    pub devices: Vec<Device>,
    /// GPUs that engines' processes may use by their environment (`CUDA_VISIBLE_DEVICES`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visible: Vec<(Pid, Vec<GpuId>)>,
}

/// One GPU, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Its identity.
    pub id: GpuId,
    /// Its number in NVML's order, by PCI address; of a part, its number in its GPU.
    pub index: u32,
    /// The GPU that it is a part of.
    pub parent: Option<GpuId>,
    /// Its model (`NVIDIA H100 80GB HBM3`).
    pub model: String,
    /// Whether it has fallen off the bus: then nothing else is told.
    pub gone: bool,
    /// Share of the last sample period in which a kernel ran.
    pub busy: Option<Percent>,
    /// The same of reads and writes of its memory.
    pub memory_busy: Option<Percent>,
    /// The same of its video encoder.
    pub encoder_busy: Option<Percent>,
    /// The same of its video decoder.
    pub decoder_busy: Option<Percent>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Power drawn.
    pub power: Option<Milliwatts>,
    /// Most power it may draw.
    pub power_limit: Option<Milliwatts>,
    /// Energy used since the driver was loaded.
    pub energy: Option<Millijoules>,
    /// Temperature of its die.
    pub temperature: Option<Celsius>,
    /// Its clocks.
    pub clocks: Vec<(Domain, Megahertz)>,
    /// Why its clocks are low.
    pub throttles: Option<Throttles>,
    /// Over PCI Express, bytes a second in the last 20 ms.
    pub pcie: Option<Traffic>,
    /// Over NVLink, all links together, bytes since the driver was loaded.
    pub nvlink: Option<Traffic>,
    /// Errors of its memory that were corrected, since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Those that were not.
    pub ecc_uncorrected: Option<u64>,
    /// Errors that the driver reported since the reading before, each as often as it was.
    pub xids: Vec<Xid>,
    /// Processes that use it.
    pub processes: Vec<Process>,
}

/// A GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it.
    pub total: Bytes,
    /// In use, the driver's own part too.
    pub used: Bytes,
    /// Not in use.
    pub free: Bytes,
}

/// Bytes in both directions, as the GPU sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// To the GPU.
    pub received: Bytes,
    /// From it.
    pub sent: Bytes,
}

/// A part of a GPU with a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// Graphics.
    Graphics,
    /// Streaming multiprocessors.
    Sm,
    /// Memory.
    Memory,
    /// Video encoder and decoder.
    Video,
}

impl Domain {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Graphics => "graphics",
            Self::Sm => "sm",
            Self::Memory => "memory",
            Self::Video => "video",
        }
    }
}

/// A process that uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id on this machine.
    pub pid: Pid,
    /// Memory it holds there.
    pub memory: Option<Bytes>,
    /// Share of the time since the reading before in which its kernels ran.
    pub busy: Option<Percent>,
}

/// Reasons for low clocks: bit of `nvmlClocksEventReasons`, and what the reason is called.
pub const THROTTLES: [(u64, &str); 9] = [
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
];

/// Those of them that mean that it is too hot, or gets too little power: power cap, slowdowns, power brake.
const HARMFUL: u64 = 0x004 | 0x008 | 0x020 | 0x040 | 0x080;

impl Throttles {
    /// Every reason there is, and whether it holds.
    pub fn each(self) -> impl Iterator<Item = (&'static str, bool)> {
        THROTTLES.iter().map(move |(bit, name)| (*name, self.0 & bit != 0))
    }

    /// Names of those that take speed from work: heat, and too little power.
    #[must_use]
    pub fn harmful(self) -> Vec<&'static str> {
        Self(self.0 & HARMFUL).each().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
    }
}
