//! Receivers that say what the test wants and keep what they got.

use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::codegen::tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::{Status, async_trait};

/// A request over HTTP.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    /// Decompressed.
    pub(super) body: Vec<u8>,
}

/// What to answer to the nth request, after how long.
pub(super) type Script = dyn Fn(usize) -> (Duration, Response<Full<Bytes>>) + Send + Sync;

/// A receiver over HTTP.
#[derive(Clone, Default)]
pub(super) struct Http(Arc<Mutex<Vec<Got>>>);

pub(super) fn status(code: StatusCode) -> Response<Full<Bytes>> {
    Response::builder().status(code).body(Full::default()).unwrap()
}

pub(super) fn ok(_: usize) -> (Duration, Response<Full<Bytes>>) {
    (Duration::ZERO, status(StatusCode::OK))
}

impl Http {
    pub(super) fn got(&self) -> Vec<Got> {
        self.0.lock().unwrap().clone()
    }

    /// Serves on any free port.
    pub(super) async fn start(&self, script: Arc<Script>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serve(listener, script);
        address
    }

    pub(super) fn serve(&self, listener: TcpListener, script: Arc<Script>) {
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (this, script) = (this.clone(), script.clone());
                let service = service_fn(move |request| this.clone().answer(request, script.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        script: Arc<Script>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let mut body = body.collect().await.unwrap().to_bytes().to_vec();
        if parts.headers.get("content-encoding").is_some_and(|value| value == "gzip") {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(body.as_slice()).read_to_end(&mut plain).unwrap();
            body = plain;
        }
        let nth = {
            let mut got = self.0.lock().unwrap();
            got.push(Got { path: parts.uri.path().to_owned(), headers: parts.headers, body });
            got.len() - 1
        };
        let (after, response) = script(nth);
        tokio::time::sleep(after).await;
        Ok(response)
    }
}

/// A receiver over gRPC. The first answers are the scripted failures, then it takes everything.
#[derive(Clone, Default)]
pub(super) struct Grpc {
    pub(super) failures: Arc<Mutex<Vec<Status>>>,
    pub(super) traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    pub(super) metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
    pub(super) metadata: Arc<Mutex<Vec<MetadataMap>>>,
}

impl Grpc {
    pub(super) async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serve(listener);
        address
    }

    pub(super) fn serve(&self, listener: TcpListener) {
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let traces = TraceServiceServer::new(self.clone()).accept_compressed(CompressionEncoding::Gzip);
        let metrics = MetricsServiceServer::new(self.clone()).accept_compressed(CompressionEncoding::Gzip);
        let server = tonic::transport::Server::builder().add_service(traces).add_service(metrics);
        tokio::spawn(server.serve_with_incoming(incoming.map(|connection| connection)));
    }

    fn fail(&self) -> Result<(), Status> {
        let mut failures = self.failures.lock().unwrap();
        if failures.is_empty() { Ok(()) } else { Err(failures.remove(0)) }
    }
}

#[async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        self.metadata.lock().unwrap().push(request.metadata().clone());
        self.fail()?;
        self.traces.lock().unwrap().push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

#[async_trait]
impl MetricsService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, Status> {
        self.fail()?;
        self.metrics.lock().unwrap().push(request.into_inner());
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}
