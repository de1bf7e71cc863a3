use proptest::prelude::*;

use super::super::event;
use super::*;

const TEXTS_AND_ALL: Collect = Collect { content: true, texts: true, limit: 64 };
const NO_TEXTS: Collect = Collect { content: false, texts: false, limit: 64 };

fn chat(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(
        r#"{{"id":"chatcmpl-1","model":"tiny","choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]}}"#
    )
}

fn texts<const N: usize>(events: &[String; N], collect: Collect) -> [Option<ChoiceDelta>; N] {
    let mut reader = Events::new(Endpoint::Chat);
    events.each_ref().map(|event| match reader.read(b"", event.as_bytes(), false, collect) {
        Said::Text(said) => Some(said),
        Said::Delta(_) => None,
    })
}

#[test]
fn an_event_like_the_one_before_is_not_parsed_again() {
    let said = texts(&[chat("a"), chat(" b\n\"c\""), chat("\u{e9}")], TEXTS_AND_ALL);
    let text = |text: &str| Some(ChoiceDelta { text: Some(text.to_owned()), ..ChoiceDelta::default() });
    assert_eq!(said, [None, text(" b\n\"c\""), text("\u{e9}")]);
}

#[test]
fn an_event_with_more_than_text_is_parsed() {
    let last = chat("b").replace("\"finish_reason\":null", "\"finish_reason\":\"stop\"");
    assert_eq!(texts(&[chat("a"), last], TEXTS_AND_ALL), [None, None]);
}

#[test]
fn an_event_with_an_empty_text_says_nothing_and_ends_no_pattern() {
    let said = texts(&[chat(""), chat("a"), chat(""), chat("b")], TEXTS_AND_ALL);
    assert_eq!(said.each_ref().map(Option::is_some), [false, false, true, true]);
    assert_eq!(said[2], Some(ChoiceDelta::default()));
}

#[test]
fn a_text_that_is_not_the_candidates_makes_no_pattern() {
    // Both texts read the same; only one of them is the answer.
    let event = |note: &str| chat("a").replacen('{', &format!(r#"{{"note":{{"text":"{note}"}},"#), 1);
    assert_eq!(texts(&[event("a"), event("b")], TEXTS_AND_ALL), [None, None]);
}

#[test]
fn where_no_text_is_collected_none_leaves_the_decoder() {
    let said = texts(&[chat("a"), chat("secret")], NO_TEXTS);
    assert_eq!(said[1].as_ref().and_then(|said| said.text.as_deref()), Some(""));
}

#[test]
fn events_that_are_never_alike_are_not_tried_for_ever() {
    let event = |number: usize| chat("a").replacen('{', &format!(r#"{{"sequence_number":{number},"#), 1);
    let mut reader = Events::new(Endpoint::Chat);
    for number in 0..100 {
        reader.read(b"", event(number).as_bytes(), false, TEXTS_AND_ALL);
    }
    assert!(reader.tries == 0 && reader.pattern.is_none());
}

/// Events of every shape that has text, with any text.
fn any_event() -> impl Strategy<Value = String> {
    let text = prop_oneof!["[a-c\"\\\\]{0,3}", any::<String>()];
    (0..8_usize, text).prop_map(|(shape, text)| {
        let text = serde_json::to_string(&text).unwrap();
        let choice = match shape {
            0 => format!(r#"{{"index":0,"delta":{{"content":{text}}}}}"#),
            1 => format!(r#"{{"index":1,"delta":{{"content":{text}}}}}"#),
            2 => format!(r#"{{"index":0,"text":{text},"finish_reason":null}}"#),
            3 => format!(r#"{{"index":0,"delta":{{"reasoning":{text},"reasoning_content":{text}}}}}"#),
            4 => format!(r#"{{"index":0,"delta":{{"reasoning_content":{text}}}}}"#),
            5 => format!(r#"{{"index":0,"text":{text},"finish_reason":"stop"}}"#),
            6 => format!(r#"{{"index":0,"delta":{{"reasoning":"why","content":{text}}}}}"#),
            _ => format!(r#"{{"index":0,"text":"x"}},{{"index":1,"text":{text}}}"#),
        };
        format!(r#"{{"id":"1","model":"m","choices":[{choice}]}}"#)
    })
}

proptest! {
    #[test]
    fn a_stream_says_what_its_events_say_one_by_one(
        events in prop::collection::vec(any_event(), 1..40),
        repeats in 1..4_usize,
        collected in any::<bool>(),
    ) {
        let collect = if collected { TEXTS_AND_ALL } else { NO_TEXTS };
        let mut reader = Events::new(Endpoint::Completions);
        let mut whole = ApiDelta::default();
        for data in events.iter().flat_map(|event| std::iter::repeat_n(event, repeats)) {
            let wanted = event(Endpoint::Completions, None, data.as_bytes(), false, collect);
            match reader.read(b"", data.as_bytes(), false, collect) {
                Said::Delta(delta) => whole = *delta,
                Said::Text(said) => whole.choices = vec![said],
            }
            prop_assert_eq!(&whole, &wanted);
        }
    }
}
