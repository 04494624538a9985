"""The steps of server and clients of a horizontal run, from enrolling to the trained model.

Each participant takes the draft terms, and the steps that prepare its own rows. `training/together.py` runs them.

    server                                  client
    offer the draft terms                   accept or refuse
    combine summaries of columns            summarise its columns, encode its rows
    combine summaries of rows               summarise and count its rows (`solvers/agreeing.py`)
    offer the terms                         accept or refuse
    agree on keys (masked sums)             agree on keys
    train                                   train
    (with a rule for the cut: ask for counts of scores, choose it, and train again if rates are bounded at it)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.constraints.binding import strata
from evenhand.constraints.groups import groups_frame
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import ProtocolError, RunError
from evenhand.horizontal.cutting import CountingClient, CountingServer
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData, ModelStart
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer, Outcome
from evenhand.models.pictures import Pictures
from evenhand.programs.combining.folds import assign_folds
from evenhand.protocol.agree import AgreeClient, AgreeServer, Summary
from evenhand.protocol.enrol import Policy, anything
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import HorizontalTerms, Terms
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.agreeing import KnownBefore, combine, held_values, say
from evenhand.training.shared_model import model_state, scorer
from evenhand.training.together import AgreeOnKeys, Steps, Training, enrolled, offer

# -- the training stage


@dataclass(frozen=True, eq=False)
class HorizontalTraining(Training):
    """The training stage of one participant of a horizontal run."""

    terms: HorizontalTerms
    name: str
    own: HorizontalServerData | ClientData
    searching: bool = False

    def role(self) -> HorizontalServer | HorizontalClient:
        if isinstance(self.own, ClientData):
            return solver_roles.client(self.terms, self.name, self.own)
        return solver_roles.clients_server(self.terms, self.own)

    def outcome(self, role: Role) -> Role:
        """Return the role itself; the server's role has the model."""
        return role

    def identity(self) -> Iterator[object]:
        yield self.terms.to_plain()
        yield from self.data()

    def data(self) -> Iterator[object]:
        """Yield the participant's own rows, for a fingerprint."""
        rows = self.own.rows
        if rows is None:
            return
        shown = rows.features
        # Hash a few pictures at a time: all of them may not fit into memory.
        yield from itertools.chain([shown.crop], shown.blocks()) if isinstance(shown, Pictures) else [shown]
        yield from (rows.labels, rows.groups)
        yield from () if rows.sample_weight is None else (rows.sample_weight,)


class TrainedAcrossClients(NamedTuple):
    """Result of the server after training."""

    terms: HorizontalTerms
    server: HorizontalServer


def train_as_client(terms: HorizontalTerms, name: str, own: ClientData) -> Steps[HorizontalTerms]:
    """Train as a client; return the terms, with the cut if a rule has chosen it."""
    if terms.only_sums and own.session is None:
        own = replace(own, session=(yield AgreeOnKeys(name, terms)))
    fold = own_folds(own.rows, solver_roles.folds(terms))
    for _ in range(solver_roles.choices_of_cut(terms)):
        for place in range(solver_roles.folds(terms)):
            some = replace(own, rows=without_fold(own.rows, fold, place))
            yield HorizontalTraining(terms, name, _at_step(some, terms), searching=True)
            terms = terms.at_step(terms.job.step + 1, terms.job.cut, terms.job.band)
        terms = yield from _receive_cut(terms, own, fold)
    yield HorizontalTraining(terms, name, _at_step(own, terms))
    if terms.job.rule is not None and not solver_roles.choices_of_cut(terms):
        terms = yield from _receive_cut(terms, own, fold)
    return terms


def own_folds(rows: ClientRows, folds: int) -> Integers | None:
    """Return the fold of each of a client's rows, which nobody else knows; None if the model sees all rows."""
    if folds == 1:
        return None
    frame = groups_frame(rows.groups, rows.n_rows)
    codes = [pd.factorize(column)[0].astype(np.int64) for _, column in frame.items()]
    return assign_folds(strata([(rows.labels > 0).astype(np.int64), *codes])[0], folds)


def without_fold(rows: ClientRows, fold: Integers | None, place: int) -> ClientRows:
    """Return a client's rows with others in place of those of one fold: rows with the same label and groups.

    The numbers of rows in all slices, on which the clients have agreed, then stay as they are.
    """
    if fold is None:
        return rows
    frame = groups_frame(rows.groups, rows.n_rows)
    codes = [pd.factorize(column)[0].astype(np.int64) for _, column in frame.items()]
    stratum, order = strata([(rows.labels > 0).astype(np.int64), *codes])[0], np.arange(rows.n_rows)
    for one in range(int(stratum.max()) + 1):
        out, kept = (np.flatnonzero((stratum == one) & inside) for inside in (fold == place, fold != place))
        if len(kept):
            order[out] = np.resize(kept, len(out))
    return rows.with_features(rows.features[order])


def train_as_server(terms: HorizontalTerms, own: HorizontalServerData) -> Steps[TrainedAcrossClients]:
    """Train as the server; return it with the model."""
    if terms.only_sums:
        yield AgreeOnKeys(SERVER, terms)
    for _ in range(solver_roles.choices_of_cut(terms)):
        models = []
        for _ in range(solver_roles.folds(terms)):
            searched = yield HorizontalTraining(terms, SERVER, own, searching=True)
            found = searched.outcome()
            models.append(_as_bytes(terms, found))
            terms = terms.at_step(terms.job.step + 1, terms.job.cut, terms.job.band)
            if terms.job.model != "trees" and terms.job.searches:
                # From zero, all rows would be on one side of the cut.
                own = replace(own, start=ModelStart(found.weights, found.statistics))
        terms = yield from _choose_cut(terms, models)
    server: HorizontalServer = yield HorizontalTraining(terms, SERVER, own)
    if terms.job.rule is not None and not solver_roles.choices_of_cut(terms):
        terms = yield from _choose_cut(terms, [_as_bytes(terms, server.outcome())])
    return TrainedAcrossClients(terms, server)


def _as_bytes(terms: HorizontalTerms, found: Outcome) -> bytes:
    return state_bytes(model_state(terms, found.model, found.weights, found.statistics))


def _at_step(own: ClientData, terms: HorizontalTerms) -> ClientData:
    """Return a client's data for one of several steps, whose questions have the same numbers of rounds."""
    once, step = own.once, terms.job.step
    if once is None or step == 0:
        return own
    return replace(own, once=lambda place, content: once(f"step {step} {place}", content))


def _choose_cut(terms: HorizontalTerms, models: Sequence[bytes]) -> Steps[HorizontalTerms]:
    """Let clients count the scores of models; return the terms with the cut that the rule chooses."""
    terms = terms.at_step(terms.job.step + 1)
    assert terms.job.rule is not None
    groups = len(terms.groups.get(terms.job.cut_by, ()))
    counting = CountingServer(terms.names, terms.job.rule, models, terms.job.closed, groups)
    yield solver_roles.counting_server(terms, counting)
    return terms.at_step(terms.job.step + 1, counting.cut, counting.band, counting.of_groups)


def _receive_cut(terms: HorizontalTerms, own: ClientData, fold: Integers | None) -> Steps[HorizontalTerms]:
    """Count the scores of the client's training rows; return the terms with the cut that the server chooses."""
    terms = terms.at_step(terms.job.step + 1)
    by = terms.job.cut_by
    codes = own.rows.codes({by: terms.groups[by]})[by] if by else None
    counting = CountingClient(
        own.rows, lambda models: unseen_scores(models, own.rows, fold, terms), codes, len(terms.groups.get(by, ()))
    )
    yield solver_roles.counting_client(terms, counting, _at_step(own, terms))
    return terms.at_step(terms.job.step + 1, counting.cut, counting.band, counting.of_groups)


def unseen_scores(models: Sequence[bytes], rows: ClientRows, fold: Integers | None, terms: HorizontalTerms) -> Array:
    """Return the scores of a client's rows, each by the model that has not seen it; without folds by the one model."""
    if len(models) != (1 if fold is None else solver_roles.folds(terms)):
        raise ProtocolError(f"the server sent {len(models)} models to score the rows with, not one for each fold")
    scores = [_scores(model, rows, terms) for model in models]
    found = scores[0]
    for place, one in enumerate(scores[1:], start=1):
        found = np.where(fold == place, one, found)
    return found


def _scores(model: bytes, rows: ClientRows, terms: HorizontalTerms) -> Array:
    """Return the scores of a client's rows by a model from the server, which must be one of the terms."""
    try:
        state = state_from(model, Path("the model"))
        wanted = model_state(terms, None, state["weights"], state["statistics"])
        # Sizes are compared before a model is built.
        if any(state.get(name) != wanted.get(name) for name in ("model", "columns", "shape", "classes", "hidden")):
            raise ProtocolError("the server sent a model that is not of the terms")
        if not all(np.isfinite(state[name]).all() for name in ("weights", "statistics")):
            raise ProtocolError("the server sent a model with weights that are not finite")
        scores = scorer(state)(rows.features)
    except (RunError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ProtocolError(f"the server sent a model that cannot be read: {error}") from error
    if scores.shape != (rows.n_rows,) or not np.isfinite(scores).all():
        raise ProtocolError("the server sent a model that does not give each row one finite score")
    return scores


# -- from the draft terms to the trained model


def client_steps(
    name: str,
    draft: HorizontalTerms,
    known: KnownBefore,
    own: Steps[ClientData],
    *,
    policy: Policy = anything,
    on_terms: Callable[[Terms], None] | None = None,
) -> Steps[HorizontalTerms]:
    """Run the steps of a client.

    Parameters
    ----------
    draft
        The terms as far as they follow from the job alone; an offer of another job is refused.
    own
        Steps that prepare the client's rows; they may agree with other clients on labels and on an encoder.
    policy
        The client's own rule on terms.
    on_terms
        Called with terms that the policy has accepted, before anything about the client's rows is sent.
    """
    accepted = yield from enrolled(name, draft, policy, on_terms)
    data = yield from own
    saying, agreed = say(accepted, known, data.rows), None
    while True:
        try:
            said = saying.send(agreed)  # type: ignore[arg-type]
        except StopIteration:
            break
        exchange = AgreeClient(name, said)
        yield exchange
        agreed = exchange.agreed
    terms = yield from enrolled(name, accepted, policy)
    terms = replace(terms, groups=held_values(terms.groups, [data.rows]))
    return (yield from train_as_client(terms, name, data))


def server_steps(
    draft: HorizontalTerms,
    known: KnownBefore,
    own: Steps[HorizontalServerData],
    *,
    everybody: Callable[[], Mapping[str, ClientRows]] = dict,
    warns: bool = True,
) -> Steps[TrainedAcrossClients]:
    """Run the steps of the server.

    Parameters
    ----------
    own
        Steps that combine the clients' labels and column summaries, and prepare the server's own rows if it has any.
    everybody, warns
        In a simulation, a function that returns all clients' rows; see `agreeing.combine`.
    """
    yield from offer(draft)
    data = yield from own
    combining, agreed = combine(draft, known, data.rows, everybody(), warns=warns), None
    while True:
        try:
            together = combining.send(agreed)  # type: ignore[arg-type]
        except StopIteration as end:
            terms: HorizontalTerms = end.value
            break
        exchange = AgreeServer(draft.names, together)
        yield exchange
        agreed = exchange.agreed
    yield from offer(terms)
    return (yield from train_as_server(terms, data))


# -- how columns are encoded


def agree_on_encoder(name: str, learned: PartyEncoder, rows: Any) -> Steps[PartyEncoder]:
    """Send a summary of a client's columns in its training rows, and counts for curves; return the shared encoder."""
    shared = AgreeClient(name, learned.to_summary())
    yield shared
    agreed = dict(shared.agreed or {})
    if "edges" in agreed:
        counted = PartyEncoder.from_state(agreed.get("encoder")).count_values(rows, agreed["edges"])
        shared = AgreeClient(name, counted)
        yield shared
        agreed = dict(shared.agreed or {})
    return PartyEncoder.from_state(agreed)


def combine_encoders(names: Sequence[str], scale: bool, as_is: bool, rules: Mapping[str, Any]) -> Steps[PartyEncoder]:
    """Make one encoder from all clients' summaries of their columns; return it with its remarks."""
    made: list[PartyEncoder] = []

    def together(told: Mapping[str, Summary]) -> Summary:
        made.append(PartyEncoder.from_summaries(told, scale=scale, as_is=as_is, **rules))
        state, edges = made[-1].to_state(), made[-1].curve_edges()
        return {"encoder": state, "edges": edges} if edges else state

    def curved(told: Mapping[str, Summary]) -> Summary:
        made[-1].add_curves(made[-1].curve_edges(), told)
        return made[-1].to_state()

    exchange = AgreeServer(names, together)
    yield exchange
    if "edges" in (exchange.agreed or {}):
        exchange = AgreeServer(names, curved)
        yield exchange
    shared = PartyEncoder.from_state(dict(exchange.agreed or {}))
    shared.remarks = made[-1].remarks
    return shared
