"""Save the state of a role, and restore it.

A class declares the attributes that change during a run, with their types::

    class Counter:
        state_fields: ClassVar = {"count": int, "sums": dict[str, Array], "best": Best | None}

`snapshot` turns the declared fields of an object, and of the objects in them, into one flat table: arrays and plain
values by dotted name (``sums.bank``). `restore` checks every value against its declared type before it sets it.
A type is one of

- ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``Literal[...]``, an enumeration, a numpy array or generator;
- ``Any`` for a value that JSON holds;
- ``list``, ``tuple``, ``set``, ``deque`` or ``dict`` of such types, a dataclass or a named tuple;
- a class that declares `state_fields` itself;
- a union of these; with ``None`` it is optional.

An object that declares `state_fields` is restored in place if its owner has one there already. Otherwise it is made
from its fields alone, without its constructor. Its method ``restored()``, if it has one, then rebuilds whatever
follows from the fields.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeGuard, Union, get_args, get_origin, get_type_hints

import numpy as np

from evenhand.errors import RunError

State: TypeAlias = dict[str, Any]
"""Arrays and values that JSON holds, by name: all that a checkpoint may hold."""

_SCALARS: Final[dict[Any, tuple[type, ...]]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (float, int, np.floating, np.integer),
    str: (str,),
}
_MANY: Final = (list, tuple, set, frozenset, deque)
_MISFITS: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def snapshot(owner: object) -> State:
    """Return the declared fields of an object as a flat table. The arrays in it are copies."""
    state: State = {}
    _Object(type(owner)).write(state, "", owner)
    return state


def restore(owner: object, state: Mapping[str, Any]) -> None:
    """Set the declared fields of an object to what `snapshot` returned for one of its class.

    Raises
    ------
    RunError
        If a value is missing, unknown or not of its declared type. The object must not be used then.
    """
    source = _Source(state)
    try:
        _Object(type(owner)).read(source, "", owner)
        if unknown := sorted(state.keys() - source.taken):
            raise LookupError(f"{unknown[0]!r} is unknown")
    except _MISFITS as error:
        raise RunError(
            f"the state does not fit {type(owner).__name__}: {error}. It was saved by another version or for another "
            "job; start the run anew"
        ) from error


class _Source:
    """A state that is being read; `taken` are the names that were asked for."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self.taken: set[str] = set()

    def take(self, name: str) -> Any:
        self.taken.add(name)
        if name not in self._state:
            raise LookupError(f"{name!r} is missing")
        return self._state[name]

    def is_none(self, name: str) -> bool:
        return self._state.get(name, self) is None and self.take(name) is None


class _Codec(ABC):
    """Writes values of one type into a state, and reads them back.

    Reading is given the value that is there at present: objects are restored in place.
    """

    @abstractmethod
    def write(self, state: State, name: str, value: Any) -> None: ...

    @abstractmethod
    def read(self, source: _Source, name: str, present: Any) -> Any: ...


@dataclasses.dataclass(frozen=True)
class _Value(_Codec):
    """A value under its own name. `is_plain`: JSON holds it, so that several fit into one list."""

    encode: Callable[[str, Any], Any]
    decode: Callable[[str, Any], Any]
    is_plain: bool = True

    def write(self, state: State, name: str, value: Any) -> None:
        state[name] = self.encode(name, value)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        return self.decode(name, source.take(name))


def _scalar(kind: Any) -> _Value:
    def checked(name: str, value: Any) -> Any:
        if not isinstance(value, _SCALARS[kind]) or (isinstance(value, bool) and kind is not bool):
            _refuse(name, value, kind.__name__)
        return kind(value)

    return _Value(checked, checked)


def _choice(*values: Any) -> _Value:
    def checked(name: str, value: Any) -> Any:
        if type(value) not in (str, int, bool, type(None)) or value not in values:
            _refuse(name, value, f"one of {', '.join(map(repr, values))}")
        return value

    return _Value(checked, checked)


def _member(kind: type[enum.Enum]) -> _Value:
    return _Value(lambda name, value: _of_kind(name, value, kind).name, lambda _, value: kind[value])


def _generator(_: str, state: Any) -> np.random.Generator:
    generator = np.random.default_rng(0)
    generator.bit_generator.state = state
    return generator


def _plain_optional(inner: _Value) -> _Value:
    return _Value(
        lambda name, value: None if value is None else inner.encode(name, value),
        lambda name, value: None if value is None else inner.decode(name, value),
    )


def _plain_many(kind: Any, inner: _Value) -> _Value:
    """Return the codec of plain values in a row, as one list. Sets are sorted, so that equal ones give equal states."""

    def encode(name: str, value: Any) -> Any:
        encoded = [inner.encode(name, one) for one in _of_kind(name, value, kind)]
        return sorted(encoded) if kind in (set, frozenset) else encoded

    return _Value(encode, lambda name, value: kind(inner.decode(name, one) for one in _of_kind(name, value, list)))


def _plain_fixed(inner: list[_Value]) -> _Value:
    """Return the codec of a tuple of known length of plain values, as one list."""

    def decode(name: str, value: Any) -> Any:
        return tuple(one.decode(name, part) for one, part in zip(inner, _of_kind(name, value, list), strict=True))

    return _Value(lambda name, value: [one.encode(name, part) for one, part in zip(inner, value, strict=True)], decode)


def _array(dtype: Any) -> _Value:
    def copied(name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or not (dtype is Any or np.issubdtype(value.dtype, dtype)):
            _refuse(name, value, "array" if dtype is Any else f"array of {dtype.__name__}")
        return value.copy()

    return _Value(copied, copied, is_plain=False)


def _bytes(kind: Any) -> _Value:
    def decode(name: str, found: Any) -> Any:
        if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or found.ndim != 1:
            _refuse(name, found, "array of bytes")
        return kind(found.tobytes())

    def encode(name: str, value: Any) -> Any:
        return np.frombuffer(_of_kind(name, value, kind), dtype=np.uint8).copy()

    return _Value(encode, decode, is_plain=False)


class _Optional(_Codec):
    def __init__(self, inner: _Codec) -> None:
        self._inner = inner

    def write(self, state: State, name: str, value: Any) -> None:
        if value is None:
            state[name] = None
        else:
            self._inner.write(state, name, value)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        return None if source.is_none(name) else self._inner.read(source, name, present)


class _OneOf(_Codec):
    """An object of one of several classes, with the name of its class."""

    def __init__(self, kinds: Iterable[type]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}

    def write(self, state: State, name: str, value: Any) -> None:
        state[name] = type(value).__name__
        _codec(self._kinds[state[name]]).write(state, name, value)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        return _codec(self._kinds[source.take(name)]).read(source, name, present)


class _Many(_Codec):
    """Values in a row: their number, and each by its place."""

    def __init__(self, kind: Any, inner: _Codec) -> None:
        self._kind, self._inner = kind, inner

    def write(self, state: State, name: str, value: Any) -> None:
        state[name] = len(_of_kind(name, value, self._kind))
        for place, one in enumerate(value):
            self._inner.write(state, f"{name}.{place}", one)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        count = _scalar(int).read(source, name, None)
        if count < 0:
            _refuse(name, count, "number of values")
        there = dict(enumerate(present or ()))
        return self._kind(self._inner.read(source, f"{name}.{place}", there.get(place)) for place in range(count))


class _Fixed(_Codec):
    """A tuple of known length, each entry of its own type."""

    def __init__(self, inner: Iterable[_Codec]) -> None:
        self._inner = tuple(inner)

    def write(self, state: State, name: str, value: Any) -> None:
        for place, (codec, one) in enumerate(zip(self._inner, value, strict=True)):
            codec.write(state, f"{name}.{place}", one)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        return tuple(codec.read(source, f"{name}.{place}", None) for place, codec in enumerate(self._inner))


class _Table(_Codec):
    """A dictionary: its keys in order, and each value by its key. It comes back in the order of its keys."""

    def __init__(self, key: _Codec, inner: _Codec) -> None:
        assert isinstance(key, _Value), "keys must be plain values"
        self._key, self._inner = key, inner

    def write(self, state: State, name: str, value: Any) -> None:
        keys = sorted(value)
        state[name] = [self._key.encode(name, key) for key in keys]
        for key in keys:
            self._inner.write(state, _under(name, key), value[key])

    def read(self, source: _Source, name: str, present: Any) -> Any:
        keys = _plain_many(list, self._key).read(source, name, None)
        there = {} if present is None else present
        return {key: self._inner.read(source, _under(name, key), there.get(key)) for key in keys}


class _Record(_Codec):
    """A dataclass or a named tuple: made anew by its constructor."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        hints = get_type_hints(kind)
        names = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
        self._codecs = {name: _codec(hints[name]) for name in names}

    def write(self, state: State, name: str, value: Any) -> None:
        _of_kind(name, value, self._kind)
        for field, codec in self._codecs.items():
            codec.write(state, _under(name, field), getattr(value, field))

    def read(self, source: _Source, name: str, present: Any) -> Any:
        fields = {field: codec.read(source, _under(name, field), None) for field, codec in self._codecs.items()}
        return self._kind(**fields)


class _Object(_Codec):
    """An object that declares its fields, those of its base classes first."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def write(self, state: State, name: str, value: Any) -> None:
        _of_kind(name, value, self._kind)
        for field, codec in _codecs_of(value.__class__).items():
            codec.write(state, _under(name, field), getattr(value, field))

    def read(self, source: _Source, name: str, present: Any) -> Any:
        found: Any = present if isinstance(present, self._kind) else object.__new__(self._kind)
        for field, codec in _codecs_of(found.__class__).items():
            setattr(found, field, codec.read(source, _under(name, field), getattr(found, field, None)))
        if hasattr(found, "restored"):
            found.restored()
        return found


@cache
def _codecs_of(kind: Any) -> Mapping[str, _Codec]:
    tables = [vars(base).get("state_fields", {}) for base in reversed(kind.__mro__)]
    return {name: _codec(one) for table in tables for name, one in table.items()}


@cache
def _codec(kind: Any) -> _Codec:
    """The codec of a declared type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return _Value(lambda _, value: value, lambda _, value: value)
    if kind in _SCALARS:
        return _scalar(kind)
    if kind in (bytes, bytearray):
        return _bytes(kind)
    if origin is Literal:
        return _choice(*inner)
    if origin in (Union, types.UnionType):
        return _union([one for one in inner if one is not types.NoneType], len(inner))
    if origin is np.ndarray:
        return _array(get_args(inner[1])[0])
    if origin is tuple and inner[-1] is not Ellipsis:
        parts = [_codec(one) for one in inner]
        plain = [one for one in parts if _is_plain(one)]
        return _plain_fixed(plain) if len(plain) == len(parts) else _Fixed(parts)
    if origin in _MANY:
        one = _codec(inner[0])
        return _plain_many(origin, one) if _is_plain(one) else _Many(origin, one)
    if origin in (dict, Mapping):
        return _Table(_codec(inner[0]), _codec(inner[1]))
    if isinstance(kind, type):
        return _class_codec(kind)
    raise TypeError(f"{kind} cannot be the type of a state field")


def _union(kinds: list[Any], count: int) -> _Codec:
    inner = _codec(kinds[0]) if len(kinds) == 1 else _OneOf(kinds)
    if len(kinds) == count:
        return inner
    return _plain_optional(inner) if _is_plain(inner) else _Optional(inner)


def _class_codec(kind: type) -> _Codec:
    if hasattr(kind, "state_fields"):
        return _Object(kind)
    if issubclass(kind, enum.Enum):
        return _member(kind)
    if issubclass(kind, np.random.Generator):
        return _Value(lambda _, generator: generator.bit_generator.state, _generator)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _Record(kind)
    raise TypeError(f"{kind.__name__} does not declare state_fields")


def _under(name: str, part: object) -> str:
    """The name of a part. Dots in keys are written out, so that no two values have one name."""
    text = str(part).replace("%", "%25").replace(".", "%2E")
    return f"{name}.{text}" if name else text


def _is_plain(codec: _Codec) -> TypeGuard[_Value]:
    return isinstance(codec, _Value) and codec.is_plain


def _of_kind(name: str, value: Any, kind: Any) -> Any:
    return value if isinstance(value, kind) else _refuse(name, value, kind.__name__)


def _refuse(name: str, value: Any, expected: str) -> NoReturn:
    found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r:.40}"
    raise TypeError(f"{name!r} is {found}, expected {expected}")
