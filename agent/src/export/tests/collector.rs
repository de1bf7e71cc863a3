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
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
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
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::ServerTlsConfig;
use tonic::transport::server::TcpIncoming;
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
                this.clone().connection(stream, script.clone());
            }
        });
    }

    /// Serves over TLS on any free port.
    pub(super) async fn start_tls(&self, identity: &Identity) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (this, acceptor) = (self.clone(), identity.acceptor());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that does not trust the certificate breaks off.
                if let Ok(stream) = acceptor.accept(stream).await {
                    this.clone().connection(stream, Arc::new(ok));
                }
            }
        });
        address
    }

    fn connection(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, script: Arc<Script>) {
        let service = service_fn(move |request| self.clone().answer(request, script.clone()));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
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

/// A certificate for `localhost` that nobody else signed, in PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    key: String,
}

impl Identity {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A receiver over gRPC. The first answers are the scripted failures, then it takes everything.
#[derive(Clone, Default)]
pub(super) struct Grpc {
    pub(super) failures: Arc<Mutex<Vec<Status>>>,
    pub(super) traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    pub(super) metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
    pub(super) logs: Arc<Mutex<Vec<ExportLogsServiceRequest>>>,
    pub(super) metadata: Arc<Mutex<Vec<MetadataMap>>>,
}

impl Grpc {
    pub(super) async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serve(listener);
        address
    }

    pub(super) async fn start_tls(&self, identity: &Identity) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pem = tonic::transport::Identity::from_pem(&identity.certificate, &identity.key);
        let server = tonic::transport::Server::builder()
            .tls_config(ServerTlsConfig::new().identity(pem))
            .unwrap()
            .add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        address
    }

    pub(super) fn serve(&self, listener: TcpListener) {
        let traces = TraceServiceServer::new(self.clone()).accept_compressed(CompressionEncoding::Gzip);
        let metrics = MetricsServiceServer::new(self.clone()).accept_compressed(CompressionEncoding::Gzip);
        let logs = LogsServiceServer::new(self.clone()).accept_compressed(CompressionEncoding::Gzip);
        let server =
            tonic::transport::Server::builder().add_service(traces).add_service(metrics).add_service(logs);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
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

#[async_trait]
impl LogsService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, Status> {
        self.fail()?;
        self.logs.lock().unwrap().push(request.into_inner());
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}
