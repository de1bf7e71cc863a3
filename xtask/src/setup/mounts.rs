//! The kernel's file systems that probes are made through.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{repo, say, shell};

/// Type, place, and what it is for.
const MOUNTS: [(&str, &str, &str); 2] = [
    ("tracefs", "/sys/kernel/tracing", "tracepoint ids are read there"),
    ("bpf", "/sys/fs/bpf", "kernel objects can be pinned there"),
];

/// Mounts what is not mounted; where this is not root, only says so (a build needs neither).
///
/// # Errors
/// When /proc/mounts cannot be read or a mount fails.
pub fn ensure() -> Result<()> {
    let mounted = std::fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
    for (kind, place, why) in MOUNTS {
        if is_mounted(&mounted, kind, place) {
            continue;
        }
        if !repo::is_root() || !Path::new(place).is_dir() {
            say::warn(format!("{place} is not mounted ({why}): as root, `mount -t {kind} {kind} {place}`"));
            continue;
        }
        say::step(format!("mounting {kind} at {place}: {why}"));
        shell::prepare(Command::new("mount").args(["-t", kind, kind, place]))?;
    }
    Ok(())
}

fn is_mounted(mounts: &str, kind: &str, place: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next() == Some(place) && words.next() == Some(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_by_place_and_type() {
        let mounts = "proc /proc proc rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0\n";
        assert!(is_mounted(mounts, "tracefs", "/sys/kernel/tracing"));
        assert!(!is_mounted(mounts, "bpf", "/sys/fs/bpf"));
        assert!(!is_mounted(mounts, "tracefs", "/sys/kernel"));
        assert!(!is_mounted("", "tracefs", "/sys/kernel/tracing"));
    }
}
