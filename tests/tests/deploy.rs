//! What is under `deploy/`, by the tools it is for. `cargo xtask test --only deploy` brings them.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use enginetap_core::model::registry;
use enginetap_tests::collector::Collector;
use enginetap_tests::daemon::{Daemon, agent, free_address};
use serde_json::Value as Json;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

fn deploy(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}

/// A program of the tools' environment.
fn tool(name: &str) -> Result<Command> {
    let folder = std::env::var_os("ENGINETAP_TOOLS").context("use `cargo xtask test --only deploy`")?;
    let mut command = Command::new(PathBuf::from(folder).join(name));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
    Ok(command)
}

/// A script of `tests/deploy`.
fn script(name: &str) -> Result<Command> {
    let mut command = tool("python")?;
    command.arg(root().join("tests/deploy").join(name));
    Ok(command)
}

/// A program of Debian's package `prometheus`.
fn prometheus(name: &str) -> Result<Command> {
    let folder = std::env::var_os("ENGINETAP_PROMETHEUS").context("use `cargo xtask test --only deploy`")?;
    Ok(Command::new(PathBuf::from(folder).join(name)))
}

/// The standard output of a program that must succeed.
fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    Ok(stdout.into_owned())
}

/// The chart, linted and rendered with these values.
fn chart(values: &str) -> Result<Json> {
    Ok(serde_json::from_str(&output(script("helm.py")?.arg(deploy("helm/enginetap")).arg(values))?)?)
}

/// The manifest of a kind.
fn manifest(chart: &Json, kind: &str) -> Result<Json> {
    let documents = chart["documents"].as_array().context("no manifests")?;
    documents.iter().find(|document| document["kind"] == kind).cloned().with_context(|| format!("no {kind}"))
}

/// Checks manifests against the schemas of these versions of Kubernetes.
fn validate(chart: &Json, versions: &[&str]) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(chart["documents"].to_string().as_bytes())?;
    output(script("manifests.py")?.arg(file.path()).args(versions)).map(drop)
}

#[test]
fn the_chart_passes_helms_lint_and_its_manifests_the_schemas_of_kubernetes() -> Result<()> {
    let plain = chart("{}")?;
    assert_eq!(plain["errors"], Json::Array(Vec::new()));
    let messages = plain["messages"].as_array().context("no messages")?;
    assert!(messages.iter().all(|message| message["severity"].as_u64() < Some(2)), "{messages:?}");
    validate(&plain, &["1.30", "1.31", "1.34", "1.37"])?;
    let older = chart(r#"{"security": {"appArmorProfile": ""}}"#)?;
    validate(&older, &["1.25", "1.28", "1.37"])?;
    let full = chart(
        r#"{"env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://c:4317"}], "priorityClassName": "p",
            "imagePullSecrets": [{"name": "s"}], "affinity": {"nodeAffinity": {}}, "podLabels": {"a": "b"},
            "podAnnotations": {}, "tolerations": [], "nodeSelector": {}}"#,
    )?;
    validate(&full, &["1.31"])
}

#[test]
fn a_value_that_the_chart_does_not_know_is_refused() -> Result<()> {
    for values in [r#"{"secruity": {}}"#, r#"{"security": {"privileged": "yes"}}"#, r#"{"port": 0}"#] {
        let refused = script("helm.py")?.arg(deploy("helm/enginetap")).arg(values).output()?;
        assert_eq!(refused.status.code(), Some(2), "{values}");
    }
    Ok(())
}

#[test]
fn the_daemon_set_asks_for_what_it_needs_and_no_more() -> Result<()> {
    let chart = chart("{}")?;
    let pod = manifest(&chart, "DaemonSet")?["spec"]["template"]["spec"].clone();
    assert_eq!(
        (&pod["hostPID"], &pod["hostNetwork"], &pod["hostIPC"]),
        (&Json::Bool(true), &Json::Null, &Json::Null)
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(
        (&security["privileged"], &security["readOnlyRootFilesystem"]),
        (&Json::Bool(false), &Json::Bool(true))
    );
    assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]));
    let added: BTreeSet<_> = words(&security["capabilities"]["add"]);
    assert_eq!(added, unit_capabilities()?, "the systemd unit and the chart ask for the same");
    assert!(container["resources"]["limits"]["memory"].is_string());
    let host = pod["volumes"]
        .as_array()
        .context("no volumes")?
        .iter()
        .filter(|volume| !volume["hostPath"].is_null());
    assert_eq!(host.count(), 0, "nothing of the host is mounted");
    assert!(words_of(&pod["tolerations"], "key").contains("nvidia.com/gpu"));
    let kinds = words_of(&chart["documents"], "kind");
    assert!(kinds.iter().all(|kind| !kind.contains("Role")), "it never speaks to the API server: {kinds:?}");
    Ok(())
}

fn words(list: &Json) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
}

fn words_of(list: &Json, key: &str) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|item| Some(item[key].as_str()?.to_owned())).collect()
}

fn unit_capabilities() -> Result<BTreeSet<String>> {
    let unit = std::fs::read_to_string(deploy("systemd/enginetap.service"))?;
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).context("no set")?;
    Ok(line.split_whitespace().map(|name| name.trim_start_matches("CAP_").to_owned()).collect())
}

#[test]
fn privileged_is_the_fallback() -> Result<()> {
    let chart = chart(r#"{"security": {"privileged": true}}"#)?;
    validate(&chart, &["1.25", "1.37"])?;
    let security =
        manifest(&chart, "DaemonSet")?["spec"]["template"]["spec"]["containers"][0]["securityContext"]
            .clone();
    assert_eq!((&security["privileged"], &security["capabilities"]), (&Json::Bool(true), &Json::Null));
    Ok(())
}

#[test]
fn the_plain_manifests_are_the_chart_as_it_is_rendered() -> Result<()> {
    let path = deploy("kubernetes/enginetap.yaml");
    let rendered = output(script("plain.py")?.arg(deploy("helm/enginetap")))?;
    if std::env::var_os("ENGINETAP_BLESS").is_some() {
        std::fs::write(&path, &rendered)?;
    }
    let committed = std::fs::read_to_string(&path)?;
    ensure!(
        committed == rendered,
        "write it anew: ENGINETAP_BLESS=1 cargo xtask test --only deploy plain_manifests"
    );
    Ok(())
}

#[test]
fn the_shipped_configurations_can_be_used_and_leave_content_out() -> Result<()> {
    let mapped =
        manifest(&chart("{}")?, "ConfigMap")?["data"]["config.toml"].as_str().unwrap_or_default().to_owned();
    let file = std::fs::read_to_string(deploy("config/config.toml"))?;
    for text in [mapped, file] {
        let mut config = tempfile::NamedTempFile::new()?;
        config.write_all(text.as_bytes())?;
        output(Command::new(agent()?).args(["config", "check"]).arg(config.path()))?;
        let socket = ["--socket", "/nowhere/socket"];
        let mut show = Command::new(agent()?);
        show.args(["config", "show", "--json", "--config"]).arg(config.path()).args(socket);
        let settings: Json = serde_json::from_str(&output(&mut show)?)?;
        let content = "otel.instrumentation.genai.capture-message-content";
        let shown = settings.as_array().into_iter().flatten().find(|shown| shown["name"] == content);
        let said = shown.and_then(|shown| shown["said"].as_array()?.last().cloned()).context("not shown")?;
        assert_eq!((&said["value"], &said["source"]), (&Json::from("false"), &Json::from("file")));
    }
    Ok(())
}

#[test]
fn the_dockerfile_passes_hadolint() -> Result<()> {
    output(tool("hadolint")?.arg("--no-color").arg(deploy("container/Dockerfile"))).map(drop)
}

#[test]
fn systemd_takes_the_unit_and_finds_it_hardened() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let unit = folder.path().join("enginetap.service");
    let text = std::fs::read_to_string(deploy("systemd/enginetap.service"))?;
    // The agent is not installed where the unit says.
    let here = format!("ExecStart={} run", agent()?.display());
    let text = text.replace("ExecStart=/usr/local/bin/enginetap run", &here);
    ensure!(text.contains(&here), "the unit starts the daemon");
    std::fs::write(&unit, text)?;
    output(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit))?;
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold=50", "--no-pager"]);
    output(security.arg(&unit)).map(drop)
}

#[test]
fn prometheus_takes_the_alerts_and_they_fire_when_they_should() -> Result<()> {
    let folder = deploy("prometheus");
    for words in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        output(prometheus("promtool")?.args(words).current_dir(&folder))?;
    }
    Ok(())
}

/// The dashboards, by name.
fn dashboards() -> Result<Vec<(String, Json)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(deploy("grafana"))? {
        let path = entry?.path();
        let json = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        found.push((path.display().to_string(), json));
    }
    ensure!(found.len() == 3, "{found:?}");
    Ok(found)
}

/// Every query of a dashboard, with Grafana's variables put in.
fn queries(dashboard: &Json) -> Vec<String> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let exprs = targets.filter_map(|target| target["expr"].as_str());
    exprs
        .map(|expr| {
            expr.replace("$__rate_interval", "5m").replace("$server", ".*").replace("$instance", ".*")
        })
        .collect()
}

#[test]
fn every_query_of_the_dashboards_is_one_that_prometheus_takes() -> Result<()> {
    let mut rules = "groups:\n- name: dashboards\n  rules:\n".to_owned();
    for (_, dashboard) in dashboards()? {
        for (nth, query) in queries(&dashboard).iter().enumerate() {
            let title = dashboard["uid"].as_str().unwrap_or_default().replace('-', "_");
            rules.push_str(&format!(
                "  - record: {title}:{nth}\n    expr: {}\n",
                serde_json::to_string(query)?
            ));
        }
    }
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(rules.as_bytes())?;
    output(prometheus("promtool")?.args(["check", "rules"]).arg(file.path())).map(drop)
}

/// Words of a query that may be metrics: what stands before `{`, `[`, or an operator, functions and labels left out.
fn metrics_in(query: &str) -> BTreeSet<String> {
    let known = names();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let bare = without(query, '"', '"');
    let bare = without(&without(&bare, '{', '}'), '[', ']');
    let grouping = ["by", "sum", "max", "rate", "increase", "clamp_min", "and", "for"];
    let mut found = BTreeSet::new();
    let mut rest = bare.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let word: String = rest[start..].chars().take_while(|c| is_word(*c)).collect();
        rest = &rest[start + word.len()..];
        if word == "by" {
            rest = rest.split_once(')').map_or("", |(_, rest)| rest);
        } else if known.contains(&word) || !grouping.contains(&word.as_str()) {
            found.insert(word);
        }
    }
    found
}

/// A text without what stands between two marks.
fn without(text: &str, open: char, close: char) -> String {
    let (mut out, mut within) = (String::new(), false);
    for c in text.chars() {
        match (within, c) {
            (false, c) if c == open => within = true,
            (true, c) if c == close => within = false,
            (false, c) => out.push(c),
            (true, _) => {}
        }
    }
    out
}

/// Every metric that the agent serves.
fn every_metric() -> impl Iterator<Item = &'static registry::MetricDef> {
    registry::metric::ALL.iter().copied().chain(registry::beyond())
}

/// A metric's name as Prometheus has it.
fn served(metric: &registry::MetricDef) -> String {
    metric.name.replace('.', "_")
}

/// Their names.
fn names() -> BTreeSet<String> {
    every_metric().map(served).collect()
}

#[test]
fn dashboards_and_alerts_speak_of_metrics_that_there_are() -> Result<()> {
    let mut used = BTreeSet::new();
    for (_, dashboard) in dashboards()? {
        used.extend(queries(&dashboard).iter().flat_map(|query| metrics_in(query)));
    }
    let alerts: Json = serde_json::from_str(&output(
        script("yaml2json.py")?.stdin(std::fs::File::open(deploy("prometheus/alerts.yml"))?),
    )?)?;
    for group in alerts["groups"].as_array().into_iter().flatten() {
        for rule in group["rules"].as_array().into_iter().flatten() {
            used.extend(metrics_in(rule["expr"].as_str().context("no expr")?));
        }
    }
    let known = names();
    let unknown: Vec<_> = used.iter().filter(|name| !known.contains(*name) && *name != "up").collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let v0 = |metric: &registry::MetricDef| metric.engines == [registry::Dialect::VllmV0];
    let missing: Vec<_> = every_metric()
        .filter(|metric| !used.contains(&served(metric)) && !v0(metric))
        .map(|m| m.name)
        .collect();
    assert!(missing.is_empty(), "on no dashboard: {missing:?}");
    Ok(())
}

#[test]
fn grafana_reads_the_dashboards() -> Result<()> {
    let mut reader = script("dashboard.py")?;
    for (path, dashboard) in dashboards()? {
        reader.arg(&path);
        let panels = dashboard["panels"].as_array().context("no panels")?;
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), panels.len(), "{path}: a panel's id is its own");
        let places: BTreeSet<_> = panels.iter().map(|panel| panel["gridPos"].to_string()).collect();
        assert_eq!(places.len(), panels.len(), "{path}: and so is its place");
    }
    assert_eq!(output(&mut reader)?.lines().count(), 3);
    Ok(())
}

#[test]
fn the_collectors_pipelines_are_made_of_what_is_defined() -> Result<()> {
    let file = std::fs::File::open(deploy("collector/otel-collector.yaml"))?;
    let config: Json = serde_json::from_str(&output(script("yaml2json.py")?.stdin(file))?)?;
    let pipelines = config["service"]["pipelines"].as_object().context("no pipelines")?;
    let mut used = BTreeSet::new();
    for part in ["receivers", "processors", "exporters"] {
        for name in pipelines.values().flat_map(|pipeline| words(&pipeline[part])) {
            assert!(config[part].get(&name).is_some(), "{part}: {name} is not defined");
            used.insert(format!("{part}/{name}"));
        }
        for name in config[part].as_object().context("no part")?.keys() {
            assert!(used.contains(&format!("{part}/{name}")), "{part}: {name} is not used");
        }
    }
    Ok(())
}

/// Whether what needs root can be done; says so where not.
fn root_user() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        eprintln!("skipped: it needs root");
    }
    is
}

#[test]
fn a_real_prometheus_scrapes_a_real_daemon_and_its_alerts_work() -> Result<()> {
    if !root_user() {
        return Ok(());
    }
    let daemon = Daemon::start("", &[])?;
    let server = Prometheus::start(&daemon.address)?;
    server.wait("up{job=\"enginetap\"} == 1")?;
    server.wait("enginetap_servers")?;
    server.wait("enginetap_config_invalid == 0")?;
    server.wait("enginetap_cpu_seconds{mode=\"user\"}")?;
    server.wait("target_info{service_name=\"enginetap\"}")?;
    let rules = server.get("/api/v1/rules")?;
    let groups = rules["data"]["groups"].as_array().context("no groups")?.clone();
    let rules: Vec<&Json> =
        groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect();
    assert!(rules.len() > 10 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
    daemon.end().map(drop)
}

/// A Prometheus of the shipped configuration, its target and its pace changed.
struct Prometheus {
    child: std::process::Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let shipped = std::fs::read_to_string(deploy("prometheus/prometheus.yml"))?;
        let config = shipped.replace("127.0.0.1:9464", target).replace(": 15s", ": 1s");
        ensure!(config.contains(target), "the target stands in the configuration");
        std::fs::write(folder.path().join("prometheus.yml"), config)?;
        std::fs::copy(deploy("prometheus/alerts.yml"), folder.path().join("alerts.yml"))?;
        let address = free_address()?;
        let mut command = prometheus("prometheus")?;
        command.arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, address, _folder: folder })
    }

    fn get(&self, path: &str) -> Result<Json> {
        let answer = enginetap_tests::daemon::http(&self.address, &format!("GET {path} HTTP/1.0\r\n\r\n"))?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no head")?;
        Ok(serde_json::from_str(body)?)
    }

    /// Waits until a query finds something.
    fn wait(&self, query: &str) -> Result<()> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for _ in 0..300 {
            let found = self.get(&format!("/api/v1/query?query={escaped}"));
            if found
                .is_ok_and(|found| found["data"]["result"].as_array().is_some_and(|list| !list.is_empty()))
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("waited in vain for {query}")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_receiver_that_is_not_ours_takes_the_traces_and_hands_them_on() -> Result<()> {
    let ours = Collector::start()?;
    let (grpc, http) = (free_address()?, free_address()?);
    let base = ours.endpoint.strip_suffix("/v1/traces").context("an endpoint")?;
    let mut command = script("receiver.py")?;
    command.args(["start", "--otlp-grpc-endpoint", &grpc, "--otlp-http-endpoint", &http]);
    command.args([
        "--exporter",
        "otlp",
        "--otlp-exporter-protocol",
        "http",
        "--otlp-exporter-endpoint",
        base,
    ]);
    let mut receiver = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let outcome =
        [(&grpc, "grpc"), (&http, "http/protobuf")].into_iter().try_for_each(|(address, protocol)| {
            wait_for(address)?;
            let before = ours.spans("llm_request").len();
            let mut replay = Command::new(agent()?);
            replay.arg("replay").arg(root().join("tests/captures/answers.cap.gz"));
            replay.args(["--otlp-endpoint", &format!("http://{address}"), "--otlp-protocol", protocol]);
            output(replay.env("OTEL_METRICS_EXPORTER", "none"))?;
            for _ in 0..150 {
                if ours.spans("llm_request").len() > before {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            bail!("{protocol}: no span came through")
        });
    receiver.kill()?;
    receiver.wait()?;
    outcome
}

fn wait_for(address: &str) -> Result<()> {
    for _ in 0..150 {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    bail!("nothing listens at {address}")
}
