"""Baselines of the field: each recomputed for three rounds from its paper, and under the contract of solvers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.problems import small

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "horizontal"))

from horizontal_contract import Case, HorizontalContract

from evenhand.constraints.kinds import Constraint, LossParity
from evenhand.constraints.slices import Bounds, Slice
from evenhand.errors import InputError
from evenhand.horizontal.averaging.batched import Batching, deal
from evenhand.horizontal.problem import ClientRows, generator
from evenhand.protocol.job import Job
from evenhand.solvers import HORIZONTAL
from evenhand_reproductions.in_memory import train_clients
from evenhand_reproductions.methods import METHODS, register_methods
from evenhand_reproductions.methods.afl import simplex
from evenhand_reproductions.methods.fairbatch import FairBatch, FairBatchServer
from evenhand_reproductions.methods.fairgrad import FairGrad, FairGradServer
from evenhand_reproductions.methods.fcfl import DirectionServer, WorstGap, common_descent, mixed
from evenhand_reproductions.methods.fedfb import FedFB, FedFBServer
from evenhand_reproductions.methods.fedminmax import FedMinMax, MinMaxServer
from evenhand_reproductions.methods.server_steps import local_steps

NAMES = tuple(one.name for one in METHODS)
# Two kinds of server state; the others have none, or differ in one formula, which the references check.
SHAPES = ("fedadam", "afl", "scaffold", "fedminmax")
PROBLEM = small(seed=7, rows=96)
PARTS = [np.arange(0, 16), np.arange(16, 48), np.arange(48, 96)]
STEP, BATCH, EPOCHS, ROUNDS = 0.3, None, 2, 3

Array = np.ndarray


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = dict(HORIZONTAL)
    register_methods()
    yield
    HORIZONTAL.clear()
    HORIZONTAL.update(before)


def trained(name: str, constraints: tuple[Constraint, ...] = (), **options: Any) -> Array:
    """The weights after three rounds, of full-batch local steps unless said otherwise, so that nothing is drawn."""
    job = Job(
        solver=name,
        constraints=(LossParity(0.01),) if name == "fcfl" else constraints,
        max_rounds=ROUNDS,
        options={"step": STEP, "batch_size": BATCH, "local_epochs": EPOCHS, "clip": None, **options},
    )
    clients = [
        ClientRows(f"c{place}", PROBLEM.matrix[rows], PROBLEM.labels[rows], PROBLEM.sensitive.iloc[rows])
        for place, rows in enumerate(PARTS)
    ]
    return np.asarray(train_clients(job, clients).model.weights, dtype=np.float64)


# -- references, written from the papers: logistic regression with an intercept, from zero


def loss_and_slope(w: Array, rows: Array) -> tuple[float, Array]:
    x = np.column_stack([PROBLEM.matrix[rows], np.ones(len(rows))])
    margins = PROBLEM.labels[rows] * (x @ w)
    slope = -(PROBLEM.labels[rows] / (1.0 + np.exp(margins))) @ x / len(rows)
    return float(np.logaddexp(0.0, -margins).mean()), slope


def local(w: Array, rows: Array, epochs: int = EPOCHS) -> Array:
    for _ in range(epochs):
        w = w - STEP * loss_and_slope(w, rows)[1]
    return w


Rule = Callable[[Array, list[Array], dict[str, Any]], Array]
SHARES = np.array([len(rows) for rows in PARTS]) / 96.0


def by_paper(rule: Rule) -> Array:
    w, state = np.zeros(PROBLEM.matrix.shape[1] + 1), {}
    for _ in range(ROUNDS):
        w = rule(w, [local(w, rows) for rows in PARTS], state)
    return w


def adaptive(kind: str) -> Rule:
    def rule(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
        delta = sum(share * (end - w) for share, end in zip(SHARES, ends, strict=True))
        m = 0.9 * state.get("m", 0.0) + 0.1 * delta
        v = state.get("v", np.full_like(w, 1e-6))
        if kind == "adagrad":
            v = v + delta**2
        elif kind == "adam":
            v = 0.99 * v + 0.01 * delta**2
        else:
            v = v - 0.01 * delta**2 * np.sign(v - delta**2)
        state.update(m=m, v=v)
        return np.asarray(w + 0.1 * m / (np.sqrt(v) + 1e-3))

    return rule


def q_fedavg(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    q, bound = 2.0, 1.0 / STEP
    losses = [loss_and_slope(w, rows)[0] for rows in PARTS]
    slopes = [bound * (w - end) for end in ends]
    total = sum(f**q * g for f, g in zip(losses, slopes, strict=True))
    height = sum(q * f ** (q - 1) * (g @ g) + bound * f**q for f, g in zip(losses, slopes, strict=True))
    return np.asarray(w - total / height)


def agnostic(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    mixture = state.get("mixture", SHARES)
    raised = mixture + 0.5 * np.array([loss_and_slope(w, rows)[0] for rows in PARTS])
    # Projection onto the simplex by bisection on the shift.
    low, high = raised.min() - 1.0, raised.max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(raised - middle, 0.0).sum() > 1.0 else (low, middle)
    state["mixture"] = np.maximum(raised - low, 0.0)
    return np.asarray(sum(share * end for share, end in zip(mixture, ends, strict=True)))


REFERENCES: dict[str, tuple[Rule, dict[str, Any]]] = {
    "fedadagrad": (adaptive("adagrad"), {}),
    "fedadam": (adaptive("adam"), {}),
    "fedyogi": (adaptive("yogi"), {}),
    "q-fedavg": (q_fedavg, {"fairness": 2.0}),
    "afl": (agnostic, {"mixture_step": 0.5}),
}


def corrected(w: Array, rows: Array, correction: Callable[[Array], Array]) -> Array:
    for _ in range(EPOCHS):
        w = w - STEP * (loss_and_slope(w, rows)[1] + correction(w))
    return w


def fedprox(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    moved = [corrected(w, rows, lambda now: 0.7 * (now - w)) for rows in PARTS]
    return np.asarray(sum(share * end for share, end in zip(SHARES, moved, strict=True)))


def scaffold(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    mean, own = state.get("mean", np.zeros_like(w)), state.get("own", [np.zeros_like(w)] * 3)
    moved = [corrected(w, rows, lambda now, c=c: mean - c) for rows, c in zip(PARTS, own, strict=True)]
    new = [c - mean + (w - end) / (EPOCHS * STEP) for c, end in zip(own, moved, strict=True)]
    state["mean"] = mean + sum(share * (b - a) for share, a, b in zip(SHARES, own, new, strict=True))
    state["own"] = new
    return np.asarray(w + 0.8 * sum(share * (end - w) for share, end in zip(SHARES, moved, strict=True)))


def of_slices(masks: list[Array], next_shares: Callable[[Array, Array], Array]) -> Rule:
    """FedAvg with a weight for the rows of each slice, which follows from the slices' risks over all rows."""

    def rule(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
        sizes = np.array([mask.mean() for mask in masks])
        shares = state.get("shares", sizes)
        each = sum((share / size) * mask for share, size, mask in zip(shares, sizes, masks, strict=True))
        x, y = np.column_stack([PROBLEM.matrix, np.ones(96)]), PROBLEM.labels
        moved = []
        for rows in PARTS:
            end = w
            for _ in range(EPOCHS):
                pull = -y[rows] / (1.0 + np.exp(y[rows] * (x[rows] @ end)))
                end = end - STEP * (each[rows] * pull) @ x[rows] / len(rows)
            moved.append(end)
        risks = np.array([np.logaddexp(0.0, -y[mask] * (x[mask] @ w)).mean() for mask in masks])
        state["shares"] = next_shares(shares, risks)
        return np.asarray(sum(share * end for share, end in zip(SHARES, moved, strict=True)))

    return rule


GROUPS = PROBLEM.sensitive.iloc[:, 0].to_numpy()
BY_GROUP = [value == GROUPS for value in np.unique(GROUPS)]


def highest(shares: Array, risks: Array) -> Array:
    """The step of FedMinMax; its projection onto the simplex by bisection."""
    raised = shares + 0.5 * risks
    low, high = raised.min() - 1.0, raised.max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(raised - middle, 0.0).sum() > 1.0 else (low, middle)
    return np.maximum(raised - low, 0.0)


def shifted(shares: Array, risks: Array) -> Array:
    # At first all risks are alike, and nothing is shifted.
    return np.asarray(shares + 0.05 * (1.0 * (risks == risks.max()) - 1.0 * (risks == risks.min())))


def by_gap(shares: Array, risks: Array) -> Array:
    """FedFB for two groups: the other group's weight moves by α times the sign of its gap, between 0 and 1."""
    gap = risks[1] - risks[0]
    other = np.clip(shares[1] + 0.05 * (gap / abs(gap) if gap else 0.0), 0.0, 1.0)
    return np.array([1.0 - other, other])


def by_errors(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    """FairGrad with ε under accuracy parity, from its own sums over rows."""
    step, slack = 0.5, 0.02
    x, y = np.column_stack([PROBLEM.matrix, np.ones(96)]), PROBLEM.labels
    sizes = np.array([mask.mean() for mask in BY_GROUP])
    weight = state.get("weight", sizes)
    each = sum((share / size) * mask for share, size, mask in zip(weight, sizes, BY_GROUP, strict=True))
    moved = []
    for rows in PARTS:
        end = w
        for _ in range(EPOCHS):
            pull = -y[rows] / (1.0 + np.exp(y[rows] * (x[rows] @ end)))
            end = end - STEP * (each[rows] * pull) @ x[rows] / len(rows)
        moved.append(end)
    wrong = (x @ w > 0) != (y > 0)
    errors = np.array([wrong[mask].mean() for mask in BY_GROUP])
    level = wrong.mean() - errors
    up, down = state.get("up", np.zeros(2)), state.get("down", np.zeros(2))
    state["up"] = up = np.maximum(up + step * (level - slack), 0.0)
    state["down"] = down = np.maximum(down - step * (level + slack), 0.0)
    net = up - down
    state["weight"] = sizes + sizes * net.sum() - net
    return np.asarray(sum(share * end for share, end in zip(SHARES, moved, strict=True)))


def softened(values: Array, slopes: Array, delta: float) -> tuple[Array, float]:
    """The direction of a smoothed maximum, and its next δ."""
    shares = np.exp(values / delta) / np.exp(values / delta).sum()
    found = shares @ slopes
    short = delta > 0.05 and 0.3 * np.linalg.norm(found) <= delta
    return found, max(0.2 * delta, 0.05) if short else delta


def towards_pareto(rows: Array, mean: Array) -> Array:
    """The vertex with the steepest mean among mixes of rows that descend along all: by trying all active sets."""
    products, n, best = rows @ rows.T, len(rows), (-np.inf, np.zeros(rows.shape[1]))
    limits = np.vstack([np.eye(n), products])
    for active in combinations(range(2 * n), n - 1):
        system = np.vstack([np.ones(n), limits[list(active)]])
        if np.linalg.matrix_rank(system) == n:
            alpha = np.linalg.solve(system, np.eye(n)[0])
            if (limits @ alpha >= -1e-12).all():
                best = max(best, (float(alpha @ rows @ mean), alpha @ rows), key=lambda one: one[0])
    return best[1]


def largest_loss(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    """FCFL under |difference of the groups' mean losses| ≤ 0.01 at every client."""
    told = [loss_and_slope(w, rows) for rows in PARTS]
    gaps, slopes = [], []
    for rows in PARTS:
        (a, of_a), (b, of_b) = (loss_and_slope(w, rows[one[rows]]) for one in BY_GROUP)
        gaps.append(abs(a - b) - 0.01)
        slopes.append(np.sign(a - b) * (of_a - of_b))
    delta = state.get("delta", [0.5, 0.5])
    state["round"] = state.get("round", 0) + 1
    if state["round"] == ROUNDS:
        # The last round is the second stage.
        by_gap = softened(np.array(gaps), np.array(slopes), delta[1])[0] * (max(gaps) >= 0.0)
        by_loss = np.array([one for _, one in told])
        return np.asarray(w - STEP * towards_pareto(np.vstack([by_loss, by_gap]), by_loss.mean(axis=0)))
    by_loss, first = softened(np.array([one for one, _ in told]), np.array([one for _, one in told]), delta[0])
    by_gap, second = softened(np.array(gaps), np.array(slopes), delta[1])
    state["delta"] = [first, second]
    # A linear program on a segment: its ends, and where the loss begins to rise.
    slope = by_gap @ by_loss - by_loss @ by_loss
    mixes = np.array([0.0, 1.0, np.clip(-(by_loss @ by_loss) / slope, 0.0, 1.0)])
    lowers_loss = (1 - mixes) * (by_loss @ by_loss) + mixes * (by_gap @ by_loss)
    lowers_gap = (1 - mixes) * (by_loss @ by_gap) + mixes * (by_gap @ by_gap)
    best = np.argmax(lowers_loss) if max(gaps) <= 0 else np.argmax(np.where(lowers_loss >= -1e-12, lowers_gap, -np.inf))
    return np.asarray(w - STEP * ((1 - mixes[best]) * by_loss + mixes[best] * by_gap))


REFERENCES |= {
    "fcfl": (largest_loss, {"direction_step": STEP, "factor": 0.3, "shrink": 0.2, "least": 0.05, "first_stage": 0.6}),
    "fedfb": (of_slices(BY_GROUP, by_gap), {"shift": 0.05}),
    "fairgrad": (by_errors, {"group_step": 0.5, "slack": 0.02}),
    "fedprox": (fedprox, {"proximity": 0.7}),
    "scaffold": (scaffold, {"server_step": 0.8}),
    "fedminmax": (of_slices(BY_GROUP, highest), {"group_step": 0.5}),
    "fairbatch": (of_slices(BY_GROUP, shifted), {"shift": 0.05}),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_three_rounds_are_those_of_the_paper(name: str) -> None:
    rule, options = REFERENCES[name]
    np.testing.assert_allclose(trained(name, **options), by_paper(rule), atol=1e-6)


def test_fednova_divides_by_the_steps_of_each_client() -> None:
    """τ_i of a client follows from its rows, its batches and its passes over them."""
    found = trained("fednova", batch_size=None, local_epochs="auto")
    steps, w = [20, 20, 20], np.zeros(PROBLEM.matrix.shape[1] + 1)
    for _ in range(ROUNDS):
        moves = [(local(w, rows, count) - w) / count for rows, count in zip(PARTS, steps, strict=True)]
        w = w + 20.0 * sum(share * move for share, move in zip(SHARES, moves, strict=True))
    np.testing.assert_allclose(found, w, atol=1e-6)
    server = HORIZONTAL["fednova"]
    from evenhand_reproductions.methods.fednova import NormalisingServer

    made = NormalisingServer.__new__(NormalisingServer)
    made.options = server.options(batch_size=16, local_epochs=3)
    assert [local_steps(made.options, rows) for rows in (16, 32, 48, 50)] == [3, 6, 9, 12]
    changes = {"a": {"weights": np.array([1.0])}, "b": {"weights": np.array([4.0])}}
    for one, rows in zip(changes.values(), (16, 48), strict=True):
        one["rows"] = np.array(rows)
    # τ_eff = ¼ · 3 + ¾ · 9 = 7.5, and Σ p Δ / τ = ¼ · 1/3 + ¾ · 4/9.
    np.testing.assert_allclose(made.change(changes, {"a": 0.25, "b": 0.75}), [7.5 * (0.25 / 3 + 0.75 * 4 / 9)])


def test_the_projection_onto_the_simplex() -> None:
    np.testing.assert_allclose(simplex(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])
    np.testing.assert_allclose(simplex(np.array([2.0, 0.0, -1.0])), [1.0, 0.0, 0.0])


def test_slices_that_leave_rows_out_keep_their_share() -> None:
    server = MinMaxServer.__new__(MinMaxServer)
    server.options = FedMinMax(group_step=0.1)
    # Shares of a fifth each: (0.2 + 0.1 · 0.6, 0.2 + 0.1 · 0.2) − 0.04 each.
    np.testing.assert_allclose(
        server.next_shares(np.array([0.2, 0.2]), np.array([0.6, 0.2]), np.array([0.2, 0.2])), [0.22, 0.18]
    )


def test_fairbatch_moves_the_label_with_the_larger_gap_and_stops_at_zero() -> None:
    server = FairBatchServer.__new__(FairBatchServer)
    server.options = FairBatch(shift=0.5)
    parts = [("loss", Slice(label, "sex", sex)) for label in (1, -1) for sex in "fm"]
    server.means = SimpleNamespace(parts=parts)
    shares, risks = np.array([0.1, 0.3, 0.2, 0.4]), np.array([0.9, 0.2, 0.5, 0.4])
    # Half of the positives' 0.4 moves from men to women; then only what is left.
    np.testing.assert_allclose(server.next_shares(shares, risks, shares), [0.3, 0.1, 0.2, 0.4])
    np.testing.assert_allclose(server.next_shares(np.array([0.3, 0.1, 0.2, 0.4]), risks, shares), [0.4, 0.0, 0.2, 0.4])


def odds_server(kind: Any, options: Any) -> Any:
    """A server with the slices of two labels and two groups."""
    server = kind.__new__(kind)
    server.options = options
    server.means = SimpleNamespace(parts=[("loss", Slice(label, "sex", sex)) for label in (1, -1) for sex in "fm"])
    return server


def test_fedfb_moves_each_label_in_proportion_to_its_gap_and_stops_at_zero() -> None:
    server = odds_server(FedFBServer, FedFB(shift=0.1))
    shares, risks = np.array([0.1, 0.3, 0.2, 0.4]), np.array([0.8, 0.2, 0.1, 0.9])
    # Gaps −0.6 and 0.8, whose norm is 1.
    np.testing.assert_allclose(server.next_shares(shares, risks, shares), [0.16, 0.24, 0.12, 0.48])
    low = np.array([0.37, 0.03, 0.05, 0.55])
    np.testing.assert_allclose(server.next_shares(low, risks, shares), [0.4, 0.0, 0.0, 0.6])
    np.testing.assert_array_equal(server.next_shares(shares, np.full(4, 0.3), shares), shares)


def test_fcfl_mixes_two_directions() -> None:
    loss, gap, against = np.array([2.0, 0.0]), np.array([1.0, 0.5]), np.array([-1.0, 1.0])
    # Within the bound the loss alone counts; beyond it the gap, as far as the loss does not rise.
    assert mixed(loss, gap, met=True) == 0.0
    assert mixed(loss, 3.0 * loss, met=True) == 1.0
    assert mixed(loss, against, met=True) == 0.0
    assert mixed(loss, gap, met=False) == 0.0
    assert mixed(0.5 * loss, gap, met=False) == 1.0
    share = mixed(loss, against, met=False)
    assert share == pytest.approx(4.0 / 6.0)
    assert ((1 - share) * loss + share * against) @ loss == pytest.approx(0.0)


def test_fcfls_second_stage_raises_no_loss_and_stays_where_losses_are_opposed() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        losses, gap = rng.standard_normal((3, 6)), rng.standard_normal(6)
        found = common_descent(losses, gap)
        assert (losses @ found >= -1e-9).all()
        assert gap @ found >= -1e-9
        mean = losses.mean(axis=0)
        np.testing.assert_allclose(found, towards_pareto(np.vstack([losses, gap]), mean), atol=1e-9)
    opposed = common_descent(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.zeros(2))
    np.testing.assert_allclose(opposed, 0.0, atol=1e-12)


@pytest.mark.parametrize("beyond", [0.2, -0.2])
def test_fcfls_second_stage_minds_the_gap_while_it_is_beyond_its_bound(beyond: float) -> None:
    server = DirectionServer.__new__(DirectionServer)
    server.weights, server.smoothing = np.zeros(2, dtype=np.float32), np.array([1.0, 0.1])
    # The clients' losses fall along (1, 0) and the gaps rise with it.
    of_gaps = np.array([[-1.0, 1.0], [-1.0, -0.5]])
    told = [{"of_loss": np.array([1.0, 0.0]), "of_gap": one} for one in of_gaps]
    gaps = np.array([beyond, beyond - 0.1])
    shares = np.exp([0.0, -1.0]) / np.exp([0.0, -1.0]).sum()
    loss, gap = np.array([1.0, 0.0]), shares @ of_gaps * (beyond > 0.0)
    expected = towards_pareto(np.vstack([loss, loss, gap]), loss)
    np.testing.assert_allclose(server._second(told, gaps), expected, atol=1e-9)
    assert expected @ gap > -1e-9
    assert (expected[0] == 1.0) == (beyond < 0.0)


def test_fcfls_gap_is_the_worst_side_and_clients_without_a_slice_have_none() -> None:
    gap = WorstGap(Bounds(np.array([-0.1, -np.inf]), np.array([0.1, 0.3]))).gap
    assert gap(np.array([-0.4, 0.5])) == (pytest.approx(0.3), 0, -1.0)
    assert gap(np.array([0.15, 0.5])) == (pytest.approx(0.2), 1, 1.0)
    assert gap(np.array([np.nan, 0.5])) == (-np.inf, 0, 0.0)


def test_fcfl_steps_along_the_loss_where_no_client_has_a_gap() -> None:
    """Each client has one group only."""
    only = [np.flatnonzero(one) for one in BY_GROUP]
    clients = [
        ClientRows(f"c{place}", PROBLEM.matrix[rows], PROBLEM.labels[rows], PROBLEM.sensitive.iloc[rows])
        for place, rows in enumerate(only)
    ]
    job = Job(solver="fcfl", constraints=(LossParity(0.01),), max_rounds=1, options={"direction_step": STEP})
    found = np.asarray(train_clients(job, clients).model.weights, dtype=np.float64)
    told = [loss_and_slope(np.zeros(len(found)), rows)[1] for rows in only]
    np.testing.assert_allclose(found, -STEP * np.mean(told, axis=0), atol=1e-6)


def test_fairgrad_compares_slices_with_their_label_and_leaves_small_gaps_alone() -> None:
    server = odds_server(FairGradServer, FairGrad(group_step=0.5, slack=0.1))
    server.advantage, server.disadvantage = np.zeros(4), np.zeros(4)
    rows, errors = np.array([0.1, 0.3, 0.2, 0.4]), np.array([0.6, 0.2, 0.3, 0.36])
    # Positives have 0.3 wrong: F = (−0.3, 0.1); of negatives F is within 0.1. δ of women is 0.5 · 0.2 = 0.1, and the
    # weights change by p · (−0.1) + (0.1, 0).
    found = server.next_shares(rows, errors, rows)
    np.testing.assert_allclose(found, [0.1 - 0.025 + 0.1, 0.3 - 0.075, 0.2, 0.4])
    np.testing.assert_allclose(server.disadvantage, [0.1, 0.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(server.advantage, 0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["afl", "q-fedavg"])
def test_methods_that_need_losses_say_so(name: str) -> None:
    with pytest.raises(InputError, match="loss in every round"):
        trained(name, report_every=2)


def test_robust_rules_are_refused() -> None:
    with pytest.raises(InputError, match="has its own"):
        trained("fedadam", aggregation="median")


@pytest.mark.usefixtures("_registered")
class TestContract(HorizontalContract):
    @pytest.fixture(params=[pytest.param(name, marks=() if name in SHAPES else pytest.mark.soak) for name in NAMES])
    def case(self, request: pytest.FixtureRequest) -> Case:
        return Case(request.param, "global")


def fairfedavgalm(penalty: float, dual_step: float, growth: float, *, equal: bool, normalised: bool) -> Array:
    """FairFedAvgALM Algorithm 1 for two groups, with the two things that its text assumes: batches that hold both
    groups in equal parts (Lemma 4.1), and FedNova's correction where clients take unequal numbers of steps.
    """
    w, multiplier, size = np.zeros(PROBLEM.matrix.shape[1] + 1), 0.0, 10
    for turn in range(1, ROUNDS + 1):
        beta, ends, rises, counts = penalty * growth ** (turn - 1), [], [], []
        for place, rows in enumerate(PARTS):
            draw = generator(0, f"c{place}", turn, "batches")
            now, steps = w, -(-len(rows) // size)
            for _ in range(EPOCHS):
                if equal:
                    halves = []
                    for mask in reversed(BY_GROUP):
                        own = np.flatnonzero(mask[rows])
                        passes = [draw.permutation(own) for _ in range(-(-steps * size // 2 // len(own)))]
                        halves.append(np.concatenate(passes)[: steps * size // 2].reshape(steps, -1))
                    batches = [rows[one] for one in np.hstack(halves)]
                else:
                    drawn = draw.permutation(len(rows))
                    batches = [rows[drawn[first : first + size]] for first in range(0, len(rows), size)]
                for batch in batches:
                    slope = loss_and_slope(now, batch)[1]
                    if all(mask[batch].any() for mask in BY_GROUP):
                        (f0, g0), (f1, g1) = (loss_and_slope(now, batch[mask[batch]]) for mask in BY_GROUP)
                        slope = slope + (multiplier + beta * (f0 - f1)) * (g0 - g1)
                    now = now - STEP * slope
            gap = np.subtract(*(loss_and_slope(now, rows[mask[rows]])[0] for mask in BY_GROUP))
            ends.append(now - w)
            rises.append(dual_step / growth ** (turn - 1) * gap)
            counts.append(EPOCHS * steps)
        if normalised:
            effective = SHARES @ counts
            ends = [effective * end / count for end, count in zip(ends, counts, strict=True)]
        w, multiplier = w + SHARES @ ends, multiplier + SHARES @ rises
    return np.asarray(w)


@pytest.mark.parametrize(
    ("name", "equal"), [("fairfedavgalm", False), ("fairfedavgalm", True), ("fairfedavgalm-nova", False)]
)
def test_three_rounds_of_fairfedavgalm_as_its_text_assumes(name: str, equal: bool) -> None:
    given = {"penalty": 2.0, "dual_step": 0.5, "growth": 1.1}
    batches = "equal-slices" if equal else "shuffled"
    found = trained(name, (LossParity(0.0),), batch_size=10, batches=batches, **given)
    expected = fairfedavgalm(**given, equal=equal, normalised=name.endswith("nova"))
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_batch_holds_all_slices_in_equal_parts_and_an_epoch_all_rows_of_the_larger() -> None:
    made = Batching.of(slice(40, 90), 12, 1, lone_rows=True)
    groups = np.array([[1.0, 0.0]] * 44 + [[0.0, 1.0]] * 6, dtype=np.float32)
    equal = made.with_equal(groups)
    assert (equal.steps, equal.batch, equal.padded) == (made.steps, 12, made.padded)
    numbers, inside = deal([equal, made], [np.random.default_rng(1), np.random.default_rng(2)])
    rows = numbers[:, 0, :12] - 40
    assert (inside[:, 0].sum(axis=1) == 12).all()
    assert ((rows < 44).sum(axis=1) == 6).all()
    # Thirty draws of six rows: each five times. Thirty draws of 44: none twice.
    assert (np.bincount(rows[rows >= 44])[44:] == 5).all()
    assert np.bincount(rows[rows < 44]).max() == 1
    with pytest.raises(InputError, match="rows of 3 combinations of slices"):
        Batching.of(slice(0, 9), 2, 1, lone_rows=True).with_equal(np.repeat(np.eye(3, dtype=np.float32), 3, axis=0))


def test_equal_batches_need_slices() -> None:
    with pytest.raises(InputError, match="no constraint names slices"):
        trained("fedavg", batches="equal-slices")
