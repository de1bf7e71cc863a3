use std::collections::HashMap;

use super::*;
use crate::exit::Exit;

fn settings(flags: &OtlpFlags, variables: &[(&str, &str)]) -> Result<OtlpSettings> {
    let map: HashMap<_, _> = variables.iter().copied().collect();
    OtlpSettings::new(flags, &Environment(&|name| map.get(name).map(ToString::to_string)))
}

fn from_env(variables: &[(&str, &str)]) -> OtlpSettings {
    settings(&OtlpFlags::default(), variables).unwrap()
}

fn flag(endpoint: &str) -> OtlpFlags {
    OtlpFlags { endpoint: Some(endpoint.to_owned()), protocol: None }
}

#[test]
fn without_an_endpoint_there_is_no_otlp() {
    let settings = from_env(&[]);
    assert_eq!((settings.traces, settings.metrics), (None, None));
}

#[test]
fn an_endpoint_for_all_signals_gets_each_signals_path() {
    let settings = from_env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/")]);
    assert_eq!(settings.traces.unwrap().uri, "http://c:4318/base/v1/traces");
    assert_eq!(settings.metrics.unwrap().uri, "http://c:4318/base/v1/metrics");
}

#[test]
fn a_signals_own_endpoint_is_used_as_it_is() {
    let settings = from_env(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/in")]);
    assert_eq!(settings.traces.unwrap().uri, "https://c/in");
    assert_eq!(settings.metrics, None);
}

#[test]
fn the_collectors_grpc_port_means_grpc_unless_said_otherwise() {
    let grpc = settings(&flag("http://c:4317"), &[]).unwrap().traces.unwrap();
    assert_eq!((grpc.protocol, grpc.uri.to_string()), (OtlpProtocol::Grpc, "http://c:4317/".to_owned()));
    let said = [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")];
    assert_eq!(
        settings(&flag("http://c:4317"), &said).unwrap().traces.unwrap().protocol,
        OtlpProtocol::HttpJson
    );
    let http = settings(&flag("http://c:4318"), &[]).unwrap().traces.unwrap();
    assert_eq!(http.protocol, OtlpProtocol::HttpProtobuf);
}

#[test]
fn a_flag_wins_over_variables() {
    let variables =
        [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other"), ("OTEL_TRACES_EXPORTER", "none")];
    let settings = settings(&flag("http://c:4318"), &variables).unwrap();
    assert_eq!(settings.traces.unwrap().uri, "http://c:4318/v1/traces");
}

#[test]
fn an_exporter_can_be_switched_off_and_on_by_name() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    assert!(from_env(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).traces.is_none());
    assert!(from_env(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).metrics.is_some());
    assert!(from_env(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).metrics.is_none());
    let named = from_env(&[("OTEL_METRICS_EXPORTER", "otlp")]);
    assert_eq!(named.metrics.unwrap().uri, "http://localhost:4318/v1/metrics");
}

#[test]
fn an_address_without_a_scheme_is_secure_unless_it_is_this_machine_or_said_insecure() {
    let scheme = |address, variables: &[_]| {
        let uri = settings(&flag(address), variables).unwrap().traces.unwrap().uri;
        uri.scheme_str().unwrap().to_owned()
    };
    assert_eq!(scheme("c:4317", &[]), "https");
    assert_eq!(scheme("localhost:4317", &[]), "http");
    assert_eq!(scheme("c:4317", &[("OTEL_EXPORTER_OTLP_INSECURE", "true")]), "http");
}

#[test]
fn headers_are_decoded_and_never_shown() {
    let settings = from_env(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=s3cret%20value, x=1"),
    ]);
    let headers = settings.traces.clone().unwrap().headers.0;
    assert_eq!(headers[0].0, "api-key");
    assert_eq!(headers[0].1, "s3cret value");
    assert_eq!(headers[1].1, "1");
    assert!(!format!("{settings:?}").contains("s3cret"));
}

#[test]
fn a_signals_own_variable_wins_over_the_shared_one() {
    let settings = from_env(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "3000"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
    ]);
    let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
    assert_eq!((traces.timeout.as_secs(), metrics.timeout.as_secs()), (3, 2));
    assert_eq!((traces.gzip, metrics.gzip), (true, false));
    assert_eq!(traces.tls.certificate, Some(PathBuf::from("/ca.pem")));
}

#[test]
fn a_batch_is_never_larger_than_the_queue() {
    let settings = from_env(&[
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_BSP_SCHEDULE_DELAY", "250"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
    ]);
    assert_eq!((settings.batch.queue, settings.batch.size), (100, 100));
    assert_eq!(settings.batch.delay, Duration::from_millis(250));
    assert_eq!(settings.metric.interval, Duration::from_secs(1));
}

#[test]
fn what_cannot_be_used_is_refused_by_name_with_exit_code_2() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "thrift"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "lzma"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "novalue"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "bad key=1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
    ] {
        let error = settings(&OtlpFlags::default(), &[endpoint, (name, value)]).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage, "{name}");
        assert!(error.to_string().contains(name), "{error}");
    }
    for address in ["ftp://c", "http://", "http://a b", ":"] {
        let error = settings(&flag(address), &[]).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage, "{address}");
    }
}

#[test]
fn the_service_name_wins_over_the_attribute_list() {
    let map = HashMap::from([
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment=pro%2Cd"),
        ("OTEL_SERVICE_NAME", "b"),
    ]);
    let lookup = |name: &str| map.get(name).map(ToString::to_string);
    let said = Environment(&lookup).resource().unwrap();
    let wanted = [("deployment.environment", "pro,d"), ("service.name", "b")];
    assert_eq!(said, wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
}
