//! The standard `OTEL_*` variables, and the flags that win over them.
//!
//! A value that cannot be used is an error, not a warning as the specification would have it: an operator who
//! wrote it wants to know before, not after, the incident.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::cli::OtlpProtocol;
use crate::exit::Refusal;

/// Where OTLP goes and how.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OtlpSettings {
    /// Receiver of traces, if any.
    pub traces: Option<Endpoint>,
    /// Receiver of metrics, if any.
    pub metrics: Option<Endpoint>,
    /// Receiver of log lines, if any.
    pub logs: Option<Endpoint>,
    /// How spans are put into batches (`OTEL_BSP_*`).
    pub batch: Batch,
    /// How log lines are put into batches (`OTEL_BLRP_*`).
    pub log_batch: Batch,
    /// How often metrics are sent (`OTEL_METRIC_EXPORT_*`).
    pub metric: Period,
}

/// A receiver of one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address; the whole path for HTTP, ignored for gRPC. The scheme says whether TLS is used.
    pub uri: Uri,
    /// Its protocol.
    pub protocol: OtlpProtocol,
    /// Headers of every request. Never shown: they hold credentials.
    pub headers: Headers,
    /// Most time one attempt may take.
    pub timeout: Duration,
    /// Whether bodies are compressed.
    pub gzip: bool,
    /// TLS files.
    pub tls: TlsFiles,
}

/// Headers of every request.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(pub Vec<(HeaderName, HeaderValue)>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// PEM files of TLS; none: the system's roots and no client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// Roots to trust instead of the system's.
    pub certificate: Option<PathBuf>,
    /// This client's certificate chain.
    pub client_certificate: Option<PathBuf>,
    /// This client's private key.
    pub client_key: Option<PathBuf>,
}

/// How spans, or log lines, are put into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Most time a span waits before it is sent.
    pub delay: Duration,
    /// Most spans waiting; those beyond are dropped and counted.
    pub queue: usize,
    /// Spans that are sent at once.
    pub size: usize,
    /// Most time a batch is tried for, retries included.
    pub timeout: Duration,
}

/// How often metrics are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Time between two readings.
    pub interval: Duration,
    /// Most time a reading is tried for, retries included.
    pub timeout: Duration,
}

impl Default for Batch {
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), queue: 2048, size: 512, timeout: Duration::from_secs(30) }
    }
}

impl Batch {
    /// The defaults of the specification for log lines.
    fn of_logs() -> Self {
        Self { delay: Duration::from_secs(1), ..Self::default() }
    }
}

impl Default for Period {
    fn default() -> Self {
        Self { interval: Duration::from_secs(60), timeout: Duration::from_secs(30) }
    }
}

/// What the command line says of OTLP; it wins over the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpFlags {
    /// `--otlp-endpoint`.
    pub endpoint: Option<String>,
    /// `--otlp-protocol`.
    pub protocol: Option<OtlpProtocol>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    fn variable(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
            Self::Logs => "v1/logs",
        }
    }
}

/// Variables of the environment by name; an empty one counts as unset.
pub struct Environment<'a>(pub &'a dyn Fn(&str) -> Option<String>);

/// The variables of this process.
#[must_use]
pub fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Environment<'_> {
    /// A variable; empty ones and blanks count as unset.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// A signal's own variable, else the one for all signals, with the name of the one that spoke.
    fn otlp(&self, signal: Signal, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.variable());
        let shared = format!("OTEL_EXPORTER_OTLP_{what}");
        [own, shared].into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn truth(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => refuse(format!("{name}={text} is no number"), "set it to a whole number, or unset it"),
        }
    }

    fn millis(&self, name: &str) -> Result<Option<Duration>> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`, the latter winning.
    ///
    /// # Errors
    /// When the list is malformed.
    pub fn resource(&self) -> Result<Vec<(String, String)>> {
        let mut attributes = match self.get("OTEL_RESOURCE_ATTRIBUTES") {
            Some(list) => pairs("OTEL_RESOURCE_ATTRIBUTES", &list)?,
            None => Vec::new(),
        };
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), name));
        }
        Ok(attributes)
    }

    /// How often metrics are written.
    ///
    /// # Errors
    /// When a variable is no number.
    pub fn period(&self) -> Result<Period> {
        let default = Period::default();
        let interval = self.millis("OTEL_METRIC_EXPORT_INTERVAL")?.unwrap_or(default.interval);
        Ok(Period {
            interval: interval.max(Duration::from_millis(1)),
            timeout: self.millis("OTEL_METRIC_EXPORT_TIMEOUT")?.unwrap_or(default.timeout),
        })
    }

    /// `prefix`: that of the variables of a signal's batches.
    fn batch(&self, prefix: &str, default: Batch) -> Result<Batch> {
        let name = |what| format!("{prefix}_{what}");
        let count = |what, default: usize| -> Result<usize> {
            let said = self.number(&name(what))?;
            Ok(said.map_or(default, |n| usize::try_from(n).unwrap_or(usize::MAX)).max(1))
        };
        let queue = count("MAX_QUEUE_SIZE", default.queue)?;
        Ok(Batch {
            delay: self.millis(&name("SCHEDULE_DELAY"))?.unwrap_or(default.delay),
            queue,
            size: count("MAX_EXPORT_BATCH_SIZE", default.size)?.min(queue),
            timeout: self.millis(&name("EXPORT_TIMEOUT"))?.unwrap_or(default.timeout),
        })
    }
}

impl OtlpSettings {
    /// What flags and environment say together. OTLP is on only where an endpoint is named, or an exporter by
    /// `OTEL_TRACES_EXPORTER=otlp`, `OTEL_METRICS_EXPORTER=otlp` or `OTEL_LOGS_EXPORTER=otlp`.
    ///
    /// # Errors
    /// A [`Refusal`] that names the variable or flag that cannot be used.
    pub fn new(flags: &OtlpFlags, environment: &Environment<'_>) -> Result<Self> {
        let disabled = environment.truth("OTEL_SDK_DISABLED");
        let endpoint = |signal| {
            if disabled { Ok(None) } else { endpoint(signal, flags, environment) }
        };
        Ok(Self {
            traces: endpoint(Signal::Traces)?,
            metrics: endpoint(Signal::Metrics)?,
            logs: endpoint(Signal::Logs)?,
            batch: environment.batch("OTEL_BSP", Batch::default())?,
            log_batch: environment.batch("OTEL_BLRP", Batch::of_logs())?,
            metric: environment.period()?,
        })
    }
}

fn refuse<T>(what: impl Into<String>, next: impl Into<String>) -> Result<T> {
    Err(Refusal::usage(what, next).into())
}

fn endpoint(signal: Signal, flags: &OtlpFlags, environment: &Environment<'_>) -> Result<Option<Endpoint>> {
    let exporter = environment.get(&format!("OTEL_{}_EXPORTER", signal.variable()));
    if exporter.as_deref() == Some("none") && flags.endpoint.is_none() {
        return Ok(None);
    }
    let own = environment.get(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.variable()));
    let shared = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT");
    let named_otlp = exporter.is_some_and(|names| names.split(',').any(|name| name.trim() == "otlp"));
    let (address, whole) = match (&flags.endpoint, own, shared) {
        (Some(flag), _, _) => (flag.clone(), false),
        (None, Some(own), _) => (own, true),
        (None, None, Some(shared)) => (shared, false),
        (None, None, None) if named_otlp => (default_address(signal, flags, environment)?, false),
        (None, None, None) => return Ok(None),
    };
    let uri = address_uri(&address, signal, environment)?;
    let protocol = match protocol(signal, flags, environment)? {
        Some(protocol) => protocol,
        // The port that every collector gives gRPC; the specification's default is the other.
        None if uri.port_u16() == Some(4317) => OtlpProtocol::Grpc,
        None => OtlpProtocol::HttpProtobuf,
    };
    let uri = if whole || protocol == OtlpProtocol::Grpc { uri } else { with_path(&uri, signal)? };
    Ok(Some(Endpoint {
        uri,
        protocol,
        headers: headers(signal, environment)?,
        timeout: timeout(signal, environment)?,
        gzip: gzip(signal, environment)?,
        tls: tls(signal, environment),
    }))
}

fn default_address(signal: Signal, flags: &OtlpFlags, environment: &Environment<'_>) -> Result<String> {
    let grpc = protocol(signal, flags, environment)? == Some(OtlpProtocol::Grpc);
    Ok(if grpc { "http://localhost:4317" } else { "http://localhost:4318" }.to_owned())
}

/// The address with a scheme: `http` where the variable for it says insecure or the host is this one, else `https`.
fn address_uri(address: &str, signal: Signal, environment: &Environment<'_>) -> Result<Uri> {
    let next = "write it as http://HOST:PORT or https://HOST:PORT";
    let full = if address.contains("://") {
        address.to_owned()
    } else {
        let host = address.split([':', '/']).next().unwrap_or_default();
        let insecure = environment.otlp(signal, "INSECURE").is_some_and(|(_, value)| value == "true");
        let plain = insecure || matches!(host, "localhost" | "127.0.0.1");
        format!("{}://{address}", if plain { "http" } else { "https" })
    };
    let uri: Uri = match full.parse() {
        Ok(uri) => uri,
        Err(error) => return refuse(format!("OTLP endpoint {address}: {error}"), next),
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return refuse(format!("OTLP endpoint {address} is no http or https address"), next);
    }
    Ok(uri)
}

/// An address for all signals, with the path of one of them at its end.
fn with_path(uri: &Uri, signal: Signal) -> Result<Uri> {
    let mut parts = uri.clone().into_parts();
    let path = format!("{}/{}", uri.path().trim_end_matches('/'), signal.path());
    parts.path_and_query = Some(path.parse().with_context(|| format!("OTLP endpoint {uri}"))?);
    Uri::from_parts(parts).with_context(|| format!("OTLP endpoint {uri}"))
}

fn protocol(
    signal: Signal,
    flags: &OtlpFlags,
    environment: &Environment<'_>,
) -> Result<Option<OtlpProtocol>> {
    if flags.protocol.is_some() {
        return Ok(flags.protocol);
    }
    let Some((name, value)) = environment.otlp(signal, "PROTOCOL") else { return Ok(None) };
    match value.as_str() {
        "grpc" => Ok(Some(OtlpProtocol::Grpc)),
        "http/protobuf" => Ok(Some(OtlpProtocol::HttpProtobuf)),
        "http/json" => Ok(Some(OtlpProtocol::HttpJson)),
        _ => refuse(
            format!("{name}={value} is no protocol of OTLP"),
            "set it to grpc, http/protobuf or http/json",
        ),
    }
}

fn timeout(signal: Signal, environment: &Environment<'_>) -> Result<Duration> {
    let own = environment.millis(&format!("OTEL_EXPORTER_OTLP_{}_TIMEOUT", signal.variable()))?;
    let shared = environment.millis("OTEL_EXPORTER_OTLP_TIMEOUT")?;
    Ok(own.or(shared).unwrap_or(Duration::from_secs(10)))
}

fn gzip(signal: Signal, environment: &Environment<'_>) -> Result<bool> {
    match environment.otlp(signal, "COMPRESSION") {
        None => Ok(false),
        Some((_, value)) if value == "gzip" => Ok(true),
        Some((_, value)) if value == "none" => Ok(false),
        Some((name, value)) => {
            refuse(format!("{name}={value} is no compression known here"), "set it to gzip or none")
        }
    }
}

fn tls(signal: Signal, environment: &Environment<'_>) -> TlsFiles {
    let file = |what| environment.otlp(signal, what).map(|(_, path)| PathBuf::from(path));
    TlsFiles {
        certificate: file("CERTIFICATE"),
        client_certificate: file("CLIENT_CERTIFICATE"),
        client_key: file("CLIENT_KEY"),
    }
}

fn headers(signal: Signal, environment: &Environment<'_>) -> Result<Headers> {
    let Some((name, list)) = environment.otlp(signal, "HEADERS") else { return Ok(Headers::default()) };
    // No value is shown in an error: it may be a credential.
    let header = |(key, value): (String, String)| match (
        HeaderName::try_from(key.to_ascii_lowercase()),
        HeaderValue::try_from(value),
    ) {
        (Ok(key), Ok(mut value)) => {
            value.set_sensitive(true);
            Ok((key, value))
        }
        (Err(_), _) => refuse(format!("{name}: {key:?} is no header name"), "write KEY=VALUE,KEY=VALUE"),
        (Ok(key), Err(_)) => {
            refuse(format!("{name}: the value of {key} is no header value"), "percent-encode it")
        }
    };
    Ok(Headers(pairs(&name, &list)?.into_iter().map(header).collect::<Result<_>>()?))
}

/// `key=value,key=value` with percent-encoded values, as W3C Baggage has it.
fn pairs(name: &str, list: &str) -> Result<Vec<(String, String)>> {
    let members = list.split(',').map(str::trim).filter(|member| !member.is_empty());
    let pair = |member: &str| match member.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((decoded(key), decoded(value))),
        Some(_) | None => {
            refuse(format!("{name}: a member of the list has no KEY=VALUE form"), "write KEY=VALUE,KEY=VALUE")
        }
    };
    members.map(pair).collect()
}

fn decoded(text: &str) -> String {
    percent_decode_str(text.trim()).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests;
