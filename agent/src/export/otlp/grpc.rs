//! OTLP over gRPC.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderMap, Uri};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Request, Status};

use super::Payload;
use super::client::{Accepted, Failure, chain};
use super::tls;
use crate::export::settings::{Endpoint, TlsFiles};

/// A client of one receiver. It connects when first used, and again when the connection is lost.
pub(super) struct Client {
    uri: Uri,
    channel: Channel,
    metadata: MetadataMap,
    gzip: bool,
}

impl Client {
    /// Must be called in the context of a runtime.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self> {
        let Endpoint { uri, protocol: _, headers, timeout, gzip, tls } = endpoint;
        let mut channel = Channel::builder(uri.clone())
            .user_agent(concat!("enginetap/", env!("CARGO_PKG_VERSION")))?
            .timeout(*timeout)
            .connect_timeout(*timeout);
        if uri.scheme_str() == Some("https") {
            channel = channel.tls_config(tls_config(tls)?).context("TLS for the OTLP endpoint")?;
        }
        let headers: HeaderMap = headers.0.iter().cloned().collect();
        let metadata = MetadataMap::from_headers(headers);
        Ok(Self { uri: uri.clone(), channel: channel.connect_lazy(), metadata, gzip: *gzip })
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(super) async fn send(&self, payload: &Payload) -> Result<Accepted, Failure> {
        match payload {
            Payload::Traces(message) => {
                let mut client = TraceServiceClient::new(self.channel.clone());
                if self.gzip {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                let answer = client.export(self.request(message.clone())).await.map_err(failure)?;
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                Ok(Accepted::partial(partial.rejected_spans, partial.error_message))
            }
            Payload::Metrics(message) => {
                let mut client = MetricsServiceClient::new(self.channel.clone());
                if self.gzip {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                let answer = client.export(self.request(message.clone())).await.map_err(failure)?;
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                Ok(Accepted::partial(partial.rejected_data_points, partial.error_message))
            }
            Payload::Logs(message) => {
                let mut client = LogsServiceClient::new(self.channel.clone());
                if self.gzip {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                let answer = client.export(self.request(message.clone())).await.map_err(failure)?;
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                Ok(Accepted::partial(partial.rejected_log_records, partial.error_message))
            }
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request
    }
}

fn tls_config(files: &TlsFiles) -> Result<ClientTlsConfig> {
    // tonic says nothing of a file without a certificate in it, and every connection fails.
    tls::config(files, true)?;
    let mut config = match &files.certificate {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(tls::read(path)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((certificate, key)) = tls::identity(files)? {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    Ok(config)
}

/// Which statuses may pass, by the table of the OTLP specification.
fn failure(status: Status) -> Failure {
    let reason = format!("{:?}: {}", status.code(), chain(&status));
    let after = retry_delay(status.details());
    let passing = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Without a RetryInfo the receiver says that it never recovers.
        Code::ResourceExhausted => after.is_some(),
        // tonic's own name for a connection that broke under the request.
        Code::Unknown => std::error::Error::source(&status).is_some(),
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated => false,
    };
    if passing { Failure::Passing { reason, after } } else { Failure::Final(reason) }
}

/// `google.rpc.Status`, as much of it as is used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    /// Text for people.
    #[prost(string, tag = "2")]
    pub(super) message: String,
    /// Details.
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<RetryDelay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
struct RetryDelay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let any = status.details.iter().find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(any.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    let seconds = Duration::from_secs(u64::try_from(delay.seconds).unwrap_or(0));
    Some(seconds.saturating_add(Duration::from_nanos(u64::try_from(delay.nanos).unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted(delay: Option<RetryDelay>) -> Failure {
        let info = RetryInfo { retry_delay: delay }.encode_to_vec();
        let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(), value: info };
        let details = RpcStatus { message: String::new(), details: vec![any] }.encode_to_vec();
        failure(Status::with_details(Code::ResourceExhausted, "full", details.into()))
    }

    #[test]
    fn a_receiver_that_is_exhausted_is_asked_again_only_where_it_says_when() {
        let delay = RetryDelay { seconds: 2, nanos: 500_000_000 };
        let Failure::Passing { after, .. } = exhausted(Some(delay)) else { panic!("final") };
        assert_eq!(after, Some(Duration::from_millis(2_500)));
        assert!(matches!(failure(Status::resource_exhausted("full")), Failure::Final(_)));
    }

    #[test]
    fn statuses_pass_or_not_as_the_specification_says() {
        assert!(matches!(failure(Status::unavailable("down")), Failure::Passing { after: None, .. }));
        assert!(matches!(failure(Status::unauthenticated("who")), Failure::Final(_)));
        assert!(matches!(failure(Status::invalid_argument("what")), Failure::Final(_)));
    }
}
