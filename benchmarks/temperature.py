"""Compare temperatures of smooth rates: Adult, equalized odds of 0.01 on exact training rates.

Mean over ten draws of rows and columns of what happens on the test rows. A gap of zero would show as a mean |gap| above
zero: the last row gives what chance alone leaves of DFP and DFN, from their standard errors.

    python benchmarks/temperature.py [--source FOLDER]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from problems import arguments
from rich.console import Console
from rich.table import Table

from evenhand import EqualizedOdds, VerticalClassifier
from evenhand.data import PartyEncoder, load
from evenhand.metrics import gap_bounds, summary
from evenhand.solvers import Subspace
from evenhand_reproductions.data.splits import papers_split, party_sizes, split_columns

DRAWS = range(30, 40)
TEMPERATURES = (0.1, 0.2, 0.5, 1.0)


def main() -> None:
    source: Path | None = arguments(__doc__).source
    data = load("adult", source=source)
    found: dict[float, list[list[float]]] = {temperature: [] for temperature in TEMPERATURES}
    chance = []
    for seed in DRAWS:
        train, test = papers_split("adult", seed)
        encoder = PartyEncoder().fit(data.frame.loc[train])
        fitting, unseen = (encoder.transform(data.frame.loc[rows]) for rows in (train, test))
        shares = split_columns(fitting.shape[1], party_sizes("adult"), seed)
        for temperature in TEMPERATURES:
            model = VerticalClassifier(
                constraint=EqualizedOdds(0.01, measure="error", temperature=temperature),
                pos_label=data.positive,
                encoder=PartyEncoder(scale=False),
                max_rounds=60,
                solver=Subspace(exact_rates=True),
            )
            labels, groups = data.label.loc[train].to_numpy(), data.sensitive.loc[train].to_numpy()
            model.fit([fitting[:, share] for share in shares], labels, sensitive_features=groups)
            # `>50K` sorts after `<=50K`, so that scores are in favour of the positive label.
            scores = model.decision_function([unseen[:, share] for share in shares])
            truth, sensitive = data.label.loc[test], data.sensitive.loc[test]
            quality = summary(truth, scores, sensitive_features=sensitive, pos_label=data.positive)
            found[temperature].append([quality["accuracy"], quality["DFP"], quality["DFN"], model.n_iter_])
        errors = gap_bounds(truth, scores, sensitive_features=sensitive, pos_label=data.positive)["standard_error"]
        # Mean |gap| of two groups without any true gap: 0.8 standard errors.
        chance.append(np.sqrt(2 / np.pi) * errors[["DFP", "DFN"]].to_numpy(dtype=float))
    table = Table("temperature", "ACC %", "DFP", "DFN", "rounds")
    for temperature, runs in found.items():
        accuracy, dfp, dfn, rounds = np.mean(runs, axis=0)
        table.add_row(f"{temperature:g}", f"{100 * accuracy:.2f}", f"{dfp:.4f}", f"{dfn:.4f}", f"{rounds:.1f}")
    dfp, dfn = np.mean(chance, axis=0)
    table.add_row("chance alone", "", f"{dfp:.4f}", f"{dfn:.4f}", "")
    Console().print(table)


if __name__ == "__main__":
    main()
