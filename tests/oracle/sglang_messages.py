#!/usr/bin/env python3
"""Writes messages of one SGLang version, made with that version's own classes, and what they say.

    sglang_messages.py VERSION FOLDER_OF_THE_PACKAGE > messages.jsonl

Needs msgspec, numpy, pydantic, pyzmq and torch (any that the version's message classes can be defined with); nothing
of SGLang but four of its files is run, the rest are stand-ins. One JSON object a line: `form` (`pickle` or `msgpack`),
`class`, `hex` (the message as the version's sockets carry it), `says` (its fields by name); or `fields`: a
class's fields in order.
"""
import array
import dataclasses
import importlib.abc
import importlib.machinery
import json
import pathlib
import pickle
import sys
import types

# Files of the package that are run as they are.
REAL = {
    "sglang.srt.managers.io_struct",
    "sglang.srt.sampling.sampling_params",
    "sglang.srt.utils.msgpack_utils",
    "sglang.srt.observability.req_time_stats",
}


class Flag:
    """An environment setting: off."""

    def get(self):
        return None


class Settings:
    def __getattr__(self, name):
        return Flag()


def stand_in(module, name):
    """Something that can be imported, called, subclassed and used as a decorator."""
    if name == "envs":
        return Settings()

    def new(cls, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else object.__new__(cls)

    return Kind(name, (), {"__module__": module, "__new__": new, "__init__": lambda self, *a, **k: None})


class Kind(type):
    """A class of which any member can be named."""

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return None


class Module(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.isupper():
            return 1 << 30
        made = stand_in(self.__name__, name)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ("sglang", "fastapi", "PIL", "outlines", "opentelemetry"):
            return None
        if name in REAL:
            path = self.package.parent / (name.replace(".", "/") + ".py")
            if path.exists():
                return importlib.machinery.ModuleSpec(
                    name, importlib.machinery.SourceFileLoader(name, str(path)), origin=str(path)
                )
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


def load(package):
    """The version's module of message classes."""
    import msgspec

    sys.meta_path.insert(0, Finder(package))
    # The decoder of all classes needs the real types of their fields; nothing is decoded here.
    decoder = msgspec.msgpack.Decoder
    msgspec.msgpack.Decoder = lambda *args, **kwargs: None
    try:
        return importlib.import_module("sglang.srt.managers.io_struct")
    finally:
        msgspec.msgpack.Decoder = decoder


def names(cls):
    """The fields of a class, in order."""
    return list(getattr(cls, "__struct_fields__", None) or [field.name for field in dataclasses.fields(cls)])


class Maker:
    """Makes objects of a version's classes."""

    def __init__(self, version, io):
        self.io = io
        self.version = tuple(int(part) for part in version.split(".post")[0].split("."))
        self.structs = self.version >= (0, 5, 15)

    def make(self, name, **values):
        cls = getattr(self.io, name)
        known = names(cls)
        given = {key: value for key, value in values.items() if key in known}
        for key in known:
            if key not in given and not self.has_default(cls, key):
                given[key] = None
        return cls(**given)

    def has_default(self, cls, key):
        if self.structs:
            import msgspec

            field = next(f for f in msgspec.structs.fields(cls) if f.name == key)
            return field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
        field = next(f for f in dataclasses.fields(cls) if f.name == key)
        return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING

    def numbers(self, *values):
        """Token ids, as the version's processes hand them over."""
        return array.array("q", values) if self.structs else list(values)

    def sampling(self, **values):
        module = importlib.import_module("sglang.srt.sampling.sampling_params")
        made = module.SamplingParams(**values)
        for name in vars(made) if hasattr(made, "__dict__") else names(type(made)):
            # What a stand-in made of it.
            if isinstance(type(getattr(made, name)), Kind):
                setattr(made, name, None)
        return made

    def times(self, *moments):
        """`time_stats` of requests (0.5.10 on): what `SchedulerReqTimeStats.__getstate__` gives with metrics on."""
        if self.version < (0, 5, 10):
            return None
        module = importlib.import_module("sglang.srt.observability.req_time_stats")
        made = []
        for queued in moments:
            stats = module.SchedulerReqTimeStats.__new__(module.SchedulerReqTimeStats)
            stats.__dict__.update(
                enable_metrics=True,
                wait_queue_entry_time=queued,
                forward_entry_time=queued + 0.25,
                prefill_finished_time=queued + 0.5,
                prefill_run_batch_start_time=queued + 0.3,
                prefill_run_batch_end_time=queued + 0.4,
                has_timing_data=True,
                queue_duration_s=0.25,
                _storage_prefetch_wait=None,
                _storage_staging_wait=None,
                storage_prefetch_wait_s=0.0,
                storage_staging_wait_s=0.0,
            )
            made.append(stats)
        return made

    def wrapped(self, value, msgpack):
        return self.io.PickleWrapper(pickle.dumps(value)) if msgpack and value is not None else value


def stats(count):
    """A number a request, when it is about speculation."""
    return [7 * number for number in range(1, count + 1)]


def output(maker, kind, msgpack):
    """An output message for two requests, the second one at its end."""
    embedding = "Embedding" in kind
    values = dict(
        rids=["a1", "HEALTH_CHECK_b2"],
        finished_reasons=[None, {"type": "stop", "matched": 2}],
        finished_reason=[None, {"type": "length", "length": 9}],
        output_strs=["secret words", "more of them"],
        decoded_texts=["", "secret words"],
        decode_ids=[maker.numbers(5, 6), maker.numbers(7)],
        read_offsets=[1, 0],
        output_ids=[maker.numbers(6), maker.numbers(7)],
        skip_special_tokens=[True, True],
        spaces_between_special_tokens=[True, True],
        no_stop_trim=[False, False],
        prompt_tokens=[10, 300],
        completion_tokens=[1, 70000],
        cached_tokens=[4, 256],
        reasoning_tokens=[0, 3],
        retraction_counts=[0, 2],
        spec_verify_ct=stats(2),
        spec_accepted_tokens=stats(2),
        spec_num_correct_drafts=stats(2),
        queue_time=[0.125, None],
        forward_entry_time=[2234.5, 2235.75],
        prefill_finished_ts=[1796049991.5, None],
        dp_ranks=[1, None],
        embeddings=[[0.5, 1.5], [2.5]],
        time_stats=maker.wrapped(maker.times(100.25, 200.5), msgpack),
    )
    if "meta_info" in names(getattr(maker.io, kind)):
        counts = ("prompt_tokens", "cached_tokens") if embedding else ("prompt_tokens", "completion_tokens", "cached_tokens")
        values["meta_info"] = [{key: values[key][at] for key in counts} for at in range(2)]
    if "load" in names(getattr(maker.io, kind)):
        name = "GetLoadReqOutput" if hasattr(maker.io, "GetLoadReqOutput") else "GetLoadsReqOutput"
        load = dict(dp_rank=1, num_reqs=5, num_running_reqs=3, num_waiting_reqs=2, num_tokens=640, num_used_tokens=640)
        values["load"] = maker.make(name, **load)
    return maker.make(kind, **values), values


def request(maker, rid, msgpack, embedding=False):
    name = "TokenizedEmbeddingReqInput" if embedding else "TokenizedGenerateReqInput"
    values = dict(
        rid=rid,
        input_text="secret words",
        input_ids=maker.numbers(*range(300)),
        sampling_params=maker.sampling(max_new_tokens=33, temperature=0.5, top_p=0.75, top_k=40, n=2, stop="x"),
        return_logprob=True,
        logprob_start_len=-1,
        top_logprobs_num=0,
        stream=True,
        priority=-3,
        bootstrap_room=2**40,
        data_parallel_rank=1,
        routed_dp_rank=1,
        lora_path="adapter",
        lora_id="adapter",
        lora_name="adapter",
    )
    return maker.make(name, **values), values


def messages(maker, msgpack):
    """Every kind of message: class, object, what it says."""
    made, values = request(maker, "r1", msgpack)
    yield type(made).__name__, made, values
    made, values = request(maker, "e1", msgpack, embedding=True)
    yield type(made).__name__, made, values
    if hasattr(maker.io, "BatchTokenizedGenerateReqInput"):
        batch = [request(maker, rid, msgpack)[0] for rid in ("r2", "r3")]
        yield "BatchTokenizedGenerateReqInput", maker.make("BatchTokenizedGenerateReqInput", batch=batch), {
            "rids": ["r2", "r3"]
        }
    for name in ("BatchTokenIDOut", "BatchStrOut", "BatchEmbeddingOut"):
        name = name if hasattr(maker.io, name) else name + "put"
        yield name, *output(maker, name, msgpack)
    reason = {"type": "abort", "message": "secret words", "status_code": 503, "err_type": None}
    yield "AbortReq", maker.make("AbortReq", rid="r1", finished_reason=reason), {"rid": "r1"}
    if "abort_all" in names(maker.io.AbortReq):
        yield "AbortReq", maker.make("AbortReq", rid="", abort_all=True), {"rid": "", "abort_all": True}


def encode(maker, made, msgpack):
    if msgpack:
        return maker.io.msgpack_encode(made)
    # `send_pyobj`: the default protocol, the highest from 0.5.15 on.
    return pickle.dumps(made, pickle.HIGHEST_PROTOCOL if maker.structs else pickle.DEFAULT_PROTOCOL)


def plain(made, says):
    """The figures that the message holds: what its class has a field for, and what can be written as JSON."""
    known = {*names(type(made)), "rids"}
    if "meta_info" in known:
        known |= set(says["meta_info"][0])
    return {key: value for key, value in says.items() if key in known and is_json(value)}


def is_json(value):
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def main(version, package):
    io = load(pathlib.Path(package))
    maker = Maker(version, io)
    fields = lambda msgpack: sorted({type(made).__name__ for _, made, _ in messages(maker, msgpack)})
    for msgpack in [False, True] if maker.structs else [False]:
        for name, made, says in messages(maker, msgpack):
            line = {"form": "msgpack" if msgpack else "pickle", "class": name, "says": plain(made, says)}
            if "time_stats" in names(type(made)) and says.get("time_stats"):
                line["says"]["wait_queue_entry_time"] = [100.25, 200.5]
            print(json.dumps({**line, "hex": encode(maker, made, msgpack).hex()}))
    if maker.structs:
        for name in fields(True):
            print(json.dumps({"fields": names(getattr(io, name)), "class": name}))
        print(json.dumps({"fields": names(type(maker.sampling())), "class": "SamplingParams"}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
