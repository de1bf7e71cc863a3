#!/usr/bin/env python3
"""Makes requests to a vLLM server slow in one way, and writes what the client saw: one JSON object a request.

    tests/scenarios/why.py --url http://127.0.0.1:8000 FAULT > NAME.scenario.jsonl

The captures `why-FAULT` were recorded while this ran (tests/captures/README.md). A line tells: `label`; `id` of the response;
`cause`: what `enginetap why` must name as the reason for the request's being slow, `null` where it must blame nothing, absent
where the request is only there to make others slow; `ttft` and `e2e` in seconds, as the client measured them; `tokens`.
"""
import argparse
import http.client
import json
import socket
import sys
import threading
import time
import urllib.parse

WORDS = "the harbour lay quiet under a pale morning and the ships went out with the tide one after the other".split()


class Client:
    """One server, and what was sent to it."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.lock = threading.Lock()

    def say(self, record):
        with self.lock:
            print(json.dumps(record), flush=True)

    def ask(self, label, words, tokens, seed=0, leave_after=None, buffer=None, pause=0.0, **more):
        """Streams a completion; `leave_after`: seconds after which the client goes away; `buffer` and `pause`: how slowly
        it reads."""
        expected = {"cause": more.pop("cause")} if "cause" in more else {}
        text = " ".join(WORDS[(seed + n * (1 + seed % 7)) % len(WORDS)] for n in range(words))
        body = {"model": "tiny", "prompt": f"{seed} {text}", "max_tokens": tokens, "min_tokens": tokens, "stream": True,
                "temperature": 0, "ignore_eos": True, **more}
        payload = json.dumps(body).encode()
        record = {"label": label, "id": None, **expected}
        sock = socket.socket()
        if buffer:
            # Small segments keep the sender's buffer small too: that of a local connection holds megabytes.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        sock.settimeout(300)
        sock.connect((self.host, self.port))
        begun = time.monotonic()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        sock.sendall(head.encode() + payload)
        if leave_after is not None:
            self.leave(sock, begun, leave_after, record)
        else:
            self.read(sock, begun, pause, record)
        sock.close()
        self.say(record)

    def leave(self, sock, begun, after, record):
        data = b""
        while time.monotonic() - begun < after:
            sock.settimeout(max(0.01, begun + after - time.monotonic()))
            try:
                data += sock.recv(65536)
            except TimeoutError:
                break
        first_id(data, record)
        record["e2e"] = time.monotonic() - begun

    def read(self, sock, begun, pause, record):
        answer = http.client.HTTPResponse(sock, method="POST")
        answer.begin()
        record["status"], events = answer.status, 0
        while line := answer.readline():
            if not line.startswith(b"data: {"):
                continue
            if events == 0:
                record["ttft"] = time.monotonic() - begun
                first_id(line, record)
            events += 1
            if pause:
                time.sleep(pause)
        record["e2e"] = time.monotonic() - begun
        record["events"] = events


def first_id(data, record):
    at = data.find(b'"id":"')
    if at >= 0:
        record["id"] = data[at + 6:].split(b'"', 1)[0].decode()


def together(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def later(delay, call):
    def run():
        time.sleep(delay)
        call()
    return run


def plain(client, label, seed, words=20, tokens=60, **more):
    return lambda: client.ask(label, words, tokens, seed=seed, **more)


def healthy(client):
    """A few short ones at a time: nothing is slow."""
    for round_ in range(3):
        together(*(plain(client, f"healthy-{round_}-{n}", 10 * round_ + n, cause=None) for n in range(3)))
        time.sleep(0.3)


def giant(client):
    """Short ones decode and arrive while one giant prompt is prefilled."""
    together(
        *(plain(client, f"decoding-{n}", n, tokens=50, cause="long_prefill") for n in range(3)),
        later(0.25, plain(client, "giant", 50, words=700, tokens=4)),
        *(later(0.35 + n / 20, plain(client, f"arriving-{n}", 60 + n, tokens=10, cause="long_prefill")) for n in range(2)),
    )


def many(client):
    """Plain ones decode beside an n=8 with logprobs, which comes after them and goes before them."""
    together(
        *(plain(client, f"beside-{n}", n, tokens=160, cause="wide_request") for n in range(2)),
        later(1.0, plain(client, "many", 40, tokens=60, n=8, logprobs=5, temperature=0.7)),
    )


def kv(client):
    """More at once than the KV cache holds: the server has room for 768 tokens."""
    def crowded(n):
        # Those that come first find room.
        expected = {"cause": "kv_full"} if n >= 3 else {}
        return later(n / 20, plain(client, f"crowded-{n}", n, words=90, tokens=100, **expected))

    together(*(crowded(n) for n in range(8)))


def slow(client):
    """One client reads a long response slowly, another reads its own as it comes."""
    together(
        lambda: client.ask("slow", 20, 120, n=4, logprobs=5, temperature=0.7, buffer=2048, pause=0.01, cause="slow_client"),
        *(later(0.5 + 1.5 * n, plain(client, f"brisk-{n}", 7 + n, tokens=20)) for n in range(3)),
    )


def leaver(client):
    """A client goes away while its response streams, another stays."""
    together(
        plain(client, "leaver", 3, tokens=400, leave_after=1.5, cause="client_gone"),
        plain(client, "stays", 4, tokens=80, cause=None),
    )


FAULTS = {call.__name__: call for call in (healthy, giant, many, kv, slow, leaver)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("fault", choices=FAULTS)
    options = parser.parse_args()
    client = Client(options.url)
    # The first request of a server pays for much else.
    if options.fault != "kv":
        client.say = lambda record: None
        client.ask("warm", 10, 4)
        del client.say
        time.sleep(0.5)
    FAULTS[options.fault](client)
    time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
