"""Calibrated equal odds on pooled probabilities (Pleiss et al., "On Fairness and Calibration", 2017)."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from evenhand.arrays import Array, Booleans, Integers
from evenhand.errors import ConstraintError, DataError
from evenhand_reproductions.central.pooled_rows import (
    Groups,
    Seed,
    decisions,
    finite_scores,
    group_means,
    require_choice,
    require_rows,
    truths,
)

CostConstraint = Literal["fnr", "fpr", "weighted"]
OnInfeasible = Literal["raise", "clip"]

# Costs lie in [0, 1]; differences below this are rounding.
_TOLERANCE = 1e-12


class CalibratedEqualOddsPostprocessor(BaseEstimator):  # type: ignore[misc]
    """Equalise the generalised error cost of two groups, and keep probabilities calibrated.

    The group with the lower cost g is made to err more: with probability α each of its rows gets the group's base
    rate μ instead of its own probability, where

        α = (g_other − g_own) / (g_trivial − g_own)

    and g_trivial is the cost of giving μ to all its rows. Mixing keeps a calibrated group calibrated; averaging the
    two, (1 − α) p + α μ, would not, which is why the result is random. In general calibration allows one cost to be
    equalised, not both.

    This needs **pooled** probabilities, labels and groups to fit, and pooled probabilities and groups to apply.
    Parties that may not show these to anyone should train under a constraint instead.

    Parameters
    ----------
    cost_constraint
        The generalised cost to equalise, a mean of |y − p| with y in {0, 1}: over positives (``"fnr"``), over
        negatives (``"fpr"``), or over all rows (``"weighted"``: both, weighted by μ and 1 − μ).
    on_infeasible
        If the needed α is not in [0, 1], ``"raise"`` refuses; ``"clip"`` takes 1 (or 0, where mixing does not raise
        the group's cost), leaves a gap between the costs and sets ``feasible_`` to False.
    random_state
        Seed of the draws. With an integer the same rows get the same result every time.

    Attributes
    ----------
    groups_ : the two groups, sorted.
    mixed_group_ : the group with the lower cost, which is mixed.
    required_rate_ : α as the formula gives it; infinite if the group's cost does not change with mixing.
    mixing_rate_ : the rate used, in [0, 1].
    feasible_ : whether they are the same, so that costs agree.
    costs_ : DataFrame, for each group base_rate, cost, trivial_cost, mixing_rate and mixed_cost (expected, after
        mixing), on the fitting rows.
    """

    def __init__(
        self,
        *,
        cost_constraint: CostConstraint = "fnr",
        on_infeasible: OnInfeasible = "raise",
        random_state: Seed = 0,
    ) -> None:
        self.cost_constraint = cost_constraint
        self.on_infeasible = on_infeasible
        self.random_state = random_state

    def fit(self, probabilities: Any, labels: Any, sensitive_features: Any, *, pos_label: Any = None) -> Self:
        """Find the group to mix and its rate.

        Parameters
        ----------
        probabilities
            Of the positive label, one per row, in [0, 1]; calibrated within each group if the result shall be.
        labels
            Any two values; ``pos_label`` names the positive one, by default the larger.
        sensitive_features
            One column of groups, exactly two.

        Raises
        ------
        ConstraintError
            If no mixing rate in [0, 1] equalises the cost, unless ``on_infeasible="clip"``.
        """
        require_choice("cost_constraint", self.cost_constraint, get_args(CostConstraint))
        require_choice("on_infeasible", self.on_infeasible, get_args(OnInfeasible))
        numbers = _in_unit_interval(probabilities)
        truth = truths(labels, len(numbers), pos_label)
        groups = Groups.of(sensitive_features, len(numbers))
        if len(groups.names) > 2:
            raise DataError(
                f"calibrated equal odds is defined for two groups, sensitive_features has {len(groups.names)} "
                f"({groups.names[:5].tolist()!r}): merge groups, or use EqualOddsPostprocessor, which takes any number"
            )
        codes = groups.codes(sensitive_features, len(numbers))
        counted, what = self._counted(truth)
        require_rows(counted, codes, groups, what)

        base_rates = group_means(truth.astype(np.float64), codes)
        cost = group_means(np.abs(truth - numbers)[counted], codes[counted])
        trivial = group_means(np.abs(truth - base_rates[codes])[counted], codes[counted])
        mixed = int(cost.argmin())
        required, used, feasible = mixing(cost[mixed], trivial[mixed], cost[1 - mixed])
        names = groups.names.tolist()
        if not feasible and self.on_infeasible == "raise":
            raise ConstraintError(
                f"no mixing rate equalises the cost {self.cost_constraint!r}: group {names[mixed]!r} costs "
                f"{cost[mixed]:.4g}, its base rate alone {trivial[mixed]:.4g}, and group {names[1 - mixed]!r} costs "
                f"{cost[1 - mixed]:.4g}, so the rate would have to be {required:.4g}, outside [0, 1]; "
                + ("calibrate each group's probabilities first" if required < 0 else "equalise another cost")
                + ", or pass on_infeasible='clip' to accept a gap"
            )

        rates = np.where(np.arange(2) == mixed, used, 0.0)
        self._groups, self.groups_, self.mixed_group_ = groups, names, names[mixed]
        self.required_rate_, self.mixing_rate_, self.feasible_ = required, used, feasible
        self.costs_ = pd.DataFrame(
            {
                "base_rate": base_rates,
                "cost": cost,
                "trivial_cost": trivial,
                "mixing_rate": rates,
                "mixed_cost": cost + rates * (trivial - cost),
            },
            index=groups.names.rename("group"),
        )
        return self

    def predict_proba(self, probabilities: Any, sensitive_features: Any, *, random_state: Seed = None) -> Array:
        """Return mixed probabilities of the positive label, one per row.

        Drawn with ``random_state`` (None: the one given to the constructor); base rates are those of fitting.
        """
        check_is_fitted(self)
        numbers = _in_unit_interval(probabilities)
        codes = self._groups.codes(sensitive_features, len(numbers))
        random = check_random_state(self.random_state if random_state is None else random_state)
        replaced = random.random_sample(len(codes)) < self.costs_["mixing_rate"].to_numpy()[codes]
        return np.where(replaced, self.costs_["base_rate"].to_numpy()[codes], numbers)

    def predict(self, probabilities: Any, sensitive_features: Any, *, random_state: Seed = None) -> Integers:
        """Return decisions, ±1: whether the mixed probability is above one half.

        The generalised costs agree, not the rates of these decisions: a whole base rate falls on one side of one half.
        """
        return decisions(self.predict_proba(probabilities, sensitive_features, random_state=random_state) > 0.5)

    def _counted(self, truth: Booleans) -> tuple[Booleans, str]:
        """Return the rows that the cost averages over, and their name."""
        if self.cost_constraint == "weighted":
            return np.ones_like(truth), "rows"
        return (truth, "positives") if self.cost_constraint == "fnr" else (~truth, "negatives")


def mixing(own: float, trivial: float, other: float) -> tuple[float, float, bool]:
    """Return α that raises the cost ``own`` to ``other``, the rate to use, and whether they are equal."""
    gap, reach = float(other - own), float(trivial - own)
    if gap <= _TOLERANCE:
        return 0.0, 0.0, True
    if abs(reach) <= _TOLERANCE:
        return np.inf, 0.0, False
    required = gap / reach
    # Where the base rate costs less than the group's own probabilities, mixing widens the gap: 0 is nearest.
    return required, min(max(required, 0.0), 1.0), gap <= reach + _TOLERANCE


def _in_unit_interval(probabilities: Any) -> Array:
    numbers = finite_scores(probabilities, "probabilities")
    if outside := int(np.count_nonzero((numbers < 0) | (numbers > 1))):
        raise DataError(f"{outside} probabilities are outside [0, 1]: turn logits into probabilities, 1/(1 + exp(-z))")
    return numbers
