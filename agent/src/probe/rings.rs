//! The rings: making them, reading them, and merging their records in order of time.
//!
//! Each CPU writes to its own ring, so that writers never wait for each other; where there are many CPUs, several
//! share one, since a ring must hold the largest call and all rings together must stay small (their pages count
//! twice in the reader's resident memory).
//!
//! Within one ring records lie in order. Between rings they are merged by time. A record may come a little
//! after its time was taken, so a round of reading stops short of the present by [`SLACK`]; what is newer stays in
//! its ring for the next round. The order of one connection's records does not depend on the slack: its next call
//! begins after the last one's record was committed, so when the later one is old enough to be taken, the earlier one is
//! already in its ring.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use aya::maps::{ArrayOfMaps, Map, MapData, RingBuf};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF;
use enginetap_common::config::MAX_RINGS;
use enginetap_common::record::HEADER_LEN;
use enginetap_core::time::{MonoTime, Nanos};
use rustix::event::epoll;

/// How far a round of reading stays behind the present.
const SLACK: Nanos = Nanos::from_millis(1);

/// How many rings, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Rings.
    pub(super) rings: u32,
    /// Bytes of each: a power of two, and of pages.
    pub(super) bytes: u32,
}

impl Layout {
    /// The layout for so many CPUs within `total` bytes: a ring for each CPU while every ring can still hold
    /// two calls of `cap` bytes, else fewer rings.
    pub(super) fn new(cpus: u32, total: u32, cap: u32) -> Self {
        const SMALLEST: u32 = 64 * 1024;
        const LARGEST: u32 = 16 * 1024 * 1024;
        let needed = cap.saturating_mul(2).clamp(SMALLEST, LARGEST).next_power_of_two();
        let rings = (total / needed).clamp(1, cpus.clamp(1, MAX_RINGS));
        let share = (total / rings).clamp(SMALLEST, LARGEST);
        // The largest power of two within the share.
        let bytes = 1 << (u32::BITS - 1 - share.leading_zeros());
        Self { rings, bytes }
    }

    /// Bytes waiting in a ring at which the reader is woken before its time.
    pub(super) fn wake_at(self) -> u32 {
        self.bytes / 4
    }
}

/// One ring, and its oldest record.
struct Ring {
    ring: RingBuf<MapData>,
    /// The oldest record, taken out of the ring; empty when there was none.
    head: Vec<u8>,
}

impl Ring {
    /// Takes the next record out of the ring into `head`. A record too short to have a time is as old as can be, so
    /// that it is passed on and refused where records are parsed.
    fn advance(&mut self) {
        self.head.clear();
        if let Some(item) = self.ring.next() {
            self.head.extend_from_slice(&item);
        }
    }

    /// When the oldest record happened, if there is one.
    fn time(&self) -> Option<MonoTime> {
        let time = self.head.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (!self.head.is_empty()).then_some(MonoTime(time))
    }
}

/// All rings, with one descriptor that becomes readable when any of them wakes its reader.
pub(super) struct Rings {
    rings: Vec<Ring>,
    epoll: OwnedFd,
    /// Held, not used: programs can be loaded only while their maps are open.
    _outer: ArrayOfMaps<MapData, RingBuf<MapData>>,
}

impl Rings {
    /// Makes the rings and puts them where the kernel programs look for them.
    pub(super) fn create(layout: Layout, mut outer: ArrayOfMaps<MapData, RingBuf<MapData>>) -> Result<Self> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll descriptor for the rings")?;
        let mut rings = Vec::new();
        for index in 0..layout.rings {
            let ring = create_ring(layout.bytes).with_context(|| {
                format!(
                    "making ring {index} of {} bytes: not enough memory, or no locked memory allowed",
                    layout.bytes
                )
            })?;
            outer
                .set(index, &ring, 0)
                .with_context(|| format!("handing ring {index} to the kernel programs"))?;
            let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, ring.as_fd(), epoll::EventData::new_u64(u64::from(index)), events)
                .context("waiting on a ring")?;
            rings.push(Ring { ring, head: Vec::with_capacity(HEADER_LEN) });
        }
        Ok(Self { rings, epoll, _outer: outer })
    }

    /// The descriptor that becomes readable when a ring wakes its reader.
    pub(super) fn wakeups(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Takes note of the wake-ups so far, so that the next one is seen.
    pub(super) fn take_wakeups(&self) -> Result<()> {
        let mut events = Vec::with_capacity(self.rings.len());
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now))
            .context("taking the wake-ups of the rings")?;
        Ok(())
    }

    /// Passes on every record older than `before`, oldest first; how many.
    fn merge(&mut self, before: MonoTime, sink: &mut impl FnMut(&[u8])) -> u64 {
        let mut count = 0;
        for ring in self.rings.iter_mut().filter(|ring| ring.head.is_empty()) {
            ring.advance();
        }
        // Several pieces of one call have one time: ties go to the first ring, so that they stay together.
        while let Some((time, ring)) =
            self.rings.iter_mut().filter_map(|ring| Some((ring.time()?, ring))).min_by_key(|(time, _)| *time)
        {
            if time >= before {
                break;
            }
            sink(&ring.head);
            count += 1;
            ring.advance();
        }
        count
    }

    /// Passes on the records that are old enough to be in order; how many.
    pub(super) fn drain(&mut self, sink: &mut impl FnMut(&[u8])) -> u64 {
        let now = now();
        self.merge(MonoTime(now.0.saturating_sub(SLACK.0)), sink)
    }

    /// Passes on every record there is now; how many.
    pub(super) fn flush(&mut self, sink: &mut impl FnMut(&[u8])) -> u64 {
        self.merge(now(), sink)
    }
}

fn create_ring(bytes: u32) -> Result<RingBuf<MapData>> {
    let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, bytes, 0);
    let data = MapData::create(definition, "RING", None)?;
    Ok(RingBuf::try_from(Map::RingBuf(data))?)
}

/// The kernel programs' clock.
pub(super) fn now() -> MonoTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since_boot = Duration::try_from(time).unwrap_or_default();
    MonoTime(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1024 * 1024;

    #[test]
    fn every_ring_holds_two_of_the_largest_calls_and_all_stay_within_the_total() {
        assert_eq!(Layout::new(2, 8 * MIB, MIB), Layout { rings: 2, bytes: 4 * MIB });
        assert_eq!(Layout::new(16, 8 * MIB, MIB), Layout { rings: 4, bytes: 2 * MIB });
        assert_eq!(Layout::new(16, 8 * MIB, 64 * 1024), Layout { rings: 16, bytes: MIB / 2 });
        assert_eq!(Layout::new(3, 8 * MIB, MIB), Layout { rings: 3, bytes: 2 * MIB });
        assert_eq!(Layout::new(1024, 64 * MIB, 0), Layout { rings: 64, bytes: MIB });
    }

    #[test]
    fn a_layout_is_valid_whatever_is_asked() {
        for cpus in [0, 1, 7, u32::MAX] {
            for total in [0, 1, 5 * MIB, u32::MAX] {
                for cap in [0, 1, MIB, u32::MAX] {
                    let Layout { rings, bytes } = Layout::new(cpus, total, cap);
                    assert!((1..=MAX_RINGS).contains(&rings));
                    assert!(bytes.is_power_of_two() && bytes >= 64 * 1024, "{bytes}");
                }
            }
        }
    }
}
