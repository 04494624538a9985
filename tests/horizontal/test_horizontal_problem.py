"""What clients hand over, what they agree on, and what is refused before anything is trained."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from support.clients import deal_rows
from support.problems import small, two_attributes

from evenhand.arrays import dense
from evenhand.constraints.kinds import EqualOpportunity, GroupAgainstOverall, LossParity, NeymanPearson
from evenhand.constraints.scope import ConstraintScope
from evenhand.errors import ConstraintError, DataError, InputError, MissingExtraError
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.summaries import SliceMeans, common_classes, summarise
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import horizontal_terms, train_clients

PROBLEM = small(seed=1, rows=40)
X, Y, S = PROBLEM.matrix, PROBLEM.labels, PROBLEM.sensitive


def with_nan() -> np.ndarray:
    spoiled = X.copy()
    spoiled[[2, 5], 1] = np.nan
    return spoiled


@pytest.mark.parametrize(
    ("features", "labels", "groups", "message"),
    [
        (X[:0], Y[:0], S[:0], "client 'north' has no rows; leave it out"),
        (with_nan(), Y, S, "client 'north': 2 rows have features that are not finite"),
        (X, np.append(Y[:-1], np.nan), S, "client 'north': some labels are missing"),
        (X, Y[:-1], S, r"features of shape \(40, 4\) and labels of shape \(39,\)"),
        (X[:, 0], Y, S, r"features of shape \(40,\)"),
        (X.astype(str).astype(object) + "x", Y, S, "must be numbers"),
        (X, Y, S[:-1], "client 'north': sensitive features have 39 rows"),
        (X, Y, S.where(np.arange(40)[:, None] != 3), "client 'north': sensitive attribute 'group' has 1 missing"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_by_the_clients_name(
    features: Any, labels: Any, groups: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        ClientRows("north", features, labels, groups)


def test_a_name_must_do_as_a_file_name() -> None:
    for name in ("server", "", "a/b", "x" * 65):
        with pytest.raises(InputError, match="a client's name is"):
            ClientRows(name, X, Y, S)


def test_sparse_rows_are_taken() -> None:
    client = ClientRows("a", sp.csr_array(X), list(Y), S["group"].to_numpy())
    np.testing.assert_array_equal(dense(client.features), X)
    assert list(client.groups.columns) == ["group"]  # type: ignore[union-attr]


def test_sparse_rows_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="client 'north': 2 rows have features that are not finite"):
        ClientRows("north", sp.csr_array(with_nan()), Y, S)


def test_groups_are_those_of_all_clients_together_or_the_agreed_ones() -> None:
    parts = [np.flatnonzero(PROBLEM.groups == group) for group in "ab"]
    clients = deal_rows(PROBLEM, [list(part) for part in parts])
    assert horizontal_terms(Job("fedavg"), clients).groups == {"group": ("a", "b")}
    wider = horizontal_terms(Job("fedavg"), clients, groups={"group": ["b", "a", "z"]})
    np.testing.assert_array_equal(clients[0].codes(wider.groups)["group"], 1)
    unknown = "client 'c1': 'group' has the value 'b', which is not among the agreed"
    with pytest.raises(DataError, match=unknown):
        horizontal_terms(Job("fedavg"), clients, groups={"group": ["a", "z"]})
    with pytest.raises(DataError, match=unknown):
        clients[1].codes({"group": ["a", "z"]})
    with pytest.raises(DataError, match="one group only"):
        horizontal_terms(Job("fedavg"), clients[:1])


def test_clients_that_do_not_fit_together_are_refused() -> None:
    a = ClientRows("a", X, Y, S)

    def refused(message: str, *clients: ClientRows, **more: Any) -> None:
        with pytest.raises(DataError, match=message):
            horizontal_terms(Job(), clients, **more)

    refused("at least one client")
    refused("two clients are named 'a'", a, a)
    narrow = ClientRows("b", X[:, :3], Y, S)
    refused(r"client 'b' has rows of shape \(3,\), client 'a' of shape \(4,\)", a, narrow)
    refused(r"client 'b' has rows of shape \(3,\)", a, server=narrow)
    refused(r"client 'b' has the sensitive attributes \[\], expected \['group'\]", a, ClientRows("b", X, Y))
    refused(r"sensitive attributes \[\]", a, server=ClientRows("b", X, Y))
    refused("'group' has the value 'z'", a, server=ClientRows("b", X, Y, S.replace({"group": {"a": "z"}})))
    refused("labels that are not ±1", a, server=ClientRows("b", X, np.arange(40) % 3, S))


def test_a_client_or_server_that_lacks_a_slice_is_named() -> None:
    parts = [[row for row in range(40) if PROBLEM.groups[row] == "a"], list(range(40))]
    clients, job = deal_rows(PROBLEM, parts), Job(constraints=(LossParity(0.1), NeymanPearson(0.5)))
    with pytest.raises(ConstraintError, match=r"client 'c0' has no rows in the slice \[group = b\].*scope 'global'"):
        horizontal_terms(job, clients, scope=ConstraintScope("local"))
    left_out = horizontal_terms(job, clients, scope=ConstraintScope("both", None, "leave out"))
    assert left_out.left_out == {"c0": (0,)}
    assert [str(row) for row in left_out.own_inequalities("c0")] == ["mean loss among positives"]
    assert left_out.row_names == (
        "c0: mean loss among positives",
        "c1: mean loss, a vs. b (group)",
        "c1: mean loss among positives",
        "mean loss, a vs. b (group)",
        "mean loss among positives",
    )
    with pytest.raises(ConstraintError, match=r"the server has no rows in the slice \[group = b\]"):
        horizontal_terms(job, clients[1:], server=clients[0])


@pytest.mark.parametrize(
    ("labels", "classes", "found"),
    [(Y, None, None), (np.arange(40) % 3, None, 3), (np.arange(40) % 3, 5, 5), (np.arange(40) % 2, 2, 2)],
)
def test_labels_are_signs_or_class_indices(labels: np.ndarray, classes: int | None, found: int | None) -> None:
    assert common_classes([summarise(ClientRows("a", X, labels, S))], classes) == found


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (np.ones(40), None, r"all labels of all clients are \+1"),
        (np.arange(40) % 2, None, "labels are 0 and 1; write two classes as -1 and \\+1"),
        (np.arange(40) * 0.5, None, "client 'a' has labels that are not ±1"),
        (np.arange(40) % 3 - 1, None, "client 'a' has labels that are not ±1"),
        (np.arange(40) % 3, 2, "whole numbers from 0 to 1"),
    ],
)
def test_other_labels_are_refused(labels: np.ndarray, classes: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        common_classes([summarise(ClientRows("a", X, labels, S))], classes)


def test_a_client_may_lack_a_class() -> None:
    parts = [[int(row) for row in np.flatnonzero(sign)] for sign in (Y > 0, Y < 0)]
    run = train_clients(
        Job(solver="fairfedavgalm", constraints=(EqualOpportunity(0.01),), max_rounds=5), deal_rows(PROBLEM, parts)
    )
    assert np.isfinite(run.certificate.stationarity)


def test_a_slice_that_nobody_has_is_refused() -> None:
    labels = np.where(PROBLEM.groups == "a", -1.0, Y)
    with pytest.raises(ConstraintError, match=r"slice \[positives with group = a\] is empty: no client"):
        train_clients(Job(constraints=(EqualOpportunity(0.01),)), [ClientRows("c", X, labels, S)])
    with pytest.raises(DataError, match="loss-parity compares groups"):
        train_clients(Job(constraints=(LossParity(0.01),)), [ClientRows("c", X, Y)])


def test_rows_need_each_slice_mean_once() -> None:
    problem = two_attributes(seed=0)
    clients = deal_rows(problem, [list(range(30)), list(range(30, 90))])
    job = Job("fairalm", (LossParity(0.0), GroupAgainstOverall(0.1)))
    rows = SliceMeans(horizontal_terms(job, clients))
    assert len(rows.inequalities) == 4 + 5
    # Three groups, two sexes and everybody: six means, although the rows name them eighteen times.
    assert len(rows.parts) == 6
    whole = ClientRows("all", problem.matrix, problem.labels, problem.sensitive)
    inside = [rows.membership(client) for client in clients]
    np.testing.assert_array_equal(np.concatenate(inside), rows.membership(whole))
    each = np.random.default_rng(0).random(90)
    sums, counts = each @ rows.membership(whole), rows.membership(whole).sum(axis=0)
    by_name = dict(zip(rows.names, rows.values(sums, counts), strict=True))
    expected = each[problem.slice(None, "a")].mean() - each[problem.slice(None, "c")].mean()
    assert by_name["mean loss, a vs. c (group)"] == pytest.approx(expected)
    lacking = rows.values(sums, np.where(np.arange(6) == 0, 0, counts))
    assert np.isnan(lacking).sum() == 3


def test_without_torch_the_room_opens_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; sys.modules['torch'] = None; import evenhand.training.horizontal; print('open')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "open"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evenhand\[torch\]'"):
        train_clients(Job(solver="fedavg"), deal_rows(PROBLEM))


def test_frames_of_features_are_taken() -> None:
    frame = pd.DataFrame(X, columns=list("wxyz"))
    run = train_clients(Job(max_rounds=1), [ClientRows("a", frame, Y, S)])  # type: ignore[arg-type]
    assert run.model.predict(X).shape == (40,)


@pytest.mark.parametrize(("given", "kept"), [("f8", "f8"), ("i8", "f8"), ("f4", "f4"), ("u1", "f4"), ("?", "f4")])
def test_features_lose_no_digit(given: str, kept: str) -> None:
    """A model that counts people puts rows right at the border: scored in another precision, some change sides."""
    rows = np.array([[0, 1], [1, 1]], dtype=given)
    features = ClientRows("a", rows, [1.0, -1.0]).features
    assert features.dtype == kept
    np.testing.assert_array_equal(features, rows)
    tenth = ClientRows("a", np.array([[0.1]]), [1.0]).features
    assert tenth.item() - (0.1 + 1e-9) < 0 < float(np.float32(tenth.item())) - (0.1 + 1e-9)


def test_rows_can_be_changed_in_one_field() -> None:
    rows = ClientRows("lyon", np.ones((2, 3)), np.array([1.0, -1.0]), missing=True)
    changed = replace(rows, categorical=(1,))
    assert (changed.name, changed.missing, changed.categorical, changed.n_rows) == ("lyon", True, (1,), 2)
    np.testing.assert_array_equal(changed.features, rows.features)
