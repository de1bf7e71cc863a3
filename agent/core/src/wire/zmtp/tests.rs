use proptest::prelude::*;

use super::*;

/// Streams of libzmq's own and the messages in them: see `tests/oracle/zmtp_streams.py`.
const ORACLE: &str = include_str!("oracle.txt");

/// More than any message here.
const LIMIT: usize = 100_000;

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

fn midstream(pieces: &[Content<'_>]) -> (Vec<Seen>, Losses) {
    run(&mut Decoder::new(Start::Midstream, LIMIT), pieces)
}

/// A frame's bytes.
fn frame(more: bool, body: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(body.len()) {
        Ok(len) => vec![u8::from(more), len],
        Err(_) => [&[u8::from(more) | 2][..], &len64(body.len()).to_be_bytes()].concat(),
    };
    bytes.extend_from_slice(body);
    bytes
}

/// One side of a connection as libzmq wrote it.
struct Stream {
    name: &'static str,
    kind: &'static str,
    bytes: Vec<u8>,
    messages: Vec<Vec<Vec<u8>>>,
}

fn oracle() -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    for line in ORACLE.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields.as_slice() {
            ["stream", name, kind, bytes] => {
                streams.push(Stream { name, kind, bytes: hex(bytes), messages: Vec::new() });
            }
            ["message", _, frames] => {
                let frames = frames.split(',').map(hex).collect();
                streams.last_mut().unwrap().messages.push(frames);
            }
            other => panic!("{other:?}"),
        }
    }
    streams
}

fn named(kind: &str) -> SocketType {
    match kind {
        "PUSH" => SocketType::Push,
        "PULL" => SocketType::Pull,
        "DEALER" => SocketType::Dealer,
        "ROUTER" => SocketType::Router,
        "REQ" => SocketType::Req,
        other => panic!("{other}"),
    }
}

#[test]
fn streams_of_libzmq_give_the_messages_that_were_sent() {
    let streams = oracle();
    assert_eq!(streams.len(), 6);
    for Stream { name, kind, bytes, messages } in streams {
        let mut decoder = Decoder::new(Start::Beginning, LIMIT);
        let (seen, losses) = run(&mut decoder, &[Content::Bytes(&bytes)]);
        let expected: Vec<Seen> = messages.into_iter().map(|frames| (frames, 1, false)).collect();
        assert_eq!((seen, losses), (expected, Losses::default()), "{name}");
        assert_eq!(decoder.socket_type(), Some(named(kind)), "{name}");
    }
}

#[test]
fn a_stream_byte_by_byte_gives_the_same_messages() {
    for Stream { name, bytes, messages, .. } in oracle() {
        let pieces: Vec<Content<'_>> = bytes.chunks(1).map(Content::Bytes).collect();
        let (seen, losses) = run(&mut Decoder::new(Start::Beginning, LIMIT), &pieces);
        let frames: Vec<_> = seen.iter().map(|(frames, ..)| frames.clone()).collect();
        assert_eq!((frames, losses), (messages, Losses::default()), "{name}");
        // The last byte of the stream ends the last message.
        assert!(seen.last().is_none_or(|(_, at, _)| *at == len64(bytes.len())), "{name}");
    }
}

#[test]
fn a_message_in_one_piece_is_lent() {
    let bytes = [frame(true, &[0]), frame(false, b"\x91\xa1z")].concat();
    let mut decoder = Decoder::new(Start::Midstream, LIMIT);
    let mut lent = false;
    let piece = Piece::bytes(&bytes, MonoTime(1), true);
    decoder.push(&piece, &mut Losses::default(), &mut |message| {
        let range = bytes.as_ptr_range();
        lent = message.frames.iter().all(|frame| range.contains(&frame.as_ptr()));
    });
    assert!(lent);
}

#[test]
fn a_gap_inside_a_frame_leaves_its_prefix_and_the_place() {
    let body = [&[0x91; 200][..], &[7; 200]].concat();
    let bytes = frame(false, &body);
    let next = frame(false, b"\x92\x01\x02");
    let pieces = [
        Content::Bytes(&bytes[..100]),
        Content::Gap { len: Some(250) },
        Content::Bytes(&bytes[350..]),
        Content::Bytes(&next),
    ];
    let (seen, losses) = midstream(&pieces);
    assert_eq!(seen, [(vec![vec![0x91; 91]], 3, true), (vec![b"\x92\x01\x02".to_vec()], 4, false)]);
    assert_eq!((losses.get(Loss::CutMessage), losses.get(Loss::Resync)), (1, 0));
}

#[test]
fn a_gap_to_the_very_end_of_a_message_ends_it() {
    let bytes = frame(false, &[0x93; 300]);
    let next = frame(false, b"\x90");
    let pieces = [Content::Bytes(&bytes[..109]), Content::Gap { len: Some(200) }, Content::Bytes(&next)];
    let (seen, losses) = midstream(&pieces);
    assert_eq!(seen, [(vec![vec![0x93; 100]], 2, true), (vec![vec![0x90]], 3, false)]);
    assert_eq!(losses.get(Loss::Resync), 0);
}

#[test]
fn frames_after_a_hole_are_whole() {
    let bytes = [frame(true, &[0x99; 300]), frame(false, b"aux")].concat();
    let pieces =
        [Content::Bytes(&bytes[..50]), Content::Gap { len: Some(100) }, Content::Bytes(&bytes[150..])];
    let (seen, _) = midstream(&pieces);
    assert_eq!(seen, [(vec![vec![0x99; 41], b"aux".to_vec()], 3, true)]);
}

#[test]
fn a_gap_over_frames_is_followed_by_a_search() {
    let first = frame(false, &[0x91; 300]);
    let next = frame(false, b"\x91\x05");
    let inside = [0x55; 40];
    let pieces = [
        Content::Bytes(&first[..20]),
        Content::Gap { len: Some(5000) },
        Content::Bytes(&inside),
        Content::Bytes(&next),
    ];
    let (seen, losses) = midstream(&pieces);
    assert_eq!(seen, [(vec![vec![0x91; 11]], 2, true), (vec![b"\x91\x05".to_vec()], 4, false)]);
    assert_eq!((losses.get(Loss::Resync), losses.get(Loss::CutMessage)), (1, 1));
}

#[test]
fn a_gap_of_unknown_length_is_followed_by_a_search() {
    let next = frame(false, b"\x91\x05");
    let (seen, losses) =
        midstream(&[Content::Bytes(&next), Content::Gap { len: None }, Content::Bytes(&next)]);
    assert_eq!((seen.len(), losses.get(Loss::Resync)), (2, 1));
}

#[test]
fn a_message_over_the_limit_keeps_its_prefix_however_it_comes() {
    let bytes = [frame(true, &[0x91; 700]), frame(false, &[2; 700])].concat();
    for size in [1, 50, 701, 5000] {
        let pieces: Vec<Content<'_>> = bytes.chunks(size).map(Content::Bytes).collect();
        let mut decoder = Decoder::new(Start::Beginning, 1000);
        run(&mut decoder, &[Content::Bytes(&oracle()[0].bytes[..64])]);
        let (seen, losses) = run(&mut decoder, &pieces);
        assert_eq!(seen.len(), 1, "{size}");
        assert_eq!((&seen[0].0, seen[0].2), (&vec![vec![0x91; 700], vec![2; 300]], true), "{size}");
        assert_eq!((losses.get(Loss::OverSize), losses.get(Loss::CutMessage)), (1, 0), "{size}");
    }
}

#[test]
fn the_end_of_a_connection_gives_what_came_of_the_message() {
    let bytes = frame(false, &[0x91; 300]);
    let (seen, losses) = midstream(&[Content::Bytes(&bytes[..200]), Content::End]);
    assert_eq!(seen, [(vec![vec![0x91; 191]], 2, true)]);
    assert_eq!((losses.get(Loss::CutMessage), losses.get(Loss::Resync)), (1, 0));
}

#[test]
fn a_wrong_start_is_left_when_a_call_makes_better_sense() {
    // Looks like the head of a long frame, and is none.
    let wrong = [&[2, 0, 0, 0, 0, 0, 9, 0, 0, 0x91][..], &[9; 20]].concat();
    let right = [frame(true, &[0]), frame(false, b"\x91\x05")].concat();
    let (seen, losses) = midstream(&[Content::Bytes(&wrong), Content::Bytes(&right), Content::Bytes(&right)]);
    assert_eq!(seen.len(), 2);
    assert_eq!(losses.get(Loss::Resync), 1);
}

#[test]
fn a_full_stream_is_entered_inside_a_call() {
    let one = [frame(true, &[0]), frame(false, &[0x91; 60])].concat();
    let bytes = one.repeat(20);
    let (seen, _) = midstream(&[Content::Bytes(&bytes[30..])]);
    assert_eq!(seen.len(), 19);
}

#[test]
fn other_protocols_are_foreign() {
    let mut decoder = Decoder::new(Start::Beginning, LIMIT);
    run(&mut decoder, &[Content::Bytes(b"POST / HTTP/1.1\r\n")]);
    assert!(decoder.is_foreign());
    // A mechanism that encrypts.
    let mut greeting = oracle()[0].bytes[..64].to_vec();
    greeting[12..17].copy_from_slice(b"CURVE");
    let mut decoder = Decoder::new(Start::Beginning, LIMIT);
    run(&mut decoder, &[Content::Bytes(&greeting)]);
    assert!(decoder.is_foreign());
}

#[test]
fn a_connection_that_begins_anew_in_mid_stream_is_followed() {
    let stream = &oracle()[0];
    let (seen, _) = midstream(&[Content::Bytes(&stream.bytes)]);
    assert_eq!(seen.len(), stream.messages.len());
}

/// A stream in calls cut at arbitrary places.
fn split<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn messages(seen: Vec<Seen>) -> Vec<Vec<Vec<u8>>> {
    seen.into_iter().map(|(frames, ..)| frames).collect()
}

proptest! {
    #[test]
    fn any_split_gives_the_same_messages(which in 0..6_usize, cuts in proptest::collection::vec(any::<usize>(), 0..20)) {
        let stream = &oracle()[which];
        let pieces: Vec<_> = split(&stream.bytes, &cuts).into_iter().map(Content::Bytes).collect();
        let (seen, losses) = run(&mut Decoder::new(Start::Beginning, LIMIT), &pieces);
        prop_assert_eq!(messages(seen), stream.messages.clone());
        prop_assert_eq!(losses, Losses::default());
    }

    #[test]
    fn a_cut_stream_gives_a_prefix(which in 0..6_usize, cut in any::<usize>()) {
        let stream = &oracle()[which];
        let bytes = &stream.bytes[..cut % stream.bytes.len()];
        let (seen, _) = run(&mut Decoder::new(Start::Beginning, LIMIT), &[Content::Bytes(bytes)]);
        prop_assert!(stream.messages.starts_with(&messages(seen)));
    }

    #[test]
    fn a_gap_anywhere_loses_no_more_than_it_must(start in 64..2000_usize, len in 1..500_usize) {
        let stream = &oracle()[0];
        let bytes = &stream.bytes;
        let (start, end) = (start.min(bytes.len()), (start + len).min(bytes.len()));
        let gap = Content::Gap { len: Some(len64(end - start)) };
        let pieces = [Content::Bytes(&bytes[..start]), gap, Content::Bytes(&bytes[end..])];
        let (seen, _) = run(&mut Decoder::new(Start::Beginning, LIMIT), &pieces);
        let whole = seen.iter().filter(|(.., cut)| !cut).count();
        // Every message that is not touched by the gap, before it.
        let (before, _) = run(&mut Decoder::new(Start::Beginning, LIMIT), &pieces[..1]);
        prop_assert!(whole >= before.len());
    }

    #[test]
    fn hostile_bytes_never_panic_and_stay_bounded(
        calls in proptest::collection::vec(proptest::collection::vec(prop_oneof![0..10_u8, any::<u8>()], 0..60), 0..20),
        gap in proptest::option::of(0..100_u64),
        beginning in any::<bool>(),
    ) {
        let start = if beginning { Start::Beginning } else { Start::Midstream };
        let mut decoder = Decoder::new(start, 50);
        for call in &calls {
            let (seen, _) = run(&mut decoder, &[Content::Bytes(call), Content::Gap { len: gap }]);
            for (frames, ..) in seen {
                prop_assert!(frames.iter().map(Vec::len).sum::<usize>() <= 50);
            }
        }
    }
}
