"""Client of sequential quadratic programming: evaluates trial models, and derivatives at the first of them."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.inequality_parts import NO_SUMS
from evenhand.constraints.leave_one_out import Response
from evenhand.errors import ProtocolError
from evenhand.horizontal.roles import HorizontalClient
from evenhand.horizontal.sqp.counting import CountedRows
from evenhand.horizontal.sqp.messages import FINISH, JUDGED, LEAVE_OUT, LEFT_OUT, TRIALS, VOCABULARY
from evenhand.horizontal.sqp.options import LEAST_FACTOR, LENGTHS
from evenhand.programs.program import Program, ProgramPoint
from evenhand.programs.slices import SlicePoint, SliceProgram
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends


@lru_cache(maxsize=8)
def _places(size: int) -> tuple[Integers, Integers]:
    # Cached, because computing the indices takes longer than copying a small matrix.
    rows, columns = np.triu_indices(size)
    rows.setflags(write=False)
    columns.setflags(write=False)
    return rows, columns


def upper_triangle(matrix: Array) -> Array:
    return matrix[_places(len(matrix))]


def symmetric(triangle: Array, size: int) -> Array:
    """Return the matrix of an upper triangle, or zeros if none was sent."""
    matrix = np.zeros((size, size))
    if len(triangle):
        rows, columns = _places(size)
        matrix[rows, columns] = matrix[columns, rows] = triangle
    return matrix


class SQPClient(HorizontalClient):
    """Client with f_i, c_i and its summands of shared inequalities; only the round number changes.

    Parameters
    ----------
    exact
        Whether it sends second derivatives.
    counted
        Its rows of data, if people are counted; else None.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"round": int, "weights": Array | None}

    def __init__(self, name: str, program: Program, *, exact: bool, counted: CountedRows | None = None) -> None:
        size = program.weights
        sizes = {"weights": size, "own": program.own.n_rows, "shared": program.shared, "trials": len(LENGTHS)}
        sizes |= {"own parts": 0, "shared parts": 0} if counted is None else counted.sizes
        super().__init__(name, sizes | {"curvature": size * (size + 1) // 2 if exact else 0})
        self.program = program
        self.exact = exact
        self.counted = counted
        self.round = 0
        self.weights: Array | None = None
        self._tempered: tuple[float, Program, CountedRows | None] = (1.0, program, counted)

    def _at_factor(self, message: Message) -> tuple[Program, CountedRows | None]:
        """Return the program and the counted rows at the message's factor on the temperature."""
        factor = message.number("factor")
        if factor == 1.0:
            return self.program, self.counted
        if not LEAST_FACTOR <= factor < 1.0 or not isinstance(self.program, SliceProgram):
            raise ProtocolError(f"{self.name} takes no factor {factor:g} on the temperature of its rates")
        if factor != self._tempered[0]:
            program = self.program.tempered(factor)
            counted = None if self.counted is None else self.counted.tempered(program, factor)
            self._tempered = factor, program, counted
        return self._tempered[1:]

    def handle(self, message: Message) -> Sends:
        if not self.done and message.kind == TRIALS.kind and message.integer("round") == self.round + 1:
            self.round += 1
            return [self._judge(message)]
        counts = self.counted is not None
        if not self.done and counts and message.kind == LEAVE_OUT.kind and message.integer("round") == self.round + 1:
            self.round += 1
            return [self._leave_out(message)]
        if not self.done and message.kind == FINISH.kind:
            self.weights, self.done = message["weights"].copy(), True
            return ()
        raise ProtocolError(f"{self.name} takes no such {message.kind!r} at this point")

    def _judge(self, message: Message) -> Message:
        (program, counted), trials = self._at_factor(message), message["trials"]
        own = program.own.n_rows
        first = program.at(trials[0])
        values, rows, jacobian = *self._further(program, first, trials), first.jacobian
        curvature = objective = np.zeros(0)
        self.effort += program.effort * (0.5 * len(trials) + 1.0)
        if self.exact:
            net = np.concatenate([message["own_net"], message["shared_net"]])
            nets = np.stack([np.zeros_like(net), net])[: 1 + bool(net.any())]
            found = first.hessians(nets) if isinstance(first, SlicePoint) else [first.hessian(one) for one in nets]
            objective, curvature = upper_triangle(found[0]), upper_triangle(found[-1])
            self.effort += program.effort * program.weights
        of_own, of_shared = (NO_SUMS, NO_SUMS) if counted is None else counted.at(trials[0])
        return JUDGED.message(
            self.name,
            SERVER,
            round=self.round,
            values=values,
            own=rows[:, :own],
            shared=rows[:, own:],
            gradient=first.gradient,
            own_slopes=jacobian[:own],
            shared_slopes=jacobian[own:],
            curvature=curvature,
            objective_curvature=objective,
            own_counts=of_own.counts,
            own_sums=of_own.sums,
            own_squares=of_own.squares,
            shared_sums=of_shared.sums,
            shared_squares=of_shared.squares,
            shared_smooth=of_shared.smooth,
        )

    @staticmethod
    def _further(program: Program, first: ProgramPoint, trials: Array) -> tuple[Array, Array]:
        """Return values and inequalities of all trials; a trial equal to the first is unused in this round."""
        repeats = (trials == trials[0]).all(axis=1)
        values, rows = np.full(len(trials), first.value), np.empty((len(trials), len(first.constraints)))
        rows[:] = first.constraints
        others = np.flatnonzero(~repeats)
        if isinstance(program, SliceProgram) and len(others):
            values[others], rows[others] = program.judged(trials[others])
            return values, rows
        for place in others:
            point = program.at(trials[place])
            values[place], rows[place] = point.value, point.constraints
        return values, rows

    def _leave_out(self, message: Message) -> Message:
        program, counted = self._at_factor(message)
        assert counted is not None
        size = program.weights
        net = np.concatenate([message["own_net"], message["shared_net"]])
        response = Response(
            symmetric(message["free"], size), np.concatenate([message["own_held"], message["shared_held"]])
        )
        own, shared = counted.left_out(message["weights"], net, response, message["shared_smooth"])
        self.effort += program.effort * size
        return LEFT_OUT.message(self.name, SERVER, round=self.round, own_sums=own, shared_sums=shared)
