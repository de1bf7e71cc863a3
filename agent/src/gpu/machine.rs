//! One machine's NVML: every figure that it gives, GPU by GPU. A figure that a GPU does not have is left out; a GPU that
//! has fallen off the bus is said to be gone, the others are read on.

use std::collections::BTreeMap;

use enginetap_core::gpu::reading::{
    Bytes, Celsius, Device, Domain, GpuId, Megahertz, Memory, Millijoules, Milliwatts, Percent, Process,
    Reading, Throttles, Traffic, Xid,
};
use enginetap_core::ids::Pid;
use enginetap_core::time::MonoTime;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

/// Most errors taken of one GPU in one reading.
const MAX_XIDS: usize = 64;
/// Most parts of one GPU (MIG has seven).
const MAX_PARTS: u32 = 16;

/// NVML, and what is remembered between readings.
pub(super) struct Machine<'nvml> {
    nvml: &'nvml Nvml,
    driver: Option<String>,
    /// GPUs by number, as they named themselves when they were last there.
    known: BTreeMap<u32, (GpuId, String)>,
    /// Where the driver tells of errors, GPU by GPU; `None` where it does not.
    errors: BTreeMap<GpuId, Option<EventSet<'nvml>>>,
    /// Moment of each GPU's newest sample of its processes, in microseconds by NVML's clock.
    sampled: BTreeMap<GpuId, u64>,
}

/// Takes answers, and notes what they say of the GPU.
#[derive(Default)]
struct Answers {
    gone: bool,
    broken: Option<NvmlError>,
}

impl Answers {
    fn take<T>(&mut self, answer: Result<T, NvmlError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(NvmlError::GpuLost | NvmlError::ResetRequired) => {
                self.gone = true;
                None
            }
            Err(error) => {
                // The library or its driver is not what it was: nothing it says counts.
                let ends = matches!(
                    error,
                    NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch
                );
                if ends {
                    self.broken = Some(error);
                }
                None
            }
        }
    }
}

/// A GPU of NVML's.
type Handle<'nvml> = nvml_wrapper::Device<'nvml>;

impl<'nvml> Machine<'nvml> {
    /// Nothing read yet.
    pub fn new(nvml: &'nvml Nvml) -> Self {
        Self {
            nvml,
            driver: nvml.sys_driver_version().ok(),
            known: BTreeMap::new(),
            errors: BTreeMap::new(),
            sampled: BTreeMap::new(),
        }
    }

    /// Reads every GPU.
    ///
    /// # Errors
    /// When NVML as a whole does not answer any more.
    pub fn read(&mut self, at: MonoTime) -> Result<Reading, NvmlError> {
        let mut devices = Vec::new();
        for index in 0..self.nvml.device_count()? {
            self.device(index, &mut devices)?;
        }
        Ok(Reading { at, driver: self.driver.clone(), devices, ..Reading::default() })
    }

    fn device(&mut self, index: u32, devices: &mut Vec<Device>) -> Result<(), NvmlError> {
        let mut answers = Answers::default();
        let handle = answers.take(self.nvml.device_by_index(index));
        let named = handle.as_ref().and_then(|handle| {
            Some((GpuId(answers.take(handle.uuid())?), answers.take(handle.name()).unwrap_or_default()))
        });
        if let Some(named) = named {
            self.known.insert(index, named);
        }
        // One that never named itself cannot be told from others.
        let Some((id, model)) = self.known.get(&index).cloned() else {
            return answers.broken.map_or(Ok(()), Err);
        };
        let mut device = Device { id, index, model, ..Device::default() };
        let mut parts = Vec::new();
        if let Some(handle) = handle.filter(|_| !answers.gone) {
            figures(&handle, &mut device, &mut answers);
            device.processes = self.processes(&handle, &device.id, &mut answers);
            parts = self.parts(&handle, &device, &mut answers);
        }
        device.xids = self.xids(index, &device.id);
        if answers.gone {
            let Device { id, index, model, xids, .. } = device;
            device = Device { id, index, model, xids, gone: true, ..Device::default() };
            parts.clear();
        }
        devices.push(device);
        devices.append(&mut parts);
        answers.broken.map_or(Ok(()), Err)
    }

    /// The parts that a GPU is cut into. NVML tells their memory and processes; the rest is their GPU's.
    fn parts(&mut self, whole: &Handle<'nvml>, device: &Device, answers: &mut Answers) -> Vec<Device> {
        let on = answers.take(whole.mig_mode()).is_some_and(|mode| mode.current == 1);
        if !on {
            return Vec::new();
        }
        let count = answers.take(whole.mig_device_count()).unwrap_or(0).min(MAX_PARTS);
        let mut parts = Vec::new();
        for index in 0..count {
            // A place that is not taken is no part.
            let Some(handle) = answers.take(whole.mig_device_by_index(index)) else { continue };
            let Some(id) = answers.take(handle.uuid()).map(GpuId) else { continue };
            let model = answers.take(handle.name()).unwrap_or_else(|| device.model.clone());
            let memory = memory(&handle, answers);
            let processes = self.processes(&handle, &id, answers);
            let parent = Some(device.id.clone());
            parts.push(Device { id, index, parent, model, memory, processes, ..Device::default() });
        }
        parts
    }

    /// Processes on a GPU: those with a context of their own, and clients of MPS.
    fn processes(&mut self, handle: &Handle<'nvml>, id: &GpuId, answers: &mut Answers) -> Vec<Process> {
        let mut found: BTreeMap<u32, Process> = BTreeMap::new();
        let own = answers.take(handle.running_compute_processes()).unwrap_or_default();
        let shared = answers.take(handle.mps_running_compute_processes()).unwrap_or_default();
        for told in own.into_iter().chain(shared) {
            let memory = match told.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
                UsedGpuMemory::Unavailable => None,
            };
            found.entry(told.pid).or_insert(Process { pid: Pid(told.pid), memory, busy: None });
        }
        let last = self.sampled.get(id).copied();
        let samples = answers.take(handle.process_utilization_stats(last)).unwrap_or_default();
        for sample in &samples {
            // In the order of time: the newest stays.
            if let Some(process) = found.get_mut(&sample.pid) {
                process.busy = Some(Percent(sample.sm_util.min(100)));
            }
        }
        if let Some(newest) = samples.iter().map(|sample| sample.timestamp).max() {
            self.sampled.insert(id.clone(), newest);
        }
        found.into_values().collect()
    }

    /// What the driver reported of a GPU since it was asked last.
    fn xids(&mut self, index: u32, id: &GpuId) -> Vec<Xid> {
        if !self.errors.contains_key(id) {
            let registered = self.register(index);
            self.errors.insert(id.clone(), registered);
        }
        let mut xids = Vec::new();
        let Some(Some(set)) = self.errors.get(id) else { return xids };
        while let Ok(event) = set.wait(0) {
            match event.event_data {
                Some(XidError::Value(number)) => xids.push(Xid(number)),
                Some(XidError::Unknown) | None => {}
            }
            if xids.len() >= MAX_XIDS {
                break;
            }
        }
        xids
    }

    fn register(&self, index: u32) -> Option<EventSet<'nvml>> {
        let handle = self.nvml.device_by_index(index).ok()?;
        let set = self.nvml.create_event_set().ok()?;
        handle.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()
    }
}

fn memory(handle: &Handle<'_>, answers: &mut Answers) -> Option<Memory> {
    let told = answers.take(handle.memory_info())?;
    // The driver's own part counts as used, so that used and free are the whole.
    let used = Bytes(told.total.saturating_sub(told.free));
    Some(Memory { total: Bytes(told.total), used, free: Bytes(told.free) })
}

/// Everything but processes and errors of the driver.
fn figures(handle: &Handle<'_>, device: &mut Device, answers: &mut Answers) {
    let rates = answers.take(handle.utilization_rates());
    device.busy = rates.as_ref().map(|rates| Percent(rates.gpu));
    device.memory_busy = rates.as_ref().map(|rates| Percent(rates.memory));
    device.encoder_busy = answers.take(handle.encoder_utilization()).map(|told| Percent(told.utilization));
    device.decoder_busy = answers.take(handle.decoder_utilization()).map(|told| Percent(told.utilization));
    device.memory = memory(handle, answers);
    device.power = answers.take(handle.power_usage()).map(Milliwatts);
    device.power_limit = answers.take(handle.enforced_power_limit()).map(Milliwatts);
    device.energy = answers.take(handle.total_energy_consumption()).map(Millijoules);
    device.temperature = answers.take(handle.temperature(TemperatureSensor::Gpu)).map(Celsius);
    for (clock, domain) in [
        (Clock::Graphics, Domain::Graphics),
        (Clock::SM, Domain::Sm),
        (Clock::Memory, Domain::Memory),
        (Clock::Video, Domain::Video),
    ] {
        device.clocks.extend(answers.take(handle.clock_info(clock)).map(|mhz| (domain, Megahertz(mhz))));
    }
    device.throttles = answers.take(handle.current_throttle_reasons()).map(|bits| Throttles(bits.bits()));
    device.pcie = pcie(handle, answers);
    device.nvlink = super::links::traffic(handle);
    let ecc = |kind| handle.total_ecc_errors(kind, EccCounter::Volatile);
    device.ecc_corrected = answers.take(ecc(MemoryError::Corrected));
    device.ecc_uncorrected = answers.take(ecc(MemoryError::Uncorrected));
}

/// NVML tells kilobytes a second over the last 20 ms.
fn pcie(handle: &Handle<'_>, answers: &mut Answers) -> Option<Traffic> {
    let mut of =
        |counter| answers.take(handle.pcie_throughput(counter)).map(|kb| Bytes(u64::from(kb) * 1000));
    Some(Traffic { received: of(PcieUtilCounter::Receive)?, sent: of(PcieUtilCounter::Send)? })
}
