//! A preflight's findings as text and as JSON.

use std::fmt::Write;

use anyhow::Result;
use enginetap_core::capture::fact::Engine;
use serde::Serialize;

use super::findings::{Finding, Probe, State};
use crate::cmd::ps::{Attachable, View};

/// A preflight's outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether attaching works.
    pub ok: bool,
    server: View,
    findings: Vec<Finding>,
    probes: Vec<Probe>,
    seen: Vec<&'static str>,
    not_seen: Vec<&'static str>,
}

/// What can be seen of a server, and which findings take it away.
type Sights = [(&'static str, &'static [&'static str])];

/// Of vLLM.
const VLLM: &Sights = &[
    ("entry spans: model, parameters, tokens, time to first token, content", &["TLS", "frontend"]),
    (
        "engine spans: queue, prefill, decode, inference, preemptions, cached tokens",
        &["engine", "in-process"],
    ),
    ("queue times equal to the engine's own", &["engine", "in-process", "statistics"]),
    ("scheduler metrics: running, waiting, KV cache use", &["engine", "in-process", "statistics"]),
    ("token counts and times per iteration (--level 2)", &["engine", "in-process"]),
];

/// Of SGLang.
const SGLANG: &Sights = &[
    ("entry spans: model, parameters, tokens, time to first token, content", &["TLS"]),
    ("request spans, frontend thread: tokenize, api_server_dispatch", &["frontend"]),
    ("scheduler threads: request_process, prefill_waiting, prefill_forward, decode_forward and below", &[]),
    ("boundaries equal to the engine's own, tracing and metrics off", &[]),
    ("scheduler metrics: running, queued, tokens in use, throughput, cache hit rate", &[]),
    ("token latencies", &["frontend"]),
];

fn sights_of(engine: Engine) -> &'static Sights {
    match engine {
        Engine::Vllm => VLLM,
        Engine::Sglang => SGLANG,
    }
}

impl Report {
    /// Draws the conclusions.
    #[must_use]
    pub fn new(engine: Engine, server: View, findings: Vec<Finding>, probes: Vec<Probe>) -> Self {
        let in_process = server.attach == Attachable::HttpOnly;
        let missing = |about: &str| {
            let found = findings.iter().any(|it| it.about == about && it.state != State::Ok);
            found || (about == "in-process" && in_process)
        };
        let ok = findings.iter().all(|finding| finding.state != State::Bad);
        let sights = |wanted: bool| {
            let stands = move |takers: &&[&str]| takers.iter().any(|taker| missing(taker)) != wanted;
            sights_of(engine)
                .iter()
                .filter(move |(_, takers)| stands(takers))
                .map(|(sight, _)| *sight)
                .collect()
        };
        let (seen, not_seen) = if ok { (sights(true), sights(false)) } else { (Vec::new(), Vec::new()) };
        Self { ok, server, findings, probes, seen, not_seen }
    }

    /// For machines.
    ///
    /// # Errors
    /// Never in practice: plain data.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let View { pid, engine, version, models, .. } = &self.server;
        let version = version.as_deref().unwrap_or("?");
        let model = models.first().map_or("?", String::as_str);
        let _ = writeln!(
            text,
            "{engine} {version}, model {model}, pid {pid}, {} processes\n",
            self.server.processes.len()
        );
        for Finding { about, state, what, next } in &self.findings {
            let _ = writeln!(text, "  {:<8} {about:<11} {what}", word(*state));
            if !next.is_empty() {
                let _ = writeln!(text, "  {:<8} {:<11} -> {next}", "", "");
            }
        }
        if self.ok {
            self.write_probes(&mut text);
            section(&mut text, "Will be seen", &self.seen);
            section(&mut text, "Will not be seen", &self.not_seen);
            let _ = writeln!(text, "\nAttaching works: enginetap attach --pid {pid}");
        } else {
            let _ = writeln!(text, "\nAttaching cannot work: see the lines marked {}.", word(State::Bad));
        }
        text
    }

    fn write_probes(&self, text: &mut String) {
        let mut costs: Vec<&str> = Vec::new();
        for Probe { cost, .. } in &self.probes {
            if !costs.contains(cost) {
                costs.push(cost);
            }
        }
        for class in costs {
            let _ = writeln!(text, "\nKernel programs: {class}");
            for Probe { name, hook, purpose, .. } in self.probes.iter().filter(|probe| probe.cost == class) {
                let _ = writeln!(text, "  {name:<11} {hook:<27} {purpose}");
            }
        }
    }
}

fn section(text: &mut String, title: &str, lines: &[&str]) {
    if !lines.is_empty() {
        let _ = writeln!(text, "\n{title}");
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Limited => "limited",
        State::Bad => "MISSING",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::ps::Parallel;

    fn report(attach: Attachable, findings: Vec<Finding>) -> Report {
        let view = View {
            pid: 42,
            engine: "vllm",
            version: Some("0.32.0".to_owned()),
            models: vec!["m".to_owned()],
            parallel: Parallel { tensor: 1, pipeline: 1, data: 1, api_servers: 1 },
            http: None,
            listening: Vec::new(),
            container: None,
            stats_off: false,
            tracing: None,
            attach,
            processes: Vec::new(),
        };
        let probe = |name, cost| Probe { name, hook: "h", purpose: "p", cost };
        Report::new(
            Engine::Vllm,
            view,
            findings,
            vec![probe("a", "dear"), probe("b", "cheap"), probe("c", "dear")],
        )
    }

    fn finding(about: &'static str, state: State) -> Finding {
        Finding { about, state, what: "what".to_owned(), next: "next".to_owned() }
    }

    #[test]
    fn all_well_means_all_is_seen() {
        let report = report(Attachable::Yes, Vec::new());
        assert!(report.ok && report.not_seen.is_empty());
        assert_eq!(report.seen.len(), VLLM.len());
        assert!(report.text().ends_with("\nAttaching works: enginetap attach --pid 42\n"));
    }

    #[test]
    fn a_limit_moves_what_it_takes_away_to_what_is_not_seen() {
        let tls = report(Attachable::Yes, vec![finding("TLS", State::Limited)]);
        assert!(tls.ok);
        assert_eq!(tls.not_seen, [VLLM[0].0]);
        assert_eq!(report(Attachable::HttpOnly, Vec::new()).seen, [VLLM[0].0]);
        assert!(tls.text().contains("  limited  TLS         what\n                       -> next\n"));
    }

    #[test]
    fn one_obstacle_is_enough_to_stop() {
        let report = report(Attachable::Yes, vec![finding("x", State::Ok), finding("y", State::Bad)]);
        assert!(!report.ok && report.seen.is_empty());
        assert!(report.text().contains("MISSING") && !report.text().contains("Kernel programs"));
        let value: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(value["ok"], false);
        assert_eq!(value["findings"][1]["state"], "bad");
    }

    #[test]
    fn kernel_programs_stand_by_their_cost() {
        let text = report(Attachable::Yes, Vec::new()).text();
        let dear = text.split("Kernel programs: dear\n").nth(1).unwrap();
        assert!(dear.starts_with("  a           h                           p\n  c  "));
    }
}
