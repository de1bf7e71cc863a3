//! Properties of any traffic.

use proptest::prelude::*;

use super::*;

/// A connection as calls of both directions.
type Calls = Vec<(Direction, Vec<u8>)>;

/// A body in one of its framings: the headers that say so, and its bytes on the wire.
fn framed() -> impl Strategy<Value = (String, Vec<u8>)> {
    let content = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        content().prop_map(|body| (format!("Content-Length: {}\r\n", body.len()), body)),
        (content(), 1..20usize, any::<bool>()).prop_map(|(body, size, trailer)| {
            let mut wire = Vec::new();
            for chunk in body.chunks(size) {
                wire.extend(format!("{:x}\r\n", chunk.len()).bytes());
                wire.extend(chunk);
                wire.extend(b"\r\n");
            }
            wire.extend(if trailer { &b"0\r\nX: y\r\n\r\n"[..] } else { b"0\r\n\r\n" });
            ("Transfer-Encoding: chunked\r\n".to_owned(), wire)
        }),
    ]
}

/// One exchange as the calls of its two directions, each cut anywhere.
fn exchange() -> impl Strategy<Value = Calls> {
    let method = prop::sample::select(vec!["GET", "POST", "HEAD"]);
    let status = prop::sample::select(vec![200, 204, 400]);
    (method, framed(), status, framed(), any::<bool>(), 1..80usize).prop_map(
        |(method, (request_headers, request), status, (headers, response), interim, size)| {
            let mut sent = format!("{method} /v1 HTTP/1.1\r\nHost: a\r\n{request_headers}\r\n").into_bytes();
            sent.extend(request);
            let mut got = if interim { b"HTTP/1.1 100 Continue\r\n\r\n".to_vec() } else { Vec::new() };
            got.extend(format!("HTTP/1.1 {status} Reason\r\n{headers}\r\n").bytes());
            if method != "HEAD" && status != 204 {
                got.extend(response);
            }
            let calls = |direction, bytes: &[u8]| -> Calls {
                bytes.chunks(size).map(|call| (direction, call.to_vec())).collect()
            };
            [calls(Direction::Rx, &sent), calls(Direction::Tx, &got)].concat()
        },
    )
}

fn connection() -> impl Strategy<Value = Calls> {
    prop::collection::vec(exchange(), 1..5).prop_map(|exchanges| exchanges.concat())
}

/// Everything told of these calls, each given in pieces of `sizes` in turn. Call `n` is at time `n`.
fn told(calls: &Calls, sizes: &[usize]) -> Vec<String> {
    let mut bench = Bench::new();
    let mut sizes = sizes.iter().cycle();
    for ((direction, bytes), at) in calls.iter().zip(0..) {
        let (mut rest, mut starts_call) = (bytes.as_slice(), true);
        while !rest.is_empty() {
            let size = sizes.next().copied().unwrap_or(usize::MAX).clamp(1, rest.len());
            let (piece, after) = rest.split_at(size);
            bench.piece(*direction, Piece::bytes(piece, MonoTime(at), starts_call));
            (rest, starts_call) = (after, false);
        }
    }
    bench.finish(calls.len() as u64);
    bench.told()
}

proptest! {
    #[test]
    fn any_split_of_the_calls_tells_the_same(calls in connection(), sizes in prop::collection::vec(1..9usize, 1..5)) {
        prop_assert_eq!(told(&calls, &sizes), told(&calls, &[usize::MAX]));
    }

    #[test]
    fn any_split_of_any_bytes_tells_the_same(
        calls in connection(),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..9),
        sizes in prop::collection::vec(1..9usize, 1..5),
    ) {
        let mut calls = calls;
        for (call, place, byte) in noise {
            let bytes = &mut call.get_mut(&mut calls).1;
            *place.get_mut(bytes) = byte;
        }
        prop_assert_eq!(told(&calls, &sizes), told(&calls, &[usize::MAX]));
    }

    #[test]
    fn every_exchange_is_whole_and_told_once(calls in connection()) {
        let told = told(&calls, &[usize::MAX]);
        let count = |end: &str| told.iter().filter(|event| event.ends_with(end)).count();
        let requests = told.iter().filter(|event| event.contains(" request ") && event.contains(" /v1 ")).count();
        prop_assert_eq!(count("request end true"), requests);
        prop_assert_eq!(count("response end true"), requests);
        prop_assert_eq!(count("end false"), 0);
    }

    #[test]
    fn a_cut_stream_tells_a_prefix(calls in connection(), keep in any::<prop::sample::Index>()) {
        let keep = keep.index(calls.len() + 1);
        let (all, mut cut) = (told(&calls, &[usize::MAX]), told(&calls[..keep].to_vec(), &[usize::MAX]));
        cut.retain(|event| !event.ends_with("end false"));
        prop_assert!(cut.iter().zip(&all).all(|(cut, all)| cut == all), "{:?} {:?}", cut, all);
    }

    #[test]
    fn lost_calls_never_panic_and_later_exchanges_are_whole(
        calls in connection(),
        lost in prop::collection::vec((any::<bool>(), any::<bool>()), 1..40),
    ) {
        let mut bench = Bench::new();
        for (((direction, bytes), (lost, known)), at) in calls.iter().zip(lost.iter().cycle()).zip(0..) {
            if *lost {
                bench.gap(*direction, at, known.then_some(bytes.len() as u64));
            } else {
                bench.piece(*direction, Piece::bytes(bytes, MonoTime(at), true));
            }
        }
        bench.told();
        let at = calls.len() as u64;
        for direction in [Direction::Rx, Direction::Tx] {
            bench.gap(direction, at, None);
        }
        bench.told();
        bench.rx(at, "GET /next HTTP/1.1\r\n\r\n").tx(at, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx");
        let told = bench.told();
        let expected = ["GET /next", "request end true", "response 200", "got x", "response end true"];
        let whole = expected.iter().all(|what| told.iter().any(|event| event.contains(what)));
        // Only a response delimited by the close hides what comes after it.
        let hidden = bench.decoder.responses.is_open_ended();
        prop_assert!(whole || hidden, "{told:?}");
    }

    #[test]
    fn no_bytes_make_it_panic_or_keep_too_much(
        pieces in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), "[A-Z /0-9a-f:;\r\n]{0,40}|HTTP/1.1 200 OK\r\n|GET / HTTP/1.1\r\n|\r\n|transfer-encoding: chunked\r\n|content-length: 9\r\n", any::<u64>()), 0..60),
    ) {
        let mut bench = Bench::new();
        for ((rx, is_gap, starts_call, bytes, len), at) in pieces.iter().zip(0..) {
            let direction = if *rx { Direction::Rx } else { Direction::Tx };
            let piece = match is_gap {
                true if len % 5 == 0 => Piece::gap(Some(len % 16), MonoTime(at)),
                true if len % 7 == 0 => Piece::gap(None, MonoTime(at)),
                _ => Piece { content: Content::Bytes(bytes.as_bytes()), at: MonoTime(at), starts_call: *starts_call },
            };
            bench.piece(direction, piece);
        }
        bench.finish(99);
    }
}
