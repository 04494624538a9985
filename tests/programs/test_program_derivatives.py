"""Every program's derivatives are those of its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from support.programs import KINDS, check_derivatives, samples, strongly_convex, unit_discs

from evenhand.constraints.kinds import Constraint, EqualOpportunity, LossParity
from evenhand.errors import InputError
from evenhand.programs.augmented import Augmented
from evenhand.programs.shared import decoupled, widened
from evenhand.programs.slices import SliceProgram
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.problems import constrained, neyman_pearson
from evenhand_reproductions.programs.smooth import SmoothProgram
from evenhand_reproductions.programs.torch_program import TorchProgram


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.measure}")
def test_every_constraint_in_both_scopes(kind: Constraint) -> None:
    rng = np.random.default_rng(1)
    program = constrained(samples(), kind, scope="both", regulariser=0.1).clients[1]
    rows = program.own.n_rows + program.shared
    assert program.shared == program.own.n_rows > 0
    check_derivatives(program, rng.standard_normal(program.weights), rng.standard_normal(rows))


@pytest.mark.slow
@given(seed=st.integers(0, 1000))
def test_pooled_decoupled_and_sparse_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dealt = samples(seed, 48, 2)
    federated = constrained(dealt, [LossParity(0.1), EqualOpportunity(0.2, measure="error")], scope="both")
    at = rng.standard_normal(5)
    pooled = Pooled(federated.clients, None, federated.shared)
    check_derivatives(pooled, at, rng.standard_normal(pooled.own.n_rows))
    clients = [decoupled(client, federated.shared, 2, place) for place, client in enumerate(federated.clients)]
    server = widened(None, federated.shared, 2, 5)
    wide = rng.standard_normal(5 + 2 * federated.shared.n_rows)
    for program in [*clients, server]:
        check_derivatives(program, wide, rng.standard_normal(program.own.n_rows))
    first = federated.clients[0]
    assert isinstance(first, SliceProgram)
    sparse = SliceProgram(
        sp.csr_array(first.features), first.labels, first.objective, first.combinations, first.measures, first.own
    )
    check_derivatives(sparse, at, rng.standard_normal(len(first.measures)))
    np.testing.assert_allclose(sparse.at(at).constraints, first.at(at).constraints)


def test_quadratic_and_smooth_programs() -> None:
    rng = np.random.default_rng(0)
    clients, server = strongly_convex(0, 2, 4, 3)
    for program in [*clients, server]:
        check_derivatives(program, rng.standard_normal(4), rng.standard_normal(3))
    for smooth in unit_discs():
        check_derivatives(smooth, rng.standard_normal(2), rng.standard_normal(1))


def test_the_augmented_lagrangian_is_that_of_the_text() -> None:
    rng = np.random.default_rng(2)
    program = neyman_pearson(samples(), 0.2).clients[0]
    multipliers, beta, centre, at = np.array([0.7]), 3.0, rng.standard_normal(5), rng.standard_normal(5)
    point = Augmented(program, multipliers, beta, centre, 0.25).at(at)
    own = program.at(at)
    pushed = np.maximum(multipliers + beta * (own.constraints - 0.2), 0.0)
    by_hand = (
        own.value + (pushed @ pushed - multipliers @ multipliers) / (2 * beta) + 0.125 * np.sum((at - centre) ** 2)
    )
    assert point.value == pytest.approx(by_hand)
    width = 1e-6
    for place, unit in enumerate(np.eye(5)):
        up = Augmented(program, multipliers, beta, centre, 0.25).at(at + width * unit)
        down = Augmented(program, multipliers, beta, centre, 0.25).at(at - width * unit)
        assert point.gradient[place] == pytest.approx((up.value - down.value) / (2 * width), abs=1e-6)
        bend = (up.gradient - down.gradient) / (2 * width)
        np.testing.assert_allclose(point.hessian()[:, place], bend, atol=1e-5)
        np.testing.assert_allclose(point.hessian_product(unit), bend, atol=1e-5)


def test_torch_gives_the_derivatives_that_numpy_has() -> None:
    torch = pytest.importorskip("torch")
    federated = neyman_pearson(samples(), 0.3)
    by_numpy = federated.clients[0]
    assert isinstance(by_numpy, SliceProgram)
    features, labels = torch.tensor(by_numpy.features), torch.tensor(by_numpy.labels)

    def losses(w: Any) -> Any:
        return torch.nn.functional.softplus(-labels * (features @ w))

    by_torch = TorchProgram(
        5,
        lambda w: torch.tensor(by_numpy.objective) @ losses(w),
        lambda w: torch.tensor(by_numpy.combinations) @ losses(w),
        by_numpy.own.lower,
        by_numpy.own.upper,
    )
    at, net = np.linspace(-1, 1, 5), np.array([0.4])
    check_derivatives(by_torch, at, net)
    one, other = by_torch.at(at), by_numpy.at(at)
    assert one.value == pytest.approx(other.value)
    np.testing.assert_allclose(one.gradient, other.gradient)
    np.testing.assert_allclose(one.hessian(net), other.hessian(net))


def test_functions_of_the_wrong_shape_are_refused() -> None:
    program = SmoothProgram(3, lambda w: 0.0, lambda w: np.zeros(2))
    with pytest.raises(InputError, match="gradient has shape"):
        _ = program.at(np.zeros(3)).gradient
    with pytest.raises(InputError, match="no constraints"):
        SmoothProgram(3, lower=[0.0], upper=[1.0])
    with pytest.raises(InputError, match="neither"):
        SmoothProgram(3, lambda w: 0.0)
