//! Where a process runs: its container and pod, by its control group and mounts.

use enginetap_core::ids::Pid;

use super::proc::Proc;

/// Where a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Container id, 64 hexadecimal digits.
    pub container: Option<String>,
    /// Kubernetes pod's uid.
    pub pod: Option<String>,
}

/// Length of a container's id.
const ID_LEN: usize = 64;

/// Where a process runs.
#[must_use]
pub fn place(proc: &Proc, pid: Pid) -> Place {
    let groups = proc.text(pid, "cgroup").unwrap_or_default();
    // In a control group namespace of its own the path is bare; then the files that the runtime mounted in tell.
    let container = container(&groups).or_else(|| {
        let mounts = proc.text(pid, "mountinfo")?;
        mounts.lines().filter(|line| line.contains("/containers/")).find_map(container)
    });
    Place { container, pod: pod(&groups) }
}

/// The first run of exactly 64 hexadecimal digits: `docker-ID.scope`, `cri-containerd-ID.scope`, `/docker/ID`.
fn container(text: &str) -> Option<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let mut ids = words.filter(|word| word.len() == ID_LEN && word.bytes().all(|c| c.is_ascii_hexdigit()));
    ids.next().map(str::to_owned)
}

/// `kubepods-burstable-pod1234_abcd.slice`, `/kubepods/burstable/pod1234-abcd/`.
fn pod(groups: &str) -> Option<String> {
    let groups = groups.lines().find(|line| line.contains("kubepods"))?;
    groups.split(['/', '.']).find_map(|part| {
        let uid = part.get(part.rfind("pod")? + 3..)?.replace('_', "-");
        let is_uid = uid.len() >= 32 && uid.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
        is_uid.then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn with(cgroup: &str, mountinfo: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("7")).unwrap();
        std::fs::write(folder.path().join("7/cgroup"), cgroup.replace("ID", ID)).unwrap();
        std::fs::write(folder.path().join("7/mountinfo"), mountinfo.replace("ID", ID)).unwrap();
        place(&Proc::at(folder.path()), Pid(7))
    }

    #[test]
    fn each_runtime_writes_the_container_its_own_way() {
        for (cgroup, mountinfo) in [
            ("0::/system.slice/docker-ID.scope\n", ""),
            ("12:pids:/docker/ID\n0::/\n", ""),
            ("0::/machine.slice/libpod-ID.scope/container\n", ""),
            ("0::/kubepods.slice/kubepods-pod0.slice/cri-containerd-ID.scope\n", ""),
            (
                "0::/\n",
                "1 2 0:3 / / rw - ext4 /dev/a rw\n5 2 8:1 /var/lib/docker/containers/ID/hostname /etc/hostname rw\n",
            ),
        ] {
            assert_eq!(with(cgroup, mountinfo).container.as_deref(), Some(ID), "{cgroup}");
        }
        assert_eq!(with("0::/user.slice/session-1.scope\n", "9 9 8:1 / /home rw\n"), Place::default());
    }

    #[test]
    fn a_pods_uid_is_read_in_both_spellings() {
        let uid = "12345678-1234-1234-1234-123456789abc";
        for cgroup in [
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice/cri-containerd-ID.scope\n",
            "11:cpu:/kubepods/besteffort/pod12345678-1234-1234-1234-123456789abc/ID\n",
        ] {
            assert_eq!(with(cgroup, "").pod.as_deref(), Some(uid), "{cgroup}");
        }
        assert_eq!(with("0::/kubepods.slice/podless\n", "").pod, None);
    }
}
