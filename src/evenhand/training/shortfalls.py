"""What a finished run falls short of, in words: estimators warn of it, the command line has an exit code for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from evenhand.protocol.certificate import Certificate


def shortfalls(certificate: Certificate, tol: float, decisions: Iterable[Any] | None = None) -> list[str]:
    """One line for each thing that is not as one would take it to be; none where all is well.

    Parameters
    ----------
    tol
        What the solver was to stop at.
    decisions
        The labels that the model gives to the rows it was trained on; None for a regression. Training needs rows of two
        classes, so a model that gives all of them one label has not learned to tell anybody apart.
    """
    found = []
    # Where clients were not asked to measure, nobody knows.
    if not certificate.converged and not np.isnan(certificate.objective):
        found.append(
            f"the solver did not converge in {certificate.rounds} rounds (stationarity {certificate.stationarity:.1e}, "
            f"violation {certificate.violation:.1e}, tol {tol:g}): give it more rounds (max_rounds), or a larger tol; "
            "a violation that stays means that the constraint cannot be met"
        )
    given = Counter(() if decisions is None else decisions)
    if len(given) == 1:
        [(label, rows)] = given.items()
        found.append(f"the model gives all {rows} rows the same label, {label}: it tells nobody apart")
    return found
