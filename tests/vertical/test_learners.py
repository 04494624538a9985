"""Any model at any party: what is fitted, what is sent, and what a party's failing model does."""

from __future__ import annotations

import io
import itertools
import re
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.problems import deal, small

from evenhand.constraints import EqualizedOdds, EqualOpportunity
from evenhand.errors import DataError, InputError, LearnerWarning, RunError
from evenhand.models.learned import LearnedModel, learned_from_state, learned_state
from evenhand.models.learning.base import Fitted, PartyLearner, SavedLearner
from evenhand.models.learning.choose import as_learner
from evenhand.models.learning.covering import explained_spread, length
from evenhand.models.learning.linear import LinearFit, LinearLearner
from evenhand.models.learning.network import NetworkLearner
from evenhand.models.learning.reading import read
from evenhand.models.learning.regressor import RegressorLearner, Resampled
from evenhand.models.learning.tree import TreeLearner
from evenhand.programs.combining.leaf_values import LeafProblem
from evenhand.protocol.job import Job
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.learners.messages import OUTPUTS, RESPONSE
from evenhand_reproductions.in_memory import train_vertical

PEOPLE = small(seed=1, rows=400)
BLOCKS = [[2, 0], [1], [3]]
SOFT = EqualOpportunity(0.02)
RATES = EqualizedOdds(0.05, measure="error")


def train(
    learners: Sequence[Any] = ("linear", "linear", "linear"),
    blocks: Sequence[Sequence[int]] = BLOCKS,
    order: Sequence[int] | None = None,
    **job: Any,
) -> VerticalRun:
    runtime = job.pop("runtime", "auto")
    settings: dict[str, Any] = {"solver": "learners", "max_rounds": 3, "protection": "none", **job}
    parties = [
        replace(party, learner=as_learner(one)) for party, one in zip(deal(PEOPLE, blocks, (0,)), learners, strict=True)
    ]
    parties = [parties[place] for place in order or range(len(parties))]
    more: dict[str, Any] = {"runtime": runtime, "keep_messages": True}
    return train_vertical(Job(**settings), parties, PEOPLE.labels, PEOPLE.sensitive, **more)


def scores(run: VerticalRun, blocks: Sequence[Sequence[int]] = BLOCKS) -> np.ndarray:
    return np.sum(
        [run.models[f"p{place}"].predict(PEOPLE.matrix[:, list(block)]) for place, block in enumerate(blocks)], axis=0
    )


def test_linear_learners_end_at_the_optimum_of_subspace() -> None:
    """Without a regulariser, on the rows as they are: the same problem over the same functions."""
    same: dict[str, Any] = {"constraints": (SOFT,), "alpha": 0.0, "tol": 1e-12, "protection": "none"}
    learned = train(max_rounds=30, options={"patience": 20, "folds": 1, "exact_rates": False}, **same)
    linear = train(solver="subspace", max_rounds=200, **same)
    assert learned.certificate.objective == pytest.approx(linear.certificate.objective, abs=1e-8)
    assert learned.certificate.violation < 1e-8
    np.testing.assert_allclose(learned.multipliers, linear.multipliers, atol=1e-5)
    np.testing.assert_allclose(scores(learned), scores(linear), atol=1e-4)


def test_one_tree_with_a_column_a_leaf_is_the_first_round_of_trees() -> None:
    pytest.importorskip("lightgbm")
    same: dict[str, Any] = {"max_rounds": 1, "alpha": 0.0, "constraints": (SOFT,)}
    once: dict[str, Any] = {"folds": 1, "exact_rates": False}
    of_trees = train(solver="trees", model="trees", options={"shrinkage": 1.0, "leaves": 16, **once}, **same)
    learned = train([TreeLearner(l2=0.0)] * 3, options={"features": 16, **once}, **same)
    np.testing.assert_allclose(scores(learned), scores(of_trees), atol=1e-4)
    np.testing.assert_allclose(learned.multipliers, of_trees.multipliers, atol=1e-4)


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_the_order_of_parties_changes_nothing(protection: str) -> None:
    forest = RandomForestRegressor(5, max_depth=3)
    learners = ("linear", forest, "linear")
    one, other = (
        train(learners, order=order, protection=protection, constraints=(RATES,)) for order in ([0, 1, 2], [2, 0, 1])
    )
    assert one.certificate == other.certificate
    for name, model in one.models.items():
        assert model.weights.tobytes() == other.models[name].weights.tobytes()
    np.testing.assert_array_equal(scores(one), scores(other))


@dataclass(frozen=True)
class Both(PartyLearner):
    """Two linear models on a column each; the output is their sum, each with the spread that it has in a sum."""

    def fit(self, columns: Any, response: Any, weight: Any, *, warm: Any, seed: int, features: int) -> Fitted:
        total, intercept = np.zeros(2), 0.0
        for place in range(2):
            one = LinearLearner().fit(columns[:, [place]], response, weight, warm=None, seed=seed, features=features)
            assert isinstance(one, LinearFit)
            outputs = one.outputs(columns[:, [place]])[:, None]
            total[place] = one.weights[0] * explained_spread(outputs, response, weight)[0] / outputs.std()
        return LinearFit(total, intercept)

    def load(self, saved: SavedLearner) -> Fitted:
        return LinearFit.of(saved)


def test_a_masked_sum_trains_what_one_party_with_the_sum_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.vertical.learners.party.length", lambda *_: 1.0)
    # Of one model: a sum that arrives by itself has unit spread in each model, masked sums have not.
    same: dict[str, Any] = {"constraints": (RATES,), "alpha": 0.0, "tol": 1e-6, "options": {"folds": 1}}
    masked = train(protection="masked", **same)
    summed = train(["linear", Both()], blocks=[[2, 0], [1, 3]], **same)
    assert masked.certificate.rounds == summed.certificate.rounds
    np.testing.assert_allclose(scores(masked), scores(summed, [[2, 0], [1, 3]]), atol=1e-6)
    assert masked.certificate.objective == pytest.approx(summed.certificate.objective, abs=1e-8)


def test_bounds_hold_on_exact_rates_at_scores_of_models_that_have_not_seen_the_row() -> None:
    run = train([RandomForestRegressor(10, max_depth=4), "linear", "linear"], constraints=(RATES,), max_rounds=4)
    assert run.certificate.converged
    assert run.unseen_scores is not None
    decided, labels = run.unseen_scores.scores > 0, PEOPLE.labels > 0
    gaps = []
    for label in (False, True):
        rates = [np.mean(decided[(labels == label) & (PEOPLE.groups == group)] != label) for group in ("a", "b")]
        gaps.append(abs(rates[0] - rates[1]))
    # A margin of one person in the smaller slice.
    assert max(gaps) <= 0.05 + 2.5 / min(PEOPLE.slice(label, group).sum() for label in (1, -1) for group in "ab")
    assert len(run.statistics["constraints"]) == 2


def test_a_forest_and_a_network_send_messages_of_the_same_kinds_and_shapes() -> None:
    pytest.importorskip("torch")
    lists = []
    for model in (RandomForestRegressor(3, max_depth=3), "mlp", KNN):
        run = train(["linear", model, "linear"], max_rounds=2, tol=0.0, options={"patience": 9, "folds": 2})
        messages = run.transcript.messages or []
        lists.append(
            [
                (
                    one.sender,
                    one.receiver,
                    one.kind,
                    {name: (value.dtype, value.shape) for name, value in one.body.items()},
                )
                for one in messages
            ]
        )
    assert lists[0] == lists[1] == lists[2]


def test_threads_train_the_same_model() -> None:
    learners = ["linear", NetworkLearner(epochs=2), RandomForestRegressor(3, max_depth=3)]
    same: dict[str, Any] = {"constraints": (RATES,), "protection": "masked", "max_rounds": 2}
    one, other = train(learners, **same), train(learners, runtime="threads", **same)
    np.testing.assert_array_equal(scores(one), scores(other))
    assert one.certificate == other.certificate


def test_a_device_that_a_machine_lacks_is_an_error_at_its_own_party() -> None:
    torch = pytest.importorskip("torch")

    def perceptron(width: int) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(width, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

    wrong = NetworkLearner(module=perceptron, device="cuda:99", epochs=1)
    with pytest.raises(DataError, match=r"^p1: its learner failed in round 1: device 'cuda:99' cannot be used on"):
        train(["linear", wrong, "linear"])
    run = train(["linear", replace(wrong, device="cpu"), "linear"], max_rounds=1)
    assert run.models["p1"].predict(PEOPLE.matrix[:, [1]]).any()


KNN = Resampled(KNeighborsRegressor(15))


@dataclass(frozen=True)
class Broken(PartyLearner):
    """A model that cannot be used."""

    how: str = ""

    def fit(self, columns: Any, response: Any, weight: Any, *, warm: Any, seed: int, features: int) -> Fitted:
        if self.how == "raises":
            raise ZeroDivisionError("nothing is left")
        return BrokenFit(self.how)

    def load(self, saved: SavedLearner) -> Fitted:
        raise NotImplementedError


class BrokenFit(Fitted):
    def __init__(self, how: str) -> None:
        self.how = how

    def outputs(self, columns: Any) -> np.ndarray:
        rows = columns.shape[0]
        given = {"constant": np.ones(rows), "short": np.ones(rows - 1), "wide": np.ones((rows, 2))}
        return given[self.how] if self.how in given else np.full(rows, np.nan)

    def saved(self) -> SavedLearner:
        return SavedLearner("broken", b"")


WRONG = {
    "raises": "ZeroDivisionError: nothing is left",
    "nan": "not finite",
    "constant": "all rows the same output",
    "short": r"of shape \(399,\) for 400 rows",
    "wide": r"of shape \(400, 2\) for 400 rows; one number a row",
}


@pytest.mark.parametrize("how", WRONG)
def test_a_failing_model_ends_the_run_with_an_error_that_names_its_party(how: str) -> None:
    with pytest.raises(DataError, match=f"^p1: its learner failed in round 1: .*{WRONG[how]}.*failing = 'continue'"):
        train(["linear", Broken(how), "linear"])


@pytest.mark.parametrize("protection", ["none", "masked"])
@pytest.mark.parametrize("how", WRONG)
def test_the_run_goes_on_without_a_failing_model_if_the_terms_say_so(how: str, protection: str) -> None:
    options = {"failing": "continue", "folds": 2}
    with pytest.warns(LearnerWarning, match=f"^p1: its learner failed in round .: .*{WRONG[how]}"):
        run = train(["linear", Broken(how), "linear"], options=options, protection=protection)
    failed = run.models["p1"]
    # In a sum zeros would leave the other party's column to the receiver.
    assert failed.predict(PEOPLE.matrix[:, [1]]).any() == (protection == "masked")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = train(["linear", "linear"], blocks=[[2, 0], [3]], options={"folds": 2})
    # Coefficients of zero columns change nothing; seeds of linear models are not used.
    if protection == "none":
        np.testing.assert_allclose(scores(run), scores(without, [[2, 0], [3]]), atol=1e-6)


def test_a_party_with_nothing_to_send_does_not_uncover_the_others() -> None:
    """The sum of a round is not the other passive party's column, up to a factor."""
    options = {"failing": "continue", "folds": 2}
    with pytest.warns(LearnerWarning):
        alone = train(["linear", Broken("nan"), "linear"], max_rounds=1, options=options)
    with pytest.warns(LearnerWarning):
        masked = train(["linear", Broken("nan"), "linear"], max_rounds=1, options=options, protection="masked")
    (column,) = sent(alone, "p2")
    (total,) = sent(masked, "together")
    assert abs(np.corrcoef(total, column)[0, 1]) < 0.95


def test_missing_values_of_trees_are_no_reason_to_refuse_sums() -> None:
    pytest.importorskip("lightgbm")
    parties = [replace(one, learner=as_learner("trees")) for one in deal(PEOPLE, BLOCKS, (0,))]
    columns = np.array(parties[1].matrix)
    columns[::7] = np.nan
    parties[1] = replace(parties[1], matrix=columns)
    job = Job(solver="learners", protection="masked", max_rounds=2, options={"folds": 2})
    run = train_vertical(job, parties, PEOPLE.labels)
    assert np.isfinite(run.models["p1"].predict(columns)).all()
    columns[:] = np.nan
    with pytest.raises(DataError, match="p1: all its rows are equal"):
        train_vertical(job, parties, PEOPLE.labels)


def test_differences_of_sums_are_not_the_column_of_one_party() -> None:
    """A party with one column sends it or its opposite in every round; in equal lengths it would cancel."""
    run = train(max_rounds=3, tol=0.0, options={"patience": 9}, protection="masked")
    messages = run.transcript.messages or []
    opened = [one["columns"] for one in messages if one.kind == OUTPUTS.kind and one.sender == "together"]
    sums = np.concatenate(opened)
    columns = [PEOPLE.matrix[:, place] - PEOPLE.matrix[:, place].mean() for place in (1, 3)]
    for one, other in itertools.combinations(sums, 2):
        for both in (one + other, one - other):
            for column in columns:
                along = abs(float(both @ column)) / float(np.linalg.norm(column) * np.linalg.norm(both))
                assert along < 1.0 - 1e-9


def test_a_model_that_finds_little_adds_little_to_a_sum() -> None:
    response = np.random.default_rng(0).normal(scale=3.0, size=500)
    outputs = np.stack([0.5 * response, 0.01 * response, 7.0 * response], axis=1)
    np.testing.assert_allclose(explained_spread(outputs, response, np.ones(500)), [0.5, 0.1, 1.0])
    # Rows without weight do not count, and a constant response has no spread.
    response[250:] = 100.0
    assert explained_spread(outputs[:, :1], response, np.arange(500) < 250)[0] == pytest.approx(0.5, rel=0.05)
    np.testing.assert_array_equal(explained_spread(outputs, np.ones(500), np.ones(500))[1], 0.1)


def test_the_working_response_is_limited_without_a_change_of_the_gradient() -> None:
    """A gradient that were cut would not be zero on average for rare labels, where scores are right."""
    labels = np.where(np.random.default_rng(0).random(2000) < 0.05, 1.0, -1.0)
    parties = [replace(one, learner=as_learner("linear")) for one in deal(small(seed=1, rows=2000), BLOCKS, (0,))]
    job = Job(solver="learners", max_rounds=1, protection="none")
    run = train_vertical(job, parties, labels, keep_messages=True)
    told = next(one for one in run.transcript.messages or [] if one.kind == RESPONSE.kind)
    gradient, curvature = (told[name][0].astype(float) * told[f"{name}_unit"] for name in ("gradient", "curvature"))
    shown = curvature > 0.0
    assert np.abs(gradient[shown] / curvature[shown]).max() == pytest.approx(4.0, rel=0.01)
    assert abs(gradient.mean()) < 2e-3


def test_of_all_solutions_that_hold_the_one_with_the_smallest_loss_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that were moved too far lead to feasible models that are far worse."""
    losses: list[float] = []
    violation, fit = LeafProblem.violation, LeafProblem.fit

    def measured(self: LeafProblem, point: Any, held_out: Any) -> float:
        found = violation(self, point, held_out)
        losses.append(np.inf if found > 1e-5 else self.wanted.at(held_out).loss)
        return found

    def fitted(self: LeafProblem, *given: Any, **more: Any) -> Any:
        losses.clear()
        found = fit(self, *given, **more)
        feasible = [one for one in losses if np.isfinite(one)]
        several.append(len(feasible) > 1)
        assert self.wanted.at(found.held_out).loss == min(losses) or not feasible
        return found

    several: list[bool] = []
    monkeypatch.setattr(LeafProblem, "violation", measured)
    monkeypatch.setattr(LeafProblem, "fit", fitted)
    train(constraints=(EqualizedOdds(0.05, measure="error"),), max_rounds=4)
    assert any(several)


def test_lengths_follow_from_every_row_of_the_columns() -> None:
    columns = np.random.default_rng(0).normal(size=(200, 3))
    found = [length(columns, seed, 0.5) for seed in range(50)]
    assert found == [length(columns.copy(), seed, 0.5) for seed in range(50)]
    assert min(found) < 0.6
    assert max(found) > 1.4
    changed = columns.copy()
    changed[0, 0] += 0.01
    assert length(changed, 0, 0.5) != found[0]


def test_counts_of_two_values_do_not_tell_the_length() -> None:
    """The server may know how many people have a property. It then still does not know the length of its column."""
    column = (np.random.default_rng(0).random((300, 1)) < 0.4) - 0.4
    other = np.sort(column, axis=0)
    assert length(column, 0, 0.5) not in (length(other, 0, 0.5), length(other[::-1], 0, 0.5), length(-other, 0, 0.5))


def sent(run: VerticalRun, name: str) -> list[np.ndarray]:
    """The first column of each answer; `together` is the sum that the server finds behind the masks."""
    messages = run.transcript.messages or []
    return [one["columns"][0] for one in messages if one.kind == OUTPUTS.kind and one.sender == name]


LEARNERS: dict[str, Any] = {
    "linear": "linear",
    "trees": "trees",
    "mlp": "mlp",
    "forest": RandomForestRegressor(3, max_depth=3),
    "neighbours": KNN,
    "ridge": Ridge(),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_is_read_as_it_was_kept(name: str) -> None:
    for package in {"trees": ["lightgbm"], "mlp": ["torch"], "linear": []}.get(name, ["skops"]):
        pytest.importorskip(package)
    learner = as_learner(LEARNERS[name])
    run = train(["linear", learner, "linear"], max_rounds=2, options={"folds": 2})
    model = run.models["p1"]
    assert isinstance(model, LearnedModel)
    again = learned_from_state(learned_state(model), learner)
    rows = np.random.default_rng(3).normal(size=(50, 1))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


@pytest.mark.parametrize("kind", ["linear", "perceptron", "tree", "lightgbm", "covered", "skops"])
def test_a_damaged_model_is_refused_in_words(kind: str) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("skops")
    with pytest.raises(RunError, match=f"a fitted model of kind '{kind}' cannot be read"):
        read(SavedLearner(kind, b"0\ndamaged"), RegressorLearner(Ridge()))


class Doubled(Ridge):  # type: ignore[misc]
    """A regressor of the party's own code."""

    def predict(self, X: Any) -> Any:
        return 2.0 * super().predict(X)


def test_types_that_the_party_does_not_trust_are_not_read() -> None:
    pytest.importorskip("skops")
    learner = as_learner(Doubled())
    run = train(["linear", learner, "linear"], max_rounds=1, options={"folds": 2})
    model = run.models["p1"]
    assert isinstance(model, LearnedModel)
    state = learned_state(model)
    with pytest.raises(RunError, match=r"does not trust: .*Doubled.*name them in `trusted`"):
        learned_from_state(state, learner)
    named = f"{Doubled.__module__}.Doubled"
    again = learned_from_state(state, RegressorLearner(Doubled(), trusted=(named,)))
    np.testing.assert_array_equal(again.predict(PEOPLE.matrix[:, [1]]), model.predict(PEOPLE.matrix[:, [1]]))


@pytest.mark.parametrize("name", ["_testing.check_output", "_testing.CalledProcessError", "discovery.import_module"])
def test_names_of_other_packages_in_modules_of_scikit_learn_are_not_read(name: str) -> None:
    """Whoever writes a file of skops chooses the names in it, and with them what is called."""
    skops = pytest.importorskip("skops.io")
    made = make_pipeline(FunctionTransformer(np.log1p), Ridge()).fit(np.ones((5, 1)), np.arange(5.0))
    changed = io.BytesIO()
    module, function = f"sklearn.utils.{name}".rsplit(".", 1)
    with zipfile.ZipFile(io.BytesIO(skops.dumps(made))) as kept, zipfile.ZipFile(changed, "w") as written:
        for one in kept.namelist():
            content = kept.read(one)
            named = f'"__class__": "{function}", "__module__": "{module}"'.encode()
            content = re.sub(rb'"__class__": "log1p",\s*"__module__": "numpy"', named, content)
            assert named in content or one != "schema.json"
            written.writestr(one, content)
    learner = RegressorLearner(Ridge())
    with pytest.raises(RunError, match=f"does not trust: {module}.{function}"):
        learner.load(SavedLearner("skops", changed.getvalue()))
    selected = make_pipeline(SelectKBest(f_regression, k=1), Ridge()).fit(np.eye(5), np.arange(5.0))
    learner.load(SavedLearner("skops", skops.dumps(selected)))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("forest", "choose 'linear', 'curves', 'mlp', 'trees'"),
        (KNeighborsRegressor(), r"KNeighborsRegressor takes no sample_weight.*Resampled\(KNeighborsRegressor"),
        (RandomForestRegressor, "give a regressor with scikit-learn's interface"),
        (3, "model is 3"),
    ],
)
def test_what_is_no_model_is_refused(given: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        as_learner(given)


def test_a_classifier_is_refused() -> None:
    from sklearn.ensemble import RandomForestClassifier

    with pytest.raises(InputError, match="is no regressor"):
        as_learner(RandomForestClassifier())


@pytest.mark.parametrize("protection", ["dealer", "encrypted"])
def test_shares_are_refused_with_a_reason(protection: str) -> None:
    with pytest.raises(InputError, match="networks or trees cannot be fitted to shares"):
        train(protection=protection)


def test_labels_can_leave_as_randomised_responses_and_the_holder_fits_its_end_to_the_true_ones() -> None:
    run = train(label_privacy={"epsilon": 2.0, "finish": True})
    private = train(label_privacy={"epsilon": 2.0})
    assert not np.array_equal(run.models["p0"].weights, private.models["p0"].weights)
    np.testing.assert_array_equal(run.models["p1"].weights, private.models["p1"].weights)
    objectives = []
    for one in (run, private):
        ridge = 0.5 * (2.0 / 400) * float((one.models["p0"].weights[:-1] ** 2).sum())
        objectives.append(np.logaddexp(0.0, -PEOPLE.labels * scores(one)).mean() + ridge)
    assert objectives[0] < objectives[1]


def test_numbers_are_predicted_whatever_their_unit() -> None:
    target = 1000.0 * PEOPLE.matrix[:, 0] + 500.0 * PEOPLE.matrix[:, 1] ** 2
    parties = [replace(one, learner=as_learner(RandomForestRegressor(20))) for one in deal(PEOPLE, BLOCKS, (0,))]
    run = train_vertical(Job(solver="learners", loss="squared", max_rounds=4), parties, target)
    assert np.mean((scores(run) - target) ** 2) < 0.1 * target.var()
