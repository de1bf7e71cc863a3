//! Whole exchanges: framing and pairing.

use super::*;

#[test]
fn a_request_and_its_response_are_one_exchange() {
    let mut bench = Bench::new();
    bench.rx(1, "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
    bench.tx(2, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n").tx(3, "abc");
    assert_eq!(
        bench.told(),
        [
            "0 @1 request POST /v1/completions first 1",
            "0 @1 sent {}",
            "0 @1 request end true",
            "0 @2 response 200 first 2",
            "0 @3 got abc",
            "0 @3 response end true",
        ]
    );
}

#[test]
fn exchanges_of_a_kept_connection_are_numbered() {
    let mut bench = Bench::new();
    for n in 0..3 {
        bench.rx(n, "GET /health HTTP/1.1\r\n\r\n").tx(n, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        let told = bench.told();
        assert_eq!(told.len(), 4);
        assert!(told.iter().all(|event| event.starts_with(&format!("{n} @{n} "))), "{told:?}");
    }
}

#[test]
fn pipelined_responses_answer_in_the_order_of_their_requests() {
    let mut bench = Bench::new();
    bench.rx(1, "GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n").told();
    bench.tx(
        2,
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nA\
         HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nC",
    );
    assert_eq!(
        bench.told(),
        [
            "0 @2 response 200 first 2",
            "0 @2 got A",
            "0 @2 response end true",
            "1 @2 response 200 first 2",
            "1 @2 response end true",
            "2 @2 response 200 first 2",
            "2 @2 got C",
            "2 @2 response end true",
        ]
    );
}

#[test]
fn chunks_lose_their_framing_in_both_directions() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n2;x=\"y\"\r\nab\r\n");
    bench.rx(2, "00A \r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n");
    bench
        .tx(3, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        .tx(4, "3\r\nxyz\r\n")
        .tx(5, "0\r\n\r\n");
    assert_eq!(
        bench.told(),
        [
            "0 @1 request POST / first 1",
            "0 @1 sent ab",
            "0 @2 sent 0123456789",
            "0 @2 request end true",
            "0 @3 response 200 first 3",
            "0 @4 got xyz",
            "0 @5 response end true",
        ]
    );
}

#[test]
fn bare_line_feeds_and_blank_lines_before_a_request_are_tolerated() {
    let mut bench = Bench::new();
    bench.rx(1, "\r\n\nPOST /x HTTP/1.0\nTransfer-Encoding: chunked\n\n1\na\n0\n\n");
    bench.tx(2, "HTTP/1.1 204 No Content\n\r\n");
    assert_eq!(
        bench.told(),
        [
            "0 @1 request POST /x first 1",
            "0 @1 sent a",
            "0 @1 request end true",
            "0 @2 response 204 first 2",
            "0 @2 response end true",
        ]
    );
}

#[test]
fn interim_responses_do_not_answer_a_request() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n");
    bench
        .tx(2, "HTTP/1.1 100 Continue\r\n\r\n")
        .rx(3, "x")
        .tx(4, "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n");
    assert_eq!(
        bench.told(),
        [
            "0 @1 request POST / first 1",
            "0 @2 interim 100",
            "0 @3 sent x",
            "0 @3 request end true",
            "0 @4 response 304 first 4",
            "0 @4 response end true",
        ]
    );
}

#[test]
fn a_refused_expectation_ends_the_request() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-Continue\r\n\r\n");
    bench.tx(2, "HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").rx(3, "GET / HTTP/1.1\r\n\r\n");
    assert_eq!(
        bench.told(),
        [
            "0 @1 request POST / first 1",
            "0 @2 response 413 first 2",
            "0 @2 request end false",
            "0 @2 response end true",
            "1 @3 request GET / first 3",
            "1 @3 request end true",
        ]
    );
}

#[test]
fn a_response_may_come_before_the_end_of_its_request() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab");
    bench.tx(2, "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").rx(3, "cd");
    bench.rx(4, "GET /next HTTP/1.1\r\n\r\n");
    assert_eq!(
        bench.told(),
        [
            "0 @1 request POST / first 1",
            "0 @1 sent ab",
            "0 @2 response 400 first 2",
            "0 @2 response end true",
            "0 @3 sent cd",
            "0 @3 request end true",
            "1 @4 request GET /next first 4",
            "1 @4 request end true",
        ]
    );
}

#[test]
fn a_response_without_length_ends_with_the_connection() {
    let mut bench = Bench::new();
    bench.rx(1, "GET / HTTP/1.0\r\n\r\n").tx(2, "HTTP/1.1 200 OK\r\n\r\nab").tx(3, "HTTP/1.1 ").finish(4);
    assert_eq!(
        bench.told()[2..],
        ["0 @2 response 200 first 2", "0 @2 got ab", "0 @3 got HTTP/1.1 ", "0 @4 response end true",]
    );
}

#[test]
fn a_close_in_the_middle_ends_everything_incomplete() {
    let mut bench = Bench::new();
    bench.rx(1, "GET /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 9\r\n\r\nx");
    bench.tx(2, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab").told();
    bench.piece(Direction::Rx, Piece::end(MonoTime(3)));
    assert_eq!(bench.told(), ["1 @3 request end false"]);
    bench.finish(4).finish(5);
    assert_eq!(bench.told(), ["0 @4 response end false", "1 @4 response end false"]);
}

#[test]
fn after_an_upgrade_nothing_more_is_decoded() {
    let mut bench = Bench::new();
    bench.rx(1, "GET /v1/realtime HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    bench.tx(2, "HTTP/1.1 101 Switching Protocols\r\n\r\n\x01\x02").rx(3, "GET / HTTP/1.1\r\n\r\n").finish(4);
    assert_eq!(bench.told()[2..], ["0 @2 response 101 first 2", "0 @2 response end true", "0 @2 upgraded"]);
    bench = Bench::new();
    bench.rx(1, "CONNECT example.org:443 HTTP/1.1\r\n\r\n").tx(2, "HTTP/1.1 200 OK\r\n\r\nabc");
    assert_eq!(bench.told().last().map(String::as_str), Some("0 @2 upgraded"));
}

#[test]
fn a_client_sends_requests_and_receives_responses() {
    let mut bench = Bench::on(Side::Client);
    bench
        .tx(1, "GET /image.png HTTP/1.1\r\n\r\n")
        .rx(2, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(bench.told().len(), 4);
}

#[test]
fn a_response_delivered_before_its_request_is_still_paired_with_it() {
    let mut bench = Bench::new();
    bench.tx(2, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").rx(1, "GET /a HTTP/1.1\r\n\r\n");
    bench.rx(3, "GET /b HTTP/1.1\r\n\r\n").tx(4, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let numbers: Vec<_> = bench.told().iter().map(|event| event[..1].to_owned()).collect();
    assert_eq!(numbers.concat(), "00001111");
}

#[test]
fn lengths_that_contradict_each_other_lose_the_place() {
    for length in ["1\r\nContent-Length: 2", "-1", "+1", "1, 2", "18446744073709551616", ""] {
        let mut bench = Bench::new();
        bench.rx(1, "GET / HTTP/1.1\r\n\r\n").told();
        bench.rx(2, &format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\nGET / HTTP/1.1\r\n\r\n"));
        assert_eq!((bench.told().len(), bench.lost(Loss::Resync)), (0, 1), "{length}");
        bench.rx(3, "GET /next HTTP/1.1\r\nContent-Length: 0, 0\r\n\r\n");
        assert_eq!(bench.told().len(), 2, "{length}");
    }
}

#[test]
fn chunk_sizes_are_bounded() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000001\r\n");
    assert_eq!(bench.told()[1..], ["0 @1 request gap None"]);
    bench.rx(2, "GET / HTTP/1.1\r\n\r\n");
    assert_eq!(bench.told()[..2], ["0 @2 request end false", "1 @2 request GET / first 2"]);
}

#[test]
fn a_head_over_its_limit_is_passed_over_and_counted() {
    let mut bench = Bench::new();
    let long = "x".repeat(HEAD_LIMIT);
    bench.rx(1, &format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n"));
    bench.rx(2, "GET / HTTP/1.1\r\nA: ").rx(3, &long).rx(4, "\r\n\r\n");
    assert_eq!((bench.told().len(), bench.lost(Loss::OverSize)), (0, 2));
    bench.rx(5, "GET /next HTTP/1.1\r\n\r\n");
    assert_eq!(bench.told().len(), 2);
}

#[test]
fn no_more_requests_wait_than_the_limit_says() {
    let mut bench = Bench::new();
    for n in 0..=PIPELINE_LIMIT as u64 {
        bench.rx(n, "GET / HTTP/1.1\r\n\r\n");
    }
    let told = bench.told();
    assert_eq!(told.iter().filter(|event| event.ends_with("response end false")).count(), 1);
    assert_eq!(bench.lost(Loss::RequestExpired), 1);
}

#[test]
fn headers_are_found_whatever_their_case() {
    let head = b"POST http://api:8000/v1/chat/completions?a=b#c HTTP/1.1\r\nX-Request-Id:  my-req \r\nA: 1\r\na: \xff\r\n\r\n";
    let mut seen = 0;
    Decoder::new(ConnId(1), Side::Server).push(
        Direction::Rx,
        Piece::bytes(head, MonoTime(1), true),
        &mut |event| {
            if let EventKind::RequestHead { head, first: _ } = event.kind {
                seen += 1;
                assert_eq!(head.headers.text("x-request-ID"), Some("my-req"));
                assert_eq!(head.headers.all("A").collect::<Vec<_>>(), [b"1", b"\xff"]);
                assert_eq!(head.headers.iter().count(), 3);
                assert_eq!(head.path(), "/v1/chat/completions");
            }
        },
    );
    assert_eq!(seen, 1);
}
