"""Train some of a run's parties, from the stages of all: the coalitions of which values of parties are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from evenhand.arrays import Array
from evenhand.models.base import Scorer
from evenhand.protocol.roles import SERVER
from evenhand.solvers import roles as solver_roles
from evenhand.training.run import RunSettings, carry_out
from evenhand.training.vertical_steps import VerticalTraining
from evenhand.vertical.problem import PartyData, ServerData


class Coalition(NamedTuple):
    """Trained models of some parties, and what another training starts from."""

    models: dict[str, Scorer]
    multipliers: Array
    rounds: int
    converged: bool


def train_coalition(
    stages: Mapping[str, VerticalTraining], names: Collection[str], start: Coalition | None = None
) -> Coalition:
    """Train these parties with messages in the clear, in this process.

    Parameters
    ----------
    stages
        The training stages of all participants.
    start
        A trained coalition with all of these parties: training starts from its weights, if models are linear.
    """
    server = stages[SERVER]
    assert isinstance(server.own, ServerData)
    terms = server.terms
    warm = start is not None and terms.job.model == "linear"
    terms = replace(
        terms,
        job=replace(terms.job, protection="none", rule=None),
        participants={name: part for name, part in terms.participants.items() if name in names},
        warm=warm,
    )
    own = replace(server.own, multipliers=start.multipliers if start is not None and warm else None)
    parties = []
    for name in terms.names:
        data = stages[name].own
        assert isinstance(data, PartyData)
        weights = start.models[name].weights if start is not None and warm else None
        parties.append(solver_roles.party(terms, name, replace(data, weights=weights)))
    finished = carry_out(lambda: (solver_roles.server(terms, own), parties), RunSettings(), lambda _: ())
    trained = solver_roles.solvers_server(finished.server)
    assert trained.certificate is not None
    models = {role.name: solver_roles.solvers_party(role).trained for role in finished.others}
    return Coalition(models, trained.multipliers, trained.certificate.rounds, trained.certificate.converged)
