use proptest::prelude::*;

use super::*;
use crate::dialect::signal::vllm_v0::{V0Candidate, V0Metrics};
use crate::dialect::signal::{EngineRequest, Finish, Sampling};
use crate::dialect::vllm::Decoder as Dialect;
use crate::loss::{Loss, Losses};
use crate::time::{EpochTime, Seconds};

// Messages of real engines are held against what the engines counted in `tests/tests/vllm_v0.rs`.

fn decode(body: &[u8], version: Option<&str>) -> (Option<EngineSignal>, u64) {
    let mut losses = Losses::default();
    let mut dialect = Dialect::new(None, version, Options { token_ids: true });
    let signal = dialect.decode(&[body], false, MonoTime(5), &mut losses);
    (signal, losses.get(Loss::UnknownMessage))
}

/// An object of `MODULE.NAME`, its fields as they are written, without the pickle around it.
fn object(module: &str, name: &str, fields: &[u8]) -> Vec<u8> {
    let class = format!("c{module}\n{name}\n");
    [class.as_bytes(), b")\x81}(", fields, b"ub"].concat()
}

/// A pickle of protocol 2 of a message.
fn message(name: &str, fields: &[u8]) -> Vec<u8> {
    [b"\x80\x02", object("vllm.engine.multiprocessing", name, fields).as_slice(), b"."].concat()
}

/// `output_kind`, called with its number.
fn kind(number: u8) -> Vec<u8> {
    [b"cvllm.sampling_params\nRequestOutputKind\n(K".as_slice(), &[number], b"tR"].concat()
}

/// `SamplingParams` of n=2, temperature 0.5, top_p 0.25, top_k -1, stop ["x"], max_tokens 9, deltas; `words`: whether
/// bad words come before `ignore_eos`, as up to 0.7.
fn sampling(words: bool) -> Vec<u8> {
    let half = b"G\x3f\xe0\0\0\0\0\0\0".as_slice();
    let quarter = b"G\x3f\xd0\0\0\0\0\0\0".as_slice();
    [
        b"cvllm.sampling_params\nSamplingParams\n(K\x02NNG\0\0\0\0\0\0\0\0G\0\0\0\0\0\0\0\0".as_slice(),
        half,
        half,
        quarter,
        b"J\xff\xff\xff\xffG\0\0\0\0\0\0\0\0N](U\x01xe]",
        if words { b"]" } else { b"" },
        b"\x89K\x09K\0NN\x88\x88\x88N\x89N",
        &kind(1),
        b"K\0\x8f",
        b"tR",
    ]
    .concat()
}

fn request(words: bool, prompt: &str) -> Vec<u8> {
    let name = [b"U", [u8::try_from(prompt.len()).unwrap()].as_slice(), prompt.as_bytes()].concat();
    let headers = b"U\x0dtrace_headers}U\x0btraceparentU\x0200s".as_slice();
    message(
        "RPCProcessRequest",
        &[
            &name,
            b"}U\x10prompt_token_ids](K\x05M\xe8\x03es".as_slice(),
            b"U\x06params",
            &sampling(words),
            b"U\x0arequest_idU\x06cmpl-1",
            headers,
        ]
        .concat(),
    )
}

#[test]
fn a_request_is_read_by_its_fields_names_and_the_order_of_its_sampling_parameters() {
    let wanted = EngineRequest {
        id: "cmpl-1".to_owned(),
        prompt_tokens: Some(2),
        prompt_token_ids: vec![5, 1000],
        sampling: Some(Sampling {
            n: 2,
            temperature: 0.5,
            top_p: 0.25,
            max_tokens: Some(9),
            stop: true,
            delta: true,
            ..Sampling::default()
        }),
        traceparent: Some("00".to_owned()),
        ..EngineRequest::default()
    };
    // The version's order, and the one that fits where the version is not known, or another one's.
    for (words, prompt) in [(false, "prompt"), (true, "prompt"), (true, "inputs")] {
        for version in [Some("0.6.6"), Some("0.9.2.post2"), None] {
            let (signal, unknown) = decode(&request(words, prompt), version);
            let added = EngineSignal::Added { at: MonoTime(5), request: Box::new(wanted.clone()) };
            assert_eq!((signal, unknown), (Some(added), 0), "{words} {prompt} {version:?}");
        }
    }
}

#[test]
fn the_targets_own_order_is_taken_first() {
    let mut schema = Schema::default();
    schema.read_sampling("class SamplingParams(msgspec.Struct):\n    max_tokens: int = 16\n    n: int = 1\n");
    let fields =
        [b"U\x0arequest_idU\x01aU\x06params".as_slice(), b"cm\nSamplingParams\n(K\x07K\x03tR"].concat();
    let body = message("RPCProcessRequest", &fields);
    let mut dialect = Dialect::new(Some(&schema), Some("0.9.2"), Options::default());
    let signal = dialect.decode(&[&body], false, MonoTime(5), &mut Losses::default());
    let Some(EngineSignal::Added { request, .. }) = signal else { panic!("{signal:?}") };
    let sampling = request.sampling.unwrap();
    assert_eq!((sampling.max_tokens, sampling.n), (Some(7), 3));
}

#[test]
fn a_pooling_request_has_no_sampling_parameters() {
    let pooling = object("vllm.pooling_params", "PoolingParams", b"");
    let fields = [b"U\x0arequest_idU\x01aU\x06params".as_slice(), &pooling].concat();
    let (signal, _) = decode(&message("RPCProcessRequest", &fields), None);
    let Some(EngineSignal::Added { request, .. }) = signal else { panic!("{signal:?}") };
    assert!(request.pooling && request.sampling.is_none());
}

#[test]
fn aborts_and_errors_name_their_request() {
    let id = b"U\x0arequest_idU\x01a".as_slice();
    let (signal, _) = decode(&message("RPCAbortRequest", id), None);
    assert_eq!(signal, Some(EngineSignal::Aborted { at: MonoTime(5), ids: vec!["a".to_owned()] }));
    let error = |broken: &[u8], id: &[u8]| {
        let exception = b"U\x09exceptioncbuiltins\nValueError\n(U\x06secrettR".as_slice();
        let fields = [id, b"U\x11is_engine_errored", broken, exception].concat();
        decode(&message("RPCError", &fields), None).0
    };
    assert_eq!(error(b"\x89", id), Some(EngineSignal::Failed { at: MonoTime(5), id: "a".to_owned() }));
    assert_eq!(error(b"\x88", id), Some(EngineSignal::Dead { at: MonoTime(5) }));
    assert_eq!(error(b"\x88", b"U\x0arequest_idN"), Some(EngineSignal::Dead { at: MonoTime(5) }));
    // What a broken engine sends in place of its heartbeat.
    let (signal, unknown) = decode(b"\x80\x02cbuiltins\nRuntimeError\n(U\x04deadtR.", None);
    assert_eq!((signal, unknown), (Some(EngineSignal::Dead { at: MonoTime(5) }), 0));
}

/// Metrics of 0.8.5 with `--collect-detailed-traces`, forward time in milliseconds.
const METRICS: &[u8] = b"U\x0carrival_timeG\x41\xda\0\0\0\0\0\0U\x0flast_token_timeG\x41\xda\0\0\0\x40\0\0\
    U\x14first_scheduled_timeNU\x10first_token_timeNU\x0dtime_in_queueG\x3f\xe0\0\0\0\0\0\0\
    U\x0dfinished_timeG\x41\xda\0\0\0\x80\0\0U\x0escheduler_timeG\x3f\xd0\0\0\0\0\0\0\
    U\x12model_forward_timeK\x7dU\x12model_execute_timeG\x3f\xf0\0\0\0\0\0\0";

#[test]
fn an_output_tells_its_candidates_and_its_times() {
    let metrics = object("vllm.sequence", "RequestMetrics", METRICS);
    let one = object(
        "vllm.outputs",
        "CompletionOutput",
        b"U\x05indexK\0U\x09token_ids](K\x01K\x02eU\x0dfinish_reasonN",
    );
    let two = object(
        "vllm.outputs",
        "CompletionOutput",
        b"U\x05indexK\x01U\x09token_ids](K\x01eU\x04textU\x06secretU\x0dfinish_reasonU\x06length",
    );
    let fields = [
        b"U\x0arequest_idU\x01aU\x10prompt_token_ids](K\x09K\x09K\x09eU\x07outputs](".as_slice(),
        &one,
        &two,
        b"eU\x08finished\x88U\x07metrics",
        &metrics,
        b"U\x11num_cached_tokensK\x02",
    ]
    .concat();
    let body = [b"\x80\x02](".as_slice(), &object("vllm.outputs", "RequestOutput", &fields), b"e."].concat();
    let (signal, _) = decode(&body, None);
    let Some(EngineSignal::Outputs { outputs, at: MonoTime(5) }) = signal else { panic!("{signal:?}") };
    let wanted = V0Metrics {
        arrival: Some(EpochTime(1_744_830_464.0)),
        last_token: Some(EpochTime(1_744_830_465.0)),
        finished: Some(EpochTime(1_744_830_466.0)),
        queue: Some(Seconds(0.5)),
        scheduler: Some(Seconds(0.25)),
        forward: Some(Seconds(0.125)),
        execute: Some(Seconds(1.0)),
        ..V0Metrics::default()
    };
    let [output] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert_eq!((output.id.as_str(), output.prompt_tokens, output.cached_tokens), ("a", Some(3), Some(2)));
    assert!(output.finished);
    assert_eq!(output.metrics, wanted);
    assert_eq!(
        output.candidates,
        [
            V0Candidate { index: 0, tokens: 2, finish: None },
            V0Candidate { index: 1, tokens: 1, finish: Some(Finish::Length) },
        ]
    );
}

#[test]
fn what_says_nothing_of_requests_is_passed_over_and_what_nobody_knows_is_counted() {
    for known in
        [b"\x80\x04\x8c\x07SUCCESS\x94.".to_vec(), message("RPCStartupResponse", b""), b"\x80\x02).".to_vec()]
    {
        assert_eq!(decode(&known, None), (None, 0));
    }
    let v1 =
        [b"\x80\x02".as_slice(), &object("vllm.v1.core.sched.output", "SchedulerOutput", b""), b"."].concat();
    assert_eq!(decode(&v1, None), (None, 0));
    let unknown = message("RPCBrandNewRequest", b"U\x0arequest_idU\x01a");
    for unknown in
        [unknown, b"\x80\x02](K\x01e.".to_vec(), b"\x80\x02K\x01.".to_vec(), b"\x80\x02\xff".to_vec()]
    {
        assert_eq!(decode(&unknown, None), (None, 1), "{unknown:?}");
    }
    let nobody = message("RPCAbortRequest", b"U\x05otherU\x01a");
    assert_eq!(decode(&nobody, None), (None, 1));
}

#[test]
fn a_message_that_was_cut_tells_what_came_before_the_cut() {
    let whole = request(false, "prompt");
    let mut dialect = Dialect::new(None, Some("0.9.2"), Options::default());
    // Without its id it tells nothing; the id comes last but one.
    let id = whole.windows(6).position(|part| part == b"cmpl-1").unwrap() + 6;
    for end in 2..whole.len() {
        let mut losses = Losses::default();
        let signal = dialect.decode(&[&whole[..end]], true, MonoTime(5), &mut losses);
        assert_eq!(matches!(signal, Some(EngineSignal::Added { .. })), end >= id, "{end}");
        assert_eq!(dialect.decode(&[&whole[..end]], false, MonoTime(5), &mut losses), None);
    }
}

#[test]
fn parts_that_are_referred_to_over_and_over_cost_no_more_than_their_bytes() {
    let candidate = object("vllm.outputs", "CompletionOutput", b"U\x05indexK\0");
    // A list of one candidate a thousand times, in an output that comes a thousand times.
    let many = [b"](".as_slice(), &candidate, b"q\x01", &b"h\x01".repeat(1000), b"e"].concat();
    let output = object(
        "vllm.outputs",
        "RequestOutput",
        &[b"U\x0arequest_idU\x01aU\x07outputs".as_slice(), &many].concat(),
    );
    let body = [b"\x80\x02](".as_slice(), &output, b"q\x02", &b"h\x02".repeat(1000), b"e."].concat();
    let (signal, _) = decode(&body, None);
    let Some(EngineSignal::Outputs { outputs, .. }) = signal else { panic!("{signal:?}") };
    let held: usize = outputs.iter().map(|output| output.candidates.len() + output.id.len()).sum();
    assert!(held <= body.len(), "{held}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..200), at in 0..400_usize, flip in any::<u8>()) {
        decode(&[b"\x80\x04".as_slice(), &tail].concat(), None);
        let mut body = request(false, "prompt");
        if let Some(byte) = body.get_mut(at.max(2)) {
            *byte = flip;
        }
        decode(&body, Some("0.9.2"));
    }
}
