//! A receiver of OTLP traces over HTTP (protobuf), for what an engine says of itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// The receiver; it runs until the test program ends.
pub struct Collector {
    /// Where it listens.
    pub endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
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
        let spans = Arc::new(Mutex::new(Vec::new()));
        let shared = spans.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let spans = shared.clone();
                std::thread::spawn(move || serve(stream, &spans));
            }
        });
        Ok(Self { endpoint, spans })
    }

    /// Every span so far.
    #[must_use]
    pub fn all(&self) -> Vec<Span> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The spans of a name so far.
    #[must_use]
    pub fn spans(&self, name: &str) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span.name == name).cloned().collect()
    }
}

/// Answers the requests of one connection; ends with it.
fn serve(stream: TcpStream, spans: &Mutex<Vec<Span>>) -> Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut gzip) = (0, false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
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
        let request = ExportTraceServiceRequest::decode(body.as_slice())?;
        let found = request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
        spans.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        writer.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n",
        )?;
    }
}
