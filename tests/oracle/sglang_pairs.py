#!/usr/bin/env python3
"""Writes what a prefill node's and a decode node's `SchedulerReqTimeStats` hold and trace, of the SGLang that is installed.

    sglang_pairs.py > pairs-VERSION.txt

Run it with an SGLang's own Python. The class is the real one; its methods are called in the order in which the nodes'
schedulers call them (`disaggregation/prefill.py`, `decode.py`), at moments given here; what it would trace is written down in
place of being sent. Lines: `VERSION NODE set ATTRIBUTE SECONDS` for what each call changed, in order, and after them
`VERSION NODE stage NAME BEGIN END` (nanoseconds).
"""
import importlib.metadata

from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.observability import req_time_stats

VERSION = importlib.metadata.version("sglang")
# Method, and when it is called: milliseconds after a second. Two prefill chunks; two decode steps.
PREFILL = [
    ("set_scheduler_recv_time", 4),
    ("set_prefill_bootstrap_queue_entry_time", 5),
    ("set_wait_queue_entry_time", 7),
    ("set_forward_entry_time", 10),
    ("set_last_chunked_prefill_finish_time", 15),
    ("set_prefill_finished_time", 20),
    ("set_prefill_transfer_queue_entry_time", 21),
    ("set_prefill_kv_transfer_finish_time", 30),
    ("set_completion_time", 31),
]
DECODE = [
    ("set_scheduler_recv_time", 4),
    ("set_decode_prealloc_queue_entry_time", 5),
    ("set_decode_transfer_queue_entry_time", 6),
    ("set_wait_queue_entry_time", 8),
    ("set_forward_entry_time", 10),
    ("set_decode_prebuilt_finish_time", 12),
    ("set_last_decode_finish_time", 18),
    ("set_last_decode_finish_time", 24),
    ("set_completion_time", 25),
]


class Traced:
    """In place of `TraceReqContext`."""

    tracing_enable = True
    trace_level = 3

    def __init__(self):
        self.open, self.stages, self.now = {}, [], 0

    def trace_slice_start(self, name, level, ts=None, *args, **kwargs):
        self.open[name] = ts

    def trace_slice_end(self, name, level, ts=None, *args, **kwargs):
        self.stages.append((name, self.open.pop(name), ts))

    def trace_slice(self, slice, *args, **kwargs):
        self.stages.append((slice.slice_name, slice.start_time_ns, slice.end_time_ns))

    def abort(self, *args, **kwargs):
        # What is still open ends with the request.
        self.stages += [(name, begun, self.now) for name, begun in self.open.items()]
        self.open = {}

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def play(node, mode, calls):
    stats = req_time_stats.SchedulerReqTimeStats(disagg_mode=mode)
    stats.trace_ctx = Traced()
    for method, at in calls:
        ts = 1 + at / 1000
        stats.trace_ctx.now = req_time_stats.convert_time_to_realtime_ns(ts)
        before = dict(vars(stats))
        getattr(stats, method)(ts)
        for name, value in vars(stats).items():
            if name.endswith("_time") and value != before.get(name):
                print(VERSION, node, "set", name, value)
    for name, begun, ended in sorted(stats.trace_ctx.stages, key=lambda stage: stage[1:]):
        print(VERSION, node, "stage", name, begun, ended)


# As if it were no offset between the clocks: moments are kept as they are.
req_time_stats.calibrate_time_diff = lambda *args: None
for name in [name for name in vars(req_time_stats) if name.endswith("diff_realtime_monotonic")]:
    setattr(req_time_stats, name, 0.0)
play("prefill", DisaggregationMode.PREFILL, PREFILL)
play("decode", DisaggregationMode.DECODE, DECODE)
