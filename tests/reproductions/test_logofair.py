"""LoGoFair: the whole post-processing recomputed with another program's derivatives, and its convex optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit

from evenhand.errors import InputError
from evenhand_reproductions.methods.logofair import Calibration, LoGoFair, fit

Array = np.ndarray


def drawn(seed: int, rows: int = 240, groups: int = 2) -> tuple[Array, Array, Array, Array]:
    """Probabilities that are right on average, labels, groups and clients of which one has few of group 1."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(groups, size=rows)
    clients = np.where(rng.random(rows) < 0.35 + 0.3 * (codes == 1), "south", "north")
    scores = expit(1.2 * rng.standard_normal(rows) + 0.8 * (codes == 0) - 0.5 * (clients == "north"))
    labels = np.where(rng.random(rows) < scores, 1.0, -1.0)
    return scores, labels, codes, clients


def reference(o: LoGoFair, s: Array, y: Array, a: Array, c: Array) -> tuple[Array, dict[str, Array]]:
    """λ, and μ⁺ − μ⁻ of each client, by derivatives of H_c as printed, with torch."""
    torch = pytest.importorskip("torch")
    n, names = len(s), sorted(set(c))

    def margins(place: int, group: int, lam: Any, mu: Any, inside: Array) -> Any:
        """π (2s − 1) − …, for the rows of a client and group."""
        t, sign = torch.tensor(s[inside]), 1.0 if group else -1.0
        ys = (1, -1) if o.odds else (None,)
        total = 2.0 * t - 1.0
        for j, label in enumerate(ys):
            of_label = np.ones(n, dtype=bool) if label is None else y == label
            w = 1.0 if label is None else t if label == 1 else 1.0 - t
            total = total - lam[j] * sign * w / ((a == group) & of_label).mean()
            total = total - mu[j] * sign * w / ((a == group) & of_label & (c == names[place])).mean()
        return total * inside.mean()

    def objective(place: int, lam: Any, pair: Any, exact: bool) -> Any:
        total = o.global_gap * lam.abs().sum() / len(names) + o.local_gap * pair.sum()
        for group in (0, 1):
            inside = (a == group) & (c == names[place])
            inner = margins(place, group, lam, pair[0] - pair[1], inside)
            smooth = torch.relu(inner) if exact else torch.nn.functional.softplus(inner, beta=o.sharpness)
            total = total + smooth.sum() / inside.sum()
        return total

    gaps = 2 if o.odds else 1
    lam = torch.full((gaps,), 0.1, dtype=torch.float64)
    pairs = [torch.full((2, gaps), 0.1, dtype=torch.float64) for _ in names]

    def own(place: int, steps: int, exact: bool) -> None:
        for _ in range(steps):
            x = pairs[place].clone().requires_grad_()
            (slope,) = torch.autograd.grad(objective(place, lam, x, exact), x)
            pairs[place] = pairs[place] * torch.exp(-o.local_step * slope)

    for _ in range(o.rounds):
        answers = []
        for place in range(len(names)):
            own(place, o.local_steps, exact=False)
            mine = lam.clone()
            for _ in range(o.local_steps):
                x = mine.clone().requires_grad_()
                (slope,) = torch.autograd.grad(objective(place, x, pairs[place], False), x)
                mine = mine - o.global_step * slope
            answers.append(mine)
        lam = sum(answers) / len(names)
    for place in range(len(names)):
        own(place, 5 * o.local_steps, exact=True)
    return lam.numpy(), {name: (one[0] - one[1]).numpy() for name, one in zip(names, pairs, strict=True)}


@pytest.mark.parametrize("odds", [True, False])
def test_the_whole_exchange_is_that_of_another_program(odds: bool) -> None:
    options = LoGoFair(odds=odds, rounds=3, local_steps=4, sharpness=200.0, global_gap=0.03, local_gap=0.01)
    rows = drawn(seed=2)
    found = fit(options, *rows, calibrate=False)
    multipliers, own = reference(options, *rows)
    np.testing.assert_allclose(found.multipliers, multipliers, atol=1e-9)
    for name, expected in own.items():
        np.testing.assert_allclose(found.own[name][0], expected, atol=1e-9)


def best(gap: float, s: Array, a: Array, c: Array) -> Array:
    """Shares of rows to select, of most expected accuracy, with rates of both groups within `gap`: a linear program."""
    bounded = []
    for inside in (np.ones(len(s), dtype=bool), *(c == name for name in sorted(set(c)))):
        one, other = (inside & (a == group) for group in (0, 1))
        bounded.append(one / one.sum() - other / other.sum())
    rows = np.array(bounded)
    limits = np.full(2 * len(rows), gap)
    found = linprog(-(2.0 * s - 1.0), A_ub=np.vstack([rows, -rows]), b_ub=limits, bounds=(0.0, 1.0), method="highs")
    return np.asarray(found.x)


def test_parity_holds_everywhere_at_nearly_the_best_expected_accuracy() -> None:
    """Against the linear program over all decisions on the same rows, of which fractions are two or three rows."""
    s, y, a, c = drawn(seed=5, rows=4000)
    found = fit(LoGoFair(odds=False, global_gap=0.02, local_gap=0.02, rounds=60), s, y, a, c, calibrate=False)
    selected = found.margins(s, a, c) > 0.0
    free = (2.0 * s - 1.0) > 0.0
    for inside in (np.ones(len(s), dtype=bool), c == "north", c == "south"):
        gap = abs(selected[inside & (a == 0)].mean() - selected[inside & (a == 1)].mean())
        assert gap <= 0.03
        assert abs(free[inside & (a == 0)].mean() - free[inside & (a == 1)].mean()) > 0.2
    value = (2.0 * s - 1.0) @ best(0.02, s, a, c)
    assert (2.0 * s - 1.0) @ selected == pytest.approx(value, rel=0.01)


def test_calibration_finds_probabilities_by_client_and_group() -> None:
    rng = np.random.default_rng(0)
    true = rng.random(20_000)
    labels = np.where(rng.random(true.size) < true, 1.0, -1.0)
    # Scores that are too sure, and shifted.
    scores = expit(2.0 * np.log(true / (1.0 - true)) + 1.0)
    np.testing.assert_allclose(Calibration.fit(scores, labels)(scores), true, atol=0.03)
    one_label = Calibration.fit(scores, np.ones_like(labels))
    np.testing.assert_allclose(one_label(scores), scores, atol=1e-9)


def test_three_groups_and_a_client_without_one_of_them() -> None:
    s, y, a, c = drawn(seed=7, rows=3000, groups=3)
    c = np.where((c == "north") & (a == 2), "south", c)
    found = fit(LoGoFair(odds=False, rounds=60), s, y, a, c)
    selected = found.margins(s, a, c) > 0.0
    rates = [selected[a == group].mean() for group in range(3)]
    free = [((2.0 * s - 1.0) > 0.0)[a == group].mean() for group in range(3)]
    assert np.ptp(rates) < 0.5 * np.ptp(free)


def test_decisions_are_for_the_clients_that_were_there() -> None:
    s, y, a, c = drawn(seed=1)
    found = fit(LoGoFair(rounds=1, local_steps=1), s, y, a, c)
    with pytest.raises(InputError, match="'west'"):
        found.margins(s[:1], a[:1], np.array(["west"]))
