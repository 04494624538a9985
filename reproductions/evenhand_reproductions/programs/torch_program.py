"""Programs written as torch functions: derivatives by automatic differentiation. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import InputError, MissingExtraError
from evenhand.programs.program import Curvature


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("A program of torch functions", "torch") from error
    return torch


class TorchProgram:
    """A program of torch functions of a flat float64 tensor w.

    Parameters
    ----------
    objective
        w → f(w), a tensor without dimensions; None for a server without an objective.
    constraints
        w → c(w), one entry a row.
    lower, upper
        Bounds of the first rows of c; the last `shared` rows are summands of shared rows.
    """

    curvature: Curvature = "product"

    def __init__(
        self,
        weights: int,
        objective: Callable[[Any], Any] | None,
        constraints: Callable[[Any], Any] | None = None,
        lower: npt.ArrayLike = (),
        upper: npt.ArrayLike = (),
        *,
        shared: int = 0,
        effort: float | None = None,
    ) -> None:
        _torch()
        self.weights = weights
        self.objective = objective
        self.constraints = constraints
        self.own = Bounds(lower, upper)
        self.shared = shared
        if constraints is None and (self.own.n_rows or shared):
            raise InputError("there are bounds, but no constraints they bound")
        self.effort = float(weights) if effort is None else effort

    def at(self, weights: Array) -> TorchPoint:
        return TorchPoint(self, weights)


class TorchPoint:
    """A torch program at one w; second derivatives are products (two backward passes each)."""

    def __init__(self, program: TorchProgram, weights: Array) -> None:
        torch = _torch()
        self._of = program
        self._w = torch.tensor(weights, dtype=torch.float64, requires_grad=True)

    @cached_property
    def _values(self) -> tuple[Any, Any]:
        torch, of = _torch(), self._of
        zero = 0.0 * self._w.sum()
        value = zero if of.objective is None else of.objective(self._w)
        rows = self._w.new_zeros(0) if of.constraints is None else of.constraints(self._w)
        if rows.shape != (of.own.n_rows + of.shared,):
            raise InputError(
                f"constraints have shape {tuple(rows.shape)}; {of.own.n_rows + of.shared} rows are bounded"
            )
        return value + zero, torch.atleast_1d(rows)

    def _slope(self, output: Any, keep: bool = False) -> Any:
        torch = _torch()
        (found,) = torch.autograd.grad(
            output, self._w, create_graph=keep, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return found

    @property
    def value(self) -> float:
        return float(self._values[0].detach())

    @cached_property
    def gradient(self) -> Array:
        return np.array(self._slope(self._values[0]).numpy(), dtype=np.float64)

    @property
    def constraints(self) -> Array:
        return np.array(self._values[1].detach().numpy(), dtype=np.float64)

    @cached_property
    def jacobian(self) -> Array:
        rows = [self._slope(row).numpy() for row in self._values[1]]
        return np.array(rows, dtype=np.float64).reshape(len(rows), self._of.weights)

    def hessian_product(self, net: Array, direction: Array) -> Array:
        torch = _torch()
        value, rows = self._values
        lagrangian = value + rows @ torch.tensor(net, dtype=torch.float64)
        slope = self._slope(lagrangian, keep=True)
        if not slope.requires_grad:
            return np.zeros(self._of.weights)
        product = self._slope(slope @ torch.tensor(direction, dtype=torch.float64))
        return np.array(product.numpy(), dtype=np.float64)

    def hessian(self, net: Array) -> Array:
        columns = [self.hessian_product(net, unit) for unit in np.eye(self._of.weights)]
        found = np.array(columns)
        return 0.5 * (found + found.T)
