#!/usr/bin/env python3
"""Send requests to a vLLM or SGLang server and write down what a client sees of each (standard library only).

One JSON line per request on stdout, in order of completion; a last line `{"summary": ...}`; a sentence on stderr.
Times are seconds; `sent` is CLOCK_MONOTONIC, so it can be laid over what a profiler on this machine saw.
"""
import argparse
import http.client
import itertools
import json
import random
import signal
import ssl
import statistics
import sys
import threading
import time
import urllib.parse

WORDS = "import os sys def return class self value path name list dict for while with open read write None True".split()
SHARED = " ".join(WORDS * 6)
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
EMBEDDINGS = "/v1/embeddings"


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


class Request:
    """What to send and how: `abort_after` closes the connection after so many events."""

    def __init__(self, kind, path, body, abort_after=None, headers=None):
        self.kind, self.path, self.body = kind, path, body
        self.abort_after, self.headers = abort_after, headers or {}

    @property
    def stream(self):
        return bool(self.body.get("stream"))


def chat(rng, options, **more):
    body = {"messages": [{"role": "user", "content": words(rng, 4, 48)}], "max_tokens": options.max_tokens,
            "temperature": 0, "ignore_eos": True, **more}
    return Request("chat", CHAT, body)


def completion(rng, options, **more):
    body = {"prompt": words(rng, 4, 48), "max_tokens": options.max_tokens, "temperature": 0, "ignore_eos": True, **more}
    return Request("completion", COMPLETIONS, body)


def abort(rng, options):
    request = completion(rng, options, stream=True, max_tokens=max(64, 8 * options.max_tokens))
    request.abort_after = 3
    return request


def traced(rng, options):
    request = chat(rng, options, **STREAM)
    request.headers["traceparent"] = f"00-{rng.getrandbits(128) | 1:032x}-{rng.getrandbits(64) | 1:016x}-01"
    return request


def parallel(rng, options):
    return completion(rng, options, n=2, temperature=0.8, seed=rng.randrange(1000))


def batch(rng, options):
    return completion(rng, options, prompt=[words(rng, 4, 24) for _ in range(3)])


def generate(rng, options, text=None, **more):
    """SGLang's native API. `more` goes into the sampling parameters; `stream` and `rid` beside them."""
    outer = {name: more.pop(name) for name in ("stream", "rid") if name in more}
    sampling = {"max_new_tokens": options.max_tokens, "temperature": 0, "ignore_eos": True, **more}
    return Request("generate", GENERATE, {"text": text or words(rng, 4, 48), "sampling_params": sampling, **outer})


def embed(rng, options, count=1):
    """Of a server that was started with `--is-embedding`, and has nothing else."""
    texts = [words(rng, 4, 48) for _ in range(count)]
    return Request("embed", EMBEDDINGS, {"input": texts if count > 1 else texts[0]})


def tools(rng, options):
    """A function that the model has to call: its arguments are forced by the schema."""
    parameters = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}, "required": ["n"]}
    function = {"name": "count", "description": "counts", "parameters": parameters}
    return chat(rng, options, tools=[{"type": "function", "function": function}], tool_choice="required",
                ignore_eos=False, max_tokens=96, stream=rng.random() < 0.5)


def abort_generate(rng, options):
    request = generate(rng, options, stream=True, max_new_tokens=max(64, 8 * options.max_tokens))
    request.abort_after = 3
    return request


# What arrived so far, of all requests: what `--ticks` writes.
progress = {"tokens": 0, "requests": 0}
progress_lock = threading.Lock()


def count(what):
    with progress_lock:
        progress[what] += 1


def tick(path):
    """A line each tenth of a second, so that a benchmark can take any stretch of the load by itself."""
    with open(path, "w", encoding="utf-8") as lines:
        while True:
            print(json.dumps({"at": time.monotonic(), **progress}), file=lines, flush=True)
            time.sleep(0.1)


STREAM = {"stream": True, "stream_options": {"include_usage": True}}

# How each kind is made, and its weight in `mixed`.
KINDS = {
    "chat": (lambda r, o: chat(r, o), 3),
    "chat-stream": (lambda r, o: chat(r, o, **STREAM), 4),
    "completion": (lambda r, o: completion(r, o), 2),
    "completion-stream": (lambda r, o: completion(r, o, **STREAM), 3),
    "parallel": (parallel, 1),
    "batch": (batch, 1),
    "stop": (lambda r, o: completion(r, o, stop=[" the", "e"], stream=r.random() < 0.5), 1),
    "logprobs": (lambda r, o: completion(r, o, logprobs=2), 1),
    "chat-logprobs": (lambda r, o: chat(r, o, logprobs=True, top_logprobs=2, **STREAM), 1),
    "abort": (abort, 1),
    "bad": (lambda r, o: completion(r, o, temperature=-3), 1),
    "prefix": (lambda r, o: completion(r, o, prompt=SHARED + " " + words(r, 2, 6), **STREAM), 2),
    "long": (lambda r, o: completion(r, o, prompt=words(r, 300, 400)), 1),
    "traced": (traced, 1),
}

# What only SGLang has.
SGLANG_KINDS = {
    "generate": (lambda r, o: generate(r, o), 2),
    "generate-stream": (lambda r, o: generate(r, o, stream=True), 2),
    "generate-batch": (lambda r, o: generate(r, o, [words(r, 4, 24) for _ in range(3)]), 1),
    "generate-parallel": (lambda r, o: generate(r, o, n=2, temperature=0.8), 1),
    "generate-stop": (lambda r, o: generate(r, o, stop=[" the", "e"], stream=r.random() < 0.5), 1),
    "generate-rid": (lambda r, o: generate(r, o, rid=f"client-{r.getrandbits(48):012x}"), 1),
    "generate-long": (lambda r, o: generate(r, o, words(r, 300, 400)), 1),
    "generate-abort": (abort_generate, 1),
    # Not in `mixed`: before 0.5.12 or so the CPU has no grammar masks, and a forced call ends the scheduler.
    "tools": (tools, 0),
    "embed": (lambda r, o: embed(r, o), 0),
    "embed-batch": (lambda r, o: embed(r, o, count=3), 0),
}


def kinds(options):
    """The kinds that the server's engine has."""
    return KINDS | SGLANG_KINDS if options.engine == "sglang" else KINDS


def choose(rng, options):
    known = kinds(options)
    names = list(known) if options.mode == "mixed" else options.mode.split(",")
    # A kind that was asked for by its name alone comes whatever its weight.
    weights = [known[name][1] if options.mode == "mixed" else known[name][1] or 1 for name in names]
    kind = rng.choices(names, weights)[0]
    request = known[kind][0](rng, options)
    request.kind = kind
    if request.path != GENERATE:
        request.body["model"] = options.model
    return request


def has_token(event):
    """Whether an event carries output (chat's first one carries only the role)."""
    if event.get("meta_info"):
        return bool(event.get("text"))
    for choice in event.get("choices") or []:
        delta = choice.get("delta")
        if choice.get("text") or (delta and (delta.get("content") or delta.get("reasoning_content"))):
            return True
    return False


def native(record, answers):
    """What SGLang's native API says of its requests: one, or several for a batch or parallel samples."""
    infos = [answer["meta_info"] for answer in answers if answer.get("meta_info")]
    record["id"] = infos[0]["id"] if len(infos) == 1 else [info["id"] for info in infos]
    record["usage"] = {name: sum(info.get(name) or 0 for info in infos)
                       for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
    record["finish"] = [(info.get("finish_reason") or {}).get("type") for info in infos]


def read_stream(answer, request, record, start):
    arrivals = []
    for line in answer:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        now, event = time.monotonic(), json.loads(line[6:])
        record["events"] = record.get("events", 0) + 1
        if event.get("meta_info"):
            native(record, [event])
        record["id"] = record.get("id") or event.get("id")
        if has_token(event):
            arrivals.append(now)
            count("tokens")
        if event.get("usage"):
            record["usage"] = event["usage"]
        if any(c.get("finish_reason") for c in event.get("choices") or []):
            record["finish"] = [c.get("finish_reason") for c in event["choices"]]
        if request.abort_after and record["events"] >= request.abort_after:
            record["aborted"] = True
            answer.close()  # the socket closes with the last that holds it
            break
    if arrivals:
        record["ttft"] = round(arrivals[0] - start, 6)
        gaps = [b - a for a, b in zip(arrivals, arrivals[1:])]
        record["itl"] = round(statistics.fmean(gaps), 6) if gaps else None


def read_whole(answer, request, record):
    text = answer.read()
    try:
        body = json.loads(text)
    except ValueError:
        record["body"] = text[:200].decode(errors="replace")
        return
    if request.path == GENERATE and answer.status == 200:
        return native(record, body if isinstance(body, list) else [body])
    record["id"], record["usage"] = body.get("id"), body.get("usage")
    record["finish"] = [c.get("finish_reason") for c in body.get("choices") or []]
    if answer.status != 200:
        record["error"] = body


def connect(options, to=None):
    host, port = to or (options.host, options.port)
    if options.tls:
        return http.client.HTTPSConnection(host, port, timeout=options.timeout, context=options.tls)
    return http.client.HTTPConnection(host, port, timeout=options.timeout)


def prefill(options, request, headers):
    """What a proxy does before the decode server gets the request: the other one prefills it, and says where its KV cache is."""
    ask = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
           "remote_host": None, "remote_port": None}
    body = {**request.body, "max_tokens": 1, "stream": False, "kv_transfer_params": ask}
    body.pop("stream_options", None)
    connection = connect(options, options.prefill)
    connection.request("POST", request.path, json.dumps(body), headers)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    # Connectors that go through files tell nothing.
    if told.get("kv_transfer_params"):
        request.body["kv_transfer_params"] = told["kv_transfer_params"]
    return told.get("id")


def send(options, number, request):
    headers = {"Content-Type": "application/json", "X-Request-Id": f"load-{options.seed}-{number}", **request.headers}
    connection = connect(options)
    record = {"n": number, "kind": request.kind, "path": request.path, "stream": request.stream,
              "request_id": headers["X-Request-Id"], "traceparent": headers.get("traceparent")}
    start = time.monotonic()
    record["sent"] = round(start, 6)
    try:
        if options.prefill:
            record["prefill_id"] = prefill(options, request, headers)
        connection.request("POST", request.path, json.dumps(request.body), headers)
        answer = connection.getresponse()
        record["status"] = answer.status
        if request.stream and answer.status == 200:
            read_stream(answer, request, record, start)
        else:
            read_whole(answer, request, record)
    except (OSError, http.client.HTTPException) as error:
        record["failed"] = repr(error)
    record["e2e"] = round(time.monotonic() - start, 6)
    connection.close()
    return record


def served_model(options):
    connection = connect(options)
    connection.request("GET", "/v1/models")
    return json.load(connection.getresponse())["data"][0]["id"]


def summarize(records, wall):
    def quantiles(values):
        values = sorted(v for v in values if v is not None)
        if not values:
            return None
        at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
        return {"mean": round(statistics.fmean(values), 6), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99)}

    usage = [r["usage"] for r in records if r.get("usage")]
    output = sum(u.get("completion_tokens") or 0 for u in usage)
    return {
        "requests": len(records),
        "failed": sum("failed" in r for r in records),
        "aborted": sum(bool(r.get("aborted")) for r in records),
        "rejected": sum(r.get("status", 200) != 200 for r in records),
        "seconds": round(wall, 3),
        "prompt_tokens": sum(u.get("prompt_tokens") or 0 for u in usage),
        "output_tokens": output,
        "output_tokens_per_s": round(output / wall, 2) if wall > 0 else 0,
        "ttft": quantiles(r.get("ttft") for r in records),
        "itl": quantiles(r.get("itl") for r in records),
        "e2e": quantiles(r["e2e"] for r in records if r.get("status") == 200 and not r.get("aborted")),
    }


def drive(options):
    numbers, records, lock = itertools.count(), [], threading.Lock()
    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    end = time.monotonic() + options.duration if options.duration else None

    def client():
        while not stop.is_set() and (end is None or time.monotonic() < end):
            with lock:
                number = next(numbers)
            if options.requests and number >= options.requests:
                return
            # Seeded by its number, not its thread: the same requests at any concurrency.
            record = send(options, number, choose(random.Random(f"{options.seed}-{number}"), options))
            count("requests")
            with lock:
                records.append(record)
                if not options.quiet:
                    print(json.dumps(record), flush=True)
            stop.wait(options.pause)

    if options.ticks:
        threading.Thread(target=tick, args=(options.ticks,), daemon=True).start()
    start = time.monotonic()
    clients = [threading.Thread(target=client, daemon=True) for _ in range(options.concurrency)]
    for thread in clients:
        thread.start()
    for thread in clients:
        while thread.is_alive():
            thread.join(0.2)
    return records, time.monotonic() - start


def arguments():
    parser = argparse.ArgumentParser(prog="load", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default %(default)s)")
    parser.add_argument("--prefill-url", metavar="URL", help="prefill there first, as a proxy of two servers does (vLLM)")
    parser.add_argument("--model", help="default: the first that the server names")
    parser.add_argument("--engine", choices=["vllm", "sglang"], default="vllm", help="(default %(default)s)")
    parser.add_argument("--mode", default="mixed", help="mixed, or kinds joined by commas: " + ", ".join(KINDS)
                        + "; SGLang only: " + ", ".join(SGLANG_KINDS))
    parser.add_argument("-n", "--requests", type=int, default=0, help="stop after so many")
    parser.add_argument("-d", "--duration", type=float, default=0, help="stop after so many seconds")
    parser.add_argument("-c", "--concurrency", type=int, default=4, help="requests at once (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=24, help="output tokens of each (default %(default)s)")
    parser.add_argument("--pause", type=float, default=0, help="seconds each client rests after a request")
    parser.add_argument("--seed", type=int, default=0, help="the same seed sends the same requests")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one request (default %(default)s)")
    parser.add_argument("--ticks", metavar="FILE", help="write what arrived so far to it, each tenth of a second")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the summary line")
    options = parser.parse_args()
    unknown = [m for m in options.mode.split(",") if m != "mixed" and m not in kinds(options)]
    if unknown:
        parser.error(f"no such mode: {', '.join(unknown)}")
    if not options.requests and not options.duration:
        options.requests = 32
    url = urllib.parse.urlsplit(options.url)
    other = options.prefill_url and urllib.parse.urlsplit(options.prefill_url)
    options.prefill = other and (other.hostname, other.port or 80)
    options.host, options.port = url.hostname, url.port or 80
    # Servers under test sign their certificates themselves.
    options.tls = ssl._create_unverified_context() if url.scheme == "https" else None
    return options


def main():
    options = arguments()
    try:
        options.model = options.model or served_model(options)
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"{options.url} does not answer /v1/models: {error}")
    records, wall = drive(options)
    summary = summarize(records, wall)
    print(json.dumps({"summary": summary}), flush=True)
    print(f"{summary['requests']} requests in {wall:.1f} s, {summary['output_tokens_per_s']:.0f} output tokens/s, "
          f"{summary['rejected']} rejected, {summary['aborted']} aborted, {summary['failed']} failed", file=sys.stderr)
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
