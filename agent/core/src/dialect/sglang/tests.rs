use proptest::prelude::*;

use super::*;
use crate::dialect::signal::sglang::is_health_check;

// Messages of every version are held against what they were made of in `tests/tests/sglang_messages.rs`.

fn decode(body: &[u8], way: Way, options: Options) -> (Vec<SglangSignal>, u64) {
    let (mut signals, mut losses) = (Vec::new(), Losses::default());
    let mut decoder = Decoder::new(None, None, options);
    decoder.decode(&[body], false, MonoTime(5), way, &mut losses, &mut signals);
    (signals, losses.get(Loss::UnknownMessage))
}

/// A pickle of protocol 2 of `sglang.srt.managers.io_struct.NAME`, its fields as they are written.
fn pickled(name: &str, fields: &[u8]) -> Vec<u8> {
    let class = format!("csglang.srt.managers.io_struct\n{name}\n");
    [b"\x80\x02", class.as_bytes(), b")\x81}(", fields, b"ub."].concat()
}

/// `BatchTokenIDOut(rids=["a", "b"], finished_reason=[None, FINISH_ABORT(..)])` of 0.3.6.
const ENDED: &[u8] = b"U\x04rids](U\x01aU\x01beU\x0ffinished_reason](Ncsglang.srt.managers.schedule_batch\n\
    FINISH_ABORT\n)\x81}(U\x07messageU\x06secretU\x0bstatus_codechttp\nHTTPStatus\nM\xf7\x01\x85Rube";

#[test]
fn reasons_that_are_objects_are_told_by_their_classes() {
    for content in [false, true] {
        let (signals, unknown) =
            decode(&pickled("BatchTokenIDOut", ENDED), Way::FromScheduler, Options { content });
        let Some(SglangSignal::Outputs { outputs, hop: Hop::Scheduler, .. }) = signals.first() else {
            panic!("{signals:?}");
        };
        assert_eq!((unknown, outputs[0].finish.clone()), (0, None));
        let finish = outputs[1].finish.clone().unwrap();
        assert_eq!((finish.kind.as_str(), finish.status), ("abort", Some(503)));
        assert_eq!(finish.message.as_deref(), content.then_some("secret"));
    }
}

#[test]
fn a_column_of_another_length_belongs_to_nobody() {
    let fields = b"U\x04rids](U\x01aU\x01beU\x11completion_tokens](K\x05eU\x0dprompt_tokens](K\x07K\x08e";
    let (signals, _) = decode(&pickled("BatchStrOutput", fields), Way::ToFrontend, Options::default());
    let [SglangSignal::Outputs { outputs, hop: Hop::Frontend, .. }] = signals.as_slice() else {
        panic!("{signals:?}");
    };
    assert_eq!((outputs[0].completion_tokens, outputs[0].prompt_tokens), (None, Some(7)));
}

#[test]
fn a_message_inside_another_one_is_found() {
    // `MultiTokenizerWrapper(worker_id=1, obj=AbortReq(rid="x"))` of 0.5.2 and 0.5.3.
    let inner = b"csglang.srt.managers.io_struct\nAbortReq\n)\x81}U\x03ridU\x01xsb";
    let fields = [&b"U\x09worker_idK\x01U\x03obj"[..], inner].concat();
    let (signals, _) =
        decode(&pickled("MultiTokenizerWrapper", &fields), Way::FromFrontend, Options::default());
    let aborted = SglangSignal::Aborted { at: MonoTime(5), rid: Some("x".to_owned()), finish: None };
    assert_eq!(signals, [aborted]);
}

#[test]
fn what_goes_the_other_way_is_left_to_the_other_end() {
    let outputs = pickled("BatchTokenIDOut", ENDED);
    assert_eq!(decode(&outputs, Way::FromFrontend, Options::default()), (vec![], 0));
    let request = pickled("TokenizedGenerateReqInput", b"U\x03ridU\x01x");
    assert_eq!(decode(&request, Way::FromScheduler, Options::default()), (vec![], 0));
    assert_eq!(decode(&request, Way::FromFrontend, Options::default()).0.len(), 1);
}

#[test]
fn messages_that_should_say_something_and_do_not_are_counted() {
    for body in [
        pickled("TokenizedGenerateReqInput", b"U\x06streamN"),
        pickled("BatchStrOutput", b"U\x05loveN"),
        b"\x80\x04\xff".to_vec(),
        b"\x80\x04csglang\nAbortReq\n)\x81}U\x03ridU\x01xsb\xff".to_vec(),
    ] {
        for way in [Way::FromFrontend, Way::ToFrontend] {
            let (_, unknown) = decode(&body, way, Options::default());
            let wrong_way = body.starts_with(b"\x80\x02");
            assert!(unknown == 1 || wrong_way, "{}", String::from_utf8_lossy(&body));
        }
    }
    let request = pickled("TokenizedGenerateReqInput", b"U\x06streamN");
    assert_eq!(decode(&request, Way::FromFrontend, Options::default()), (vec![], 1));
}

#[test]
fn messages_about_other_things_are_no_loss() {
    for body in [
        &pickled("FlushCacheReqInput", b"U\x03ridN")[..],
        b"\x80\x04N.",
        b"\x80\x04K\x05.",
        b"\x92\xa6RpcReq\xc0",
        b"\x91\xc0",
        b"",
        b"\xff\x00",
    ] {
        for way in [Way::FromFrontend, Way::ToFrontend, Way::FromScheduler] {
            let seen = decode(body, way, Options::default());
            assert_eq!(seen, (vec![], 0), "{}", String::from_utf8_lossy(body));
        }
    }
}

#[test]
fn the_servers_own_requests_are_known_by_their_ids() {
    assert!(is_health_check("HEALTH_CHECK_1796052708.1"));
    assert!(!is_health_check("829bb694cbb14f0c8d3d5ad1b1bb0f5b"));
}

proptest! {
    #[test]
    fn any_message_gives_signals_or_nothing(
        mut body in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..KINDS.len(),
        packed in any::<bool>(),
        cut in any::<bool>(),
    ) {
        let name = KINDS[kind].0;
        let head = if packed {
            let len = 0xa0 | u8::try_from(name.len()).unwrap();
            [b"\xdc\x00\x20", &[len][..], name.as_bytes()].concat()
        } else {
            pickled(name, b"")
        };
        let len = head.len() - usize::from(!packed) * 3;
        body.splice(0..0, head[..len].iter().copied());
        let mut decoder = Decoder::new(None, Some("0.5.23"), Options::default());
        for way in [Way::FromFrontend, Way::ToFrontend, Way::FromScheduler] {
            let (mut signals, mut losses) = (Vec::new(), Losses::default());
            decoder.decode(&[&body], cut, MonoTime(1), way, &mut losses, &mut signals);
            for signal in signals {
                if let SglangSignal::Outputs { outputs, .. } = signal {
                    prop_assert!(outputs.len() <= body.len());
                }
            }
        }
    }
}
