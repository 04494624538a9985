"""`evenhand scorecard`: points of bins add up to the model's scores, each party from its own files."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.tables import SmallJob

from evenhand.errors import InputError
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.scorecards import PointScale, scorecard
from evenhand.runtime.folder import RunFolder

SCALE = PointScale(600.0, 50.0, 20.0)


@pytest.fixture(scope="module")
def binned(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    small = SmallJob(tmp_path_factory.mktemp("binned"), rows=300)
    small.content["job"] = {"solver": "subspace", "numbers": "bins", "test_fraction": 0.25}
    spent = small.frames["shop"]["spent"].round(1)
    small.frames["shop"]["spent"] = spent.mask(np.arange(300) % 9 == 0)
    small.run()
    return small


def looked_up(card: pd.DataFrame, column: str, value: Any) -> float:
    """Find a value's log odds as a reader of the card does."""
    own = card.loc[column, "log_odds"]
    if value != value:
        return float(own["missing"])
    if str(value) in own.index:
        return float(own[str(value)])
    bounds = [(float(name.split()[1]), odds) for name, odds in own.items() if str(name).startswith("from")]
    below = [odds for low, odds in bounds if value >= low]
    return float(below[-1] if below else bounds[0][1])


def test_points_of_bins_add_up_to_the_scores(binned: SmallJob) -> None:
    folder = RunFolder.open(binned.folder / "run")
    cards = {name: scorecard(folder, name, SCALE) for name in binned.frames}
    columns = {"bank": ["age", "city"], "shop": ["spent", "visits"], "social": ["friends"]}
    assert {name: list(card.table.index.unique("column")) for name, card in cards.items()} == columns
    assert [card.intercept is None for card in cards.values()] == [False, True, True]
    scores = score_new_parties(folder).scores["score"]
    for person in scores.index[:40]:
        total = cards["bank"].intercept or 0.0
        for name, own in columns.items():
            frame = binned.frames[name]
            total += sum(looked_up(cards[name].table, column, frame.loc[person, column]) for column in own)
        assert total == pytest.approx(scores[person], abs=1e-9)
    # 600 points stand for odds of 50 to 1, and 20 more for twice as many.
    assert SCALE.offset + SCALE.factor * np.log(100.0) == pytest.approx(620.0)


def test_a_part_is_printed_and_written_without_the_files_of_others(here: Any, binned: SmallJob, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(binned.folder / "run", run)
    for other in ("shop", "social"):
        shutil.rmtree(run / "parties" / other)
    done = here("scorecard", run)
    assert done.returncode == 0
    card = pd.read_csv(io.StringIO(done.stdout))
    assert set(card["column"]) == {"age", "city"}
    assert (card["points"] == (SCALE.factor * card["log_odds"]).round()).all()
    assert "plus those of its bins at bank and at shop and at social" in done.stderr
    assert f"20 points double the odds of 'repaid'; it is the decision above {SCALE.offset:.0f} points" in done.stderr
    done = here("scorecard", binned.folder / "run", "--party", "shop", "--out", tmp_path / "shop.csv")
    assert (done.returncode, done.stdout) == (0, "")
    assert "points" not in done.stderr
    assert set(pd.read_csv(tmp_path / "shop.csv")["column"]) == {"spent", "visits"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "has models of bank, shop, social; choose one with --party"),
        (["--party", "sheep"], "--party sheep: .* has models of bank, shop, social only"),
        (["--party", "shop", "--odds", "0"], "odds is 0; it is a number above 0"),
        (["--party", "shop", "--double", "-20"], "double is -20; it is a number above 0"),
        (["--party", "shop", "--points", "nan"], "points is nan; it is a finite number"),
        (["--party", "shop", "--out", "card.txt"], "--out card.txt: the name must end in .csv"),
    ],
)
def test_wrong_inputs_are_refused(here: Any, binned: SmallJob, given: list[str], said: str) -> None:
    done = here("scorecard", binned.folder / "run", *given)
    assert done.returncode == InputError.exit_code
    pattern = said.replace(" .* ", " ")
    assert pattern in done.stderr.replace(f"{binned.folder / 'run'} ", "")


def test_other_models_have_no_scorecard(binned: SmallJob) -> None:
    folder = RunFolder.open(binned.folder / "run")

    class Other:
        path, labels = folder.path, folder.labels

        def __init__(self, kind: str) -> None:
            self.owners = {"bank": lambda what: {"model": kind}}

    for kind, said in (
        ("share", "in shares, so nobody knows them"),
        ("trees", "of kind 'trees'; a scorecard is linear"),
    ):
        with pytest.raises(InputError, match=said):
            scorecard(Other(kind), None, SCALE)  # type: ignore[arg-type]
