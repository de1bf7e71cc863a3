//! Verdicts on made accounts: one way to be slow each.

use super::account::*;
use super::book::Book;
use super::cause::Cause;
use super::pause::{Pause, PauseKind, Side};
use super::ring::State;
use super::verdict::*;
use crate::ids::ServerId;
use crate::time::{MonoTime, Nanos, WallTime};

fn ms(millis: u64) -> MonoTime {
    MonoTime(millis * 1_000_000)
}

fn at(millis: u64) -> Option<MonoTime> {
    Some(ms(millis))
}

/// A scheduler that ends a step every ten milliseconds from 0 on, in `states` of running, waiting and KV use.
fn book(steps: u64, state: (u64, u64, f64)) -> Book {
    let mut book = Book::default();
    for step in 1..=steps {
        let (running, waiting, kv_usage) = state;
        book.step(0, ms(step * 10), 1);
        book.state(0, State { at: ms(step * 10), running, waiting, kv_usage });
    }
    book
}

/// A streamed request: handed over at 2 ms, scheduled, first token, last token and end as told, decoded every 10 ms.
fn account(book: &Book, scheduled: u64, first: u64, last: u64, ended: u64) -> Account {
    let mut cuts = Cuts::new(ms(0), ms(ended));
    cuts.to(Part::Receive, at(1));
    cuts.to(Part::Frontend, at(2));
    cuts.to(Part::Handover, at(3));
    cuts.to(Part::Queue, at(scheduled));
    cuts.to(Part::Prefill, at(first));
    cuts.to(Part::Return, at(first + 1));
    cuts.to(Part::Send, at(first + 2));
    cuts.first_token();
    cuts.to(Part::Decode, at(last));
    cuts.to(Part::Return, at(last + 1));
    cuts.to(Part::Send, at(ended));
    Account {
        server: ServerId(1),
        core: 0,
        ids: vec!["cmpl-own".into(), "cmpl-own-0-aa".into()],
        begun: ms(0),
        at: WallTime(0),
        ended: ms(ended),
        ending: Ending::Complete,
        cuts,
        size: Size { prompt: 10, computed: 10, output: 11, candidates: 1, logprobs: false },
        mixes: true,
        handed: at(2),
        life: Life {
            queued: at(3),
            scheduled: at(scheduled),
            first: at(first),
            last: at(last),
            ..Life::default()
        },
        preempted: Vec::new(),
        steps: book.steps(0, ms(first), ms(last)),
        partial: false,
    }
}

fn peer(name: &str, life: Life) -> Peer<'_> {
    Peer { name, group: name, life }
}

fn causes(verdict: &Verdict) -> Vec<Cause> {
    verdict.causes.iter().map(|blame| blame.cause).collect()
}

/// A prompt prefilled between two moments.
fn prefill(tokens: u64, from: u64, to: u64) -> Life {
    Life { handed: at(from), scheduled: at(from), first: at(to), computed: tokens, ..Life::default() }
}

#[test]
fn an_ordinary_request_is_blamed_on_nothing_and_its_parts_are_the_whole() {
    let book = book(40, (1, 0, 0.1));
    let verdict = book.explain(&account(&book, 5, 20, 220, 225), std::iter::empty());
    assert_eq!(causes(&verdict), []);
    let parts: u64 = verdict.parts.iter().map(|slice| slice.took.0).sum();
    assert_eq!((verdict.e2e, parts), (Nanos::from_millis(225), verdict.e2e.0));
    assert_eq!(verdict.ttft, Some(Nanos::from_millis(22)));
    assert_eq!(verdict.because(), "nothing held it up");
    let decode = "decode (10 tokens, 20 steps, 10 ms each)";
    assert_eq!(
        verdict.to_end(),
        format!("e2e 0.23 s = 0.022 to the first token + 0.20 {decode} + 0.004 detokenize and send")
    );
}

#[test]
fn a_full_kv_cache_is_why_it_waited_with_how_many_ahead() {
    let book = book(120, (3, 2, 0.98));
    let ahead = Life { handed: at(1), queued: at(1), scheduled: at(500), first: at(520), ..Life::default() };
    let verdict = book.explain(&account(&book, 1000, 1020, 1120, 1125), [peer("a", ahead)].into_iter());
    assert_eq!(causes(&verdict), [Cause::KvFull]);
    let first = verdict.to_first().unwrap();
    assert!(
        first.starts_with("TTFT 1.02 s = 1.00 queue (KV cache 98 % full, 1 ahead, 3 running, 2 waiting)"),
        "{first}"
    );
    assert_eq!(verdict.causes[0].certainty, Certainty::Certain);
}

#[test]
fn a_queue_before_taken_places_with_room_in_the_kv_cache_is_a_full_batch() {
    let book = book(120, (4, 9, 0.2));
    let verdict = book.explain(&account(&book, 1000, 1020, 1120, 1125), std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::BatchFull]);
}

#[test]
fn a_long_prompt_ahead_is_why_it_waited() {
    let book = book(120, (4, 1, 0.2));
    let giant = peer("giant", prefill(4000, 1, 900));
    let verdict = book.explain(&account(&book, 1000, 1020, 1120, 1125), [giant].into_iter());
    assert_eq!(causes(&verdict), [Cause::LongPrefill]);
    assert!(verdict.because().contains("giant, prompt of 4000 tokens"), "{}", verdict.because());
}

#[test]
fn a_wait_for_the_step_that_runs_is_ordinary() {
    let book = book(40, (1, 0, 0.1));
    let verdict = book.explain(&account(&book, 25, 30, 220, 225), std::iter::empty());
    assert_eq!(causes(&verdict), []);
}

/// Steps of ten milliseconds, but for those that end between two moments, which take fifty.
fn uneven(from: u64, to: u64) -> Book {
    let mut book = Book::default();
    let mut now = 0;
    while now < 1000 {
        now += if now >= from && now < to { 50 } else { 10 };
        book.step(0, ms(now), 1);
    }
    book
}

#[test]
fn steps_with_anothers_long_prompt_are_lengthened_by_it() {
    let book = uneven(300, 600);
    let verdict =
        book.explain(&account(&book, 5, 20, 900, 905), [peer("giant", prefill(2000, 299, 600))].into_iter());
    assert_eq!(causes(&verdict), [Cause::LongPrefill]);
    // Six steps of fifty milliseconds, each forty over the ordinary.
    assert_eq!(verdict.causes[0].took, Nanos::from_millis(240));
    let lengthened = verdict.parts.iter().find(|slice| slice.part == Part::Lengthened).unwrap();
    assert_eq!(lengthened.took, Nanos::from_millis(240));
    let decode = verdict.parts.iter().find(|slice| slice.part == Part::Decode).unwrap();
    assert_eq!(decode.took, Nanos::from_millis(878 - 240));
}

#[test]
fn many_short_prompts_are_a_cause_of_their_own() {
    let book = uneven(300, 600);
    let names: Vec<String> = (0..6).map(|n| format!("short-{n}")).collect();
    let peers = (0..6).zip(&names).map(|(n, name)| peer(name, prefill(60, 301 + n * 50, 350 + n * 50)));
    let verdict = book.explain(&account(&book, 5, 20, 900, 905), peers);
    assert_eq!(causes(&verdict), [Cause::Arrivals]);
}

#[test]
fn candidates_with_logprobs_lengthen_the_steps_they_share() {
    let book = uneven(300, 600);
    let wide = Life { first: at(300), last: at(600), ended: at(601), logprobs: true, ..Life::default() };
    let names: Vec<String> = (0..8).map(|n| format!("{n}_wide")).collect();
    let peers = names.iter().map(|name| Peer { name, group: "wide", life: wide });
    let verdict = book.explain(&account(&book, 5, 20, 900, 905), peers);
    assert_eq!(causes(&verdict), [Cause::WideRequest]);
    assert!(verdict.because().contains("(wide, n=8, logprobs, 6 steps)"), "{}", verdict.because());
}

#[test]
fn its_own_candidates_are_not_others() {
    let book = uneven(300, 600);
    let wide = Life { first: at(300), last: at(600), ended: at(601), logprobs: true, ..Life::default() };
    let names: Vec<String> = (0..8).map(|n| format!("{n}_cmpl-own")).collect();
    let peers = names.iter().map(|name| Peer { name, group: "cmpl-own", life: wide });
    let verdict = book.explain(&account(&book, 5, 20, 900, 905), peers);
    assert_eq!(causes(&verdict), [Cause::EngineStall], "nobody else is there to blame");
}

#[test]
fn long_steps_that_nobody_explains_are_said_to_be_unexplained() {
    let book = uneven(300, 600);
    let verdict = book.explain(&account(&book, 5, 20, 900, 905), std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::EngineStall]);
    assert_eq!(
        (verdict.causes[0].certainty, verdict.unexplained),
        (Certainty::Possible, Nanos::from_millis(240))
    );
}

#[test]
fn a_preemption_is_for_want_of_room_and_its_time_is_no_decoding() {
    let sent_back = |kv| {
        let book = book(100, (2, 1, kv));
        let account = Account { preempted: vec![(ms(400), at(600))], ..account(&book, 5, 20, 900, 905) };
        book.explain(&account, std::iter::empty())
    };
    assert_eq!(causes(&sent_back(0.2)), [Cause::SentBack], "there was room: it was for another reason");
    let verdict = sent_back(0.99);
    assert_eq!(causes(&verdict), [Cause::KvFull]);
    assert_eq!(verdict.causes[0].took, Nanos::from_millis(210), "to the output after it was scheduled again");
    let total: u64 = verdict.parts.iter().map(|slice| slice.took.0).sum();
    assert_eq!(total, verdict.e2e.0);
}

#[test]
fn a_late_send_is_the_clients_where_others_were_sent_at_once() {
    let book = book(40, (1, 0, 0.1));
    let brisk =
        |tail| Life { first: at(100), last: at(500), ended: at(500), tail: Some(tail), ..Life::default() };
    let verdict_beside =
        |tail| book.explain(&account(&book, 5, 20, 220, 2220), [peer("other", brisk(tail))].into_iter());
    let slow_client = verdict_beside(Nanos::from_millis(2));
    assert_eq!(
        (causes(&slow_client), slow_client.causes[0].certainty),
        (vec![Cause::SlowClient], Certainty::Certain)
    );
    let slow_server = verdict_beside(Nanos::from_millis(1500));
    assert_eq!(causes(&slow_server), [Cause::FrontendAfter]);
    let alone = book.explain(&account(&book, 5, 20, 220, 2220), std::iter::empty());
    assert_eq!(alone.causes[0].certainty, Certainty::Likely);
}

#[test]
fn a_client_that_went_away_comes_first_and_what_it_waited_for_after() {
    let book = book(120, (3, 2, 0.98));
    let account = Account { ending: Ending::ClientGone, ..account(&book, 1000, 1020, 1120, 1125) };
    let verdict = book.explain(&account, std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::ClientGone, Cause::KvFull]);
    assert!(verdict.because().starts_with("after 1.13 s the client closed"), "{}", verdict.because());
}

#[test]
fn its_own_long_prompt_is_named_with_its_chunks() {
    let book = book(120, (1, 0, 0.1));
    let mut account = account(&book, 5, 1000, 1100, 1105);
    account.size = Size { prompt: 6000, computed: 6000, ..account.size };
    let verdict = book.explain(&account, std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::OwnPrompt]);
    assert!(verdict.to_first().unwrap().contains("prefill (6000 tokens, 100 chunks)"));
}

#[test]
fn what_was_found_is_counted_by_cause() {
    let mut book = book(120, (3, 2, 0.98));
    let verdict = book.explain(&account(&book, 1000, 1020, 1120, 1125), std::iter::empty());
    book.count(&verdict);
    let found: Vec<_> = book.found().filter(|(_, found)| found.requests > 0).collect();
    assert_eq!((book.explained(), found.len(), found[0].0), (1, 1, Cause::KvFull));
}

#[test]
fn steps_that_are_not_kept_any_more_are_said_to_be_forgotten() {
    let mut book = Book::default();
    for step in 1..=20_000 {
        book.step(0, ms(step * 10), 1);
    }
    let verdict = book.explain(&account(&book, 5, 20, 190_000, 190_005), std::iter::empty());
    assert!(verdict.forgotten && book.forgotten().0 > 3000);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn life() -> impl Strategy<Value = Life> {
        let moment = || proptest::option::of(0_u64..2000);
        (moment(), moment(), moment(), moment(), moment(), 0_u64..5000, any::<bool>()).prop_map(
            |(handed, scheduled, first, last, ended, computed, logprobs)| {
                let at = |moment: Option<u64>| moment.map(ms);
                let (handed, scheduled) = (at(handed), at(scheduled));
                let (first, last, ended) = (at(first), at(last), at(ended));
                Life { handed, scheduled, first, last, ended, computed, logprobs, ..Life::default() }
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_others_did_the_parts_are_the_whole_and_no_cause_is_longer(
            lives in proptest::collection::vec(life(), 0..40),
            gaps in proptest::collection::vec(1_u64..60, 1..120),
            out in proptest::collection::vec((0_u64..2000, proptest::option::of(0_u64..2000)), 0..4),
        ) {
            let mut book = Book::default();
            let mut now = 20;
            for gap in &gaps {
                now += gap;
                book.step(0, ms(now), 1);
            }
            let preempted = out.into_iter().map(|(at, again)| (ms(at), again.map(ms))).collect();
            let account = Account { preempted, ..account(&book, 5, 20, now, now + 5) };
            let peers = lives.iter().map(|life| peer("other", *life));
            let verdict = book.explain(&account, peers);
            let total: u64 = verdict.parts.iter().map(|slice| slice.took.0).sum();
            prop_assert_eq!(total, verdict.e2e.0);
            for blame in &verdict.causes {
                prop_assert!(blame.took <= verdict.e2e, "{:?}", blame);
            }
            prop_assert!(!verdict.sentence().is_empty());
        }
    }
}

fn pause(kind: PauseKind, side: Side, from: u64, to: u64, took: u64) -> Pause {
    Pause { kind, side, from: ms(from), to: ms(to), took: Nanos::from_millis(took) }
}

#[test]
fn threads_that_waited_for_a_cpu_are_why_a_step_took_long_and_the_stall_is_explained() {
    let mut book = book(40, (1, 0, 0.1));
    for step in 61..=80 {
        book.step(0, ms(step * 10), 1);
    }
    // The step from 400 to 610 ms: looked at every 100 ms, of which 90 were waited.
    for from in [400, 500] {
        book.pause(pause(PauseKind::RunQueue, Side::Engine, from, from + 100, 90));
    }
    // The API server waited too, where nothing waited for it.
    book.pause(pause(PauseKind::RunQueue, Side::ApiServer, 400, 500, 80));
    let verdict = book.explain(&account(&book, 5, 20, 800, 802), std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::CpuStarved]);
    let starved = &verdict.causes[0];
    assert_eq!((starved.took, starved.certainty), (Nanos::from_millis(180), Certainty::Likely));
    assert!(
        verdict
            .because()
            .ends_with("(in the engine, 2 times, the longest 90 ms, first after 0.40 s) [likely]"),
        "{}",
        verdict.because()
    );
    assert!(verdict.unexplained < Nanos::from_millis(30), "{:?}", verdict.unexplained);
    assert_eq!(verdict.paused, [(PauseKind::RunQueue, Nanos::from_millis(180))]);
}

#[test]
fn a_stall_that_nothing_waited_in_stays_unexplained() {
    let mut book = book(40, (1, 0, 0.1));
    for step in 61..=80 {
        book.step(0, ms(step * 10), 1);
    }
    book.pause(pause(PauseKind::RunQueue, Side::Engine, 900, 1000, 90));
    let verdict = book.explain(&account(&book, 5, 20, 800, 802), std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::EngineStall], "that was after it");
    assert_eq!(verdict.pauses, []);
}

#[test]
fn an_api_server_out_of_its_quota_is_why_a_request_was_handed_on_late() {
    let mut book = book(80, (1, 0, 0.1));
    book.pause(pause(PauseKind::Cgroup, Side::ApiServer, 0, 300, 280));
    let mut account = account(&book, 405, 420, 620, 625);
    let mut cuts = Cuts::new(ms(0), ms(625));
    cuts.to(Part::Receive, at(1));
    cuts.to(Part::Frontend, at(400));
    cuts.to(Part::Queue, at(405));
    cuts.to(Part::Prefill, at(420));
    cuts.first_token();
    cuts.to(Part::Decode, at(620));
    cuts.to(Part::Send, at(625));
    (account.cuts, account.handed) = (cuts, at(400));
    let verdict = book.explain(&account, std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::CpuThrottled, Cause::FrontendBefore]);
    let took: u64 = verdict.causes.iter().map(|blame| blame.took.0).sum();
    // What came in before counts too.
    assert_eq!(took / 1_000_000, 399, "together what it took");
}

#[test]
fn processes_that_paused_at_one_time_made_it_wait_once() {
    let mut book = book(80, (1, 0, 0.1));
    for took in [20, 100, 60] {
        book.pause(pause(PauseKind::Gc, Side::Engine, 100, 200, took));
    }
    let verdict = book.explain(&account(&book, 5, 20, 220, 225), std::iter::empty());
    assert_eq!(causes(&verdict), [Cause::Gc]);
    assert_eq!((verdict.causes[0].took, verdict.pauses.len()), (Nanos::from_millis(100), 1));
}

#[test]
fn only_what_falls_into_the_request_counts_of_a_pause() {
    let mut book = book(80, (1, 0, 0.1));
    // Half of it after the request's last token.
    book.pause(pause(PauseKind::Gc, Side::Engine, 170, 270, 100));
    let verdict = book.explain(&account(&book, 5, 20, 220, 225), std::iter::empty());
    assert_eq!(verdict.causes[0].took, Nanos::from_millis(50));
    assert_eq!((verdict.pauses[0].from, verdict.pauses[0].to), (ms(170), ms(220)));
}

#[test]
fn pauses_are_metrics_and_events_of_the_stage_they_fell_into() {
    let mut book = book(80, (1, 0, 0.1));
    book.pause(pause(PauseKind::RunQueue, Side::Engine, 100, 200, 90));
    book.faulted(Side::Engine, 3);
    let seconds = |name: &str| {
        book.points()
            .iter()
            .find(|(def, ..)| def.name == name)
            .map(|(_, dims, value)| (dims.clone(), value.as_f64()))
    };
    let dims = vec![("pause", "run_queue".to_owned()), ("side", "engine".to_owned())];
    assert_eq!(seconds("enginetap_pause_seconds"), Some((dims, 0.09)));
    assert_eq!(seconds("enginetap_major_faults").map(|(_, count)| count), Some(3.0));
    let verdict = book.explain(&account(&book, 5, 20, 220, 225), std::iter::empty());
    let mut trace = trace_of(&[("text_completion m", 0, 225), ("prefill", 5, 20), ("decode", 20, 220)]);
    verdict.put_on(&mut trace);
    let events: Vec<_> = trace.spans.iter().map(|span| span.events.len()).collect();
    assert_eq!(events, [0, 0, 1], "on the stage");
    let event = &trace.spans[2].events[0];
    assert_eq!((event.name.as_ref(), event.at), ("runqueue.delay", WallTime(100_000_000)));
    let root = &trace.spans[0];
    assert!(root.attributes.iter().any(|attribute| attribute.key == "enginetap.runqueue_delay"));
    for span in &trace.spans {
        assert_eq!(
            crate::model::registry::check::span(span, crate::model::registry::Dialect::VllmV1),
            [""; 0]
        );
    }
}

/// Spans of a request that began at 0 of both clocks, by name and milliseconds.
fn trace_of(spans: &[(&'static str, u64, u64)]) -> crate::model::span::Trace {
    use crate::ids::{SpanId, TraceId};
    use crate::model::span::{Span, Status, Trace};
    let span = |(name, from, to): &(&'static str, u64, u64)| Span {
        trace: TraceId(1),
        id: SpanId(*from + 1),
        parent: None,
        trace_state: None,
        name: (*name).into(),
        start: WallTime(from * 1_000_000),
        end: WallTime(to * 1_000_000),
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        links: Vec::new(),
        status: Status::Unset,
    };
    Trace { server: ServerId(1), sampled: true, spans: spans.iter().map(span).collect(), logs: Vec::new() }
}
