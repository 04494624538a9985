"""Regressors with scikit-learn's interface as learners: forests, boosting, kernels, pipelines.

A regressor of LightGBM is kept as LightGBM's text. Others are kept by skops (extra `skops`), and read only if all of
their types are classes of scikit-learn's own, or among those that the party trusts.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from evenhand.arrays import Array
from evenhand.errors import InputError, MissingExtraError, RunError
from evenhand.models.learning.base import Encoding, Fitted, PartyLearner, SavedLearner
from evenhand.models.learning.booster import BoosterFit

OWN: Final = ("evenhand.models.learning.regressor.Resampled",)
"""Types of this library that a saved model may hold, beside scikit-learn's own."""


class Resampled(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor that takes no `sample_weight`, such as nearest neighbours, fitted to rows drawn by their weight.

    Parameters
    ----------
    regressor
        The regressor.
    random_state
        Seed of the rows that are drawn.
    """

    def __init__(self, regressor: Any, random_state: int | None = None) -> None:
        self.regressor = regressor
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Resampled:
        """Draw as many rows as there are, with replacement, each as often as its weight says, and fit to them."""
        count = X.shape[0]
        share = None if sample_weight is None else np.asarray(sample_weight) / np.sum(sample_weight)
        drawn = np.sort(np.random.default_rng(self.random_state).choice(count, count, p=share))
        rows = X.iloc[drawn] if hasattr(X, "iloc") else X[drawn]
        self.regressor_ = clone(self.regressor).fit(rows, np.asarray(y)[drawn])
        return self

    def predict(self, X: Any) -> Any:
        return self.regressor_.predict(X)


@dataclass(frozen=True)
class RegressorLearner(PartyLearner):
    """A regressor that takes `sample_weight`, fitted anew in each round.

    Parameters
    ----------
    regressor
        The regressor, not fitted.
    columns
        How the party's columns reach it: ``"standard"``, ``"as_is"`` for codes of categories with missing values as
        NaN, or ``"raw"`` for the party's table as a DataFrame, as pipelines over text need it.
    trusted
        Types besides scikit-learn's own that a saved model may hold, by their full names.
    """

    regressor: Any
    columns: Encoding = "standard"
    trusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self.regressor).__name__
        if isinstance(self.regressor, type) or not hasattr(self.regressor, "get_params"):
            raise InputError(f"model is {self.regressor!r}; give a regressor with scikit-learn's interface, not fitted")
        if not is_regressor(self.regressor):
            raise InputError(
                f"model is a {name}, which is no regressor: a party fits numbers, the working response. Give the "
                "regressor of the same kind"
            )
        last = self.regressor.steps[-1][1] if isinstance(self.regressor, Pipeline) else self.regressor
        if not has_fit_parameter(last, "sample_weight"):
            raise InputError(
                f"{type(last).__name__} takes no sample_weight, which the working response needs; give "
                f"Resampled({type(last).__name__}(...)), which draws rows by their weight"
            )

    @property
    def encoding(self) -> Encoding:  # type: ignore[override]
        return self.columns

    def fit(
        self, columns: Any, response: Array, weight: Array, *, warm: Fitted | None, seed: int, features: int
    ) -> Fitted:
        shown = np.flatnonzero(weight > 0.0)
        made = clone(self.regressor)
        made.set_params(**{name: seed for name in made.get_params() if name.split("__")[-1] == "random_state"})
        rows = columns.iloc[shown] if hasattr(columns, "iloc") else columns[shown]
        rows = rows if sp.issparse(rows) or hasattr(rows, "iloc") else np.ascontiguousarray(rows)
        place = f"{made.steps[-1][0]}__sample_weight" if isinstance(made, Pipeline) else "sample_weight"
        made.fit(rows, response[shown], **{place: weight[shown]})
        return RegressorFit(made)

    def load(self, saved: SavedLearner) -> Fitted:
        if saved.format == BoosterFit.format:
            return BoosterFit.of(saved)
        if saved.format != RegressorFit.format:
            raise RunError(f"a model of kind {saved.format!r} is none of this learner's")
        skops = _skops()
        unknown = skops.get_untrusted_types(data=saved.content)
        known = [one for one in unknown if one in (*OWN, *self.trusted) or _is_of_sklearn(one)]
        if strange := set(unknown) - set(known):
            raise RunError(
                f"a saved model holds types that the party does not trust: {', '.join(sorted(strange))}. If they are "
                "meant to be there, name them in `trusted`"
            )
        return RegressorFit(skops.loads(saved.content, trusted=known))


class RegressorFit(Fitted):
    """A fitted regressor."""

    format: ClassVar = "skops"

    def __init__(self, regressor: Any) -> None:
        self.regressor = regressor

    def outputs(self, columns: Any) -> Array:
        return np.asarray(self.regressor.predict(columns), dtype=np.float64)

    def saved(self) -> SavedLearner:
        booster = getattr(self.regressor, "booster_", None)
        if booster is not None and hasattr(booster, "model_to_string"):
            return SavedLearner(BoosterFit.format, booster.model_to_string().encode())
        return SavedLearner(self.format, _skops().dumps(self.regressor))


def _is_of_sklearn(name: str) -> bool:
    """Return whether a name is that of a class of scikit-learn's own, or of a function that selects columns.

    Its modules also hold names of other packages: `sklearn.utils._testing.check_output` starts a process.
    """
    module, _, attribute = name.rpartition(".")
    if not module.startswith("sklearn."):
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return False
    known = isinstance(found, type) or module.startswith("sklearn.feature_selection.")
    return known and str(getattr(found, "__module__", "")).startswith("sklearn.")


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise MissingExtraError("Keeping a scikit-learn model", "skops") from error
    return skops.io
