"""What each metric is called and means: the one place that tables, pages and the documentation take it from."""

from __future__ import annotations

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """A metric of a model on some rows.

    Attributes
    ----------
    meaning
        In one line.
    definition
        What exactly is computed; a gap is the largest difference between two groups, the worst over attributes.
    """

    meaning: str
    definition: str


METRICS: Final[dict[str, Metric]] = {
    "accuracy": Metric("share of correct decisions", "share of rows whose decision (score above 0) equals the label"),
    "DFP": Metric(
        "gap in false-positive rates", "gap of false-positive rates: wrong decisions over the negative label"
    ),
    "DFN": Metric(
        "gap in false-negative rates: equal opportunity",
        "gap of false-negative rates, which is that of true-positive rates: wrong decisions over the positive label. "
        "`metrics.equal_opportunity` is the same from decisions, for any number of labels",
    ),
    "DP": Metric(
        "gap in selection rates: demographic parity",
        "gap of selection rates: the share of rows decided positive. `metrics.demographic_parity` is the same from "
        "decisions, for any number of labels",
    ),
    "equalized_odds": Metric("larger of DFP and DFN", "max(DFP, DFN), as fairlearn has it; never called EO here"),
    "DEO": Metric("gap in mean loss of positives", "gap of the mean logistic loss over the positive label (FairVFL)"),
    "FR": Metric("1 − DEO", "1 − DEO; below zero where DEO is above one (FairVFL, first version)"),
    "HM": Metric("harmonic mean of accuracy and FR", "harmonic mean of accuracy and FR; 0 where FR is not positive"),
    "log_loss": Metric("mean logistic loss", "mean of log(1 + exp(−y·score)) over all rows, natural logarithm"),
}
