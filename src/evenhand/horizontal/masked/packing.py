"""Pack answers into words that can be added, and unpack the sum into answers.

A solver's server takes one answer from each client and adds them. Here it receives as many answers, with the same sum.
So whatever it computes from sums is unchanged, and single answers tell it nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self, TypeAlias

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import decode, decode_wide, encode, encode_wide
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import LONGEST, Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER

Sum: TypeAlias = Array | Integers


@dataclass(frozen=True, eq=False)
class AnswerWords:
    """Layout of answers of some kinds in one array of words.

    Parameters
    ----------
    kinds
        Kinds of a client's answers, in the order in which it gives them.
    vocabulary
        Vocabulary of the answers.
    sizes
        Sizes of their fields.
    clients
        Largest number of answers that are added.
    free
        Sizes of dimensions without a name, in the order of fields.
    """

    kinds: tuple[str, ...]
    vocabulary: Vocabulary
    sizes: Mapping[str, int]
    clients: int
    free: tuple[int, ...] = ()

    @classmethod
    def of(cls, answers: Sequence[Message], vocabulary: Vocabulary, sizes: Mapping[str, int], clients: int) -> Self:
        """Return the layout for these answers."""
        shapes = [
            found
            for answer in answers
            for name, field in vocabulary[answer.kind].fields.items()
            for size, found in zip(field.shape, answer[name].shape, strict=True)
            if size is None
        ]
        return cls(tuple(answer.kind for answer in answers), vocabulary, sizes, clients, tuple(shapes))

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if self.vocabulary[kind].adds is None:
                raise ProtocolError(f"messages of kind {kind!r} cannot be added; they cannot be sent with masks")

        free = [size for kind in self.kinds for field in self._fields(kind) for size in field.shape if size is None]
        if len(free) != len(self.free) or not all(0 <= size <= LONGEST for size in self.free):
            raise ProtocolError(f"the sizes {self.free} do not match {', '.join(self.kinds)}; the answer is refused")

    def _fields(self, kind: str) -> list[Field]:
        return list(self.vocabulary[kind].fields.values())

    def _summed(self) -> Iterator[tuple[Schema, str, tuple[int, ...]]]:
        """Iterate over the fields that are added, with their shapes."""
        free = iter(self.free)
        for kind in self.kinds:
            schema = self.vocabulary[kind]
            for name, field in schema.fields.items():
                shape = tuple(next(free) if size is None else self._size(size) for size in field.shape)
                if schema.adds and name not in schema.adds.alike:
                    yield schema, name, shape

    def _size(self, size: int | str) -> int:
        return self.sizes[size] if isinstance(size, str) else size

    @property
    def size(self) -> int:
        """Number of words."""
        return sum(prod(shape) * _words(schema, name) for schema, name, shape in self._summed())

    def alike(self, answers: Sequence[Message]) -> Integers:
        """Return the fields that have the same value at all clients."""
        said = [answer.integer(name) for answer in answers for name in self._alike(answer.kind)]
        return np.array(said, dtype=np.int64)

    def _alike(self, kind: str) -> tuple[str, ...]:
        adds = self.vocabulary[kind].adds
        return () if adds is None else adds.alike

    @property
    def count_alike(self) -> int:
        return sum(len(self._alike(kind)) for kind in self.kinds)

    def words(self, answers: Sequence[Message]) -> Words:
        """Encode a client's answers; means are multiplied by their weight first."""
        parts = [np.zeros(0, dtype=np.uint64)]
        by_kind = {answer.kind: answer for answer in answers}
        for schema, name, _ in self._summed():
            assert schema.adds is not None
            given = by_kind[schema.kind][name]
            if given.dtype == np.int64:
                parts.append(np.atleast_1d(given).view(np.uint64).ravel())
                continue
            values = given.astype(np.float64)
            if name in schema.adds.means:
                values = values * by_kind[schema.kind].number(schema.adds.weight)
            wide = _words(schema, name) == 2
            parts.append((encode_wide(values, self.clients) if wide else encode(values, parties=self.clients)).ravel())
        return np.concatenate(parts)

    def sums(self, words: Words) -> dict[str, dict[str, Sum]]:
        """Decode the sum of the answers, by kind and field; means become weighted means."""
        found: dict[str, dict[str, Sum]] = {kind: {} for kind in self.kinds}
        start = 0
        for schema, name, shape in self._summed():
            each = _words(schema, name)
            part = words[start : start + each * prod(shape)]
            start += len(part)
            if schema.fields[name].dtype == "i8":
                found[schema.kind][name] = part.view(np.int64).reshape(shape)
            elif each == 2:
                found[schema.kind][name] = decode_wide(part.reshape(2, *shape), self.clients)
            else:
                found[schema.kind][name] = decode(part.reshape(shape))
        for kind, fields in found.items():
            adds = self.vocabulary[kind].adds
            assert adds is not None
            for name in adds.means:
                whole = float(fields[adds.weight])
                fields[name] = fields[name] / whole if whole else np.zeros_like(fields[name])
        return found

    def dealt(self, sums: Mapping[str, Mapping[str, Sum]], alike: Integers, clients: Sequence[str]) -> list[Message]:
        """Return answers in the clients' names that add up to the sums; means are equal, and the first has the rest."""
        answers = []
        said = iter(alike.tolist())
        for kind in self.kinds:
            schema = self.vocabulary[kind]
            adds = schema.adds
            assert adds is not None
            common: dict[str, Any] = {name: next(said) for name in adds.alike}
            common |= {name: sums[kind][name] for name in adds.means}
            for place, client in enumerate(clients):
                own = {
                    name: _share(total, place, len(clients), name in adds.even)
                    for name, total in sums[kind].items()
                    if name not in common
                }
                answers.append(schema.message(client, SERVER, **common, **own))
        return answers


def _share(total: Sum, place: int, count: int, even: bool) -> Sum:
    """Return one client's part of a total: an even share, or all of it for the first client."""
    if not even:
        return total if place == 0 else np.zeros_like(total)
    if total.dtype != np.int64:
        return total / count
    each, rest = np.divmod(total, count)
    return np.asarray(each + (place < rest), dtype=np.int64)


def _words(schema: Schema, name: str) -> int:
    """Return 1 for integers and single precision, which fit one word, and 2 for double precision."""
    return 2 if schema.fields[name].dtype == "f8" else 1
