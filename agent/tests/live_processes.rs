//! Discovery on real processes: small Python programs that carry an engine's titles and talk over its sockets.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use enginetap::discover::adopt::{ConnIds, adopt};
use enginetap::discover::find::server_at;
use enginetap::discover::proc::Proc;
use enginetap::discover::server::{Instance, families_of};
use enginetap::discover::sockets::Sockets;
use enginetap::discover::watch::{Change, Watch, rescan};
use enginetap_common::watch::Verdict;
use enginetap_core::capture::fact::{Role, Socket};
use enginetap_core::ids::Pid;
use enginetap_core::time::MonoTime;

/// An API server: listens on TCP for clients and on a Unix socket for its engine, which connects.
const SERVER: &str = r#"
import os, socket, sys
path = sys.argv[-1]
tcp = socket.create_server(("0.0.0.0", 0))
ipc = socket.socket(socket.AF_UNIX)
ipc.bind(path)
ipc.listen()
engine = os.fork()
if engine == 0:
    code = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); time.sleep(120)"
    os.execv(sys.executable, ["VLLM::EngineCore", "-c", code, path])
conn, _ = ipc.accept()
own = socket.socketpair()
print(tcp.getsockname()[1], engine, flush=True)
sys.stdin.read()
"#;

/// The running processes. Dropping it ends them.
struct Server {
    top: Child,
    engine: Pid,
    port: u16,
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Server {
    /// `wrapper`: a command to run it under, which must replace itself. `None` where there is no Python.
    fn start(wrapper: &[&str], name: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipc");
        let words: Vec<&str> =
            wrapper.iter().copied().chain(["python3", "-c", SERVER, "/v/bin/vllm", "serve"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args([name, "--config"]).arg(&path);
        let mut top = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((port, engine)) = line.trim().split_once(' ') else {
            let _ = top.kill();
            let _ = top.wait();
            return None;
        };
        let (port, engine) = (port.parse().unwrap(), Pid(engine.parse().unwrap()));
        Some(Self { top, engine, port, _folder: folder, path })
    }

    fn root(&self) -> Pid {
        Pid(self.top.id())
    }

    fn instance(&self, pid: Pid) -> Instance {
        let proc = Proc::system();
        let table = proc.table().unwrap();
        let families = families_of(&proc, &table);
        Instance::of(&proc, server_at(&families, &table, pid).unwrap().clone())
    }

    fn end_engine(&self) {
        let pid = self.engine.0.to_string();
        let _ = Command::new("kill").args(["-9", &pid]).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end_engine();
        let _ = self.top.kill();
        let _ = self.top.wait();
    }
}

/// A Unix connection: the path it is bound to, and who is at its other end.
type Conn = (Option<String>, Option<Pid>);

/// The Unix connections by process and by whether they are captured.
fn connections(server: &Instance) -> BTreeMap<(Pid, bool), Vec<Conn>> {
    let roles = server.roles();
    let pids: Vec<Pid> = roles.keys().copied().collect();
    let sockets = Sockets::read(&Proc::system(), &pids);
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for adoption in adopt(server.family.engine, &sockets, &roles, &mut ConnIds::default()) {
        if let Socket::Unix { local, peer_pid, .. } = adoption.conn.socket {
            let key = (adoption.conn.pid, adoption.verdict == Verdict::Payload);
            found.entry(key).or_default().push((local, peer_pid));
        }
    }
    found
}

fn check_sockets(server: &Server) {
    let instance = server.instance(server.engine);
    assert_eq!(instance.family.root.pid, server.root());
    assert_eq!(instance.roles()[&server.engine], Role::EngineCore);
    assert_eq!(instance.http().unwrap().port(), server.port);
    let found = connections(&instance);
    let path = Some(server.path.to_string_lossy().into_owned());
    assert_eq!(
        found[&(server.root(), true)],
        [(path, Some(server.engine))],
        "captured at the API server's end"
    );
    assert_eq!(found[&(server.engine, false)], [(None, Some(server.root()))], "ignored at the engine's");
    assert!(found[&(server.root(), false)].len() >= 2, "the API server's own pair is ignored");
}

#[test]
fn a_server_is_found_from_any_process_with_its_port_and_its_engines_connection() {
    let Some(server) = Server::start(&[], "model-a") else { return eprintln!("no python3: not tested") };
    check_sockets(&server);
    assert_eq!(server.instance(server.root()).launch.models(), ["model-a"]);
}

#[test]
fn sockets_of_another_network_namespace_are_told_apart() {
    let Some(server) = Server::start(&["unshare", "--net"], "model-b") else {
        return eprintln!("no python3, or no right to make a network namespace: not tested");
    };
    check_sockets(&server);
}

#[test]
fn an_engine_that_dies_leaves_its_server() {
    let Some(server) = Server::start(&[], "model-c") else { return eprintln!("no python3: not tested") };
    let proc = Proc::system();
    let (mut watch, found) = Watch::chosen(&[server.instance(server.engine).family]);
    assert!(matches!(found.as_slice(), [Change::Found { .. }]));
    assert_eq!(rescan(&proc, &mut watch, MonoTime(1)).unwrap(), []);
    server.end_engine();
    let since = Instant::now();
    // Killed, it stays a zombie with its title until its parent asks for it; here the parent never does.
    while proc.entry(server.engine).is_ok_and(|entry| !entry.argv.is_empty()) {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    let changes = rescan(&proc, &mut watch, MonoTime(2)).unwrap();
    assert!(
        changes.iter().any(|it| matches!(it, Change::Left { pid, .. } if *pid == server.engine)),
        "{changes:?}"
    );
}
