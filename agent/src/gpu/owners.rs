//! Whose processes NVML tells of, and which GPUs an engine's environment leaves it.

use std::collections::BTreeMap;

use enginetap_core::gpu::owner::{Known, meant};
use enginetap_core::gpu::reading::Reading;
use enginetap_core::gpu::visible::{DEVICE_ORDER, VISIBLE_DEVICES, visible};
use enginetap_core::ids::Pid;

use crate::discover::proc::Proc;

/// The processes of engines, each looked at once.
#[derive(Debug, Default)]
pub struct Owners(BTreeMap<Pid, Owner>);

#[derive(Debug)]
struct Owner {
    known: Known,
    listed: Option<String>,
    order: Option<String>,
}

impl Owners {
    /// These are the engines' processes now.
    pub fn follow(&mut self, proc: &Proc, pids: impl Iterator<Item = Pid> + Clone) {
        self.0.retain(|pid, _| pids.clone().any(|other| other == *pid));
        for pid in pids {
            self.0.entry(pid).or_insert_with(|| Owner::read(proc, pid));
        }
    }

    /// Completes a reading: processes by their ids on this machine, and the GPUs that engines may use.
    #[must_use]
    pub fn complete(&self, mut reading: Reading) -> Reading {
        let known: Vec<Known> = self.0.values().map(|owner| owner.known).collect();
        for process in reading.devices.iter_mut().flat_map(|device| &mut device.processes) {
            process.pid = meant(process.pid, &known);
        }
        let may = |owner: &Owner| visible(owner.listed.as_deref(), owner.order.as_deref(), &reading.devices);
        reading.visible = self.0.iter().filter_map(|(pid, owner)| Some((*pid, may(owner)?))).collect();
        reading
    }
}

impl Owner {
    fn read(proc: &Proc, pid: Pid) -> Self {
        let environ = proc.environ(pid);
        let said = |name| environ.get(name).map(str::to_owned);
        let inner = proc.namespace_pid(pid).filter(|inner| *inner != pid);
        Self { known: Known { pid, inner }, listed: said(VISIBLE_DEVICES), order: said(DEVICE_ORDER) }
    }
}

#[cfg(test)]
mod tests {
    use enginetap_core::gpu::reading::{Device, GpuId, Process};

    use super::*;

    #[test]
    fn a_process_in_a_container_and_its_environment_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for (pid, status, environ) in [
            ("4001", "Name:\tpython\nNSpid:\t4001\t7\n", "A=1\0CUDA_VISIBLE_DEVICES=1\0"),
            ("4002", "Name:\tpython\nNSpid:\t4002\n", ""),
        ] {
            let at = folder.path().join(pid);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("status"), status).unwrap();
            std::fs::write(at.join("environ"), environ).unwrap();
        }
        let mut owners = Owners::default();
        owners.follow(&Proc::at(folder.path()), [Pid(4001), Pid(4002)].into_iter());
        let gpu = |index, id: &str, pid| Device {
            index,
            id: GpuId(id.to_owned()),
            processes: vec![Process { pid: Pid(pid), memory: None, busy: None }],
            ..Device::default()
        };
        let reading =
            Reading { devices: vec![gpu(0, "GPU-a", 4002), gpu(1, "GPU-b", 7)], ..Reading::default() };
        let complete = owners.complete(reading);
        let pids: Vec<u32> = complete.devices.iter().map(|device| device.processes[0].pid.0).collect();
        assert_eq!(pids, [4002, 4001]);
        assert_eq!(complete.visible, [(Pid(4001), vec![GpuId("GPU-b".to_owned())])]);
        owners.follow(&Proc::at(folder.path()), [].into_iter());
        assert!(owners.0.is_empty());
    }
}
