"""Methods with -cuts: the cut of each group, recomputed from all rows' scores by trying every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import HorizontalClassifier
from evenhand.constraints.group_cuts import around, equal_rates
from evenhand.constraints.kinds import DemographicParity, EqualizedOdds, EqualOpportunity
from evenhand.constraints.thresholds import Ranked, Threshold
from evenhand.errors import GroupDecisionsWarning
from evenhand.horizontal.cutting import CountingClient, CountingServer
from evenhand.horizontal.problem import ClientRows

Array = np.ndarray
ODDS, PARITY = EqualizedOdds(0.05, measure="error"), DemographicParity(0.05)
OPPORTUNITY = EqualOpportunity(0.05, measure="error")


def rate_of(above: Array, y: Array, constraint: Any) -> Array:
    """The rate that a constraint compares, of decisions (…, rows)."""
    if constraint is PARITY:
        return above.mean(axis=-1)
    of_positives, of_negatives = above[..., y].mean(axis=-1), above[..., ~y].mean(axis=-1)
    return of_positives if constraint is OPPORTUNITY else (of_positives + of_negatives) / 2


def rates_of(decided: Array, labels: Array, codes: Array, constraint: Any) -> tuple[Array, Array]:
    """Each group's rate, and by how much one row changes it at most."""
    rates, rows = [], []
    for group in np.unique(codes):
        y, one = labels[codes == group] > 0, decided[codes == group]
        rates.append(rate_of(one, y, constraint))
        one_row = {ODDS: 0.5 / min(y.sum(), (~y).sum()), PARITY: 1.0 / len(one), OPPORTUNITY: 1.0 / y.sum()}
        rows.append(one_row[constraint])
    return np.array(rates), np.array(rows)


def most_right(scores: Array, labels: Array, codes: Array, constraint: Any) -> int:
    """The most correct decisions of any level: at a level each group has the largest rate that is not above it.

    Of cuts with one rate, it is the one that selects fewest.
    """
    tables = []
    for group in np.unique(codes):
        y, s = labels[codes == group] > 0, scores[codes == group]
        above = s[None, :] > np.append(np.inf, np.sort(s)[::-1] - 1e-9)[:, None]
        rate = rate_of(above, y, constraint)
        new = np.append(True, np.diff(rate) > 1e-9)
        tables.append((rate[new], (above == y).sum(axis=1)[new]))
    levels = np.unique(np.concatenate([rate for rate, _ in tables])) + 1e-9
    # Everybody may also be selected.
    last = (labels > 0).sum()
    return max(last, *(sum(int(right[rate <= level][-1]) for rate, right in tables) for level in levels))


def assert_best(decided: Array, scores: Array, labels: Array, codes: Array, constraint: Any) -> None:
    """Rates are those of one level but for a row of each group, and as many decisions are right as at the best level.

    Cuts are chosen in two looks; the second has levels near that of the first only.
    """
    rates, rows = rates_of(decided, labels, codes, constraint)
    assert (rates - rows).max() <= (rates + rows).min() + 1e-9
    assert (decided == (labels > 0)).sum() >= most_right(scores, labels, codes, constraint) - len(rates)


def by_exchange(scores: Array, labels: Array, codes: Array, clients: Array, constraint: Any) -> Array:
    """The decisions of the server and clients of the project, driven by hand."""
    names = sorted(set(clients))
    groups = int(codes.max()) + 1
    server = CountingServer(names, Threshold("accuracy"), [b"model"], constraint, groups)
    roles = {}
    for name in names:
        inside = clients == name
        rows = ClientRows(name, np.zeros((inside.sum(), 1)), labels[inside], None)
        roles[name] = CountingClient(rows, lambda _, inside=inside: scores[inside], codes[inside], groups)
    sends = list(server.start())
    while sends:
        message = sends.pop(0)
        receiver = server if message.receiver == "server" else roles[message.receiver]
        sends += receiver.receive(message)
    assert server.done
    assert all(role.of_groups == server.of_groups for role in roles.values())
    return scores > np.array(server.of_groups)[codes]


def problem(seed: int, groups: int) -> tuple[Array, Array, Array, Array]:
    """Scores that are further apart than the finest bins, labels, groups and clients; few of group 0 are positive."""
    rng = np.random.default_rng(seed)
    codes, clients = rng.integers(groups, size=60), rng.choice(["a", "b", "c"], size=60)
    scores = rng.permutation(np.linspace(-3.0, 3.0, 60)) + 0.01 * codes
    labels = np.where(scores + 2.0 * codes + rng.logistic(size=60) > 2.0, 1.0, -1.0)
    for group in range(groups):
        first, second = np.flatnonzero(codes == group)[:2]
        labels[first], labels[second] = 1.0, -1.0
    return scores, labels, codes, clients


@pytest.mark.parametrize("constraint", [ODDS, PARITY, OPPORTUNITY], ids=lambda one: one.kind)
@pytest.mark.parametrize("groups", [2, 3])
def test_of_all_cuts_those_of_the_best_level_are_chosen(constraint: Any, groups: int) -> None:
    for seed in range(12):
        scores, labels, codes, _ = problem(seed, groups)
        ranked = [Ranked.of_scores(labels[codes == group], scores[codes == group]) for group in range(groups)]
        places = equal_rates(Threshold("accuracy"), constraint, ranked)
        cuts = np.array([one.cuts[place] for one, place in zip(ranked, places, strict=True)])
        right = ((scores > cuts[codes]) == (labels > 0)).sum()
        assert right == most_right(scores, labels, codes, constraint)


@pytest.mark.parametrize("constraint", [ODDS, PARITY, OPPORTUNITY], ids=lambda one: one.kind)
@pytest.mark.parametrize("groups", [2, 3])
def test_two_looks_at_binned_scores_find_them_but_for_a_row_of_each_group(constraint: Any, groups: int) -> None:
    for seed in range(12):
        scores, labels, codes, clients = problem(seed, groups)
        decided = by_exchange(scores, labels, codes, clients, constraint)
        assert_best(decided, scores, labels, codes, constraint)


def test_levels_for_which_a_group_has_no_cut_of_its_own_are_left_out() -> None:
    """The first group has cuts up to a rate of a half; with those the second would be most right at 0.8."""
    first = Ranked(np.array([1e6, 1.0, 0.0, -1e6]), np.array([0, 2, 5, 5]), np.array([0, 2, 5, 10]))
    second = Ranked(
        np.array([1e6, 2.0, 1.0, 0.0, -1.0, -1e6]), np.array([0, 2, 5, 8, 8, 8]), np.array([0, 2, 5, 8, 9, 10])
    )
    assert equal_rates(Threshold("accuracy"), PARITY, [first, second], within=16.0) == [2, 2]


def test_the_second_look_stays_within_the_scores_where_a_rate_is_largest_or_smallest() -> None:
    edges = np.linspace(-16.0, 16.0, 9)
    # Both positives are above 0, and negatives above and below.
    ranked = Ranked.of_bins(edges, np.bincount([2, 3, 6], minlength=10), np.bincount([6, 7], minlength=10))
    every = int(np.flatnonzero(ranked.hits == 2)[0])
    assert around(ranked, every, OPPORTUNITY) == (-16.0, 8.0)
    assert around(ranked, 0, OPPORTUNITY) == (8.0, 16.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fit_of_fedavg_with_cuts_decides_as_trying_all_levels_does(seed: int) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    codes = rng.integers(2, size=150)
    x = rng.standard_normal((150, 3)) + 0.6 * codes[:, None]
    labels = np.where(x[:, 0] + x[:, 1] - codes + rng.logistic(size=150) > 0.4, 1, -1)
    sex = pd.Series(np.where(codes == 1, "m", "f"), name="sex")
    clients = rng.choice(["a", "b"], size=150)
    model = HorizontalClassifier(
        solver="fedavg", constraint=ODDS, max_rounds=4, threshold=Threshold("accuracy"), threshold_by="sex"
    )
    with pytest.warns(GroupDecisionsWarning):
        model.fit(x, labels, sensitive_features=sex, clients=clients)
    scores = model.decision_function(x)
    decided = scores > model.cut_.of_rows(sex.to_frame())
    assert_best(decided, scores, labels, codes, ODDS)
