//! Any calls: the detector decides within its bounds, and gives back what it kept in order.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::capture::fact::Socket;
use enginetap_core::ids::Direction;
use enginetap_core::stream::protocol::{Detector, UNKNOWN_CALLS};
use enginetap_core::stream::{Content, Piece};
use enginetap_core::time::MonoTime;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    unix: bool,
    pieces: Vec<(bool, bool, &'a [u8])>,
}

fuzz_target!(|input: Input<'_>| {
    let unix = Socket::Unix { local: None, peer: None, peer_pid: None };
    let mut detector = Detector::new(input.unix.then_some(&unix));
    let (mut calls, mut bytes) = (0, 0);
    for ((rx, starts_call, piece), at) in input.pieces.iter().zip(0..) {
        let direction = if *rx { Direction::Rx } else { Direction::Tx };
        let decided = detector.push(direction, Piece::bytes(piece, MonoTime(at), *starts_call));
        if decided.is_some() {
            break;
        }
        calls += u32::from(*starts_call);
        bytes += piece.len();
        assert!(calls < UNKNOWN_CALLS);
    }
    let (mut last, mut kept) = (None, 0);
    detector.replay(&mut |_, piece| {
        assert!(last < Some(piece.at));
        last = Some(piece.at);
        if let Content::Bytes(bytes) = piece.content {
            kept += bytes.len();
        }
    });
    assert!(kept <= bytes && kept <= 64 * 1024);
});
