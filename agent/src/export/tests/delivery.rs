use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use enginetap_core::loss::Loss;
use enginetap_core::model::span::Trace;
use http::{Response, StatusCode};
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use tokio::net::TcpListener;
use tonic::Status;

use super::collector::{Grpc, Http, Identity, ok, status};
use crate::cli;
use crate::exit::Exit;
use crate::export::message::{logs_request, metrics_request, trace_request};
use crate::export::resource::Resources;
use crate::export::settings::Environment;
use crate::export::{Backoff, Config, Overflow, Sinks, sample};

const LONG: Duration = Duration::from_secs(20);

/// Sinks with nothing but OTLP, configured by variables.
fn sinks(address: SocketAddr, overflow: Overflow, variables: &[(&'static str, &str)]) -> Sinks {
    let mut map: HashMap<&str, String> = HashMap::from([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_BSP_SCHEDULE_DELAY", "10".to_owned()),
    ]);
    map.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let lookup = |name: &str| map.get(name).cloned();
    let mut config = Config::new(&cli::Output::default(), &Environment(&lookup), overflow).unwrap();
    config.terminal = None;
    config.backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(50) };
    let sinks = Sinks::start(config).unwrap();
    sinks.server(enginetap_core::ids::ServerId(1), &sample::resource().attributes);
    sinks
}

fn wanted_traces() -> ExportTraceServiceRequest {
    trace_request(&[(sample::resource(), Arc::new(sample::trace()))])
}

fn wanted_metrics() -> ExportMetricsServiceRequest {
    let mut resources = Resources::new(Vec::new());
    resources.insert(enginetap_core::ids::ServerId(1), &sample::resource().attributes);
    metrics_request(&resources.snapshot(sample::points()))
}

fn lost(losses: &enginetap_core::loss::Losses) -> (u64, u64) {
    (losses.get(Loss::QueueFull), losses.get(Loss::ExportFailed))
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn grpc_carries_the_messages_and_headers_as_they_are() {
    let collector = Grpc::default();
    let address = collector.start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ];
    let sinks = sinks(address, Overflow::Drop, &variables);
    sinks.trace(sample::trace());
    sinks.metrics(sample::points());
    let losses = sinks.shutdown(LONG).await;
    assert_eq!(lost(&losses), (0, 0));
    assert_eq!(*collector.traces.lock().unwrap(), [wanted_traces()]);
    assert_eq!(*collector.metrics.lock().unwrap(), [wanted_metrics()]);
    let metadata = collector.metadata.lock().unwrap()[0].clone();
    assert_eq!(metadata.get("api-key").unwrap(), "k");
    assert_eq!(metadata.get("grpc-encoding").unwrap(), "gzip");
}

#[tokio::test]
async fn http_carries_the_messages_as_protobuf() {
    let collector = Http::default();
    let address = collector.start(Arc::new(ok)).await;
    let variables = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k")];
    let sinks = sinks(address, Overflow::Drop, &variables);
    sinks.trace(sample::trace());
    sinks.metrics(sample::points());
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0));
    let mut got = collector.got();
    got.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(got.iter().map(|got| got.path.as_str()).collect::<Vec<_>>(), ["/v1/metrics", "/v1/traces"]);
    assert_eq!(ExportMetricsServiceRequest::decode(got[0].body.as_slice()).unwrap(), wanted_metrics());
    assert_eq!(ExportTraceServiceRequest::decode(got[1].body.as_slice()).unwrap(), wanted_traces());
    assert_eq!(got[1].headers["content-type"], "application/x-protobuf");
    assert_eq!(got[1].headers["api-key"], "k");
}

#[tokio::test]
async fn http_carries_the_messages_as_json() {
    let collector = Http::default();
    let address = collector.start(Arc::new(ok)).await;
    let sinks = sinks(address, Overflow::Drop, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]);
    sinks.metrics(sample::points());
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0));
    let got = collector.got();
    let read: ExportMetricsServiceRequest = serde_json::from_slice(&got[0].body).unwrap();
    assert_eq!(read, wanted_metrics());
    assert_eq!(got[0].headers["content-type"], "application/json");
}

#[tokio::test]
async fn log_lines_reach_a_receiver_over_every_protocol_with_their_trace_or_alone() {
    let wanted = logs_request(&[(sample::resource(), Arc::new(sample::log()))]);
    for protocol in ["grpc", "http/protobuf", "http/json"] {
        let (grpc, http) = (Grpc::default(), Http::default());
        let address = match protocol {
            "grpc" => grpc.start().await,
            _ => http.start(Arc::new(ok)).await,
        };
        let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_BLRP_SCHEDULE_DELAY", "10")];
        let sinks = sinks(address, Overflow::Drop, &variables);
        sinks.log(sample::log());
        assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0), "{protocol}");
        let got = http.got();
        assert!(got.iter().all(|got| got.path == "/v1/logs"), "{got:?}");
        let read = match protocol {
            "grpc" => grpc.logs.lock().unwrap().clone(),
            "http/json" => got.iter().map(|got| serde_json::from_slice(&got.body).unwrap()).collect(),
            _ => {
                got.iter().map(|got| ExportLogsServiceRequest::decode(got.body.as_slice()).unwrap()).collect()
            }
        };
        assert_eq!(read, std::slice::from_ref(&wanted), "{protocol}");
    }
}

#[tokio::test]
async fn the_events_of_a_trace_that_is_not_sampled_are_not_sent_either() {
    let collector = Grpc::default();
    let address = collector.start().await;
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_SAMPLER", "always_off")];
    let unsampled = sinks(address, Overflow::Drop, &variables);
    let trace = Trace { logs: vec![sample::log()], ..sample::trace() };
    unsampled.trace(trace.clone());
    unsampled.shutdown(LONG).await;
    assert!(collector.logs.lock().unwrap().is_empty());
    let sampled = sinks(address, Overflow::Drop, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    sampled.trace(trace);
    sampled.shutdown(LONG).await;
    assert_eq!(collector.logs.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_collector_that_comes_up_late_gets_everything() {
    for protocol in ["grpc", "http/protobuf"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let sinks = sinks(address, Overflow::Drop, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        sinks.trace(sample::trace());
        tokio::time::sleep(Duration::from_millis(100)).await;
        let listener = TcpListener::bind(address).await.unwrap();
        let (grpc, http) = (Grpc::default(), Http::default());
        match protocol {
            "grpc" => grpc.serve(listener),
            _ => http.serve(listener, Arc::new(ok)),
        }
        assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0), "{protocol}");
        assert_eq!(grpc.traces.lock().unwrap().len() + http.got().len(), 1, "{protocol}");
    }
}

#[tokio::test]
async fn a_passing_refusal_is_tried_again_after_what_the_receiver_asked_for() {
    let collector = Http::default();
    let busy = |nth| {
        let answer = match nth {
            0 => Response::builder().status(503).header("retry-after", "1").body(Full::default()).unwrap(),
            _ => status(StatusCode::OK),
        };
        (Duration::ZERO, answer)
    };
    let address = collector.start(Arc::new(busy)).await;
    let start = Instant::now();
    let sinks = sinks(address, Overflow::Drop, &[]);
    sinks.trace(sample::trace());
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0));
    assert_eq!(collector.got().len(), 2);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn over_grpc_too_a_passing_refusal_is_tried_again() {
    let collector = Grpc::default();
    collector.failures.lock().unwrap().push(Status::unavailable("starting"));
    let address = collector.start().await;
    let sinks = sinks(address, Overflow::Drop, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    sinks.trace(sample::trace());
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0));
    assert_eq!(collector.metadata.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_final_refusal_is_counted_and_not_tried_again() {
    let collector = Http::default();
    let address = collector.start(Arc::new(|_| (Duration::ZERO, status(StatusCode::UNAUTHORIZED)))).await;
    let sinks = sinks(address, Overflow::Drop, &[]);
    sinks.trace(sample::trace());
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 5));
    assert_eq!(collector.got().len(), 1);
}

#[tokio::test]
async fn what_a_receiver_rejects_of_a_batch_is_counted() {
    let collector = Http::default();
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "too old".to_owned() };
    let body = Bytes::from(ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec());
    let address =
        collector.start(Arc::new(move |_| (Duration::ZERO, Response::new(Full::new(body.clone()))))).await;
    let sinks = sinks(address, Overflow::Drop, &[]);
    sinks.trace(sample::trace());
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 2));
}

#[tokio::test]
async fn a_slow_receiver_costs_its_queue_and_no_time() {
    let collector = Http::default();
    let slow = |_| (Duration::from_millis(300), status(StatusCode::OK));
    let address = collector.start(Arc::new(slow)).await;
    let variables = [("OTEL_BSP_MAX_QUEUE_SIZE", "20"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")];
    let sinks = sinks(address, Overflow::Drop, &variables);
    sinks.trace(sample::trace());
    eventually("the first batch is on its way", || collector.got().len() == 1).await;
    let start = Instant::now();
    (0..100).for_each(|_| sinks.trace(sample::trace()));
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
    let (full, failed) = lost(&sinks.losses());
    assert_eq!((full, failed), (96 * 5, 0), "four traces of five spans fit");
    assert_eq!(lost(&sinks.shutdown(LONG).await), (full, 0));
    assert_eq!(collector.got().len(), 5);
}

#[tokio::test]
async fn a_source_that_can_wait_loses_nothing() {
    let collector = Http::default();
    let slow = |_| (Duration::from_millis(5), status(StatusCode::OK));
    let address = collector.start(Arc::new(slow)).await;
    let variables = [("OTEL_BSP_MAX_QUEUE_SIZE", "20"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "20")];
    let sinks = sinks(address, Overflow::Wait, &variables);
    // The receiver works on this test's runtime: the source must not hold it up.
    let sinks = tokio::task::spawn_blocking(move || {
        (0..200).for_each(|_| sinks.trace(sample::trace()));
        sinks
    });
    assert_eq!(lost(&sinks.await.unwrap().shutdown(LONG).await), (0, 0));
    let spans: usize = collector
        .got()
        .iter()
        .map(|got| ExportTraceServiceRequest::decode(got.body.as_slice()).unwrap())
        .map(|request| request.resource_spans[0].scope_spans[0].spans.len())
        .sum();
    assert_eq!(spans, 1_000);
}

#[tokio::test]
async fn shutdown_keeps_its_deadline_and_counts_what_is_left() {
    let collector = Http::default();
    let address = collector.start(Arc::new(|_| (LONG, status(StatusCode::OK)))).await;
    let sinks = sinks(address, Overflow::Drop, &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")]);
    (0..3).for_each(|_| sinks.trace(sample::trace()));
    let start = Instant::now();
    let losses = sinks.shutdown(Duration::from_millis(300)).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(lost(&losses), (0, 15));
}

#[tokio::test]
async fn a_collector_that_never_comes_is_counted_and_harms_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_BSP_EXPORT_TIMEOUT", "100")];
    let sinks = sinks(address, Overflow::Drop, &variables);
    sinks.trace(sample::trace());
    eventually("the batch is given up", || lost(&sinks.losses()) == (0, 5)).await;
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 5));
}

#[tokio::test]
async fn metrics_are_sent_each_interval() {
    let collector = Http::default();
    let address = collector.start(Arc::new(ok)).await;
    let sinks = sinks(address, Overflow::Drop, &[("OTEL_METRIC_EXPORT_INTERVAL", "20")]);
    sinks.metrics(sample::points());
    eventually("the first reading", || collector.got().len() == 1).await;
    sinks.metrics(sample::points());
    eventually("the second reading", || collector.got().len() == 2).await;
    // A reading that was sent is not sent again.
    assert_eq!(lost(&sinks.shutdown(LONG).await), (0, 0));
    assert_eq!(collector.got().len(), 2);
}

/// Variables that send to `localhost` over TLS.
fn tls(address: SocketAddr, protocol: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("https://localhost:{}", address.port())),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ("OTEL_BSP_EXPORT_TIMEOUT", "1000".to_owned()),
    ]
}

#[tokio::test]
async fn a_receiver_with_its_own_authority_is_trusted_by_the_file_named_and_not_without() {
    let identity = Identity::new();
    let (grpc, http) = (Grpc::default(), Http::default());
    let addresses =
        [("grpc", grpc.start_tls(&identity).await), ("http/protobuf", http.start_tls(&identity).await)];
    let (file, stranger) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(file.path(), &identity.certificate).unwrap();
    std::fs::write(stranger.path(), Identity::new().certificate).unwrap();
    for (protocol, address) in addresses {
        for (trusted, wanted) in [(&file, (0, 0)), (&stranger, (0, 5))] {
            let path = trusted.path().to_str().unwrap();
            let variables = tls(address, protocol);
            let mut variables: Vec<_> =
                variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            variables.push(("OTEL_EXPORTER_OTLP_CERTIFICATE", path));
            variables.push(("OTEL_METRICS_EXPORTER", "none"));
            let sinks = sinks(address, Overflow::Drop, &variables);
            sinks.trace(sample::trace());
            assert_eq!(lost(&sinks.shutdown(LONG).await), wanted, "{protocol}");
        }
    }
    assert_eq!(*grpc.traces.lock().unwrap(), [wanted_traces()]);
    assert_eq!(http.got().len(), 1);
}

#[test]
fn a_certificate_file_that_cannot_be_used_is_wrong_usage() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    for protocol in ["grpc", "http/protobuf"] {
        for path in ["/no/such/file", empty.path().to_str().unwrap()] {
            let lookup = |name: &str| match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("https://localhost:1".to_owned()),
                "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.to_owned()),
                "OTEL_EXPORTER_OTLP_CERTIFICATE" => Some(path.to_owned()),
                _ => None,
            };
            let config = Config::new(&cli::Output::default(), &Environment(&lookup), Overflow::Drop).unwrap();
            let error = Sinks::start(config).err().unwrap();
            assert_eq!(Exit::of(&error), Exit::Usage, "{protocol} {path}: {error:#}");
        }
    }
}
