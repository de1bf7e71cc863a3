//! OTLP over HTTP, as protobuf or JSON.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use serde_json::Value;

use super::Payload;
use super::client::{Accepted, Failure, chain};
use super::grpc::RpcStatus;
use super::tls;
use crate::cli::OtlpProtocol;
use crate::export::json;
use crate::export::settings::Endpoint;

/// Most bytes read of a response.
const RESPONSE_LIMIT: usize = 64 * 1024;

/// A client of one receiver.
pub(super) struct Client {
    uri: Uri,
    client: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    timeout: Duration,
    gzip: bool,
    json: bool,
}

impl Client {
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self> {
        let Endpoint { uri, protocol, headers, timeout, gzip, tls } = endpoint;
        let json = *protocol == OtlpProtocol::HttpJson;
        let config = tls::config(tls, uri.scheme_str() == Some("https"))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(*timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .pool_max_idle_per_host(1)
            .build(connector);
        let mut all: HeaderMap = headers.0.iter().cloned().collect();
        let content = if json { "application/json" } else { "application/x-protobuf" };
        all.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        all.insert(USER_AGENT, HeaderValue::from_static(concat!("enginetap/", env!("CARGO_PKG_VERSION"))));
        if *gzip {
            all.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(Self { uri: uri.clone(), client, headers: all, timeout: *timeout, gzip: *gzip, json })
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The body of a payload.
    pub(super) fn encode(&self, payload: &Payload) -> Bytes {
        let plain = match (payload, self.json) {
            (Payload::Traces(message), false) => message.encode_to_vec(),
            (Payload::Metrics(message), false) => message.encode_to_vec(),
            (Payload::Logs(message), false) => message.encode_to_vec(),
            (Payload::Logs(message), true) => json::logs(message).into_bytes(),
            (Payload::Traces(message), true) => json::traces(message).into_bytes(),
            (Payload::Metrics(message), true) => json::metrics(message).into_bytes(),
        };
        if !self.gzip {
            return plain.into();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let _ = encoder.write_all(&plain);
        encoder.finish().unwrap_or_default().into()
    }

    pub(super) async fn send(&self, body: Bytes) -> Result<Accepted, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let passing = |reason| Failure::Passing { reason, after: None };
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(answer) => self.verdict(answer?),
            Err(_) => Err(passing(format!("no answer within {:?}", self.timeout))),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let passing = |reason| Failure::Passing { reason, after: None };
        let response = self.client.request(request).await.map_err(|error| passing(chain(&error)))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_LIMIT).collect().await;
        // What a receiver says beside its status is of use, not of need.
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Ok(Answer { status: parts.status, after: retry_after(&parts.headers), body })
    }

    fn verdict(&self, answer: Answer) -> Result<Accepted, Failure> {
        let Answer { status, after, body } = answer;
        if status.is_success() {
            return Ok(if self.json { accepted_json(&body) } else { accepted(&body) });
        }
        let said = if self.json { message_json(&body) } else { message(&body) };
        let reason = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Failure::Passing { reason, after }),
            _ => Err(Failure::Final(reason)),
        }
    }
}

struct Answer {
    status: StatusCode,
    after: Option<Duration>,
    body: Bytes,
}

/// `Retry-After` in seconds; a date is left to the backoff.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The partial success of a response. Both signals' responses have the same shape on the wire.
fn accepted(body: &[u8]) -> Accepted {
    let response = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    let partial = response.partial_success.unwrap_or_default();
    Accepted::partial(partial.rejected_spans, partial.error_message)
}

fn accepted_json(body: &[u8]) -> Accepted {
    let response: Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &response["partialSuccess"];
    let rejected = ["rejectedSpans", "rejectedDataPoints"].iter().find_map(|name| number(&partial[*name]));
    Accepted::partial(rejected.unwrap_or(0), partial["errorMessage"].as_str().unwrap_or_default().to_owned())
}

/// A 64-bit number in JSON: a string, but a number is understood too.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn message(body: &[u8]) -> String {
    RpcStatus::decode(body).map(|status| status.message).unwrap_or_default()
}

fn message_json(body: &[u8]) -> String {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    status["message"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
    };

    use super::*;

    #[test]
    fn a_partial_success_of_metrics_is_read_by_the_traces_shape() {
        let partial =
            ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "old".to_owned() };
        let response = ExportMetricsServiceResponse { partial_success: Some(partial) };
        assert_eq!(accepted(&response.encode_to_vec()), Accepted { rejected: 3, message: "old".to_owned() });
        assert_eq!(accepted(b""), Accepted::default());
    }

    #[test]
    fn a_partial_success_in_json_is_read_as_string_and_as_number() {
        for body in [
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"old"}}"#,
            r#"{"partialSuccess":{"rejectedDataPoints":3,"errorMessage":"old"}}"#,
        ] {
            assert_eq!(accepted_json(body.as_bytes()), Accepted { rejected: 3, message: "old".to_owned() });
        }
        assert_eq!(accepted_json(b"not json"), Accepted::default());
    }
}
