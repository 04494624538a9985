"""Declared fields become a flat table and come back, bit for bit; a table that does not fit is refused."""

from __future__ import annotations

import enum
import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from evenhand.arrays import Array, Integers
from evenhand.errors import RunError
from evenhand.protocol.messages import Message
from evenhand.protocol.state import restore, snapshot
from evenhand.runtime.checkpointfiles import state_bytes, state_from


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    weights: Array
    value: float


class Pair(NamedTuple):
    name: str
    counts: Integers


class Block:
    state_fields: ClassVar = {"steps": list[Array]}

    def __init__(self, options: str) -> None:
        self.options = options
        self.steps: list[Array] = []


class Whole:
    state_fields: ClassVar = {"columns": Array, "looked": bool}

    def __init__(self, columns: Array) -> None:
        self.columns, self.looked = columns, False


class Base:
    state_fields: ClassVar = {"round": int}

    def __init__(self) -> None:
        self.round = 0


class Everything(Base):
    state_fields: ClassVar = {
        "yes": bool,
        "number": float,
        "text": str,
        "raw": bytes,
        "stage": Literal["first", "second"],
        "colour": Colour | None,
        "table": Any,
        "vector": Array,
        "words": npt.NDArray[np.uint64],
        "maybe": Array | None,
        "names": tuple[str, ...],
        "awaited": set[int],
        "pace": list[float | None],
        "kept": deque[Array],
        "two": tuple[Array, int],
        "unread": dict[int, Array],
        "by_name": dict[str, dict[str, Array]],
        "point": Point | None,
        "pair": Pair,
        "mail": list[Message],
        "generator": np.random.Generator,
        "block": Block,
        "blocks": list[Block | Whole],
        "late": Whole | None,
    }

    def __init__(self) -> None:
        super().__init__()
        self.yes, self.number, self.text, self.raw = False, 0.0, "", b""
        self.stage, self.colour, self.table = "first", None, None
        self.vector, self.words = np.zeros(0), np.zeros(0, np.uint64)
        self.maybe: Array | None = None
        self.names: tuple[str, ...] = ()
        self.awaited: set[int] = set()
        self.pace: list[float | None] = []
        self.kept: deque[Array] = deque()
        self.two = (np.zeros(0), 0)
        self.unread: dict[int, Array] = {}
        self.by_name: dict[str, dict[str, Array]] = {}
        self.point: Point | None = None
        self.pair = Pair("", np.zeros(0, np.int64))
        self.mail: list[Message] = []
        self.generator = np.random.default_rng(1)
        self.block = Block("given")
        self.blocks: list[Block | Whole] = [Block("a"), Block("b")]
        self.late: Whole | None = None
        self.rebuilt = 0

    def restored(self) -> None:
        self.rebuilt = 1 + self.round


numbers = arrays(np.float64, array_shapes(min_dims=0, max_dims=3, max_side=4, min_side=0))
words = st.text(max_size=5)


@st.composite
def everything(draw: st.DrawFn) -> Everything:
    found = Everything()
    found.round = draw(st.integers(-(2**60), 2**60))
    found.yes, found.number = draw(st.booleans()), draw(st.floats())
    found.text, found.raw = draw(words), draw(st.binary(max_size=4))
    found.stage, found.colour = draw(st.sampled_from(["first", "second"])), draw(st.sampled_from([None, *Colour]))
    found.table = draw(st.dictionaries(words, st.integers() | words, max_size=2))
    found.vector = draw(numbers)
    found.words = draw(arrays(np.uint64, 3))
    found.maybe = draw(st.none() | numbers)
    found.names = tuple(draw(st.lists(words, max_size=3)))
    found.awaited = draw(st.sets(st.integers(0, 9)))
    found.pace = draw(st.lists(st.none() | st.floats(), max_size=3))
    found.kept = deque(draw(st.lists(numbers, max_size=3)))
    found.two = (draw(numbers), draw(st.integers(0, 9)))
    found.unread = draw(st.dictionaries(st.integers(-5, 20), numbers, max_size=3))
    # Keys with dots and percent signs must not run into each other.
    keys = st.text(alphabet="a.%0", max_size=4)
    found.by_name = draw(st.dictionaries(keys, st.dictionaries(keys, numbers, max_size=2), max_size=3))
    found.point = draw(st.none() | st.builds(Point, numbers, st.floats()))
    found.pair = Pair(draw(words), draw(arrays(np.int64, 2)))
    found.mail = draw(st.lists(st.builds(Message, words, words, words, st.just({"a": np.ones(2)})), max_size=2))
    found.generator.random(draw(st.integers(0, 5)))
    found.block.steps = draw(st.lists(numbers, max_size=2))
    found.blocks = [Whole(draw(numbers)) if draw(st.booleans()) else Block("x") for _ in range(draw(st.integers(0, 3)))]
    found.late = draw(st.none() | st.builds(Whole, numbers))
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return json.dumps(left) == json.dumps(right)


@given(everything())
def test_any_state_comes_back_by_way_of_the_disk(found: Everything) -> None:
    saved = snapshot(found)
    again = Everything()
    restore(again, state_from(state_bytes(saved), Path("state")))
    assert same(snapshot(again), saved)
    assert [type(block) for block in again.blocks] == [type(block) for block in found.blocks]
    assert again.generator.random() == found.generator.random()
    assert again.rebuilt == 1 + found.round
    assert again.block.options == "given"


def filled() -> Everything:
    found = Everything()
    found.round, found.vector, found.maybe, found.raw = 3, np.arange(3.0), np.ones(2), b"key"
    found.unread, found.blocks = {4: np.ones(1)}, [Block("a"), Whole(np.ones((2, 2)))]
    found.point, found.awaited, found.colour = Point(np.zeros(1), 0.5), {1}, Colour.BLUE
    found.late = Whole(np.zeros(1))
    return found


def test_names_are_dotted() -> None:
    saved = snapshot(filled())
    assert saved["unread"] == [4]
    assert saved["unread.4"].tolist() == [1.0]
    assert saved["blocks.1"] == "Whole"
    assert saved["blocks.1.looked"] is False
    assert saved["point.value"] == 0.5
    assert saved["two.1"] == 0


def test_nothing_is_shared_with_what_was_saved() -> None:
    found, again = filled(), Everything()
    saved = snapshot(found)
    found.vector[0] = 7.0
    restore(again, saved)
    again.vector[1] = 7.0
    assert saved["vector"].tolist() == [0.0, 1.0, 2.0]


def test_equal_states_are_equal_files_whatever_the_order_of_keys() -> None:
    one, other = Everything(), Everything()
    one.unread, other.unread = {1: np.ones(1), 2: np.ones(1)}, {2: np.ones(1), 1: np.ones(1)}
    assert state_bytes(snapshot(one)) == state_bytes(snapshot(other))


@pytest.mark.parametrize("name", sorted(snapshot(filled())))
def test_a_missing_value_is_refused_by_name(name: str) -> None:
    saved = snapshot(filled())
    del saved[name]
    with pytest.raises(RunError, match="does not fit Everything"):
        restore(Everything(), saved)


@pytest.mark.parametrize("name", sorted(set(snapshot(filled())) - {"table"}))
def test_a_value_of_another_type_is_refused(name: str) -> None:
    for wrong in (np.zeros(2, np.complex64), object(), {"a": 1}):
        with pytest.raises(RunError, match="does not fit Everything"):
            restore(Everything(), snapshot(filled()) | {name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("round", float("nan")),
        ("round", True),
        ("round", 2.0),
        ("round", np.array(3)),
        ("yes", 1),
        ("number", "1.0"),
        ("number", True),
        ("stage", "third"),
        ("colour", "GREEN"),
        ("vector", [1.0, 2.0]),
        ("vector", np.zeros(2, np.int64)),
        ("vector", np.zeros(2, np.float32)),
        ("maybe", 0.0),
        ("awaited", [0.5]),
        ("awaited", {"1": 1}),
        ("unread", ["4"]),
        ("unread", [5]),
        ("blocks", -1),
        ("blocks", 3),
        ("blocks.1", "Point"),
        ("raw", np.zeros(2)),
        ("generator", {"bit_generator": "MT19937"}),
        ("no_such_field", 1),
        ("unread.7", np.zeros(1)),
    ],
)
def test_a_damaged_value_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(RunError, match="does not fit Everything"):
        restore(Everything(), snapshot(filled()) | {name: wrong})


def test_an_attribute_of_another_type_than_declared_cannot_be_saved() -> None:
    found = filled()
    found.vector = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="'vector' is an array of float32, expected array of float64"):
        snapshot(found)


def test_a_type_without_declared_fields_is_refused() -> None:
    class Odd:
        state_fields: ClassVar = {"path": Path}
        path = Path()

    with pytest.raises(TypeError, match="does not declare state_fields"):
        snapshot(Odd())
