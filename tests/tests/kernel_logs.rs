//! Log lines of a daemon, to a real OTLP receiver, switched on while it runs. As root.

use anyhow::{Context, Result};
use enginetap_tests::collector::Collector;
use enginetap_tests::daemon::{Daemon, FakeVllm, free_address};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;

const STRATEGY: &str = "otel.instrumentation.genai.message-content.capture-strategy";
const LIMIT: &str = "otel.instrumentation.genai.message-content.max-length";
const DETAILS: &str = "gen_ai.client.inference.operation.details";
const INPUT: &str = "gen_ai.input.messages";

/// A daemon that sends to this collector, and follows this server.
fn sending(collector: &Collector, config: &str, server: &FakeVllm) -> Result<Daemon> {
    let endpoint = collector.endpoint.trim_end_matches("/v1/traces");
    let config =
        format!("{config}output.otlp.endpoint = \"{endpoint}\"\noutput.otlp.protocol = \"http/protobuf\"\n");
    let fast = [
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "50"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    let mut daemon = Daemon::start(&config, &fast)?;
    daemon.wait_followed(server, true)?;
    Ok(daemon)
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let pair = attributes.iter().find(|pair| pair.key == key)?;
    let Some(Value::StringValue(text)) = pair.value.as_ref()?.value.as_ref() else { return None };
    Some(text)
}

/// Sends a request and waits for its span.
fn ask(daemon: &mut Daemon, server: &FakeVllm, collector: &Collector, mark: &str) -> Result<()> {
    server.ask(mark)?;
    let of_it = |collector: &Collector| {
        collector.all().iter().any(|span| text(&span.attributes, "gen_ai.user.id") == Some(mark))
    };
    daemon.wait("the span", |_| Ok(of_it(collector)))
}

#[test]
fn content_moves_from_spans_into_log_events_and_back_while_the_daemon_runs() -> Result<()> {
    let (collector, server) = (Collector::at(&free_address()?)?, FakeVllm::start(&[])?);
    let mut daemon = sending(&collector, "", &server)?;
    let input = |mark: &str| {
        let spans = collector.all();
        let span = spans.iter().find(|span| text(&span.attributes, "gen_ai.user.id") == Some(mark));
        span.is_some_and(|span| text(&span.attributes, INPUT).is_some())
    };
    ask(&mut daemon, &server, &collector, "on-the-span")?;
    assert!(input("on-the-span") && collector.logs(server.pid()).is_empty());

    assert!(daemon.config(&["set", STRATEGY, "event"])?.status.success());
    // Of the JSON that holds it; ten are left for the text.
    assert!(daemon.config(&["set", LIMIT, "88"])?.status.success());
    ask(&mut daemon, &server, &collector, "aha-übergrößen")?;
    daemon.wait("the event", |_| Ok(!collector.logs(server.pid()).is_empty()))?;
    assert!(!input("aha-übergrößen"));
    let logs = collector.logs(server.pid());
    let [event] = logs.as_slice() else { panic!("{} events", logs.len()) };
    let all = collector.all();
    let of_it = |span: &&Span| text(&span.attributes, "gen_ai.user.id") == Some("aha-übergrößen");
    let span = all.iter().find(of_it).context("no span")?;
    assert_eq!((event.event_name.as_str(), event.severity_text.as_str()), (DETAILS, "INFO"));
    assert_eq!((&event.trace_id, &event.span_id), (&span.trace_id, &span.span_id));
    let shown = format!("{event:?}");
    assert!(shown.contains("\"aha-übergr\""), "cut on a character: {shown}");
    assert_eq!(text(&event.attributes, "gen_ai.request.model"), Some("m"));

    assert!(daemon.config(&["unset", STRATEGY])?.status.success());
    ask(&mut daemon, &server, &collector, "back")?;
    assert!(input("back"));
    assert_eq!(collector.logs(server.pid()).len(), 1);
    daemon.end()?;
    Ok(())
}

#[test]
fn requests_are_logged_while_that_is_switched_on_and_not_before_or_after() -> Result<()> {
    const REQUESTS: &str = "apsara.apm.inference.vllm.log_requests.enabled";
    let (collector, server) = (Collector::at(&free_address()?)?, FakeVllm::start(&[])?);
    let mut daemon = sending(&collector, "", &server)?;
    ask(&mut daemon, &server, &collector, "before")?;
    assert!(daemon.config(&["set", REQUESTS, "true"])?.status.success());
    ask(&mut daemon, &server, &collector, "logged")?;
    daemon.wait("the lines", |_| Ok(collector.logs(server.pid()).len() >= 2))?;
    assert!(daemon.config(&["unset", REQUESTS])?.status.success());
    ask(&mut daemon, &server, &collector, "after")?;
    let logs = collector.logs(server.pid());
    let events: Vec<&str> = logs.iter().map(|log| log.event_name.as_str()).collect();
    assert_eq!(events, ["enginetap.request.received", "enginetap.request.failed"]);
    assert_eq!(logs.iter().map(|log| log.severity_text.as_str()).collect::<Vec<_>>(), ["INFO", "ERROR"]);
    assert_eq!(text(&logs[0].attributes, "gen_ai.user.id"), Some("logged"));
    assert_eq!(text(&logs[1].attributes, "error.type"), Some("BadRequestError"));
    daemon.end()?;
    Ok(())
}

#[test]
fn the_engines_own_lines_are_handed_on_with_the_span_they_fall_in_while_that_is_switched_on() -> Result<()> {
    const LINES: &str = "apsara.apm.inference.vllm.log_trace_context.enabled";
    const LEVEL: &str = "apsara.apm.inference.vllm.logging.level";
    let (collector, server) = (Collector::at(&free_address()?)?, FakeVllm::start(&[])?);
    let mut daemon = sending(&collector, "", &server)?;
    ask(&mut daemon, &server, &collector, "before")?;
    assert!(daemon.config(&["set", LINES, "true"])?.status.success());
    ask(&mut daemon, &server, &collector, "seen")?;
    daemon.wait("the line", |_| Ok(!collector.logs(server.pid()).is_empty()))?;
    let all = collector.all();
    let of_it = |span: &&Span| text(&span.attributes, "gen_ai.user.id") == Some("seen");
    let span = all.iter().find(of_it).context("no span")?;
    let logs = collector.logs(server.pid());
    let [line] = logs.as_slice() else { panic!("{} lines", logs.len()) };
    assert_eq!((line.severity_text.as_str(), line.event_name.as_str()), ("WARNING", ""));
    assert_eq!((&line.trace_id, &line.span_id), (&span.trace_id, &span.span_id));
    assert!(format!("{:?}", line.body).contains("refusing a request"));

    assert!(daemon.config(&["set", LEVEL, "DEBUG"])?.status.success());
    ask(&mut daemon, &server, &collector, "all")?;
    daemon.wait("both lines", |_| Ok(collector.logs(server.pid()).len() == 3))?;
    assert!(daemon.config(&["set", LINES, "false"])?.status.success());
    ask(&mut daemon, &server, &collector, "off")?;
    assert!(daemon.config(&["set", LINES, "true"])?.status.success());
    ask(&mut daemon, &server, &collector, "on-again")?;
    daemon.wait("both lines again", |_| Ok(collector.logs(server.pid()).len() == 5))?;
    daemon.end()?;
    Ok(())
}
