//! The daemon on this kernel: servers that come and go, settings that change while it runs, and the faults it must
//! survive. As root.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use enginetap::probe::programs_loaded;
use enginetap_tests::collector::Collector;
use enginetap_tests::daemon::{Daemon, FakeVllm, free_address};
use enginetap_tests::nvml::{StandIn, TWO};
use rustix::process::Signal;
use serde_json::Value as Json;

const CONTENT: &str = "otel.instrumentation.genai.capture-message-content";
const CONTENT_ENV: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

fn off() -> String {
    format!("{CONTENT} = false\n")
}

fn on() -> String {
    format!("{CONTENT} = true\n")
}

/// Starts a daemon and waits until it follows these servers.
fn following(config: &str, servers: &[&FakeVllm]) -> Result<Daemon> {
    let mut daemon = Daemon::start(config, &[])?;
    servers.iter().try_for_each(|server| daemon.wait_followed(server, true))?;
    Ok(daemon)
}

/// Sends a request and waits for its span.
fn span(daemon: &mut Daemon, server: &FakeVllm, mark: &str) -> Result<Json> {
    server.ask(mark)?;
    let find = |daemon: &Daemon| -> Result<Option<Json>> {
        Ok(daemon.spans()?.into_iter().find(|span| value(span, "gen_ai.user.id") == Some(mark)))
    };
    daemon.wait("the request's span", |daemon| Ok(find(daemon)?.is_some()))?;
    find(daemon)?.context("it was there")
}

fn value<'a>(span: &'a Json, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    attributes.iter().find(|attribute| attribute["key"] == key)?["value"]["stringValue"].as_str()
}

fn has_content(span: &Json) -> bool {
    value(span, "gen_ai.input.messages").is_some()
}

/// The ids of the kernel programs that a process holds.
fn programs(pid: u32) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        ids.extend(text.lines().filter_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}

#[test]
fn servers_that_come_after_the_daemon_are_followed_and_those_that_end_are_let_go() -> Result<()> {
    let mut daemon = following("", &[])?;
    ensure!(daemon.get("/healthz")? == "ok\n");
    let server = FakeVllm::start(&[])?;
    daemon.wait_followed(&server, true)?;
    let seen = span(&mut daemon, &server, "first")?;
    assert_eq!(value(&seen, "gen_ai.request.model"), Some("m"));
    let pid = server.pid();
    server.kill()?;
    daemon.wait("the server to be let go", |daemon| Ok(!daemon.follows(pid)?))?;
    let again = FakeVllm::start(&[])?;
    daemon.wait_followed(&again, true)?;
    span(&mut daemon, &again, "second")?;
    daemon.end()?;
    Ok(())
}

#[test]
fn a_setting_changes_while_the_daemon_runs_by_the_file_by_a_signal_and_by_an_order_for_a_time() -> Result<()>
{
    let server = FakeVllm::start(&[])?;
    let mut daemon = following(&off(), &[&server])?;
    assert!(!has_content(&span(&mut daemon, &server, "off-by-file")?));
    daemon.write_config(&on())?;
    until(&mut daemon, &server, "on-by-file", true)?;
    assert!(daemon.config(&["set", CONTENT, "false", "--for", "1h"])?.status.success());
    assert!(!has_content(&span(&mut daemon, &server, "off-by-order")?));
    let said = daemon.config(&["set", CONTENT, "false", "--for", "2s"])?;
    assert!(said.status.success(), "{said:?}");
    until(&mut daemon, &server, "on-after-its-time", true)?;
    let pid = server.pid().to_string();
    assert!(daemon.config(&["set", CONTENT, "false", "--target", &pid])?.status.success());
    assert!(!has_content(&span(&mut daemon, &server, "off-for-it")?));
    assert!(daemon.config(&["unset", CONTENT, "--target", &pid])?.status.success());
    assert!(has_content(&span(&mut daemon, &server, "on-again")?));
    daemon.write_config(&off())?;
    daemon.signal(Signal::HUP)?;
    until(&mut daemon, &server, "off-by-signal", false)?;
    let shown = daemon.config(&["show"])?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(CONTENT)).context("not shown")?;
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), [CONTENT, "false", "file"]);
    daemon.end()?;
    Ok(())
}

/// Asks until a request's span has (or lacks) its content: a change takes a moment.
fn until(daemon: &mut Daemon, server: &FakeVllm, mark: &str, content: bool) -> Result<()> {
    for nth in 0..60 {
        if has_content(&span(daemon, server, &format!("{mark}-{nth}"))?) == content {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    anyhow::bail!("{mark}: the change did not come")
}

#[test]
fn rubbish_in_the_file_is_told_and_what_it_said_before_holds_on() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let mut daemon = following(&off(), &[&server])?;
    assert_eq!(daemon.metric("enginetap_config_invalid")?, 0.0);
    daemon.write_config("otel.instrumentation.genai.capture-mesage-content = true")?;
    daemon.wait("it to be told", |daemon| Ok(daemon.metric("enginetap_config_invalid")? == 1.0))?;
    assert!(!has_content(&span(&mut daemon, &server, "still-off")?));
    let refused = daemon.config(&["reload"])?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did you mean"), "{refused:?}");
    daemon.write_config(&on())?;
    daemon.wait("it to be right again", |daemon| Ok(daemon.metric("enginetap_config_invalid")? == 0.0))?;
    until(&mut daemon, &server, "on", true)?;
    let told = daemon.end()?;
    assert!(told.contains("line 1") && told.contains(&format!("did you mean `{CONTENT}`?")), "{told}");
    Ok(())
}

#[test]
fn a_servers_own_environment_holds_for_that_server_alone() -> Result<()> {
    let (quiet, open) =
        (FakeVllm::start(&[(CONTENT_ENV, "false")])?, FakeVllm::start(&[(CONTENT_ENV, "true")])?);
    let away = FakeVllm::start(&[("OTEL_INSTRUMENTATION_VLLM_ENABLED", "false")])?;
    let mut daemon = following("", &[&quiet, &open])?;
    assert!(!has_content(&span(&mut daemon, &quiet, "quiet")?));
    assert!(has_content(&span(&mut daemon, &open, "open")?));
    assert!(!daemon.follows(away.pid())?);
    away.ask("away")?;
    assert!(has_content(&span(&mut daemon, &open, "later")?));
    assert!(!daemon.spans()?.iter().any(|span| value(span, "gen_ai.user.id") == Some("away")));
    daemon.end()?;
    Ok(())
}

#[test]
fn an_engine_switched_off_is_let_go_and_taken_up_again() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let mut daemon = following("", &[&server])?;
    assert!(daemon.config(&["set", "otel.instrumentation.vllm.enabled", "false"])?.status.success());
    daemon.wait_followed(&server, false)?;
    assert!(daemon.config(&["unset", "otel.instrumentation.vllm.enabled"])?.status.success());
    daemon.wait_followed(&server, true)?;
    span(&mut daemon, &server, "back")?;
    daemon.end()?;
    Ok(())
}

#[test]
fn a_daemon_that_was_killed_leaves_nothing_in_the_kernel_and_its_targets_unharmed() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let mut daemon = following("", &[&server])?;
    span(&mut daemon, &server, "watched")?;
    let ours = programs(daemon.pid())?;
    let loaded = || -> Result<BTreeSet<u32>> { Ok(programs_loaded()?.into_iter().collect()) };
    assert!(!ours.is_empty() && ours.is_subset(&loaded()?), "the kernel programs are loaded: {ours:?}");
    daemon.kill()?;
    for _ in 0..200 {
        if ours.is_disjoint(&loaded()?) {
            server.ask("unharmed")?;
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("kernel programs are left: {ours:?}")
}

#[test]
fn many_servers_at_once_and_killed_at_once_are_followed_and_let_go() -> Result<()> {
    const CROWD: usize = 50;
    let mut daemon = following("", &[])?;
    let servers = (0..CROWD).map(|_| FakeVllm::start(&[])).collect::<Result<Vec<_>>>()?;
    servers.iter().try_for_each(|server| daemon.wait_followed(server, true))?;
    daemon.wait("all to be counted", |daemon| Ok(daemon.metric("enginetap_servers")? >= 50.0))?;
    for (nth, server) in servers.iter().enumerate() {
        span(&mut daemon, server, &format!("one-of-many-{nth}"))?;
    }
    let pids: Vec<u32> = servers.iter().map(FakeVllm::pid).collect();
    servers.into_iter().try_for_each(FakeVllm::kill)?;
    for pid in pids {
        daemon.wait("all to be let go", |daemon| Ok(!daemon.follows(pid)?))?;
    }
    daemon.end()?;
    Ok(())
}

#[test]
fn a_collector_that_comes_back_gets_what_came_meanwhile() -> Result<()> {
    let address = free_address()?;
    let server = FakeVllm::start(&[])?;
    let config =
        format!("output.otlp.endpoint = \"http://{address}\"\noutput.otlp.protocol = \"http/protobuf\"\n");
    let fast = [("OTEL_BSP_SCHEDULE_DELAY", "100"), ("OTEL_METRICS_EXPORTER", "none")];
    let mut daemon = Daemon::start(&config, &fast)?;
    daemon.wait_followed(&server, true)?;
    for nth in 0..5 {
        server.ask(&format!("down-{nth}"))?;
    }
    daemon.wait("the spans to be made", |daemon| Ok(daemon.metric("enginetap_spans")? >= 5.0))?;
    let collector = Collector::at(&address)?;
    daemon.wait("the spans to arrive", |_| Ok(collector.spans("text_completion m").len() == 5))?;
    assert!(daemon.follows(server.pid())?);
    daemon.end()?;
    Ok(())
}

/// What the shipped unit leaves of root's capabilities (the chart's list is the same: a test of `deploy` says so).
fn shipped_capabilities() -> Result<Vec<String>> {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/enginetap.service");
    let text = std::fs::read_to_string(unit)?;
    let line = text.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).context("no set")?;
    Ok(line.split_whitespace().map(|name| name.trim_start_matches("CAP_").to_lowercase()).collect())
}

/// A daemon with these capabilities and no way to more.
fn with(capabilities: &[String]) -> Result<Daemon> {
    let set: Vec<String> = capabilities.iter().map(|name| format!("+{name}")).collect();
    let bounding = format!("--bounding-set=-all,{}", set.join(","));
    Daemon::start_under(&["setpriv", &bounding, "--inh-caps=-all", "--no-new-privs"], "", &[])
}

#[test]
fn the_capabilities_that_the_manifests_ask_for_are_enough() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let mut capabilities = shipped_capabilities()?;
    let mut daemon = with(&capabilities)?;
    daemon.wait_followed(&server, true)?;
    span(&mut daemon, &server, "few")?;
    assert!(daemon.get("/metrics")?.contains("\nenginetap_kernel_seconds"));
    daemon.end()?;
    // For other network namespaces and for measuring only.
    capabilities.retain(|name| name != "sys_admin");
    let mut daemon = with(&capabilities)?;
    daemon.wait_followed(&server, true)?;
    span(&mut daemon, &server, "fewer")?;
    assert!(!daemon.get("/metrics")?.contains("\nenginetap_kernel_seconds"));
    daemon.end()?;
    Ok(())
}

#[test]
fn gpus_and_what_a_server_does_with_them_are_served_as_metrics() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let process = format!("{TWO}process 1 {} 7000\n", server.pid());
    let nvml = StandIn::build(&process)?;
    let config = format!("gpu.nvml = \"{}\"\n", nvml.library().display());
    let mut daemon = following(&config, &[&server])?;
    daemon.wait("the server's GPU", |daemon| Ok(daemon.metric("enginetap_gpu_process_memory")? == 7000.0))?;
    for (name, wanted) in [("hw_power", 698.5), ("hw_energy", 12_345.678), ("enginetap_gpu_used", 1.0)] {
        assert_eq!(daemon.metric(name)?, wanted, "{name}");
    }
    assert!(daemon.get("/metrics")?.contains("# TYPE hw_gpu_memory_usage gauge\n"));
    nvml.say(&process.replace("count - 2", "count - E18\ninit - E9"))?;
    daemon.wait("NVML to be lost", |daemon| Ok(daemon.metric("enginetap_nvml_up")? == 0.0))?;
    assert_eq!(daemon.metric("hw_power")?, 0.0, "no point");
    daemon.end()?;
    Ok(())
}
