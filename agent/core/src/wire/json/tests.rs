use super::*;

fn text(json: &str) -> String {
    Scanner::new(json.as_bytes()).take_text().unwrap().unwrap().decode().into_owned()
}

/// Walks everything, taking each value by the reader of its type.
fn walk(scanner: &mut Scanner<'_>, seen: &mut Vec<String>) -> Walk {
    scanner.object(|s, key| {
        let key = key.decode().into_owned();
        match s.kind()? {
            Kind::Text => {
                let text = s.take_whole_text()?.map(|t| t.decode().into_owned());
                seen.push(format!("{key}={text:?}"));
            }
            Kind::Number => seen.push(format!("{key}={:?}", s.take_f64()?)),
            Kind::Bool => seen.push(format!("{key}={:?}", s.take_bool()?)),
            Kind::Array => {
                let mut n = 0;
                s.array(|s| {
                    n += 1;
                    s.skip()
                })?;
                seen.push(format!("{key}=[{n}]"));
            }
            Kind::Object | Kind::Null => {
                s.skip()?;
                seen.push(format!("{key}=?"));
            }
        }
        Ok(())
    })
}

const DOCUMENT: &str = r#" {"a": "x\n\u00e9\ud83d\ude00é", "b" :-1.5e3 , "c":[1,[2,"]"],{}], "d":{"x":{"y":"}\""}},
    "e":true, "f":null,"g":"","h":[], "i":12} "#;

#[test]
fn a_document_is_walked() {
    let mut seen = Vec::new();
    assert_eq!(walk(&mut Scanner::new(DOCUMENT.as_bytes()), &mut seen), Ok(()));
    let wanted = [
        "a=Some(\"x\\né😀é\")",
        "b=Some(-1500.0)",
        "c=[3]",
        "d=?",
        "e=Some(true)",
        "f=?",
        "g=Some(\"\")",
        "h=[0]",
        "i=Some(12.0)",
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn a_cut_document_gives_the_values_before_the_cut() {
    let mut whole = Vec::new();
    let _ = walk(&mut Scanner::new(DOCUMENT.as_bytes()), &mut whole);
    for end in 0..DOCUMENT.len() - 2 {
        let mut seen = Vec::new();
        let stopped = walk(&mut Scanner::new(&DOCUMENT.as_bytes()[..end]), &mut seen);
        assert_eq!(stopped, Err(Stop::Cut), "{end}");
        assert_eq!(seen[..], whole[..seen.len()], "{end}");
    }
}

#[test]
fn escapes_are_read_as_python_and_browsers_do() {
    assert_eq!(text(r#""\"\\\/\b\f\n\r\t""#), "\"\\/\u{8}\u{c}\n\r\t");
    assert_eq!(text(r#""\u0041\uD83D\uDE00\u20AC""#), "A😀€");
    assert_eq!(text(r#""\ud83dx\udc00\ud83d\u0041""#), "\u{fffd}x\u{fffd}\u{fffd}A");
    assert_eq!(text(r#""\x\u12g4\u""#), "\u{fffd}\u{fffd}12g4\u{fffd}");
    let bad = Scanner::new(b"\"a\xff\xe2\x82b\"").take_text().unwrap().unwrap().decode().into_owned();
    assert_eq!(bad, "a\u{fffd}\u{fffd}b");
}

#[test]
fn a_string_cut_anywhere_gives_a_prefix_of_its_text() {
    let json = r#""aé\\\n€\u20AC😀\ud83d\ude00\\""#;
    let whole = text(json);
    for end in 1..json.len() {
        let cut = Scanner::new(&json.as_bytes()[..end]).take_text().unwrap().unwrap();
        let decoded = cut.decode();
        // Half of a pair is not known to be half until its other half is missing.
        let decoded = decoded.trim_end_matches('\u{fffd}');
        assert!(whole.starts_with(decoded), "{end}: {decoded:?}");
        assert!(!cut.whole());
    }
}

#[test]
fn a_prefix_is_counted_in_characters() {
    let json = r#""é\u20AC\ud83d\ude00z""#;
    let text = Scanner::new(json.as_bytes()).take_text().unwrap().unwrap();
    for (chars, wanted) in [(0, ""), (1, "é"), (2, "é€"), (3, "é€😀"), (4, "é€😀z"), (99, "é€😀z")]
    {
        assert_eq!(text.prefix(chars), wanted);
    }
    let plain = Scanner::new("\"ééé\"".as_bytes()).take_text().unwrap().unwrap();
    assert_eq!(plain.prefix(2), "éé");
}

#[test]
fn numbers_are_taken_as_the_server_takes_them() {
    let take = |json: &str| {
        let json = format!("{json},");
        let scan = || Scanner::new(json.as_bytes());
        (scan().take_f64().unwrap(), scan().take_i64().unwrap(), scan().take_u32().unwrap())
    };
    assert_eq!(take("12"), (Some(12.0), Some(12), Some(12)));
    assert_eq!(take("12.0"), (Some(12.0), Some(12), Some(12)));
    assert_eq!(take("\"12\""), (Some(12.0), Some(12), Some(12)));
    assert_eq!(take("12.5"), (Some(12.5), None, None));
    assert_eq!(take("-1"), (Some(-1.0), Some(-1), None));
    assert_eq!(take("4294967296"), (Some(4_294_967_296.0), Some(4_294_967_296), None));
    assert_eq!(take("99999999999999999999"), (Some(1e20), None, None));
    assert_eq!(take("1e999"), (None, None, None));
    assert_eq!(take("NaN"), (None, None, None));
    assert_eq!(take("[1]"), (None, None, None));
    assert_eq!(take("null"), (None, None, None));
}

#[test]
fn truth_is_what_says_anything() {
    for (json, truth) in [
        ("null", false),
        ("false", false),
        ("0", false),
        ("\"\"", false),
        ("[]", false),
        ("{ }", false),
        ("true", true),
        ("2", true),
        ("\"x\"", true),
        ("[ null]", true),
        ("{\"a\":1}", true),
    ] {
        let json = format!("[{json},7]");
        let mut after = None;
        let mut scanner = Scanner::new(json.as_bytes());
        let mut first = true;
        scanner
            .array(|s| {
                if std::mem::take(&mut first) {
                    assert_eq!(s.take_truth()?, truth, "{json}");
                } else {
                    after = s.take_u32()?;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(after, Some(7), "{json}");
    }
}

#[test]
fn depth_costs_no_stack() {
    let deep = "[".repeat(2_000_000);
    assert_eq!(Scanner::new(deep.as_bytes()).skip(), Err(Stop::Cut));
    let closed = format!("{{\"a\":{}{},\"b\":1}}", "[".repeat(500_000), "]".repeat(500_000));
    let mut seen = Vec::new();
    assert_eq!(walk(&mut Scanner::new(closed.as_bytes()), &mut seen), Ok(()));
    assert_eq!(seen, ["a=[1]", "b=Some(1.0)"]);
}

#[test]
fn a_raw_value_is_what_was_written() {
    assert_eq!(Scanner::new(b" {\"a\": [1, \"}\"]} x").take_raw(), b"{\"a\": [1, \"}\"]}");
    assert_eq!(Scanner::new(b"{\"a\": [1,").take_raw(), b"{\"a\": [1,");
    assert_eq!(Scanner::new(b"  ").take_raw(), b"");
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let mut seen = Vec::new();
        let _ = walk(&mut Scanner::new(&bytes), &mut seen);
        let _ = Scanner::new(&bytes).take_raw();
        let _ = Scanner::new(&bytes).take_truth();
    }

    #[test]
    fn near_json_never_panics(json in r#"[\[\]{}":,\\u0-9a-f tn.e-]{0,120}"#, chars in 0_usize..20) {
        let mut seen = Vec::new();
        let _ = walk(&mut Scanner::new(json.as_bytes()), &mut seen);
        if let Ok(Some(text)) = Scanner::new(json.as_bytes()).take_text() {
            let whole = text.decode();
            let prefix = text.prefix(chars);
            let starts = whole.starts_with(prefix.trim_end_matches(char::REPLACEMENT_CHARACTER));
            proptest::prop_assert!(starts);
            proptest::prop_assert!(prefix.chars().count() <= chars);
        }
    }

    #[test]
    fn what_serde_writes_is_read_back(text in "\\PC*|[\\x00-\\x7f]*", number in proptest::prelude::any::<f64>()) {
        let json = serde_json::json!({ "t": text, "n": number }).to_string();
        let mut read = (None, None);
        Scanner::new(json.as_bytes()).object(|s, key| {
            match key.raw() {
                b"t" => read.0 = s.take_whole_text()?.map(|t| t.decode().into_owned()),
                _ => read.1 = s.take_f64()?,
            }
            Ok(())
        }).unwrap();
        proptest::prop_assert_eq!(read.0.as_deref(), Some(text.as_str()));
        proptest::prop_assert_eq!(read.1, Some(number).filter(|n| n.is_finite()));
    }
}
