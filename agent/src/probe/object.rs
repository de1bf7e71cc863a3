//! The compiled kernel programs, and the configuration they are given.

use anyhow::Result;
use enginetap_common::config::Config;

use super::rings::Layout;
use super::{Options, syscalls};
use crate::exit::Refusal;

/// The object as it lies in the repository; see `ebpf/README.md`. Aligned as a reader of ELF wants it.
pub(super) static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf/enginetap.bpf.o"));

/// The configuration for this machine and kernel.
pub(super) fn config(options: &Options, layout: Layout) -> Result<Config> {
    let machine = syscalls::machine().ok_or_else(|| {
        Refusal::missing("the kernel programs know x86-64 and 64-bit ARM only", "run on one of those")
    })?;
    Ok(Config {
        cap: options.cap.min(enginetap_common::config::DEFAULT_CAP),
        rings: layout.rings,
        wake_at: layout.wake_at(),
        machine: machine as u32,
        calls: syscalls::dispatch(machine),
    })
}
