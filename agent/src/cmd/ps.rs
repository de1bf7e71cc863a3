//! `enginetap ps`: the inference servers of this machine.

use std::fmt::Write;

use anyhow::{Context, Result};
use enginetap_core::capture::fact::{Engine, Role};
use serde::Serialize;

use crate::cli::Ps;
use crate::discover::proc::Proc;
use crate::discover::server::{self, Instance};
use crate::discover::tree::Origin;
use crate::exit::Exit;

/// Runs `enginetap ps` to its end.
///
/// # Errors
/// When the process table cannot be read.
pub fn run(args: &Ps) -> Result<Exit> {
    let servers = views(&Proc::system())?;
    let text = if args.json { json(&servers)? } else { table(&servers) };
    print!("{text}");
    Ok(Exit::Done)
}

/// A server as `ps` and `check` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    /// Top process.
    pub pid: u32,
    /// Engine's name.
    pub engine: &'static str,
    /// Engine's version.
    pub version: Option<String>,
    /// Names that the API answers to.
    pub models: Vec<String>,
    /// Tensor, pipeline and data parallel sizes.
    pub parallel: Parallel,
    /// Address that HTTP is served on.
    pub http: Option<String>,
    /// Every TCP address the API servers listen on.
    pub listening: Vec<String>,
    /// Container id.
    pub container: Option<String>,
    /// Whether the engine's statistics are off the wire (`--disable-log-stats`).
    pub stats_off: bool,
    /// Endpoint of the engine's own tracing.
    pub tracing: Option<String>,
    /// Whether, and how, it can be attached to.
    pub attach: Attachable,
    /// Its processes.
    pub processes: Vec<ProcessView>,
}

/// Parallelism, as far as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parallel {
    /// Tensor parallel size.
    pub tensor: u32,
    /// Pipeline parallel size.
    pub pipeline: u32,
    /// Data parallel size.
    pub data: u32,
    /// API server processes that run.
    pub api_servers: usize,
}

/// Whether a server can be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachable {
    /// Requests and the engine's inside.
    Yes,
    /// HTTP only: the engine runs inside the API server and talks over no socket.
    HttpOnly,
    /// Its processes are still coming up; it can be attached to already.
    Starting,
    /// Not by this user: its processes may not be looked into.
    NeedsRights,
}

/// A process of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessView {
    /// Its id.
    pub pid: u32,
    /// Its id inside its container, where that differs.
    pub namespace_pid: Option<u32>,
    /// What it does.
    pub role: &'static str,
    /// Its title.
    pub title: String,
}

/// Every server as `ps` shows it.
///
/// # Errors
/// When the process table cannot be read.
pub fn views(proc: &Proc) -> Result<Vec<View>> {
    let families = server::families(proc).context("reading the process table (/proc)")?;
    Ok(families.into_iter().map(|family| View::of(proc, &Instance::of(proc, family))).collect())
}

impl View {
    /// A server as `ps` shows it.
    #[must_use]
    pub fn of(proc: &Proc, server: &Instance) -> Self {
        let launch = &server.launch;
        Self {
            pid: server.family.root.pid.0,
            engine: server.family.engine.name(),
            version: server.version().map(str::to_owned),
            models: launch.models(),
            parallel: Parallel {
                tensor: launch.tensor_parallel.unwrap_or(1),
                pipeline: launch.pipeline_parallel.unwrap_or(1),
                data: launch.data_parallel.unwrap_or(1),
                api_servers: server.family.with_roles(&[Role::ApiServer]).len(),
            },
            http: server.http().map(|address| address.to_string()).or_else(|| launch.uds.clone()),
            listening: server.listening.iter().map(ToString::to_string).collect(),
            container: server.place.container.clone(),
            stats_off: launch.stats_off,
            tracing: launch.tracing.clone(),
            attach: Attachable::of(server),
            processes: processes(proc, server),
        }
    }

    fn parallelism(&self) -> String {
        let Parallel { tensor, pipeline, data, api_servers } = self.parallel;
        let api_servers = u32::try_from(api_servers).unwrap_or(u32::MAX);
        let sizes = [("tp", tensor), ("pp", pipeline), ("dp", data), ("api", api_servers)];
        let shown: Vec<String> =
            sizes.iter().filter(|(_, size)| *size > 1).map(|(name, size)| format!("{name}{size}")).collect();
        if shown.is_empty() { "-".to_owned() } else { shown.join(" ") }
    }
}

impl Attachable {
    /// Whether a server can be attached to.
    #[must_use]
    pub fn of(server: &Instance) -> Self {
        let no_engine = server.family.with_roles(&[Role::EngineCore]).is_empty();
        match (server.family.engine, server.family.root.origin) {
            (Engine::Vllm | Engine::Sglang, _) if !server.readable => Self::NeedsRights,
            (Engine::Vllm, _) if server.launch.in_process && !server.v0 => Self::HttpOnly,
            (Engine::Vllm | Engine::Sglang, Origin::Launched) if no_engine && !server.launch.in_process => {
                Self::Starting
            }
            (Engine::Vllm | Engine::Sglang, Origin::Launched | Origin::Embedded | Origin::Orphan) => {
                Self::Yes
            }
        }
    }

    /// In a few words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::HttpOnly => "HTTP only",
            Self::Starting => "starting",
            Self::NeedsRights => "as root",
        }
    }
}

/// A role's name.
#[must_use]
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::ApiServer => "api_server",
        Role::EngineCore => "engine_core",
        Role::Worker => "worker",
        Role::Coordinator => "coordinator",
        Role::Supervisor => "supervisor",
        Role::Other => "other",
    }
}

fn processes(proc: &Proc, server: &Instance) -> Vec<ProcessView> {
    let facts = server.process_facts(enginetap_core::ids::ServerId(0));
    let view = |fact: enginetap_core::capture::fact::Process| ProcessView {
        pid: fact.pid.0,
        namespace_pid: proc.namespace_pid(fact.pid).filter(|inner| *inner != fact.pid).map(|inner| inner.0),
        role: role_name(fact.role),
        title: fact.title,
    };
    facts.into_iter().map(view).collect()
}

fn json(servers: &[View]) -> Result<String> {
    #[derive(Serialize)]
    struct Servers<'a> {
        servers: &'a [View],
    }
    Ok(serde_json::to_string_pretty(&Servers { servers })? + "\n")
}

const HEADINGS: [&str; 7] = ["PID", "ENGINE", "VERSION", "MODEL", "PARALLEL", "HTTP", "ATTACH"];

fn table(servers: &[View]) -> String {
    if servers.is_empty() {
        return "No inference server runs here (or none that this user may see: try as root).\n".to_owned();
    }
    let mut rows: Vec<[String; 7]> = vec![HEADINGS.map(str::to_owned)];
    rows.extend(servers.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        if let Some(server) = at.checked_sub(1).and_then(|at| servers.get(at)) {
            for line in below(server) {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    text
}

fn row(server: &View) -> [String; 7] {
    let known = |text: Option<&String>| text.cloned().unwrap_or_else(|| "?".to_owned());
    [
        server.pid.to_string(),
        server.engine.to_owned(),
        known(server.version.as_ref()),
        known(server.models.first()),
        server.parallelism(),
        server.http.clone().unwrap_or_else(|| "-".to_owned()),
        server.attach.describe().to_owned(),
    ]
}

/// What stands under a server's row: its other names, its container, its processes.
fn below(server: &View) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(names) = server.models.get(1..).filter(|names| !names.is_empty()) {
        lines.push(format!("also answers to {}", names.join(", ")));
    }
    if let Some(container) = &server.container {
        lines.push(format!("container {}", container.get(..12).unwrap_or(container)));
    }
    // Helpers without a title (multiprocessing's own) say nothing to people.
    let tells =
        |process: &&ProcessView| process.role != role_name(Role::Other) || process.title.contains("::");
    let processes = server.processes.iter().filter(tells);
    lines.extend(processes.map(|process| {
        let inner = process.namespace_pid.map(|pid| format!(" ({pid} in its container)")).unwrap_or_default();
        format!("{:<8} {:<12} {}{inner}", process.pid, process.role, process.title)
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> View {
        View {
            pid: 4242,
            engine: "vllm",
            version: Some("0.32.0".to_owned()),
            models: vec!["tiny".to_owned(), "small".to_owned()],
            parallel: Parallel { tensor: 2, pipeline: 1, data: 2, api_servers: 2 },
            http: Some("0.0.0.0:8000".to_owned()),
            listening: vec!["0.0.0.0:8000".to_owned()],
            container: Some("ab".repeat(32)),
            stats_off: false,
            tracing: None,
            attach: Attachable::Yes,
            processes: vec![
                ProcessView {
                    pid: 4242,
                    namespace_pid: Some(1),
                    role: "supervisor",
                    title: "vllm".to_owned(),
                },
                ProcessView { pid: 4243, namespace_pid: None, role: "other", title: "python".to_owned() },
                ProcessView {
                    pid: 4244,
                    namespace_pid: None,
                    role: "engine_core",
                    title: "VLLM::EngineCore_DP0".to_owned(),
                },
            ],
        }
    }

    #[test]
    fn the_table_shows_each_server_with_its_processes() {
        let expected = "\
PID   ENGINE  VERSION  MODEL  PARALLEL      HTTP          ATTACH
4242  vllm    0.32.0   tiny   tp2 dp2 api2  0.0.0.0:8000  yes
  also answers to small
  container abababababab
  4242     supervisor   vllm (1 in its container)
  4244     engine_core  VLLM::EngineCore_DP0
";
        assert_eq!(table(&[server()]), expected);
    }

    #[test]
    fn what_is_not_known_is_said_so() {
        let unknown = View {
            version: None,
            models: Vec::new(),
            parallel: Parallel { tensor: 1, pipeline: 1, data: 1, api_servers: 1 },
            http: None,
            container: None,
            attach: Attachable::Starting,
            processes: Vec::new(),
            ..server()
        };
        assert!(table(&[unknown]).ends_with("4242  vllm    ?        ?      -         -     starting\n"));
    }

    #[test]
    fn no_server_is_a_sentence_and_an_empty_list() {
        assert!(table(&[]).starts_with("No inference server"));
        assert_eq!(json(&[]).unwrap(), "{\n  \"servers\": []\n}\n");
        let value: serde_json::Value = serde_json::from_str(&json(&[server()]).unwrap()).unwrap();
        assert_eq!(value["servers"][0]["processes"][2]["role"], "engine_core");
        assert_eq!(value["servers"][0]["attach"], "yes");
    }
}
