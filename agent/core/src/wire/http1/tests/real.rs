//! Bytes of a real server: vLLM 0.32.0, the body cut short.

use super::*;

#[test]
fn a_plain_completion_is_told_with_its_headers() {
    let mut bench = Bench::new();
    bench.rx(
        490_708,
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nContent-Length: 68\r\n\r\n\
         {\"model\":\"tiny\",\"prompt\":\"import os\",\"max_tokens\":3,\"temperature\":0}",
    );
    bench.tx(
        579_416,
        "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 15:07:41 GMT\r\nserver: uvicorn\r\ncontent-length: 30\r\n\
         content-type: application/json\r\nvary: Origin\r\n\r\n",
    );
    bench.tx(579_718, "{\"id\":\"cmpl-8ad863f51ffe8e5f\"}");
    assert_eq!(
        bench.told()[2..],
        [
            "0 @490708 request end true",
            "0 @579416 response 200 first 579416",
            "0 @579718 got {\\\"id\\\":\\\"cmpl-8ad863f51ffe8e5f\\\"}",
            "0 @579718 response end true",
        ]
    );
}
