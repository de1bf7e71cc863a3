use super::*;

/// What libzmq 4.3.5 sends first as a ROUTER, up to its READY command.
const ROUTER_HELLO: &str = "ff00000000000000017f03014e554c4c0000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000\
    04290552454144590b536f636b65742d5479706500000006524f55544552084964656e7469747900000000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A message as tests compare it: frames, time, cut.
type Seen = (Vec<Vec<u8>>, u64, bool);

/// Pushes pieces, a call each, at times 1, 2, 3...
fn run(decoder: &mut Decoder, pieces: &[Content<'_>]) -> (Vec<Seen>, Losses) {
    let (mut seen, mut losses) = (Vec::new(), Losses::default());
    for (part, time) in pieces.iter().zip(1..) {
        let piece = Piece { content: *part, at: MonoTime(time), starts_call: true };
        decoder.push(&piece, &mut losses, &mut |message| {
            let frames = message.frames.iter().map(|frame| frame.to_vec()).collect();
            seen.push((frames, message.at.0, message.cut));
        });
    }
    (seen, losses)
}

#[test]
fn the_greeting_and_ready_name_the_socket_type() {
    let mut decoder = Decoder::new(Start::Beginning, 1000);
    let bytes = hex(ROUTER_HELLO);
    let (seen, _) = run(&mut decoder, &[Content::Bytes(&bytes)]);
    assert_eq!((seen.len(), decoder.socket_type()), (0, Some(SocketType::Router)));
}

#[test]
fn a_message_in_one_piece_is_given_whole() {
    let mut decoder = Decoder::new(Start::Midstream, 1000);
    let (seen, losses) = run(&mut decoder, &[Content::Bytes(&hex("010101 000391a17a"))]);
    assert_eq!(seen, [(vec![vec![1], hex("91a17a")], 1, false)]);
    assert_eq!(losses, Losses::default());
}
