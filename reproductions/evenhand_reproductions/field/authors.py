"""What the authors of baselines print: numbers of their public code's files, and what could not be compared."""

from __future__ import annotations

from typing import Final

ADVERSARIAL_ADULT: Final = (
    (0.826, 0.398),
    (0.768, 0.655),
    (0.762, 0.527),
    (0.842, 0.424),
    (0.806, 0.411),
    (0.793, 0.398),
    (0.816, 0.588),
    (0.801, 0.577),
    (0.761, 0.398),
    (0.805, 0.398),
    (0.701, 0.613),
    (0.708, 0.398),
)
"""Accuracy, and macro F1 of an attacker of sex, of each run in `Adult/FairVFL.json` of the authors' code."""
CONSTANT_F1: Final = 0.398
"""The macro F1 of naming one sex for everybody; five of the twelve runs have it."""
FCFL_README: Final = {
    0.05: {"accuracy doctors": 0.729, "accuracy others": 0.820, "gap doctors": 0.001, "gap others": 0.045},
    0.01: {"accuracy doctors": 0.702, "accuracy others": 0.797, "gap doctors": -0.003, "gap others": 0.003},
}
"""Test rows of one run for each ε, with race compared and parity bounded, in the authors' README."""
LOGOFAIR_FILE: Final = {"accuracy": 0.824, "global gap": 0.008, "local gap": 0.013}
"""The last line of `parato_result.txt` of the authors' code: Adult, sex, five clients, parity, δ = 0.02."""
FAIRBATCH_NOTEBOOK: Final = {
    "equal-opportunity": {"accuracy": 0.855, "global gap": 0.012},
    "equalized-odds": {"accuracy": 0.856, "global gap": 0.038},
}
"""The means of ten seeds on one draw of the synthetic set, in the authors' notebook."""

NOT_COMPARED: Final = (
    (
        "FedProx",
        "the paper's results on synthetic(α, β) are curves; no number is printed, and LEAF's sets cannot be had",
    ),
    ("FedNova, SCAFFOLD", "CIFAR-10 and EMNIST cannot be had"),
    ("FedAdagrad, FedAdam, FedYogi", "CIFAR, EMNIST, Shakespeare and Stack Overflow cannot be had"),
    ("q-FedAvg, AFL", "both print accuracies of Adult's doctors and others; the papers' tables were not at hand"),
    ("FedMinMax", "no public code was found, and the paper was not at hand"),
    (
        "FedFB",
        "the paper was not at hand. The authors' public code bounds parity, with steps α/√t of the gap itself, where "
        "ours has steps of fixed length. A public library's reading of the paper has the fixed length for equalized "
        "odds, as ours, but compares sums of losses, where ours compares means",
    ),
    (
        "FairGrad",
        "its formulas were read beside those of the authors' package, and are the same for equalized odds and accuracy "
        "parity. The package prints no results, and the paper was not at hand",
    ),
    ("LoGoFair on ENEM and CelebA", "the sets cannot be had"),
    ("ACSIncome by state", "the package folktables downloads the rows from the Census Bureau, which was out of reach"),
)
