use proptest::prelude::*;

use super::*;
use crate::ids::Pid;

const RX: Direction = Direction::Rx;
const TX: Direction = Direction::Tx;

/// Pushes calls until one decides; the protocol, and which call decided.
fn decide(socket: Option<&Socket>, calls: &[(Direction, &[u8])]) -> Option<(Protocol, usize)> {
    let mut detector = Detector::new(socket);
    calls.iter().enumerate().find_map(|(n, (direction, bytes))| {
        let piece = Piece::bytes(bytes, MonoTime(0), true);
        detector.push(*direction, piece).map(|protocol| (protocol, n))
    })
}

fn first(direction: Direction, bytes: &[u8]) -> Option<Protocol> {
    decide(None, &[(direction, bytes)]).map(|(protocol, _)| protocol)
}

fn unix() -> Socket {
    Socket::Unix { local: None, peer: Some("/tmp/3b5f57d2".to_owned()), peer_pid: Some(Pid(7)) }
}

#[test]
fn the_side_of_http_is_told_by_who_asks() {
    let request = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n{}";
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(first(RX, request), Some(Protocol::Http1Server));
    assert_eq!(first(TX, request), Some(Protocol::Http1Client));
    assert_eq!(first(TX, response), Some(Protocol::Http1Server));
    assert_eq!(first(RX, response), Some(Protocol::Http1Client));
}

#[test]
fn a_streamed_response_is_told_in_its_middle() {
    assert_eq!(first(TX, b"10\r\ndata: {\"id\":1}\n\n\r\n"), Some(Protocol::Http1Server));
    assert_eq!(first(TX, b"0\r\n\r\n"), Some(Protocol::Http1Server));
    assert_eq!(first(TX, b"data: {\"id\":1}\n\n"), Some(Protocol::Http1Server));
    assert_eq!(first(RX, b"data: {\"id\":1}\n\n"), None);
}

#[test]
fn a_body_joined_in_the_middle_waits_for_the_next_start_line() {
    let calls: [(Direction, &[u8]); 3] = [
        (RX, b"\"content\":\"the rest of an upload\"}"),
        (RX, b"more"),
        (TX, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ];
    assert_eq!(decide(None, &calls), Some((Protocol::Http1Server, 2)));
}

#[test]
fn a_start_line_in_several_calls_is_told_and_replayed() {
    let mut detector = Detector::new(None);
    let calls: [&[u8]; 3] = [b"PO", b"ST /v1/chat", b"/completions HTTP/1.1\r\n"];
    let decided: Vec<_> = calls
        .iter()
        .zip(1..)
        .map(|(call, at)| detector.push(RX, Piece::bytes(call, MonoTime(at), true)))
        .collect();
    assert_eq!(decided, [None, None, Some(Protocol::Http1Server)]);
    let mut seen = Vec::new();
    detector.replay(&mut |direction, piece| {
        assert!(piece.starts_call && direction == RX);
        if let Content::Bytes(bytes) = piece.content {
            seen.push((bytes.to_vec(), piece.at.0));
        }
    });
    assert_eq!(seen, [(b"PO".to_vec(), 1), (b"ST /v1/chat".to_vec(), 2)]);
}

#[test]
fn zmtp_is_told_by_its_greeting() {
    assert_eq!(first(TX, b"\xff\0\0\0\0\0\0\0\0\x7f"), Some(Protocol::Zmtp));
    assert_eq!(first(RX, b"\xff\0\0\0\0\0\0\0\x03\x7f\x03"), Some(Protocol::Zmtp));
    assert_eq!(decide(None, &[(RX, b"\xff\0\0"), (RX, b"\0\0\0\0\0\x01\x7f")]), Some((Protocol::Zmtp, 1)));
    assert_eq!(first(RX, b"\xff\xff\0\0"), None);
}

/// A request to vLLM's engine core: ABORT of one id.
const ABORT: &[u8] = b"\x01\x01\x01\x00\x23\x91\xd9\x20cmpl-8ad863f51ffe8e5f-0-beae2782";

#[test]
fn zmtp_is_told_in_mid_stream_sooner_on_unix_sockets() {
    assert_eq!(decide(Some(&unix()), &[(TX, ABORT)]), Some((Protocol::Zmtp, 0)));
    let tcp = Socket::Tcp { local: "10.0.0.1:5555".to_owned(), peer: "10.0.0.2:41000".to_owned() };
    assert_eq!(decide(Some(&tcp), &[(TX, ABORT), (TX, ABORT)]), Some((Protocol::Zmtp, 1)));
}

#[test]
fn wake_ups_of_an_event_loop_are_not_zmtp() {
    let calls = [(RX, &b"\0"[..]), (RX, b"\0\0"), (TX, b"\0"), (RX, b"\0\0")].repeat(16);
    assert_eq!(decide(Some(&unix()), &calls).map(|(protocol, _)| protocol), Some(Protocol::Unknown));
}

#[test]
fn tls_and_http2_are_known_and_passed_over() {
    assert_eq!(first(RX, b"\x16\x03\x01\x02\x00\x01\x00"), Some(Protocol::Tls));
    assert_eq!(first(TX, b"\x17\x03\x03\x00\x1a123"), Some(Protocol::Tls));
    assert_eq!(decide(None, &[(RX, b"\x16\x03"), (RX, b"\x01\x02\x00")]), Some((Protocol::Tls, 1)));
    assert_eq!(first(RX, b"\x16\x03\x01\xff\xff"), None);
    assert_eq!(first(RX, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(Protocol::Http2));
    for protocol in [Protocol::Tls, Protocol::Http2, Protocol::Http1Client, Protocol::Unknown] {
        assert_eq!(protocol.verdict(), Verdict::Ignore, "{}", protocol.name());
    }
}

#[test]
fn what_says_nothing_known_is_given_up() {
    let calls = vec![(RX, &b"\x80pickled"[..]); usize::try_from(UNKNOWN_CALLS).unwrap()];
    assert_eq!(decide(None, &calls), Some((Protocol::Unknown, calls.len() - 1)));
    let mut detector = Detector::new(None);
    let gap = Piece::gap(Some(UNKNOWN_BYTES), MonoTime(0));
    assert_eq!(detector.push(RX, gap), Some(Protocol::Unknown));
    assert_eq!(decide(Some(&Socket::Other), &[(RX, b"GET / HTTP/1.1\r\n")]), Some((Protocol::Unknown, 0)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_keep_too_much(
        pieces in prop::collection::vec(
            (any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..64), 0..3000usize), 0..80,
        ),
    ) {
        let mut detector = Detector::new(None);
        for (rx, starts_call, bytes, times) in &pieces {
            let bytes = bytes.repeat(times / 64 + 1);
            let piece = Piece::bytes(&bytes, MonoTime(0), *starts_call);
            if detector.push(if *rx { RX } else { TX }, piece).is_some() {
                break;
            }
            prop_assert!(detector.kept_bytes <= KEPT_BYTES && detector.kept.len() <= KEPT_PIECES);
        }
    }
}
