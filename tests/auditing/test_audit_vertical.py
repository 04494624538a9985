"""An audit finds in a vertical run what is known to be there, and nothing where there is nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenhand
from evenhand import EqualOpportunity, VerticalClassifier
from evenhand.auditing.findings import FILE, Audit
from evenhand.errors import InputError

ROWS = 600


def tables(seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(ROWS, 7))
    columns[:, 3:] = columns[:, 3:] > 0
    labels = np.where(columns @ rng.normal(size=7) + rng.logistic(size=ROWS) > 0, "yes", "no")
    parties = {"bank": columns[:, :2], "shop": columns[:, 2:4], "social": columns[:, 4:]}
    return parties, labels, pd.DataFrame({"sex": np.where(rng.random(ROWS) < 0.5, "f", "m")})


def audited(coalitions: Any = (), rounds: int = 3, **settings: Any) -> Audit:
    X, y, groups = tables()
    settings = {"random_state": 0, "runtime": "messages", **settings}
    classifier = VerticalClassifier(constraint=EqualOpportunity(0.02), max_rounds=rounds, **settings)
    return evenhand.audit(classifier, X, y, sensitive_features=groups, coalitions=coalitions)


@pytest.fixture(scope="module")
def plain() -> Audit:
    return audited([["shop", "social"], ["server", "social"]], solver="subspace", protection="none")


def best(audit: Audit, who: str, target: str) -> Any:
    """Return the strongest finding; of equally strong ones, that with the fewest messages."""
    found = [one for one in audit.by_participant()[who] if target in one.target]
    return max(found, key=lambda one: (one.value.value, -one.sequence))


@pytest.mark.parametrize("who", ["shop", "social", "shop + social"])
def test_nu_discloses_every_label(plain: Audit, who: str) -> None:
    found = best(plain, who, "label")
    assert found.value.value == 1.0
    assert found.real
    assert found.control == 1.0
    assert 0.35 < found.permuted < 0.65
    assert set(found.floors) == {"400 known", "half known"}


def test_the_sentence_is_one_that_an_officer_can_use(plain: Audit) -> None:
    assert any(
        line.startswith(
            "shop can infer each person's label with certainty from one message of 'derivative'; from its own"
        )
        for line in plain.sentences
    )


def test_a_sequence_of_directions_tells_more_than_one(plain: Audit) -> None:
    of_social = [one for one in plain.findings if one.who == "bank (server)" and one.target == "the columns of social"]
    one, several = (found for found in of_social if found.attack == "variance" and found.message == "direction")
    assert one.sequence == 1 < several.sequence
    assert several.value.low > one.value.high


def test_one_direction_tells_who_is_equal_to_whom(plain: Audit) -> None:
    assert best(plain, "bank (server)", "equal in every column of social").value.value == 1.0


def test_those_together_have_both_floors_and_no_victim_among_them(plain: Audit) -> None:
    together = plain.by_participant()["bank (server) + social"]
    assert {one.target for one in together if "the columns of" in one.target} == {
        "the columns of shop",
        "the columns of two values of shop",
    }
    alone, both = (max(best(plain, who, "label").floors.values()) for who in ("shop", "shop + social"))
    assert both > alone


def test_whoever_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="'nobody' takes no part in this run"):
        audited([["nobody"]], solver="subspace")


def test_only_classifiers_are_audited() -> None:
    with pytest.raises(InputError, match="cannot audit a"):
        evenhand.audit(3, [], [])  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", ["fairvfl", "vfb2-sgd", "trees"])
def test_every_family_gives_labels_away(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # No run is repeated without a person: that is another attack.
    monkeypatch.setattr("evenhand.training.auditing._again", lambda *_: None)
    found = audited(solver=solver, rounds=1)
    assert best(found, "shop", "label").value.value > 0.99


def test_what_is_written_can_be_read(plain: Audit, tmp_path: Path) -> None:
    content = json.loads(plain.write(tmp_path).read_text(encoding="utf-8"))
    assert (tmp_path / FILE).is_file()
    assert content["tried"]["sign"] == ["derivative"]
    assert "own-columns" in content["untried"]
    assert (content["version"], content["split"], content["protection"]) == (1, "vertical", "none")
    shop = content["participants"]["shop"]
    assert shop["sentences"]
    assert {
        "target",
        "attack",
        "message",
        "sequence",
        "measure",
        "value",
        "floors",
        "lift",
        "control",
        "permuted",
    } <= set(shop["findings"][0])
    assert shop["findings"][0]["value"].keys() == {"value", "low", "high"}
