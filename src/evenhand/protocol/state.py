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
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, Literal, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

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


class _Plain(_Codec):
    """A value that JSON holds, under its own name."""

    def write(self, state: State, name: str, value: Any) -> None:
        state[name] = self.encode(name, value)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        return self.decode(name, source.take(name))

    def encode(self, name: str, value: Any) -> Any:
        return value

    def decode(self, name: str, value: Any) -> Any:
        return value


class _Scalar(_Plain):
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def encode(self, name: str, value: Any) -> Any:
        if not isinstance(value, _SCALARS[self._kind]) or (isinstance(value, bool) and self._kind is not bool):
            _refuse(name, value, self._kind.__name__)
        return self._kind(value)

    decode = encode


class _Choice(_Plain):
    def __init__(self, *values: Any) -> None:
        self._values = values

    def encode(self, name: str, value: Any) -> Any:
        if type(value) not in (str, int, bool, type(None)) or value not in self._values:
            _refuse(name, value, f"one of {', '.join(map(repr, self._values))}")
        return value

    decode = encode


class _Member(_Plain):
    def __init__(self, kind: type[enum.Enum]) -> None:
        self._kind = kind

    def encode(self, name: str, value: Any) -> Any:
        return value.name if isinstance(value, self._kind) else _refuse(name, value, self._kind.__name__)

    def decode(self, name: str, value: Any) -> Any:
        return self._kind[value]


class _RandomState(_Plain):
    def encode(self, name: str, value: Any) -> Any:
        return value.bit_generator.state

    def decode(self, name: str, value: Any) -> Any:
        generator = np.random.default_rng(0)
        generator.bit_generator.state = value
        return generator


class _PlainOptional(_Plain):
    def __init__(self, inner: _Plain) -> None:
        self._inner = inner

    def encode(self, name: str, value: Any) -> Any:
        return None if value is None else self._inner.encode(name, value)

    def decode(self, name: str, value: Any) -> Any:
        return None if value is None else self._inner.decode(name, value)


class _PlainMany(_Plain):
    """Plain values in a row, as one list. Sets are sorted, so that equal ones give equal states."""

    def __init__(self, kind: Any, inner: _Plain) -> None:
        self._kind, self._inner = kind, inner

    def encode(self, name: str, value: Any) -> Any:
        if not isinstance(value, self._kind):
            _refuse(name, value, self._kind.__name__)
        encoded = [self._inner.encode(name, one) for one in value]
        return sorted(encoded) if self._kind in (set, frozenset) else encoded

    def decode(self, name: str, value: Any) -> Any:
        if not isinstance(value, list):
            _refuse(name, value, "list")
        return self._kind(self._inner.decode(name, one) for one in value)


class _PlainFixed(_Plain):
    """A tuple of known length of plain values, as one list."""

    def __init__(self, inner: Iterable[_Plain]) -> None:
        self._inner = tuple(inner)

    def encode(self, name: str, value: Any) -> Any:
        return [codec.encode(name, one) for codec, one in zip(self._inner, value, strict=True)]

    def decode(self, name: str, value: Any) -> Any:
        if not isinstance(value, list):
            _refuse(name, value, "list")
        return tuple(codec.decode(name, one) for codec, one in zip(self._inner, value, strict=True))


class _ArrayCodec(_Codec):
    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def write(self, state: State, name: str, value: Any) -> None:
        state[name] = self._checked(name, value).copy()

    def read(self, source: _Source, name: str, present: Any) -> Any:
        return np.array(self._checked(name, source.take(name)))

    def _checked(self, name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or not (self._dtype is Any or np.issubdtype(value.dtype, self._dtype)):
            _refuse(name, value, "array" if self._dtype is Any else f"array of {self._dtype.__name__}")
        return value


class _BytesCodec(_Codec):
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def write(self, state: State, name: str, value: Any) -> None:
        if not isinstance(value, self._kind):
            _refuse(name, value, self._kind.__name__)
        state[name] = np.frombuffer(value, dtype=np.uint8).copy()

    def read(self, source: _Source, name: str, present: Any) -> Any:
        found = source.take(name)
        if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or found.ndim != 1:
            _refuse(name, found, "array of bytes")
        return self._kind(found.tobytes())


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
        if not isinstance(value, self._kind):
            _refuse(name, value, self._kind.__name__)
        state[name] = len(value)
        for place, one in enumerate(value):
            self._inner.write(state, f"{name}.{place}", one)

    def read(self, source: _Source, name: str, present: Any) -> Any:
        count = _Scalar(int).decode(name, source.take(name))
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
        assert isinstance(key, _Plain), "keys must be plain values"
        self._key, self._inner = key, inner

    def write(self, state: State, name: str, value: Any) -> None:
        keys = sorted(value)
        state[name] = [self._key.encode(name, key) for key in keys]
        for key in keys:
            self._inner.write(state, _under(name, key), value[key])

    def read(self, source: _Source, name: str, present: Any) -> Any:
        keys = _PlainMany(list, self._key).decode(name, source.take(name))
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
        if not isinstance(value, self._kind):
            _refuse(name, value, self._kind.__name__)
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
        if not isinstance(value, self._kind):
            _refuse(name, value, self._kind.__name__)
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
        return _Plain()
    if kind in _SCALARS:
        return _Scalar(kind)
    if kind in (bytes, bytearray):
        return _BytesCodec(kind)
    if origin is Literal:
        return _Choice(*inner)
    if origin in (Union, types.UnionType):
        return _union([one for one in inner if one is not types.NoneType], len(inner))
    if origin is np.ndarray:
        return _ArrayCodec(get_args(inner[1])[0])
    if origin is tuple and inner[-1] is not Ellipsis:
        parts = [_codec(one) for one in inner]
        plain = [one for one in parts if isinstance(one, _Plain)]
        return _PlainFixed(plain) if len(plain) == len(parts) else _Fixed(parts)
    if origin in _MANY:
        one = _codec(inner[0])
        return _PlainMany(origin, one) if isinstance(one, _Plain) else _Many(origin, one)
    if origin in (dict, Mapping):
        return _Table(_codec(inner[0]), _codec(inner[1]))
    if isinstance(kind, type):
        return _class_codec(kind)
    raise TypeError(f"{kind} cannot be the type of a state field")


def _union(kinds: list[Any], count: int) -> _Codec:
    inner = _codec(kinds[0]) if len(kinds) == 1 else _OneOf(kinds)
    if len(kinds) == count:
        return inner
    return _PlainOptional(inner) if isinstance(inner, _Plain) else _Optional(inner)


def _class_codec(kind: type) -> _Codec:
    if hasattr(kind, "state_fields"):
        return _Object(kind)
    if issubclass(kind, enum.Enum):
        return _Member(kind)
    if issubclass(kind, np.random.Generator):
        return _RandomState()
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _Record(kind)
    raise TypeError(f"{kind.__name__} does not declare state_fields")


def _under(name: str, part: object) -> str:
    """The name of a part. Dots in keys are written out, so that no two values have one name."""
    text = str(part).replace("%", "%25").replace(".", "%2E")
    return f"{name}.{text}" if name else text


def _refuse(name: str, value: Any, expected: str) -> NoReturn:
    found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r:.40}"
    raise TypeError(f"{name!r} is {found}, expected {expected}")
