"""Combine clients' updates so that a single client cannot move the result far.

- ``"mean"``: the average weighted by numbers of rows, as published. One client can move it anywhere.
- ``"median"``: the median of each coordinate over clients (Yin, Chen, Ramchandran, Bartlett, 2018).
- ``"trimmed"``: the mean of each coordinate without its largest and smallest values (the same paper).
- ``"clipped"``: the mean of changes that are shortened to a bound, by default the median of their norms.

The last three count clients alike, because a number of rows is the client's own word. They need single updates. Under
masks the server sees sums only. There ``"clipped"`` has a `norm_bound` that every client keeps to, and the server
refuses a mean that is longer. That stops huge updates, not lies within the bound.

Changes of multipliers are combined in the same way, except that ``"clipped"`` takes their median: a client that lies
about its groups lies there first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.privacy.mechanism import clipped
from evenhand.protocol.asking import Body

Rule = Literal["median", "trimmed", "clipped"]
_FIELDS: Final = ("weights", "statistics", "multipliers")


def aggregate(rule: Rule, updates: Sequence[Body], trim: float, norm_bound: float | None = None) -> Mapping[str, Array]:
    """Return the change of weights, statistics and multipliers from those of all participants."""
    found = {name: np.stack([body[name].astype(np.float64) for body in updates]) for name in _FIELDS}
    if rule == "clipped":
        found["weights"] = _shortened(found["weights"], norm_bound)
        return {
            "weights": found["weights"].mean(axis=0),
            "statistics": np.median(found["statistics"], axis=0),
            "multipliers": np.median(found["multipliers"], axis=0),
        }
    return {name: _centre(rule, values, trim) for name, values in found.items()}


def _shortened(changes: Array, norm_bound: float | None) -> Array:
    bound = float(np.median(np.linalg.norm(changes, axis=1))) if norm_bound is None else norm_bound
    return np.stack([clipped(one, bound) for one in changes]) if bound > 0 else np.zeros_like(changes)


def _centre(rule: Rule, values: Array, trim: float) -> Array:
    if rule == "median":
        return np.asarray(np.median(values, axis=0))
    count = len(values)
    out = min(max(1, round(trim * count)), (count - 1) // 2)
    return np.asarray(np.sort(values, axis=0)[out : count - out].mean(axis=0))


def check_length(change: Array, norm_bound: float | None, rows: int, clients: int) -> None:
    """Refuse a masked mean that clients within the bound cannot have, or in which clients do not count alike."""
    length = float(np.linalg.norm(change))
    if norm_bound is not None and (length > norm_bound * (1 + 1e-4) or rows > clients):
        raise ProtocolError(
            f"the mean of the clients' updates has a norm of {length:.3g} and a weight of {rows}. {clients} clients "
            f"that keep to norm_bound = {norm_bound:g} cannot have it: one of them does not follow the protocol"
        )
