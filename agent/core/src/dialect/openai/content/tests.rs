use super::*;

fn input(json: &str, limit: usize) -> (u32, Option<String>) {
    let (mut conversation, mut prompts) = (Conversation::new(limit), 0);
    let mut scanner = Scanner::new(json.as_bytes());
    let _ = conversation.take_input(&mut scanner, "user", Objects::Messages, &mut prompts);
    (prompts, conversation.finish())
}

fn written(json: &str) -> String {
    input(json, 100_000).1.unwrap()
}

#[test]
fn a_prompt_is_a_users_message() {
    assert_eq!(
        input(r#""say \"hi\"""#, 8192),
        (1, Some(r#"[{"role":"user","parts":[{"type":"text","content":"say \"hi\""}]}]"#.to_owned()))
    );
}

#[test]
fn prompts_are_counted_in_every_form() {
    for (json, prompts) in [
        (r#""a""#, 1),
        (r#"["a","b","c"]"#, 3),
        ("[1,2,3]", 1),
        ("[[1,2],[3]]", 2),
        (r#"[{"role":"user","content":"a"},{"role":"user","content":"b"}]"#, 1),
        (r#"[[{"role":"user","content":"a"}],[{"role":"user","content":"b"}]]"#, 2),
        ("[]", 0),
        ("null", 0),
        ("7", 0),
        (r#"{"content":[{"type":"text","text":"a"}]}"#, 1),
    ] {
        assert_eq!(input(json, 8192).0, prompts, "{json}");
    }
}

#[test]
fn token_ids_stay_token_ids() {
    assert_eq!(
        written("[[100,137],[4294967295]]"),
        concat!(
            r#"[{"role":"user","parts":[{"type":"token_ids","content":[100,137]}]},"#,
            r#"{"role":"user","parts":[{"type":"token_ids","content":[4294967295]}]}]"#
        )
    );
}

#[test]
fn a_chat_with_tools_and_pictures_is_written_by_the_conventions() {
    let json = r#"[
        {"content":"be short","role":"system"},
        {"role":"user","content":[{"type":"text","text":"what is this?"},
            {"type":"image_url","image_url":{"url":"https://a/b.png"}},
            {"image_url":{"url":"data:image/png;base64,AAAA"},"type":"image_url"}]},
        {"role":"assistant","content":null,"reasoning_content":"hm",
            "tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
        {"role":"tool","tool_call_id":"call_1","content":"42"}]"#;
    let wanted = serde_json::json!([
        {"role":"system","parts":[{"type":"text","content":"be short"}]},
        {"role":"user","parts":[{"type":"text","content":"what is this?"},
            {"type":"uri","modality":"image","uri":"https://a/b.png"},{"type":"blob","modality":"image"}]},
        {"role":"assistant","parts":[{"type":"reasoning","content":"hm"},
            {"type":"tool_call","id":"call_1","name":"f","arguments":"{\"x\":1}"}]},
        {"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":"42"}]}]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written(json)).unwrap(), wanted);
}

#[test]
fn anthropic_blocks_and_responses_items_are_written_the_same() {
    let json = r#"[
        {"role":"assistant","content":[{"type":"thinking","thinking":"so"},
            {"type":"tool_use","id":"t1","name":"f","input":{"x":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"4"}]}]},
        {"type":"function_call","call_id":"c1","id":"fc1","name":"g","arguments":"{}"},
        {"type":"function_call_output","call_id":"c1","output":"ok"},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]"#;
    let wanted = serde_json::json!([
        {"role":"assistant","parts":[{"type":"reasoning","content":"so"},
            {"type":"tool_call","id":"t1","name":"f","arguments":"{\"x\":1}"}]},
        {"role":"user","parts":[{"type":"tool_call_response","id":"t1",
            "response":"[{\"type\":\"text\",\"text\":\"4\"}]"}]},
        {"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"g","arguments":"{}"}]},
        {"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":"ok"}]},
        {"role":"user","parts":[{"type":"text","content":"hi"}]}]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written(json)).unwrap(), wanted);
}

#[test]
fn a_system_prompt_goes_to_the_front() {
    let mut conversation = Conversation::new(8192);
    let user =
        |c: &mut Conversation| c.take_input(&mut Scanner::new(b"\"u\""), "user", Objects::Messages, &mut 0);
    user(&mut conversation).unwrap();
    conversation.take_system(&mut Scanner::new(br#"[{"type":"text","text":"s"}]"#)).unwrap();
    let json = conversation.finish().unwrap();
    assert!(
        json.starts_with(r#"[{"role":"system","parts":[{"type":"text","content":"s"}]},{"role":"user""#),
        "{json}"
    );
}

#[test]
fn what_is_cut_by_a_gap_is_written_as_far_as_it_goes() {
    let (prompts, json) =
        input(r#"[{"role":"user","content":"first"},{"role":"assistant","content":"sec"#, 8192);
    assert_eq!(prompts, 1);
    let wanted = concat!(
        r#"[{"role":"user","parts":[{"type":"text","content":"first"}]},"#,
        r#"{"role":"assistant","parts":[{"type":"text","content":"sec"}]}]"#
    );
    assert_eq!(json.as_deref(), Some(wanted));
}

#[test]
fn nothing_is_collected_at_a_limit_of_nothing() {
    assert_eq!(input(r#"["a",[1],{"role":"user","content":"x"}]"#, 0), (3, None));
}

proptest::proptest! {
    #[test]
    fn any_limit_and_any_cut_give_json_within_the_limit(limit in 0_usize..700, keep in 0.0_f64..1.0) {
        let json = r#"[{"role":"user","content":"line\nline \"x\" é😀 \ud83d\ude00 end"},[1,22,333,4294967295],"plain",
            {"role":"assistant","content":[{"type":"text","text":"abc"}],
             "tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{\"x\":1}"}}]},
            {"role":"tool","tool_call_id":"call_1","content":"\u0001\u0002"},
            {"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/b"}}]}]"#;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
            reason = "a place in a short text")]
        let cut = (json.len() as f64 * keep) as usize;
        let mut conversation = Conversation::new(limit);
        let bytes = &json.as_bytes()[..cut];
        let _ = conversation.take_input(&mut Scanner::new(bytes), "user", Objects::Messages, &mut 0);
        if let Some(written) = conversation.finish() {
            proptest::prop_assert!(written.chars().count() <= limit, "{} {}", limit, written);
            proptest::prop_assert!(serde_json::from_str::<serde_json::Value>(&written).is_ok());
        }
    }
}
