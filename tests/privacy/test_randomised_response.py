"""Randomised response: as often true as ε says, the same whenever one asks again, and debiased without a remainder."""

from __future__ import annotations

from itertools import product
from math import exp, sqrt

import numpy as np
import pandas as pd
import pytest
from support.problems import small

from evenhand.constraints.binding import bind, inequalities
from evenhand.constraints.debiased import DebiasedLagrangian, debiased
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.kinds import Constraint, DemographicParity, EqualOpportunity, LossParity
from evenhand.constraints.losses import Logistic
from evenhand.constraints.responses import ResponseMechanism
from evenhand.errors import ConstraintError, InputError
from evenhand.privacy.randomised_response import AnswerKey, LabelStatement, accounted, answers

KEY = AnswerKey(bytes(range(32)))


@pytest.mark.parametrize(("epsilon", "values"), [(1.0, 2), (0.3, 2), (2.0, 5)])
def test_answers_are_true_as_often_as_epsilon_says_and_unbiased(epsilon: float, values: int) -> None:
    rows, response = 40_000, ResponseMechanism(epsilon, values)
    truth = np.random.default_rng(0).integers(values, size=rows)
    said = answers(truth, response, KEY, "label")
    assert abs((said == truth).mean() - response.keep) < 4 * sqrt(response.keep / rows)
    assert response.keep / response.other == pytest.approx(exp(epsilon))
    for value in range(values):
        # Each of the others alike.
        wrong = (said[truth == value] - value) % values
        assert np.allclose(
            np.bincount(wrong)[1:] / len(wrong), response.other, atol=5 * sqrt(response.other / len(wrong))
        )
        counted = np.where(said == value, response.counts, response.counts_against)
        assert abs(counted.sum() - (truth == value).sum()) < 5 * sqrt(rows * (response.counts**2 + 1))


def test_the_same_is_said_again_whatever_else_is_asked() -> None:
    names, truth = [f"row {place}" for place in range(500)], np.arange(500) % 2
    response = ResponseMechanism(1.0)
    said = dict(zip(names, answers(truth, response, AnswerKey(KEY.secret, names), "label"), strict=True))
    order = np.random.default_rng(1).permutation(500)[:123]
    some = AnswerKey(KEY.secret, [names[place] for place in order])
    assert answers(truth[order], response, some, "label").tolist() == [said[names[place]] for place in order]
    first = np.array(list(said.values()))
    for other in (
        answers(truth, response, AnswerKey(bytes(32), names), "label"),
        answers(truth, response, AnswerKey(KEY.secret, names), "group"),
        answers(truth, response, AnswerKey(KEY.secret, names, label="another label"), "label"),
        answers(truth, ResponseMechanism(1.0 + 1e-9), AnswerKey(KEY.secret, names), "label"),
        # Whether a label has changed since is not told either.
        1 - answers(1 - truth, response, AnswerKey(KEY.secret, names), "label"),
    ):
        agree = ((first == truth) == (other == truth)).mean()
        expected = response.keep**2 + response.other**2
        assert abs(agree - expected) < 5 * sqrt(expected / 500)


def test_rows_with_one_id_are_drawn_apart() -> None:
    truth = np.ones(4000, dtype=np.int64)
    said = answers(truth, ResponseMechanism(1.0), AnswerKey(KEY.secret, ["twin", "twin"] * 2000), "label").reshape(
        -1, 2
    )
    both, chance = (said == 1).all(axis=1).mean(), ResponseMechanism(1.0).keep ** 2
    assert abs(both - chance) < 4 * sqrt(chance / 2000)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan"), 100.0, "1", True])
def test_epsilons_that_are_none(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        ResponseMechanism(epsilon)


@pytest.mark.parametrize(
    "responses",
    [[ResponseMechanism(1.0)], [ResponseMechanism(0.5, 5)], [ResponseMechanism(1.0), ResponseMechanism(0.7, 3)]],
)
def test_dp_accounting_says_the_closed_form(responses: list[ResponseMechanism]) -> None:
    pytest.importorskip("dp_accounting")
    closed = sum(one.epsilon for one in responses)
    # It rounds up to its grid, once a response.
    assert closed - 1e-9 <= accounted(responses) <= closed + 2e-4 * len(responses)
    groups = {f"attribute {place}": one for place, one in enumerate(responses[1:])}
    stated = LabelStatement.of(responses[0], groups, KEY, finish=False)
    assert stated.by_accountant["closed form"] == closed
    assert f"ε = {responses[0].epsilon:g}" in stated.words
    assert ("groups are not covered" in stated.words) == (not groups)


def all_answers(truth: np.ndarray, response: ResponseMechanism) -> list[tuple[np.ndarray, float]]:
    """Every answer that rows of data could give, and how likely it is."""
    found = []
    for said in product(range(response.values), repeat=len(truth)):
        same = np.array(said) == truth
        found.append((np.array(said), float(np.where(same, response.keep, response.other).prod())))
    return found


@pytest.mark.parametrize("constraint", [LossParity(0.1), DemographicParity(0.1)])
def test_over_all_answers_the_debiased_gradient_has_the_true_one_for_its_mean(constraint: Constraint) -> None:
    problem, response = small(3, rows=8), ResponseMechanism(0.8)
    groups = {"group": ("a", "b")}
    rows = inequalities([constraint], groups)
    scores, multipliers = np.random.default_rng(0).normal(size=8), np.array([[0.7], [0.2]] * 1)
    multipliers = np.tile(multipliers, (1, len(rows)))
    true = Lagrangian(problem.labels, bind([constraint], problem.labels, problem.sensitive)).at(scores)
    mean = {"loss": 0.0, "values": 0.0, "nu": np.zeros(8), "curvature": np.zeros(8), "exact": 0.0}
    for said, chance in all_answers((problem.labels > 0).astype(int), response):
        drawn = debiased(rows, groups, 2.0 * said - 1.0, problem.sensitive, Logistic(), response, {}).at(scores)
        mean["loss"] += chance * drawn.loss
        mean["values"] = mean["values"] + chance * drawn.values
        mean["exact"] = mean["exact"] + chance * drawn.exact
        mean["nu"] = mean["nu"] + chance * drawn.derivative(multipliers)
        mean["curvature"] = mean["curvature"] + chance * drawn.curvature(multipliers)
    assert mean["loss"] == pytest.approx(true.loss, abs=1e-12)
    np.testing.assert_allclose(mean["values"], true.values, atol=1e-12)
    np.testing.assert_allclose(mean["exact"], true.exact, atol=1e-12)
    np.testing.assert_allclose(mean["nu"], true.derivative(multipliers), atol=1e-12)
    np.testing.assert_allclose(mean["curvature"], true.curvature(multipliers), atol=1e-12)


def test_over_all_answers_slices_of_labels_and_groups_have_their_true_sums() -> None:
    """What slices divide by is an estimate; what is divided has the true sum for its mean."""
    groups = {"group": ("a", "b", "c")}
    labels, names = np.array([1.0, -1.0, 1.0]), np.array(["a", "b", "c"])
    of_labels, of_groups = ResponseMechanism(1.5), ResponseMechanism(2.0, 3)
    scores, phi = np.array([0.3, -1.0, 2.0]), Logistic().value
    found = np.zeros(3)
    for said, chance in all_answers((labels > 0).astype(int), of_labels):
        for codes, likely in all_answers(np.arange(3), of_groups):
            for place in range(3):
                positive = np.where(said == 1, of_labels.counts, of_labels.counts_against)
                inside = np.where(codes == place, of_groups.counts, of_groups.counts_against)
                found[place] += chance * likely * (positive * inside * phi(scores, np.ones(3))).sum()
    true = [phi(scores, np.ones(3))[(labels > 0) & (names == name)].sum() for name in groups["group"]]
    np.testing.assert_allclose(found, true, atol=1e-12)


def test_the_weights_of_slices_are_those_products() -> None:
    problem = small(1, rows=4000, groups="abc")
    rows = inequalities([EqualOpportunity(0.1)], {"group": ("a", "b", "c")})
    response, of_groups = ResponseMechanism(3.0), ResponseMechanism(3.0, 3)
    drawn = debiased(
        rows, {"group": ("a", "b", "c")}, problem.labels, problem.sensitive, Logistic(), response, {"group": of_groups}
    )
    positive = np.where(problem.labels > 0, response.counts, response.counts_against)
    inside = {
        name: np.where(problem.groups == name, of_groups.counts, of_groups.counts_against) for name in ("a", "b", "c")
    }
    losses = Logistic().value(problem.matrix[:, 0], np.ones(4000))
    means = {name: (positive * one * losses).sum() / (positive * one).sum() for name, one in inside.items()}
    values = drawn.at(problem.matrix[:, 0]).values
    for value, row in zip(values, rows, strict=True):
        assert value == pytest.approx(sum(a * means[part.group] for a, part in row.terms), rel=1e-10)


def test_debiased_loss_stays_convex_and_its_parts_add_up() -> None:
    problem = small(2, rows=50)
    drawn = debiased((), {}, problem.labels, pd.DataFrame(index=range(50)), Logistic(), ResponseMechanism(0.5), {})
    assert isinstance(drawn, DebiasedLagrangian)
    scores, none = problem.matrix[:, 0], np.zeros((2, 0))
    np.testing.assert_allclose(
        drawn.at(scores).curvature(none),
        Lagrangian(problem.labels, drawn.constraints).at(scores).curvature(none),
        rtol=1e-12,
    )
    assert drawn.losses(scores).sum() == pytest.approx(drawn.at(scores).loss)
    step = 1e-6 * np.eye(50)[7]
    slope = (drawn.at(scores + step).loss - drawn.at(scores - step).loss) / 2e-6
    assert drawn.at(scores).derivative(none)[7] == pytest.approx(slope, abs=1e-8)


def test_a_slice_that_drowns_in_answers_is_refused() -> None:
    problem = small(0, rows=60)
    rows = inequalities([EqualOpportunity(0.1)], {"group": ("a", "b")})
    with pytest.raises(ConstraintError, match=r"positives with group = a.*too few to constrain"):
        debiased(rows, {"group": ("a", "b")}, problem.labels, problem.sensitive, Logistic(), ResponseMechanism(0.1), {})
