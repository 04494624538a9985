"""A client counts its scores as often as the cut needs, by one model of the terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.arrays import Array
from evenhand.constraints.thresholds import BEYOND
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.horizontal.cutting import COMMON_CUT, EDGES, LARGEST, LOOK, LOOKS, CountingClient
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.runtime.checkpointfiles import state_bytes
from evenhand.solvers.agreeing import draft_terms
from evenhand.solvers.registry import check_job
from evenhand.training.horizontal_steps import own_folds, unseen_scores, without_fold

JOB = Job(solver="sqp", rule={"rule": "rate", "capacity": 0.2})  # type: ignore[arg-type]
MODEL: dict[str, Any] = {
    "model": "linear",
    "columns": 3,
    "hidden": list(JOB.hidden),
    "weights": np.arange(4.0),
    "statistics": np.zeros(0),
}


def client() -> CountingClient:
    random = np.random.default_rng(0)
    rows = ClientRows("a", random.normal(size=(9, 3)), np.resize([1.0, -1.0], 9))
    terms = replace(draft_terms(JOB, ["a", "b"]), shape=(3,))
    return CountingClient(rows, lambda models: unseen_scores(models, rows, None, terms))


NO_GROUPS = np.zeros(0)
FIRST = np.linspace(-LARGEST, LARGEST, EDGES)
SECOND = np.linspace(FIRST[250], FIRST[252], EDGES)


def look(number: int, model: dict[str, Any] | None, edges: Array | None = None) -> Message:
    content = b"" if model is None else state_bytes(model)
    edges = (FIRST if number == 1 else SECOND) if edges is None else edges
    sent = {
        "model": np.frombuffer(content, dtype=np.uint8),
        "ends": np.array([len(content)] if content else [], dtype=int),
    }
    return LOOK.message("server", "a", round=number, edges=edges[None], **sent)


def test_a_client_counts_its_scores_twice_by_one_model_and_then_never_again() -> None:
    one = client()
    with pytest.raises(ProtocolError, match="takes a model in the first look"):
        one.receive(look(1, None))
    (counted,) = one.receive(look(1, MODEL))
    assert counted["counts"].sum() == 9
    with pytest.raises(ProtocolError, match="at this point"):
        one.receive(look(1, MODEL))
    with pytest.raises(ProtocolError, match="and in no other"):
        one.receive(look(2, MODEL))
    with pytest.raises(ProtocolError, match="at this point"):
        one.receive(COMMON_CUT.message("server", "a", cut=0.0, of_groups=NO_GROUPS, band=np.array([0.1, 0.2])))
    saved = one.snapshot()
    one = client()
    one.restore(saved)
    one.receive(look(2, None))
    with pytest.raises(ProtocolError, match=f"counts scores {LOOKS} times"):
        one.receive(look(3, None))
    one.receive(COMMON_CUT.message("server", "a", cut=SECOND[7], of_groups=NO_GROUPS, band=np.array([0.1, 0.2])))
    assert one.done
    with pytest.raises(ProtocolError, match="has the cut already"):
        one.receive(COMMON_CUT.message("server", "a", cut=SECOND[8], of_groups=NO_GROUPS, band=np.array([0.1, 0.2])))


@pytest.mark.parametrize(
    "edges",
    [
        FIRST * 0.9,
        np.linspace(FIRST[250], FIRST[251], EDGES),
        np.linspace(FIRST[250], FIRST[300], EDGES),
        np.linspace(-0.01, 0.01, EDGES),
        np.sort(np.random.default_rng(0).uniform(FIRST[250], FIRST[252], EDGES)),
        SECOND[::-1],
    ],
)
def test_edges_that_no_counts_lead_to_are_refused(edges: Array) -> None:
    """A server could look at a client's scores wherever it likes, and give each client a cut of its own."""
    one = client()
    with pytest.raises(ProtocolError, match="edges of bins that"):
        one.receive(look(1, MODEL, edges))
    one.receive(look(1, MODEL))
    saved = state_bytes(one.snapshot())
    with pytest.raises(ProtocolError, match="edges of bins that"):
        one.receive(look(2, None, edges))
    assert state_bytes(one.snapshot()) == saved


@pytest.mark.parametrize("ends", [(-BEYOND, FIRST[0]), (-BEYOND, FIRST[1]), (FIRST[9], FIRST[11]), (FIRST[-1], BEYOND)])
def test_a_cut_is_an_edge_of_the_last_look(ends: tuple[float, float]) -> None:
    one, edges = client(), np.linspace(*ends, EDGES)
    one.receive(look(1, MODEL))
    one.receive(look(2, None, edges))
    saved, band = state_bytes(one.snapshot()), np.array([0.1, 0.2])
    for cut in ((edges[7] + edges[8]) / 2.0, edges[-1] + 0.01 * abs(edges[-1]), FIRST[400]):
        with pytest.raises(ProtocolError, match="no edge of the last look"):
            one.receive(COMMON_CUT.message("server", "a", cut=cut, of_groups=NO_GROUPS, band=band))
        assert state_bytes(one.snapshot()) == saved
    one.receive(COMMON_CUT.message("server", "a", cut=edges[7], of_groups=NO_GROUPS, band=band))
    assert one.cut == edges[7]


def test_later_steps_have_other_terms_for_another_cut() -> None:
    terms = replace(draft_terms(JOB, ["a", "b"]), shape=(3,))
    assert terms.at_step(2, 0.25).digest == terms.at_step(2, 0.25).digest
    assert terms.at_step(2, 0.25).digest != terms.at_step(2, 0.26).digest
    assert terms.at_step(2, 0.25, (0.1, 0.2)).digest != terms.at_step(2, 0.25, (0.1, 0.3)).digest


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "mlp", "columns": 10**6, "hidden": [10**6], "weights": np.zeros(1)},
        {"columns": 10**6},
        {"weights": np.zeros(9)},
        {"weights": np.full(4, np.nan)},
        {"classes": 2, "weights": np.zeros(8)},
        {"weights": None},
        {"statistics": None},
        {"hidden": None},
    ],
)
def test_a_model_that_is_not_of_the_terms_is_refused(changed: dict[str, Any]) -> None:
    sent = {name: value for name, value in (MODEL | changed).items() if value is not None}
    with pytest.raises(ProtocolError, match="the server sent a model"):
        client().receive(look(1, sent))


def test_rules_with_noise_and_with_several_classes_are_refused_in_every_horizontal_job() -> None:
    noisy = replace(JOB, solver="fedavg")
    check_job(noisy, "horizontal")
    with pytest.raises(InputError, match="with noise on updates"):
        check_job(noisy, "horizontal", protected=True)
    with pytest.raises((InputError, DataError), match="is for two labels"):
        check_job(replace(JOB, solver="fedavg", classes=("x", "y", "z")), "horizontal")


def test_a_client_refuses_cuts_of_other_groups_than_its_own() -> None:
    rows = ClientRows("a", np.arange(8.0)[:, None], np.resize([1.0, -1.0], 8))
    one = CountingClient(rows, lambda _: np.arange(8.0), np.arange(8) % 2, 2)
    wide = np.linspace(FIRST[260], FIRST[400], EDGES)
    nothing = np.zeros(0, dtype=np.uint8)
    odd = np.stack([FIRST, FIRST, wide])
    with pytest.raises(ProtocolError, match="edges of bins that"):
        one.receive(
            LOOK.message("server", "a", round=1, model=np.zeros(1, dtype=np.uint8), ends=np.ones(1, int), edges=odd)
        )
    later = np.stack([SECOND, SECOND, wide])
    for number, model, edges in ((1, np.zeros(1, dtype=np.uint8), np.tile(FIRST, (3, 1))), (2, nothing, later)):
        ends = np.array([len(model)])[: len(model)]
        (counted,) = one.receive(LOOK.message("server", "a", round=number, model=model, ends=ends, edges=edges))
        assert counted["counts"].sum(axis=(1, 2)).tolist() == [8, 4, 4]
    band = np.array([0.1, 0.2])
    with pytest.raises(ProtocolError, match="cuts of 1 groups; there are 2"):
        one.receive(COMMON_CUT.message("server", "a", cut=SECOND[3], of_groups=np.zeros(1), band=band))
    with pytest.raises(ProtocolError, match="no share of rows"):
        one.receive(COMMON_CUT.message("server", "a", cut=SECOND[3], of_groups=later[1:, 4], band=np.array([0.9, 0.1])))
    with pytest.raises(ProtocolError, match="no edge of the last look"):
        one.receive(COMMON_CUT.message("server", "a", cut=SECOND[3], of_groups=later[1:, 4] + 1e-3, band=band))
    one.receive(COMMON_CUT.message("server", "a", cut=SECOND[3], of_groups=later[1:, 4], band=band))
    assert (one.cut, one.of_groups) == (SECOND[3], tuple(later[1:, 4]))


def test_a_client_leaves_out_rows_of_its_own_and_keeps_its_numbers_of_rows() -> None:
    random = np.random.default_rng(0)
    signs, sex = np.where(random.random(50) < 0.3, 1.0, -1.0), random.choice(["f", "m"], 50)
    rows = ClientRows("a", np.arange(50.0)[:, None], signs, pd.DataFrame({"sex": sex}))
    assert own_folds(rows, 1) is None
    assert without_fold(rows, None, 0) is rows
    fold = own_folds(rows, 3)
    assert fold is not None
    for place in range(3):
        some = without_fold(rows, fold, place)
        used = some.features[:, 0].astype(int)
        assert not set(used) & set(np.flatnonzero(fold == place))
        # A row stands for rows with its own label and group.
        np.testing.assert_array_equal(signs[used], signs)
        np.testing.assert_array_equal(sex[used], sex)
        assert np.bincount(used).max() <= 3
    single = ClientRows("a", np.arange(3.0)[:, None], [1.0, -1.0, -1.0])
    alone = own_folds(single, 3)
    assert alone is not None
    assert alone[0] == -1
    assert without_fold(single, alone, 0).features[0, 0] == 0.0


def test_each_row_is_scored_by_the_model_that_has_not_seen_it() -> None:
    terms = replace(draft_terms(JOB, ["a", "b"]), shape=(3,))
    rows = ClientRows("a", np.ones((9, 3)), np.resize([1.0, -1.0], 9))
    models = [state_bytes(MODEL | {"weights": np.array([0.0, 0.0, 0.0, place])}) for place in range(3)]
    fold = np.arange(9) % 3
    np.testing.assert_array_equal(unseen_scores(models, rows, fold, terms), fold)
    with pytest.raises(ProtocolError, match="sent 1 models"):
        unseen_scores(models[:1], rows, fold, terms)
    with pytest.raises(ProtocolError, match="sent 3 models"):
        unseen_scores(models, rows, None, terms)
    one = client()
    for ends in ([], [3], [5, 4], [0, 400]):
        sent = {"model": np.frombuffer(models[0], dtype=np.uint8), "ends": np.array(ends, dtype=int)}
        with pytest.raises(ProtocolError, match="cannot be told apart"):
            one.receive(LOOK.message("server", "a", round=1, edges=FIRST[None], **sent))
