//! An inference server with all that is known of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use enginetap_core::capture::fact::{self, Engine, Role};
use enginetap_core::ids::{Pid, ServerId};

use super::identity::{is_python, launch};
use super::launch::{Launch, config_file};
use super::package::{self, Package};
use super::place::{Place, place};
use super::proc::{Entry, Environ, Proc};
use super::sockets::{End, Sockets};
use super::target::Root;
use super::tokenizer::{self, Tokenizer};
use super::tree::{Family, Tree};

/// Most bytes read of an engine's configuration file.
const CONFIG_LIMIT: u64 = 1024 * 1024;

/// What is seen of an SGLang whose frontend is Rust code inside its scheduler, and what is not.
pub const RUST_SERVER: &str = "SGLANG_RUST_SERVER=1: HTTP, tokenizer and scheduler are one process with no messages \
    between: seen are HTTP, the scheduler's objects and state; not seen are the stages tokenize and api_server_dispatch, \
    and the moments at which tokens reach the frontend";

/// An inference server.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its processes and their roles.
    pub family: Family,
    /// What it was told.
    pub launch: Launch,
    /// TCP addresses that it serves on.
    pub listening: BTreeSet<SocketAddr>,
    /// The engine's package.
    pub package: Option<Package>,
    /// The model's tokenizer file.
    pub tokenizer: Option<Tokenizer>,
    /// Where it runs.
    pub place: Place,
    /// Whether it runs vLLM's V0 engine.
    pub v0: bool,
    /// Whether its processes may be looked into: else little is known of it.
    pub readable: bool,
    /// What its environment says of itself as a source of telemetry.
    said: Said,
}

/// What the target's environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    service: Option<String>,
    pod: Option<String>,
    namespace: Option<String>,
    /// Its host's `/etc/machine-id`, as SGLang's own tracing names the host.
    host_id: Option<String>,
}

/// All servers of the machine, as far as the process table shows them: the quick part of finding them.
///
/// # Errors
/// When the process table cannot be read.
pub fn families(proc: &Proc) -> io::Result<Vec<Family>> {
    Ok(families_of(proc, &proc.table()?))
}

/// The servers of a process table that was read already.
#[must_use]
pub fn families_of(proc: &Proc, table: &[Entry]) -> Vec<Family> {
    Tree::new(table).families(&|pid| serves(proc, table, pid))
}

/// Whether a process listens as a frontend does. Asked only where titles do not tell roles.
///
/// vLLM binds the port in its top process and hands the socket down to its Python frontends, while an engine may listen on
/// sockets of its own (torch's store, gloo's); a frontend that is no Python program may bind its port itself.
fn serves(proc: &Proc, table: &[Entry], pid: Pid) -> bool {
    let Some(entry) = table.iter().find(|entry| entry.pid == pid) else { return false };
    let sockets = Sockets::read(proc, &[pid, entry.parent]);
    let listening = |of: Pid| -> BTreeSet<_> {
        let of = sockets.list().iter().filter(|socket| socket.pid == of);
        of.filter_map(|socket| match socket.end {
            End::TcpListener(_) => Some(socket.inode),
            // Engines bind Unix sockets of their own; a frontend that serves HTTP on one has a title.
            End::UnixListener(_) | End::Tcp { .. } | End::Unix { .. } | End::Other => None,
        })
        .collect()
    };
    if entry.argv.first().is_some_and(|program| is_python(program)) {
        return !listening(pid).is_disjoint(&listening(entry.parent));
    }
    !listening(pid).is_empty()
}

impl Instance {
    /// Finds out all about a server.
    #[must_use]
    pub fn of(proc: &Proc, family: Family) -> Self {
        let root = family.root.pid;
        let environ = proc.environ(root);
        let launch = told(proc, &family, &environ);
        let package = package::find(proc, family.engine, &engine_first(&family));
        let frontends = family.with_roles(&[Role::ApiServer, Role::Supervisor]);
        let sockets = Sockets::read(proc, &frontends);
        Self {
            v0: family.engine == Engine::Vllm && runs_v0(package.as_ref(), &environ),
            readable: sockets.unreadable.is_empty(),
            listening: frontends.iter().flat_map(|&pid| sockets.listening(pid)).collect(),
            tokenizer: tokenizer::find(proc, root, &launch),
            place: place(proc, root),
            said: Said::read(&environ, Root::of(proc, root).ok().as_ref()),
            family,
            launch,
            package,
        }
    }

    /// Its engine's version.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.package.as_ref()?.version.as_deref()
    }

    /// The address that HTTP is served on, where one stands out: the port that was asked for, or the only one.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        let default = match self.family.engine {
            Engine::Vllm => 8000,
            Engine::Sglang => 30_000,
        };
        let port = self.launch.port.unwrap_or(default);
        let asked = self.listening.iter().find(|address| address.port() == port);
        asked.or_else(|| self.listening.first().filter(|_| self.listening.len() == 1)).copied()
    }

    /// The roles of its processes.
    #[must_use]
    pub fn roles(&self) -> BTreeMap<Pid, Role> {
        self.family.members.iter().map(|member| (member.entry.pid, member.role)).collect()
    }

    /// The server as a fact. `host` is the machine's name.
    #[must_use]
    pub fn fact(&self, id: ServerId, host: &str) -> fact::Server {
        fact::Server {
            id,
            engine: self.family.engine,
            version: self.version().map(str::to_owned),
            models: self.launch.models(),
            schema: self.package.as_ref().and_then(|package| package.schema.clone()),
            resource: self.resource(host),
            sglang: self.launch.sglang.clone(),
            v0: self.v0,
        }
    }

    /// Its processes as facts.
    #[must_use]
    pub fn process_facts(&self, id: ServerId) -> Vec<fact::Process> {
        self.family.members.iter().map(|member| member.fact(id)).collect()
    }

    /// OTLP resource attributes. The command line is left out: it may hold API keys.
    fn resource(&self, host: &str) -> Vec<(String, String)> {
        let Said { service, pod, namespace, host_id } = &self.said;
        let engine = self.family.engine.name();
        let root = self.family.root.pid.0;
        let in_pod = self.place.pod.is_some();
        let attributes = [
            ("service.name", Some(service.clone().unwrap_or_else(|| engine.to_owned()))),
            ("service.version", self.version().map(str::to_owned)),
            ("service.instance.id", Some(format!("{host}:{root}"))),
            ("host.name", Some(host.to_owned())),
            ("host.id", host_id.clone()),
            ("process.pid", Some(root.to_string())),
            ("process.executable.name", self.family.top().map(|top| top.entry.comm.clone())),
            ("container.id", self.place.container.clone()),
            ("k8s.pod.uid", self.place.pod.clone()),
            ("k8s.pod.name", pod.clone().filter(|_| in_pod)),
            ("k8s.namespace.name", namespace.clone().filter(|_| in_pod)),
            ("engine.name", Some(engine.to_owned())),
            ("engine.version", self.version().map(str::to_owned)),
        ];
        attributes.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

impl Said {
    fn read(environ: &Environ, root: Option<&Root>) -> Self {
        let any = |names: &[&str]| names.iter().find_map(|name| environ.get(name)).map(str::to_owned);
        Self {
            service: any(&["OTEL_SERVICE_NAME"]),
            // Kubernetes sets a pod's host name to its own name unless told otherwise.
            pod: any(&["POD_NAME", "HOSTNAME"]),
            namespace: any(&["POD_NAMESPACE"]),
            host_id: root.and_then(machine_id),
        }
    }
}

/// The machine's id, as the target sees it: 32 hexadecimal digits.
fn machine_id(root: &Root) -> Option<String> {
    let text = root.text(Path::new("/etc/machine-id"), CONFIG_LIMIT)?;
    let id = text.trim();
    (id.len() == 32 && id.bytes().all(|c| c.is_ascii_hexdigit())).then(|| id.to_owned())
}

/// What the server was told by its command line, configuration file and environment.
fn told(proc: &Proc, family: &Family, environ: &Environ) -> Launch {
    let Some(top) = family.top() else { return Launch::default() };
    let Some((engine, args)) = launch(&top.entry.argv) else { return Launch::default() };
    let config = config_file(args).and_then(|name| {
        let root = Root::of(proc, top.entry.pid).ok()?;
        let cwd = root.inside(&proc.link(top.entry.pid, "cwd")?);
        root.text(&cwd.join(name), CONFIG_LIMIT)
    });
    let mut launch = Launch::read(engine, args, config.as_deref());
    launch.in_process |= environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == Some("0");
    if let Some(sglang) = &mut launch.sglang {
        sglang.rust_server = environ.get("SGLANG_RUST_SERVER").is_some_and(is_true);
    }
    launch
}

/// What SGLang's `EnvBool` takes for yes (`sglang/srt/environ.py`).
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "y")
}

/// A server in a word or two, by its command line alone: `vllm org/model`.
#[must_use]
pub fn label(family: &Family) -> String {
    let args = family.top().and_then(|top| launch(&top.entry.argv));
    let model = args.and_then(|(engine, args)| Launch::read(engine, args, None).models().into_iter().next());
    match model {
        Some(model) => format!("{} {model}", family.engine.name()),
        None => family.engine.name().to_owned(),
    }
}

/// Processes in the order in which they are likely to have the engine's libraries mapped.
fn engine_first(family: &Family) -> Vec<Pid> {
    let order =
        [Role::EngineCore, Role::Worker, Role::ApiServer, Role::Supervisor, Role::Coordinator, Role::Other];
    let mut pids: Vec<Pid> = order.iter().flat_map(|&role| family.with_roles(&[role])).collect();
    // The top process names the interpreter by its command line, which titles overwrite.
    pids.insert(usize::from(!pids.is_empty()), family.root.pid);
    pids
}

/// V0 was the default up to 0.7 and could be asked for up to 0.10.
fn runs_v0(package: Option<&Package>, environ: &Environ) -> bool {
    let version = package.and_then(|package| package.version.as_deref()).unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten(), environ.get("VLLM_USE_V1")) {
        (Some(0), Some(..=7), asked) => asked != Some("1"),
        (Some(0), Some(8..=10), asked) => asked == Some("0"),
        (Some(_), _, _) | (None, _, _) => false,
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
