//! Where content goes.

use super::*;
use crate::settings::Strategy;

#[test]
fn with_the_strategy_event_content_leaves_the_span_and_goes_into_a_log_event_of_it() {
    let settings = Settings { content_strategy: Strategy::Event, ..Settings::default() };
    let mut lifecycle = lifecycle(settings);
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    run(&mut lifecycle, "chatcmpl-x-0a0a0a0a");
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 146, true);
    let trace = one(&mut lifecycle);
    let entry = &trace.spans[0];
    assert_eq!(entry.attribute(attr::INPUT_MESSAGES), None);
    assert_eq!(entry.attribute(attr::OUTPUT_MESSAGES), None);
    let [event] = trace.logs.as_slice() else { panic!("{:?}", trace.logs) };
    assert_eq!(event.event, Some("gen_ai.client.inference.operation.details"));
    assert_eq!(event.context.map(|context| (context.trace, context.span)), Some((entry.trace, entry.id)));
    let keys: Vec<&str> = event.attributes.iter().map(|a| a.key.as_ref()).collect();
    assert!(keys.contains(&attr::INPUT_MESSAGES) && keys.contains(&attr::OUTPUT_MESSAGES), "{keys:?}");
    assert!(keys.contains(&attr::USAGE_OUTPUT_TOKENS) && keys.contains(&attr::RESPONSE_ID), "{keys:?}");
}

#[test]
fn without_content_the_strategy_event_makes_no_event() {
    let settings = Settings { content: false, content_strategy: Strategy::Event, ..Settings::default() };
    let mut lifecycle = lifecycle(settings);
    let asked = ApiRequest { content: None, ..ask(false) };
    request(&mut lifecycle, 0, asked);
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    run(&mut lifecycle, "chatcmpl-x-0a0a0a0a");
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 146, true);
    let trace = one(&mut lifecycle);
    assert!(trace.logs.is_empty(), "{:?}", trace.logs);
}
