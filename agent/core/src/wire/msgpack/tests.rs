use super::*;

#[test]
fn a_number_is_read() {
    assert_eq!(Reader::new(&[0x07]).token(), Ok(Token::Int(7)));
}
