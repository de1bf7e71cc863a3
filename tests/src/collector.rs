//! A receiver of OTLP traces and log lines over HTTP (protobuf), for what an engine says of itself, and for the agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// The receiver; it runs until the test program ends.
pub struct Collector {
    /// Where it listens.
    pub endpoint: String,
    got: Arc<Mutex<Got>>,
}

/// What came so far.
#[derive(Default)]
struct Got {
    spans: Vec<Span>,
    /// Log lines, each with the process id of its resource.
    logs: Vec<(u32, LogRecord)>,
}

impl Collector {
    /// Starts to listen on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub fn start() -> Result<Self> {
        Self::at("127.0.0.1:0")
    }

    /// Starts to listen at an address.
    ///
    /// # Errors
    /// When it is taken.
    pub fn at(address: &str) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let endpoint = format!("http://{}/v1/traces", listener.local_addr()?);
        let got = Arc::new(Mutex::new(Got::default()));
        let shared = got.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let got = shared.clone();
                std::thread::spawn(move || serve(stream, &got));
            }
        });
        Ok(Self { endpoint, got })
    }

    /// Every span so far.
    #[must_use]
    pub fn all(&self) -> Vec<Span> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).spans.clone()
    }

    /// The log lines so far of the server of a process. Other servers of the machine do not matter.
    #[must_use]
    pub fn logs(&self, pid: u32) -> Vec<LogRecord> {
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        got.logs.iter().filter(|(of, _)| *of == pid).map(|(_, log)| log.clone()).collect()
    }

    /// The spans of a name so far.
    #[must_use]
    pub fn spans(&self, name: &str) -> Vec<Span> {
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        got.spans.iter().filter(|span| span.name == name).cloned().collect()
    }
}

/// Answers the requests of one connection; ends with it.
fn serve(stream: TcpStream, got: &Mutex<Got>) -> Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut gzip, mut path) = (0, false, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("post ") {
                path = rest.split(' ').next().unwrap_or_default().to_owned();
            }
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            gzip |= line == "content-encoding: gzip";
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if gzip {
            let packed = std::mem::take(&mut body);
            flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut body)?;
        }
        take(&path, &body, &mut got.lock().unwrap_or_else(PoisonError::into_inner))?;
        writer.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n",
        )?;
    }
}

/// Keeps what a request carries; metrics are let go.
fn take(path: &str, body: &[u8], got: &mut Got) -> Result<()> {
    if path.ends_with("/v1/traces") {
        let request = ExportTraceServiceRequest::decode(body)?;
        let spans = request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
        got.spans.extend(spans);
    } else if path.ends_with("/v1/logs") {
        let request = ExportLogsServiceRequest::decode(body)?;
        for of_resource in request.resource_logs {
            let pid = of_resource.resource.as_ref().and_then(pid).unwrap_or_default();
            let logs = of_resource.scope_logs.into_iter().flat_map(|scope| scope.log_records);
            got.logs.extend(logs.map(|log| (pid, log)));
        }
    }
    Ok(())
}

/// The process id that a resource names.
fn pid(resource: &Resource) -> Option<u32> {
    let pair = resource.attributes.iter().find(|pair| pair.key == "process.pid")?;
    let Some(Value::StringValue(text)) = pair.value.as_ref()?.value.as_ref() else { return None };
    text.parse().ok()
}
