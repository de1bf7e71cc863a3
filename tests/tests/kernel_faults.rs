//! What goes wrong around a daemon, on this kernel, and what must come of it: nothing grows, nothing is lost uncounted,
//! and afterwards all is as before. As root.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use enginetap_tests::collector::Collector;
use enginetap_tests::daemon::{Daemon, FakeVllm, agent, free_address};
use rustix::process::Signal;
use serde_json::Value as Json;

fn value<'a>(span: &'a Json, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    attributes.iter().find(|attribute| attribute["key"] == key)?["value"]["stringValue"].as_str()
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

/// How much was lost for a reason.
fn lost(daemon: &Daemon, reason: &str) -> Result<f64> {
    let (text, label) = (daemon.get("/metrics")?, format!("reason=\"{reason}\""));
    let of_it = text.lines().filter(|line| line.starts_with("enginetap_losses{") && line.contains(&label));
    Ok(of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// A daemon that sends to this address, with a small queue and little patience.
fn sending(address: &str) -> Result<Daemon> {
    let config =
        format!("output.otlp.endpoint = \"http://{address}\"\noutput.otlp.protocol = \"http/protobuf\"\n");
    let little = [
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "2000"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    Daemon::start(&config, &little)
}

/// Asks more than a queue holds; every span that does not arrive must be counted, and memory must not grow.
fn flood(daemon: &mut Daemon, server: &FakeVllm) -> Result<()> {
    let before = daemon.metric("enginetap_resident_bytes")?;
    let made = daemon.metric("enginetap_spans")?;
    (0..60).try_for_each(|nth| server.ask(&format!("flood-{nth}")))?;
    daemon.wait("the spans to be made", |daemon| Ok(daemon.metric("enginetap_spans")? >= made + 60.0))?;
    daemon.wait("drops to be counted", |daemon| Ok(lost(daemon, "queue_full")? > 0.0))?;
    daemon.wait("failures to be counted", |daemon| Ok(lost(daemon, "export_failed")? > 0.0))?;
    let grown = daemon.metric("enginetap_resident_bytes")? - before;
    ensure!(grown < 16.0 * 1024.0 * 1024.0, "{grown} bytes more");
    Ok(())
}

#[test]
fn a_collector_that_is_down_for_longer_than_the_buffer_lasts_costs_counted_spans_and_no_memory() -> Result<()>
{
    let (address, server) = (free_address()?, FakeVllm::start(&[])?);
    let mut daemon = sending(&address)?;
    daemon.wait_followed(&server, true)?;
    flood(&mut daemon, &server)?;
    let collector = Collector::at(&address)?;
    daemon.wait("spans again", |_| {
        server.ask("after")?;
        Ok(!collector.all().is_empty())
    })?;
    daemon.end()?;
    Ok(())
}

#[test]
fn a_collector_that_never_answers_costs_counted_spans_and_no_memory() -> Result<()> {
    // It takes connections, and lets them hang.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    let server = FakeVllm::start(&[])?;
    let mut daemon = sending(&address)?;
    daemon.wait_followed(&server, true)?;
    flood(&mut daemon, &server)?;
    ensure!(daemon.get("/healthz")? == "ok\n");
    daemon.end()?;
    Ok(())
}

#[test]
fn what_the_settings_do_not_want_is_not_sent_but_counted_and_a_flood_is_held_to_its_rate() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let mut daemon = Daemon::start("sampling.share = 0\n", &[])?;
    daemon.wait_followed(&server, true)?;
    span(&mut daemon, &server, "failed-ones-leave")?;
    assert!(daemon.config(&["set", "sampling.failed", "false"])?.status.success());
    let before = lost(&daemon, "sampled")?;
    server.ask("unwanted")?;
    daemon.wait("it to be counted", |daemon| Ok(lost(daemon, "sampled")? > before))?;
    assert!(daemon.config(&["set", "sampling.every", "2"])?.status.success());
    (0..4).try_for_each(|nth| server.ask(&format!("every-other-{nth}")))?;
    let of = |daemon: &Daemon, mark: &str| -> Result<usize> {
        let spans = daemon.spans()?;
        let of_it = |span: &&Json| value(span, "gen_ai.user.id").is_some_and(|user| user.starts_with(mark));
        Ok(spans.iter().filter(of_it).count())
    };
    daemon.wait("every other one", |daemon| Ok(of(daemon, "every-other")? == 2))?;
    assert_eq!(of(&daemon, "unwanted")?, 0);

    assert!(daemon.config(&["set", "sampling.share", "1"])?.status.success());
    assert!(daemon.config(&["set", "limit.spans-per-second", "1"])?.status.success());
    (0..30).try_for_each(|nth| server.ask(&format!("flood-{nth}")))?;
    daemon.wait("the rest to be counted", |daemon| Ok(lost(daemon, "rate_limited")? > 0.0))?;
    assert!(daemon.config(&["unset", "limit.spans-per-second"])?.status.success());
    span(&mut daemon, &server, "free-again")?;
    daemon.end()?;
    Ok(())
}

#[test]
fn a_ring_that_overflows_is_counted_and_the_daemon_recovers_by_itself() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let mut daemon = Daemon::start("kernel.ring = \"64K\"\n", &[])?;
    daemon.wait_followed(&server, true)?;
    span(&mut daemon, &server, "before")?;
    // A daemon that does not get the CPU.
    daemon.signal(Signal::STOP)?;
    let long = "x".repeat(4000);
    let flooded = (0..100).try_for_each(|nth| server.ask(&format!("{nth}-{long}")));
    daemon.signal(Signal::CONT)?;
    flooded?;
    daemon.wait("the loss to be counted", |daemon| Ok(lost(daemon, "ring_full")? > 0.0))?;
    let after = span(&mut daemon, &server, "after")?;
    assert_eq!(value(&after, "gen_ai.request.model"), Some("m"));
    assert!(after["attributes"].as_array().is_some_and(|a| a.iter().all(|a| a["key"] != "enginetap.loss")));
    daemon.end()?;
    Ok(())
}

#[test]
fn a_server_in_pid_and_mount_namespaces_of_its_own_is_followed_as_any_other() -> Result<()> {
    let apart = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"];
    let server = FakeVllm::start_under(&apart, &[])?;
    let mut daemon = Daemon::start("", &[])?;
    let inside = server.first_child()?;
    daemon.wait("the server to be followed", |daemon| daemon.follows(inside))?;
    span(&mut daemon, &server, "apart")?;
    server.kill()?;
    daemon.wait("the server to be let go", |daemon| Ok(!daemon.follows(inside)?))?;
    daemon.end()?;
    Ok(())
}

#[test]
fn a_target_that_forks_without_end_costs_no_memory_and_stays_followed() -> Result<()> {
    let server = FakeVllm::start(&[("FAKE_FORKS", "3000")])?;
    let mut daemon = Daemon::start("", &[])?;
    daemon.wait_followed(&server, true)?;
    span(&mut daemon, &server, "before")?;
    let before = daemon.metric("enginetap_resident_bytes")?;
    server.ask("fork")?;
    span(&mut daemon, &server, "after")?;
    let grown = daemon.metric("enginetap_resident_bytes")? - before;
    ensure!(grown < 16.0 * 1024.0 * 1024.0, "{grown} bytes more");
    daemon.end()?;
    Ok(())
}

#[test]
fn a_disk_that_is_full_ends_a_recording_with_the_reason_and_the_target_unharmed() -> Result<()> {
    let server = FakeVllm::start(&[])?;
    let folder = tempfile::tempdir()?;
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "enginetap-test"])
        .arg(folder.path())
        .status()?;
    ensure!(mounted.success(), "no tmpfs can be mounted");
    let file = folder.path().join("small.cap");
    let recording = Command::new(agent()?)
        .args(["record", "--for", "60s", "--pid", &server.pid().to_string(), "--output"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let ended = fill(recording, &server);
    let unmounted = Command::new("umount").arg(folder.path()).status()?;
    let output = ended?;
    ensure!(unmounted.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("small.cap") && told.contains("No space left on device"), "{told}");
    server.ask("unharmed")
}

/// Asks until a recording ends.
fn fill(mut recording: std::process::Child, server: &FakeVllm) -> Result<std::process::Output> {
    let long = "y".repeat(4000);
    for nth in 0..600 {
        if recording.try_wait()?.is_some() {
            return Ok(recording.wait_with_output()?);
        }
        server.ask(&format!("{nth}-{long}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
    recording.kill()?;
    anyhow::bail!("the recording did not end")
}
