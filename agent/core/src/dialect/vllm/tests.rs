mod pack;

use pack::Pack;
use proptest::prelude::*;

use super::*;
use crate::dialect::signal::{
    CachedTokens, EngineEvent, EngineEventKind, EngineReady, EngineStep, Finish, KvTransfer, SpecStats,
    TransferStats,
};
use crate::time::{EngineTime, EpochTime};

/// The body of a real ADD of 0.32.0: `import os`, 2 tokens, at most 2 more, streaming off.
const ADD: &str = "\
    dc0016d920636d706c2d396639646265313233663063656362302d302d616530333163653192cd03d1cd0372c0de000eb070\
    726573656e63655f70656e616c7479cb0000000000000000b16672657175656e63795f70656e616c7479cb00000000000000\
    00b272657065746974696f6e5f70656e616c7479cb3ff0000000000000ab74656d7065726174757265cb0000000000000000\
    ac77617465726d61726b696e67c2a473746f7090ae73746f705f746f6b656e5f69647390aa6d61785f746f6b656e7302ab6f\
    75747075745f6b696e6402aa736b69705f636c6f6e65c3ad5f656f735f746f6b656e5f696402b35f616c6c5f73746f705f74\
    6f6b656e5f6964739102a96261645f776f72647390b9736b69705f72656164696e675f7072656669785f6361636865c2c0cb\
    41dac365a0b9edc0c0c0c0c0c0000000c0c2b7636d706c2d396639646265313233663063656362302d30c0c0c2c0c0";

/// The body of the real step that answered it first.
const STEP: &str = "\
    990091dc0012d920636d706c2d396639646265313233663063656362302d302d616530333163653191cd02c6c0c0c0c0c092\
    82a47479706501a974696d657374616d70cb40a477dbdf0d85e982a47479706502a974696d657374616d70cb40a477dbff48\
    e4bac0c0c086b16e756d5f70726f6d70745f746f6b656e7302b36e756d5f636f6d70757465645f746f6b656e7302b16e756d\
    5f6361636865645f746f6b656e7300b76e756d5f6c6f63616c5f6361636865645f746f6b656e7300ba6e756d5f6578746572\
    6e616c5f6361636865645f746f6b656e7300b96e756d5f63616368655f6372656174696f6e5f746f6b656e7300c000c0c0c0\
    c0de0012b06e756d5f72756e6e696e675f7265717301b06e756d5f77616974696e675f7265717300b86e756d5f736b697070\
    65645f77616974696e675f7265717300ba6e756d5f6b765f66657463685f726571735f62795f737461676583b07761697469\
    6e675f746f5f737461727400ab696e5f70726f677265737300b1636f6d706c657465645f77616974696e6700ac737465705f\
    636f756e74657200ac63757272656e745f7761766500ae6b765f63616368655f7573616765cb3f10004001000000b1697465\
    726174696f6e5f64657461696c73c0b27072656669785f63616368655f737461747388a57265736574c2a872657175657374\
    7301a77175657269657302a46869747300b2707265656d707465645f726571756573747300b1707265656d707465645f7175\
    657269657300ae707265656d707465645f6869747300ae686974735f62795f736f7572636580bc636f6e6e6563746f725f70\
    72656669785f63616368655f7374617473c0b86b765f63616368655f6576696374696f6e5f6576656e747390b3737065635f\
    6465636f64696e675f7374617473c0b26b765f636f6e6e6563746f725f7374617473c0b265635f636f6e6e6563746f725f73\
    74617473c0b577616974696e675f6c6f72615f616461707465727380b572756e6e696e675f6c6f72615f6164617074657273\
    80af6375646167726170685f7374617473c0aa706572665f7374617473c0cb40a477f28316d3e0c0c0c0c0a764656661756c\
    74";

/// The body of a real step of 0.32.0 with `--disable-log-stats`.
const QUIET_STEP: &str = "\
    990091dc0012d920636d706c2d613262663731613634353938386266632d302d386363306164306291cd0229c0c0c0c0c0c0\
    c0c0c0c0c000c0c0c0c0c0cb40a11ac9bb57fcb9c0c0c0c0a764656661756c74";

const ALL: Options = Options { token_ids: true };

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn decode_by(decoder: &mut Decoder, frames: &[&[u8]], cut: bool) -> (Option<EngineSignal>, u64) {
    let mut losses = Losses::default();
    let signal = decoder.decode(frames, cut, MonoTime(5), &mut losses);
    (signal, losses.get(Loss::UnknownMessage))
}

fn decode(version: &str, frames: &[&[u8]]) -> (Option<EngineSignal>, u64) {
    decode_by(&mut Decoder::new(None, Some(version), ALL), frames, false)
}

fn step(version: &str, frames: &[&[u8]]) -> EngineStep {
    match decode(version, frames) {
        (Some(EngineSignal::Step { step, .. }), 0) => *step,
        other => panic!("{other:?}"),
    }
}

fn request(version: &str, body: &[u8]) -> crate::dialect::signal::EngineRequest {
    match decode(version, &[&[0], body]) {
        (Some(EngineSignal::Added { request, .. }), 0) => *request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_real_request_is_read() {
    let request = request("0.32.0", &hex(ADD));
    assert_eq!(request.id, "cmpl-9f9dbe123f0cecb0-0-ae031ce1");
    assert_eq!(request.external_id.as_deref(), Some("cmpl-9f9dbe123f0cecb0-0"));
    assert_eq!((request.prompt_tokens, request.prompt_token_ids), (Some(2), vec![977, 882]));
    assert_eq!(request.arrival, Some(EpochTime(1_796_052_610.905_136)));
    assert_eq!((request.client_index, request.data_parallel_rank, request.pooling), (Some(0), None, false));
    let sampling = request.sampling.unwrap();
    assert_eq!((sampling.n, sampling.temperature, sampling.top_p, sampling.top_k), (1, 0.0, 1.0, None));
    assert_eq!((sampling.max_tokens, sampling.stop, sampling.delta), (Some(2), false, false));
}

#[test]
fn a_real_step_is_read() {
    let step = step("0.32.0", &[&hex(STEP)]);
    assert_eq!((step.engine_index, step.timestamp), (0, Some(EngineTime(2619.973656381))));
    let output = &step.outputs[0];
    assert_eq!((output.id.as_str(), output.token_count), ("cmpl-9f9dbe123f0cecb0-0-ae031ce1", 1));
    assert_eq!((output.tokens.as_slice(), output.finish), ([710].as_slice(), None));
    let event = |kind, at| EngineEvent { kind, at: EngineTime(at) };
    let events =
        [event(EngineEventKind::Queued, 2619.929436133), event(EngineEventKind::Scheduled, 2619.929682043)];
    assert_eq!(output.events, events);
    assert_eq!(output.cached, Some(CachedTokens { total: 0, external: 0, computed: Some(2) }));
    let stats = step.stats.unwrap();
    assert_eq!((stats.running, stats.waiting, stats.skipped_waiting), (1, 0, 0));
    assert_eq!(stats.prefix.unwrap().queries, 2);
}

#[test]
fn a_step_without_statistics_is_one() {
    let step = step("0.32.0", &[&hex(QUIET_STEP)]);
    assert_eq!((step.outputs.len(), step.stats, step.utility), (1, None, false));
    assert_eq!(step.outputs[0].tokens, [553]);
}

#[test]
fn token_ids_are_left_where_nobody_asked() {
    let mut decoder = Decoder::new(None, Some("0.32.0"), Options::default());
    let (signal, _) = decode_by(&mut decoder, &[&hex(STEP)], false);
    let Some(EngineSignal::Step { step, .. }) = signal else { panic!() };
    assert_eq!((step.outputs[0].token_count, step.outputs[0].tokens.len()), (1, 0));
    let (signal, _) = decode_by(&mut decoder, &[&[0], &hex(ADD)], false);
    let Some(EngineSignal::Added { request, .. }) = signal else { panic!() };
    assert_eq!((request.prompt_tokens, request.prompt_token_ids.len()), (Some(2), 0));
}

#[test]
fn a_cut_request_gives_what_came_before_the_cut() {
    let body = hex(ADD);
    let mut seen = 0;
    for cut in 0..body.len() {
        let mut decoder = Decoder::new(None, Some("0.32.0"), ALL);
        let (signal, unknown) = decode_by(&mut decoder, &[&[0], &body[..cut]], true);
        let Some(EngineSignal::Added { request, .. }) = signal else {
            assert!(cut < 40, "cut at {cut}: {signal:?}");
            continue;
        };
        assert_eq!(
            (request.id.as_str(), request.cut, unknown),
            ("cmpl-9f9dbe123f0cecb0-0-ae031ce1", true, 0)
        );
        assert!(request.arrival.is_none() || cut > 300);
        // A default that the cut may hide is not filled in.
        assert!(request.sampling.is_none_or(|sampling| matches!(sampling.max_tokens, None | Some(2))));
        seen += 1;
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn a_cut_step_gives_what_came_before_the_cut() {
    let body = hex(STEP);
    for cut in 6..body.len() {
        for version in [Some("0.32.0"), None] {
            let mut decoder = Decoder::new(None, version, ALL);
            let (signal, unknown) = decode_by(&mut decoder, &[&body[..cut]], true);
            let Some(EngineSignal::Step { step, .. }) = signal else { panic!("cut at {cut}: {signal:?}") };
            assert!(step.cut && unknown == 0);
            assert!(cut < 40 || step.outputs.len() == 1, "cut at {cut}: {step:?}");
        }
    }
}

#[test]
fn a_message_that_ends_too_early_and_was_not_cut_is_unknown() {
    let body = hex(STEP);
    assert_eq!(decode("0.32.0", &[&body[..200]]), (None, 1));
    let body = hex(ADD);
    assert_eq!(decode("0.32.0", &[&[0], &body[..200]]), (None, 1));
}

#[test]
fn aborts_name_their_requests() {
    let body = Pack::array(2).str("a-1").str("a-2").0;
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let at = MonoTime(5);
    let both = EngineSignal::Aborted { at, ids: ids(&["a-1", "a-2"]) };
    assert_eq!(decode("0.32.0", &[&[1], &body]), (Some(both), 0));
    let mut decoder = Decoder::new(None, None, ALL);
    let one = EngineSignal::Aborted { at, ids: ids(&["a-1"]) };
    assert_eq!(decode_by(&mut decoder, &[&[1], &body[..10]], true), (Some(one), 0));
}

#[test]
fn a_utility_answer_is_no_step() {
    let answer = Pack::array(3).int(7).nil(1).value(Pack::array(2).nil(1).int(1));
    let body = Pack::array(9).int(0).value(Pack::array(0)).nil(1).float(10.5).value(answer).nil(4).0;
    let step = step("0.32.0", &[&body]);
    assert!(step.utility && step.outputs.is_empty());
}

#[test]
fn what_is_no_engine_message_gives_nothing_and_counts_nothing() {
    let hello = Pack::map(2).str("status").str("HELLO").str("local").put(&[0xc3]).0;
    let addresses = Pack::map(1).str("addresses").value(Pack::map(1).str("inputs").value(Pack::array(0))).0;
    let engine = || Pack::array(3).int(1).int(0).float(0.0);
    let coordinator =
        Pack::array(3).value(Pack::array(2).value(engine()).value(engine())).int(0).put(&[0xc2]).0;
    let utility = Pack::array(4).int(0).int(1).str("reset_mm_cache").value(Pack::array(0)).0;
    let nixl = Pack::array(3).str("get_meta_msg").int(0).int(0).0;
    let pickle = hex("80049595000000000000008c");
    let others: [&[&[u8]]; 10] = [
        &[],
        &[b""],
        &[b"READY"],
        &[&hello],
        &[&addresses],
        &[&coordinator],
        &[&[3], &utility],
        &[&[2], &[0x92, 0, 0]],
        &[b"", &nixl],
        &[&pickle],
    ];
    for frames in others {
        assert_eq!(decode("0.32.0", frames), (None, 0), "{frames:?}");
    }
}

#[test]
fn an_engines_death_is_told() {
    assert_eq!(decode("0.32.0", &[b"ENGINE_CORE_DEAD"]).0, Some(EngineSignal::Dead { at: MonoTime(5) }));
}

#[test]
fn an_engine_that_comes_up_tells_its_configuration() {
    let body = Pack::map(4)
        .str("max_model_len")
        .int(512)
        .str("num_gpu_blocks")
        .int(24)
        .str("block_size")
        .int(32)
        .str("vllm_version")
        .str("0.32.0")
        .0;
    let ready = EngineReady {
        max_model_len: Some(512),
        gpu_blocks: Some(24),
        block_size: Some(32),
        version: Some("0.32.0".to_owned()),
    };
    assert_eq!(decode("0.32.0", &[&body]).0, Some(EngineSignal::Ready { at: MonoTime(5), ready }));
    // The handshake's READY up to 0.18.
    let body = Pack::map(2).str("status").str("READY").str("num_gpu_blocks").int(7).0;
    assert!(
        matches!(decode("0.9.2", &[&body]).0, Some(EngineSignal::Ready { ready, .. }) if ready.gpu_blocks == Some(7))
    );
}

/// An outputs message of 0.32 with one output whose elements from 2 on are `rest` (16 of them).
fn outputs(rest: &Pack) -> Vec<u8> {
    let output = Pack::array(18).str("a-1").value(Pack::array(2).int(8).int(9)).value(rest.clone());
    Pack::array(9).int(3).value(Pack::array(1).value(output)).nil(1).float(10.5).nil(5).0
}

/// The elements from 2 on of an output of 0.32 that ended for this reason.
fn ended(reason: u32) -> Pack {
    Pack::default().nil(3).int(reason).nil(12)
}

#[test]
fn reasons_are_told_by_number_and_unknown_ones_kept() {
    let finish = |reason| step("0.32.0", &[&outputs(&ended(reason))]).outputs[0].finish;
    let known = [Finish::Stop, Finish::Length, Finish::Abort, Finish::Error, Finish::Repetition];
    for (reason, number) in known.into_iter().zip(0..) {
        assert_eq!(finish(number), Some(reason));
    }
    assert_eq!(finish(9), Some(Finish::Other(9)));
}

#[test]
fn numbers_of_reasons_come_from_the_schema_where_it_has_them() {
    let mut schema = Schema::for_version("0.32.0").unwrap();
    schema.finish_reasons = vec![("LENGTH".to_owned(), 9), ("NEW".to_owned(), 1)];
    let mut decoder = Decoder::new(Some(&schema), Some("0.9.2"), ALL);
    let mut finish = |reason| {
        let (signal, _) = decode_by(&mut decoder, &[&outputs(&ended(reason))], false);
        let Some(EngineSignal::Step { step, .. }) = signal else { panic!() };
        step.outputs[0].finish
    };
    assert_eq!((finish(9), finish(1)), (Some(Finish::Length), Some(Finish::Other(1))));
}

#[test]
fn a_schema_that_fits_no_message_is_replaced_by_shape() {
    let schema = Schema { output: vec!["request_id".to_owned()], ..Schema::for_version("0.32.0").unwrap() };
    let mut decoder = Decoder::new(Some(&schema), None, ALL);
    let (signal, unknown) = decode_by(&mut decoder, &[&hex(STEP)], false);
    let Some(EngineSignal::Step { step: by_shape, .. }) = signal else { panic!() };
    assert_eq!((*by_shape, unknown), (step("0.32.0", &[&hex(STEP)]), 0));
}

/// `LogprobsLists`: arrays of 2 rows and 3 columns, `data` the logprobs.
fn logprobs(dtype: &str, data: Pack) -> Pack {
    let array =
        |dtype: &str, data: Pack| Pack::array(3).str(dtype).value(Pack::array(2).int(2).int(3)).value(data);
    let ids = array("<i4", Pack::default().int(1));
    Pack::array(3).value(ids).value(array(dtype, data)).nil(1)
}

#[test]
fn the_sampled_tokens_logprobs_are_the_first_column() {
    let row = |first: f32| [first, -9.0, -9.5].map(f32::to_le_bytes).concat();
    let data = [row(-0.5), row(-1.5)].concat();
    let inline = Pack::default().put(&[0xc7, 24, 3]).put(&data);
    let whole = |logprobs: Pack| logprobs.nil(15);
    let inline = step("0.32.0", &[&outputs(&whole(logprobs("<f4", inline)))]);
    assert_eq!(inline.outputs[0].logprobs, [-0.5, -1.5]);
    let aux = step("0.32.0", &[&outputs(&whole(logprobs("<f4", Pack::default().int(2)))), b"ids", &data]);
    assert_eq!(aux.outputs[0].logprobs, [-0.5, -1.5]);
    let lists = Pack::array(3)
        .value(Pack::array(0))
        .value(Pack::array(2).value(Pack::array(2).float(-0.5).float(-7.0)).value(Pack::array(1).float(-1.5)))
        .nil(1);
    assert_eq!(step("0.32.0", &[&outputs(&whole(lists))]).outputs[0].logprobs, [-0.5, -1.5]);
}

#[test]
fn logprobs_whose_data_is_missing_or_unknown_are_left_out() {
    for (dtype, data) in
        [("<f4", Pack::default().int(4)), ("bfloat16", Pack::default().put(&[0xc7, 2, 3, 1, 1]))]
    {
        let step = step("0.32.0", &[&outputs(&logprobs(dtype, data).nil(15))]);
        assert_eq!((step.outputs[0].logprobs.len(), step.outputs[0].token_count), (0, 2));
    }
}

#[test]
fn cached_tokens_are_read_before_and_after_0_20() {
    let output = Pack::array(14).str("a").value(Pack::array(0)).nil(8).int(99).int(100).nil(1).int(0);
    let body = Pack::array(8).int(0).value(Pack::array(1).value(output)).nil(1).float(1.5).nil(4).0;
    let cached = Some(CachedTokens { total: 99, external: 100, computed: None });
    assert_eq!(step("0.18.1", &[&body]).outputs[0].cached, cached);
    let stats = Pack::map(3)
        .str("num_computed_tokens")
        .int(0)
        .str("num_cached_tokens")
        .int(100)
        .str("num_external_cached_tokens")
        .int(96);
    let cached = Some(CachedTokens { total: 100, external: 96, computed: Some(0) });
    assert_eq!(
        step("0.32.0", &[&outputs(&Pack::default().nil(9).value(stats).nil(6))]).outputs[0].cached,
        cached
    );
}

/// A step of 0.32 with nothing but these statistics.
fn with_stats(stats: Pack) -> EngineStep {
    step("0.32.0", &[&Pack::array(9).int(0).value(Pack::array(0)).value(stats).float(1.5).nil(5).0])
}

#[test]
fn statistics_are_told_by_name_whatever_the_version() {
    let spec = Pack::map(3)
        .str("num_drafts")
        .int(31)
        .str("num_draft_tokens")
        .int(91)
        .str("num_accepted_tokens")
        .int(72);
    let stats = Pack::map(4)
        .str("num_running_reqs")
        .int(2)
        .str("gpu_cache_usage")
        .float(0.5)
        .str("spec_decoding_stats")
        .value(spec)
        .str("something_new")
        .value(Pack::map(1).int(1).value(Pack::array(1).nil(1)));
    let stats = with_stats(stats).stats.unwrap();
    assert_eq!((stats.running, stats.kv_usage), (2, 0.5));
    assert_eq!(stats.spec, Some(SpecStats { drafts: 31, draft_tokens: 91, accepted_tokens: 72 }));
}

#[test]
fn requests_whose_cache_is_being_fetched_are_those_not_yet_done() {
    let stages =
        Pack::map(3).str("waiting_to_start").int(1).str("in_progress").int(2).str("completed_waiting").int(4);
    let step = with_stats(Pack::map(1).str("num_kv_fetch_reqs_by_stage").value(stages));
    assert_eq!(step.stats.unwrap().fetching, 3);
}

#[test]
fn transfers_are_found_where_connectors_nest_them() {
    let nixl = Pack::map(3)
        .str("transfer_duration")
        .value(Pack::array(1).float(0.25))
        .str("bytes_transferred")
        .value(Pack::array(1).int(65536))
        .str("num_failed_transfers")
        .value(Pack::array(2).int(1).int(1));
    let found = TransferStats { durations: vec![0.25], bytes: vec![65536.0], failed: 2 };
    for stats in [nixl.clone(), Pack::map(1).str("NixlPullConnector").value(nixl)] {
        let step = with_stats(Pack::map(1).str("kv_connector_stats").value(stats));
        assert_eq!(step.stats.unwrap().transfers, Some(found.clone()));
    }
    let none = with_stats(Pack::map(1).str("kv_connector_stats").nil(1));
    assert_eq!(none.stats.unwrap().transfers, None);
}

/// A request of 0.10 with these sampling parameters.
fn with_sampling(sampling: Pack) -> crate::dialect::signal::EngineRequest {
    let body =
        Pack::array(14).str("a-1").value(Pack::array(0)).nil(1).value(sampling).nil(2).float(1.8e9).nil(3);
    request("0.10.2", &body.int(1).int(0).int(0).nil(1).0)
}

#[test]
fn defaults_are_filled_in_where_the_map_leaves_them_out() {
    let request = with_sampling(Pack::map(0));
    assert_eq!(request.client_index, Some(1));
    let sampling = request.sampling.unwrap();
    assert_eq!((sampling.max_tokens, sampling.temperature, sampling.top_p), (Some(16), 1.0, 1.0));
    let unlimited =
        with_sampling(Pack::map(2).str("max_tokens").nil(1).str("top_k").int(0)).sampling.unwrap();
    assert_eq!((unlimited.max_tokens, unlimited.top_k), (None, None));
    let given = with_sampling(Pack::map(2).str("top_k").int(5).str("output_kind").int(1)).sampling.unwrap();
    assert_eq!((given.top_k, given.delta), (Some(5), true));
}

#[test]
fn the_kv_transfer_of_a_request_is_among_its_extra_arguments() {
    let params = Pack::map(3)
        .str("do_remote_prefill")
        .put(&[0xc3])
        .str("remote_engine_id")
        .str("e-1")
        .str("remote_request_id")
        .str("cmpl-pd1-0-8ebf2189");
    let extra =
        Pack::map(1).str("extra_args").value(Pack::map(1).str("kv_transfer_params").value(params.clone()));
    let transfer = KvTransfer {
        do_remote_prefill: true,
        do_remote_decode: false,
        remote_engine_id: Some("e-1".to_owned()),
        remote_request_id: Some("cmpl-pd1-0-8ebf2189".to_owned()),
    };
    assert_eq!(with_sampling(extra).sampling.unwrap().kv_transfer, Some(transfer.clone()));
    let answer = step("0.32.0", &[&outputs(&Pack::default().nil(6).value(params).nil(9))]);
    assert_eq!(answer.outputs[0].kv_transfer, Some(transfer));
}

#[test]
fn a_request_without_sampling_parameters_is_pooling() {
    let body = Pack::array(14)
        .str("embd-1")
        .value(Pack::array(1).int(5))
        .nil(2)
        .value(Pack::array(2).nil(1).str("embed"));
    let body = body.nil(1).float(1.8e9).nil(3).int(0).int(0).int(0).nil(1).0;
    assert!(request("0.10.2", &body).pooling);
    let mut by_shape = Decoder::new(None, None, ALL);
    let (signal, _) = decode_by(&mut by_shape, &[&[0], &body], false);
    assert!(
        matches!(signal, Some(EngineSignal::Added { request, .. }) if request.pooling && request.sampling.is_none())
    );
}

proptest! {
    #[test]
    fn hostile_bodies_never_panic(
        body in proptest::collection::vec(any::<u8>(), 0..100),
        kind in 0..8_u8,
        cut in any::<bool>(),
    ) {
        for version in [Some("0.32.0"), None] {
            let mut decoder = Decoder::new(None, version, ALL);
            decode_by(&mut decoder, &[&[kind], &body], cut);
            decode_by(&mut decoder, &[&body, &body], cut);
        }
    }

    #[test]
    fn damaged_messages_never_panic(
        at in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        add in any::<bool>(),
        cut in any::<bool>(),
    ) {
        let mut body = hex(if add { ADD } else { STEP });
        let len = body.len();
        for (place, byte) in at {
            body[place % len] = byte;
        }
        for version in [Some("0.32.0"), None] {
            let mut decoder = Decoder::new(None, version, ALL);
            let frames: &[&[u8]] = if add { &[&[0], &body] } else { &[&body] };
            decode_by(&mut decoder, frames, cut);
        }
    }
}
