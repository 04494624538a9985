"""Answers as words that can be added, and the sum as answers again.

A solver's server takes one answer from each client and adds them up. Here it is handed as many answers that add up to
the same: whatever it does with sums it does as before, and what it would do with single answers shows it nothing.
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
    """Answers of some kinds, one after the other.

    Parameters
    ----------
    kinds
        Of a client's answers, in the order in which it gives them.
    vocabulary
        That they are from.
    sizes
        Of their fields.
    clients
        How many answers will be added at most.
    free
        Sizes of dimensions that have none by name, in the order of fields.
    """

    kinds: tuple[str, ...]
    vocabulary: Vocabulary
    sizes: Mapping[str, int]
    clients: int
    free: tuple[int, ...] = ()

    @classmethod
    def of(cls, answers: Sequence[Message], vocabulary: Vocabulary, sizes: Mapping[str, int], clients: int) -> Self:
        """As these answers need it."""
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
                raise ProtocolError(f"messages of kind {kind!r} do not add up; they are not sent where only sums are")

        free = [size for kind in self.kinds for field in self._fields(kind) for size in field.shape if size is None]
        if len(free) != len(self.free) or not all(0 <= size <= LONGEST for size in self.free):
            raise ProtocolError(f"the sizes {self.free} do not go with {', '.join(self.kinds)}; refused")

    def _fields(self, kind: str) -> list[Field]:
        return list(self.vocabulary[kind].fields.values())

    def _summed(self) -> Iterator[tuple[Schema, str, tuple[int, ...]]]:
        """What is added: field by field, with its shape."""
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
        """Words in all."""
        return sum(prod(shape) * _words(schema, name) for schema, name, shape in self._summed())

    def alike(self, answers: Sequence[Message]) -> Integers:
        """What everybody says the same."""
        said = [answer.integer(name) for answer in answers for name in self._alike(answer.kind)]
        return np.array(said, dtype=np.int64)

    def _alike(self, kind: str) -> tuple[str, ...]:
        adds = self.vocabulary[kind].adds
        return () if adds is None else adds.alike

    @property
    def count_alike(self) -> int:
        return sum(len(self._alike(kind)) for kind in self.kinds)

    def words(self, answers: Sequence[Message]) -> Words:
        """A client's answers; means are multiplied by their weight first."""
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
        """By kind and field, what the clients' answers add up to; of means, the weighted mean."""
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
        """Answers in the clients' names that add up to the sums: all have the same mean, and the first has the rest."""
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
    """One client's part of a total: all of it is the first one's, unless it is dealt evenly."""
    if not even:
        return total if place == 0 else np.zeros_like(total)
    if total.dtype != np.int64:
        return total / count
    each, rest = np.divmod(total, count)
    return np.asarray(each + (place < rest), dtype=np.int64)


def _words(schema: Schema, name: str) -> int:
    """Whole numbers are words, and short ones have the precision of one word to spare; others are given two."""
    return 2 if schema.fields[name].dtype == "f8" else 1
