"""Train vertically in one process: build roles from a job and the parties' columns, and run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.proving import Proof
from evenhand.errors import DataError, InputError
from evenhand.models.base import Scorer
from evenhand.models.linear import LinearModel
from evenhand.models.saved import joined_model
from evenhand.privacy.randomised_response import AnswerKey, LabelStatement
from evenhand.protocol.job import RUNTIMES, Job, RuntimeName
from evenhand.protocol.roles import SERVER, Report, Role
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.registry import check_takes_weights
from evenhand.training.run import Finished, RunSettings, carry_out, certified, warn_of_results
from evenhand.training.together import Together
from evenhand.training.vertical_steps import VerticalTraining
from evenhand.vertical.problem import Start
from evenhand.vertical.protected import build as protected
from evenhand.vertical.server import CompiledRun, Server, UnseenScores


@dataclass(frozen=True, eq=False)
class VerticalRun:
    """Result of training.

    Attributes
    ----------
    models
        Each party's model; in a deployment each stays with its party.
    history
        One row for each round: objective, constraint values, exact rates, multipliers, bytes sent so far, virtual time.
    certificate
        How well the result satisfies the optimality conditions.
    transcript
        Every message sent.
    multipliers
        (2, R): λ⁺ and λ⁻ of each inequality.
    row_names
        The R inequalities in words.
    statistics
        Other results of the solver; for VFB², the staleness of updates.
    proofs
        Bounds that the training rows prove for new people, if a constraint has a confidence.
    label_privacy
        The privacy statement about the labels, if they were sent as randomised responses.
    unseen_scores
        Scores of the training rows by models that have not seen them, if the solver has them.
    cut
        The cut that earlier trainings of the run found, where constraints bound rates at a cut that a rule chooses.
    """

    models: Mapping[str, Scorer]
    history: pd.DataFrame
    certificate: Certificate
    transcript: Transcript
    multipliers: Array
    row_names: Sequence[str]
    statistics: Mapping[str, Any] = field(default_factory=dict)
    proofs: Sequence[Proof] = ()
    label_privacy: LabelStatement | None = None
    unseen_scores: UnseenScores | None = None
    cut: float | None = None

    def as_start(self) -> Start:
        """Return the final weights and multipliers, to start another run from."""
        return Start({name: model.weights for name, model in self.models.items()}, self.multipliers)


def train_together(
    together: Together[VerticalTraining],
    *,
    runtime: RuntimeName = "auto",
    workers: int | None = None,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
) -> VerticalRun:
    """Run all participants' remaining steps in this process.

    Parameters
    ----------
    runtime
        ``"messages"``: server and parties take turns and exchange messages. ``"interleaved"``: one compiled loop does
        everybody's work and counts the messages (VFB² only). ``"threads"``: a group of threads for each party, for
        asynchronous solvers (VFB², FairVFL, FedBCD); no two such runs are the same. ``"auto"``: interleaved where the
        solver can, no clock is given and no messages are kept, else messages.
    workers
        Threads of each party with ``"threads"``; by default as many as there are active parties, as in the VFB² paper.
    clock, folder, checkpoint_seconds, on_round
        As in `RunSettings`; a clock goes with ``"messages"``.
    """
    if runtime not in RUNTIMES:
        raise InputError(f"runtime is {runtime!r}; choose one of {', '.join(map(repr, RUNTIMES))}")
    stages, transcript = together.to_training(), together.transcript
    terms = stages[SERVER].terms
    kept = transcript.messages is not None
    if workers is not None and runtime != "threads":
        raise InputError(f"workers applies to runtime 'threads' only; the runtime is {runtime!r}")
    threads = None if runtime != "threads" else len(terms.active) if workers is None else workers
    while stages[SERVER].searching:
        searched = carry_out(
            partial(_build_roles, runtime, clock, kept, stages),
            RunSettings(clock, threads=threads, transcript=transcript),
            lambda _: (),
        )
        together.to_next_training(_outcomes(searched, terms))
        del searched
        stages = together.to_training()
    finished = carry_out(
        lambda: _build_roles(runtime, clock, kept, stages),
        RunSettings(clock, folder, checkpoint_seconds, on_round, threads=threads, transcript=transcript),
        lambda _: _identity(stages),
    )
    outcomes = _outcomes(finished, terms)
    server: Server = outcomes[SERVER]
    warn_of_results(server)
    ends = together.to_the_end(outcomes)
    for name in terms.active[:1]:
        _complete(ends[name].model, server, name)
    finished.recorder.flush()
    return VerticalRun(
        # One process is everybody, so it joins the shares of weights that participants keep apart.
        models={
            name: joined_model(ends[name].model, server.weight_shares.get(name))
            for name in stages
            if name in terms.names
        },
        history=pd.DataFrame(finished.history),
        certificate=certified(server.certificate),
        transcript=finished.transcript,
        multipliers=server.multipliers,
        row_names=[str(row) for row in server.terms.inequalities],
        statistics=server.statistics(),
        proofs=server.proofs(),
        label_privacy=label_statement(terms, ends[SERVER].key),
        unseen_scores=ends[SERVER].unseen,
        cut=server.job.cut if solver_roles.choices_of_cut(terms) else None,
    )


def _complete(model: Scorer, server: Server, name: str) -> None:
    """Let the server estimate the covariance of weights that it has solved for at the label holder's side."""
    if isinstance(model, LinearModel):
        own = model.uncertainty
        model.uncertainty = lambda: server.uncertainty(name) if own is None or (found := own()) is None else found


def _outcomes(finished: Finished[Any, Any], terms: VerticalTerms) -> dict[str, Any]:
    """Return each participant's result of training: the solver's server, and the parties' models."""
    server = solver_roles.solvers_server(finished.server)
    models = server.models if isinstance(server, CompiledRun) else _models(finished.others, terms)
    server.weight_shares = protected.server_shares(finished.server)
    return {SERVER: server, **models}


def label_statement(terms: VerticalTerms, key: AnswerKey | None) -> LabelStatement | None:
    """Return the privacy statement of a run's labels; None if true labels are used."""
    asked = terms.job.label_privacy
    if asked is None or key is None:
        return None
    groups = asked.of_groups(terms.groups)
    return LabelStatement.of(asked.of_labels, groups, key, finish=asked.finish)


def check_weights(job: Job, weights: Array, rows: int) -> None:
    """Refuse row weights that the solver does not support, and invalid weights."""
    check_takes_weights(job)
    if weights.shape != (rows,) or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise DataError(
            f"sample_weight must be {rows} finite numbers of zero or more, not all zero; its shape is {weights.shape}"
        )


def _models(roles: Sequence[Role], terms: VerticalTerms) -> dict[str, Scorer]:
    return {role.name: solver_roles.solvers_party(role).trained for role in roles if role.name in terms.names}


def _identity(stages: Mapping[str, VerticalTraining]) -> Iterator[Any]:
    """Yield what identifies the run: terms and data."""
    terms = stages[SERVER].terms
    yield terms.to_plain()
    for name in (SERVER, *terms.names):
        yield from stages[name].data()


def _build_roles(
    runtime: RuntimeName, clock: VirtualClock | None, kept: bool, stages: Mapping[str, VerticalTraining]
) -> tuple[Role, Sequence[Role]]:
    """Build the compiled role that does all participants' work, or the server and the parties.

    The compiled role sends no messages, so it is not used if messages are to be kept.
    """
    terms = stages[SERVER].terms
    solver, name = solver_roles.solver_of(terms), terms.job.solver
    if clock is not None and runtime in ("interleaved", "threads"):
        raise InputError(f"runtime {runtime!r} does not support a virtual clock; choose 'messages'")
    if runtime == "interleaved" and "interleaved" not in solver.runtimes:
        raise InputError(f"solver {name!r} does not run interleaved; choose a VFB² solver, or 'messages'")
    if runtime == "threads" and "threads" not in solver.runtimes:
        raise InputError(
            f"solver {name!r} does not run in threads; choose VFB², FairVFL, FedBCD or learners, or 'messages'"
        )
    if kept and runtime == "interleaved":
        raise InputError("runtime 'interleaved' only counts messages, so none can be kept; choose 'messages'")
    if runtime == "interleaved" or (runtime == "auto" and clock is None and not kept):
        own = {one: stages[one].own for one in (SERVER, *terms.names)}
        whole = solver_roles.compiled(terms, own.pop(SERVER), own)  # type: ignore[arg-type]
        if whole is not None:
            return whole, ()
    others = [*terms.names, *([] if terms.dealer is None else [terms.dealer])]
    roles = [stages[one].role() for one in others]
    return stages[SERVER].role(), roles
