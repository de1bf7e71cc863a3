//! Whether this machine, kernel and user let the kernel programs run, as facts; and what to do where not.

use std::fs;
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities};

use super::syscalls;

/// The oldest kernel the programs load on.
pub const OLDEST: (u32, u32) = (5, 15);

/// The oldest kernel on 64-bit ARM, whose compiler of kernel programs learned atomic additions later.
pub const OLDEST_ARM: (u32, u32) = (5, 18);

/// What a probe costs where it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostClass {
    /// Some tens of nanoseconds at every system call of the machine.
    EverySyscall,
    /// About a microsecond at each call that moves bytes on a watched connection.
    PerCall,
    /// One to ten microseconds at each forward of the model.
    PerForward,
    /// A breakpoint at each call of the TLS library in a server that serves HTTPS; nothing elsewhere.
    PerTlsCall,
    /// The same at the end of each of its TLS connections.
    PerTlsConnection,
    /// A breakpoint at the start and the end of each garbage collection; nothing where it is not asked for.
    PerCollection,
    /// A microsecond or two at each tick of a CPU's clock while there is profiling; nothing otherwise.
    PerSample,
    /// Only when a process starts, changes its program or ends.
    Rare,
}

impl CostClass {
    /// The class in words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::EverySyscall => "tens of ns at every system call of the machine",
            Self::PerCall => "about 1 us at each call that moves bytes on a watched connection",
            Self::PerForward => "1 to 10 us at each forward of the model",
            Self::PerTlsCall => "1 to 10 us at the start and the end of each call; HTTPS servers only",
            Self::PerTlsConnection => "1 to 10 us a connection; HTTPS servers only",
            Self::PerCollection => {
                "1 to 10 us at the start and the end of each garbage collection; with --gc only"
            }
            Self::PerSample => "1 to 2 us a sample; with `enginetap profile` only",
            Self::Rare => "only when a process starts, changes its program or ends",
        }
    }
}

/// A kernel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name, as `bpftool prog` shows it.
    pub name: &'static str,
    /// What it hooks.
    pub hook: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// What it costs.
    pub cost: CostClass,
}

/// The program on the end of processes on kernels that do not tell a process's end from a thread's.
pub(super) const EXITED_UNTOLD: &str = "exited_untold";

const fn program(name: &'static str, hook: &'static str, purpose: &'static str, cost: CostClass) -> Program {
    Program { name, hook, purpose, cost }
}

/// Every kernel program.
pub const PROGRAMS: [Program; 21] = [
    program("sys_exit", "sys_exit", "finds the calls of watched processes", CostClass::EverySyscall),
    program("bytes", "behind sys_exit", "read, write, recvfrom, sendto", CostClass::PerCall),
    program("vector", "behind sys_exit", "readv, writev, recvmsg, sendmsg", CostClass::PerCall),
    program("messages", "behind sys_exit", "recvmmsg, sendmmsg", CostClass::PerCall),
    program("unseen", "behind sys_exit", "sendfile, splice: lengths without bytes", CostClass::PerCall),
    program("opened", "behind sys_exit", "accept, connect", CostClass::PerCall),
    program("duplicated", "behind sys_exit", "dup, fcntl", CostClass::PerCall),
    program("renumbered", "behind sys_exit", "descriptors that are no connections", CostClass::PerCall),
    program("closed", "behind sys_exit", "sees connections closed", CostClass::PerCall),
    program("forward", "a function of the model", "marks each forward", CostClass::PerForward),
    program("tls_entered", "SSL_read, SSL_write", "plain text of TLS", CostClass::PerTlsCall),
    program("tls_returned", "their ret instructions", "plain text of TLS", CostClass::PerTlsCall),
    program("tls_freed", "SSL_free", "ends of TLS connections", CostClass::PerTlsConnection),
    program("gc_entered", "the interpreter's collector", "times collections", CostClass::PerCollection),
    program("gc_returned", "its ret instructions", "times collections", CostClass::PerCollection),
    program("sampled", "each CPU's clock", "samples Python stacks", CostClass::PerSample),
    program("forked", "sched_process_fork", "follows new processes", CostClass::Rare),
    program("executed", "sched_process_exec", "follows restarts", CostClass::Rare),
    program("exited", "sched_process_exit", "sees processes end", CostClass::Rare),
    program(EXITED_UNTOLD, "sched_process_exit", "the same before Linux 6.16", CostClass::Rare),
    program("control", "not attached", "the agent's own commands", CostClass::Rare),
];

/// What this machine offers.
#[derive(Clone, Debug)]
pub struct Support {
    /// The kernel's release, as `uname -r` says it.
    pub release: String,
    /// Its version, where the release starts with one.
    pub version: Option<(u32, u32)>,
    /// Whether this machine's architecture is known to the kernel programs.
    pub machine: bool,
    /// Whether the kernel describes its own types (not needed by any program; other tools want it).
    pub btf: bool,
    /// Whether this process may load and attach: `CAP_BPF` and `CAP_PERFMON`, or `CAP_SYS_ADMIN`.
    pub may_load: bool,
    /// Whether this process may read other users' processes: `CAP_SYS_PTRACE`.
    pub may_look: bool,
    /// The kernel's lockdown mode (`none`, `integrity`, `confidentiality`), where it has one.
    pub lockdown: Option<String>,
    /// Whether this process sees the machine's own process ids: the kernel programs speak of those.
    pub host_pids: bool,
    /// Whether the kernel compiles its programs (an interpreter is several times slower).
    pub jit: Option<bool>,
}

/// Something that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub next: String,
}

fn obstacle(what: impl Into<String>, next: impl Into<String>) -> Obstacle {
    Obstacle { what: what.into(), next: next.into() }
}

impl Support {
    /// Looks at this machine.
    #[must_use]
    pub fn probe() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        // Who we are that cannot be told is nobody.
        let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let admin = effective.contains(CapabilitySet::SYS_ADMIN);
        Self {
            version: version_of(&release),
            release,
            machine: syscalls::machine().is_some(),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            may_load: admin || effective.contains(CapabilitySet::BPF | CapabilitySet::PERFMON),
            may_look: effective.contains(CapabilitySet::SYS_PTRACE),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|text| chosen(&text)),
            host_pids: fs::read_link("/proc/self/ns/pid").is_ok_and(|link| is_first_pid_namespace(&link)),
            jit: fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").ok().map(|text| text.trim() != "0"),
        }
    }

    /// What stands in the way of the kernel programs; nothing where they will run.
    #[must_use]
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let Self { release, version, machine, may_load, may_look, .. } = self;
        let mut found = Vec::new();
        if !machine {
            found
                .push(obstacle("the kernel programs know x86-64 and 64-bit ARM only", "run on one of those"));
        }
        let (major, minor) = oldest();
        if version.is_some_and(|version| version < (major, minor)) {
            found.push(obstacle(
                format!("kernel {release} is too old: the programs need Linux {major}.{minor} (atomic additions, rings)"),
                format!("run a kernel {major}.{minor} or newer"),
            ));
        }
        if !may_load {
            found.push(obstacle(
                "not allowed to load kernel programs: CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN) are missing",
                "run as root; in a container add the capabilities BPF, PERFMON and SYS_PTRACE, or run it privileged",
            ));
        }
        if !may_look {
            found.push(obstacle(
                "not allowed to look into other users' processes: CAP_SYS_PTRACE is missing",
                "run as root, or add the capability SYS_PTRACE",
            ));
        }
        found.extend(self.surroundings());
        found
    }

    fn surroundings(&self) -> Vec<Obstacle> {
        let mut found = Vec::new();
        if self.lockdown.as_deref() == Some("confidentiality") {
            found.push(obstacle(
                "the kernel is locked down (confidentiality): programs may not read memory",
                "boot with lockdown=integrity or none; secure boot alone sets integrity, which is fine",
            ));
        }
        if !self.host_pids {
            found.push(obstacle(
                "this process sees the process ids of a container, the kernel programs those of the machine",
                "run the container with the host's PID namespace (docker --pid=host, Kubernetes hostPID: true)",
            ));
        }
        found
    }
}

/// The oldest kernel for this machine.
#[must_use]
pub const fn oldest() -> (u32, u32) {
    if cfg!(target_arch = "aarch64") { OLDEST_ARM } else { OLDEST }
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The choice in brackets: `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    text.split_whitespace().find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

/// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`: the machine's own PID namespace.
fn is_first_pid_namespace(link: &Path) -> bool {
    link.to_str() == Some("pid:[4026531836]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> Support {
        Support {
            release: "6.1.0-31-amd64".to_owned(),
            version: version_of("6.1.0-31-amd64"),
            machine: true,
            btf: true,
            may_load: true,
            may_look: true,
            lockdown: Some("integrity".to_owned()),
            host_pids: true,
            jit: Some(true),
        }
    }

    #[test]
    fn an_ordinary_root_shell_has_no_obstacles() {
        assert_eq!(fine().obstacles(), []);
    }

    #[test]
    fn each_obstacle_says_what_to_do() {
        let worst = Support {
            version: Some((4, 18)),
            machine: false,
            may_load: false,
            may_look: false,
            lockdown: Some("confidentiality".to_owned()),
            host_pids: false,
            ..fine()
        };
        let obstacles = worst.obstacles();
        assert_eq!(obstacles.len(), 6);
        assert!(obstacles.iter().all(|obstacle| !obstacle.next.is_empty()));
    }

    #[test]
    fn versions_and_choices_are_read_as_the_kernel_writes_them() {
        assert_eq!(version_of("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version_of("5.15.0"), Some((5, 15)));
        assert_eq!(version_of("custom"), None);
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen(""), None);
    }
}
