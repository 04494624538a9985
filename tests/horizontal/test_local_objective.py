"""The derivative that clients descend on, against autograd of the papers' formulas as they are printed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.horizontal.averaging.fairalm import WeightedLagrangian
from evenhand.horizontal.averaging.fairfedavgalm import AugmentedLagrangian
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.fpfl import AbsoluteLagrangian
from evenhand.horizontal.averaging.local_objective import LocalObjective, as_labels
from evenhand.horizontal.averaging.options import RoundSettings
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.summaries import SliceMeans
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms

ROWS = 40
RNG = np.random.default_rng(5)
GROUPS = pd.DataFrame({"sex": RNG.integers(0, 2, ROWS), "race": np.array(list("abc"))[RNG.integers(0, 3, ROWS)]})
BINARY = np.where(RNG.random(ROWS) < 0.5, 1.0, -1.0)
MULTI = RNG.integers(0, 4, ROWS).astype(float)


def which(column: pd.Series, group: object) -> Tensor:
    return torch.tensor((column == group).to_numpy())


def loss(z: Tensor, y: Tensor) -> Tensor:
    if z.ndim == 1:
        return torch.log1p(torch.exp(-y * z))
    return torch.nn.functional.cross_entropy(z, y, reduction="none")


def derivative(
    constraints: tuple[Constraint, ...],
    scores: Tensor,
    labels: np.ndarray,
    groups: pd.DataFrame,
    multipliers: np.ndarray,
    settings: RoundSettings,
    formulation: type[Formulation] = AugmentedLagrangian,
) -> Tensor:
    """Of one batch with all rows, of one client."""
    client = ClientRows("a", np.zeros((len(labels), 1)), labels, groups)
    # What can occur is agreed on before, so that a batch may lack it.
    agreed = {name: tuple(np.unique(GROUPS[name])) for name in groups.columns}
    classes = None if scores.ndim == 1 else 4
    job = Job("fairfedavgalm", constraints)
    rows = SliceMeans(HorizontalTerms(job, {"a": "client"}, 0, agreed, (1,), classes))
    method = formulation(rows.bounds)
    assert len(method.multipliers) == len(multipliers)
    objective = LocalObjective(rows, method, classes)
    numbers = torch.arange(len(labels))[None, None]
    batches = objective.batches(
        as_labels(labels, classes),
        torch.from_numpy(rows.membership(client).astype(np.float32)),
        numbers,
        torch.ones(numbers.shape),
        settings.slice_weight,
    )
    pull = torch.from_numpy(multipliers[None]).float()
    return objective.derivative(scores.detach()[None], batches, 0, pull, settings)[0]


def by_autograd(formula: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    return torch.autograd.grad(formula(scores), scores)[0]


def scores(classes: int | None = None) -> Tensor:
    torch.manual_seed(3)
    return torch.randn((ROWS,) if classes is None else (ROWS, classes)).requires_grad_(True)


@pytest.mark.parametrize("classes", [None, 4])
def test_equation_10(classes: int | None) -> None:
    labels = BINARY if classes is None else MULTI
    y, s, z = as_labels(labels, classes), torch.tensor(GROUPS["sex"].to_numpy()), scores(classes)

    def formula(z: Tensor) -> Tensor:
        each = loss(z, y)
        gap = each[s == 0].mean() - each[s == 1].mean()
        return each.mean() + 0.7 * gap + 3.0 / 2 * gap**2

    found = derivative(
        (LossParity(0.0),), z, labels, GROUPS[["sex"]], np.array([0.7]), RoundSettings(0.1, penalty=3.0, dual_step=9.0)
    )
    torch.testing.assert_close(found, by_autograd(formula, z))


def test_fairalm_adds_the_sum_of_the_means() -> None:
    y, s, z = as_labels(BINARY, None), torch.tensor(GROUPS["sex"].to_numpy()), scores()

    def formula(z: Tensor) -> Tensor:
        zero, one = loss(z, y)[s == 0].mean(), loss(z, y)[s == 1].mean()
        return loss(z, y).mean() - 0.4 * (zero - one) + 0.8 * (zero + one)

    settings = RoundSettings(0.1, slice_weight=0.8, dual_step=0.8)
    found = derivative((LossParity(0.0),), z, BINARY, GROUPS[["sex"]], np.array([-0.4]), settings, WeightedLagrangian)
    torch.testing.assert_close(found, by_autograd(formula, z))


def test_equation_11_for_three_groups() -> None:
    y, z = as_labels(BINARY, None), scores()
    multipliers = {"a": 0.5, "b": 0.2, "c": 1.5}

    def formula(z: Tensor) -> Tensor:
        each = loss(z, y)
        total = each.mean()
        for group, multiplier in multipliers.items():
            apart = each.mean() - each[which(GROUPS["race"], group)].mean()
            total = total + multiplier * apart.abs() + 2.0 / 2 * apart**2
        return total

    given = np.array(list(multipliers.values()))
    settings = RoundSettings(0.1, penalty=2.0, dual_step=1.0)
    found = derivative((GroupAgainstOverall(0.0),), z, BINARY, GROUPS[["race"]], given, settings, AbsoluteLagrangian)
    torch.testing.assert_close(found, by_autograd(formula, z))


def test_fpfl_leaves_a_row_within_its_threshold_alone() -> None:
    y, z = as_labels(BINARY, None), scores()
    settings = RoundSettings(0.1, penalty=2.0, dual_step=1.0)
    wide = (GroupAgainstOverall(10.0),)
    found = derivative(wide, z, BINARY, GROUPS[["sex"]], np.zeros(2), settings, AbsoluteLagrangian)
    torch.testing.assert_close(found, by_autograd(lambda z: loss(z, y).mean(), z))


def test_rows_with_room_of_several_measures_and_attributes() -> None:
    """Equalized odds of error rates, demographic parity and Neyman-Pearson at once: three measures, both attributes."""
    y, z = as_labels(BINARY, None), scores()
    constraints = (EqualizedOdds(0.05, "error", 0.3), DemographicParity(0.1), NeymanPearson(0.4))
    groups = {name: list(np.unique(GROUPS[name])) for name in ("sex", "race")}
    penalty, place = 4.0, 0
    given = np.random.default_rng(1).random(2 * (4 + 4 + 4) + 1) * (np.arange(25) % 3 > 0)

    def pairs() -> list[tuple[Tensor, Tensor]]:
        found = []
        for name, values in groups.items():
            for i, a in enumerate(values):
                found += [(which(GROUPS[name], a), which(GROUPS[name], b)) for b in values[i + 1 :]]
        return found

    def side(excess: Tensor) -> Tensor:
        """The augmented Lagrangian of an inequality: [λ + β·excess]₊² / 2β, whose derivative is [λ + β·excess]₊."""
        nonlocal place
        pushed = (given[place] + penalty * excess).relu()
        place += 1
        return pushed**2 / (2 * penalty)

    def formula(z: Tensor) -> Tensor:
        nonlocal place
        place = 0
        total = loss(z, y).mean()
        wrong, positive = torch.sigmoid(-y * z / 0.3), torch.sigmoid(z / 0.5)
        for label in (1, -1):
            for a, b in pairs():
                gap = wrong[a & (y == label)].mean() - wrong[b & (y == label)].mean()
                total = total + side(gap - 0.05) + side(-0.05 - gap)
        for a, b in pairs():
            gap = positive[a].mean() - positive[b].mean()
            total = total + side(gap - 0.1) + side(-0.1 - gap)
        return total + side(loss(z, y)[y == 1].mean() - 0.4)

    expected = by_autograd(formula, z)
    assert place == len(given)
    # Above a row's two sides follow each other; multipliers have all upper sides first.
    by_side = np.concatenate([given[0::2], given[1::2]])
    found = derivative(constraints, z, BINARY, GROUPS, by_side, RoundSettings(0.1, penalty=penalty, dual_step=1.0))
    torch.testing.assert_close(found, expected)


def test_a_batch_that_lacks_a_group_has_no_term_for_its_rows() -> None:
    """Of a, b and c the batch has a and b only: the row that compares them stays, the other two go."""
    inside = (GROUPS["race"] != "c").to_numpy()
    labels, groups = BINARY[inside], GROUPS.loc[inside, ["race"]].reset_index(drop=True)
    y, z = as_labels(labels, None), scores().detach()[torch.tensor(inside)].requires_grad_(True)
    a = which(groups["race"], "a")

    def formula(z: Tensor) -> Tensor:
        gap = loss(z, y)[a].mean() - loss(z, y)[~a].mean()
        return loss(z, y).mean() + 0.3 * gap + 0.5 * gap**2

    settings = RoundSettings(0.1, penalty=1.0, dual_step=1.0)
    found = derivative((LossParity(0.0),), z, labels, groups, np.array([0.3, 5.0, 7.0]), settings)
    torch.testing.assert_close(found, by_autograd(formula, z))
