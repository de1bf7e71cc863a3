//! What real vLLM servers send in other modes than the plain one, and how broken streams of theirs are read.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its capture has failed")]

use std::sync::OnceLock;

use enginetap_core::capture::fact::Role;
use enginetap_core::dialect::signal::{EngineRequest, EngineSignal, EngineStep, SpecStats};
use enginetap_core::ids::Direction;
use enginetap_core::loss::Loss;
use enginetap_core::stream::Piece;
use enginetap_core::time::MonoTime;
use enginetap_core::wire::zmtp::Start;
use enginetap_tests::captures::Capture;
use enginetap_tests::messages::{Session, decode_pieces};
use proptest::prelude::*;

fn session(name: &str) -> Session {
    Session::read(&Capture::read(name).unwrap()).unwrap()
}

fn signals(session: &Session, role: Role, direction: Direction) -> Vec<EngineSignal> {
    session.decode(role, direction, || session.by_version()).signals
}

/// The steps that an engine sent.
fn steps(session: &Session) -> Vec<EngineStep> {
    let signals = signals(session, Role::EngineCore, Direction::Tx);
    let step = |signal| if let EngineSignal::Step { step, .. } = signal { Some(*step) } else { None };
    signals.into_iter().filter_map(step).collect()
}

/// The requests that an engine got.
fn requests(session: &Session) -> Vec<EngineRequest> {
    let signals = signals(session, Role::EngineCore, Direction::Rx);
    let request =
        |signal| if let EngineSignal::Added { request, .. } = signal { Some(*request) } else { None };
    signals.into_iter().filter_map(request).collect()
}

#[test]
fn speculation_gives_several_tokens_a_step_and_its_own_statistics() {
    let steps = steps(&session("speculation-engine"));
    let mut sum = SpecStats::default();
    for spec in steps.iter().filter_map(|step| step.stats.as_ref()?.spec) {
        sum.drafts += spec.drafts;
        sum.draft_tokens += spec.draft_tokens;
        sum.accepted_tokens += spec.accepted_tokens;
    }
    // What the server's /metrics said.
    assert_eq!(sum, SpecStats { drafts: 31, draft_tokens: 91, accepted_tokens: 72 });
    let outputs = steps.iter().flat_map(|step| &step.outputs);
    assert_eq!(outputs.clone().map(|output| output.token_count).sum::<u32>(), 120);
    assert!(outputs.clone().any(|output| output.token_count > 2));
}

#[test]
fn without_log_stats_steps_have_tokens_and_times_and_nothing_else() {
    let steps = steps(&session("no-stats-engine"));
    assert_eq!(steps.len(), 3);
    for step in &steps {
        assert!(step.stats.is_none() && step.timestamp.is_some() && !step.utility);
        assert!(step.outputs.iter().all(|output| output.events.is_empty() && output.token_count == 1));
    }
    assert!(steps[0].outputs[0].cached.is_some());
}

#[test]
fn pooling_requests_have_no_sampling_and_results_no_tokens() {
    let session = session("pooling-engine");
    let requests = requests(&session);
    assert!(requests.len() >= 8);
    assert!(requests.iter().all(|request| request.pooling && request.sampling.is_none()));
    let steps = steps(&session);
    let results = steps.iter().flat_map(|step| &step.outputs).filter(|output| output.pooling);
    assert_eq!(results.clone().count(), requests.len());
    assert!(results.clone().all(|output| output.token_count == 0 && output.finish.is_some()));
}

#[test]
fn candidates_and_prompts_are_requests_of_their_own() {
    let requests = requests(&session("features-engine"));
    let of = |external: &str| {
        let same = requests.iter().filter(|request| request.external_id.as_deref() == Some(external));
        same.map(|request| request.id.as_str()).collect::<Vec<_>>()
    };
    let candidates =
        ["0_chatcmpl-b3ae82d856041102-a0171324", "1_chatcmpl-b3ae82d856041102-a0171324"].as_slice();
    assert_eq!(of("chatcmpl-b3ae82d856041102"), candidates);
    for prompt in 0..3 {
        assert_eq!(of(&format!("cmpl-a44c48307f7443f7-{prompt}")).len(), 1);
    }
}

#[test]
fn a_client_that_goes_away_is_an_abort_and_no_output_follows() {
    let session = session("features-engine");
    let id = "cmpl-ab5e81d2fd5edc03-0-8696416d";
    let aborted =
        signals(&session, Role::EngineCore, Direction::Rx).into_iter().find_map(|signal| match signal {
            EngineSignal::Aborted { ids, .. } => Some(ids),
            EngineSignal::Added { .. }
            | EngineSignal::Step { .. }
            | EngineSignal::Ready { .. }
            | EngineSignal::Outputs { .. }
            | EngineSignal::Failed { .. }
            | EngineSignal::Dead { .. } => None,
        });
    assert_eq!(aborted.as_deref(), Some([id.to_owned()].as_slice()));
    let steps = steps(&session);
    let outputs = steps.iter().flat_map(|step| &step.outputs).filter(|output| output.id == id);
    assert!(outputs.clone().count() > 0 && outputs.clone().all(|output| output.finish.is_none()));
}

#[test]
fn logprobs_come_with_each_token_from_the_message_or_a_frame_of_their_own() {
    for (name, count) in [("features-engine", 2), ("aux-frames-engine", 2)] {
        let steps = steps(&session(name));
        let outputs =
            steps.iter().flat_map(|step| &step.outputs).filter(|output| !output.logprobs.is_empty());
        assert_eq!(outputs.clone().count(), count, "{name}");
        for output in outputs {
            assert_eq!(output.logprobs.len(), output.tokens.len(), "{name}");
            assert!(output.logprobs.iter().all(|logprob| (-10.0..0.0).contains(logprob)), "{name}");
        }
    }
}

#[test]
fn data_parallel_engines_and_frontends_are_told_by_their_indices() {
    for rank in [0, 1] {
        let session = session(&format!("dp-engine{rank}"));
        assert!(steps(&session).iter().all(|step| step.engine_index == rank));
        let requests = requests(&session);
        assert!(requests.iter().any(|request| request.client_index == Some(0)));
        assert!(requests.iter().any(|request| request.client_index == Some(1)));
    }
}

#[test]
fn a_coordinators_own_messages_are_no_steps() {
    let coordinator = session("dp-coordinator");
    assert_eq!(signals(&coordinator, Role::Coordinator, Direction::Tx), []);
    // What engines report to it looks like steps without outputs.
    let reports = signals(&coordinator, Role::Coordinator, Direction::Rx);
    assert!(
        reports
            .iter()
            .all(|signal| matches!(signal, EngineSignal::Step { step, .. } if step.outputs.is_empty()))
    );
    for frontend in ["dp-api0", "dp-api1"] {
        let decoded =
            session(frontend).decode(Role::ApiServer, Direction::Rx, || session(frontend).by_version());
        assert_eq!(decoded.losses.get(Loss::UnknownMessage), 0);
    }
}

/// The bytes of one busy stream, its signals (without times), and where its greeting ends.
fn stream() -> &'static (Session, Vec<u8>, Vec<EngineSignal>) {
    static STREAM: OnceLock<(Session, Vec<u8>, Vec<EngineSignal>)> = OnceLock::new();
    STREAM.get_or_init(|| {
        let session = session("vllm-0.32.0");
        let busiest =
            session.of(Role::EngineCore, Direction::Tx).max_by_key(|stream| stream.calls.len()).unwrap();
        let bytes: Vec<u8> = busiest.calls.iter().flat_map(|(_, bytes)| bytes.clone()).take(40_000).collect();
        let signals = pieces(&session, &[Piece::bytes(&bytes, MonoTime(1), true)], Start::Beginning);
        assert!(signals.len() > 20);
        (session, bytes, signals)
    })
}

fn pieces(session: &Session, pieces: &[Piece<'_>], start: Start) -> Vec<EngineSignal> {
    decode_pieces(pieces.iter().copied(), start, session.by_version()).signals
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_gives_the_same_signals(cuts in proptest::collection::vec(0..40_000_usize, 0..60)) {
        let (session, bytes, signals) = stream();
        let mut cuts: Vec<usize> = cuts.into_iter().chain([0, bytes.len()]).map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let split: Vec<Piece<'_>> =
            cuts.windows(2).map(|pair| Piece::bytes(&bytes[pair[0]..pair[1]], MonoTime(1), true)).collect();
        prop_assert!(pieces(session, &split, Start::Beginning) == *signals);
    }

    #[test]
    fn a_cut_stream_gives_a_prefix(cut in 0..40_000_usize) {
        let (session, bytes, signals) = stream();
        let cut = [Piece::bytes(&bytes[..cut.min(bytes.len())], MonoTime(1), true)];
        prop_assert!(signals.starts_with(&pieces(session, &cut, Start::Beginning)));
    }

    #[test]
    fn a_gap_cuts_the_messages_it_touches_and_no_other(start in 100..30_000_usize, len in 1..3_000_usize) {
        let (session, bytes, signals) = stream();
        let end = (start + len).min(bytes.len());
        let gap = Piece::gap(Some(u64::try_from(end - start).unwrap()), MonoTime(1));
        let parts = [
            Piece::bytes(&bytes[..start], MonoTime(1), true),
            gap,
            Piece::bytes(&bytes[end..], MonoTime(1), false),
        ];
        let seen = pieces(session, &parts, Start::Beginning);
        let (cut, whole): (Vec<_>, Vec<_>) = seen.into_iter().partition(is_cut);
        prop_assert!(cut.len() <= 1);
        prop_assert!(whole.iter().all(|signal| signals.contains(signal)));
        // After the gap a few whole frames are needed to find the place again.
        prop_assert!(whole.len() + len / 400 + 8 >= signals.len(), "{} of {}", whole.len(), signals.len());
    }
}

fn is_cut(signal: &EngineSignal) -> bool {
    match signal {
        EngineSignal::Step { step, .. } => step.cut,
        EngineSignal::Added { request, .. } => request.cut,
        EngineSignal::Aborted { .. }
        | EngineSignal::Ready { .. }
        | EngineSignal::Outputs { .. }
        | EngineSignal::Failed { .. }
        | EngineSignal::Dead { .. } => false,
    }
}
