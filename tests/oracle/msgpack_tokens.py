#!/usr/bin/env python3
"""Writes agent/core/src/wire/msgpack/oracle.txt: values as msgspec and msgpack encode them, and their tokens.

Needs the packages msgspec and msgpack. One line a value: `hex<TAB>token token ...`, tokens as the test prints them.
"""
import struct
import sys

import msgpack
import msgspec

INTS = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
NEGATIVE = [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, 1270.380931916, 1796051261.493039, 1e308, 5e-324, float("inf")]
LENGTHS = [0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536]


def tokens(value):
    """The tokens of a value, in the order of its bytes."""
    if value is None:
        return ["nil"]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, int):
        return [f"int:{value}"]
    if isinstance(value, float):
        return [f"float:{struct.pack('>d', value).hex()}"]
    if isinstance(value, str):
        return [f"str:{value.encode().hex()}"]
    if isinstance(value, bytes):
        return [f"bin:{value.hex()}"]
    if isinstance(value, (msgpack.ExtType, msgspec.msgpack.Ext)):
        return [f"ext:{value.code}:{bytes(value.data).hex()}"]
    if isinstance(value, (list, tuple)):
        return [f"array:{len(value)}"] + [token for item in value for token in tokens(item)]
    if isinstance(value, dict):
        return [f"map:{len(value)}"] + [token for pair in value.items() for item in pair for token in tokens(item)]
    raise TypeError(type(value))


def values():
    yield from [None, True, False, *INTS, *NEGATIVE, *FLOATS]
    yield from ["a" * length for length in LENGTHS if length < 300]
    yield from [b"\xff" * length for length in LENGTHS if length < 300]
    yield from [[7] * length for length in LENGTHS if length < 300]
    yield from [{str(i): i for i in range(length)} for length in LENGTHS if length < 300]
    yield from [msgspec.msgpack.Ext(3, b"\x01" * length) for length in [0, 1, 2, 3, 4, 8, 16, 17, 255, 256]]
    yield from ["é\u4e2d\U0001f600", [[], {}, [None, {"a": [1.5, {"b": b"c"}]}]], {1: 2, None: "x"}]


def main(out):
    for value in values():
        print(msgspec.msgpack.encode(value).hex(), " ".join(tokens(value)), sep="\t", file=out)
    # What msgspec never writes: 32-bit floats, and extension codes below zero.
    for value in [1.5, -0.25]:
        print(msgpack.packb(value, use_single_float=True).hex(), " ".join(tokens(value)), sep="\t", file=out)
    value = msgpack.ExtType(5, b"abc")
    print(msgpack.packb(value).hex(), " ".join(tokens(value)), sep="\t", file=out)


if __name__ == "__main__":
    main(sys.stdout)
