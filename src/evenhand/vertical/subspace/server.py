"""The server of the subspace solver: it asks for directions, combines them, and stops by certificate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.exact_rows import exact_rows
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.constraints.leave_one_out import measured
from evenhand.constraints.proving import Proof
from evenhand.errors import ProtocolError
from evenhand.programs.combining.columns import DenseColumns
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, independent, solve_reduced
from evenhand.programs.combining.sampling import draw_sample
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COEFFICIENTS, DERIVATIVE, DIRECTION, GO_BACK, GRADIENT_NORM, SCORES
from evenhand.vertical.problem import ServerData
from evenhand.vertical.server import Server
from evenhand.vertical.subspace.best import BestSeen
from evenhand.vertical.subspace.options import SubspaceOptions
from evenhand.vertical.subspace.rates import RateSchedule

LARGEST_FIRST_PENALTY = 100.0
"""Where rows cannot hold, λ is as large as the penalty allows: a penalty made from it would grow without end."""
PATIENCE = 10
"""Rounds without progress after which a run is given up: its rows cannot hold, or its tolerance is out of reach."""
MISSES = 4
"""Times that all but the exact rates say that a run has ended, before it does: they have had their passes each time."""
SHARPNESS = 8.0
"""How many times the true distance from the optimum its bound is, as a rule: a run stops when the bound is as many
times tol. Fitted with `benchmarks/stopping.py`."""
FAR = 3.0
"""What parties promise, in tols, beyond which a round's tiny problem is not worth solving to exact rates."""
PROMISE = 0.2
"""Share of the true distance that the parties' quadratic models promise, as a rule."""
LOOSEST = 1e-3
"""To which a tiny problem is solved at least, whatever parties promise: at steep multipliers they promise anything."""
FEASIBLE = 1e-6
"""Largest violation and complementarity at which a run may stop; the tiny problem is solved to a tenth of it."""


class SubspaceServer(Server):
    """Asks for directions, combines them, and stops by certificate."""

    kept = frozenset({"intercept_due", "decrement", "last_objective", "least_violation", "futile", "missed", "closing"})
    kept |= {"scores"}

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        options = SubspaceOptions(**terms.job.options)
        self.history = options.steps_kept(len(self.parties))
        self.problem = RateSchedule(self.lagrangian, options.exact_rates)
        self.sizes = {**self.sizes, "basis": self.history + 1}
        self.sample = draw_sample(self.lagrangian.constraints.cell, len(self.parties) * (self.history + 1) + 1)
        # Whose scores at the start are still to come: everybody's, or nobody's where all begin at zero.
        self.awaited = set(self.parties) if terms.warm else set()
        self.scores: Array = np.zeros(terms.n_rows)
        self.intercept_due = 0.0
        self.decrement = np.nan
        self.last_objective = np.inf
        self.least_violation = np.inf
        self.futile = 0
        self.missed = 0
        self.closing = False
        self.best: BestSeen | None = None
        # Where the server is, with all that has been computed about it.
        self._point: Point | None = None
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
                self._report(self.present())
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
        """Send ν of the coming round's problem."""
        if self.round >= self.job.max_rounds:
            return self._close()
        self.round += 1
        return self._derivative()

    def _close(self) -> Sends:
        """End without convergence, at the best model seen; what is asked for is its gradient."""
        self.closing = True
        back: list[Message] = []
        if self.best is not None and self._seen_better():
            self.scores, self.multipliers = self.best.scores, self.best.multipliers
            self.squared_norms, self.problem.shifted.shift = self.best.squared_norms, self.best.shift
            back = [GO_BACK.message(SERVER, party, round=self.round) for party in self.parties]
        return [*back, *self._derivative()]

    def _derivative(self) -> Sends:
        self.squared_gradients = np.full(len(self.parties), np.nan)
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
        settled, misses = self._settled(point), self.problem.shifted.excess(point.exact) > 0.0
        self.missed += settled and misses
        converged = settled and not misses
        hopeless = not converged and (self._hopeless(point) or self.missed >= MISSES)
        self.last_objective = self.objective(point)
        # Until a step is taken, all that is said is about the model as the round before left it.
        self.round -= 1
        if hopeless and self._seen_better():
            return self._close()
        self._report(point)
        if converged or hopeless:
            self.certify(point, converged)
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
        return [*self._return(shares, last=False, keep=self._keep()), *self._ask()]

    def _keep(self) -> bool:
        """Remember the present model if its exact rates make it the best so far; the first rounds solve others."""
        if not self.problem.shifted.exact.any() or self.problem.settling(self.round):
            return False
        if self.best is None or self._rank() < self.best.rank:
            norms, shift = self.squared_norms.copy(), self.problem.shifted.shift
            self.best = BestSeen(*self._rank(), self.scores, self.multipliers, norms, shift)
            return True
        return False

    def _seen_better(self) -> bool:
        """Whether a better model than the present one has been seen."""
        return self.best is not None and self.best.rank < self._rank()

    def _rank(self) -> tuple[float, float]:
        point = self.present()
        return self.problem.shifted.excess(point.exact), self.objective(point)

    def present(self) -> Point:
        """The present scores in the present round's problem; at the end, at the temperatures that were asked for."""
        problem = self.problem.at_round(0 if self.closing else self.round)
        if self._point is None or self._point.lagrangian is not problem or self._point.scores is not self.scores:
            self._point = problem.at(self.scores)
        return self._point

    def violation(self, point: Point) -> float:
        return self.lagrangian.constraints.bounds.violation(self.problem.values(point))

    def complementarity(self, point: Point) -> float:
        return self.lagrangian.constraints.bounds.complementarity(self.problem.values(point), self.multipliers)

    def shortfall(self) -> str:
        missed = self.problem.shifted.shortfall(self.present().exact)
        if missed == 0.0:
            return ""
        values = self.lagrangian.constraints.bounds.excess(self.problem.values(self.present())).max(axis=0)
        row = self.lagrangian.constraints.names[int(np.argmax(np.where(self.problem.shifted.exact, values, -np.inf)))]
        return (
            f"no model was found whose exact rates on the training rows meet their bounds: {row} is missed by "
            f"{missed:.2g} at best. Its slices may be too small for the bound; widen it or merge groups"
        )

    def proofs(self) -> list[Proof]:
        if not self.problem.proving.asks:
            return []
        rows = self.lagrangian
        values, errors = exact_rows(rows.constraints, rows.labels, self.scores, rows.loss)
        return self.problem.proving.proofs(values, errors, self.problem.optimism)

    def _settled(self, point: Point) -> bool:
        """Whether the rows hold and the optimum is near: by the bound on the distance, and by the last round's gain.

        Without regulariser there is no bound, and the parties' own quadratic models must do. They see no coupling
        between parties, and so promise too little.
        """
        objective, tol = self.objective(point), self.job.tol
        slack = max(point.violation, point.complementarity(self.multipliers))
        left = self.distance(point).value
        near = self.decrement <= PROMISE * tol * objective if left is None else left <= SHARPNESS * tol
        return (
            slack <= FEASIBLE
            and near
            and self.last_objective - objective <= 0.5 * tol * objective
            and not self.problem.settling(self.round)
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
        for known, count, answer in zip(self.columns, counts, answers, strict=True):
            used = independent(answer["gram"][:count, :count])
            for place, column in enumerate(known):
                matrix[:, start + place] = column if used[place] else 0.0
            gram[start : start + count, start : start + count] = (
                self.regulariser * answer["gram"][:count, :count] * (used & used[:, None])
            )
            linear[start : start + count] = self.regulariser * answer["linear"][:count] * used
            start += count
        matrix[:, start:] = 1.0
        norms = Quadratic(gram, linear, 0.5 * self.regulariser * float(self.squared_norms.sum()))
        # Anew each round: a weight that one round's columns needed makes the next creep along the curve of a row.
        penalty = min(max(1.0, 2.0 * float(np.max(self.multipliers, initial=0.0))), LARGEST_FIRST_PENALTY)
        columns = DenseColumns(matrix)
        sample = None if self.sample is None else self.sample.of(columns)
        # A pass over the same columns begins with what the one before ended with.
        multipliers, root = self.multipliers, None

        def solve(lagrangian: Lagrangian, start: Array | None) -> ReducedSolution:
            nonlocal multipliers, root
            solution = solve_reduced(
                lagrangian,
                self.scores,
                columns,
                norms,
                multipliers,
                start=start,
                penalty=penalty,
                # Whoever asks for the last digits must have them in the tiny problem, too.
                tolerance=max(1e-13, min(1e-10, 0.01 * self.job.tol), min(0.01 * self.decrement, LOOSEST)),
                feasibility=max(1e-12, 0.1 * min(FEASIBLE, self.job.tol)),
                limit=30,
                sample=sample,
                root=root,
            )
            self.effort += solution.iterations * float(matrix.size) * size
            multipliers, root = solution.multipliers, solution.root
            return solution

        def measure(found: ReducedSolution) -> tuple[Array, Array]:
            self.effort += float(matrix.size) * size
            return measured(self.lagrangian, found.point.scores, found.multipliers, matrix, norms.gram)

        far = self.decrement > FAR * self.job.tol * self.objective(self.present())
        return self.problem.solve(self.round, solve, measure, far)

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
        self._point, self.scores = solution.point, solution.point.scores
        self.multipliers = solution.multipliers
        if self.job.fit_intercept:
            self.intercept_due += float(solution.coefficients[-1])

    def _return(self, shares: Array, *, last: bool, keep: bool = False) -> Sends:
        sends = []
        for party, share in zip(self.parties, shares, strict=True):
            intercept = self.intercept_due if party == self.terms.active[0] else 0.0
            body = {"coefficients": share, "intercept": intercept}
            sends.append(COEFFICIENTS.message(SERVER, party, round=self.round, last=int(last), keep=int(keep), **body))
        self.intercept_due = 0.0
        return sends

    def _report(self, worked_on: Point) -> None:
        point = self.lagrangian.at(self.scores)
        stationarity, complementarity = np.sqrt(self.squared_gradients.sum()), self.complementarity(point)
        extra = {"stationarity": stationarity, "complementarity": complementarity, "decrement": self.decrement}
        known = {name: value for name, value in self.distance(worked_on)._asdict().items() if value is not None}
        self.reports.append({"round": self.round, **self.row_report(point), **extra, **known})

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
        own: State = {"awaited": sorted(self.awaited), **self.problem.snapshot()}
        own |= {} if self.best is None else self.best.snapshot()
        return super().snapshot() | own | columns | answers

    def restore(self, state: State) -> None:
        super().restore(state)
        self.awaited = set(state["awaited"])
        self.problem.restore(state)
        self.best = BestSeen.from_snapshot(state)
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
