//! What a preflight finds, of the machine and of the target. Pure but for [`Target::read`] and [`machine`].

use enginetap_common::watch::Verdict;
use enginetap_core::capture::fact::{Engine, Role, Socket};
use enginetap_core::dialect::schema::Schema;
use enginetap_core::ids::Pid;
use serde::Serialize;

use super::sglang;
use crate::discover::adopt::{ConnIds, adopt};
use crate::discover::gc;
use crate::discover::marks;
use crate::discover::proc::Proc;
use crate::discover::server::Instance;
use crate::discover::sockets::Sockets;
use crate::discover::tls::{self, Library};
use crate::gpu::{self, Absent};
use crate::probe::{CostClass, PROGRAMS, Program, Support};
use crate::waits;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub about: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub what: String,
    /// What to do about it; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

/// How a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Something will not be seen, or only be estimated.
    Limited,
    /// Attaching cannot work.
    Bad,
}

/// A kernel program that would be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Its name.
    pub name: &'static str,
    /// What it hooks.
    pub hook: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// What it costs.
    pub cost: &'static str,
}

/// What is read of the target for the preflight alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Processes whose descriptors may not be read.
    pub unreadable: Vec<Pid>,
    /// Connections between API servers and engines that would be captured.
    pub engine_conns: usize,
    /// Client connections that would be captured.
    pub client_conns: usize,
    /// Whether the kernel tells which Unix sockets belong together.
    pub pairs_known: bool,
    /// The seccomp mode of its top process, as `/proc/PID/status` says it.
    pub seccomp: Option<u32>,
    /// Whether an API server holds an io_uring.
    pub io_uring: bool,
    /// Whether it runs in another PID namespace than the agent.
    pub other_pids: bool,
    /// Where forwards would be marked, or why they cannot be; `None` where they are not wanted.
    pub forwards: Option<Result<String, String>>,
    /// Where its first frontend collects garbage, or why that cannot be timed.
    pub collector: Option<Result<String, String>>,
    /// Where the plain text of its TLS passes, or why it cannot be seen; `None` where it serves no TLS.
    pub tls: Option<Result<Vec<Library>, String>>,
}

pub(super) fn ok(about: &'static str, what: impl Into<String>) -> Finding {
    Finding { about, state: State::Ok, what: what.into(), next: String::new() }
}

pub(super) fn limited(about: &'static str, what: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding { about, state: State::Limited, what: what.into(), next: next.into() }
}

fn bad(about: &'static str, what: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding { about, state: State::Bad, what: what.into(), next: next.into() }
}

impl Target {
    /// Looks at a server's processes.
    #[must_use]
    pub fn read(proc: &Proc, server: &Instance) -> Self {
        let pids: Vec<Pid> = server.family.members.iter().map(|member| member.entry.pid).collect();
        let root = server.family.root.pid;
        let sockets = Sockets::read(proc, &pids);
        let wanted: Vec<Socket> =
            adopt(server.family.engine, &sockets, &server.roles(), &mut ConnIds::default())
                .into_iter()
                .filter(|adoption| adoption.verdict == Verdict::Payload)
                .map(|adoption| adoption.conn.socket)
                .collect();
        let engine_conns = wanted.iter().filter(|socket| is_engine(socket)).count();
        let api_servers = server.family.with_roles(&[Role::ApiServer]);
        Self {
            unreadable: sockets.unreadable.iter().map(|(pid, _)| *pid).collect(),
            engine_conns,
            client_conns: wanted.len() - engine_conns,
            pairs_known: sockets.pairs_known,
            seccomp: proc.status_number(root, "Seccomp:"),
            io_uring: api_servers.iter().any(|&pid| proc.holds(pid, "anon_inode:[io_uring]")),
            other_pids: proc.namespace_pid(root).is_some_and(|inner| inner != root),
            forwards: forwards(proc, server),
            collector: collector(proc, server),
            tls: api_servers.first().filter(|_| server.launch.tls).map(|&pid| tls::find(proc, pid)),
        }
    }
}

/// Of SGLang's first scheduler; the others run the same code.
fn forwards(proc: &Proc, server: &Instance) -> Option<Result<String, String>> {
    let schedulers = match server.family.engine {
        Engine::Vllm => return None,
        Engine::Sglang => server.family.with_roles(&[Role::EngineCore]),
    };
    let found = marks::find(proc, *schedulers.first()?).map_err(|error| error.to_string());
    let name = |place: &marks::Place| format!("{}: {}", place.function.symbol, place.function.what);
    Some(found.map(|places| places.iter().map(name).collect::<Vec<_>>().join("; ")))
}

/// Of its first process that requests wait for; the others run the same interpreter.
fn collector(proc: &Proc, server: &Instance) -> Option<Result<String, String>> {
    let pids = server.family.with_roles(&[Role::ApiServer, Role::EngineCore]);
    let found = gc::find(proc, *pids.first()?);
    Some(
        found.map(|found| {
            format!("{} of {}, {} breakpoints", found.name, found.path.display(), found.probes())
        }),
    )
}

fn is_engine(socket: &Socket) -> bool {
    match socket {
        Socket::Unix { .. } => true,
        Socket::Tcp { .. } | Socket::Log | Socket::Other => false,
    }
}

/// What stands for and against attaching on this machine.
#[must_use]
pub fn machine() -> Vec<Finding> {
    of_support(&Support::probe())
}

/// The kernel programs that would be used.
#[must_use]
pub fn probes() -> Vec<Probe> {
    let view = |&Program { name, hook, purpose, cost }: &Program| Probe {
        name,
        hook,
        purpose,
        cost: cost.describe(),
    };
    PROGRAMS.iter().map(view).collect()
}

/// Whether waits for a CPU will be told.
#[must_use]
pub fn waits() -> Finding {
    of_waits(waits::are_counted())
}

fn of_waits(counted: bool) -> Finding {
    if counted {
        return ok(
            "waits",
            "for a CPU, for the cgroup's quota and for pages: read ten times a second, no kernel program",
        );
    }
    limited(
        "waits",
        "this kernel does not count what threads wait for a CPU: a starved server shows as unexplained",
        "run a kernel with CONFIG_SCHED_INFO",
    )
}

/// What will be told of the machine's GPUs.
#[must_use]
pub fn gpus(source: &gpu::Source) -> Finding {
    if *source == gpu::Source::None {
        return ok("GPUs", "not looked at (--nvml none)");
    }
    of_gpus(gpu::look(source))
}

fn of_gpus(found: Result<(Option<String>, Vec<String>), Absent>) -> Finding {
    match found {
        Ok((driver, models)) => {
            let driver = driver.unwrap_or_else(|| "of unknown version".to_owned());
            let models = if models.is_empty() { "none".to_owned() } else { models.join(", ") };
            ok("GPUs", format!("{models}; driver {driver}, read by NVML once a second, outside the target"))
        }
        // A server on the CPU is an ordinary one.
        Err(absent @ (Absent::NoLibrary | Absent::NoDriver)) => ok("GPUs", absent.to_string()),
        Err(absent @ (Absent::Unloadable { .. } | Absent::Refused(_))) => {
            limited("GPUs", absent.to_string(), "`nvidia-smi` says more; attaching works without")
        }
    }
}

fn of_support(support: &Support) -> Vec<Finding> {
    let mut findings: Vec<Finding> = support
        .obstacles()
        .into_iter()
        .map(|obstacle| bad("machine", obstacle.what, obstacle.next))
        .collect();
    if findings.is_empty() {
        let lockdown = support.lockdown.as_deref().unwrap_or("none");
        findings.push(ok("kernel", format!("Linux {}, lockdown {lockdown}", support.release)));
        findings.push(ok("rights", "kernel programs may be loaded, other users' processes looked at"));
        let btf = if support.btf { "present" } else { "absent" };
        findings.push(ok("BTF", format!("{btf} (no program needs it)")));
    }
    if support.jit == Some(false) {
        findings.push(limited(
            "JIT",
            "the kernel interprets its programs: several times the overhead",
            "sysctl net.core.bpf_jit_enable=1",
        ));
    }
    findings
}

/// What stands for and against attaching to this server.
#[must_use]
pub fn of_target(server: &Instance, target: &Target) -> Vec<Finding> {
    let mut findings = vec![engine(server)];
    match server.family.engine {
        Engine::Vllm => findings.push(messages(server)),
        Engine::Sglang => findings.extend(sglang::of(server)),
    }
    findings.extend(target.forwards.as_ref().map(marked));
    findings.extend(target.collector.as_ref().map(collected));
    findings.extend(sockets(server, target));
    findings.extend(flags(server));
    findings.extend(target.tls.as_ref().map(encrypted));
    findings.push(seccomp(target));
    if target.io_uring {
        findings.push(ok("io_uring", "in use for polling (libuv); HTTP still moves by read and write"));
    }
    if target.other_pids {
        findings.push(ok("container", "other PID namespace; pids here are the machine's"));
    }
    findings.push(match &server.tokenizer {
        Some(file) => ok("tokenizer", format!("{} (token texts at --level 2)", file.path.display())),
        None => limited(
            "tokenizer",
            "no tokenizer.json found: at --level 2, token ids without texts where nothing was streamed",
            "",
        ),
    });
    findings
}

fn marked(forwards: &Result<String, String>) -> Finding {
    match forwards {
        Ok(places) => ok("forwards", format!("{places}; {}", CostClass::PerForward.describe())),
        Err(why) => limited(
            "forwards",
            format!("not marked: {why}; steps that no message tells of are not seen"),
            "still starting? Attach already: the library is looked for as it is loaded",
        ),
    }
}

fn collected(collector: &Result<String, String>) -> Finding {
    match collector {
        Ok(place) => ok("garbage", format!("collections are timed with --gc ({place})")),
        Err(why) => limited(
            "garbage",
            format!("collections cannot be timed: {why}; a pause shows as unexplained"),
            "run a Python with its symbols",
        ),
    }
}

fn engine(server: &Instance) -> Finding {
    let name = server.family.engine.name();
    let version = server.version().unwrap_or("of unknown version");
    match server.family.engine {
        Engine::Sglang => ok("engine", format!("{name} {version}")),
        Engine::Vllm if server.v0 => ok("engine", format!("{name} {version}, V0")),
        Engine::Vllm => ok("engine", format!("{name} {version}, V1")),
    }
}

fn messages(server: &Instance) -> Finding {
    let package = server.package.as_ref();
    match (package.and_then(|it| it.schema.as_ref()), server.version().and_then(Schema::for_version)) {
        (Some(Schema { request, output, outputs, .. }), _) => ok(
            "messages",
            format!(
                "field orders read from the installed package ({}, {} and {} fields)",
                request.len(),
                output.len(),
                outputs.len()
            ),
        ),
        (None, Some(_)) => ok("messages", "field orders from the table of known versions"),
        (None, None) => limited(
            "messages",
            "field orders not found in the package: fields are told by their shape",
            "as root, check that the package's v1/engine/__init__.py is readable",
        ),
    }
}

fn sockets(server: &Instance, target: &Target) -> Vec<Finding> {
    if !target.unreadable.is_empty() {
        let pids: Vec<String> = target.unreadable.iter().map(|pid| pid.0.to_string()).collect();
        return vec![bad(
            "sockets",
            format!("descriptors of pid {} may not be read", pids.join(", ")),
            "run as root, or add the capability SYS_PTRACE",
        )];
    }
    let Target { engine_conns, client_conns, pairs_known, .. } = target;
    let seen = format!("{engine_conns} to the engine, {client_conns} other (clients)");
    let mut findings = vec![match (engine_conns, server.launch.in_process) {
        (_, true) if server.v0 => limited(
            "sockets",
            "the engine runs inside the API server, with no socket between: its objects are read, once it has worked",
            "start it without --disable-frontend-multiprocessing to have its messages too",
        ),
        (_, true) => limited(
            "sockets",
            "the engine runs inside the API server, with no socket between: HTTP spans only",
            "start it without --disable-frontend-multiprocessing, VLLM_ENABLE_V1_MULTIPROCESSING=0",
        ),
        (0, false) => limited(
            "sockets",
            format!("{seen}: no engine connection yet"),
            "still starting? Attach already: connections are seen as they are made",
        ),
        (_, false) => ok("sockets", seen),
    }];
    if !pairs_known {
        findings.push(limited(
            "peers",
            "the kernel does not tell which Unix sockets belong together (no unix_diag)",
            "modprobe unix_diag",
        ));
    }
    findings
}

fn flags(server: &Instance) -> Vec<Finding> {
    let launch = &server.launch;
    let mut findings = Vec::new();
    if server.family.engine == Engine::Vllm && launch.stats_off {
        findings.push(limited(
            "statistics",
            "--disable-log-stats: queue time is estimated, running/waiting/KV cache metrics are missing",
            "start it without that flag for exact queue times",
        ));
    }
    if let Some(endpoint) = &launch.tracing {
        findings.push(ok("tracing", format!("the engine's own tracing is on, to {endpoint}; both can run")));
    }
    if server.family.with_roles(&[Role::ApiServer]).is_empty() {
        findings.push(limited(
            "frontend",
            "no API server on this machine: engine spans only",
            "attach on the API server's machine too for entry spans",
        ));
    }
    findings
}

/// Where the plain text of TLS is taken, and by how many breakpoints.
fn encrypted(found: &Result<Vec<Library>, String>) -> Finding {
    let libraries = match found {
        Ok(libraries) => libraries,
        Err(reason) => {
            return limited(
                "TLS",
                format!(
                    "the plain text of HTTPS cannot be seen ({reason}): no entry spans, engine spans are whole"
                ),
                "run a Python with its symbols and OpenSSL as a library, or terminate TLS in front of the server",
            );
        }
    };
    let shown: Vec<String> = libraries
        .iter()
        .map(|library| format!("{} of {}", library.names(), library.path.display()))
        .collect();
    let probes: usize = libraries.iter().map(Library::probes).sum();
    ok(
        "TLS",
        format!(
            "{} ({probes} breakpoints, {}; no return probe)",
            shown.join("; "),
            CostClass::PerTlsCall.describe()
        ),
    )
}

fn seccomp(target: &Target) -> Finding {
    let mode = match target.seccomp {
        Some(0) => "none",
        Some(1) => "strict",
        Some(2) => "filter",
        Some(_) | None => "unknown",
    };
    ok("seccomp", format!("{mode}; does not matter: tracepoints and breakpoints run outside the target"))
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
