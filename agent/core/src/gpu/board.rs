//! The last reading, and what readings tell only once.

use std::collections::BTreeMap;

use super::reading::{Device, GpuId, Reading, Xid};
use crate::ids::{Pid, ServerId};
use crate::model::metric::Point;
use crate::time::{MonoTime, Nanos, WallTime};

/// A reading that is older tells nothing of now: NVML does not answer.
pub const STALE: Nanos = Nanos::from_secs(30);
/// Most kinds of errors counted of a GPU.
const MAX_XIDS: usize = 256;

/// What is known of the machine's GPUs.
#[derive(Clone, Debug, Default)]
pub struct Board {
    begun: Option<MonoTime>,
    last: Option<Reading>,
    /// How often the driver reported each kind of error, since the first reading.
    xids: BTreeMap<GpuId, BTreeMap<Xid, u64>>,
}

/// The moments that points carry.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Now, by the clock of readings.
    pub now: MonoTime,
    /// Now, by the wall clock.
    pub at: WallTime,
    /// Since when counters count.
    pub since: WallTime,
}

impl Board {
    /// Takes a reading.
    pub fn take(&mut self, reading: Reading) {
        for device in &reading.devices {
            self.count(device);
        }
        self.begun.get_or_insert(reading.at);
        self.last = Some(reading);
    }

    /// When the first reading was made.
    #[must_use]
    pub fn begun(&self) -> Option<MonoTime> {
        self.begun
    }

    fn count(&mut self, device: &Device) {
        if device.xids.is_empty() {
            return;
        }
        let counts = self.xids.entry(device.id.clone()).or_default();
        for xid in &device.xids {
            if counts.len() < MAX_XIDS || counts.contains_key(xid) {
                let count = counts.entry(*xid).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// The last reading, unless it is too old.
    #[must_use]
    pub fn last(&self, now: MonoTime) -> Option<&Reading> {
        self.last.as_ref().filter(|reading| now.since(reading.at) <= STALE)
    }

    /// How often the driver reported each kind of error of a GPU.
    pub(super) fn xids(&self, id: &GpuId) -> impl Iterator<Item = (Xid, u64)> + '_ {
        self.xids.get(id).into_iter().flatten().map(|(xid, count)| (*xid, *count))
    }

    /// Everything as metrics; `owner`: the server that a process belongs to. Nothing where there never was a reading.
    #[must_use]
    pub fn points(&self, times: Times, owner: &dyn Fn(Pid) -> Option<ServerId>) -> Vec<Point> {
        match &self.last {
            Some(_) => super::points::of(self, times, owner),
            None => Vec::new(),
        }
    }
}
