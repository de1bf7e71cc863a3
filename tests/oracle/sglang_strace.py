#!/usr/bin/env python3
"""Turns what strace saw of a SGLang server into a recording for `cargo xtask captures import`.

    sglang_strace.py DATE OFFSET FILE... > sglang-VERSION.jsonl

The files are those of `strace -ff -tt -T -xx -yy -s 1000000 -e trace=read,write,readv,writev,sendto,recvfrom,sendmsg,recvmsg
-p PID ..`, one a thread, named by the thread's id. DATE is the day they are of (UTC), OFFSET wall time less
`CLOCK_MONOTONIC` in seconds, which SGLang's own messages tell (`diff_realtime_monotonic`). Threads belong together by
what they say: who sends requests is the frontend, who receives them the scheduler. The detokenizer is left out.
"""
import datetime
import json
import re
import sys

CALL = re.compile(r"(\d\d:\d\d:\d\d\.\d+) (\w+)\((\d+)<(.*)$")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
RESULT = re.compile(r"\) = (\d+)(?: <([\d.]+)>)?$")
REPORT = re.compile(rb"(Prefill|Decode) batch")


def calls(path):
    """The calls of a thread that moved bytes: time of day, spent, name, descriptor, what it is, length, bytes."""
    for line in open(path, errors="replace"):
        call, result = CALL.match(line), RESULT.search(line.rstrip("\n"))
        if not call or not result:
            continue
        at, name, fd, rest = call.groups()
        what, _, args = rest.partition(">, ")
        data = b"".join(bytes.fromhex(text.replace("\\x", "")) for text in TEXT.findall(args))
        yield at, float(result.group(2) or 0), name, int(fd), what, int(result.group(1)), data


def role(path):
    """Who a thread belongs to."""
    for _, _, name, fd, what, _, data in calls(path):
        requests = b"TokenizedGenerateReqInput" in data
        outputs = re.search(rb"Batch(Str|TokenID)Out", data)
        if what.startswith("TCP") or (name == "sendto" and requests):
            return "frontend"
        if (name == "recvfrom" and requests) or (fd == 2 and REPORT.search(data)):
            return "scheduler"
        if outputs:
            kind = outputs.group(1)
            if name == "sendto":
                return "scheduler" if kind == b"TokenID" else "detokenizer"
            return "detokenizer" if kind == b"TokenID" else "frontend"
    return None


def ends(what, fd):
    """Kind of socket and its two ends."""
    found = re.match(r"(TCP|UNIX-STREAM):\[(.*?)->([^\],]*)", what)
    if found:
        kind = "tcp" if found.group(1) == "TCP" else "unix"
        return {"sock": kind, "local": found.group(2), "peer": found.group(3)}
    return {"sock": "log", "local": "", "peer": ""} if fd == 2 else None


def main(date, offset, paths):
    midnight = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.timezone.utc).timestamp()
    roles = {path: role(path) for path in paths}
    pids = {name: min(int(path.rsplit(".", 1)[1]) for path in paths if roles[path] == name) for name in set(roles.values()) if name}
    lines = []
    for path in paths:
        if roles[path] not in ("frontend", "scheduler"):
            continue
        for at, spent, name, fd, what, moved, data in calls(path):
            socket = ends(what, fd)
            if not socket or (fd == 2 and not REPORT.search(data)) or moved == 0:
                continue
            hours, minutes, seconds = at.split(":")
            began = midnight + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
            tid = int(path.rsplit(".", 1)[1])
            line = {"t": round(began + spent - offset, 9), "dt": spent, "pid": pids[roles[path]], "tid": tid}
            line |= {"comm": roles[path], "call": name, "fd": fd, **socket, "n": moved, "hex": data.hex()}
            lines.append(line)
    for line in sorted(lines, key=lambda line: line["t"]):
        print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
