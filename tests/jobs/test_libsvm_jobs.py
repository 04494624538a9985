"""Jobs over tables in LIBSVM's format, from the job file to scores of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from evenhand.data import TableSource, write_libsvm
from evenhand.data.tables.party_tables import open_table
from evenhand.errors import DataError, InputError, JobError
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.runs import align_parties, load_vertical_tables, run_vertical_job
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord

ROWS = 80


class SparseJob:
    """Two parties with a LIBSVM file each: different columns, the same rows in the same order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        full = sparse.random_array((ROWS, 40), density=0.2, random_state=rng, format="csr")
        # Column 1 of the bank's file tells the group, and the last column of each is there.
        dense = full.toarray()
        dense[:, 0] = np.arange(ROWS) % 2
        dense[0, [14, 39]] = 1.0
        self.dense = dense
        self.labels = np.where(dense @ rng.normal(size=40) + 0.3 * rng.normal(size=ROWS) > 0, 1, -1)
        write_libsvm(folder / "bank.libsvm", dense[:, :15], self.labels)
        write_libsvm(folder / "shop.svm.gz", dense[:, 15:], np.zeros(ROWS))
        self.content: dict[str, Any] = {
            "job": {"max_rounds": 30, "scale": False, "test_fraction": 0.2},
            "party": [
                {"name": "bank", "role": "active", "table": "bank.libsvm", "label": {"column": "label"}},
                {"name": "shop", "table": "shop.svm.gz"},
            ],
        }

    def party(self, name: str) -> dict[str, Any]:
        return next(party for party in self.content["party"] if party["name"] == name)

    def read(self) -> Any:
        return parse_vertical(self.content, "job.toml")

    def load(self) -> Any:
        return load_vertical_tables(self.read(), self.folder)


@pytest.fixture
def small(tmp_path: Path) -> SparseJob:
    return SparseJob(tmp_path)


def test_columns_stay_sparse_into_training(small: SparseJob) -> None:
    tables = small.load()
    assert tables.ids.tolist() == list(range(ROWS))
    assert (tables.held.names.negative, tables.held.names.positive) == (-1, 1)
    np.testing.assert_array_equal(tables.held.labels, small.labels)
    np.testing.assert_array_equal(tables.matrices["bank"].toarray(), small.dense[:, :15])
    for party in tables.training_columns():
        assert isinstance(party.matrix, sparse.csr_array)
        assert party.matrix.shape[0] == (~tables.test).sum() < ROWS


def test_without_test_rows_nothing_is_copied(small: SparseJob) -> None:
    small.content["job"]["test_fraction"] = 0.0
    tables = small.load()
    for party in tables.training_columns():
        assert party.matrix is tables.matrices[party.name]


def test_the_same_model_as_over_named_columns(small: SparseJob, tmp_path: Path) -> None:
    run = run_vertical_job(small.read(), small.folder, tmp_path / "sparse")
    for name, columns in (("bank", slice(0, 15)), ("shop", slice(15, 40))):
        frame = pd.DataFrame(small.dense[:, columns]).rename(columns="c{}".format)
        frame.index.name = "row"
        if name == "bank":
            frame["label"] = small.labels
        frame.to_csv(tmp_path / f"{name}.csv")
        small.party(name).update(table=f"{name}.csv", id="row")
    other = run_vertical_job(small.read(), small.folder, tmp_path / "dense")
    for name in ("bank", "shop"):
        np.testing.assert_allclose(run.run.models[name].weights, other.run.models[name].weights, rtol=1e-6, atol=1e-9)
    for rows, quality in other.result["quality"].items():
        assert run.result["quality"][rows] == pytest.approx(quality)


def test_new_rows_are_scored(small: SparseJob, tmp_path: Path) -> None:
    finished = run_vertical_job(small.read(), small.folder, tmp_path / "run")
    assert "bank: x0, x1" in make_page([RunRecord.read(finished.folder.path)])
    scores = score_new_parties(finished.folder).scores
    weights = np.concatenate([finished.run.models["bank"].weights[:15], finished.run.models["shop"].weights])
    expected = small.dense @ weights + finished.run.models["bank"].weights[15]
    np.testing.assert_allclose(scores["score"], expected, atol=1e-12)
    assert set(scores["prediction"]) <= {-1, 1}
    write_libsvm(tmp_path / "new-bank.libsvm", small.dense[5:7, :15], [0, 0])
    write_libsvm(tmp_path / "new-shop.libsvm", small.dense[5:7, 15:], [0, 0])
    tables = {name: tmp_path / f"new-{name}.libsvm" for name in ("bank", "shop")}
    np.testing.assert_allclose(
        score_new_parties(finished.folder, tables=tables).scores["score"], expected[5:7], atol=1e-12
    )
    (tmp_path / "new-shop.libsvm").write_text("0 1:1\n0 26:1\n")
    with pytest.raises(DataError, match=r"party 'shop': .*line 2: index 26 is out of range: indices go from 1 to 25"):
        score_new_parties(finished.folder, tables=tables)
    (tmp_path / "new-shop.csv").write_text("row,a\n0,1\n1,2\n")
    with pytest.raises(DataError, match=r"party 'shop': .*trained on a table in LIBSVM's format, with 25 numbered"):
        score_new_parties(finished.folder, tables=tables | {"shop": tmp_path / "new-shop.csv"})


def test_a_group_may_be_a_numbered_column(small: SparseJob, tmp_path: Path) -> None:
    """It is a feature only if it is named among them, in training and for new rows."""
    small.content["job"]["constraint"] = {"kind": "equal-opportunity", "epsilon": 0.05}
    small.party("bank")["sensitive"] = ["1"]
    tables = small.load()
    assert tables.held.groups["1"].tolist() == [0, 1] * (ROWS // 2)
    np.testing.assert_array_equal(tables.matrices["bank"].toarray(), small.dense[:, 1:15])
    finished = run_vertical_job(small.read(), small.folder, tmp_path / "run")
    assert finished.run.models["bank"].weights.size == 15
    assert len(score_new_parties(finished.folder).scores) == ROWS
    small.party("bank")["columns"] = ["3", "1"]
    finished = run_vertical_job(small.read(), small.folder, tmp_path / "named")
    np.testing.assert_array_equal(small.load().matrices["bank"].toarray(), small.dense[:, [2, 0]])
    assert len(score_new_parties(finished.folder).scores) == ROWS


def test_columns_may_count_from_0(small: SparseJob, tmp_path: Path) -> None:
    write_libsvm(small.folder / "shop.svm.gz", small.dense[:, 15:], np.zeros(ROWS), first_index=0)
    with pytest.raises(DataError, match=r"party 'shop': .*index 0 is out of range"):
        small.load()
    small.party("shop")["first_index"] = 0
    np.testing.assert_array_equal(small.load().matrices["shop"].toarray(), small.dense[:, 15:])
    finished = run_vertical_job(small.read(), small.folder, tmp_path / "run")
    assert len(score_new_parties(finished.folder).scores) == ROWS


def test_scaled_sparse_columns_are_divided_by_the_largest_of_the_training_rows(small: SparseJob) -> None:
    small.content["job"]["scale"] = True
    tables = small.load()
    shop = small.dense[:, 15:]
    largest = shop[~tables.test].max(axis=0)
    np.testing.assert_allclose(tables.matrices["shop"].toarray(), shop / np.where(largest > 0, largest, 1.0))


def test_a_libsvm_file_beside_a_table_with_ids(small: SparseJob) -> None:
    order = np.random.default_rng(1).permutation(ROWS)
    pd.DataFrame({"row": order, "spent": order * 1.0}).to_csv(small.folder / "shop.csv", index=False)
    small.party("shop").update(table="shop.csv", id="row")
    tables = small.load()
    np.testing.assert_array_equal(tables.matrices["shop"].ravel(), tables.ids)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"shop": {"table": "gone.svm"}}, DataError, "party 'shop': there is no file .*gone.svm"),
        ({"shop": {"table": "bad.svm"}}, DataError, r"party 'shop': .*bad.svm, line 2: '3' is not index:value"),
        ({"shop": {"table": "short.svm"}}, DataError, "shop lacks 79 of bank's 80 ids"),
        ({"shop": {"table": "t.csv"}}, JobError, "key party.1.id is missing; only LIBSVM files need no id"),
        ({"shop": {"table": "t.csv", "id": "a", "first_index": 0}}, JobError, "party 'shop': first_index is only for"),
        ({"shop": {"first_index": 2}}, JobError, "key party.1.first_index"),
        ({"shop": {"sql": "select 1"}}, DataError, "party 'shop': .*sql goes with a database"),
        ({"shop": {"columns": ["spent"]}}, DataError, "party 'shop': .*no column 'spent': columns of a LIBSVM file"),
        ({"bank": {"label": {"column": "y"}}}, DataError, "party 'bank': .*no column 'y'.* 'label'"),
        ({"bank": {"label": {"column": "2"}}}, DataError, "party 'bank': label column '2' has .* different values"),
        ({"bank": {"sensitive": ["99"]}}, DataError, "party 'bank': .*no column 99; the highest that occurs is 15"),
    ],
)
def test_refused(small: SparseJob, change: dict[str, Any], kind: type[InputError], message: str) -> None:
    (small.folder / "bad.svm").write_text("1 1:1\n1 3\n")
    (small.folder / "short.svm").write_text("1 1:1\n")
    for name, keys in change.items():
        small.party(name).update(keys)
    with pytest.raises(kind, match=message):
        run_vertical_job(small.read(), small.folder, small.folder / "run")
    assert not (small.folder / "run").exists()


def test_tables_of_different_kinds_are_aligned(tmp_path: Path) -> None:
    write_libsvm(tmp_path / "numbered.libsvm", np.eye(3), [1, -1, 1])
    pd.DataFrame({"spent": [2.0, 0.0, 1.0]}, index=pd.Index([2, 0, 1], name="row")).to_csv(tmp_path / "named.csv")
    named, numbered = tmp_path / "named.csv", tmp_path / "numbered.libsvm"
    tables = {
        "named": open_table(TableSource(table=named, id="row")),
        "numbered": open_table(TableSource(table=numbered)),
    }
    found = align_parties(tables, "equal")
    assert found["named"].known.index.tolist() == found["numbered"].known.index.tolist() == [2, 0, 1]
    assert found["numbered"].known["label"].tolist() == [1, 1, -1]
    fewer = {"numbered": tables["numbered"], "named": tables["named"].aligned(pd.Index([0, 1]))}
    with pytest.raises(DataError, match="named lacks 1 of numbered's 3 ids"):
        align_parties(fewer, "equal")
