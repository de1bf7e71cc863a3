#!/usr/bin/env python3
"""Says what the messages of a recording of SGLang (see sglang_strace.py) hold, as CPython's unpickler and msgspec read it.

    sglang_says.py sglang-VERSION.jsonl > VERSION.says.jsonl

One JSON object a message, in order: who moved it, which way, its class, and the fields the tests hold the decoder against.
Messages in msgpack are read by the positions of 0.5.23, written down here by hand.
"""
import io
import json
import pickle
import sys

# Position of a field in its array, the class's name being at 0 (0.5.23).
POSITIONS = {
    "TokenizedGenerateReqInput": {"rid": 1, "input_ids": 4, "sampling_params": 8, "stream": 13},
    "SamplingParams": {"max_new_tokens": 0, "temperature": 4, "top_p": 5, "top_k": 6},
    "BatchTokenIDOutput": {
        "rids": 1, "finished_reasons": 3, "prompt_tokens": 11, "completion_tokens": 13, "cached_tokens": 14, "time_stats": 41,
    },
    "BatchStrOutput": {
        "rids": 1, "finished_reasons": 3, "prompt_tokens": 6, "completion_tokens": 7, "cached_tokens": 9, "time_stats": 36,
    },
}
COLUMNS = ["rids", "finished_reasons", "prompt_tokens", "completion_tokens", "cached_tokens"]
TIMES = ["wait_queue_entry_time", "forward_entry_time", "prefill_finished_time", "diff_realtime_monotonic"]


class Stand:
    """An instance of any class: its attributes."""

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        self.__dict__.update(state)


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "array":
            return super().find_class(module, name)
        if (module, name) == ("msgspec._utils", "rebuild"):
            return self.rebuild
        return type(name, (Stand,), {})

    def rebuild(self, cls, fields):
        made = cls()
        made.__dict__.update(fields)
        return made


def unpickle(data):
    return Unpickler(io.BytesIO(data)).load()


def message(data):
    """Class and fields of a message."""
    if data[:1] == b"\x80":
        made = unpickle(data)
        fields = dict(made.__dict__)
        if "sampling_params" in fields:
            fields["sampling_params"] = fields["sampling_params"].__dict__
        return type(made).__name__, fields
    import msgspec

    array = msgspec.msgpack.decode(data, ext_hook=lambda code, it: [0] * ((len(it) - 6) // 8))
    fields = {name: array[at] for name, at in POSITIONS[array[0]].items()}
    if "sampling_params" in fields:
        fields["sampling_params"] = {k: fields["sampling_params"][at] for k, at in POSITIONS["SamplingParams"].items()}
    if "time_stats" in fields:
        fields["time_stats"] = unpickle(fields["time_stats"][1])
    return array[0], fields


def says(name, fields):
    if name == "TokenizedGenerateReqInput":
        params = {key: fields["sampling_params"][key] for key in POSITIONS["SamplingParams"]}
        return {"rid": fields["rid"], "prompt_tokens": len(fields["input_ids"]), "stream": fields["stream"], **params}
    told = {key: fields[key] for key in COLUMNS}
    told["finished_reasons"] = [reason and reason["type"] for reason in fields["finished_reasons"]]
    if fields.get("time_stats"):
        told |= {key: [getattr(stats, key, None) for stats in fields["time_stats"]] for key in TIMES}
    told |= {key: fields[key] for key in ("queue_time", "forward_entry_time") if fields.get(key)}
    if fields.get("load"):
        load = fields["load"].__dict__
        told["load"] = {"running": load["num_reqs"] - load["num_waiting_reqs"], "queued": load["num_waiting_reqs"]}
    return told


def main(path):
    for line in open(path):
        call = json.loads(line)
        if call["sock"] != "unix":
            continue
        data = bytes.fromhex(call["hex"])
        # One frame a call, whole: flags, length, body.
        body = data[9:] if data[0] & 2 else data[2:]
        name, fields = message(body)
        way = "sent" if call["call"] == "sendto" else "received"
        print(json.dumps({"by": call["comm"], "way": way, "class": name, **says(name, fields)}))


if __name__ == "__main__":
    main(sys.argv[1])
