"""Label privacy: what leaves is a function of randomised responses, and who cannot keep to that refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from support.contracts import assert_goes_on_from_any_checkpoint
from support.problems import Problem, deal, pooled_weights, small, train

from evenhand.constraints.kinds import DemographicParity, EqualizedOdds, EqualOpportunity
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.responses import ResponseMechanism
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.privacy.randomised_response import AnswerKey, answers
from evenhand.protocol.job import Job
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.terms import VerticalTerms
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.registry import check_job
from evenhand.solvers.roles import vertical_terms
from evenhand.vertical import finishing
from evenhand.vertical import problem as vertical_problem
from evenhand_reproductions.in_memory import Holdings, train_vertical

BLOCKS = [[0, 1], [2], [3]]
ASKED = {"epsilon": 1.0}
TREES: dict[str, Any] = {"solver": "trees", "max_rounds": 2}
SOLVERS: list[dict[str, Any]] = [
    {"solver": "subspace"},
    {"solver": "subspace", "protection": "none"},
    {"solver": "fairvfl", "max_rounds": 5},
    {"solver": "fedbcd", "max_rounds": 5},
    TREES,
]


def large(seed: int = 0) -> Problem:
    return small(seed, rows=1500)


def constraint_of(job: dict[str, Any]) -> EqualOpportunity | None:
    return None if job["solver"] == "fedbcd" else EqualOpportunity(0.05)


def test_the_optimum_is_that_of_the_debiased_loss() -> None:
    """Against scipy on the pooled rows, from the definition."""
    problem = large()
    run = train(problem, None, BLOCKS, solver="subspace", label_privacy=ASKED, tol=1e-9)
    response = ResponseMechanism(1.0)
    said = answers((problem.labels > 0).astype(np.int64), response, AnswerKey.from_seed(0), "label")
    share = (said - response.other) / (1.0 - 2.0 * response.other)
    table, rows = np.hstack([problem.matrix, np.ones((1500, 1))]), 1500
    ridge = 2.0 / rows * (1.0 + 4.0 * response.variance)

    def loss(weights: np.ndarray) -> float:
        scores = table @ weights
        each = share * np.logaddexp(0.0, -scores) + (1.0 - share) * np.logaddexp(0.0, scores)
        return float(each.mean() + 0.5 * ridge * weights[:-1] @ weights[:-1])

    best = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert run.certificate.converged
    assert run.certificate.objective == pytest.approx(best.fun, rel=1e-8)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), best.x, atol=1e-4)


@pytest.mark.parametrize("job", SOLVERS, ids=lambda job: "-".join(map(str, job.values())))
def test_with_the_same_answers_all_messages_are_the_same_whatever_the_labels_are(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, rng = large(), np.random.default_rng(5)
    said = (problem.labels > 0).astype(np.int64)
    # Whatever is true, this is what is said.
    monkeypatch.setattr(vertical_problem, "answers", lambda *_: said)
    told = []
    for _ in range(2):
        truth = np.where(rng.random(1500) < 0.5, 1.0, -1.0)
        run = train_vertical(
            Job(
                **{
                    "label_privacy": {"epsilon": 3.0},
                    "constraints": [one for one in [constraint_of(job)] if one],
                    **job,
                }
            ),
            deal(problem, BLOCKS),
            truth,
            problem.sensitive,
            keep_messages=True,
        )
        assert run.transcript.messages is not None
        told.append([one for one in run.transcript.messages if one.kind not in ("public-key", "public-keys", "masked")])
    assert len(told[0]) == len(told[1]) > 5
    for one, other in zip(*told, strict=True):
        assert (one.sender, one.receiver, one.kind) == (other.sender, other.receiver, other.kind)
        for name, array in one.body.items():
            np.testing.assert_array_equal(array, other.body[name])


@pytest.mark.parametrize("constraint", [EqualOpportunity(0.05), EqualizedOdds(0.05), DemographicParity(0.05)])
def test_constraints_hold_on_answers_and_nearly_on_labels_where_epsilon_is_large(constraint: Any) -> None:
    problem = large(2)
    exact = train(problem, constraint, BLOCKS, solver="subspace", alpha=1e-3)
    run = train(problem, constraint, BLOCKS, solver="subspace", alpha=1e-3, label_privacy={"epsilon": 8.0})
    assert run.certificate.converged
    assert run.certificate.violation < 1e-6
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), pooled_weights(exact, BLOCKS), atol=0.1)


def test_groups_can_be_drawn_too() -> None:
    problem = large(3)
    asked = {"epsilon": 3.0, "groups": 3.0}
    run = train(problem, EqualOpportunity(0.05), BLOCKS, solver="subspace", label_privacy=asked)
    assert run.certificate.converged
    assert run.label_privacy is not None
    assert run.label_privacy.groups == {"group": 3.0}
    assert run.label_privacy.by_accountant["closed form"] == 6.0


@pytest.mark.parametrize("job", [{"solver": "subspace"}, {"solver": "fairvfl", "max_rounds": 3}, TREES])
def test_the_holder_ends_with_the_truth_and_nobody_else_is_told(job: dict[str, Any]) -> None:
    problem, constraint = large(10), EqualOpportunity(0.02, measure="error")
    runs = [
        train(
            problem,
            constraint,
            BLOCKS,
            runtime={"keep_messages": True},
            **job,
            label_privacy={"epsilon": 1.0, "finish": finish},
        )
        for finish in (False, True)
    ]
    gaps = []
    for run in runs:
        scores = sum(run.models[one.name].predict(one.matrix) for one in deal(problem, BLOCKS))
        missed = np.asarray(scores) <= 0
        gaps.append(abs(missed[problem.slice(1, "a")].mean() - missed[problem.slice(1, "b")].mean()))
    assert gaps[1] <= 0.02 < gaps[0]
    for name in ("p1", "p2"):
        np.testing.assert_array_equal(runs[0].models[name].weights, runs[1].models[name].weights)
    told = [run.transcript.messages or [] for run in runs]
    assert len(told[1]) == len(told[0]) + 1
    assert (told[1][-1].kind, told[1][-1].receiver) == ("joint-scores", "p0")
    assert runs[1].label_privacy is not None
    assert "never leaves it" in runs[1].label_privacy.words


def test_the_holders_end_is_the_optimum_of_its_own_part() -> None:
    """Against scipy: the others' scores as they are, the true loss and the job's own regulariser."""
    problem = large(7)
    asked = {"epsilon": 1.0, "finish": True}
    run = train(problem, None, BLOCKS, solver="subspace", label_privacy=asked)
    others = sum(run.models[one.name].predict(one.matrix) for one in deal(problem, BLOCKS)[1:])
    table = np.hstack([problem.matrix[:, :2], np.ones((1500, 1))])

    def loss(weights: np.ndarray) -> float:
        margins = problem.labels * (table @ weights + others)
        return float(np.logaddexp(0.0, -margins).mean() + weights[:-1] @ weights[:-1] / 1500)

    best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(run.models["p0"].weights, best.x, atol=1e-4)


@pytest.mark.parametrize("job", [{"solver": "subspace"}, TREES])
def test_an_end_that_was_kept_is_the_same_end(job: dict[str, Any]) -> None:
    """Where a role is put back from its state, as it is at every visit of a Flower node, its model is, too."""
    problem = large(10)
    truth = LabelledRows(problem.labels, problem.sensitive)
    scores = np.random.default_rng(0).normal(size=1500)
    asked = {**job, "label_privacy": {"epsilon": 1.0, "finish": True}}
    runs = [train(problem, None, BLOCKS, **asked) for _ in range(2)]
    terms = Holdings.of(Job(**asked), deal(problem, BLOCKS), problem.labels, problem.sensitive).terms
    first, again = (finishing.FinishParty(terms, run.models["p0"], truth) for run in runs)
    (told,) = finishing.FinishServer(terms, scores).start()
    first.receive(told)
    again.restore(first.snapshot())
    own = problem.matrix[:, :2]
    np.testing.assert_array_equal(again.model.predict(own), first.model.predict(own))
    with pytest.raises(ProtocolError, match="at this point"):
        again.receive(told)


def test_of_many_columns_the_holder_fits_how_much_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = large(7)
    asked = {"epsilon": 1.0, "finish": True}
    plain = train(problem, None, BLOCKS, solver="subspace", label_privacy=ASKED)
    monkeypatch.setattr(finishing, "MOST_COLUMNS", 1)
    run = train(problem, None, BLOCKS, solver="subspace", label_privacy=asked)
    ratio = run.models["p0"].weights[:2] / plain.models["p0"].weights[:2]
    assert ratio[0] == pytest.approx(ratio[1])
    assert ratio[0] != pytest.approx(1.0)


@pytest.mark.parametrize("solver", ["subspace", "trees"])
def test_a_run_that_goes_on_says_the_same(solver: str) -> None:
    problem = small(4, rows=600)
    job = Job(solver=solver, constraints=(EqualOpportunity(0.1),), label_privacy={"epsilon": 3.0}, max_rounds=4)  # type: ignore[arg-type]
    if solver == "subspace":
        job = Job(**{**vars(job), "protection": "none"})

    def make() -> dict[str, Any]:
        server, parties = Holdings.of(job, deal(problem, BLOCKS), problem.labels, problem.sensitive).roles()
        return {role.name: role for role in [server, *parties]}

    assert_goes_on_from_any_checkpoint(make, VirtualClock())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"solver": "vfb2-svrg"}, "does not support label_privacy; choose .subspace"),
        ({"constraints": (EqualOpportunity(0.1, cross=True),)}, "cross=True"),
        ({"constraints": (EqualOpportunity(0.1, confidence=0.9),)}, "confidence"),
        ({"solver": "trees", "loss": "squared"}, "needs two classes"),
        ({"label_privacy": {"epsilon": 0.0}}, "epsilon"),
        ({"label_privacy": {"groups": 1.0}}, "give {'epsilon': 1.0}"),
        ({"label_privacy": {"epsilon": 1.0, "delta": 1e-5}}, "no others than"),
        ({"label_privacy": {"epsilon": 1.0, "finish": "yes"}}, "finish"),
        (
            {"solver": "fairvfl", "model": "mlp", "label_privacy": {"epsilon": 1.0, "finish": True}},
            "finish supports linear models",
        ),
        ({"label_privacy": 1.0}, "label_privacy is 1.0"),
    ],
)
def test_what_would_tell_more_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_job(Job(**{"label_privacy": ASKED, **settings}), "vertical")


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (
            lambda problem: train(problem, None, BLOCKS, (0, 1), solver="subspace", label_privacy=ASKED),
            "exactly one active party",
        ),
        (lambda problem: weighted(problem), "sample_weight"),
        (lambda problem: warm(problem), "does not support warm_start"),
    ],
)
def test_who_else_would_be_told_is_refused(attempt: Callable[[Problem], Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        attempt(small())


def weighted(problem: Problem) -> None:
    job = Job(solver="trees", label_privacy=ASKED)  # type: ignore[arg-type]
    train_vertical(job, deal(problem, BLOCKS), problem.labels, sample_weight=np.ones(60))


def warm(problem: Problem) -> None:
    vertical_terms(Job(label_privacy=ASKED), {"a": "active", "b": "passive"}, 60, {}, warm=True)  # type: ignore[arg-type]


def test_a_server_that_was_given_labels_for_answers_refuses() -> None:
    problem = small()
    held = Holdings.of(Job(), deal(problem, BLOCKS), problem.labels)
    private = Holdings.of(Job(label_privacy=ASKED), deal(problem, BLOCKS), problem.labels)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="randomised responses"):
        Holdings(private.terms, held.server, held.parties).roles()


def test_terms_carry_it_and_policies_look_at_it() -> None:
    parts = {"bank": "active", "shop": "passive"}
    terms = [
        vertical_terms(Job(label_privacy=asked), parts, 10, {})  # type: ignore[arg-type]
        for asked in (None, {"epsilon": 2.0, "groups": 1.0}, {"epsilon": 1.0})
    ]
    assert "label_privacy" not in terms[0].to_plain()["job"]
    for one in terms:
        again = VerticalTerms.from_plain(one.to_plain())
        assert again.job.label_privacy == one.job.label_privacy
        assert again.digest == one.digest
    assert len({one.digest for one in terms}) == 3
    policy = OwnPolicy(label_epsilon=1.5)
    assert "no privacy" in str(policy(terms[0]))
    assert "2 is more than its 1.5" in str(policy(terms[1]))
    assert policy(terms[2]) is None
