use proptest::prelude::*;

use super::*;

/// Values as real writers encode them, and the tokens meant: see `tests/oracle/msgpack_tokens.py`.
const ORACLE: &str = include_str!("oracle.txt");

fn unhex(text: &str) -> Vec<u8> {
    let pair = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap();
    (0..text.len() / 2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show(token: Token<'_>) -> String {
    match token {
        Token::Nil => "nil".to_owned(),
        Token::Bool(value) => value.to_string(),
        Token::Int(value) => format!("int:{value}"),
        Token::Big(value) => format!("int:{value}"),
        Token::Float(value) => format!("float:{}", hex(&value.to_be_bytes())),
        Token::Str(text) => format!("str:{}", hex(text)),
        Token::Bin(bytes) => format!("bin:{}", hex(bytes)),
        Token::Ext(kind, bytes) => format!("ext:{kind}:{}", hex(bytes)),
        Token::Array(len) => format!("array:{len}"),
        Token::Map(len) => format!("map:{len}"),
    }
}

/// All tokens, and why there are no more.
fn tokens(bytes: &[u8]) -> (Vec<String>, Error) {
    let mut reader = Reader::new(bytes);
    let mut seen = Vec::new();
    loop {
        match reader.token() {
            Ok(token) => seen.push(show(token)),
            Err(error) => return (seen, error),
        }
    }
}

fn oracle() -> impl Iterator<Item = (Vec<u8>, Vec<&'static str>)> {
    ORACLE.lines().map(|line| {
        let (bytes, tokens) = line.split_once('\t').unwrap();
        (unhex(bytes), tokens.split(' ').collect())
    })
}

#[test]
fn tokens_are_those_that_real_writers_meant() {
    let mut count = 0;
    for (bytes, meant) in oracle() {
        let (seen, end) = tokens(&bytes);
        assert_eq!(
            (seen, end),
            (meant.into_iter().map(String::from).collect(), Error::End),
            "{}",
            hex(&bytes)
        );
        count += 1;
    }
    assert!(count > 80, "{count} values");
}

#[test]
fn a_cut_value_gives_the_tokens_before_the_cut() {
    for (bytes, meant) in oracle() {
        for cut in 0..bytes.len() {
            let (seen, end) = tokens(&bytes[..cut]);
            assert!(end == Error::End && seen.iter().zip(&meant).all(|(seen, meant)| seen == meant));
            assert!(seen.len() < meant.len());
        }
    }
}

#[test]
fn skipping_goes_to_the_end_of_the_value() {
    for (mut bytes, _) in oracle() {
        bytes.push(0x2a);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.raw().map(<[u8]>::len), Ok(bytes.len() - 1));
        assert_eq!(reader.token(), Ok(Token::Int(42)));
        assert!(reader.is_empty());
    }
}

#[test]
fn nesting_without_end_neither_recurses_nor_hangs() {
    let bytes = vec![0x91; 100_000];
    assert_eq!(Reader::new(&bytes).skip(), Err(Error::End));
    // Four billion pairs promised.
    assert_eq!(Reader::new(&[0xdf, 0xff, 0xff, 0xff, 0xff]).skip(), Err(Error::End));
}

#[test]
fn the_one_byte_that_means_nothing_is_refused() {
    assert_eq!(Reader::new(&[0xc1]).token(), Err(Error::Invalid));
}

#[test]
fn another_type_than_asked_for_is_not_consumed() {
    let mut reader = Reader::new(&[0x07, 0xc0]);
    assert_eq!(
        (reader.array(), reader.map(), reader.str()),
        (Err(Error::Type), Err(Error::Type), Err(Error::Type))
    );
    assert_eq!(reader.token(), Ok(Token::Int(7)));
    assert_eq!(reader.map_or_nil(), Ok(None));
}

#[test]
fn pairs_give_text_keys_and_pass_over_others() {
    let bytes = unhex("83a16101910203a16204");
    let mut seen = Vec::new();
    let mut reader = Reader::new(&bytes);
    let len = reader.map().unwrap();
    let end = reader.pairs(len, |key, value| {
        seen.push((key.to_vec(), value.token()?.u64()));
        Ok(())
    });
    assert_eq!((end, seen), (Ok(()), vec![(b"a".to_vec(), Some(1)), (b"b".to_vec(), Some(4))]));
}

#[test]
fn numbers_convert_only_where_they_fit() {
    assert_eq!(
        (Token::Int(-1).u64(), Token::Int(-1).i64(), Token::Int(-1).f64()),
        (None, Some(-1), Some(-1.0))
    );
    assert_eq!((Token::Big(u64::MAX).u64(), Token::Big(u64::MAX).i64()), (Some(u64::MAX), None));
    assert_eq!((Token::Int(1 << 32).u32(), Token::Int(7).u32()), (None, Some(7)));
    assert_eq!((Token::Float(1.5).f64(), Token::Int(1).float()), (Some(1.5), None));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = tokens(&bytes);
        let _ = Reader::new(&bytes).raw();
    }
}
