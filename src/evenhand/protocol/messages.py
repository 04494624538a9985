"""Messages between roles: named arrays and numbers with a schema.

A message can be validated without knowing its sender, counted to the byte, and written without pickle. Each schema says
in plain words what the message reveals to its receiver.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.errors import ProtocolError
from evenhand.printing import listed, quoted
from evenhand.protocol.disclosure import NOT_SENT, SENT_AS_IT_IS, UNCOVERED, Coverage, Direction, Level

# Comparing dtypes is several times faster than comparing names, and every field is compared.
DTYPES: Final = {name: np.dtype(name) for name in ("f8", "f4", "f2", "i8", "u1")}
_WHOLE: Final = DTYPES["i8"]
_FEW: Final = 64
_new: Final = object.__new__
_set: Final = object.__setattr__
LONGEST: Final = 2**30
"""Maximum length of a dimension without a declared size."""


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of a message.

    `dtype` is "f8", "f4", "f2", "i8" or "u1" (bytes). The receiving role binds a named dimension; None allows any size,
    for messages sent before sizes are known.
    """

    dtype: str = "f8"
    shape: tuple[int | str | None, ...] = ()

    def sized(self, sizes: Mapping[str, int]) -> tuple[int | None, ...]:
        """Return the shape in numbers. A size that the role does not know matches no array."""
        return tuple(sizes.get(size, -1) if isinstance(size, str) else size for size in self.shape)


TEXT: Final = Field("u1", (None,))
"""Text as UTF-8 bytes."""


def as_bytes(content: str | Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Return text, or a mapping as JSON, as bytes of a message."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return np.frombuffer(text.encode(), dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message: its kind and its arrays (a number is an array without dimensions).

    Attributes
    ----------
    inside
        Kinds of the messages that this one hides under masks or encryption. Only the sender's process knows them: they
        are not sent, and the sender's policy applies to them as it does to the kind itself.
    """

    sender: str
    receiver: str
    kind: str
    body: Mapping[str, npt.NDArray[Any]]
    inside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Checked for every message, because later code looks up names and counts bytes without checking again.
        if not (type(self.sender) is type(self.receiver) is type(self.kind) is str):
            for what, text in (("sender", self.sender), ("receiver", self.receiver), ("kind", self.kind)):
                if not isinstance(text, str):
                    raise ProtocolError(f"a message's {what} is {quoted(text)}, which is no text; refused")
        # The type check is faster than isinstance with an abstract class.
        if type(self.body) is not dict and not isinstance(self.body, Mapping):
            raise ProtocolError(f"{_where(self)}: the body is no table of fields by name; refused")
        for name, value in self.body.items():
            if type(name) is not str:
                raise ProtocolError(f"{_where(self)}: the body is no table of fields by name; refused")
            if type(value) is np.ndarray:
                continue
            if not isinstance(value, (np.ndarray, np.generic)):
                raise ProtocolError(f"{_where(self)}: {name} is a {type(value).__name__}, expected an array")

    def hiding(self, inner: Iterable[Message]) -> Message:
        """Return this message with the note that it hides other ones, and what those hide themselves."""
        inside = tuple(dict.fromkeys(kind for one in inner for kind in (one.kind, *one.inside)))
        return Message(self.sender, self.receiver, self.kind, self.body, inside)

    @property
    def nbytes(self) -> int:
        """Bytes of content, without the framing of a transport."""
        total = 0
        for array in self.body.values():
            total += array.nbytes
        return total

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.body[name]

    def number(self, name: str) -> float:
        return float(self.body[name])

    def integer(self, name: str) -> int:
        return int(self.body[name])

    def text(self, name: str) -> str:
        try:
            return self.body[name].tobytes().decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{_where(self)}: {name} is not text") from error

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a text field."""
        try:
            content = json.loads(self.text(name))
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"{_where(self)}: {name} is not JSON") from error
        if not isinstance(content, dict):
            raise ProtocolError(f"{_where(self)}: {name} is JSON, but no table")
        return content


@dataclass(frozen=True)
class Adds:
    """How messages of a kind add up over their senders, if the receiver needs only the sum.

    Attributes
    ----------
    alike
        Integers that are the same for all senders, such as the round.
    means, weight
        Fields to average, weighted by another field.
    even
        Fields with a sum that may be split evenly over senders; other sums are attributed to one sender.
    """

    alike: tuple[str, ...] = ()
    means: tuple[str, ...] = ()
    weight: str = ""
    even: tuple[str, ...] = ()


Expected: TypeAlias = tuple[str, np.dtype[Any], tuple[int | None, ...], bool]
"""A field at known sizes: its name, dtype and shape (None is any size), and whether its numbers must be finite."""


@dataclass(frozen=True, eq=False)
class Schema:
    """What a kind of message must look like, where it goes, what it reveals, and which protections cover it.

    Attributes
    ----------
    reveals
        What the receiver learns, in plain words.
    direction
        From which part to which part it goes.
    adds
        How it adds up over clients, where sums are all that the server needs; masks then hide single answers.
    coverage
        Which other protections cover it.
    most
        How many messages of this kind one sender may send one receiver: in each round, and in addition to that.
    """

    kind: str
    fields: Mapping[str, Field]
    reveals: str
    direction: Direction
    adds: Adds | None = None
    coverage: Coverage = UNCOVERED
    most: tuple[int, int] = (1, 1)

    def at_level(self, level: Level) -> str:
        """Say what becomes of messages of this kind at a level of protection."""
        if level in ("dealer", "encrypted") and self.direction.is_between_clients:
            return NOT_SENT
        if level != "none" and self.adds is not None:
            return "the server learns the sum over clients"
        if level != "none" and self.coverage.summed:
            return "the server learns the sum over passive parties"
        if level in ("dealer", "encrypted") and self.coverage.hides_nu:
            return "not sent to passive parties: each gets a share of X_kᵀν, which is uniform"
        return SENT_AS_IT_IS

    def with_label_privacy(self) -> str:
        """Say what becomes of messages of this kind where labels have privacy."""
        if self.direction.is_between_clients:
            return NOT_SENT
        return "from randomised responses" if self.coverage.from_labels else SENT_AS_IT_IS

    def message(self, sender: str, receiver: str, **values: Any) -> Message:
        """Make a message of this kind; values are converted to the schema's dtypes."""
        return self._with_body(sender, receiver, self._body(values))

    def messages(self, sender: str, receivers: Iterable[str], **values: Any) -> list[Message]:
        """Make the same message for several receivers."""
        body = self._body(values)
        return [self._with_body(sender, receiver, body) for receiver in receivers]

    def _body(self, values: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the fields of a message of this kind, shared by all receivers."""
        if values.keys() != self.fields.keys():
            raise ProtocolError(f"{self.kind} takes {sorted(self.fields)}, was given {sorted(values)}")
        body: dict[str, npt.NDArray[Any]] = {}
        value: Any = None
        name = ""
        try:
            for name, dtype in self._dtypes:
                value = values[name]
                if type(value) is np.ndarray and value.dtype is dtype:
                    body[name] = value
                # Most fields are integers: rounds, steps, positions.
                elif type(value) is int and dtype is _WHOLE:
                    body[name] = _whole_number(value)
                else:
                    body[name] = _as_array(value, dtype)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ProtocolError(f"{self.kind}: {name} cannot be {quoted(value)} ({error})") from error
        return body

    def _with_body(self, sender: str, receiver: str, body: dict[str, npt.NDArray[Any]]) -> Message:
        """Make a message from fields that `_body` has already checked."""
        if not (type(sender) is type(receiver) is str):
            return Message(sender, receiver, self.kind, body)
        made = _new(Message)
        _set(made, "sender", sender)
        _set(made, "receiver", receiver)
        _set(made, "kind", self.kind)
        _set(made, "body", body)
        _set(made, "inside", ())
        return made

    @cached_property
    def _dtypes(self) -> list[tuple[str, np.dtype[Any]]]:
        return [(name, DTYPES[field.dtype]) for name, field in self.fields.items()]

    def nbytes(self, sizes: Mapping[str, int]) -> int:
        """Return the bytes of content of a message of this kind."""
        return sum(
            np.dtype(field.dtype).itemsize * math.prod(sizes[n] if isinstance(n, str) else n or 0 for n in field.shape)
            for field in self.fields.values()
        )

    def check(self, message: Message, sizes: Mapping[str, int]) -> None:
        """Refuse a message with wrong names, dtypes or shapes, or with anything but finite numbers."""
        self.check_sized(message, self.expected(sizes), sizes)

    def check_sized(self, message: Message, expected: Sequence[Expected], sizes: Mapping[str, int]) -> None:
        """Check a message against fields that a role has resolved once for its sizes."""
        body = message.body
        fits = len(body) == len(expected)
        for name, dtype, sized, is_real in expected:
            array = body.get(name)
            # The fast path: nearly all messages are exactly as expected.
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != sized:
                fits = False
            elif is_real and not all_finite(array):
                raise ProtocolError(f"{_where(message)}: {name} holds numbers that are not finite")
        if not fits:
            self._check_closely(message, expected, sizes)

    def _check_closely(self, message: Message, expected: Sequence[Expected], sizes: Mapping[str, int]) -> None:
        """Refuse a message that is not as expected, and say why."""
        if message.body.keys() != self.fields.keys():
            raise ProtocolError(
                f"{_where(message)}: fields are {listed(sorted(message.body))}, expected {listed(sorted(self.fields))}"
            )
        for name, dtype, sized, is_real in expected:
            array = message.body[name]
            # Subclasses such as masked arrays are refused, because a transport would drop what is special about them.
            if type(array) is not np.ndarray:
                raise ProtocolError(f"{_where(message)}: {name} is a {type(array).__name__}, expected an array")
            if array.dtype != dtype or not _fits(array.shape, sized):
                field = self.fields[name]
                shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in field.shape)
                raise ProtocolError(
                    f"{_where(message)}: {name} is {array.dtype} of shape {array.shape}, "
                    f"expected {field.dtype} of shape {shape}"
                )
            if is_real and not all_finite(array):
                raise ProtocolError(f"{_where(message)}: {name} holds numbers that are not finite")

    def expected(self, sizes: Mapping[str, int]) -> list[Expected]:
        """Return what each field must be, resolved once for a role's sizes."""
        names = self._names
        known = (sizes.get(names[0], -1),) if len(names) == 1 else tuple([sizes.get(name, -1) for name in names])
        found = self._worked_out.get(known)
        if found is None:
            found = [
                (name, DTYPES[field.dtype], field.sized(sizes), field.dtype.startswith("f"))
                for name, field in self.fields.items()
            ]
            self._worked_out[known] = found
        return found

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple({size for field in self.fields.values() for size in field.shape if isinstance(size, str)})

    @cached_property
    def _worked_out(self) -> dict[tuple[int, ...], list[Expected]]:
        return {}


@lru_cache(1024)
def _whole_number(value: int) -> npt.NDArray[np.int64]:
    """Return an integer as an array. Dozens of messages of one step share it."""
    array = np.array(value, dtype=np.int64)
    array.flags.writeable = False
    return array


def _as_array(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    found = np.asarray(value)
    if found.dtype == dtype:
        return found
    if found.dtype.kind == "c":
        raise TypeError("complex numbers are not sent")
    # Refuse NaN instead of casting it to an integer.
    with np.errstate(invalid="raise"):
        return np.asarray(found, dtype=dtype)


def all_finite(array: npt.NDArray[Any]) -> bool:
    """Return whether all numbers of an array are finite; numbers with an overflowing sum are refused too."""
    if array.size == 0 or array.dtype.kind != "f":
        return True
    # For a few numbers, adding in Python is faster than silencing numpy's warnings.
    if array.size <= _FEW:
        return math.isfinite(sum(array.tolist() if array.ndim == 1 else array.ravel().tolist()))
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(_sum(array))


def _fits(shape: tuple[int, ...], sized: tuple[int | None, ...]) -> bool:
    return len(shape) == len(sized) and all(
        found <= LONGEST if size is None else found == size for found, size in zip(shape, sized, strict=True)
    )


def _sum(array: npt.NDArray[Any]) -> float:
    """Return the sum, which is finite only if every term is; half-precision numbers are summed in a longer type."""
    return float(np.add.reduce(array, axis=None, dtype=np.float32 if array.dtype.itemsize == 2 else None))


def _where(message: Message) -> str:
    return f"message {quoted(message.kind)} from {message.sender} to {message.receiver}"


class Vocabulary:
    """The kinds of messages of one exchange or of one family of solvers; `title` names it in the documentation."""

    def __init__(self, *schemas: Schema, title: str = "") -> None:
        self._schemas = {schema.kind: schema for schema in schemas}
        self.title = title

    def __iter__(self) -> Iterator[Schema]:
        return iter(self._schemas.values())

    def __getitem__(self, kind: str) -> Schema:
        schema = self._schemas.get(kind)
        if schema is None:
            raise ProtocolError(f"unknown message kind {quoted(kind)}; refused")
        return schema

    def has(self, kind: str) -> bool:
        return kind in self._schemas

    def check(self, message: Message, sizes: Mapping[str, int]) -> None:
        schema = self._schemas.get(message.kind)
        if schema is None:
            raise ProtocolError(f"unknown message kind {quoted(message.kind)} from {message.sender}; refused")
        schema.check(message, sizes)
