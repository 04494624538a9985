"""FairGBM on pooled rows: run by `benchmarks/trees_peers.py` with an interpreter that has it.

Takes a file of arrays, the bound on both rates and the step of the multipliers; prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from fairgbm import FairGBMClassifier, __version__


def main() -> None:
    given, bound, step = np.load(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    model = FairGBMClassifier(
        constraint_type="FPR,FNR",
        constraint_fpr_threshold=bound,
        constraint_fnr_threshold=bound,
        multiplier_learning_rate=step,
        n_estimators=100,
        n_jobs=1,
        random_state=0,
    )
    start = time.process_time()
    model.fit(given["train"], given["y_train"], constraint_group=given["groups"])
    seconds = time.process_time() - start
    scores = model.predict_proba(given["test"])[:, 1]
    print(json.dumps({"version": __version__, "CPU": seconds, "scores": scores.tolist()}))


if __name__ == "__main__":
    main()
