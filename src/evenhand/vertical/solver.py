"""What a file of `vertical/` must provide to be a solver; see `docs/add-a-solver.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.protocol.job import Protection
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import VOCABULARY
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyData, ServerData
from evenhand.vertical.server import CompiledRun, Server


@dataclass(frozen=True)
class Solver:
    """A solver's options (a dataclass that checks itself) and the functions that build its roles.

    Each role is built from the terms and from what its owner holds: nobody's constructor sees another's data.

    Attributes
    ----------
    server
        The server's role.
    party
        The role of the party of that name.
    takes_weights
        Whether rows may stand for different numbers of people, in the loss and in constraints.
    models, losses
        The kinds of parties and of losses it can train.
    compiled
        An optimisation for a process that has everybody's data: one role that does everybody's work in a compiled loop
        and only counts the messages. None where there is no faster way.
    threads
        Whether its roles stand threads: what they do may then depend on who is faster.
    takes_confidence
        Whether it trains towards what holds among new people.
    exact
        Whether it ends at the optimum, rather than near it or at that of a smaller problem.
    tol
        Where it stops unless it is told.
    protections
        The levels of protection it can run with.
    masked_by_default
        Whether sums alone cost it next to nothing, so that ``"auto"`` is ``"masked"`` where there are passive parties
        to be summed over.
    hides_labels
        Whether it keeps to its Lagrangian, over answers of a randomised response where labels have privacy: no message
        of its own then knows more.
    agrees_on_keys
        Whether parties send each other what is behind masks: between organisations they then agree on keys first.
    vocabulary
        The kinds of messages its roles speak, for whoever wants to know before there are any.
    """

    options: type[Any]
    server: Callable[[VerticalTerms, ServerData], Server]
    party: Callable[[VerticalTerms, str, PartyData], Party]
    takes_constraints: bool = True
    threads: bool = False
    takes_confidence: bool = False
    takes_weights: bool = False
    models: tuple[str, ...] = ("linear", "mlp")
    losses: tuple[str, ...] = ("logistic",)
    compiled: Callable[[VerticalTerms, ServerData, Mapping[str, PartyData]], CompiledRun] | None = None
    exact: bool = True
    tol: float = 1e-4
    protections: tuple[Protection, ...] = ("none",)
    masked_by_default: bool = False
    hides_labels: bool = False
    agrees_on_keys: bool = False
    vocabulary: Vocabulary = VOCABULARY
