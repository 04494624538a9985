"""Proximal AL Algorithms 1 and 2 line by line, from the messages alone.

A bystander who reads every message, and can evaluate the programs, works out every u_i, λ_i and μ_i and checks each
line of the paper on them. Answers would hide a wrong line: the method forgives much on its way to the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.programs import samples, strongly_convex

from evenhand.horizontal.prox_al.client import LocalStep, SteppingClient
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.programs.program import Program
from evenhand.protocol.messages import Message
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand_reproductions.programs.problems import neyman_pearson, random_quadratic_programs
from evenhand_reproductions.programs.quadratic import ExactSolve
from evenhand_reproductions.programs.solving import deal, prox_al_roles

Array = np.ndarray
BETA = 10.0


class Bystander:
    """One side of the exchange, a client's or the server's, reconstructed; the server may have no rows of its own."""

    def __init__(self, program: Program | None, clients: int, rho: float) -> None:
        self.program, self.clients, self.rho = program, clients, rho
        self.multipliers = np.zeros(0 if program is None else program.own.n_sides)
        self.centre: Array | None = None

    def pushed(self, w: Array) -> Array:
        """[μ + β c(w)]₊, and without [·]₊ where the row is an equality."""
        if self.program is None:
            return self.multipliers
        own = self.program.own
        pushed = self.multipliers + BETA * own.side_excess(self.program.at(w).constraints)
        return np.where(own.free, pushed, np.maximum(pushed, 0.0))

    def slope(self, w: Array) -> Array:
        """∇P_i, from proximal AL Eq. 14."""
        near = (w - self.centre) / ((self.clients + 1) * BETA)
        if self.program is None:
            return near
        point, own = self.program.at(w), self.program.own
        by_row = np.zeros(own.n_rows)
        np.add.at(by_row, own.row, own.sign * self.pushed(w))
        return point.gradient + by_row @ point.jacobian + near

    def outer(self, w: Array, first: bool) -> None:
        """w^k is here: μ^k by proximal AL Algorithm 1, then where ADMM begins."""
        self.centre = w
        if not first:
            self.multipliers = self.pushed(w)
        self.u, self.consensus = w, -self.slope(w)

    def averaged(self, w: Array, anchors: list[Array], tolerance: float) -> None:
        """The server has made its w of the ũ_i; there is no h here."""
        at_w = self.slope(w) + self.rho * sum(w - anchor for anchor in anchors)
        assert np.abs(at_w).max() <= (tolerance if self.program else 0.0) * (1 + 1e-9) + 1e-11, "proximal AL Eq. 18"

    def answered(self, w: Array, anchor: Array, residual: float, tolerance: float) -> None:
        """ũ_i and ε̃_i have come for the server's w."""
        # proximal AL Eq. 20 and proximal AL Eq. 21, solved for u.
        u = 0.5 * (anchor + w - self.consensus / self.rho)
        at_u = self.slope(u) + self.consensus + self.rho * (u - w)
        assert np.abs(at_u).max() <= tolerance * (1 + 1e-9) + 1e-11, "proximal AL Eq. 19"
        expected = np.abs(self.slope(w) + self.consensus - self.rho * (w - self.u)).max()
        assert residual == pytest.approx(expected, rel=1e-6, abs=1e-10), "proximal AL Eq. 22"
        self.u, self.consensus = u, self.consensus + self.rho * (u - w)


def conversation(programs: Any, server: Program | None, options: ProxAL) -> list[Message]:
    head, clients = prox_al_roles(deal(programs, server), options)
    transcript = Transcript(keep_messages=True)
    InProcess([head, *clients], transcript=transcript).run()
    assert transcript.messages is not None
    return transcript.messages


def programs_of(kind: str) -> tuple[Sequence[Program], Program | None]:
    if kind == "quadratic":
        return strongly_convex(5, 3, 4, 2)
    if kind.startswith("equalities"):
        return random_quadratic_programs(3, 12, 2, seed=1)
    return neyman_pearson(samples(), 0.3).clients, None


def counted_exact_steps(monkeypatch: pytest.MonkeyPatch) -> list[LocalStep]:
    taken: list[LocalStep] = []
    plain = ExactSolve.step

    def step(self: ExactSolve, member: SteppingClient, *given: Any) -> LocalStep | None:
        found = plain(self, member, *given)
        if found is not None:
            # No message tells the gradient that the client will begin from, should it have to solve by itself.
            true = member.augmented.at(found.here.weights).gradient
            np.testing.assert_allclose(found.here.gradient, true, atol=1e-9)
            taken.append(found)
        return found

    monkeypatch.setattr(ExactSolve, "step", step)
    return taken


@pytest.mark.parametrize("rho", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("kind", ["quadratic", "equalities, one Newton step", "slices of data, clients batched"])
def test_every_line_of_both_algorithms(rho: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = counted_exact_steps(monkeypatch)
    programs, server = programs_of(kind)
    options = ProxAL(penalty=BETA, subproblem=0.05, rho=rho, max_outer=4, max_inner=40)
    sides = {f"c{place}": Bystander(program, 3, rho) for place, program in enumerate(programs)}
    head, anchors = Bystander(server, 3, rho), {}
    sent: dict[str, Message] = {}
    residuals: dict[str, float] = {}
    subproblems = answers = 0
    for message in conversation(programs, server, options):
        name = message.receiver if message.sender == "server" else message.sender
        if message.kind == "prox-al outer":
            # A subproblem ends by proximal AL Eq. 23, or at the cap.
            if residuals:
                total = sent[name].number("tolerance") + sum(residuals.values())
                capped = sent[name].integer("inner") == options.max_inner
                assert capped or total <= options.tau(message.integer("outer") - 1), "proximal AL Eq. 23"
            for side in {sides[name], head} if name == "c0" else {sides[name]}:
                side.outer(message["weights"], first=message.integer("outer") == 0)
            subproblems += 1
        elif message.kind == "prox-al outcome":
            anchors[name] = message["anchor"]
        elif message.kind == "prox-al step":
            sent[name] = message
            least = options.floor * options.tau(message.integer("outer")) / (3 + 1)
            assert message.number("tolerance") == max(0.5 ** (message.integer("inner") - 1), least)
            if name == "c0":
                head.averaged(message["weights"], list(anchors.values()), message.number("tolerance"))
        elif message.kind == "prox-al answer":
            asked, answers = sent[name], answers + 1
            residuals[name], anchors[name] = message.number("residual"), message["anchor"]
            sides[name].answered(asked["weights"], message["anchor"], residuals[name], asked.number("tolerance"))
    assert subproblems == 3 * 5
    assert answers > 3 * 5
    # Not the first ones: an inverse is made only where a client has to move.
    assert answers - 2 * 3 <= len(exact) < answers if kind.startswith("equalities") else not exact
