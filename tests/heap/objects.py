"""Objects of every kind, held by an event loop's `self`.

Prints what they are as one line of JSON, then waits: the reader finds `self` in the frame of `event_loop` and reads the
same from outside. Values that JSON cannot tell apart are written as lists with their kind first.
"""
import array, collections, dataclasses, enum, json, sys, threading, time


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Number(enum.IntEnum):
    ONE = 1
    BIG = 2**40


class Letter(str, enum.Enum):
    A = "alpha"


class Plain:
    pass


class Other:
    pass


class Slots:
    __slots__ = ("a", "b", "unset")


class MoreSlots(Slots):
    __slots__ = ("c",)


class SlotsAndDict(Slots):
    pass


class SubInt(int):
    pass


class SubStr(str):
    pass


class SubTuple(tuple):
    pass


class SubDeque(collections.deque):
    pass


class ByClass:
    shared = "of the class"


@dataclasses.dataclass
class Data:
    x: float = 1.5
    y: int = 7
    z: str = "zed"
    w: object = None


@dataclasses.dataclass
class Times:
    wait_queue_entry_time: float = 0.0
    forward_entry_time: float = 0.0


# What the objects' attributes are, by id: asking an object for its __dict__ would change how it keeps them.
ATTRIBUTES = {}
KEPT = []


def holds(v, **attributes):
    ATTRIBUTES[id(v)] = attributes
    return v


def made(cls, **attributes):
    new = cls()
    for name, value in attributes.items():
        setattr(new, name, value)
    return holds(new, **attributes)


def objects():
    o = {}
    o["zero"], o["one"], o["minus"], o["small"] = 0, 1, -5, 255
    o["digit2"], o["digit2_minus"], o["digit3"], o["digit4"] = 2**30, -(2**59) - 3, 2**62 + 17, -(2**100) - 1
    o["float"], o["float_minus"], o["true"], o["false"], o["none"] = 3.25, -1e-300, True, False, None
    o["ascii"], o["empty"], o["latin"], o["wide"], o["wider"] = "plain ascii", "", "caf\xe9", "\u4e2d\u6587 ok", "\U0001f600!"
    o["long_text"], o["bytes"], o["no_bytes"] = "x" * 5000, b"\x00\x01\xffabc", b""
    o["list"], o["no_list"], o["tuple"], o["no_tuple"] = [1, "two", 3.0, None, [4]], [], (1, 2, ("x",)), ()
    o["dict"], o["no_dict"] = {"a": 1, "b": 2.5, "c": None}, {}
    holes = {f"k{i}": i for i in range(40)}
    for i in range(0, 40, 3):
        del holes[f"k{i}"]
    o["dict_with_holes"] = holes
    o["dict_of_any"] = {1: "one", (2, 3): "t", "s": 4}
    o["dict_of_ints"] = {i * 1000: i for i in range(400)}
    o["great_dict"] = {f"key{i}": i for i in range(300)}
    o["ordered"], o["default"] = collections.OrderedDict(a=1, b=2), collections.defaultdict(list, q=[1, 2])
    few = set(range(100))
    for i in range(0, 100, 2):
        few.discard(i)
    o["set"], o["set_with_holes"], o["frozen"], o["no_set"] = {1, 2, 3}, few, frozenset(["a", "b"]), set()
    moved = collections.deque(range(150))
    for _ in range(40):
        moved.popleft()
    moved.appendleft(-1)
    o["deque"], o["no_deque"], o["short_deque"] = moved, collections.deque(), collections.deque(range(9), maxlen=4)
    o["sub_deque"] = SubDeque([1, 2])
    o["array"], o["doubles"], o["unsigned"] = array.array("q", [1, -2, 2**40]), array.array("d", [0.5]), array.array("I", [7])
    o["floats"], o["bytes_array"] = array.array("f", [0.25, -2.0]), array.array("b", [-1, 1])
    o["enum"], o["enum_text"], o["enum_int"], o["enum_str"] = Color.RED, Color.BLUE, Number.BIG, Letter.A
    o["sub_str"], o["sub_str_wide"], o["sub_int"] = SubStr("elsewhere"), SubStr("\u4e2d x"), SubInt(77)
    o["sub_tuple"] = SubTuple((1, "b"))
    o["plain"] = made(Plain, a=1, b="x")
    o["plain_other_order"] = made(Plain, a=2, c=3.5, b=[1])
    asked = made(Plain, a=9, b=8)
    KEPT.append(asked.__dict__)
    o["dict_asked_for"] = asked
    o["many"] = made(Plain, **{f"n{i}": i for i in range(60)})
    deleted = made(Other, x=1, y=2, z=3)
    del deleted.y
    del ATTRIBUTES[id(deleted)]["y"]
    o["deleted"] = deleted
    replaced = Other()
    replaced.__dict__ = {"fresh": 1, "u": "v"}
    o["replaced"] = holds(replaced, fresh=1, u="v")
    o["slots"], o["more_slots"] = made(Slots, a=1, b="bb"), made(MoreSlots, a=1, c=4.5)
    o["slots_and_dict"] = made(SlotsAndDict, b=5, other=6)
    inner = holds(Data(), x=1.5, y=7, z="zed", w=None)
    o["data"], o["data_in_data"] = inner, holds(Data(2.5, 8, w=inner), x=2.5, y=8, z="zed", w=inner)
    o["times"] = holds(Times(1234.5, 1235.25), wait_queue_entry_time=1234.5, forward_entry_time=1235.25)
    number = SubInt(2**70)
    number.tag = "on an int"
    o["attribute_of_int"] = holds(number, tag="on an int")
    o["by_class"] = holds(ByClass())
    return o


def told(v):
    if isinstance(v, enum.Enum):
        return ["enum", type(v).__name__, v._name_, told(v._value_)]
    if isinstance(v, (bool, type(None), float, str)):
        return v
    if isinstance(v, int):
        return int(v) if abs(v) < 2**53 else ["int", str(int(v))]
    if isinstance(v, bytes):
        return ["bytes", v.hex()]
    if isinstance(v, (list, tuple, collections.deque, array.array)):
        return ["items"] + [told(x) for x in v]
    if isinstance(v, (set, frozenset)):
        return ["set"] + sorted((told(x) for x in v), key=str)
    if isinstance(v, dict):
        return ["dict"] + [[told(k), told(x)] for k, x in v.items()]
    return ["object", type(v).__name__, {name: told(x) for name, x in ATTRIBUTES[id(v)].items()}]


class Loop:
    def event_loop(self):
        kept = lambda: self  # `self` becomes a cell
        sys.stdout.write(json.dumps({"version": sys.version.split()[0], "objects": self.truth}) + "\n")
        sys.stdout.flush()
        sys.stdin.readline()
        return kept

    def outer(self):
        return self.event_loop()


def main():
    loop = Loop()
    made = objects()
    loop.truth = {name: told(value) for name, value in made.items()}
    for name, value in made.items():
        setattr(loop, name, value)
    threading.Thread(target=lambda: time.sleep(1000), daemon=True).start()
    loop.outer()


main()
