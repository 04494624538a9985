"""What an audit needs of a vertical run: its messages, those of the closing exchange, and a way to run it again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.auditing.views import AuditInput, ShortRun, known_weights, listening
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import DataError
from evenhand.models.across import Routes
from evenhand.models.base import Scorer
from evenhand.models.linear import LinearModel
from evenhand.models.trees import TreesModel
from evenhand.models.weight_share import split_weights
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.key_exchange import agree_here
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.solvers.roles import agrees_on_keys
from evenhand.training.together import Steps, Together
from evenhand.training.vertical import train_together
from evenhand.training.vertical_steps import train_as_dealer, train_as_party, train_as_server
from evenhand.vertical.problem import PartyColumns, PartyData, ServerData, outputs
from evenhand.vertical.protected import build as protected

ROUNDS_AGAIN: Final = 8
"""Rounds of a run that is repeated without a person."""


def audit_input(
    transcript: Transcript,
    parties: Sequence[PartyColumns],
    labels: Array,
    sensitive: pd.DataFrame | None,
    models: Mapping[str, Scorer],
    terms: VerticalTerms,
    *,
    long: bool = False,
) -> AuditInput:
    """Return the input of an audit of a finished run.

    Between organisations, parties score the rows together after training. So this exchange is part of every audit.

    Parameters
    ----------
    long
        Whether to repeat encrypted runs without a person too. 25 of them take long.
    """
    columns = {party.name: party.matrix for party in parties}
    once = terms.job.label_privacy is not None or (terms.job.protection == "encrypted" and not long)
    found = AuditInput.of(transcript, parties, labels, sensitive, models, terms)
    return replace(
        found,
        messages=[*found.messages, *_closing(terms, models, columns)],
        again=None if once else _again(terms, parties, labels, sensitive),
    )


def _closing(terms: VerticalTerms, models: Mapping[str, Scorer], columns: Mapping[str, Matrix]) -> Sequence[Message]:
    """Return the messages by which parties score the training rows."""
    transcript, holder = listening(), terms.active[0]
    if agrees_on_keys(terms):
        return _closing_sums(terms, models, columns, transcript)
    routes = next((m.routes for m in models.values() if isinstance(m, TreesModel) and m.routes is not None), None)
    roles = []
    for name, model in models.items():
        scores = model.predict(columns[name])
        if not isinstance(routes, Routes) or not isinstance(model, TreesModel):
            roles.append(ScoreParty(name, scores))
        elif name != holder:
            roles.append(ScoreParty(name, scores, model.sides(columns[name]), holder))
        else:
            others = [one for one in models if one != holder]
            roles.append(ScoreParty(name, scores, model.sides(columns[name]), name, routes.scores, others))
    server = ScoreServer(terms.names, terms.n_rows, holder if isinstance(routes, Routes) else None, outputs(terms))
    InProcess([server, *roles], transcript=transcript).run()
    return transcript.messages or ()


def _closing_sums(
    terms: VerticalTerms, models: Mapping[str, Scorer], columns: Mapping[str, Matrix], transcript: Transcript
) -> Sequence[Message]:
    keys, shares = agree_here(tuple(terms.participants), terms.digest), {}
    roles = []
    for name, model in models.items():
        held = model
        if terms.shares_weights and name in terms.passive:
            assert isinstance(model, LinearModel)
            held, shares[name] = split_weights(model, ProductGrid(terms.n_rows).column_bits)
        roles.append(protected.scoring_party(terms, name, held, columns[name], keys[name]))
    if terms.shares_weights and terms.dealer is not None:
        roles.append(protected.scoring_dealer(terms, keys[terms.dealer]))
    InProcess(
        [protected.scoring_server(terms, terms.n_rows, keys[SERVER], shares), *roles], transcript=transcript
    ).run()
    return transcript.messages or ()


def _again(
    terms: VerticalTerms, parties: Sequence[PartyColumns], labels: Array, sensitive: pd.DataFrame | None
) -> Callable[[Booleans], ShortRun]:
    def run(kept: Booleans) -> ShortRun:
        """Run on some of the rows; there is nothing to return if a guard refuses the rows."""
        transcript = listening()
        known = LabelledRows(labels[kept], None if sensitive is None else sensitive[kept].reset_index(drop=True))
        rounds = min(ROUNDS_AGAIN, terms.job.max_rounds)
        short = replace(terms, job=replace(terms.job, max_rounds=rounds, rule=None), n_rows=int(kept.sum()))
        data = {
            one.name: PartyData(
                one.matrix[kept],
                known=known if one.active else None,
                categorical=one.categorical,
                signs=one.signs,
                learner=one.learner,
            )
            for one in parties
        }
        steps: dict[str, Steps[Any]] = {
            SERVER: train_as_server(short, ServerData(known.labels, known.groups)),
            **{name: train_as_party(short, name, own) for name, own in data.items()},
        }
        if short.dealer is not None:
            steps[short.dealer] = train_as_dealer(short, short.dealer)
        with suppress(DataError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models = train_together(Together(steps, transcript), runtime="messages").models
            return ShortRun(transcript.messages or (), known_weights(models, short))
        return ShortRun((), {})

    return run
