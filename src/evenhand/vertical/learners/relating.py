"""The optional second phase: the label holder's own network over all parties' embeddings, without a message.

After the last round the server has what each party's models give every row. It fits a small network to the working
response of the best model so far, cross-fitted by the same folds, and takes its output as one more column of the
problem: coefficients of all columns are solved for anew, under the inequalities. A few such columns follow each other.
They stay only if the held-out loss falls by
more than a standard error.
"""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.models.learning.network import NetworkLearner
from evenhand.models.learning.perceptron import PerceptronFit
from evenhand.models.relation import Stage

STAGES = 3
"""Most columns of the label holder's networks."""
LEAST_GAIN = 1.0
"""Standard errors by which the held-out loss falls at least with a column that is kept."""
NETWORK = NetworkLearner(hidden=(32, 16), epochs=40)


def fit_stage(
    unseen: Array, averages: Array, response: Array, weight: Array, fold: Integers, folds: int, seed: int
) -> tuple[Stage, Array] | None:
    """Fit a stage; return it with its column at unseen rows, or nothing if it is the same for all rows.

    Parameters
    ----------
    unseen, averages
        Embeddings (rows, width): of models that have not seen the row, and the averages that new rows will have.
    response, weight
        What to predict, and how much each row counts.
    fold
        Of each row, or −1.
    """
    networks, column = [], np.zeros(len(unseen))
    for place in range(folds):
        own = np.where(fold == place, 0.0, weight) if folds > 1 else weight
        drawn = int(np.random.SeedSequence([seed, place]).generate_state(1)[0]) % 2**31
        found = NETWORK.fit(unseen, response, own, warm=None, seed=drawn, features=1)
        assert isinstance(found, PerceptronFit)
        networks.append(found)
        rows = fold == place if folds > 1 else slice(None)
        column[rows] = found.outputs(unseen[rows])
    if folds > 1 and (seen := fold < 0).any():
        column[seen] = np.mean([one.outputs(unseen[seen]) for one in networks], axis=0)
    mean = np.mean([one.outputs(averages) for one in networks], axis=0)
    centre, spread = float(mean.mean()), float(mean.std())
    if not np.isfinite([centre, spread]).all() or spread <= 1e-10 * max(1.0, abs(centre)):
        return None
    return Stage(tuple(networks), centre, spread), (column - centre) / spread
