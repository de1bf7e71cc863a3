#!/usr/bin/env python3
"""Writes agent/core/src/wire/pickle/oracle.txt: pickles of all protocols and what CPython's unpickler makes of them.

One line a pickle: `hex<TAB>dump`, the dump as the test prints it. Classes are stand-ins that write down how they were
called, so that CPython executes nothing either.
"""
import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import pickle
import pickletools
import random
import struct
import sys
import uuid


class Made(type):
    """A class of the pickle: says how its instances are made."""

    def __call__(cls, *args, **kwargs):
        made = cls.__new__(cls, *args, **kwargs)
        made.__dict__["made"] = "call"
        return made


class Persistent:
    def __init__(self, key):
        self.key = key


class Buffer(bytes):
    """A buffer that travels outside the pickle."""

    number = 0


def stand_in(module, name):
    def new(cls, *args, **kwargs):
        made = object.__new__(cls)
        made.__dict__.update(made="new", args=args, kwargs=kwargs, state=None, list=[], pairs=[])
        return made

    def setstate(self, state):
        self.__dict__["state"] = (state,)

    def setitem(self, key, value):
        self.pairs.append((key, value))

    members = {
        "__new__": new,
        "__setstate__": setstate,
        "__setitem__": setitem,
        "append": lambda self, item: self.list.append(item),
        "extend": lambda self, items: self.list.extend(items),
        "add": lambda self, item: self.list.append(item),
        "names": (module, name),
    }
    return Made("stand_in", (), members)


class Unpickler(pickle.Unpickler):
    def __init__(self, data, buffers):
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.classes = {}

    def find_class(self, module, name):
        return self.classes.setdefault((module, name), stand_in(module, name))

    def persistent_load(self, key):
        return Persistent(key)


class Dump:
    """A value as one line: what is shared or a circle is named by a number."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.seen = {}

    def __call__(self, value):
        kind = type(value)
        if value is None:
            return "N"
        if kind is bool:
            return "T" if value else "F"
        if kind is int:
            return self.number(value)
        if kind is float:
            return "f" + struct.pack(">d", value).hex()
        if kind is str:
            return "s" + value.encode("utf-8", "surrogatepass").hex()
        if kind is bytes:
            return "b" + value.hex()
        if kind is bytearray:
            return "a" + value.hex()
        if kind is Buffer:
            return f"B{value.number}"
        if kind is Made:
            return "g" + ":".join(value.names)
        if kind is tuple:
            return "(" + ",".join(map(self, value)) + ")"
        if kind is frozenset:
            return "z<" + ",".join(sorted(map(self, value))) + ">"
        return self.shared(value)

    def number(self, value):
        if -(2**63) <= value < 2**63:
            return f"i{value}"
        if self.protocol < 2:
            return f"d{value}"
        return "l" + value.to_bytes((value.bit_length() >> 3) + 1, "little", signed=True).hex()

    def shared(self, value):
        if id(value) in self.seen:
            return f"^{self.seen[id(value)]}"
        number = self.seen[id(value)] = len(self.seen)
        return f"@{number}" + self.container(value)

    def container(self, value):
        kind = type(value)
        if kind is list:
            return "[" + ",".join(map(self, value)) + "]"
        if kind is dict:
            return "{" + ",".join(self(key) + "=" + self(item) for key, item in value.items()) + "}"
        if kind is set:
            return "<" + ",".join(sorted(map(self, value))) + ">"
        if kind is Persistent:
            return f"!id({self(value.key)})"
        return self.instance(value)

    def instance(self, value):
        kept = value.__dict__
        text = "!" + kept["made"] + "(" + self(type(value)) + "," + self(kept["args"])
        text += "," + (self(kept["kwargs"]) if kept["kwargs"] else "N")
        text += "," + (self(kept["state"][0]) if kept["state"] else "-")
        text += ",[" + ",".join(map(self, kept["list"])) + "]"
        text += ",{" + ",".join(self(key) + "=" + self(item) for key, item in kept["pairs"]) + "}"
        return text + ")"


class Plain:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    class Nested:
        pass


class Slotted:
    __slots__ = ("a", "b")


class SlottedToo(Slotted):
    def __init__(self):
        self.a, self.c = 1, [2]


class KeywordNew:
    def __new__(cls, *, a):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"a": 5}


class Listing(list):
    pass


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Output:
    rids: list
    finished_reasons: list
    completion_tokens: list
    queue_time: float = 1.5


Point = collections.namedtuple("Point", "x y")


def circles():
    mine = [1]
    mine.append(mine)
    yield mine
    table = {}
    table["self"] = table
    yield table
    plain = Plain(a=1)
    plain.me = plain
    yield plain
    inner = []
    outer = (inner, 5, 6, 7)
    inner.append(outer)
    yield outer
    pair = ([],)
    pair[0].append(pair)
    yield pair
    shared = ["x"]
    yield [shared, shared, {"k": shared}]
    twice = []
    for _ in range(40):
        twice = [twice, twice]
    yield twice


def scalars():
    yield from [None, True, False, 0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -(2**31), 2**63 - 1, -(2**63)]
    yield from [2**63, 2**64, -(2**63) - 1, 10**40, -(10**40), 2**2100]
    yield from [0.0, -0.0, 1.5, 1270.380931916, 1796051261.493039, 5e-324, 1e308, float("inf"), float("-inf")]
    yield from ["", "a", "é\u4e2d\U0001f600", "line\nbreak\\u0041\\ \x00\x1a", "\ud800", "x" * 300]
    yield from [b"", b"\x00\xff\n", b"y" * 300, bytearray(b""), bytearray(b"\x80\n")]


def containers():
    yield from [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [1, "a", None], {}, {"a": 1}, {1: [2], "x": {}}]
    yield from [set(), {1}, {1, "a", (2, 3)}, frozenset(), frozenset({1, 2}), [[[[[]]]]], ((), [], {}, set())]
    yield from [[7] * 999, [7] * 1000, list(range(1001)), dict.fromkeys(range(1001), "v")]
    yield {"rids": ["a" * 32], "finished_reasons": [None, {"type": "stop", "matched": 2}], "text": ["ö" * 70]}


def objects():
    yield from [Plain(), Plain(a=1, b=[2]), Plain.Nested(), Plain, len, SlottedToo(), KeywordNew(a=1), Color.RED]
    yield Output(["a"], [None], [3])
    yield from [Point(1, 2), Listing([1, 2, 3]), collections.OrderedDict(a=1, b=2), collections.deque([1, 2], 5)]
    yield from [array.array("q", [1, -2, 2**40]), array.array("B", b"ab"), array.array("d", [1.5]), array.array("i")]
    yield from [datetime.datetime(2026, 11, 30, 1, 2, 3), decimal.Decimal("1.5"), fractions.Fraction(1, 3), 1 + 2j]
    yield from [functools.partial(len, [1]), range(3), slice(1, 2), uuid.UUID(int=5), Exception("x", 1), object()]
    yield from [collections.defaultdict(list, a=[1]), collections.Counter("aab")]


def anything(chance, depth):
    """A value of a random shape."""
    kinds = 6 if depth == 0 else 12
    kind = chance.randrange(kinds)
    inside = lambda: [anything(chance, depth - 1) for _ in range(chance.randrange(5))]
    keys = lambda: [chance.choice(["rid", 5, None, 2.5, b"k", ("t", 1)]) for _ in range(chance.randrange(4))]
    return [
        lambda: None,
        lambda: chance.randrange(-(2 ** chance.randrange(1, 70)), 2 ** chance.randrange(1, 70)),
        lambda: chance.random(),
        lambda: "".join(map(chr, (chance.choice([65, 10, 92, 233, 0x4E2D, 0x1F600]) for _ in range(chance.randrange(9))))),
        lambda: chance.randbytes(chance.randrange(9)),
        lambda: chance.random() < 0.5,
        inside,
        lambda: tuple(inside()),
        lambda: {key: anything(chance, depth - 1) for key in keys()},
        lambda: set(keys()),
        lambda: Plain(a=inside()),
        lambda: Output(inside(), [], []),
    ][kind]()


class Pickler(pickle.Pickler):
    """One that knows some values by an id."""

    def persistent_id(self, value):
        return "7" if isinstance(value, Exception) else None


def with_ids(value, protocol):
    out = io.BytesIO()
    Pickler(out, protocol).dump(value)
    return out.getvalue()


def pickles():
    """Protocol, pickle, buffers outside it."""
    small = [*scalars(), *containers(), *objects(), *circles()]
    for protocol in range(6):
        for value in small:
            wide = isinstance(value, (list, dict)) and len(value) > 900
            if wide and protocol not in (0, 2, 4):
                continue
            if isinstance(value, Slotted) and protocol < 2:
                continue
            # Protocols 2 and 3 find a nested class, and a constructor with keywords, by a call: it makes none here.
            if isinstance(value, (Plain.Nested, KeywordNew)) and protocol in (2, 3):
                continue
            yield protocol, pickle.dumps(value, protocol), None
        for seed in range(24):
            value = anything(random.Random(seed), 4)
            yield protocol, pickle.dumps(value, protocol), None
            # The one written in Python memoizes otherwise; the optimizer drops what nobody refers to.
            yield protocol, pickle._dumps(value, protocol), None
            yield protocol, pickletools.optimize(pickle.dumps(value, protocol)), None
        yield protocol, with_ids([1, Exception("x"), "a"], protocol), None
    data = [pickle.PickleBuffer(b"abc"), pickle.PickleBuffer(bytearray(b"d")), 1]
    yield 5, pickle.dumps(data, 5), None
    kept = []
    yield 5, pickle.dumps(data, 5, buffer_callback=kept.append), len(kept)
    # What only Python 2 wrote, and opcodes that no pickler writes any more.
    yield 0, b"(S'a\\'b\\x41\\n\\101'\np0\nI01\nI00\nF1e3\nL5L\ntp1\n.", None
    yield 1, b"(U\x03abcT\x04\x00\x00\x00defgl.", None
    yield 1, b"(cmod\nCls\nK\x01U\x01ao}U\x01xK\x02sb.", None
    yield 0, b"(I1\nI2\nimod\nCls\n.", None
    yield 2, b"\x80\x02]K\x01a2a(K\x05K\x061.", None
    yield 2, b"\x80\x02K\x01K\x020.", None


def main(out):
    lines = set()
    for protocol, data, buffers in pickles():
        outside = None
        if buffers is not None:
            outside = [Buffer(b"x") for _ in range(buffers)]
            for number, buffer in enumerate(outside):
                buffer.number = number
        value = Unpickler(data, outside).load()
        line = f"{data.hex()}\t{Dump(protocol)(value)}"
        if line not in lines:
            lines.add(line)
            print(line, file=out)


if __name__ == "__main__":
    main(sys.stdout)
