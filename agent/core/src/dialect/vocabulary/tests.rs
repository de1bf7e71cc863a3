use super::*;

/// Texts of all ids, as `tokenizers` 0.22 decodes each after another token.
fn texts(json: &str) -> Vec<String> {
    let vocabulary = Vocabulary::read(json.as_bytes()).unwrap();
    let ids = 0..u32::try_from(vocabulary.len()).unwrap();
    ids.map(|id| vocabulary.text(id).unwrap().into_owned()).collect()
}

const BYTE_LEVEL: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":11,"content":"<|im_start|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},{"id":12,"content":"<|a b|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,"vocab":{"}":0,"Å":1,"ê":2,"ď":3,"Ĵ":4,"Ġthe":5,"âĤ":6,"¬":7,"Ċ":8,"ł":9,"Ń":10},"merges":[["Ġ","the"],"a b"]}}"#;

const LLAMA: &str = r#"{"added_tokens":[{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","byte_fallback":true,"vocab":{"<unk>":0,"<s>":1,"</s>":2,"<0x00>":3,"<0x0A>":4,"<0xE2>":5,"<0x82>":6,"<0xAC>":7,"▁the":8,"ing":9,"▁":10,"▁▁":11,"é":12,"x":13},"merges":[]}}"#;

#[test]
fn a_byte_level_vocabulary_is_read() {
    let wanted = [
        "}",
        "\u{fffd}",
        "\u{fffd}",
        "\u{f}",
        "\u{fffd}",
        " the",
        "\u{fffd}",
        "\u{fffd}",
        "\n",
        "\u{fffd}",
        "\u{fffd}",
        "<|im_start|>",
        "<|a b|>",
    ];
    assert_eq!(texts(BYTE_LEVEL), wanted);
}

#[test]
fn tokens_that_are_parts_of_a_character_make_it_together() {
    let vocabulary = Vocabulary::read(BYTE_LEVEL.as_bytes()).unwrap();
    let bytes = [vocabulary.bytes(6).unwrap(), vocabulary.bytes(7).unwrap()].concat();
    assert_eq!(std::str::from_utf8(&bytes), Ok("€"));
}

#[test]
fn a_vocabulary_with_byte_fallback_is_read() {
    let wanted = [
        "<unk>", "<s>", "</s>", "\0", "\n", "\u{fffd}", "\u{fffd}", "\u{fffd}", " the", "ing", " ", "  ",
        "é", "x",
    ];
    assert_eq!(texts(LLAMA), wanted);
}

#[test]
fn vocabularies_of_other_models_are_read() {
    let unigram = r#"{"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["▁the",-1.0],["ing",-2.0],["▁",-3.0]],"byte_fallback":false}}"#;
    assert_eq!(texts(unigram), ["<unk>", " the", "ing", " "]);
    let word_piece = r###"{"decoder":{"type":"WordPiece","prefix":"##","cleanup":false},"model":{"type":"WordPiece","vocab":{"[UNK]":0,"the":1,"##ing":2,"é":3}}}"###;
    assert_eq!(texts(word_piece), [" [UNK]", " the", "ing", " é"]);
    let suffixed = r#"{"decoder":{"type":"BPEDecoder","suffix":"</w>"},"model":{"type":"BPE","vocab":{"a":0,"b</w>":1,"ab</w>":2},"merges":[]}}"#;
    assert_eq!(texts(suffixed), ["a", "b ", "ab "]);
    let bare = r#"{"decoder":null,"model":{"type":"WordLevel","vocab":{"a":0}}}"#;
    assert_eq!(texts(bare), ["a"]);
}

#[test]
fn the_order_of_the_files_parts_does_not_matter() {
    let (front, back) = LLAMA.split_once(r#","model":"#).unwrap();
    let model = back.strip_suffix('}').unwrap();
    let turned = format!(r#"{{"model":{model},{}}}"#, front.strip_prefix('{').unwrap());
    assert_eq!(Vocabulary::read(turned.as_bytes()), Vocabulary::read(LLAMA.as_bytes()));
}

#[test]
fn a_hole_is_no_token() {
    let vocabulary = Vocabulary::read(br#"{"model":{"vocab":{"a":0,"":2,"d":5}}}"#).unwrap();
    let there: Vec<_> = (0..7).filter(|&id| vocabulary.bytes(id).is_some()).collect();
    assert_eq!(there, [0, 2, 5]);
    assert_eq!(vocabulary.text(2).as_deref(), Some(""));
    assert_eq!(vocabulary.bytes(u32::MAX), None);
}

#[test]
fn a_file_that_is_none_says_so() {
    assert_eq!(Vocabulary::read(b""), Err(VocabularyError::Cut));
    assert_eq!(Vocabulary::read(b"{\"model\":{\"vocab\":{\"a\":0"), Err(VocabularyError::Cut));
    assert_eq!(Vocabulary::read(b"{]"), Err(VocabularyError::Syntax));
    assert_eq!(Vocabulary::read(b"{}"), Err(VocabularyError::NoVocabulary));
    assert_eq!(Vocabulary::read(br#"{"model":{"vocab":7}}"#), Err(VocabularyError::NoVocabulary));
}

#[test]
fn memory_is_bounded() {
    let odd = br#"{"model":{"vocab":{"a":0,"b":4294967295,"c":2097152,"d":"x","e":[1],"f":-1}}}"#;
    let vocabulary = Vocabulary::read(odd).unwrap();
    assert_eq!((vocabulary.len(), vocabulary.is_empty()), (1, false));
    assert!(vocabulary.footprint() < 64, "{}", vocabulary.footprint());
}

proptest::proptest! {
    #[test]
    fn no_file_panics(at in 0_usize..600, byte: u8, keep in 0_usize..900) {
        for json in [BYTE_LEVEL, LLAMA] {
            let mut bytes = json.as_bytes().to_vec();
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(keep);
            if let Ok(vocabulary) = Vocabulary::read(&bytes) {
                for id in 0..20 { let _ = vocabulary.text(id); }
            }
        }
    }
}
