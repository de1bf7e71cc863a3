//! Captures of real SGLang servers of four versions, held against what CPython reads in the same bytes
//! (`captures/sglang/NAME.says.jsonl`, written by `oracle/sglang_says.py`).
#![allow(clippy::unwrap_used, reason = "a test that cannot read its capture has failed")]

use std::path::PathBuf;

use enginetap_core::capture::fact::{Engine, Fact, Role};
use enginetap_core::dialect::sglang::line::{self, Line};
use enginetap_core::dialect::sglang::{Decoder, Options, Way};
use enginetap_core::dialect::signal::sglang::{Hop, LoadSource, SglangOutput, SglangRequest, SglangSignal};
use enginetap_core::ids::Direction;
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::stream::Piece;
use enginetap_core::time::MonoTime;
use enginetap_core::wire::{lines, zmtp};
use enginetap_tests::captures::{Capture, Input};
use enginetap_tests::messages::{Session, Stream};
use serde_json::Value;

const CAPTURES: [&str; 5] = ["0.4.9", "0.5.6", "0.5.10", "0.5.23-pickle", "0.5.23-msgpack"];

/// What CPython reads: a message a line.
fn says(name: &str) -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("captures/sglang");
    let text = std::fs::read_to_string(folder.join(format!("{name}.says.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Those of one process and direction.
fn told(name: &str, by: &str, way: &str) -> Vec<Value> {
    says(name).into_iter().filter(|message| message["by"] == by && message["way"] == way).collect()
}

fn session(name: &str) -> Session {
    Session::read(&Capture::read(&format!("sglang/{name}")).unwrap()).unwrap()
}

/// The signals of a role's messages in one direction.
fn signals(session: &Session, role: Role, direction: Direction, way: Way) -> Vec<SglangSignal> {
    let mut decoder = Decoder::new(None, session.version.as_deref(), Options::default());
    let (mut signals, mut losses) = (Vec::new(), Losses::default());
    for Stream { start, calls, .. } in session.of(role, direction) {
        let (mut frames, mut unknown) = (zmtp::Decoder::new(*start, 1 << 22), Losses::default());
        if !calls.iter().any(|(_, bytes)| zmtp::look(bytes) == zmtp::Found::Whole) {
            continue;
        }
        for (at, bytes) in calls {
            frames.push(&Piece::bytes(bytes, *at, true), &mut losses, &mut |message| {
                let zmtp::Message { frames, cut, at, .. } = *message;
                decoder.decode(frames, cut, at, way, &mut unknown, &mut signals);
            });
        }
        assert_eq!(unknown.get(Loss::UnknownMessage), 0, "{}", session.name);
    }
    signals
}

fn requests(name: &str) -> Vec<SglangRequest> {
    let all = signals(&session(name), Role::ApiServer, Direction::Tx, Way::FromFrontend);
    all.into_iter()
        .flat_map(|signal| match signal {
            SglangSignal::Dispatched { requests, .. } => requests,
            SglangSignal::Outputs { .. }
            | SglangSignal::Aborted { .. }
            | SglangSignal::Retracted { .. }
            | SglangSignal::Load { .. } => Vec::new(),
        })
        .collect()
}

/// When each outputs message was moved, and what it held.
fn outputs(name: &str, hop: Hop) -> Vec<(MonoTime, Vec<SglangOutput>)> {
    let (role, direction, way) = match hop {
        Hop::Scheduler => (Role::EngineCore, Direction::Tx, Way::FromScheduler),
        Hop::Frontend => (Role::ApiServer, Direction::Rx, Way::ToFrontend),
    };
    signals(&session(name), role, direction, way)
        .into_iter()
        .filter_map(|signal| match signal {
            SglangSignal::Outputs { at, hop: found, outputs, cut } => {
                assert!(found == hop && !cut);
                Some((at, outputs))
            }
            SglangSignal::Dispatched { .. }
            | SglangSignal::Aborted { .. }
            | SglangSignal::Retracted { .. }
            | SglangSignal::Load { .. } => None,
        })
        .collect()
}

#[test]
fn requests_are_those_that_cpython_reads() {
    for name in CAPTURES {
        let (seen, told) = (requests(name), told(name, "frontend", "sent"));
        assert_eq!((seen.len(), told.len()), (1, 1), "{name}");
        let (request, told) = (&seen[0], &told[0]);
        let sampling = request.sampling.as_ref().unwrap();
        assert_eq!(told["rid"].as_str(), Some(request.rid.as_str()), "{name}");
        assert_eq!(told["prompt_tokens"].as_u64(), request.prompt_tokens.map(u64::from), "{name}");
        assert_eq!(told["stream"].as_bool(), Some(request.stream), "{name}");
        assert_eq!(told["max_new_tokens"].as_u64(), sampling.max_new_tokens, "{name}");
        assert_eq!(told["temperature"].as_f64(), sampling.temperature, "{name}");
        assert_eq!(told["top_p"].as_f64(), sampling.top_p, "{name}");
        // 1 << 30 stands for all.
        assert_eq!(told["top_k"].as_i64().filter(|k| *k < 1 << 30), sampling.top_k, "{name}");
    }
}

#[test]
fn outputs_are_those_that_cpython_reads() {
    for name in CAPTURES {
        for (hop, by, way) in [(Hop::Scheduler, "scheduler", "sent"), (Hop::Frontend, "frontend", "received")]
        {
            let (seen, told) = (outputs(name, hop), told(name, by, way));
            assert!(seen.len() >= 4 && seen.len() == told.len(), "{name}: {} {}", seen.len(), told.len());
            for ((_, outputs), told) in seen.iter().zip(&told) {
                assert_eq!(outputs.len(), told["rids"].as_array().unwrap().len(), "{name}");
                for (at, output) in outputs.iter().enumerate() {
                    check(name, output, told, at);
                }
            }
        }
    }
}

fn check(name: &str, output: &SglangOutput, told: &Value, at: usize) {
    assert_eq!(told["rids"][at].as_str(), Some(output.rid.as_str()), "{name}");
    assert_eq!(told["prompt_tokens"][at].as_u64(), output.prompt_tokens, "{name}");
    assert_eq!(told["completion_tokens"][at].as_u64(), output.completion_tokens, "{name}");
    assert_eq!(told["cached_tokens"][at].as_u64(), output.cached_tokens, "{name}");
    let finish = output.finish.as_ref().map(|finish| finish.kind.as_str());
    assert_eq!(told["finished_reasons"][at].as_str(), finish, "{name}");
    let times = output.times.unwrap_or_default();
    assert_eq!(told["wait_queue_entry_time"][at].as_f64(), times.queued.map(|it| it.0), "{name}");
    assert_eq!(told["prefill_finished_time"][at].as_f64(), times.prefill_finished.map(|it| it.0), "{name}");
    assert_eq!(told["diff_realtime_monotonic"][at].as_f64(), times.epoch_offset.map(|it| it.0), "{name}");
    assert_eq!(told["forward_entry_time"][at].as_f64(), times.forward.map(|it| it.0), "{name}");
    // 0.5.23 has it in its object.
    if let Some(queue) = told["queue_time"][at].as_f64() {
        assert_eq!(Some(queue), times.queue.map(|it| it.0), "{name}");
    }
}

#[test]
fn both_forms_of_0_5_23_tell_the_same_of_the_same_request() {
    let [pickled, packed] = ["0.5.23-pickle", "0.5.23-msgpack"].map(|name| {
        let mut request = requests(name).remove(0);
        // The two were asked one after the other.
        request.rid.clear();
        let counts = |hop| {
            let all = outputs(name, hop).into_iter().flat_map(|(_, outputs)| outputs);
            all.map(|output| {
                let SglangOutput { finish, prompt_tokens, completion_tokens, times, .. } = output;
                (finish, prompt_tokens, completion_tokens, times.is_some())
            })
            .collect::<Vec<_>>()
        };
        (request, counts(Hop::Scheduler), counts(Hop::Frontend))
    });
    assert_eq!(pickled, packed);
    assert_eq!(pickled.1.len(), 4);
}

#[test]
fn the_schedulers_moments_are_on_the_captures_clock() {
    for name in ["0.5.6", "0.5.10", "0.5.23-pickle", "0.5.23-msgpack"] {
        let [scheduler, frontend] = [Hop::Scheduler, Hop::Frontend].map(|hop| outputs(name, hop));
        let times = scheduler[0].1[0].times.unwrap();
        let forward = times.forward.unwrap().mono();
        let (sent, received) = (scheduler[0].0, frontend[0].0);
        assert!(forward < sent && sent < received, "{name}: {forward:?} {sent:?} {received:?}");
        // Four tokens of a model of half a million parameters: far less than a second.
        assert!(sent.since(forward).0 < 1_000_000_000, "{name}");
        if let Some(finished) = times.prefill_finished {
            assert!(forward < finished.mono() && finished.mono() < sent, "{name}");
        }
    }
}

#[test]
fn versions_that_send_their_load_do_so_with_every_step() {
    let all = signals(&session("0.5.10"), Role::EngineCore, Direction::Tx, Way::FromScheduler);
    let loads: Vec<_> = all
        .iter()
        .filter_map(|signal| if let SglangSignal::Load { load, .. } = signal { Some(load) } else { None })
        .collect();
    let told = told("0.5.10", "scheduler", "sent");
    assert_eq!(loads.len(), told.len());
    for (load, told) in loads.iter().zip(&told) {
        assert_eq!(load.source, LoadSource::Message);
        assert_eq!((load.running, load.queued), (told["load"]["running"].as_u64(), Some(0)));
    }
}

#[test]
fn statistics_lines_are_found_in_the_log() {
    // Of 0.5.6 the thread that writes the log was not recorded.
    for name in CAPTURES.into_iter().filter(|name| *name != "0.5.6") {
        let capture = Capture::read(&format!("sglang/{name}")).unwrap();
        let session = Session::read(&capture).unwrap();
        let mut reports = Vec::new();
        for stream in session.of(Role::EngineCore, Direction::Tx) {
            let mut decoder = lines::Decoder::new(true);
            for (at, bytes) in &stream.calls {
                decoder.push(&Piece::bytes(bytes, *at, true), &mut |line| {
                    reports.extend(line::read(line.bytes));
                });
            }
        }
        let told = &told(name, "frontend", "sent")[0];
        let prefill = reports.iter().find_map(|line| match line {
            Line::Report(load) if load.source == LoadSource::PrefillLine => Some(load),
            Line::Report(_) | Line::Retracted { .. } => None,
        });
        // The prompt is what was computed of it and what was cached.
        let Some(prefill) = prefill else { panic!("{name} has no prefill line") };
        let prompt = prefill.new_tokens.unwrap() + prefill.cached_tokens.unwrap();
        assert_eq!(Some(prompt), told["prompt_tokens"].as_u64(), "{name}");
    }
}

#[test]
fn captures_say_whose_they_are() {
    for name in CAPTURES {
        let capture = Capture::read(&format!("sglang/{name}")).unwrap();
        let facts: Vec<Fact> = capture
            .inputs()
            .unwrap()
            .into_iter()
            .filter_map(|input| if let Input::Fact(fact) = input { Some(*fact) } else { None })
            .collect();
        let server = facts.iter().find_map(|fact| if let Fact::Server(it) = fact { Some(it) } else { None });
        let server = server.unwrap();
        assert_eq!((server.engine, server.version.as_deref()), (Engine::Sglang, name.split('-').next()));
        let roles =
            facts.iter().filter_map(|fact| if let Fact::Process(it) = fact { Some(it.role) } else { None });
        let mut roles: Vec<Role> = roles.collect();
        roles.sort_by_key(|role| *role == Role::EngineCore);
        assert_eq!(roles, [Role::ApiServer, Role::EngineCore], "{name}");
    }
}
