//! The span tree: threads, stages by level, links, events, ends.

use super::*;
use crate::model::span::Status;
use crate::settings::SglangLevel;

fn of_level(level: u8) -> Trace {
    let settings = Settings { sglang_level: SglangLevel::new(level).unwrap(), ..Settings::default() };
    let mut lifecycle = lifecycle_of(settings, SglangLaunch::default());
    run(&mut lifecycle, "aaaabbbbcccc");
    the_trace(&mut lifecycle)
}

const TOKENIZER: &str = "Tokenizer (host:0123456789abcdef | pid:10)";
const THREAD: &str = "Scheduler [TP 0] [PP 0] (host:0123456789abcdef | pid:11)";

#[test]
fn a_request_has_its_whole_tree() {
    assert_eq!(
        names(&of_level(3)),
        [
            "chat tiny",
            "Req aaaabbbb",
            TOKENIZER,
            "tokenize",
            "api_server_dispatch",
            THREAD,
            "request_process",
            "prefill_waiting",
            "prefill_forward",
            "decode_waiting",
            "decode_forward",
            "decode_loop",
            "decode_loop",
        ]
    );
}

#[test]
fn the_level_decides_how_deep_a_trace_goes() {
    let request = ["chat tiny", "Req aaaabbbb"];
    let waits = ["prefill_waiting", "prefill_forward", "decode_waiting", "decode_forward"];
    let one: Vec<&str> = request.into_iter().chain([TOKENIZER, "tokenize", THREAD]).chain(waits).collect();
    assert_eq!(names(&of_level(0)), ["chat tiny"]);
    assert_eq!(names(&of_level(1)), one);
    let two = of_level(2);
    assert!(names(&two).contains(&"request_process") && !names(&two).contains(&"decode_loop"));
    let events = |trace: &Trace| trace.spans.iter().map(|span| span.events.len()).sum::<usize>();
    assert_eq!((events(&two), events(&of_level(3))), (0, 3));
}

#[test]
fn the_level_may_change_while_it_runs() {
    let mut lifecycle = lifecycle();
    lifecycle.set(Settings { sglang_level: SglangLevel::new(0).unwrap(), ..Settings::default() });
    run(&mut lifecycle, "aaaabbbbcccc");
    assert_eq!(names(&the_trace(&mut lifecycle)), ["chat tiny"]);
}

#[test]
fn stages_begin_and_end_when_the_engine_says() {
    let trace = of_level(3);
    for (name, start, end) in [
        ("tokenize", 101, 102),
        ("api_server_dispatch", 102, 103),
        ("request_process", 104, 105),
        ("prefill_waiting", 105, 110),
        ("prefill_forward", 110, 120),
        ("decode_waiting", 120, 122),
        ("decode_forward", 122, 141),
    ] {
        let span = span(&trace, name);
        assert_eq!((span.start, span.end), (wall(start), wall(end)), "{name}");
    }
    let loops: Vec<_> = trace.spans.iter().filter(|span| span.name == "decode_loop").collect();
    assert_eq!((loops[0].start, loops[0].end), (wall(122), wall(130)));
    assert_eq!((loops[1].start, loops[1].end), (wall(130), wall(141)));
    // The last step's end is only known by the message it gave.
    assert_eq!(loops[0].attribute("enginetap.estimated"), Some(&Value::Strs(vec!["start".into()])));
    assert_eq!(loops[1].attribute("enginetap.estimated"), Some(&Value::Strs(vec!["end".into()])));
    assert_eq!(span(&trace, "prefill_forward").attribute("enginetap.estimated"), None);
}

#[test]
fn neighbouring_stages_are_linked_also_from_process_to_process() {
    let trace = of_level(3);
    let id = |name| span(&trace, name).id;
    for (name, before) in [
        ("api_server_dispatch", "tokenize"),
        ("request_process", "api_server_dispatch"),
        ("prefill_waiting", "request_process"),
        ("prefill_forward", "prefill_waiting"),
        ("decode_waiting", "prefill_forward"),
        ("decode_forward", "decode_waiting"),
    ] {
        let links: Vec<_> = span(&trace, name).links.iter().map(|link| link.span).collect();
        assert_eq!(links, [id(before)], "{name}");
    }
    let inner = trace.spans.iter().filter(|span| span.name == "decode_loop" || span.name == "tokenize");
    assert!(inner.clone().count() == 3 && inner.into_iter().all(|span| span.links.is_empty()));
}

#[test]
fn what_is_not_shown_is_no_link_either() {
    let trace = of_level(1);
    let links: Vec<_> = span(&trace, "prefill_waiting").links.iter().map(|link| link.span).collect();
    assert_eq!(links, [span(&trace, "tokenize").id]);
}

#[test]
fn a_batch_stands_on_the_stage_that_covers_it() {
    let trace = of_level(3);
    let event = &span(&trace, "prefill_forward").events[0];
    assert_eq!((event.name.as_ref(), event.at), ("schedule", wall(111)));
    let values: Vec<_> = event.attributes.iter().map(|a| (a.key.as_ref(), a.value.clone())).collect();
    assert_eq!(values[1..], [("batch_size", Value::Int(1)), ("forward_mode", Value::Str("prefill".into()))]);
    let loops: Vec<_> = trace.spans.iter().filter(|span| span.name == "decode_loop").collect();
    assert!(loops.iter().all(|span| span.events.len() == 1), "{loops:#?}");
}

#[test]
fn without_its_objects_the_stages_are_what_the_messages_tell() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(true));
    dispatch(&mut lifecycle, 103, handed("a", true));
    outputs(&mut lifecycle, 121, output("a", 1));
    delta(&mut lifecycle, 0, 124, says("a", 0, "x"));
    outputs(&mut lifecycle, 131, output("a", 2));
    outputs(&mut lifecycle, 141, last("a", 3, "stop"));
    end(&mut lifecycle, 0, 145, true);
    let trace = the_trace(&mut lifecycle);
    let expected =
        ["chat tiny", "Req a", TOKENIZER, "tokenize", THREAD, "decode_forward", "decode_loop", "decode_loop"];
    assert_eq!(names(&trace), expected);
    let decode = span(&trace, "decode_forward");
    assert_eq!((decode.start, decode.end), (wall(121), wall(141)));
    let both = Value::Strs(vec!["start".into(), "end".into()]);
    assert_eq!(decode.attribute("enginetap.estimated"), Some(&both));
}

#[test]
fn times_on_the_wire_give_the_same_stages_as_its_objects() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(true));
    dispatch(&mut lifecycle, 103, handed("a", true));
    let sent = ReqTimes { received: None, last_forward: None, last_prefill_finished: None, ..times() };
    let with = |output| SglangOutput { times: Some(sent), ..output };
    outputs(&mut lifecycle, 121, with(output("a", 1)));
    delta(&mut lifecycle, 0, 124, says("a", 0, "x"));
    outputs(&mut lifecycle, 141, with(last("a", 2, "stop")));
    end(&mut lifecycle, 0, 145, true);
    let trace = the_trace(&mut lifecycle);
    for (name, start, end) in [("prefill_waiting", 105, 110), ("prefill_forward", 110, 120)] {
        let span = span(&trace, name);
        assert_eq!((span.start, span.end), (wall(start), wall(end)), "{name}");
        assert_eq!(span.attribute("enginetap.estimated"), None);
    }
}

#[test]
fn a_step_nobody_told_of_is_left_out_and_counted() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(false));
    dispatch(&mut lifecycle, 103, handed("a", false));
    lifecycle.snapshot(snapshot(SCHEDULER, 125, vec![state("a", times(), 1)]));
    outputs(&mut lifecycle, 141, last("a", 6, "stop"));
    delta(&mut lifecycle, 0, 143, says("a", 0, "x"));
    end(&mut lifecycle, 0, 145, true);
    lifecycle.tick(ms(1_000));
    let trace = the_trace(&mut lifecycle);
    assert!(!names(&trace).contains(&"decode_loop") && names(&trace).contains(&"decode_forward"));
    assert_eq!(lifecycle.losses().get(crate::loss::Loss::StepUnseen), 5);
}

#[test]
fn an_abort_stands_on_the_schedulers_thread_not_on_the_request() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(true));
    dispatch(&mut lifecycle, 103, handed("a", true));
    outputs(&mut lifecycle, 121, output("a", 1));
    delta(&mut lifecycle, 0, 124, says("a", 0, "x"));
    end(&mut lifecycle, 0, 130, false);
    lifecycle.sglang(FRONTEND, SglangSignal::Aborted { at: ms(2_130), rid: Some("a".into()), finish: None });
    let finish = SglangFinish { kind: "abort".into(), message: Some("Abort".into()), status: Some(499) };
    outputs(&mut lifecycle, 2_140, SglangOutput { finish: Some(finish), ..output("a", 9) });
    let trace = the_trace(&mut lifecycle);
    let thread = span(&trace, "Scheduler");
    assert_eq!(thread.status, Status::Error("Abort".into()));
    assert_eq!(
        (text(thread, "error.type"), text(thread, "enginetap.finish_reason")),
        (Some("499"), Some("abort"))
    );
    let request = span(&trace, "Req a");
    assert_eq!((&request.status, request.attributes.len()), (&Status::Unset, 2));
    assert_eq!(text(span(&trace, "chat"), "error.type"), Some("client_disconnected"));
}

#[test]
fn a_request_the_scheduler_drops_in_its_queue_ends_then() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(false));
    dispatch(&mut lifecycle, 103, handed("a", false));
    let queued = ReqTimes { received: sec(104), queued: sec(105), ..ReqTimes::default() };
    lifecycle.snapshot(snapshot(SCHEDULER, 110, vec![state("a", queued, 0)]));
    let finish = SglangFinish { kind: "abort".into(), message: Some("full".into()), status: Some(503) };
    let dropped = SglangSignal::Aborted { at: ms(200), rid: Some("a".into()), finish: Some(finish) };
    lifecycle.sglang(FRONTEND, dropped);
    head(&mut lifecycle, 0, 203, 503);
    delta(&mut lifecycle, 0, 204, ApiDelta { error: Some(ApiError::default()), ..ApiDelta::default() });
    end(&mut lifecycle, 0, 205, true);
    lifecycle.tick(ms(20_000));
    let trace = the_trace(&mut lifecycle);
    assert_eq!(span(&trace, "Scheduler").status, Status::Error("full".into()));
    assert_eq!(span(&trace, "Scheduler").end, wall(200));
    assert!(names(&trace).contains(&"request_process") && !names(&trace).contains(&"prefill_waiting"));
}

#[test]
fn each_scheduler_that_worked_on_a_request_has_a_thread() {
    let mut lifecycle = lifecycle();
    for (pid, title) in [(20, "sglang::scheduler_DP1_TP0"), (21, "sglang::scheduler_DP1_TP1")] {
        process(&mut lifecycle, Pid(pid), Role::EngineCore, title);
    }
    dispatch(&mut lifecycle, 103, handed("a", true));
    for pid in [20, 21] {
        lifecycle.snapshot(snapshot(Pid(pid), 125, vec![state("a", times(), 1)]));
    }
    let finish = SglangOutput { dp_rank: Some(1), ..last("a", 1, "stop") };
    lifecycle.sglang(
        FRONTEND,
        SglangSignal::Outputs { at: ms(130), hop: Hop::Frontend, outputs: vec![finish], cut: false },
    );
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let threads: Vec<&str> = names(&trace).into_iter().filter(|name| name.starts_with("Scheduler")).collect();
    assert_eq!(threads.len(), 2);
    assert!(threads[0].starts_with("Scheduler [TP 0] [PP 0] [DP 1] (host:"), "{threads:?}");
    assert!(threads[1].starts_with("Scheduler [TP 1] [PP 0] [DP 1] (host:"), "{threads:?}");
    let waits: Vec<_> = trace.spans.iter().filter(|span| span.name == "prefill_waiting").collect();
    assert_eq!(waits.len(), 2);
}

#[test]
fn a_data_parallel_controller_has_a_thread_of_its_own() {
    let mut lifecycle = lifecycle();
    process(&mut lifecycle, Pid(19), Role::Coordinator, "sglang::data_parallel_controller");
    dispatch(&mut lifecycle, 103, handed("a", true));
    let passed = SglangSignal::Dispatched { at: ms(105), requests: vec![handed("a", true)] };
    lifecycle.sglang(Pid(19), passed);
    outputs(&mut lifecycle, 150, last("a", 1, "stop"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let passed = span(&trace, "dpc_dispatch");
    assert_eq!((passed.start, passed.end), (wall(103), wall(105)));
    let thread = trace.spans.iter().find(|span| Some(span.id) == passed.parent).unwrap();
    assert_eq!(text(thread, "thread_label"), Some("DP Controller"));
}

#[test]
fn a_prefill_node_and_a_decode_node_have_their_own_stages() {
    let paired = ReqTimes {
        bootstrap_queued: sec(105),
        queued: sec(107),
        transfer_queued: sec(120),
        transfer_finished: sec(130),
        ..times()
    };
    let prefill = played(Disaggregation::Prefill, paired);
    for name in ["prefill_prepare", "prefill_bootstrap", "prefill_waiting", "prefill_transfer_kv_cache"] {
        assert!(names(&prefill).contains(&name), "{name} in {:?}", names(&prefill));
    }
    assert!(!names(&prefill).contains(&"request_process"));
    let request = span(&prefill, "prefill Req a");
    assert_eq!(text(request, "bootstrap_room"), Some("0x2a"));
    assert!(names(&prefill).iter().any(|name| name.starts_with("Prefill Scheduler [TP 0]")));

    let paired = ReqTimes {
        prealloc_queued: sec(105),
        decode_transfer_queued: sec(106),
        queued: sec(108),
        prebuilt_finished: sec(112),
        last_decode_finished: sec(118),
        prefill_finished: None,
        last_prefill_finished: None,
        ..times()
    };
    let decode = played(Disaggregation::Decode, paired);
    for (name, start, end) in [
        ("decode_prepare", 104, 105),
        ("decode_bootstrap", 105, 106),
        ("decode_transferred", 106, 108),
        ("decode_waiting", 108, 110),
        ("decode_forward", 110, 150),
        ("fake_output", 110, 112),
        ("decode_loop", 112, 118),
    ] {
        let span = span(&decode, name);
        assert_eq!((span.start, span.end), (wall(start), wall(end)), "{name}");
    }
}

fn played(node: Disaggregation, times: ReqTimes) -> Trace {
    let mut lifecycle = pair(node);
    dispatch(&mut lifecycle, 103, SglangRequest { bootstrap_room: Some(42), ..handed("a", true) });
    lifecycle.snapshot(snapshot(SCHEDULER, 140, vec![state("a", times, 2)]));
    outputs(&mut lifecycle, 150, last("a", 2, "stop"));
    lifecycle.tick(ms(60_000));
    the_trace(&mut lifecycle)
}

#[test]
fn a_verify_step_says_how_many_drafts_passed() {
    let mut lifecycle = lifecycle();
    dispatch(&mut lifecycle, 103, handed("a", true));
    let at = |step: u64, accepted: u64, tokens: u64| {
        let times = ReqTimes { last_decode_finished: sec(120 + step * 10), ..times() };
        let spec = (Some(step), Some(accepted));
        ReqState { spec_verify_steps: spec.0, spec_accepted: spec.1, ..state("a", times, tokens) }
    };
    lifecycle.snapshot(snapshot(SCHEDULER, 131, vec![at(1, 2, 4)]));
    lifecycle.snapshot(snapshot(SCHEDULER, 141, vec![at(2, 5, 8)]));
    outputs(&mut lifecycle, 150, last("a", 8, "stop"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let verify = span(&trace, "spec_verify");
    assert_eq!((int(verify, "num_correct_drafts"), int(verify, "accepted_tokens")), (Some(3), Some(3)));
    assert_eq!((verify.start, verify.end), (wall(130), wall(140)));
    let numbers: Vec<i64> = trace.spans.iter().filter_map(|span| int(span, "decode_ct")).collect();
    assert_eq!(numbers, [0, 1]);
}

#[test]
fn a_request_that_ran_before_the_agent_came_is_partial() {
    let mut lifecycle = lifecycle();
    lifecycle.snapshot(snapshot(SCHEDULER, 125, vec![state("a", times(), 1)]));
    outputs(&mut lifecycle, 150, last("a", 3, "stop"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let request = span(&trace, "Req a");
    assert_eq!(request.attribute("enginetap.partial"), Some(&Value::Bool(true)));
    assert_eq!(int(request, "gen_ai.usage.completion_tokens"), Some(3));
    assert_eq!(request.attribute("gen_ai.latency.e2e"), None);
    assert!(names(&trace).contains(&"prefill_waiting"));
}

#[test]
fn health_checks_leave_no_trace_and_no_count() {
    let mut lifecycle = lifecycle();
    let rid = "HEALTH_CHECK_87a023946fc9408f929552664610b1be";
    dispatch(&mut lifecycle, 103, handed(rid, false));
    lifecycle.snapshot(snapshot(SCHEDULER, 110, vec![state(rid, times(), 1)]));
    let requests = vec![(rid.to_owned(), FrontendTimes { created: sec(101), ..FrontendTimes::default() })];
    lifecycle.frontend_snapshot(FrontendSnapshot { pid: FRONTEND, at: ms(111), requests });
    outputs(&mut lifecycle, 120, last(rid, 1, "length"));
    lifecycle.tick(ms(60_000));
    assert_eq!((lifecycle.traces().len(), lifecycle.open()), (0, 0));
    let counted: f64 = lifecycle.points(ms(60_000)).iter().map(|point| point.value.as_f64()).sum();
    assert!(counted.abs() < f64::EPSILON);
}

#[test]
fn a_server_that_dies_marks_the_threads_of_what_was_open() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(true));
    dispatch(&mut lifecycle, 103, handed("a", true));
    outputs(&mut lifecycle, 121, output("a", 1));
    delta(&mut lifecycle, 0, 124, says("a", 0, "x"));
    lifecycle.gone(SCHEDULER, ms(130));
    lifecycle.gone(FRONTEND, ms(140));
    let trace = the_trace(&mut lifecycle);
    let died = Status::Error("the server died before the request ended".into());
    assert_eq!(span(&trace, "Scheduler").status, died);
    assert_eq!(text(span(&trace, "chat"), "error.type"), Some("server_died"));
}
