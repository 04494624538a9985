"""Predictions of a fitted estimator across clients: scores, labels or means, and weights by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from evenhand.arrays import Array
from evenhand.auditing.client_views import HorizontalAuditInput
from evenhand.auditing.views import listening
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.estimators.client_rows import ClientPool, as_rows, encoded, feature_names
from evenhand.estimators.shared import LabelsFromScores, NestedParameters
from evenhand.horizontal.problem import ModelStart
from evenhand.protocol.job import Job
from evenhand.protocol.transcript import Transcript
from evenhand.training.horizontal import HorizontalRun, start_from
from evenhand.training.protection import Privacy, client_privacy


class AcrossClients(NestedParameters):
    """The part of estimators across clients that stores the result of `fit` and gives scores from it."""

    run_: HorizontalRun
    warm_start: bool
    clients_: list[str]
    _noise: tuple[Any, list[str]]
    encoder_: PartyEncoder | None
    n_features_in_: int
    coef_: Array
    intercept_: Any
    _audit_inputs: list[HorizontalAuditInput] | None = None
    """Records of training for an audit; None if there is no audit."""

    def _listening(self) -> Transcript | None:
        return None if self._audit_inputs is None else listening()

    def _record(self, run: HorizontalRun, pool: ClientPool) -> None:
        """Keep what an audit needs of the run."""
        if self._audit_inputs is not None:
            messages = run.transcript.messages or ()
            self._audit_inputs.append(HorizontalAuditInput(messages, pool.rows, run.model, run.statistics, run.terms))

    def _keep(self, run: HorizontalRun, X: Any) -> None:
        """Set the fitted attributes; remove those of an earlier fit with another model."""
        self.run_ = run
        self.history_ = run.history
        self.certificate_ = run.certificate
        self.proofs_ = list(run.proofs)
        self.n_iter_ = run.certificate.rounds
        self.bytes_sent_ = run.transcript.total_bytes
        self.n_features_in_ = int(np.prod(X.shape[1:]))
        for name in ("coef_", "intercept_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if (names := feature_names(X)) is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        if run.terms.job.model == "linear":
            weights = np.asarray(run.weights, dtype=np.float64)
            self._keep_weights(weights, run.terms.classes or 1)

    def _keep_weights(self, weights: Array, outputs: int) -> None:
        """Set ``coef_`` and ``intercept_``."""
        coefficients, intercepts = weights[:-outputs].reshape(outputs, -1), weights[-outputs:]
        self.coef_, self.intercept_ = self._in_order(coefficients), self._in_order(intercepts)

    def _in_order(self, scores: Array) -> Array:
        """Return scores or weights in the order that the estimator promises."""
        return scores

    def _start(
        self, file: str | Path | None, shape: tuple[int, ...], classes: int | None, job: Job, module: Any
    ) -> ModelStart | None:
        if self.warm_start and hasattr(self, "run_"):
            # Multipliers of other constraints have no meaning here.
            last = self.run_.as_start()
            same = self.run_.terms.shape == tuple(shape) and self.run_.terms.classes == classes
            alike = self.run_.terms.job.constraints == job.constraints and self.run_.terms.job.solver == job.solver
            return (last if alike else ModelStart(last.weights, last.statistics)) if same else None
        return None if file is None else start_from(Path(file), job, shape, classes, module)

    def privacy_statements(self, delta: float = 1e-5) -> Privacy | None:
        """Return a `PrivacyStatement` for each client, or a `NoStatement` with the reason; None without `update_noise`.

        It does not cover measured quality that is published beside the model.

        Parameters
        ----------
        delta
            δ of (ε, δ)-differential privacy.
        """
        check_is_fitted(self, "run_")
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta!r}; give a number between 0 and 1, such as 1e-5")
        noise, learned = self._noise
        if noise is None:
            return None
        return client_privacy(self.clients_, noise, self.run_.transcript, delta, learned=learned)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the names of encoded features, in the order of ``coef_``; images have none."""
        check_is_fitted(self, "run_")
        if self.encoder_ is None:
            raise InputError("images are not encoded: their features have no names")
        return np.array(self.encoder_.feature_names_out, dtype=object)

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "run_")
        X = as_rows(X)
        # For pictures, the model itself checks sizes.
        known = isinstance(X, pd.DataFrame) or (len(X.shape) == 4 and X.dtype == np.uint8)
        if not known and int(np.prod(X.shape[1:])) != self.n_features_in_:
            raise DataError(
                f"X has {int(np.prod(X.shape[1:]))} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return self.run_.model.predict(encoded(self.encoder_, X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class ScoresAcrossClients(LabelsFromScores, ClassifierMixin, AcrossClients):  # type: ignore[misc]
    """The part of :class:`~evenhand.HorizontalClassifier` that predicts."""

    classes_: npt.NDArray[Any]
    pos_label_: Any

    def _turned_cut(self, cut: Array) -> Array:
        return self._in_order(cut)

    def coefficients(self) -> pd.DataFrame:
        """Return ``coef_`` as a table with a row for each encoded feature; more than two classes have a column each."""
        if not hasattr(self, "coef_"):
            raise InputError("only a fitted linear model has one weight for each feature")
        columns = ["weight"] if len(self.classes_) == 2 else list(self.classes_)
        names = pd.Index(self.get_feature_names_out(), name="feature")
        return pd.DataFrame(self.coef_.T, index=names, columns=columns)

    def decision_function(self, X: Any) -> Array:
        """Return scores: one a row for two classes (positive favours ``classes_[1]``), else one for each class."""
        return self._in_order(self._scores(X))

    def _in_order(self, scores: Array) -> Array:
        return -scores if len(self.classes_) == 2 and self.pos_label_ != self.classes_[1] else scores
