//! Outputs that came while a request was being taken back.

use super::*;

/// A streamed request that its client leaves after two outputs, of which it was sent the first or both.
fn left(sent: u64) -> Trace {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(true));
    step(&mut lifecycle, 120, vec![first_output("chatcmpl-x-0a0a0a0a", 1)]);
    delta(&mut lifecycle, 0, 122, streamed());
    step(&mut lifecycle, 130, vec![output("chatcmpl-x-0a0a0a0a", &[2])]);
    if sent > 1 {
        delta(&mut lifecycle, 0, 132, streamed());
    }
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(133), ids: vec!["chatcmpl-x-0a0a0a0a".into()] });
    end(&mut lifecycle, 0, 134, false);
    one(&mut lifecycle)
}

fn streamed() -> ApiDelta {
    let choice = ChoiceDelta { text: Some("a".into()), ..ChoiceDelta::default() };
    ApiDelta { id: Some("chatcmpl-x".into()), choices: vec![choice], ..ApiDelta::default() }
}

fn is_estimate(trace: &Trace) -> bool {
    match span(trace, "llm_request").attribute(attr::ESTIMATED) {
        Some(Value::Strs(keys)) => keys.iter().any(|key| key == attr::USAGE_COMPLETION_TOKENS),
        Some(_) | None => false,
    }
}

#[test]
fn tokens_that_the_client_of_an_aborted_request_was_not_sent_may_not_have_been_counted() {
    let (unsent, sent) = (left(1), left(2));
    let tokens = |trace: &Trace| int(span(trace, "llm_request"), attr::USAGE_COMPLETION_TOKENS);
    assert_eq!((tokens(&unsent), is_estimate(&unsent)), (2, true));
    assert_eq!((tokens(&sent), is_estimate(&sent)), (2, false));
}

/// As above, but what it is sent at last answers two outputs, of which the second may have come meanwhile.
#[test]
fn of_several_outputs_that_one_write_answered_the_last_may_not_have_been_counted() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(true));
    step(&mut lifecycle, 120, vec![first_output("chatcmpl-x-0a0a0a0a", 1)]);
    step(&mut lifecycle, 130, vec![output("chatcmpl-x-0a0a0a0a", &[2])]);
    delta(&mut lifecycle, 0, 131, streamed());
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(133), ids: vec!["chatcmpl-x-0a0a0a0a".into()] });
    end(&mut lifecycle, 0, 134, false);
    assert!(is_estimate(&one(&mut lifecycle)));
}
