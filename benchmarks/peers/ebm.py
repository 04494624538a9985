"""Explainable boosting machine on pooled rows: run by `benchmarks/curves.py --ebm` with an interpreter that has it.

Takes a folder with tables (`train.csv`, `test.csv`) and labels (`labels.csv`, `unseen.csv`), and the kinds of columns.
Prints one line of JSON: the test AUC with curves of single columns alone, and with as many pairs of columns as
`interpret` adds by default.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import interpret
import pandas as pd
from interpret.glassbox import ExplainableBoostingClassifier
from sklearn.metrics import roc_auc_score


def main() -> None:
    folder, kinds = Path(sys.argv[1]), json.loads(sys.argv[2])
    train, test = (pd.read_csv(folder / f"{name}.csv") for name in ("train", "test"))
    labels, unseen = (pd.read_csv(folder / f"{name}.csv")["label"] for name in ("labels", "unseen"))
    found: dict[str, object] = {"version": interpret.__version__}
    for name, settings in (("curves", {"interactions": 0}), ("pairs", {})):
        start = time.process_time()
        model = ExplainableBoostingClassifier(feature_types=kinds, n_jobs=1, random_state=0, **settings)
        model.fit(train, labels)
        scores = model.predict_proba(test)[:, 1]
        found[name] = [float(roc_auc_score(unseen, scores)), time.process_time() - start]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
