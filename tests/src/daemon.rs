//! `enginetap run` as a process of its own, and servers that are none: small programs with an engine's titles, which
//! refuse every request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Most time for anything to come true; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent to test: `cargo xtask test` names it.
///
/// # Errors
/// When nobody named one.
pub fn agent() -> Result<PathBuf> {
    std::env::var_os("ENGINETAP_BIN")
        .map(PathBuf::from)
        .context("ENGINETAP_BIN is not set: use `cargo xtask test`")
}

/// A running daemon. It ends with the value.
pub struct Daemon {
    child: Child,
    stderr: Option<JoinHandle<String>>,
    folder: TempDir,
    /// Where it serves metrics and health.
    pub address: String,
}

impl Daemon {
    /// Starts one with this configuration; its outputs, its metrics and its socket are set up besides.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(config: &str, environment: &[(&str, &str)]) -> Result<Self> {
        Self::start_under(&[], config, environment)
    }

    /// Starts one under another program, which becomes it.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start_under(wrapper: &[&str], config: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("config.toml"), config)?;
        let address = free_address()?;
        let agent = agent()?.display().to_string();
        let words: Vec<&str> = wrapper.iter().copied().chain([agent.as_str()]).collect();
        let (program, rest) = words.split_first().context("no program")?;
        let mut command = Command::new(program);
        command.args(rest).args(["--log", "info", "run", "--config"]).arg(folder.path().join("config.toml"));
        command.arg("--set").arg(format!("output.prometheus={address}"));
        command.arg("--set").arg(format!("control.socket={}", folder.path().join("socket").display()));
        if !config.contains("output.otlp") {
            command
                .arg("--set")
                .arg(format!("output.otlp.file={}", folder.path().join("spans.jsonl").display()));
        }
        command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().map(|stderr| std::thread::spawn(move || read(stderr)));
        let mut daemon = Self { child, stderr, folder, address };
        daemon.wait("it to be ready", |daemon| {
            Ok(daemon.get("/readyz").is_ok_and(|answer| answer == "ok\n"))
        })?;
        Ok(daemon)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes its configuration anew, as an editor does: a new file in the old one's place.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_config(&self, text: &str) -> Result<()> {
        let new = self.folder.path().join("config.toml.new");
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(new, self.folder.path().join("config.toml"))?)
    }

    /// Runs `enginetap config` for it.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn config(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(agent()?);
        command.arg("config").args(words).arg("--socket").arg(self.folder.path().join("socket"));
        Ok(command.output()?)
    }

    /// The body that it answers with at a path.
    ///
    /// # Errors
    /// When it does not answer 200.
    pub fn get(&self, path: &str) -> Result<String> {
        let answer = http(&self.address, &format!("GET {path} HTTP/1.0\r\n\r\n"))?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
        ensure!(head.contains(" 200 "), "{head}");
        Ok(body.to_owned())
    }

    /// The sum of a metric's series.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let text = self.get("/metrics")?;
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Whether it follows the server of a process. Other servers of the machine do not matter.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn follows(&self, pid: u32) -> Result<bool> {
        Ok(self.config(&["show", "--target", &pid.to_string()])?.status.success())
    }

    /// Waits until it follows a server, or does so no more.
    ///
    /// # Errors
    /// When that does not come in a long time.
    pub fn wait_followed(&mut self, server: &FakeVllm, so: bool) -> Result<()> {
        let what = if so { "a server to be followed" } else { "a server to be let go" };
        self.wait(what, |daemon| Ok(daemon.follows(server.pid())? == so))
    }

    /// The spans it wrote so far.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn spans(&self) -> Result<Vec<Json>> {
        let text = std::fs::read_to_string(self.folder.path().join("spans.jsonl"))?;
        let mut spans = Vec::new();
        // The last line may be in the middle of being written.
        for line in text.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok()) {
            for resource in line["resourceSpans"].as_array().into_iter().flatten() {
                for scope in resource["scopeSpans"].as_array().into_iter().flatten() {
                    spans.extend(scope["spans"].as_array().into_iter().flatten().cloned());
                }
            }
        }
        Ok(spans)
    }

    /// Waits for something to come true.
    ///
    /// # Errors
    /// When it does not in a long time, or the daemon ends.
    pub fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if is_so(self)? {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the daemon ended with {status} while waiting for {what}: {}", self.told());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("waited in vain for {what}")
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Ends it; what it wrote on standard error.
    ///
    /// # Errors
    /// When it does not end well.
    pub fn end(mut self) -> Result<String> {
        self.signal(Signal::TERM)?;
        let status = self.child.wait()?;
        let told = self.told();
        ensure!(status.success(), "{status}: {told}");
        Ok(told)
    }

    /// Ends it as `kill -9` does.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn told(&mut self) -> String {
        self.stderr.take().and_then(|reading| reading.join().ok()).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut from: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An address of this machine that nothing listens at.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// One exchange over HTTP/1.0: the whole answer.
///
/// # Errors
/// When there is none.
pub fn http(address: &str, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Refuses every request, and says so in its log; looks like a vLLM to whoever looks at processes. Prints its port when it is ready.
const SERVER: &str = r#"
import os, socket, sys
path = sys.argv[-1]
tcp = socket.create_server(("127.0.0.1", 0))
ipc = socket.socket(socket.AF_UNIX)
ipc.bind(path)
ipc.listen()
engine = os.fork()
if engine == 0:
    tcp.close()
    code = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
    os.execv(sys.executable, ["VLLM::EngineCore", "-c", code, path])
conn, _ = ipc.accept()
print(tcp.getsockname()[1], flush=True)
forks = int(os.environ.get("FAKE_FORKS", "0"))
body = b'{"error":{"message":"no","type":"BadRequestError","code":400}}'
head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
while True:
    client, _ = tcp.accept()
    data = b""
    while b"\r\n\r\n" not in data or len(data.split(b"\r\n\r\n", 1)[1]) < int(data.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
        piece = client.recv(65536)
        if not piece:
            break
        data += piece
    if b'"user":"fork"' in data:
        for _ in range(forks):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    os.write(2, b"WARNING 11-30 17:00:00 [api.py:1] refusing a request\nDEBUG 11-30 17:00:00 [api.py:2] why\n")
    client.sendall(head + body)
    client.close()
"#;

/// Such a server. It ends with the value.
pub struct FakeVllm {
    top: Child,
    address: String,
    _folder: TempDir,
}

impl FakeVllm {
    /// Starts one, with this in its environment.
    ///
    /// # Errors
    /// When there is no Python.
    pub fn start(environment: &[(&str, &str)]) -> Result<Self> {
        Self::start_under(&[], environment)
    }

    /// Starts one under another program, which becomes it or starts it.
    ///
    /// # Errors
    /// When there is no Python, or no such program.
    pub fn start_under(wrapper: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let python = std::env::var("ENGINETAP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let words: Vec<&str> = wrapper.iter().copied().chain([python.as_str()]).collect();
        let (program, rest) = words.split_first().context("no program")?;
        let mut command = Command::new(program);
        command.args(rest).args(["-c", SERVER, "/v/bin/vllm", "serve", "m", "--config"]);
        command.arg(folder.path().join("ipc")).envs(environment.iter().copied());
        let mut top = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(top.stdout.take().context("no output")?).read_line(&mut line)?;
        let port: u16 = line.trim().parse().with_context(|| format!("no port: {line:?}"))?;
        Ok(Self { top, address: format!("127.0.0.1:{port}"), _folder: folder })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.top.id()
    }

    /// The process that it started first.
    ///
    /// # Errors
    /// When there is none.
    pub fn first_child(&self) -> Result<u32> {
        let pid = self.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let first = children.split_whitespace().next().context("no child")?;
        Ok(first.parse()?)
    }

    /// Asks it for a completion, which it refuses; the prompt holds `mark`.
    ///
    /// # Errors
    /// When it does not answer as it does.
    pub fn ask(&self, mark: &str) -> Result<()> {
        let body = format!(r#"{{"model":"m","prompt":"{mark}","user":"{mark}"}}"#);
        let head =
            "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close";
        let answer = http(&self.address, &format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))?;
        ensure!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        Ok(())
    }

    /// Ends it as `kill -9` does.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn kill(mut self) -> Result<()> {
        self.top.kill()?;
        self.top.wait()?;
        Ok(())
    }
}

impl Drop for FakeVllm {
    fn drop(&mut self) {
        // Its engine ends when its socket does.
        let _ = self.top.kill();
        let _ = self.top.wait();
    }
}
