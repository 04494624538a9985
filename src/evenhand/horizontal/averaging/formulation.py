"""Define how averaging methods differ: their multipliers, their local objectives and their multiplier updates.

A *multiplier* belongs to an inequality or to one side of it, and has a range of allowed values. A *penalty* adds to
its force if a constraint is violated. A *formulation* combines both. `push` is the derivative of the local objective
with respect to the values of the inequalities. `ascent` is the increase of the multipliers after local training.
Each method's formulation is in the method's own module, with its schedule of steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.horizontal.averaging.options import RoundSettings

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.horizontal.averaging.bound_tensors import BoundTensors


class Multipliers(Protocol):
    """L multipliers of R inequalities; `values` are the values of the inequalities."""

    def __init__(self, bounds: Bounds) -> None: ...

    def __len__(self) -> int: ...

    def excess(self, values: Array) -> Array:
        """Return ∂L/∂λ: the excess over each multiplier's bound; zero for inequalities without a value."""
        ...

    def project(self, multipliers: Array) -> Array:
        """Project onto the allowed multipliers."""
        ...

    def table(self, multipliers: Array, values: Array) -> Array:
        """Return (2, R): λ⁺ and λ⁻ of each inequality, the form of certificates and histories."""
        ...


class SideMultipliers:
    """One free multiplier for an equality, and one non-negative multiplier for each finite side of an inequality.

    So FairFedAvgALM's own constraint, an equality, costs one number in each direction.
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
    """Local objective and multiplier update of a method.

    Attributes
    ----------
    multipliers
        The multipliers and their allowed values.
    """

    multipliers: Multipliers

    def __init__(self, bounds: Bounds) -> None:
        self.multipliers = SideMultipliers(bounds)

    def needs_values(self, settings: RoundSettings) -> bool:
        """Return whether `push` needs the values of the inequalities, which cost a little more."""
        return False

    @abstractmethod
    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        """Return (clients, R): the derivative of a client's extra terms with respect to the values of inequalities.

        It is ignored for an inequality with a slice that is missing in the batch.

        Parameters
        ----------
        values
            (clients, R), on the batch; None unless needed, or known anyway.
        multipliers
            (clients, L).
        """

    @abstractmethod
    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        """Return (L,): the increase of a client's multipliers, from the constraint values on its own rows.

        If the client has no rows in a slice, the value is NaN, and the multiplier does not change. The server projects
        the average of all clients. A projection here would let one client's slack hide another's excess.
        """


class Unconstrained(Formulation):
    """Formulation of FedAvg and FairFed: the mean loss alone."""

    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        return multipliers

    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        return np.zeros(0)
