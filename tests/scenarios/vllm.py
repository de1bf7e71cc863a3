#!/usr/bin/env python3
"""Sends a vLLM server one behaviour after another, and writes what the client saw: one JSON object a request.

    tests/scenarios/vllm.py --url http://127.0.0.1:8000 answers > NAME.scenario.jsonl      (or https://)

The captures of the same names were recorded while this ran (tests/captures/README.md). A line tells: `label`; `status`,
`id`, `usage` and `finish` of the response, where there was one; `engine`: how many engine requests it must make;
`span`: whether it must make an entry span; `trace` and `parent`: the caller's ids, where it sent some.
"""
import argparse
import http.client
import json
import socket
import ssl
import sys
import threading
import time
import urllib.parse

MODEL = "tiny"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Tell me of the sea and of ships"}]
TEXT = "The harbour lay quiet under a pale morning"


class Client:
    """One server, and what was sent to it."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        # Servers under test sign their certificates themselves.
        self.tls = ssl._create_unverified_context() if parts.scheme == "https" else None
        self.lock = threading.Lock()

    def say(self, **record):
        with self.lock:
            print(json.dumps(record), flush=True)

    def connect(self):
        plain = socket.create_connection((self.host, self.port), timeout=120)
        return self.tls.wrap_socket(plain) if self.tls else plain

    def http(self, timeout):
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def post(self, label, path, body, headers=None, engine=1, span=True, connection=None, **more):
        """Sends a request whole and reads its response whole."""
        own = connection or self.http(180)
        payload = body if isinstance(body, bytes) else json.dumps(body)
        own.request("POST", path, payload, {"Content-Type": "application/json", **(headers or {})})
        answer = own.getresponse()
        record = {"label": label, "path": path, "status": answer.status, "engine": engine, "span": span, **more}
        data = answer.read()
        if (answer.getheader("content-type") or "").startswith("text/event-stream"):
            read_events(data, record)
        else:
            read_body(data, record)
        if not connection:
            own.close()
        self.say(**record)
        return record

    def raw(self, data, wait=0.0, read=True):
        """Sends bytes, waits, and reads until the server closes (or not at all)."""
        with self.connect() as sock:
            sock.sendall(data)
            time.sleep(wait)
            return drain(sock) if read else b""


def drain(sock):
    sock.settimeout(60)
    parts = []
    try:
        while part := sock.recv(65536):
            parts.append(part)
    except (TimeoutError, ConnectionResetError, ssl.SSLError):
        pass
    return b"".join(parts)


def read_body(data, record):
    try:
        body = json.loads(data)
    except ValueError:
        return
    if not isinstance(body, dict):
        return
    record["id"], record["usage"] = body.get("id"), body.get("usage")
    choices = body.get("choices") or []
    record["finish"] = [c.get("finish_reason") for c in choices]
    calls = [c["function"]["name"] for choice in choices for c in (choice.get("message") or {}).get("tool_calls") or []]
    if calls:
        record["calls"] = calls


def read_events(data, record):
    finish = {}
    for line in data.splitlines():
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        for inner in (event, event.get("response") or {}, event.get("message") or {}):
            record["id"] = record.get("id") or inner.get("id")
            record["usage"] = inner.get("usage") or record.get("usage")
        for choice in event.get("choices") or []:
            if choice.get("finish_reason"):
                finish[choice["index"]] = choice["finish_reason"]
    record["finish"] = [finish[index] for index in sorted(finish)]


def chat(tokens=6, **more):
    return {"model": MODEL, "messages": HELLO, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def completion(tokens=6, **more):
    return {"model": MODEL, "prompt": TEXT, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def http_request(method, path, body=b"", headers=()):
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def answers(client):
    """Every way to ask for a generation, and every shape of an answer."""
    client.post("chat", CHAT, chat())
    client.post("chat streamed", CHAT, chat(**STREAM))
    client.post("chat streamed without usage", CHAT, chat(stream=True), user="ann")
    client.post("completion", COMPLETIONS, completion())
    client.post("completion streamed", COMPLETIONS, completion(**STREAM))
    client.post("chat n=3", CHAT, chat(n=3, temperature=0.9, seed=7), engine=3)
    client.post("completion n=3 streamed", COMPLETIONS, completion(n=3, temperature=0.9, seed=7, **STREAM), engine=3)
    prompts = [TEXT, "Two", "And a third prompt"]
    client.post("batch of 3", COMPLETIONS, completion(prompt=prompts), engine=3)
    client.post("batch of 3, n=2, streamed", COMPLETIONS,
                completion(prompt=prompts, n=2, temperature=0.9, seed=7, **STREAM), engine=6)
    client.post("token ids as prompt", COMPLETIONS, completion(prompt=[5, 6, 7, 8]))
    client.post("echo", COMPLETIONS, completion(echo=True))
    client.post("echo of nothing more", COMPLETIONS, completion(tokens=1, echo=True, logprobs=1))
    client.post("logprobs", COMPLETIONS, completion(logprobs=2))
    client.post("chat logprobs streamed", CHAT, chat(logprobs=True, top_logprobs=2, **STREAM))
    client.post("prompt logprobs", COMPLETIONS, completion(prompt_logprobs=1))
    client.post("stop string", COMPLETIONS, completion(tokens=64, stop=["e", "a", "o"]))
    client.post("stop string streamed", COMPLETIONS, completion(tokens=64, stop=["e", "a", "o"], **STREAM))
    client.post("stop string never met", COMPLETIONS, completion(stop=["never to be seen"]))
    client.post("one token", CHAT, chat(tokens=1))
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}
    client.post("json schema", CHAT, chat(tokens=24, ignore_eos=False, response_format={
        "type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}))
    client.post("choice", CHAT, chat(tokens=24, ignore_eos=False, structured_outputs={"choice": ["yes", "no"]}))
    client.post("beam search", COMPLETIONS, completion(tokens=3, use_beam_search=True, n=2, temperature=1.0), engine=None)


def other_apis(client):
    """/v1/responses and /v1/messages, and routes that make no span."""
    words = {"model": MODEL, "input": "Tell me of the sea", "max_output_tokens": 6, "temperature": 0}
    client.post("responses", "/v1/responses", words)
    client.post("responses streamed", "/v1/responses", {**words, "stream": True})
    message = {"model": MODEL, "messages": HELLO, "max_tokens": 6, "temperature": 0}
    client.post("messages", "/v1/messages", message)
    client.post("messages streamed", "/v1/messages", {**message, "stream": True})
    client.post("chat batch", "/v1/chat/completions/batch", {**chat(), "messages": [HELLO, HELLO]}, engine=2)
    client.post("invocations", "/invocations", chat())
    client.post("tokenize", "/tokenize", {"model": MODEL, "prompt": TEXT}, engine=0, span=False)
    client.post("count tokens", "/v1/messages/count_tokens", message, engine=0, span=False)
    client.post("generative scoring", "/generative_scoring",
                {"model": MODEL, "query": "Is it so?", "items": ["yes it is", "no"], "label_token_ids": [5, 6]}, engine=None)


def callers(client):
    """Trace contexts and request ids that clients choose."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    for number, (flags, label) in enumerate([("01", "sampled"), ("00", "not sampled")]):
        parent = f"00f067aa0ba902b{number}"
        headers = {"traceparent": f"00-{trace}-{parent}-{flags}", "tracestate": "vendor=1"}
        client.post(f"traceparent {label}", CHAT, chat(), headers, trace=trace, parent=parent, sampled=flags == "01")
    client.post("traceparent of rubbish", CHAT, chat(), {"traceparent": "00-zz-yy-01"})
    client.post("x-request-id", CHAT, chat(), {"X-Request-Id": "mine-1"})
    client.post("x-request-id with dashes and digits", COMPLETIONS, completion(prompt=[TEXT, "b"]), {"X-Request-Id": "a-0-1"},
                engine=2)
    together([lambda: client.post("x-request-id twice at once", CHAT, chat(tokens=24), {"X-Request-Id": "twin"})] * 2)
    client.post("x-request-id used again", CHAT, chat(), {"X-Request-Id": "mine-1"})


def leavers(client):
    """Clients that go away."""
    body = json.dumps(completion(tokens=1200, **STREAM)).encode()
    with client.connect() as sock:
        sock.sendall(http_request("POST", COMPLETIONS, body))
        seen = b""
        while seen.count(b"data: ") < 4:
            seen += sock.recv(65536)
    client.say(label="left while streaming", path=COMPLETIONS, status=200, engine=1, span=True, left=True)
    time.sleep(1.5)
    body = json.dumps(completion(tokens=1200)).encode()
    client.raw(http_request("POST", COMPLETIONS, body), wait=0.15, read=False)
    client.say(label="left before the first byte", path=COMPLETIONS, status=None, engine=1, span=True, left=True)
    time.sleep(1.5)
    body = json.dumps(chat(tokens=1200, n=2, temperature=1)).encode()
    client.raw(http_request("POST", CHAT, body), wait=0.15, read=False)
    client.say(label="left with n=2", path=CHAT, status=None, engine=2, span=True, left=True)
    time.sleep(1.5)
    # More than the server runs at once: the last one waits in the engine's queue.
    busy = [lambda: client.post("busy", COMPLETIONS, completion(tokens=200)) for _ in range(client.seats)]
    threads = [threading.Thread(target=one) for one in busy]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    client.raw(http_request("POST", COMPLETIONS, json.dumps(completion(tokens=1200)).encode()), wait=0.3, read=False)
    client.say(label="left while queued", path=COMPLETIONS, status=None, engine=1, span=True, left=True)
    for thread in threads:
        thread.join()
    half = http_request("POST", COMPLETIONS, body)[:-40]
    client.raw(half, wait=0.2, read=False)
    client.say(label="left with half a request sent", path=COMPLETIONS, status=None, engine=0, span=None, left=True)


def connections(client):
    """What HTTP allows on a connection, and what it does not."""
    kept = client.http(60)
    for number in range(3):
        client.post(f"kept alive {number}", CHAT, chat(**(STREAM if number == 1 else {})), connection=kept)
    kept.close()
    body = json.dumps(completion(tokens=4)).encode()
    last = http_request("POST", COMPLETIONS, body, ["Connection: close"])
    seen = client.raw(http_request("POST", COMPLETIONS, body) * 2 + last)
    for part in seen.split(b"HTTP/1.1 ")[1:]:
        record = {"label": "pipelined", "path": COMPLETIONS, "status": int(part[:3]), "engine": 1, "span": True}
        read_body(part.split(b"\r\n\r\n", 1)[1], record)
        client.say(**record)
    long = {**completion(tokens=4), "user": "u" * 300_000}
    client.post("a body of 300 kB", COMPLETIONS, long)
    pieces = [body[i:i + 7] for i in range(0, len(body), 7)]
    chunked = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces) + b"0\r\n\r\n"
    head = http_request("POST", COMPLETIONS, headers=["Transfer-Encoding: chunked", "Content-Type: application/json",
                                                      "Connection: close"])
    with client.connect() as sock:
        sock.sendall(head)
        for start in range(0, len(chunked), 50):
            sock.sendall(chunked[start:start + 50])
            time.sleep(0.002)
        seen = drain(sock)
    record = {"label": "a chunked body", "path": COMPLETIONS, "status": int(seen[9:12]), "engine": 1, "span": True}
    read_body(seen.split(b"\r\n\r\n", 1)[1], record)
    client.say(**record)
    with client.connect() as sock:
        sock.sendall(http_request("POST", COMPLETIONS, body, ["Expect: 100-continue", "Connection: close"])[:-len(body)])
        time.sleep(0.2)
        sock.sendall(body)
        seen = drain(sock)
    last = seen.split(b"HTTP/1.1 ")[-1]
    record = {"label": "expect 100-continue", "path": COMPLETIONS, "status": int(last[:3]), "engine": 1, "span": True}
    read_body(last.split(b"\r\n\r\n", 1)[1], record)
    client.say(**record)
    for method, path in [("HEAD", "/health"), ("OPTIONS", CHAT), ("GET", CHAT), ("GET", "/nowhere"), ("HEAD", CHAT)]:
        seen = client.raw(http_request(method, path, headers=["Connection: close"]))
        client.say(label=f"{method} {path}", path=path, status=int(seen[9:12]), engine=0, span=False)
    client.post("404", "/v1/nothing", chat(), engine=0, span=False)
    client.post("malformed JSON", CHAT, b'{"model": "tiny", "messages": [', engine=0)
    client.post("no JSON object", CHAT, b"[1, 2]", engine=0)
    client.post("temperature below 0", CHAT, chat(temperature=-1), engine=0)
    client.post("a model that is not there", CHAT, chat(model="other"), engine=0)
    client.post("a prompt too long", COMPLETIONS, completion(prompt=[7] * 5000), engine=0)
    client.raw(b"\x16\x03\x01\x02\x00garbage\r\n\r\n" * 3, wait=0.1)
    client.say(label="no HTTP", path="", status=400, engine=0, span=False)


def crowd(client):
    """64 streams at once."""
    together([lambda n=n: client.post(f"stream {n}", CHAT, chat(tokens=10, **STREAM)) for n in range(64)])


def tools(client):
    """Tool calls; the server needs --enable-auto-tool-choice --tool-call-parser hermes."""
    tool = {"type": "function", "function": {"name": "weather", "description": "Weather of a town", "parameters": {
        "type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"], "additionalProperties": False}}}
    named = {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "weather"}}, "ignore_eos": False}
    client.post("named tool", CHAT, chat(tokens=40, **named))
    client.post("named tool streamed", CHAT, chat(tokens=40, **named, **STREAM))
    client.post("required tool", CHAT, chat(tokens=60, **{**named, "tool_choice": "required"}))
    client.post("required tool streamed", CHAT, chat(tokens=60, **{**named, "tool_choice": "required"}, **STREAM))
    client.post("auto", CHAT, chat(**{**named, "tool_choice": "auto"}))


def chunks(client):
    """Prompts longer than a step takes; the server needs --max-num-batched-tokens 64 --enable-chunked-prefill."""
    client.post("300 tokens", COMPLETIONS, completion(prompt=[7 + i % 50 for i in range(300)], tokens=4))
    together([lambda n=n: client.post(f"beside another {n}", COMPLETIONS,
                                      completion(prompt=[n + 7 + i % 50 for i in range(200)], tokens=8, **STREAM)) for n in range(3)])


def speculation(client):
    """Repeating text; the server needs --speculative-config."""
    again = [11, 12, 13, 14, 15, 16] * 12
    client.post("repeating", COMPLETIONS, completion(prompt=again, tokens=40))
    client.post("repeating streamed", COMPLETIONS, completion(prompt=again, tokens=40, **STREAM))
    client.post("repeating, stop string", COMPLETIONS, completion(prompt=again, tokens=60, stop=["e", "a"], **STREAM))
    client.post("repeating, logprobs", COMPLETIONS, completion(prompt=again, tokens=20, logprobs=1))


def pooling(client):
    """What a server with --runner pooling answers."""
    client.post("embeddings", "/v1/embeddings", {"model": MODEL, "input": TEXT})
    client.post("embeddings of 3", "/v1/embeddings", {"model": MODEL, "input": [TEXT, "two", "three"]}, engine=3)
    client.post("embeddings as base64", "/v1/embeddings", {"model": MODEL, "input": TEXT, "encoding_format": "base64"})
    client.post("pooling", "/pooling", {"model": MODEL, "input": TEXT})
    client.post("embed v2", "/v2/embed", {"model": MODEL, "texts": [TEXT, "two"], "embedding_types": ["float"]}, engine=None)
    for path in ["/score", "/v1/score"]:
        client.post(path, path, {"model": MODEL, "text_1": TEXT, "text_2": ["one", "two"]}, engine=None)
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"]:
        client.post(path, path, {"model": MODEL, "query": TEXT, "documents": ["one", "two", "three"]}, engine=None)
    client.post("classify", "/classify", {"model": MODEL, "input": TEXT}, engine=None, span=False)
    client.post("chat on a pooling server", CHAT, chat(), engine=0, span=None)


def mixed(client):
    """A little of everything, for any version and mode."""
    client.post("chat", CHAT, chat())
    client.post("chat streamed", CHAT, chat(**STREAM))
    client.post("completion n=2", COMPLETIONS, completion(n=2, temperature=0.9, seed=7), engine=2)
    client.post("batch of 3", COMPLETIONS, completion(prompt=[TEXT, "Two", "Three"]), engine=3)
    client.post("stop string", COMPLETIONS, completion(tokens=64, stop=["e", "a", "o"], **STREAM))
    client.post("logprobs", COMPLETIONS, completion(logprobs=2))
    client.post("temperature below 0", CHAT, chat(temperature=-1), engine=0)
    together([lambda n=n: client.post(f"together {n}", CHAT, chat(tokens=12, **STREAM)) for n in range(8)])
    with client.connect() as sock:
        sock.sendall(http_request("POST", COMPLETIONS, json.dumps(completion(tokens=1200, **STREAM)).encode()))
        seen = b""
        while seen.count(b"data: ") < 4:
            seen += sock.recv(65536)
    client.say(label="left while streaming", path=COMPLETIONS, status=200, engine=1, span=True, left=True)


def together(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    answers, other_apis, callers, leavers, connections, crowd, tools, chunks, speculation, pooling, mixed)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--seats", type=int, default=16, help="the server's --max-num-seqs (default %(default)s)")
    parser.add_argument("scenario", choices=SCENARIOS)
    options = parser.parse_args()
    client = Client(options.url)
    client.seats = options.seats
    SCENARIOS[options.scenario](client)
    # The last aborts are still on their way.
    time.sleep(2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
