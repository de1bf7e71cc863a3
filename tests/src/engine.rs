//! A real engine, started by `cargo xtask engines`, with the agent beside it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::StreamOwned;
use serde_json::Value as Json;

use crate::captures::Metrics;
use crate::certificate::Certificate;

/// A program that `cargo xtask test` names by an environment variable.
fn program(variable: &str) -> Result<PathBuf> {
    let path = std::env::var_os(variable);
    path.map(PathBuf::from)
        .with_context(|| format!("{variable} is not set: run `cargo xtask test --only vllm,sglang`"))
}

/// A running server.
pub struct Server {
    xtask: PathBuf,
    engine: &'static str,
    /// Its first process.
    pub pid: u64,
    /// Its port on 127.0.0.1.
    pub port: u64,
    /// Of a server over HTTPS.
    certificate: Option<Certificate>,
}

impl Server {
    /// Starts the vLLM under test with these options.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn vllm(options: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        Self::start("vllm", "ENGINETAP_VLLM_VERSION", &[], options, environment)
    }

    /// Starts two of the vLLM under test, side by side: one that prefills and one that decodes.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn vllm_pair() -> Result<[Self; 2]> {
        let start = |role| Self::start("vllm", "ENGINETAP_VLLM_VERSION", &["--role", role], &[], &[]);
        std::thread::scope(|scope| {
            let prefill = scope.spawn(|| start("prefill"));
            let decode = start("decode");
            let prefill = prefill.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            Ok([prefill?, decode?])
        })
    }

    /// Starts the vLLM under test with these options, over HTTPS.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn vllm_over_https(options: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let certificate = Certificate::new()?;
        let more = certificate.options();
        let options: Vec<&str> = options.iter().copied().chain(more.iter().map(String::as_str)).collect();
        let mut server = Self::vllm(&options, environment)?;
        server.certificate = Some(certificate);
        Ok(server)
    }

    /// Starts the SGLang under test with these options.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn sglang(options: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        Self::start("sglang", "ENGINETAP_SGLANG_VERSION", &[], options, environment)
    }

    fn start(
        engine: &'static str,
        version: &str,
        part: &[&str],
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let xtask = program("ENGINETAP_XTASK")?;
        let version = std::env::var(version).with_context(|| format!("{version} is not set"))?;
        let mut command = Command::new(&xtask);
        command.args(["engines", "serve", engine, "--port", "0", "--json", "--version", &version]).args(part);
        command.arg("--").args(options).envs(environment.iter().copied()).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("running {}", xtask.display()))?;
        ensure!(output.status.success(), "{engine} {version} did not start");
        let text = String::from_utf8_lossy(&output.stdout);
        let server: Json = serde_json::from_str(text.lines().last().unwrap_or_default())?;
        let number = |key: &str| server[key].as_u64().with_context(|| format!("no {key} in {server}"));
        Ok(Self { pid: number("pid")?, port: number("port")?, xtask, engine, certificate: None })
    }

    /// Sends requests and gives what the client saw of each, in order of completion.
    ///
    /// # Errors
    /// When the load generator fails.
    pub fn load(&self, options: &[&str]) -> Result<Vec<Json>> {
        let output = self.load_command(options).output()?;
        ensure!(output.status.success(), "the load generator failed");
        let text = String::from_utf8(output.stdout)?;
        let records: Result<Vec<Json>, _> = text.lines().map(serde_json::from_str).collect();
        Ok(records?.into_iter().filter(|record| record.get("summary").is_none()).collect())
    }

    /// Sends requests beside something else.
    ///
    /// # Errors
    /// When the load generator cannot be started.
    pub fn load_beside(&self, options: &[&str]) -> Result<Load> {
        // A group of its own: the generator is a child of what is started here.
        Ok(Load(self.load_command(options).process_group(0).spawn()?))
    }

    /// Waits until the engine works on this many requests at once.
    ///
    /// # Errors
    /// When it does not within half a minute.
    pub fn until_running(&self, wanted: f64) -> Result<()> {
        let running =
            if self.engine == "sglang" { "sglang:num_running_reqs" } else { "vllm:num_requests_running" };
        let begun = Instant::now();
        while self.metrics()?.sum(running).is_none_or(|running| running < wanted) {
            ensure!(begun.elapsed() < Duration::from_secs(30), "the engine is idle");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn load_command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(&self.xtask);
        command.args(["engines", "load", self.engine, "--port", &self.port.to_string(), "--"]);
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Sends a request over HTTP, whole, and gives the status and the body of its answer.
    ///
    /// # Errors
    /// When there is none.
    pub fn post(&self, path: &str, body: &Json) -> Result<(u16, Json)> {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let body = body.to_string();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        Ok((status, serde_json::from_str(body)?))
    }

    /// A profile of its processes over so long, as `enginetap profile --json` prints it.
    ///
    /// # Errors
    /// When the agent does not end in order.
    pub fn profile(&self, length: &str) -> Result<Json> {
        let mut command = Command::new(program("ENGINETAP_BIN")?);
        command.args(["profile", "--json", "--for", length, "--pid", &self.pid.to_string()]);
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "the agent ended with {}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// What the server says of itself now.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metrics(&self) -> Result<Metrics> {
        let stream = TcpStream::connect(format!("127.0.0.1:{}", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let answer = match &self.certificate {
            Some(certificate) => ask(StreamOwned::new(certificate.client()?, stream))?,
            None => ask(stream)?,
        };
        Ok(Metrics::parse(answer))
    }
}

fn ask(mut stream: impl Read + Write) -> Result<String> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // A server may close a connection without TLS's own farewell.
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error.into()),
        Ok(_) | Err(_) => Ok(answer),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = Command::new(&self.xtask);
        let _ = stop.args(["engines", "stop", self.engine, "--port", &self.port.to_string()]).status();
    }
}

/// Requests being sent beside something else; no more when dropped.
pub struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A running `enginetap attach`.
pub struct Agent {
    child: Child,
    folder: tempfile::TempDir,
}

/// What an agent saw.
pub struct Seen {
    /// Every span, flat, as OTLP JSON.
    pub spans: Vec<Json>,
    /// The last value of each metric, summed over its series.
    pub metrics: std::collections::BTreeMap<String, f64>,
    /// What it did and cost.
    pub figures: Json,
}

impl Agent {
    /// Attaches to a server and waits until it is attached.
    ///
    /// # Errors
    /// When it cannot.
    pub fn attach(server: &Server, options: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(program("ENGINETAP_BIN")?);
        command.args(["attach", "--pid", &server.pid.to_string()]);
        command.arg("--otlp-file").arg(folder.path().join("otlp.jsonl"));
        command.arg("--self-stats").arg(folder.path().join("stats.json"));
        // Of long requests too, every iteration is wanted.
        command.env("OTEL_SPAN_EVENT_COUNT_LIMIT", "2000").env("SGLANG_TRACE_LEVEL", "3");
        command.args(options).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut said = String::new();
        while !said.contains("attached to") {
            if errors.read_line(&mut said)? == 0 {
                bail!("the agent ended with {}: {said}", child.wait()?);
            }
        }
        // What it says later is passed on, and never fills the pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        Ok(Self { child, folder })
    }

    /// Stops it as Ctrl-C does, and reads what it wrote.
    ///
    /// # Errors
    /// When it does not end in order.
    pub fn stop(mut self) -> Result<Seen> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(begun.elapsed() < Duration::from_secs(30), "the agent does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        ensure!(status.success(), "the agent ended with {status}");
        let stats = std::fs::read_to_string(self.folder.path().join("stats.json"))?;
        let mut seen =
            Seen { spans: Vec::new(), metrics: Default::default(), figures: serde_json::from_str(&stats)? };
        seen.read(&self.folder.path().join("otlp.jsonl"))?;
        Ok(seen)
    }
}

impl Seen {
    fn read(&mut self, path: &Path) -> Result<()> {
        for line in std::fs::read_to_string(path)?.lines() {
            let line: Json = serde_json::from_str(line)?;
            for scope in items(&line["resourceSpans"]).flat_map(|resource| items(&resource["scopeSpans"])) {
                self.spans.extend(items(&scope["spans"]).cloned());
            }
            self.take_metrics(&line);
        }
        Ok(())
    }

    /// Every export holds every series: later ones replace earlier ones.
    fn take_metrics(&mut self, line: &Json) {
        let scopes = items(&line["resourceMetrics"]).flat_map(|resource| items(&resource["scopeMetrics"]));
        let mut latest = std::collections::BTreeMap::<String, f64>::new();
        for metric in scopes.flat_map(|scope| items(&scope["metrics"])) {
            let points = items(&metric["sum"]["dataPoints"]).chain(items(&metric["gauge"]["dataPoints"]));
            let name = metric["name"].as_str().unwrap_or_default().to_owned();
            *latest.entry(name).or_default() += points.map(number).sum::<f64>();
        }
        self.metrics.extend(latest);
    }
}

fn number(point: &Json) -> f64 {
    let int = point["asInt"].as_str().and_then(|text| text.parse().ok());
    int.or(point["asDouble"].as_f64()).unwrap_or(f64::NAN)
}

/// The items of a list; none where there is no list.
pub fn items(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

/// An attribute of a span, as OTLP JSON writes its value.
#[must_use]
pub fn attribute<'a>(span: &'a Json, key: &str) -> Option<&'a Json> {
    let found = items(&span["attributes"]).find(|attribute| attribute["key"] == key)?;
    found["value"].as_object()?.values().next()
}

/// An attribute that is a whole number.
#[must_use]
pub fn int(span: &Json, key: &str) -> Option<i64> {
    attribute(span, key)?.as_str()?.parse().ok()
}

/// An attribute that is a text.
#[must_use]
pub fn text<'a>(span: &'a Json, key: &str) -> Option<&'a str> {
    attribute(span, key)?.as_str()
}
