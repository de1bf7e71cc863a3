//! Signals lost, told twice and out of order: nothing panics, and what comes out holds together.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// One thing told.
#[derive(Clone, Debug)]
enum Told {
    Request(u64, bool),
    Delta(u64, u8),
    End(u64, bool),
    Dispatched(u8, bool),
    Output(u8, u64, u64, Option<&'static str>, bool),
    Aborted(Option<u8>, bool),
    State(u8, [u64; 8], u64, u64),
    Forward(bool, Vec<u8>),
    Frontend(u8, [u64; 4]),
    Tick,
    Gone(bool),
}

fn told() -> impl Strategy<Value = Told> {
    let rid = 0_u8..4;
    let number = 0_u64..3;
    prop_oneof![
        (number.clone(), any::<bool>()).prop_map(|(n, stream)| Told::Request(n, stream)),
        (number.clone(), rid.clone()).prop_map(|(n, rid)| Told::Delta(n, rid)),
        (number, any::<bool>()).prop_map(|(n, complete)| Told::End(n, complete)),
        (rid.clone(), any::<bool>()).prop_map(|(rid, stream)| Told::Dispatched(rid, stream)),
        (
            rid.clone(),
            0_u64..9,
            0_u64..3,
            prop::option::weighted(0.3, prop::sample::select(vec!["stop", "length", "abort"])),
            any::<bool>()
        )
            .prop_map(|(rid, tokens, back, finish, hop)| Told::Output(rid, tokens, back, finish, hop)),
        (prop::option::of(rid.clone()), any::<bool>()).prop_map(|(rid, own)| Told::Aborted(rid, own)),
        (rid.clone(), prop::array::uniform8(0_u64..900), 0_u64..9, 0_u64..3)
            .prop_map(|(rid, times, tokens, back)| Told::State(rid, times, tokens, back)),
        (any::<bool>(), prop::collection::vec(rid.clone(), 0..4))
            .prop_map(|(decode, members)| Told::Forward(decode, members)),
        (rid, prop::array::uniform4(0_u64..900)).prop_map(|(rid, times)| Told::Frontend(rid, times)),
        Just(Told::Tick),
        prop::bool::weighted(0.1).prop_map(Told::Gone),
    ]
}

fn name(rid: u8) -> String {
    format!("{rid}{rid}{rid}{rid}aaaa{rid}")
}

fn tell(lifecycle: &mut Lifecycle, at: u64, told: Told) {
    match told {
        Told::Request(number, stream) => request(lifecycle, number, ask(stream)),
        Told::Delta(number, rid) => delta(lifecycle, number, at, says(&name(rid), 0, "x")),
        Told::End(number, complete) => end(lifecycle, number, at, complete),
        Told::Dispatched(rid, stream) => dispatch(lifecycle, at, handed(&name(rid), stream)),
        Told::Output(rid, tokens, back, finish, hop) => {
            let base = finish.map_or(output(&name(rid), tokens), |kind| last(&name(rid), tokens, kind));
            let outputs = vec![SglangOutput { retractions: Some(back), ..base }];
            let (pid, hop) = if hop { (FRONTEND, Hop::Frontend) } else { (SCHEDULER, Hop::Scheduler) };
            lifecycle.sglang(pid, SglangSignal::Outputs { at: ms(at), hop, outputs, cut: false });
        }
        Told::Aborted(rid, own) => {
            let finish = own.then(|| SglangFinish { kind: "abort".into(), ..SglangFinish::default() });
            lifecycle.sglang(FRONTEND, SglangSignal::Aborted { at: ms(at), rid: rid.map(name), finish });
        }
        Told::State(
            rid,
            [received, queued, forward, last, prefilled, chunk, decoded, again],
            tokens,
            back,
        ) => {
            let times = ReqTimes {
                received: sec(received),
                queued: sec(queued),
                forward: sec(forward),
                last_forward: sec(last),
                prefill_finished: sec(prefilled),
                last_prefill_finished: sec(again),
                last_chunk_finished: sec(chunk),
                last_decode_finished: sec(decoded),
                ..ReqTimes::default()
            };
            let state = ReqState { retractions: Some(back), ..state(&name(rid), times, tokens) };
            lifecycle.snapshot(snapshot(SCHEDULER, at, vec![state]));
        }
        Told::Forward(decode, members) => {
            let mode = if decode { ForwardMode::Decode } else { ForwardMode::Prefill };
            let members: Vec<String> = members.into_iter().map(name).collect();
            forward(lifecycle, at, mode, &members.iter().map(String::as_str).collect::<Vec<_>>());
        }
        Told::Frontend(rid, [created, tokenized, dispatch, dispatched]) => {
            let times = FrontendTimes {
                created: sec(created),
                tokenized: sec(tokenized),
                dispatch: sec(dispatch),
                dispatched: sec(dispatched),
                ..FrontendTimes::default()
            };
            let requests = vec![(name(rid), times)];
            lifecycle.frontend_snapshot(FrontendSnapshot { pid: FRONTEND, at: ms(at), requests });
        }
        Told::Tick => lifecycle.tick(ms(at)),
        Told::Gone(frontend) => lifecycle.gone(if frontend { FRONTEND } else { SCHEDULER }, ms(at)),
    }
}

proptest! {
    #[test]
    fn whatever_is_told_in_whatever_order_traces_hold_together(
        list in prop::collection::vec((0_u64..400, told()), 0..60),
        level in 0_u8..5,
    ) {
        let level = crate::settings::SglangLevel::new(level).unwrap();
        let mut lifecycle =
            lifecycle_of(Settings { sglang_level: level, ..Settings::default() }, SglangLaunch::default());
        let mut now = 100;
        let mut asked = 0;
        for (step, told) in list {
            now += step;
            asked += u32::from(matches!(told, Told::Request(..)));
            tell(&mut lifecycle, now, told);
        }
        lifecycle.tick(ms(now + 60_000));
        lifecycle.detached(SERVER, ms(now + 60_000));
        prop_assert_eq!(lifecycle.open(), 0);
        let mut entries = 0;
        for trace in lifecycle.traces() {
            checked(&trace);
            let named = trace.spans.iter().filter(|span| span.name.starts_with("chat "));
            let here = u32::try_from(named.count()).unwrap();
            prop_assert!(here <= 1);
            entries += here;
            let mut of_rid: HashMap<&str, u32> = HashMap::new();
            for rid in trace.spans.iter().filter_map(|span| text(span, "rid")) {
                *of_rid.entry(rid).or_default() += 1;
            }
            prop_assert!(of_rid.values().all(|&count| count == 1), "{:?}", of_rid);
        }
        prop_assert!(entries <= asked);
    }
}
