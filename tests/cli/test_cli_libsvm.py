"""`evenhand train` and `evenhand predict` on tables in LIBSVM's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.data import write_libsvm

JOB = """
[job]
max_rounds = 20
scale = false

[[party]]
name = "bank"
role = "active"
table = "bank.libsvm"
label = { column = "label", positive = 1 }

[[party]]
name = "shop"
table = "shop.svm.gz"
"""


def test_train_and_predict(here: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 2, (60, 9)).astype(float)
    labels = np.where(dense[:, 0] + dense[:, 8] > 1, 1, -1)
    write_libsvm(tmp_path / "bank.libsvm", dense[:, :4], labels)
    write_libsvm(tmp_path / "shop.svm.gz", dense[:, 4:], np.zeros(60))
    (tmp_path / "job.toml").write_text(JOB)
    run = tmp_path / "run"
    done = here("train", tmp_path / "job.toml", "--out", run, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    scores = tmp_path / "scores.csv"
    done = here("predict", run, "--out", scores)
    assert done.returncode == 0, done.stderr
    frame = pd.read_csv(scores, index_col="row")
    assert list(frame.index) == list(range(60))
    assert (frame["prediction"] == labels).mean() > 0.9

    (tmp_path / "new.libsvm").write_text("0 1:1\n0 2:1 2:1\n")
    done = here("predict", run, "--table", f"bank={tmp_path / 'new.libsvm'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "party 'bank'" in done.stderr
    assert "new.libsvm, line 2: index 2 occurs twice" in done.stderr
