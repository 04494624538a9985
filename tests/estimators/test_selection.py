"""Choosing ε and alpha by cross-validation, and the frontier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from support.problems import small

from evenhand import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    HorizontalClassifier,
    LossParity,
    NeymanPearson,
    SplitTableClassifier,
    VerticalClassifier,
    fairness_scorer,
    frontier,
    select,
)
from evenhand.constraints.kinds import moved
from evenhand.errors import DataError, GridEdgeWarning, InputError
from evenhand.estimators.selection import with_settings
from evenhand.jobs.tables import fold_numbers

# Problems of 400 rows and grids of two or three values: of both the user is told, which is tested where it matters.
pytestmark = [
    pytest.mark.filterwarnings("ignore::evenhand.errors.SmallSliceWarning"),
    pytest.mark.filterwarnings("ignore::evenhand.errors.GridEdgeWarning"),
]


@pytest.fixture
def data() -> tuple[dict[str, pd.DataFrame], pd.Series, pd.Series]:
    problem = small(3, rows=400, columns=6)
    ids = pd.Index([f"id{k}" for k in range(400)])
    frame = pd.DataFrame(problem.matrix, index=ids).rename(columns=lambda k: f"x{k}")
    tables = {"bank": frame[["x0", "x1"]], "shop": frame[["x2", "x3", "x4", "x5"]].iloc[::-1]}
    labels = pd.Series(np.where(problem.labels > 0, "yes", "no"), index=ids)
    return tables, labels, pd.Series(problem.groups, index=ids, name="group")


def test_the_table_has_a_row_for_each_pair_and_the_choice_is_its_best(data, tmp_path: Path) -> None:
    tables, labels, groups = data
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    found = select(
        estimator, tables, labels, sensitive_features=groups, epsilons=[0.3, 0.05, 0.01], alphas=[0.005, 0.1], folds=3
    )
    assert len(found.table) == 6
    best = found.table.loc[found.table["score"].idxmax()]
    # Of a bound on DEO the score is the papers' harmonic mean.
    assert found.table["score"].to_numpy() == pytest.approx(found.table["HM"].to_numpy())
    assert found.table["gap"].to_numpy() == pytest.approx(found.table["DEO"].to_numpy())
    assert (found.epsilon, found.alpha) == (best["epsilon"], best["alpha"])
    assert found.feasible
    assert found.estimator.constraint == EqualOpportunity(found.epsilon)
    assert found.estimator.certificate_.violation <= 1e-6
    assert estimator.constraint == EqualOpportunity()
    found.plot(tmp_path / "pictures" / "frontier.png")
    assert (tmp_path / "pictures" / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_rows_are_judged_by_models_that_never_saw_them(data) -> None:
    tables, labels, groups = data
    ids = tables["bank"].index
    fold = fold_numbers(ids, 3, seed=0)
    scores = pd.Series(0.0, index=ids)
    for number in range(3):
        train, test = ids[fold != number], ids[fold == number]
        model = VerticalClassifier(constraint=EqualOpportunity(0.05), random_state=0)
        model.fit(
            {name: table.loc[train] for name, table in tables.items()}, labels[train], sensitive_features=groups[train]
        )
        scores[test] = model.decision_function({name: table.loc[test] for name, table in tables.items()})
    accuracy = np.mean((scores > 0) == (labels == "yes"))
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    table = frontier(estimator, tables, labels, sensitive_features=groups, epsilons=[0.05], folds=3)
    assert table["accuracy"].iloc[0] == pytest.approx(accuracy)


def test_bounds_come_before_what_is_maximised(data) -> None:
    tables, labels, groups = data
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    options = {"sensitive_features": groups, "epsilons": [0.5, 0.01], "folds": 3, "maximise": "accuracy"}
    free = select(estimator, tables, labels, **options)
    limit = float(free.table["DEO"].min()) + 1e-6
    bounded = select(estimator, tables, labels, **options, subject_to={"DEO": limit})
    assert bounded.feasible
    assert float(bounded.table.set_index("epsilon").loc[bounded.epsilon, "DEO"]) <= limit
    missed = select(estimator, tables, labels, **options, subject_to={"DEO": 0.0})
    assert not missed.feasible
    assert missed.epsilon == bounded.epsilon


def test_settings_whose_fits_converge_come_first(data, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, labels, groups = data
    table = pd.DataFrame(
        {"alpha": None, "temperature": None, "epsilon": [0.1, 0.05, 0.01], "score": [0.7, 0.8, 0.9]}
        | {"converged": [1.0, 1.0, 0.4]}
    )
    monkeypatch.setattr("evenhand.estimators.selection.frontier", lambda *_, **__: table)
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    chosen = select(estimator, tables, labels, sensitive_features=groups, epsilons=[0.1, 0.05, 0.01])
    assert chosen.epsilon == 0.05


def test_the_share_of_converged_folds_is_told(data) -> None:
    tables, labels, groups = data
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    found = frontier(estimator, tables, labels, sensitive_features=groups, epsilons=[0.1], folds=2)
    assert found["converged"].tolist() == [1.0]


def test_wrong_questions_are_refused(data) -> None:
    tables, labels, groups = data
    with pytest.raises(InputError, match="no constraint with an epsilon"):
        select(VerticalClassifier(), tables, labels, sensitive_features=groups)
    with pytest.raises(InputError, match="no constraint with an epsilon"):
        select(VerticalClassifier(constraint=NeymanPearson(0.2)), tables, labels, sensitive_features=groups)
    estimator = VerticalClassifier(constraint=EqualOpportunity())
    with pytest.raises(InputError, match="there is no metric 'beauty'"):
        select(estimator, tables, labels, sensitive_features=groups, epsilons=[0.1], folds=2, maximise="beauty")
    with pytest.raises(InputError, match="at least two"):
        frontier(estimator, tables, labels, sensitive_features=groups, folds=1)


def test_one_epsilon_is_replaced_and_the_others_stay() -> None:
    given = (EqualizedOdds(0.3), DemographicParity(0.1), NeymanPearson(0.2))
    assert with_settings(given, 0, 0.05) == (EqualizedOdds(0.05), *given[1:])
    assert with_settings(given, 1, 0.05, 2.0)[0] == EqualizedOdds(0.3, temperature=2.0)
    assert moved(given) == 0
    assert moved(given, "demographic-parity") == 1
    assert moved([NeymanPearson(0.2)]) is None
    with pytest.raises(InputError, match=r"'loss-parity'.*there is 'equalized-odds', 'demographic-parity'"):
        moved(given, "loss-parity")


# Whether a model within 0.02 is found in a fold of a hundred rows is chance, and not what is asked here.
@pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning")
@pytest.mark.filterwarnings("ignore::evenhand.estimators.ShortfallWarning")
def test_the_temperature_is_chosen_with_the_rest(data, tmp_path: Path) -> None:
    tables, labels, groups = data
    estimator = VerticalClassifier(constraint=EqualizedOdds(measure="error"), random_state=0)
    options = {"sensitive_features": groups, "epsilons": [0.1, 0.02], "temperatures": [0.2, 1.0], "folds": 2}
    found = select(estimator, tables, labels, **options, maximise="accuracy")
    assert len(found.table) == 4
    best = found.table.loc[found.table["accuracy"].idxmax()]
    assert (found.temperature, found.epsilon) == (best["temperature"], best["epsilon"])
    assert found.estimator.constraint == EqualizedOdds(found.epsilon, "error", found.temperature)
    found.plot(tmp_path / "frontier.png", fairness="equalized_odds")


# Whether a model within 0.02 is found in a fold of a hundred rows is chance, and not what is asked here.
@pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning")
@pytest.mark.filterwarnings("ignore::evenhand.estimators.ShortfallWarning")
def test_the_score_is_of_the_exact_gap_that_the_constraint_bounds(data) -> None:
    """On rates the loss says something else, and on the loss of all rows no metric of the papers says anything."""
    tables, labels, groups = data
    options = {"sensitive_features": groups, "epsilons": [0.3, 0.02], "folds": 3}
    of_rates = VerticalClassifier(constraint=EqualizedOdds(measure="error"), random_state=0)
    table = frontier(of_rates, tables, labels, **options)
    assert table["gap"].to_numpy() == pytest.approx(table["equalized_odds"].to_numpy())
    fairness = 1 - table["gap"]
    expected = 2 * table["accuracy"] * fairness / (table["accuracy"] + fairness)
    assert table["score"].to_numpy() == pytest.approx(expected.to_numpy())
    assert (table["gap_error"] > 0).all()
    assert (table["gap_bound"] > table["gap"] + table["gap_error"]).all()
    assert not np.allclose(table["score"], table["HM"])
    several = VerticalClassifier(constraint=[LossParity(), NeymanPearson(3.0)], random_state=0)
    table = frontier(several, tables, labels, **options)
    assert (table["gap"] > 0).all()
    assert not np.allclose(table["gap"], table["DEO"])


def test_a_choice_at_the_edge_of_a_grid_is_told(data) -> None:
    tables, labels, groups = data
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    options = {"sensitive_features": groups, "folds": 2, "maximise": "accuracy"}
    with pytest.warns(GridEdgeWarning) as caught:
        found = select(estimator, tables, labels, **options, epsilons=[5.0, 0.01], alphas=[None, 100.0])
    told = {str(one.message) for one in caught if one.category is GridEdgeWarning}
    assert (found.epsilon, found.alpha) == (5.0, None)
    assert told == {
        "the best epsilon is 5, the largest that was tried: a larger one may be better; widen the grid",
        "the best alpha is 0.005, the smallest that was tried: a smaller one may be better; widen the grid",
    }


def test_a_choice_inside_a_grid_and_a_single_value_are_not_told(data, recwarn) -> None:
    tables, labels, groups = data
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    grid = {"epsilons": [3.0, 0.1, 0.001], "alphas": [0.02]}
    table = frontier(estimator, tables, labels, sensitive_features=groups, folds=2, **grid)
    middle = table.loc[table["epsilon"] == 0.1, "DEO"].iloc[0]
    bound = {"DEO": float(middle) + 1e-9}
    found = select(
        estimator, tables, labels, sensitive_features=groups, folds=2, **grid, maximise="DEO", subject_to=bound
    )
    assert found.epsilon == 0.1
    assert not [one for one in recwarn if one.category is GridEdgeWarning]


def test_weights_train_the_models_and_stay_beside_their_rows(data) -> None:
    tables, labels, groups = data
    weights = pd.Series(np.where(labels == "yes", 3.0, 1.0), index=labels.index)
    estimator = VerticalClassifier(constraint=EqualOpportunity(), random_state=0)
    given = {"sensitive_features": groups, "epsilons": [0.1], "folds": 2}
    plain = frontier(estimator, tables, labels, **given)
    heavy = frontier(estimator, tables, labels, sample_weight=weights, **given)
    shuffled = frontier(estimator, tables, labels, sample_weight=weights.iloc[::-1], **given)
    assert heavy["log_loss"].iloc[0] != plain["log_loss"].iloc[0]
    pd.testing.assert_frame_equal(heavy, shuffled)
    chosen = select(estimator, tables, labels, sample_weight=weights, **given)
    fitted = VerticalClassifier(constraint=EqualOpportunity(0.1), random_state=0)
    fitted.fit(tables, labels, weights, sensitive_features=groups)
    np.testing.assert_array_equal(chosen.estimator.coef_, fitted.coef_)


def test_across_clients(data) -> None:
    tables, labels, groups = data
    rows = tables["bank"].join(tables["shop"])
    clients = np.array(["north", "south"])[np.arange(len(rows)) % 2]
    estimator = HorizontalClassifier(constraint=EqualOpportunity(), random_state=0)
    given = {"sensitive_features": groups, "clients": clients}
    found = select(estimator, rows, labels, **given, epsilons=[0.3, 0.02], folds=3)
    assert len(found.table) == 2
    fold = fold_numbers(rows.index, 3, seed=0)
    scores = np.zeros(len(rows))
    for number in range(3):
        train, test = fold != number, fold == number
        model = HorizontalClassifier(constraint=EqualOpportunity(0.02), random_state=0)
        model.fit(rows[train], labels[train], sensitive_features=groups[train], clients=clients[train])
        scores[test] = model.decision_function(rows[test])
    wanted = np.mean((scores > 0) == (labels == "yes"))
    assert found.table.set_index("epsilon").loc[0.02, "accuracy"] == pytest.approx(wanted, abs=0.005)
    assert found.estimator.constraint == EqualOpportunity(found.epsilon)
    by_name = select(
        estimator,
        rows.assign(group=groups),
        labels,
        sensitive_features=["group"],
        clients=clients,
        epsilons=[0.3, 0.02],
        folds=3,
    )
    pd.testing.assert_frame_equal(by_name.table, found.table)
    with pytest.raises(InputError, match="clients is for HorizontalClassifier"):
        frontier(VerticalClassifier(constraint=EqualOpportunity()), tables, labels, **given)
    with pytest.raises(InputError, match="takes no sample_weight"):
        frontier(estimator, rows, labels, **given, sample_weight=np.ones(len(rows)))


def test_a_grid_counts_the_gap() -> None:
    rng = np.random.default_rng(5)
    group, merit = rng.integers(0, 2, 600), rng.normal(size=(600, 3))
    # Labels follow the group, and a column tells it.
    rows = pd.DataFrame(np.column_stack([merit, group + rng.normal(0, 0.2, 600)]), columns=list("abcd"))
    labels = pd.Series(np.where(merit.sum(axis=1) + 2.0 * group + rng.logistic(size=600) > 1, "yes", "no"))
    groups = pd.Series(np.where(group == 1, "x", "y"), name="group")
    constraint = EqualizedOdds(0.5, measure="error")
    model = SplitTableClassifier(VerticalClassifier(constraint=constraint, random_state=0))
    grid = {"classifier__constraint__epsilon": [0.5, 0.02]}
    chosen = {}
    for name, scoring in (("accuracy", "accuracy"), ("gap", fairness_scorer(constraint, sensitive_features=groups))):
        search = GridSearchCV(model, grid, scoring=scoring, cv=3)
        chosen[name] = search.fit(rows, labels, sensitive_features=groups)
    assert chosen["accuracy"].best_params_["classifier__constraint__epsilon"] == 0.5
    assert chosen["gap"].best_params_["classifier__constraint__epsilon"] == 0.02
    scorer = fairness_scorer(constraint)
    fitted = chosen["gap"].best_estimator_
    quality = frontier_score(constraint, labels, fitted.decision_function(rows), groups)
    assert scorer(fitted, rows, labels, sensitive_features=groups) == pytest.approx(quality)
    with pytest.raises(DataError, match="a pandas index each"):
        fairness_scorer(constraint, groups)(fitted, rows, labels.to_numpy())
    with pytest.raises(InputError, match="no constraint"):
        fairness_scorer(None)(fitted, rows, labels)


def frontier_score(constraint, labels: pd.Series, scores: np.ndarray, groups: pd.Series) -> float:
    """The harmonic mean of accuracy and 1 − gap, counted anew."""
    decided, truth = scores > 0, (labels == "yes").to_numpy()
    errors = [
        [
            np.mean(decided[here] != truth[here])
            for here in ((groups == one).to_numpy() & (truth == label) for one in groups.unique())
        ]
        for label in (True, False)
    ]
    gap = max(max(ones) - min(ones) for ones in errors)
    accuracy = np.mean(decided == truth)
    return 2 * accuracy * (1 - gap) / (accuracy + 1 - gap)
