"""LoGoFair: post-processing across clients under local and global fairness.

Zhang, Chen, Han, Zhong, Zheng, "LoGoFair: Post-Processing for Local and Global Fairness in Federated Learning", AAAI
2025 (arXiv 2503.17231). A model's probabilities s are given. Among decisions whose gap between groups is at most δ_g
over all rows and at most δ_l over each client's, those with the largest expected accuracy select the rows with

    2s − 1 − Σ_j λ_j d_j(s) − Σ_j μ_cj e_cj(s) > 0

where d_j is what a row adds to gap j over all n rows, times n, and e_cj the same over the rows of its client c. For
demographic parity a row of group a adds ±1/P(a). For equalized odds it adds ±s/P(a, y=1) and ±(1 − s)/P(a, y=0). P
counts among all n rows (for e among those of c). λ and μ minimise the convex function Σ_c H_c, with r_β a softplus:

    H_c = Σ_a 1/n_ca Σ_{i in c, a} r_β(π_ca (2s_i − 1 − …)) + δ_g Σ_j |λ_j| / C + δ_l Σ_j (μ⁺_cj + μ⁻_cj),
    π_ca = n_ca/n

In a round the server sends λ. Each client takes `local_steps` exponentiated-gradient steps on its μ⁺ and μ⁻, then as
many gradient steps on its copy of λ, and answers with it; the server takes the mean. At the end clients take five
times as many steps on μ, with the hinge in place of the softplus.

We had the paper's abstract and the authors' public code. Problem, order and numbers of steps are those of the code.
What differs: in the code gradients for parity add up over the steps of a round, and for equalized odds λ is cut off at
zero and μ is found by stepping until the counted gap is small; here each step has its own gradient, λ has any sign, and
steps are longer (0.005 and 0.025 in the code). The paper has two groups; with more, each is compared with the first.
Decisions need the client and the group of new people. The exchange here is of plain numbers in one process, not of
roles: λ, a number for each gap, and once the counts of each client's rows by label and group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from evenhand.arrays import Array, Integers
from evenhand.errors import InputError
from evenhand.protocol.job import CheckedOptions, Count, NotNegative, Positive, Whole


@dataclass(frozen=True)
class LoGoFair(CheckedOptions):
    """Options of LoGoFair.

    Parameters
    ----------
    odds
        Whether gaps are those of equalized odds; if not, of demographic parity.
    global_gap, local_gap
        δ_g and δ_l.
    rounds, local_steps
        Rounds, and steps of each kind in a round.
    local_step, global_step
        Of the exponentiated gradient on μ, and of the gradient on λ.
    sharpness
        β of the softplus.
    """

    odds: bool = True
    global_gap: NotNegative = 0.02
    local_gap: NotNegative = 0.02
    rounds: Count = 30
    local_steps: Whole = 20
    local_step: Positive = 0.05
    global_step: Positive = 0.05
    sharpness: Positive = 1000.0

    @property
    def labels(self) -> tuple[int | None, ...]:
        return (1, 0) if self.odds else (None,)


START = 0.1
"""μ⁺, μ⁻ and λ at first."""


def row_gaps(labels: Sequence[int | None], scores: Array, codes: Integers, shares: Array) -> Array:
    """Return what each row adds to each gap, times n: (gaps, rows).

    Parameters
    ----------
    scores
        Probabilities s of the positive label.
    codes
        Each row's group; gaps are rates of groups 1, 2, … less that of group 0.
    shares
        (labels, groups): P(a, y), the share of each slice in all rows.
    """
    found = []
    for label, share in zip(labels, shares, strict=True):
        inside = np.ones_like(scores) if label is None else scores if label == 1 else 1.0 - scores
        # A group without rows has no rate: it adds to no gap.
        weight = np.divide(inside, share[codes], out=np.zeros_like(scores), where=share[codes] > 0)
        for group in range(1, share.size):
            compared = (codes == group) * 1.0 - (codes == 0) * 1.0
            found.append(weight * compared * float(share[group] > 0 and share[0] > 0))
    return np.array(found)


@dataclass(eq=False)
class Client:
    """A client's scores, and its multipliers μ⁺ and μ⁻."""

    options: LoGoFair
    scores: Array
    codes: Integers
    everywhere: Array
    """(labels, groups): P(a, y) over all clients' rows."""
    own: Array
    """(labels, groups): rows of the client in each slice over the number of all clients' rows."""
    rows: int
    clients: int
    pair: Array = field(init=False)

    def __post_init__(self) -> None:
        labels = self.options.labels
        self._of_all = row_gaps(labels, self.scores, self.codes, self.everywhere)
        self._of_own = row_gaps(labels, self.scores, self.codes, self.own)
        self.pair = np.full((2, len(self._of_own)), START)
        counts = np.bincount(self.codes, minlength=self.own.shape[1])
        self._share, self._weight = counts[self.codes] / self.rows, 1.0 / counts[self.codes]

    def pulls(self, multipliers: Array, *, exact: bool) -> Array:
        """Return the derivative of H_c in each row's margin."""
        margins = 2.0 * self.scores - 1.0 - multipliers @ self._of_all - (self.pair[0] - self.pair[1]) @ self._of_own
        inner = self._share * margins
        selected = (inner > 0.0) * 1.0 if exact else expit(self.options.sharpness * inner)
        return np.asarray(self._weight * self._share * selected)

    def improve_own(self, multipliers: Array, steps: int, *, exact: bool = False) -> None:
        """Take steps on μ⁺ and μ⁻."""
        for _ in range(steps):
            slope = -self._of_own @ self.pulls(multipliers, exact=exact)
            gradient = self.options.local_gap + np.array([slope, -slope])
            self.pair = self.pair * np.exp(-self.options.local_step * gradient)

    def improve_shared(self, multipliers: Array) -> Array:
        """Return λ after steps on it."""
        for _ in range(self.options.local_steps):
            slope = -self._of_all @ self.pulls(multipliers, exact=False)
            penalty = self.options.global_gap / self.clients * np.sign(multipliers)
            multipliers = multipliers - self.options.global_step * (slope + penalty)
        return multipliers


@dataclass(frozen=True, eq=False)
class Calibration:
    """Beta calibration (Kull, Silva Filho and Flach, 2017): logistic regression on log s and −log(1 − s)."""

    slopes: Array
    intercept: float

    @classmethod
    def fit(cls, scores: Array, labels: Array) -> Calibration:
        if len(np.unique(labels)) < 2:
            return cls(np.array([1.0, 1.0]), 0.0)
        model = LogisticRegression(C=1e3, max_iter=1000).fit(_features(scores), labels > 0)
        # Scores keep their order: a factor below zero is left out.
        if (model.coef_ < 0.0).any():
            model = LogisticRegression(C=1e3, max_iter=1000).fit(logit(_inside(scores))[:, None], labels > 0)
            slope = max(float(model.coef_[0, 0]), 0.0)
            return cls(np.array([slope, slope]), float(model.intercept_[0]))
        return cls(model.coef_[0], float(model.intercept_[0]))

    def __call__(self, scores: Array) -> Array:
        found: Array = expit(_features(scores) @ self.slopes + self.intercept)
        return found


def _inside(scores: Array) -> Array:
    tiny = np.finfo(np.float64).eps
    return np.clip(scores, tiny, 1.0 - tiny)


def _features(scores: Array) -> Array:
    inside = _inside(scores)
    return np.column_stack([np.log(inside), -np.log1p(-inside)])


@dataclass(frozen=True, eq=False)
class Decisions:
    """The fitted decisions: λ, and of each client μ, the shares of its slices, and calibrations by group."""

    options: LoGoFair
    multipliers: Array
    everywhere: Array
    own: Mapping[str, tuple[Array, Array]]
    calibrations: Mapping[tuple[str, int], Calibration]

    def margins(self, scores: Array, codes: Integers, clients: Array) -> Array:
        """Return margins of rows: above zero they are selected."""
        found = np.zeros(len(scores))
        for name in np.unique(clients):
            if name not in self.own:
                raise InputError(f"no decisions were fitted for client {name!r}; there are {', '.join(self.own)}")
            inside = clients == name
            adjusted = calibrated(self.calibrations, str(name), scores[inside], codes[inside])
            multipliers, own = self.own[str(name)]
            labels, groups = self.options.labels, codes[inside]
            found[inside] = 2.0 * adjusted - 1.0
            found[inside] -= self.multipliers @ row_gaps(labels, adjusted, groups, self.everywhere)
            found[inside] -= multipliers @ row_gaps(labels, adjusted, groups, own)
        return found


def calibrated(
    calibrations: Mapping[tuple[str, int], Calibration], client: str, scores: Array, codes: Integers
) -> Array:
    found = scores.copy()
    for group in np.unique(codes):
        if (client, int(group)) in calibrations:
            found[codes == group] = calibrations[client, int(group)](scores[codes == group])
    return found


def fit(
    options: LoGoFair, scores: Array, labels: Array, codes: Integers, clients: Array, *, calibrate: bool = True
) -> Decisions:
    """Run the exchange on all clients' rows.

    Parameters
    ----------
    scores
        Probabilities of the positive label by a model that is shared by all clients.
    labels
        ±1.
    codes
        Each row's group, 0, 1, …
    clients
        Name of each row's client.
    calibrate
        Whether each client calibrates the probabilities of each of its groups first, as in the authors' code.
    """
    groups, names = int(codes.max()) + 1, [str(name) for name in np.unique(clients)]
    calibrations: dict[tuple[str, int], Calibration] = {}
    made = {}
    own = {name: _shares(options, labels, codes, groups, clients == name) for name in names}
    everywhere = np.sum(list(own.values()), axis=0)
    for name in names:
        inside = clients == name
        if calibrate:
            for group in np.unique(codes[inside]):
                part = inside & (codes == group)
                calibrations[name, int(group)] = Calibration.fit(scores[part], labels[part])
        adjusted = calibrated(calibrations, name, scores[inside], codes[inside])
        made[name] = Client(options, adjusted, codes[inside], everywhere, own[name], len(scores), len(names))
    multipliers = np.full(len(options.labels) * (groups - 1), START)
    for _ in range(options.rounds):
        answers = []
        for one in made.values():
            one.improve_own(multipliers, options.local_steps)
            answers.append(one.improve_shared(multipliers))
        multipliers = np.mean(answers, axis=0)
    for one in made.values():
        one.improve_own(multipliers, 5 * options.local_steps, exact=True)
    of_clients = {name: (one.pair[0] - one.pair[1], own[name]) for name, one in made.items()}
    return Decisions(options, multipliers, everywhere, of_clients, calibrations)


def _shares(options: LoGoFair, labels: Array, codes: Integers, groups: int, inside: Array) -> Array:
    """Return the share of each slice of some rows in all rows: (labels, groups)."""
    found = []
    for label in options.labels:
        part = inside if label is None else inside & ((labels > 0) == (label == 1))
        found.append(np.bincount(codes[part], minlength=groups) / len(labels))
    return np.array(found)
