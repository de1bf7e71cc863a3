//! What is missing, and where decoding goes on.

use super::*;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A bench with one request told, and the head of its chunked response.
fn streaming() -> Bench {
    let mut bench = Bench::new();
    bench.rx(1, "POST /a HTTP/1.1\r\n\r\n").tx(2, CHUNKED).told();
    bench
}

#[test]
fn a_gap_in_a_body_with_a_length_is_counted_on() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nab").gap(Direction::Rx, 1, 7).rx(2, "z");
    bench.rx(3, "GET /next HTTP/1.1\r\n\r\n");
    assert_eq!(
        bench.told()[1..],
        [
            "0 @1 sent ab",
            "0 @1 request gap Some(7)",
            "0 @2 sent z",
            "0 @2 request end true",
            "1 @3 request GET /next first 3",
            "1 @3 request end true",
        ]
    );
    assert_eq!(bench.lost(Loss::Resync), 0);
}

#[test]
fn a_gap_past_the_end_of_a_body_ends_it_and_loses_the_place() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nab").gap(Direction::Rx, 1, 9);
    assert_eq!(bench.told()[2..], ["0 @1 request gap Some(8)", "0 @1 request end true"]);
    bench.rx(2, "rest of a head\r\n\r\n").rx(3, "GET /next HTTP/1.1\r\n\r\n");
    assert_eq!((bench.told().len(), bench.lost(Loss::Resync)), (2, 1));
}

#[test]
fn a_gap_of_unknown_length_ends_a_body_with_a_length() {
    let mut bench = Bench::new();
    bench.rx(1, "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nab").gap(Direction::Rx, 1, None);
    assert_eq!(bench.told()[2..], ["0 @1 request gap None", "0 @1 request end false"]);
}

#[test]
fn a_gap_within_a_chunk_is_counted_on() {
    let mut bench = streaming();
    bench.tx(3, "a\r\nabc").gap(Direction::Tx, 3, 6).tx(4, "j\r\n0\r\n\r\n");
    assert_eq!(
        bench.told(),
        ["0 @3 got abc", "0 @3 response gap Some(6)", "0 @4 got j", "0 @4 response end true"]
    );
}

#[test]
fn a_gap_up_to_the_line_end_of_a_chunk_is_counted_on() {
    for (len, then) in [(7, "\r\n0\r\n\r\n"), (8, "\n0\r\n\r\n"), (9, "0\r\n\r\n")] {
        let mut bench = streaming();
        bench.tx(3, "a\r\nabc").gap(Direction::Tx, 3, len).tx(4, then);
        assert_eq!(
            bench.told(),
            ["0 @3 got abc", "0 @3 response gap Some(7)", "0 @4 response end true"],
            "{len}"
        );
    }
}

#[test]
fn lost_chunks_are_passed_over_up_to_the_next_call_that_begins_with_one() {
    let mut bench = streaming();
    bench.tx(3, "3\r\nabc\r\n").gap(Direction::Tx, 4, 100);
    bench.tx(5, "tail of a chunk\r\n2\r\nno\r\n").tx(6, "3\r\ndef\r\n").tx(7, "0\r\n\r\n");
    assert_eq!(
        bench.told(),
        ["0 @3 got abc", "0 @4 response gap None", "0 @6 got def", "0 @7 response end true"]
    );
    assert_eq!(bench.lost(Loss::Resync), 1);
}

#[test]
fn after_lost_chunks_a_status_line_ends_the_exchange() {
    let mut bench = streaming();
    bench.gap(Direction::Tx, 3, 100).tx(4, EMPTY);
    assert_eq!(
        bench.told(),
        [
            "0 @3 response gap None",
            "0 @4 response end false",
            "1 @4 response 200 first 4",
            "1 @4 response end true",
        ]
    );
}

#[test]
fn a_request_after_a_lost_response_ends_its_exchange() {
    let mut bench = streaming();
    bench.gap(Direction::Tx, 3, 100).rx(4, "GET /b HTTP/1.1\r\n\r\n").tx(5, "2\r\nno\r\n").tx(6, EMPTY);
    assert_eq!(
        bench.told(),
        [
            "0 @3 response gap None",
            "0 @4 response end false",
            "1 @4 request GET /b first 4",
            "1 @4 request end true",
            "1 @6 response 200 first 6",
            "1 @6 response end true",
        ]
    );
}

#[test]
fn a_lost_request_does_not_shift_the_responses() {
    let mut bench = Bench::new();
    bench.gap(Direction::Rx, 1, 50).tx(2, EMPTY);
    bench.rx(3, "GET /b HTTP/1.1\r\n\r\n").tx(4, EMPTY);
    let numbers: Vec<_> = bench.told().iter().map(|event| event[..1].to_owned()).collect();
    assert_eq!(numbers.concat(), "001111");
}

#[test]
fn a_lost_response_does_not_shift_the_ones_after_it() {
    let mut bench = Bench::new();
    bench.rx(1, "GET /a HTTP/1.1\r\n\r\n").rx(3, "GET /b HTTP/1.1\r\n\r\n").told();
    // The second response shows that the first is missing.
    bench.gap(Direction::Tx, 4, 50).tx(4, EMPTY);
    assert_eq!(
        bench.told(),
        ["0 @4 response end false", "1 @4 response 200 first 4", "1 @4 response end true"]
    );
}

#[test]
fn a_gap_in_a_head_loses_the_exchange_only() {
    let mut bench = Bench::new();
    bench.rx(1, "POST /a HTTP/1.1\r\nContent-Le").gap(Direction::Rx, 1, 9).rx(2, "\r\n{\"model\": 1}");
    assert_eq!((bench.told().len(), bench.lost(Loss::Resync)), (0, 0));
    bench.rx(3, "GET /b HTTP/1.1\r\n\r\n");
    assert_eq!(bench.told().len(), 2);
    bench.rx(4, "GET /c").gap(Direction::Rx, 4, 9);
    assert_eq!(bench.lost(Loss::Resync), 1);
}

#[test]
fn a_body_until_the_close_goes_on_after_any_gap() {
    let mut bench = Bench::new();
    bench.rx(1, "GET / HTTP/1.1\r\n\r\n").tx(2, "HTTP/1.1 200 OK\r\n\r\na").told();
    bench.gap(Direction::Tx, 3, 5).gap(Direction::Tx, 3, None).tx(4, "b").finish(5);
    assert_eq!(
        bench.told(),
        ["0 @3 response gap Some(5)", "0 @3 response gap None", "0 @4 got b", "0 @5 response end true",]
    );
}

#[test]
fn a_gap_in_the_trailers_leaves_the_response_complete() {
    let mut bench = streaming();
    bench.tx(3, "1\r\na\r\n0\r\n").gap(Direction::Tx, 3, 2);
    assert_eq!(bench.told(), ["0 @3 got a", "0 @3 response end true"]);
}

#[test]
fn joined_in_the_middle_it_starts_at_the_next_start_line() {
    let mut bench = Bench::new();
    bench.tx(1, "2f\r\ndata: {}\n\n\r\n").rx(2, "\"rest\": \"of a body\"}").tx(3, "0\r\n\r\n");
    assert_eq!((bench.told().len(), bench.lost(Loss::Resync)), (0, 0));
    bench.rx(4, "GET /a HTTP/1.1\r\n\r\n").tx(5, EMPTY);
    assert_eq!(bench.told().len(), 4);
}

#[test]
fn joined_before_a_response_its_request_is_unknown() {
    let mut bench = Bench::new();
    bench.tx(1, EMPTY).rx(2, "GET /b HTTP/1.1\r\n\r\n").tx(3, EMPTY);
    let numbers: Vec<_> = bench.told().iter().map(|event| event[..1].to_owned()).collect();
    assert_eq!(numbers.concat(), "001111");
}

#[test]
fn a_head_may_begin_at_a_call_after_one_that_only_looked_like_a_head() {
    let mut bench = Bench::new();
    bench.rx(1, "PO").rx(2, "GET /a HTTP/1.1\r\nA: b\r\n\r\n");
    assert_eq!(bench.told(), ["0 @2 request GET /a first 2", "0 @2 request end true"]);
}

#[test]
fn a_head_over_several_calls_has_the_time_of_its_first_byte() {
    let mut bench = Bench::new();
    bench.rx(1, "PO").rx(2, "ST /a HTTP/1.1\r").rx(3, "\n\r").rx(4, "\nGET");
    assert_eq!(bench.told(), ["0 @4 request POST /a first 1", "0 @4 request end true"]);
}
