"""Options of the solver for learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from evenhand.models.growth import FEWEST_ROWS
from evenhand.protocol.job import CheckedOptions, Count
from evenhand.protocol.terms import VerticalTerms


@dataclass(frozen=True)
class Learners(CheckedOptions):
    """Options of the solver ``"learners"``.

    Parameters
    ----------
    features
        Number of columns that each party sends in a round: its model's output, or with more than one the last hidden
        layer of a network and the leaves of a tree. Models with fewer outputs send columns of zeros beside them, or
        behind masks random functions of their columns.
    folds
        Number of models that each party fits in a round, each without one fold of the rows. Coefficients are fitted,
        and bounds are met, at the outputs of models that have not seen the row. New people get the average of all
        models. 1 fits a single model, keeps a tenth of the rows from it, and stops by their loss; so do
        ``exact_rates=False``, label privacy and bounds of zero. Models that follow their rows closely, such as forests,
        need several.
    exact_rates
        Whether bounds are met on held-out rows, on exact rates for measures ``"error"`` and ``"positive"``.
    patience
        Rounds without progress in the held-out loss after which the run ends with its best model.
    failing
        What follows if a party's model cannot be fitted, or gives what is no finite number or the same for every row.
        ``"end"``: the party ends the run. ``"continue"``: it sends a column of zeros for that round, and a warning is
        shown at the party only. Behind masks it sends a random function of its columns, because zeros would leave the
        sum to the other parties.
    exchange
        ``"scores"``: scores are sums over parties. ``"embedding"``: parties also send random functions of their
        columns, once. After the last round the label holder fits a small network over all that parties have sent, for
        interactions across parties, and keeps it if the held-out loss falls by a standard error. It takes no round. To
        score new rows each party then gives the label holder its functions and its models' outputs one by one; where
        only sums arrive, their sums. Not between organisations, with label privacy, or with raw columns.
    embedding
        Number of random functions.
    """

    features: Annotated[int, Field(ge=1, le=256)] = 1
    folds: Annotated[int, Field(ge=1, le=10)] = 5
    exact_rates: bool = True
    patience: Count = 2
    failing: Literal["end", "continue"] = "end"
    exchange: Literal["scores", "embedding"] = "scores"
    embedding: Annotated[int, Field(ge=1, le=256)] = 16

    def folds_of(self, terms: VerticalTerms) -> int:
        """Return the number of models that a run fits."""
        rows, job = terms.inequalities, terms.job
        equal = any(row.lower == row.upper for row in rows)
        single = equal or not self.exact_rates or job.label_privacy is not None or terms.n_rows < FEWEST_ROWS
        return 1 if single else self.folds

    def sizes(self, terms: VerticalTerms) -> dict[str, int]:
        """Return the sizes of arrays in messages."""
        folds = self.folds_of(terms)
        return {"folds": folds, "columns": folds * self.features, "embedding": self.embedding}
