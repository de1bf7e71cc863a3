//! How long a process's cgroups had used up their CPU quota: `cpu.stat`, of cgroup 2 and of cgroup 1.

use std::path::{Path, PathBuf};

use enginetap_core::ids::Pid;
use enginetap_core::time::Nanos;

use crate::discover::proc::Proc;

/// Most cgroups above one that are looked at: quotas may stand at any.
const MAX_ABOVE: usize = 16;
/// Where the controllers are.
const MOUNT: &str = "/sys/fs/cgroup";
/// Folders of the CPU controller of cgroup 1.
const FOLDERS: [&str; 2] = ["cpu", "cpu,cpuacct"];

/// The cgroups of a process that have a quota.
#[derive(Debug)]
pub(super) struct Cgroup {
    files: Vec<PathBuf>,
    last: Option<Nanos>,
}

impl Cgroup {
    /// Those of a process; `None` where the kernel counts nothing for it.
    pub fn of(proc: &Proc, pid: Pid) -> Option<Self> {
        let text = proc.text(pid, "cgroup")?;
        let inside = proc.path(pid, "root").join(MOUNT.trim_start_matches('/'));
        let mut files: Vec<PathBuf> = paths(&text)
            .into_iter()
            .flat_map(|(mount, path)| above(&Path::new(MOUNT).join(mount), &path))
            .collect();
        if files.is_empty() {
            // The agent sees other cgroups than the process, which has its own as the root of its mount.
            files =
                [inside.join("cpu.stat"), inside.join("cpu/cpu.stat")].into_iter().filter(counts).collect();
        }
        if files.is_empty() {
            return None;
        }
        let mut cgroup = Self { files, last: None };
        cgroup.throttled();
        Some(cgroup)
    }

    /// Time since it was asked last in which a quota was used up, of all of them.
    pub fn throttled(&mut self) -> Nanos {
        let all = self.files.iter().filter_map(|file| throttled(&std::fs::read_to_string(file).ok()?));
        let now = Nanos(all.fold(0, |sum, time| sum.saturating_add(time.0)));
        let before = self.last.replace(now).unwrap_or(now);
        Nanos(now.0.saturating_sub(before.0))
    }
}

/// Folder of the controller, and path of the cgroup in it: `0::/a/b` of cgroup 2, `3:cpu,cpuacct:/a/b` of cgroup 1.
fn paths(text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/').to_owned();
        match controllers {
            "" => found.push(("", path)),
            of if of.split(',').any(|one| one == "cpu") => {
                found.extend(FOLDERS.iter().map(|folder| (*folder, path.clone())));
            }
            _ => {}
        }
    }
    found
}

/// `cpu.stat` of a cgroup and of those above it, where it counts throttling.
fn above(mount: &Path, path: &str) -> Vec<PathBuf> {
    // One outside the agent's own namespace shows as `/../..`.
    if path.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let full = mount.join(path);
    let folders = full.ancestors().take_while(|folder| folder.starts_with(mount)).take(MAX_ABOVE);
    folders.map(|folder| folder.join("cpu.stat")).filter(counts).collect()
}

fn counts(file: &PathBuf) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| throttled(&text).is_some())
}

/// `throttled_usec 1500` of cgroup 2, `throttled_time 1500000` of cgroup 1.
fn throttled(text: &str) -> Option<Nanos> {
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", micros) => {
            micros.trim().parse::<u64>().ok().map(|us| Nanos(us.saturating_mul(1000)))
        }
        ("throttled_time", nanos) => nanos.trim().parse().ok().map(Nanos),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_cgroups_are_found_and_read() {
        let mixed = "3:cpuset:/x\n1:cpu,cpuacct:/kubepods/pod1\n0::/init.scope\n";
        let found = paths(mixed);
        let path = |text: &str| text.to_owned();
        assert_eq!(
            found,
            [
                ("cpu", path("kubepods/pod1")),
                ("cpu,cpuacct", path("kubepods/pod1")),
                ("", path("init.scope"))
            ]
        );
        assert_eq!(throttled("nr_periods 2\nthrottled_usec 1500\n"), Some(Nanos(1_500_000)));
        assert_eq!(throttled("nr_periods 2\nthrottled_time 1500\n"), Some(Nanos(1500)));
        assert_eq!(throttled("usage_usec 7\n"), None);
    }

    #[test]
    fn a_quota_above_counts_and_what_was_before_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (pod, container) = (folder.path().join("pod"), folder.path().join("pod/c"));
        std::fs::create_dir_all(&container).unwrap();
        std::fs::write(pod.join("cpu.stat"), "throttled_usec 100\n").unwrap();
        std::fs::write(container.join("cpu.stat"), "throttled_usec 7\n").unwrap();
        let files = above(folder.path(), "pod/c");
        assert_eq!(files, [container.join("cpu.stat"), pod.join("cpu.stat")]);
        let mut cgroup = Cgroup { files, last: None };
        assert_eq!(cgroup.throttled(), Nanos(0));
        std::fs::write(pod.join("cpu.stat"), "throttled_usec 350\n").unwrap();
        assert_eq!(cgroup.throttled(), Nanos(250_000));
        assert!(above(folder.path(), "../../other").is_empty());
    }
}
