"""What tells methods of FedAvg's kind apart: whose multipliers there are, how they push at the rows, how they rise.

A *multiplier* belongs to a constraint row or to a side of one, and has values it may take. A *penalty* adds to its push
where a row is exceeded. A *formulation* puts the two together: what a client minimises on a batch, as the derivative in
the constraint rows' values (`push`), and what its multipliers rise by when it has trained (`ascent`). Each method's
formulation is in the method's own file, with the schedule of its steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.bounds import Bounds
from evenhand.horizontal.averaging.options import RoundSettings

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.horizontal.averaging.bound_tensors import BoundTensors


class Multipliers(Protocol):
    """L multipliers over R constraint rows; `values` are those of the rows."""

    def __init__(self, bounds: Bounds) -> None: ...

    def __len__(self) -> int: ...

    def excess(self, values: Array) -> Array:
        """∂L/∂λ: how far each multiplier's bound is exceeded; zero where a row has no value."""
        ...

    def project(self, multipliers: Array) -> Array:
        """The nearest multipliers that are allowed."""
        ...

    def table(self, multipliers: Array, values: Array) -> Array:
        """(2, R): the same as λ⁺ and λ⁻ of each row, which is how certificates and histories have them."""
        ...


class SideMultipliers:
    """One free multiplier for an equality, one non-negative multiplier for each finite side of any other row.

    So FairFedAvgALM's own constraint, an equality, costs one number each way.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def __len__(self) -> int:
        return self._bounds.n_sides

    def excess(self, values: Array) -> Array:
        return np.nan_to_num(self._bounds.side_excess(values))

    def project(self, multipliers: Array) -> Array:
        return self._bounds.project(multipliers)

    def table(self, multipliers: Array, values: Array) -> Array:
        return self._bounds.table(multipliers)


class Formulation(ABC):
    """A method's own terms.

    Attributes
    ----------
    multipliers
        Whose they are, and what values they may take.
    """

    multipliers: Multipliers

    def __init__(self, bounds: Bounds) -> None:
        self.multipliers = SideMultipliers(bounds)

    def needs_values(self, settings: RoundSettings) -> bool:
        """Whether `push` asks for the rows' values, which cost a little more than the rest."""
        return False

    @abstractmethod
    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        """(clients, R): derivative of what a client adds to its mean loss in the constraint rows' values.

        What it says of a row that the batch lacks a slice of is of no account: the row has no part in the batch.

        Parameters
        ----------
        values
            (clients, R), of the batch; None unless they are needed, or known anyway.
        multipliers
            (clients, L).
        """

    @abstractmethod
    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        """(L,): what a client's multipliers rise by, from the rows' values on its own rows of data.

        A row with a slice that the client lacks (its value is not a number) moves its multiplier by zero. Signs are the
        server's business: it projects the average, where projecting here would let one client's room hide another's
        excess.
        """


class Unconstrained(Formulation):
    """FedAvg and FairFed: the mean loss alone."""

    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        return multipliers

    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        return np.zeros(0)
