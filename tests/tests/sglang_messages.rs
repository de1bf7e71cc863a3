//! Messages made with the classes of 26 versions of SGLang, held against what was put into them.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its messages has failed")]

use enginetap_core::dialect::schema::sglang::for_version;
use enginetap_core::dialect::sglang::Options;
use enginetap_core::dialect::signal::sglang::{Hop, LoadSource, SglangOutput, SglangRequest, SglangSignal};
use enginetap_tests::sglang::{AT, Message, versions};
use serde_json::Value;

const PLAIN: Options = Options { content: false };

fn messages() -> impl Iterator<Item = Message> {
    versions().unwrap().into_iter().flat_map(|version| version.messages)
}

/// The signals of a whole message.
fn signals(message: &Message) -> Vec<SglangSignal> {
    let (signals, unknown) = message.decode(usize::MAX, PLAIN);
    assert_eq!(unknown, 0, "{} {} {}", message.version, message.form, message.class);
    signals
}

fn about(message: &Message) -> String {
    format!("{} {} {}", message.version, message.form, message.class)
}

#[test]
fn every_version_and_both_forms_are_there() {
    let versions = versions().unwrap();
    assert!(versions.len() >= 26, "{} versions", versions.len());
    for version in versions {
        let forms = |form: &str| version.messages.iter().filter(|message| message.form == form).count();
        assert!(forms("pickle") >= 6, "{}", version.version);
        // From 0.5.15 on messages can be msgpack too.
        let packed = forms("msgpack");
        assert!(packed == 0 || packed == forms("pickle"), "{}", version.version);
        assert_eq!(packed > 0, !version.fields.is_empty(), "{}", version.version);
    }
}

#[test]
fn requests_are_what_they_were_made_of() {
    let mut count = 0;
    for message in messages().filter(|message| message.class.starts_with("Tokenized")) {
        let request = match signals(&message).as_slice() {
            [SglangSignal::Dispatched { at: AT, requests }] => requests[0].clone(),
            other => panic!("{other:?} of {}", about(&message)),
        };
        check_request(&message, &request);
        count += 1;
    }
    assert!(count >= 70, "{count} requests");
}

fn check_request(message: &Message, request: &SglangRequest) {
    let (says, about) = (&message.says, about(message));
    assert_eq!(Some(request.rid.as_str()), says["rid"].as_str(), "{about}");
    assert_eq!(request.prompt_tokens, Some(300), "{about}");
    assert_eq!(request.embedding, message.class == "TokenizedEmbeddingReqInput", "{about}");
    assert_eq!(request.stream, says["stream"].as_bool().unwrap_or(false), "{about}");
    assert_eq!(request.logprobs, says["return_logprob"].as_bool().unwrap_or(false), "{about}");
    assert_eq!(request.priority, says["priority"].as_i64(), "{about}");
    assert_eq!(request.bootstrap_room, says["bootstrap_room"].as_u64(), "{about}");
    let lora = ["lora_path", "lora_id", "lora_name"].iter().find_map(|key| says[key].as_str());
    assert_eq!(request.lora.as_deref(), lora, "{about}");
    let rank = says["data_parallel_rank"].as_u64().or(says["routed_dp_rank"].as_u64());
    assert_eq!(request.dp_rank.map(u64::from), rank, "{about}");
    assert!(!request.cut, "{about}");
    assert_eq!(request.sampling.is_some(), !request.embedding, "{about}");
    if let Some(sampling) = &request.sampling {
        assert_eq!((sampling.max_new_tokens, sampling.n), (Some(33), Some(2)), "{about}");
        assert_eq!((sampling.temperature, sampling.top_p), (Some(0.5), Some(0.75)), "{about}");
        assert_eq!((sampling.top_k, sampling.stop), (Some(40), true), "{about}");
    }
}

#[test]
fn batches_give_every_request() {
    let mut count = 0;
    for message in messages().filter(|message| message.class.starts_with("BatchTokenized")) {
        let rids: Vec<String> = match signals(&message).as_slice() {
            [SglangSignal::Dispatched { at: AT, requests }] => {
                requests.iter().map(|request| request.rid.clone()).collect()
            }
            other => panic!("{other:?} of {}", about(&message)),
        };
        assert_eq!(rids, ["r2", "r3"], "{}", about(&message));
        count += 1;
    }
    assert!(count >= 20, "{count} batches");
}

#[test]
fn outputs_are_what_they_were_made_of() {
    let mut count = 0;
    for message in messages().filter(is_output) {
        let all = signals(&message);
        let Some(SglangSignal::Outputs { at: AT, hop, outputs, cut: false }) = all.first() else {
            panic!("{all:?} of {}", about(&message));
        };
        let from_scheduler = message.class.starts_with("BatchTokenID");
        assert_eq!(*hop, if from_scheduler { Hop::Scheduler } else { Hop::Frontend });
        assert_eq!(outputs.len(), 2, "{}", about(&message));
        for (at, output) in outputs.iter().enumerate() {
            check_output(&message, output, at);
        }
        count += 1;
    }
    assert!(count >= 100, "{count} outputs");
}

fn is_output(message: &Message) -> bool {
    message.class.starts_with("Batch") && !message.class.starts_with("BatchTokenized")
}

fn check_output(message: &Message, output: &SglangOutput, at: usize) {
    let (says, about) = (&message.says, about(message));
    let count = |key: &str| says[key][at].as_u64();
    assert_eq!(Some(output.rid.as_str()), says["rids"][at].as_str(), "{about}");
    assert_eq!(output.prompt_tokens, count("prompt_tokens"), "{about}");
    assert_eq!(output.completion_tokens, count("completion_tokens"), "{about}");
    assert_eq!(output.cached_tokens, count("cached_tokens"), "{about}");
    assert_eq!(output.reasoning_tokens, count("reasoning_tokens"), "{about}");
    assert_eq!(output.retractions, count("retraction_counts"), "{about}");
    assert_eq!(output.spec_verify_steps, count("spec_verify_ct"), "{about}");
    let accepted = count("spec_num_correct_drafts").or(count("spec_accepted_tokens"));
    assert_eq!(output.spec_accepted, accepted, "{about}");
    assert_eq!(output.dp_rank.map(u64::from), count("dp_ranks"), "{about}");
    assert_eq!(output.embedding, message.class.starts_with("BatchEmbedding"), "{about}");
    let reason = [&says["finished_reasons"][at], &says["finished_reason"][at]];
    let kind = reason.iter().find_map(|reason| reason["type"].as_str());
    assert_eq!(output.finish.as_ref().map(|finish| finish.kind.as_str()), kind, "{about}");
    check_times(says, output, at, &about);
}

fn check_times(says: &Value, output: &SglangOutput, at: usize, about: &str) {
    let number = |key: &str| says[key][at].as_f64();
    let times = output.times.unwrap_or_default();
    if let Some(queued) = number("wait_queue_entry_time") {
        assert_eq!(times.queued.map(|it| it.0), Some(queued), "{about}");
        assert_eq!(times.forward.map(|it| it.0), Some(queued + 0.25), "{about}");
        assert_eq!(times.prefill_finished.map(|it| it.0), Some(queued + 0.5), "{about}");
        assert!(times.epoch_offset.is_some(), "{about}");
        return;
    }
    assert_eq!(times.queue.map(|it| it.0), number("queue_time"), "{about}");
    assert_eq!(times.forward.map(|it| it.0), number("forward_entry_time"), "{about}");
    assert_eq!(times.prefill_finished_epoch.map(|it| it.0), number("prefill_finished_ts"), "{about}");
}

#[test]
fn versions_that_send_the_schedulers_state_give_it_once() {
    let mut count = 0;
    for message in messages().filter(is_output) {
        let loads: Vec<_> = signals(&message)
            .into_iter()
            .filter_map(|signal| if let SglangSignal::Load { load, .. } = signal { Some(load) } else { None })
            .collect();
        // 0.5.7 to 0.5.13: what the scheduler sends has it, and what the detokenizer passes on once more.
        let [load] = loads.as_slice() else {
            assert_eq!(loads, [], "{}", about(&message));
            continue;
        };
        assert_eq!((load.source, load.dp_rank), (LoadSource::Message, Some(1)));
        assert_eq!((load.running, load.queued), (Some(3), Some(2)), "{}", about(&message));
        count += 1;
    }
    assert_eq!(count, 7, "0.5.7 to 0.5.13");
}

#[test]
fn aborts_name_whom_they_take_back() {
    for message in messages().filter(|message| message.class == "AbortReq") {
        let all = signals(&message);
        let [SglangSignal::Aborted { at: AT, rid, finish }] = all.as_slice() else {
            panic!("{all:?} of {}", about(&message));
        };
        let meant = message.says["rid"].as_str().filter(|rid| !rid.is_empty());
        assert_eq!(rid.as_deref(), meant, "{}", about(&message));
        if let Some(finish) = finish {
            assert_eq!((finish.kind.as_str(), finish.status), ("abort", Some(503)), "{}", about(&message));
            assert_eq!(finish.message, None);
        }
    }
}

#[test]
fn both_forms_of_a_message_mean_the_same() {
    let mut count = 0;
    for version in versions().unwrap() {
        let of = |form: &str| version.messages.iter().filter(move |it| it.form == form).collect::<Vec<_>>();
        for (packed, pickled) in of("msgpack").into_iter().zip(of("pickle")) {
            // The two were made one after the other: the offset of the clocks differs.
            assert_eq!(timeless(signals(packed)), timeless(signals(pickled)), "{}", about(packed));
            count += 1;
        }
    }
    assert!(count >= 70, "{count} messages in both forms");
}

fn timeless(mut signals: Vec<SglangSignal>) -> Vec<SglangSignal> {
    for signal in &mut signals {
        if let SglangSignal::Outputs { outputs, .. } = signal {
            outputs.iter_mut().filter_map(|it| it.times.as_mut()).for_each(|it| it.epoch_offset = None);
        }
    }
    signals
}

#[test]
fn the_table_of_versions_has_every_field_in_its_place() {
    for version in versions().unwrap() {
        let table = for_version(&version.version).classes;
        for (class, fields) in version.fields {
            let known = table.iter().find(|(name, _)| *name == class);
            assert_eq!(known, Some(&(class, fields)), "{}", version.version);
        }
    }
}

#[test]
fn nothing_that_a_client_wrote_leaves_the_decoder() {
    for message in messages() {
        let said = format!("{:?}", signals(&message));
        assert!(!said.contains("words") && !said.contains("more of them"), "{}: {said}", about(&message));
    }
}

#[test]
fn words_on_an_abnormal_end_are_kept_where_content_is_collected() {
    let with_reason = |message: &Message| {
        let (signals, _) = message.decode(usize::MAX, Options { content: true });
        signals.iter().any(|signal| {
            matches!(signal, SglangSignal::Aborted { finish: Some(finish), .. } if finish.message.is_some())
        })
    };
    assert!(messages().filter(with_reason).count() >= 20);
}

#[test]
fn a_message_that_is_cut_says_nothing_else_than_the_whole_one() {
    for version in versions().unwrap() {
        // A few versions stand for the rest.
        if !["0.3.6", "0.5.1", "0.5.6", "0.5.10", "0.5.23"].contains(&version.version.as_str()) {
            continue;
        }
        for message in version.messages {
            let whole = signals(&message);
            for len in (0..message.bytes.len()).step_by(3) {
                let (cut, _) = message.decode(len, PLAIN);
                check_cut(&whole, &cut, &format!("{} at {len}", about(&message)));
            }
        }
    }
}

fn check_cut(whole: &[SglangSignal], cut: &[SglangSignal], about: &str) {
    for (whole, cut) in whole.iter().zip(cut) {
        match (whole, cut) {
            (
                SglangSignal::Outputs { outputs: whole, .. },
                SglangSignal::Outputs { outputs, cut: true, .. },
            ) => {
                for (whole, cut) in whole.iter().zip(outputs) {
                    assert_eq!(whole.rid, cut.rid, "{about}");
                    assert!(
                        cut.prompt_tokens.is_none() || cut.prompt_tokens == whole.prompt_tokens,
                        "{about}"
                    );
                    let (known, meant) = (cut.completion_tokens, whole.completion_tokens);
                    assert!(known.is_none() || known == meant, "{about}: {known:?}");
                    let (known, meant) = (cut.cached_tokens, whole.cached_tokens);
                    assert!(known.is_none() || known == meant, "{about}: {known:?}");
                }
            }
            (SglangSignal::Dispatched { requests: whole, .. }, SglangSignal::Dispatched { requests, .. }) => {
                assert!(requests.last().is_some_and(|request| request.cut), "{about}");
                for (whole, cut) in whole.iter().zip(requests) {
                    assert_eq!(whole.rid, cut.rid, "{about}");
                    assert!(cut.prompt_tokens <= whole.prompt_tokens, "{about}");
                }
            }
            (SglangSignal::Aborted { .. }, SglangSignal::Aborted { .. })
            | (SglangSignal::Load { .. }, SglangSignal::Load { .. }) => {}
            other => panic!("{about}: {other:?}"),
        }
    }
}
