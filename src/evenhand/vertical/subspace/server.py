"""The server of the subspace solver: it asks for directions, combines them, and stops by certificate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Point
from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COEFFICIENTS, DERIVATIVE, DIRECTION, GRADIENT_NORM, SCORES
from evenhand.vertical.problem import ServerData
from evenhand.vertical.server import Server
from evenhand.vertical.subspace.options import SubspaceOptions
from evenhand.vertical.subspace.rates import RateSchedule
from evenhand.vertical.subspace.reduced import Quadratic, ReducedSolution, independent, solve_reduced

LARGEST_FIRST_PENALTY = 100.0
"""Where rows cannot hold, λ is as large as the penalty allows: a penalty made from it would grow without end."""
PATIENCE = 10
"""Rounds without progress after which a run is given up: its rows cannot hold, or its tolerance is out of reach."""
FEASIBLE = 1e-6
"""Largest violation and complementarity at which a run may stop; the tiny problem is solved to a tenth of it."""


class SubspaceServer(Server):
    """Asks for directions, combines them, and stops by certificate."""

    kept = frozenset({"intercept_due", "decrement", "last_objective", "least_violation", "futile", "closing", "scores"})

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        options = SubspaceOptions(**terms.job.options)
        self.history = options.steps_kept(len(self.parties))
        self.problem = RateSchedule(self.lagrangian, options.exact_rates)
        self.sizes = {**self.sizes, "basis": self.history + 1}
        # Whose scores at the start are still to come: everybody's, or nobody's where all begin at zero.
        self.awaited = set(self.parties) if terms.warm else set()
        self.scores: Array = np.zeros(terms.n_rows)
        self.intercept_due = 0.0
        self.decrement = np.nan
        self.last_objective = np.inf
        self.least_violation = np.inf
        self.futile = 0
        self.closing = False
        # What each party's direction and last steps do to the scores, newest first.
        self.columns: list[list[Array]] = [[] for _ in self.parties]
        self.answers: dict[int, Message] = {}

    def start(self) -> Sends:
        return () if self.awaited else self._begin()

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        if message.kind == SCORES.kind and message.sender in self.awaited:
            self.awaited.remove(message.sender)
            self.scores = self.scores + message["scores"]
            self.squared_norms[place] = message.number("squared_norm")
            return () if self.awaited else self._begin()
        if message.kind == DIRECTION.kind and message.integer("round") == self.round and not self.closing:
            self.answers[place] = message
            return self._combine() if len(self.answers) == len(self.parties) else ()
        if message.kind == GRADIENT_NORM.kind and self.closing:
            self.receive_gradient_norm(message, converged=False)
            if self.done:
                self._report()
            return ()
        raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to round {self.round}")

    def _begin(self) -> Sends:
        """Before the first round, the best intercept: it needs nobody's columns.

        Not from weights of an earlier run: there the intercept alone could only mend a row by spoiling the rest.
        """
        if self.job.fit_intercept and not self.scores.any():
            column = np.ones((len(self.scores), 1))
            nothing = Quadratic(np.zeros((1, 1)), np.zeros(1))
            self._accept(solve_reduced(self.problem.at_round(1), self.scores, column, nothing, self.multipliers))
        return self._ask()

    def _ask(self) -> Sends:
        """Send ν of the coming round's problem; after the last round, of the one just solved."""
        self.closing = self.round >= self.job.max_rounds
        self.squared_gradients[:] = np.nan
        self.round += not self.closing
        nu = self.present().derivative(self.multipliers)
        head = {"round": self.round, "last": int(self.closing)}
        return [DERIVATIVE.message(SERVER, party, **head, nu=nu) for party in self.parties]

    def _combine(self) -> Sends:
        """All directions are in. Stop if they say that nothing is left to gain; else take the best combination."""
        answers = [self.answers.pop(place) for place in range(len(self.parties))]
        self.squared_norms = np.array([answer.number("squared_norm") for answer in answers])
        self.squared_gradients = np.array([answer.number("squared_gradient") for answer in answers])
        self.decrement = sum(answer.number("decrement") for answer in answers)
        point = self.present()
        settled, hopeless = self._settled(point), self._hopeless(point)
        self.last_objective = self.objective(point)
        # Until a step is taken, all that is said is about the model as the round before left it.
        self.round -= 1
        self._report()
        if settled or hopeless:
            self.certify(point, converged=settled)
            return self._return(np.zeros((len(self.parties), self.history + 1)), last=True)
        self.round += 1
        for columns, answer in zip(self.columns, answers, strict=True):
            columns.insert(0, answer["scores"])
        solution = self._solve(answers)
        shares = self._shares(solution.coefficients)
        self._accept(solution)
        for place, (answer, share) in enumerate(zip(answers, shares, strict=True)):
            self.squared_norms[place] += share @ (2.0 * answer["linear"] + answer["gram"] @ share)
            self._keep_step(self.columns[place], share)
        if self.problem.exact_rates and self.round >= RateSchedule.FIRST_TIGHTENING:
            self.problem.tighten(solution.point.exact)
        return [*self._return(shares, last=False), *self._ask()]

    def present(self) -> Point:
        """The present scores in the present round's problem."""
        return self.problem.at_round(self.round).at(self.scores)

    def _settled(self, point: Point) -> bool:
        """Whether nothing is left to gain: the rows hold, and neither the parties' own quadratic models nor the last
        round promise more than a small share of the objective.

        The models see no coupling between parties and so promise too little: the last round's gain is asked as well.
        """
        objective, tol = self.objective(point), self.job.tol
        slack = max(point.violation, point.complementarity(self.multipliers))
        return (
            slack <= FEASIBLE
            and self.decrement <= tol * objective
            and self.last_objective - objective <= 5.0 * tol * objective
            and not self.problem.settling(self.round)
            and not self.problem.misses(point.exact)
        )

    def _hopeless(self, point: Point) -> bool:
        """Whether neither violation nor objective has got better for a while; the run then ends without convergence."""
        nearer = point.violation < (1.0 - 1e-4) * self.least_violation
        better = self.last_objective - self.objective(point) > 1e-12 * self.last_objective
        progress = nearer or (better and point.violation <= FEASIBLE) or self.problem.settling(self.round)
        self.futile = 0 if progress else self.futile + 1
        self.least_violation = point.violation if nearer else self.least_violation
        return self.futile >= PATIENCE

    def _solve(self, answers: Sequence[Message]) -> ReducedSolution:
        """The tiny problem over everybody's direction and last steps, and the intercept."""
        counts = [len(columns) for columns in self.columns]
        size = sum(counts) + self.job.fit_intercept
        matrix = np.empty((len(self.scores), size), order="F")
        gram, linear = np.zeros((size, size)), np.zeros(size)
        start = 0
        for columns, count, answer in zip(self.columns, counts, answers, strict=True):
            used = independent(answer["gram"][:count, :count])
            for place, column in enumerate(columns):
                matrix[:, start + place] = column if used[place] else 0.0
            gram[start : start + count, start : start + count] = (
                self.regulariser * answer["gram"][:count, :count] * (used & used[:, None])
            )
            linear[start : start + count] = self.regulariser * answer["linear"][:count] * used
            start += count
        matrix[:, start:] = 1.0
        solution = solve_reduced(
            self.problem.at_round(self.round),
            self.scores,
            matrix,
            Quadratic(gram, linear, 0.5 * self.regulariser * float(self.squared_norms.sum())),
            self.multipliers,
            # Anew each round: a weight that one round's columns needed makes the next creep along the curve of a row.
            penalty=min(max(1.0, 2.0 * float(np.max(self.multipliers, initial=0.0))), LARGEST_FIRST_PENALTY),
            tolerance=max(1e-10, 0.01 * self.decrement),
            feasibility=0.1 * FEASIBLE,
            limit=30,
        )
        self.effort += solution.iterations * float(matrix.size) * size
        return solution

    def _shares(self, coefficients: Array) -> Array:
        """(parties, history + 1): each party's coefficients, zeros where it has fewer steps to its name."""
        shares = np.zeros((len(self.parties), self.history + 1))
        start = 0
        for share, columns in zip(shares, self.columns, strict=True):
            share[: len(columns)] = coefficients[start : start + len(columns)]
            start += len(columns)
        return shares

    def _keep_step(self, columns: list[Array], share: Array) -> None:
        """The step just taken becomes the newest past step; the direction itself is forgotten."""
        step = np.zeros_like(self.scores)
        for column, weight in zip(columns, share, strict=False):
            step += weight * column
        columns[0] = step
        del columns[self.history :]

    def _accept(self, solution: ReducedSolution) -> None:
        self.scores = solution.point.scores
        self.multipliers = solution.multipliers
        if self.job.fit_intercept:
            self.intercept_due += float(solution.coefficients[-1])

    def _return(self, shares: Array, last: bool) -> Sends:
        sends = []
        for party, share in zip(self.parties, shares, strict=True):
            intercept = self.intercept_due if party == self.terms.active[0] else 0.0
            body = {"coefficients": share, "intercept": intercept}
            sends.append(COEFFICIENTS.message(SERVER, party, round=self.round, last=int(last), **body))
        self.intercept_due = 0.0
        return sends

    def _report(self) -> None:
        point = self.lagrangian.at(self.scores)
        stationarity, complementarity = np.sqrt(self.squared_gradients.sum()), point.complementarity(self.multipliers)
        extra = {"stationarity": stationarity, "complementarity": complementarity, "decrement": self.decrement}
        self.reports.append({"round": self.round, **self.row_report(point), **extra})

    def snapshot(self) -> State:
        columns = {
            f"column {place} {age}": column.copy()
            for place, columns in enumerate(self.columns)
            for age, column in enumerate(columns)
        }
        answers = {
            f"answer {place} {name}": array
            for place, answer in self.answers.items()
            for name, array in answer.body.items()
        }
        own: State = {"awaited": sorted(self.awaited)}
        own |= {"lower bounds": self.problem.lower.copy(), "upper bounds": self.problem.upper.copy()}
        return super().snapshot() | own | columns | answers

    def restore(self, state: State) -> None:
        super().restore(state)
        self.awaited = set(state["awaited"])
        self.problem.lower, self.problem.upper = np.array(state["lower bounds"]), np.array(state["upper bounds"])
        self.columns = [[] for _ in self.parties]
        bodies: dict[int, dict[str, Array]] = {}
        for name in sorted((name for name in state if name.startswith("column ")), key=lambda key: int(key.split()[2])):
            self.columns[int(name.split()[1])].append(np.array(state[name]))
        for name, value in state.items():
            if name.startswith("answer "):
                _, place, field = name.split(" ", 2)
                bodies.setdefault(int(place), {})[field] = np.array(value)
        self.answers = {
            place: Message(self.parties[place], SERVER, DIRECTION.kind, body) for place, body in bodies.items()
        }
