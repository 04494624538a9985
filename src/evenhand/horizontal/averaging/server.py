"""Base class of the servers of averaging solvers: model, multipliers, history and the certificate.

The server holds no rows. It knows only the sums that clients report. `rounds.py` has the training rounds.

Closing exchange, after the last round:

1. The server sends every client the final model, whether or not the client took part in the last round.
2. Each client answers with sums of loss and constraint measures on its rows.
3. The server sends the total number of rows, and the weight that the multipliers give to each slice.
4. Each client answers with its part of the Lagrangian's gradient. The server adds them up and certifies.

If clients may not measure the model, the exchange ends with the first message, and the certificate has no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.messages import FINAL, GRADIENT, SUMS, TILT, VOCABULARY
from evenhand.horizontal.problem import ModelStart, Single
from evenhand.horizontal.roles import HorizontalServer, Outcome
from evenhand.horizontal.summaries import SliceMeans
from evenhand.programs.optimality import SHARED
from evenhand.protocol.asking import Answers, Body
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import HorizontalTerms


class ClosingServer(HorizontalServer):
    """Server with the model and the multipliers; it asks clients to measure the final model.

    Parameters
    ----------
    means
        Inequalities, as agreed by all clients.
    formulation
        The method's multipliers and their updates.
    network
        Model of the weights and running statistics.
    start
        Initial weights, running statistics and multipliers.
    assessing
        Whether clients measure the final model. If not, the certificate has no numbers, and nothing is revealed by
        measurements of clients' rows.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "round": int,
        "stage": Literal["training", "measuring", "certifying"],
        "weights": Single,
        "statistics": Single,
        "multipliers": Array,
        "values": Array,
        "objective": float,
        "answers": Answers,
        "_certificate": Certificate | None,
    }

    def __init__(
        self,
        terms: HorizontalTerms,
        means: SliceMeans,
        formulation: Formulation,
        network: Any,
        start: ModelStart,
        *,
        assessing: bool = True,
    ) -> None:
        super().__init__(SERVER, message_sizes(means, formulation, network))
        self.clients = terms.names
        self._known = frozenset(self.clients)
        self.means = means
        self.formulation = formulation
        self.network = network
        self.job = terms.job
        self.regulariser = regulariser(terms)
        self.assessing = assessing
        self.weights: Single = start.weights.astype(np.float32)
        self.statistics, self.multipliers = start.statistics, start.multipliers
        self.round = 0
        self.stage: Literal["training", "measuring", "certifying"] = "training"
        self.answers = Answers()
        self.values: Array = np.full(len(means.inequalities), np.nan)
        self.objective = np.nan
        self._certificate: Certificate | None = None

    @property
    def certificate(self) -> Certificate | None:
        return self._certificate

    def outcome(self) -> Outcome:
        self.network.load(self.weights, self.statistics)
        tables = {SHARED: self.multiplier_table}
        return Outcome(self.network, self.weights, self.statistics, tables, self.multipliers)

    @property
    def multiplier_table(self) -> Array:
        """(2, R): λ⁺ and λ⁻ of each inequality."""
        return self.formulation.multipliers.table(self.multipliers, self.values)

    def check_sender(self, message: Message) -> None:
        if message.sender not in self._known:
            raise ProtocolError(f"{message.sender!r} is not a client of this run; its message is refused")
        if "rows" in message.body and message.integer("rows") < 1:
            raise ProtocolError(f"{message.sender} reports {message.integer('rows')} rows; its message is refused")

    def handle(self, message: Message) -> Sends:
        self.check_sender(message)
        if self.stage == "measuring" and message.kind == SUMS.kind:
            return self._take_final_sums(message)
        if self.stage == "certifying" and message.kind == GRADIENT.kind:
            return self._take_gradient(message)
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")

    # -- history

    def take_sums(self, sums: Mapping[str, Body]) -> dict[str, float]:
        """Compute the objective and constraint values from the clients' sums, and return a row of history."""
        total = sum(int(body["rows"]) for body in sums.values())
        bodies = list(sums.values())
        added = {name: np.sum([body[name] for body in bodies], axis=0) for name in ("loss", "sums", "exact", "counts")}
        self.objective = float(added["loss"]) / total + 0.5 * self.regulariser * self._squared_norm()
        self.values = self.means.values(added["sums"], added["counts"])
        return self.row_report(self.means.values(added["exact"], added["counts"]))

    def row_report(self, exact: Array | None = None) -> dict[str, float]:
        """Return a row of history; without `exact`, nobody reported in this round, and it has only multipliers."""
        table, known = self.multiplier_table, exact is not None
        report = {"objective": self.objective if known else np.nan}
        report["violation"] = self.means.bounds.violation(self.values) if known else np.nan
        for index, name in enumerate(self.means.names):
            report[f"value[{name}]"] = float(self.values[index]) if known else np.nan
            report[f"exact[{name}]"] = np.nan if exact is None else float(exact[index])
            report[f"upper multiplier[{name}]"] = float(table[0, index])
            report[f"lower multiplier[{name}]"] = float(table[1, index])
        return report

    def _squared_norm(self) -> float:
        weights = self.weights.astype(np.float64)
        return float(weights @ weights)

    # -- the closing exchange

    def close(self) -> Sends:
        """Send all clients the final model, and ask them to measure it."""
        self.stage = "measuring"
        self.answers.clear()
        if not self.assessing:
            self.reports.append({"round": self.round, **self.row_report()})
            self._certify(np.nan)
        body = {"weights": self.weights, "statistics": self.statistics, "measure": int(self.assessing)}
        return [FINAL.message(SERVER, client, round=self.round, **body) for client in self.clients]

    def _take_final_sums(self, message: Message) -> Sends:
        self.answers.add(message)
        if not self.answers.complete([SUMS.kind], self.clients):
            return ()
        sums = self.answers.of(SUMS.kind)
        self.reports.append({"round": self.round, **self.take_sums(sums)})
        counts = sum(body["counts"] for body in sums.values())
        net = self.multiplier_table[0] - self.multiplier_table[1]
        weight = net @ self.means.coefficients
        tilt = np.divide(weight, counts, out=np.zeros_like(weight), where=np.asarray(counts) > 0)
        total = sum(int(body["rows"]) for body in sums.values())
        self.stage = "certifying"
        self.answers.clear()
        return [TILT.message(SERVER, client, rows=total, tilt=tilt) for client in self.clients]

    def _take_gradient(self, message: Message) -> Sends:
        self.answers.add(message)
        if self.answers.complete([GRADIENT.kind], self.clients):
            gradient = self.regulariser * self.weights.astype(np.float64)
            for body in self.answers.of(GRADIENT.kind).values():
                gradient += body["weights"]
            self._certify(float(np.linalg.norm(gradient)))
        return ()

    def _certify(self, stationarity: float) -> None:
        known = not np.isnan(stationarity)
        violation = self.means.bounds.violation(self.values) if known else np.nan
        complementarity = np.nan
        if known:
            complementarity = self.means.bounds.complementarity(self.values, self.multiplier_table)
        kept = bool(violation <= self.job.tol)
        self._certificate = Certificate(
            stationarity=stationarity,
            violation=violation,
            complementarity=complementarity,
            objective=self.objective if known else np.nan,
            rounds=self.round,
            # As in the papers, the number of rounds is fixed, and steps on batches end at no stationary point. What
            # these solvers promise is the constraint.
            converged=kept,
            unmet=None if kept or not known else "a constraint is missed on the rows of all clients",
        )
        self.answers.clear()
        self.done = True


def regulariser(terms: HorizontalTerms) -> float:
    """Return μ of (μ/2)‖w‖², over all weights; averaging solvers have none by default."""
    return 0.0 if terms.job.alpha is None else terms.job.alpha


def message_sizes(means: SliceMeans, formulation: Formulation, network: Any) -> dict[str, int]:
    """Return the sizes of arrays in messages, equal at the server and all clients."""
    classes, groups = means.terms.classes, means.terms.groups
    return {
        "weights": network.weights.size,
        "statistics": network.statistics.size,
        "multipliers": len(formulation.multipliers),
        "parts": len(means.parts),
        "classes": 1 if classes is None else classes,
        "groups": sum(len(values) for values in groups.values()),
    }
