"""The steps of every participant of a vertical run: server, party and dealer, from enrolling to the trained model.

Each takes the draft terms and a source of its own data; see `training/together.py` for who runs the steps.

    server                          party k                          dealer
    offer the draft terms           accept or refuse                 accept or refuse
    agree on keys                   agree on keys                    agree on keys (where messages are hidden)
    find the common rows            send ids, take common rows
    (if rows may be absent: say who has which rows, and which are held out)
    read labels, offer the terms    accept or refuse                 accept or refuse
    send labels to further active parties
    train                           train                            train
    (with a rule for the cut: send it to active parties, and train again)
    send joint scores               the label holder fits its own part to the true labels (`finish`)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.constraints.binding import compared_groups, strata
from evenhand.constraints.groups import crossed_name, group_codes, groups_frame
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import RunError
from evenhand.models.base import Scorer
from evenhand.models.linear import LinearModel
from evenhand.privacy.hidden_align import HiddenAlignServer
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.programs.combining.folds import assign_folds
from evenhand.protocol.agree import CutParty, CutServer, LabelParty, LabelServer
from evenhand.protocol.enrol import Policy, anything
from evenhand.protocol.presence import PresenceParty, PresenceServer
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import Terms, VerticalTerms, group_name
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.roles import with_rows
from evenhand.training.together import AgreeOnKeys, Steps, Training, enrolled, offer
from evenhand.training.vertical_sources import Alignment, LabelsHere, LabelSource, PartySource
from evenhand.vertical.finishing import FinishParty, FinishServer
from evenhand.vertical.problem import Party, PartyData, ServerData, answered
from evenhand.vertical.protected import build as protected
from evenhand.vertical.server import CROSS_FITTED, TRAINING_ROWS, Server, UnseenScores

Own = TypeVar("Own", ServerData, PartyData)
Known = TypeVar("Known", bound=LabelledRows)

# -- the training stage


@dataclass(frozen=True, eq=False)
class VerticalTraining(Training):
    """The training stage of one participant of a vertical run; the dealer has no data of its own."""

    terms: VerticalTerms
    name: str
    own: ServerData | PartyData | None
    session: Session | None = None
    """The dealer's secrets; those of others are with their data."""
    searching: bool = False
    rounds: int = 0
    """At the server: rounds before this training, with parties that are gone."""
    whole: bool = True
    """Whether all parties that began are there; only then are there checkpoints, from which all can resume."""

    def role(self) -> Role:
        if isinstance(self.own, ServerData):
            return solver_roles.server(self.terms, self.own, self.rounds)
        if isinstance(self.own, PartyData):
            return solver_roles.party(self.terms, self.name, self.own)
        (dealer,) = solver_roles.helpers(self.terms, self.session)
        return dealer

    def outcome(self, role: Role) -> Server | Scorer | Interrupted | None:
        """Return the solver's server, or what the party has of its model."""
        if role.without:
            return self._interrupted(role)
        if isinstance(self.own, ServerData):
            server = solver_roles.solvers_server(role)
            if self.rounds and server.certificate is not None:
                server.certificate = replace(server.certificate, rounds=server.certificate.rounds + self.rounds)
            server.weight_shares = protected.server_shares(role)
            return server
        return solver_roles.solvers_party(role).trained if isinstance(self.own, PartyData) else None

    def _interrupted(self, role: Role) -> Interrupted:
        """Return where the training has ended because parties are gone; linear models go on from there."""
        start: Array | None = None
        found: Server | Party
        if isinstance(self.own, ServerData):
            found = solver_roles.solvers_server(role)
            start = found.multipliers
        else:
            found = solver_roles.solvers_party(role)
            start = found.trained.weights if isinstance(found.trained, LinearModel) else None
        warm = self.terms.job.model == "linear"
        return Interrupted(role.without, self.rounds + found.round, start if warm else None)

    def identity(self) -> Iterator[object]:
        yield self.terms.to_plain()
        yield from self.data()

    def data(self) -> Iterator[object]:
        """Yield the participant's own data, for a fingerprint."""
        if isinstance(self.own, ServerData):
            yield from (self.own.labels, self.own.groups, self.own.multipliers)
            yield from () if self.own.sample_weight is None else (self.own.sample_weight,)
        elif isinstance(self.own, PartyData):
            yield from (self.own.matrix, self.own.weights, self.own.categorical)
            yield from () if self.own.signs is None else (self.own.signs,)
            yield from () if self.own.learner is None else (self.own.learner.words,)


class Gone(NamedTuple):
    """A party that has gone for good, and the round of training in which it did."""

    party: str
    round: int


class Interrupted(NamedTuple):
    """End of a training of which parties are gone.

    Attributes
    ----------
    start
        What the next training starts from: a party's weights, or at the server the multipliers. None starts anew.
    """

    gone: tuple[str, ...]
    round: int
    start: Array | None


class TrainedParty(NamedTuple):
    """Result of a party after training, and its secrets if it scores rows behind masks."""

    terms: VerticalTerms
    model: Scorer
    session: Session | None = None


class TrainedServer(NamedTuple):
    """Result of the server after training; `key` is that of randomised responses.

    `unseen` has the training rows' scores by models that have not seen them, if there are such models.
    `gone` are the parties that the model is without.
    """

    terms: VerticalTerms
    server: Server
    key: AnswerKey | None
    session: Session | None = None
    unseen: UnseenScores | None = None
    gone: tuple[Gone, ...] = ()


def train_as_party(
    terms: VerticalTerms,
    name: str,
    own: PartyData,
    truth: LabelledRows | None = None,
    *,
    policy: Policy = anything,
    on_terms: Callable[[Terms], None] | None = None,
    whole: bool = True,
) -> Steps[TrainedParty]:
    """Train; with label privacy and `finish`, the label holder then refits its own part to the true labels.

    Parameters
    ----------
    truth
        At the label holder: the true labels and groups.
    policy, on_terms
        See `party_steps`; the party decides again if the run goes on without others.
    whole
        Whether all parties that began are there.
    """
    own = yield from _with_session(terms, name, own)
    fold, began = _folds(terms, own.known), terms

    def without(found: Interrupted) -> Steps[TrainedParty]:
        rest = began.without(found.gone, warm=found.start is not None)
        yield from enrolled(name, rest, policy, on_terms)
        data = replace(own, weights=found.start)
        return (yield from train_as_party(rest, name, data, truth, policy=policy, on_terms=on_terms, whole=False))

    for _ in range(solver_roles.choices_of_cut(terms)):
        for place in range(solver_roles.folds(terms)):
            data = own if own.known is None else replace(own, known=_without(own.known, fold, place))
            searched = yield VerticalTraining(terms, name, data, searching=True, whole=whole)
            if isinstance(searched, Interrupted):
                return (yield from without(searched))
            del searched
            terms = yield from _with_next_step(terms, name)
        if name in terms.active:
            told = CutParty(name)
            yield told
            terms = terms.at_step(terms.job.step, told.cut, told.band)
    model: Scorer | Interrupted = yield VerticalTraining(terms, name, own, whole=whole)
    if isinstance(model, Interrupted):
        return (yield from without(model))
    if truth is not None and terms.job.finishes:
        yield FinishParty(terms, model, truth)
    return TrainedParty(terms, model, own.session)


def train_as_server(
    terms: VerticalTerms, own: ServerData, key: AnswerKey | None = None, *, gone: tuple[Gone, ...] = ()
) -> Steps[TrainedServer]:
    """Train; with label privacy and `finish`, then send the joint scores to the label holder.

    Parameters
    ----------
    gone
        Parties that have gone for good in earlier trainings of the run.
    """
    own = yield from _with_session(terms, SERVER, own)
    fold, unseen, began = _folds(terms, own), None, terms
    rounds, whole = max((one.round for one in gone), default=1) - 1, not gone

    def without(found: Interrupted) -> Steps[TrainedServer]:
        rest = began.without(found.gone, warm=found.start is not None)
        yield from offer(rest)
        all_gone = (*gone, *(Gone(name, max(found.round, 1)) for name in found.gone))
        return (yield from train_as_server(rest, replace(own, multipliers=found.start), key, gone=all_gone))

    for _ in range(solver_roles.choices_of_cut(terms)):
        found: UnseenScores | None = None
        for place in range(solver_roles.folds(terms)):
            data = _without(own, fold, place)
            searched = yield VerticalTraining(terms, SERVER, data, searching=True, rounds=rounds, whole=whole)
            if isinstance(searched, Interrupted):
                return (yield from without(searched))
            found = _joined(found, searched, fold, place)
            del searched
            terms = terms.at_step(terms.job.step + 1)
            yield from offer(terms)
        assert found is not None
        assert terms.job.rule is not None
        cut, unseen = terms.job.rule.choose(own.labels, found.scores), found
        share = float(np.average(found.scores > cut, weights=own.sample_weight))
        band = terms.job.rule.band(share, terms.n_rows)
        yield CutServer(terms.active, cut, band)
        terms = terms.at_step(terms.job.step, cut, band)
    server: Server | Interrupted = yield VerticalTraining(terms, SERVER, own, rounds=rounds, whole=whole)
    if isinstance(server, Interrupted):
        return (yield from without(server))
    if terms.job.finishes:
        yield FinishServer(terms, server.present().scores)
    return TrainedServer(terms, server, key, own.session, server.unseen_scores() or unseen, gone)


def _with_session(terms: VerticalTerms, name: str, own: Own) -> Steps[Own]:
    """Return a participant's data with its secrets, on which all agree first where messages are hidden."""
    if solver_roles.agrees_on_keys(terms) and own.session is None:
        return replace(own, session=(yield AgreeOnKeys(name, terms)))
    return own


def _with_next_step(terms: VerticalTerms, name: str) -> Steps[VerticalTerms]:
    """Wait until all have ended a training, so that messages of the next do not reach roles of this one."""
    following = terms.at_step(terms.job.step + 1)
    yield from enrolled(name, following, anything)
    return following


def _folds(terms: VerticalTerms, known: LabelledRows | None) -> Integers | None:
    """Return the fold of each row; everybody with the labels finds the same. Rows that no other is like are in none.

    Receivers of ν can tell the fold of a row. So folds depend on labels, and on groups only if constraints compare
    them: receivers of ν can work out these anyway.
    """
    if known is None or solver_roles.folds(terms) == 1:
        return None
    frame = groups_frame(known.groups, len(known.labels))
    frame = frame[[name for name in frame if name in _compared(terms)]]
    return assign_folds(strata([(known.labels > 0).astype(np.int64), *_codes(frame)])[0], solver_roles.folds(terms))


def _compared(terms: VerticalTerms) -> set[str]:
    """Return the sensitive attributes that constraints compare."""
    named = {name for row in terms.inequalities for name in row.columns}
    crossing = crossed_name(terms.groups)
    return set(_attributes(terms)) if crossing is not None and crossing in named else named


def _codes(frame: pd.DataFrame) -> list[Integers]:
    return [pd.factorize(column)[0].astype(np.int64) for _, column in frame.items()]


def _without(known: Known, fold: Integers | None, place: int) -> Known:
    """Return the rows with a weight of zero for those of one fold; passive parties do not know the weights."""
    if fold is None:
        return known
    weights = np.ones(len(fold)) if known.sample_weight is None else known.sample_weight
    return replace(known, sample_weight=np.where(fold == place, 0.0, weights))


def _joined(found: UnseenScores | None, searched: Server, fold: Integers | None, place: int) -> UnseenScores:
    """Add the scores of one fold's rows by the model that has not seen them."""
    scores = searched.present().scores
    if fold is None:
        return searched.unseen_scores() or UnseenScores(scores, TRAINING_ROWS)
    return UnseenScores(scores if found is None else np.where(fold == place, scores, found.scores), CROSS_FITTED)


class TrainedDealer(NamedTuple):
    """What the dealer keeps for the exchange that scores rows."""

    terms: VerticalTerms
    session: Session | None


def train_as_dealer(terms: VerticalTerms, name: str, session: Session | None = None) -> Steps[TrainedDealer]:
    """Send random numbers to the others while they train."""
    if session is None:
        session = yield AgreeOnKeys(name, terms)
    for _ in range(solver_roles.choices_of_cut(terms) * solver_roles.folds(terms)):
        yield VerticalTraining(terms, name, None, session, searching=True)
        terms = yield from _with_next_step(terms, name)
    yield VerticalTraining(terms, name, None, session)
    return TrainedDealer(terms, session)


# -- from the draft terms to the trained model


def party_steps(
    name: str,
    draft: VerticalTerms,
    source: PartySource,
    alignment: Alignment,
    *,
    policy: Policy = anything,
    on_terms: Callable[[Terms], None] | None = None,
    on_rows: Callable[[Integers], None] | None = None,
    simulated: bool = False,
) -> Steps[TrainedParty]:
    """Run the steps of a party.

    Parameters
    ----------
    draft
        The terms as far as they follow from the job alone; an offer of another job is refused.
    policy
        The party's own rule on terms.
    on_terms
        Called with terms that the policy has accepted, before anything about the party's rows is sent.
    on_rows
        Called with the positions of the common rows, −1 for rows that the party lacks, before they are used.
    simulated
        Whether everybody is in this process: ids then need no protection.
    """
    accepted = yield from enrolled(name, draft, policy, on_terms)
    session = yield from _session(name, accepted, alignment, simulated)
    aligned = alignment.party(name, source.ids())
    yield aligned
    if aligned.places is None:
        raise source.unaligned(aligned.problem, aligned.unmatched)
    places = aligned.places
    if on_rows is not None:
        on_rows(places)
    # Release lists of all rows once they are used: there may be many millions.
    del aligned
    if alignment.left and name != alignment.holder:
        told = PresenceParty(name, len(places))
        yield told
        n_rows = source.take(places, told.held_out)
        policy = _counting(policy, int(((places >= 0) & ~told.held_out).sum()))
    else:
        n_rows = source.take(places)
        presence = None
        if alignment.left and not alignment.hidden:
            told = PresenceParty(name, len(places), alignment.others)
            yield told
            presence = told.held
    del places
    terms = yield from enrolled(name, accepted, policy)
    if terms.n_rows != n_rows:
        raise RunError(f"the terms state {terms.n_rows} training rows, but {name} has {n_rows}")
    known = truth = None
    if name == alignment.holder:
        truth, key = source.labels(presence)
        terms = _as_held(terms, truth.groups)
        known = answered(terms, truth, key)
    elif name in terms.active:
        labelled = LabelParty(name, terms.n_rows, _attributes(terms))
        yield labelled
        assert labelled.labels is not None
        known = LabelledRows(labelled.labels, _groups(terms, labelled.codes))
    columns = source.columns()
    own = PartyData(
        columns.matrix,
        columns.weights,
        known,
        columns.categorical,
        columns.signs,
        columns.marks_absence,
        learner=columns.learner,
        session=session,
    )
    return (yield from train_as_party(terms, name, own, truth, policy=policy, on_terms=on_terms))


def server_steps(
    draft: VerticalTerms,
    source: LabelSource,
    alignment: Alignment,
    *,
    simulated: bool = False,
    start: Callable[[], Array | None] = lambda: None,
) -> Steps[TrainedServer]:
    """Run the steps of the server.

    Parameters
    ----------
    simulated
        See `party_steps`.
    start
        Returns the multipliers of an earlier run to start from, or None; called once rows are aligned.
    """
    yield from offer(draft)
    session = yield from _session(SERVER, draft, alignment, simulated)
    found = alignment.server()
    yield found
    if found.problem:
        raise source.unaligned(found.problem)
    presence = None
    if alignment.left and not isinstance(found, HiddenAlignServer):
        presence = {name: found.places[name] >= 0 for name in alignment.others}
    truth, key = source.labels(found.sent_by(alignment.holder), presence)
    if alignment.left:
        yield PresenceServer(alignment.holder, alignment.others, presence, source.held_out())
    del found
    frame = groups_frame(truth.groups, len(truth.labels))
    _, groups = compared_groups(draft.job.constraints, truth.labels, frame)
    multipliers = start()
    terms = with_rows(draft, len(truth.labels), groups, warm=multipliers is not None)
    yield from offer(terms)
    if others := [name for name in terms.active if name != alignment.holder]:
        attributes = {name: terms.groups[name] for name in _attributes(terms)}
        yield LabelServer(others, truth.labels, group_codes(frame, attributes))
    del frame
    said = answered(terms, truth, key)
    own = ServerData(
        said.labels,
        said.groups,
        multipliers,
        sample_weight=said.sample_weight,
        answers=said.answers,
        session=session,
    )
    return (yield from train_as_server(terms, own, key))


def dealer_steps(
    name: str,
    draft: VerticalTerms,
    *,
    policy: Policy = anything,
    on_terms: Callable[[Terms], None] | None = None,
) -> Steps[TrainedDealer]:
    """Run the steps of the dealer, which has no data: it sends correlated random numbers."""
    accepted = yield from enrolled(name, draft, policy, on_terms)
    session = yield AgreeOnKeys(name, accepted)
    terms = yield from enrolled(name, accepted, policy)
    return (yield from train_as_dealer(terms, name, session))


def steps_together(
    draft: VerticalTerms,
    rows: Mapping[str, PartySource],
    alignment: Alignment,
    start: Callable[[], Array | None] = lambda: None,
) -> dict[str, Steps[Any]]:
    """Return the steps of all participants in one process; the server reads labels from their holder.

    Parameters
    ----------
    rows
        Each party's own rows.
    start
        See `server_steps`.
    """
    server = server_steps(draft, LabelsHere(rows[alignment.holder]), alignment, simulated=True, start=start)
    parties = {name: party_steps(name, draft, own, alignment, simulated=True) for name, own in rows.items()}
    dealer = {} if draft.dealer is None else {draft.dealer: dealer_steps(draft.dealer, draft)}
    return {SERVER: server, **parties, **dealer}


def _counting(policy: Policy, own_rows: int) -> Policy:
    """Return a party's policy that also applies to the number of training rows that the party itself has."""

    def decided(terms: Terms) -> str | None:
        return policy(terms) or policy(replace(terms, n_rows=own_rows))

    return decided


def _session(name: str, terms: VerticalTerms, alignment: Alignment, simulated: bool) -> Steps[Session | None]:
    """Agree on keys with all others, where something is hidden from the server or from each other."""
    # In one process ids are not hidden from anybody.
    if not solver_roles.agrees_on_keys(terms) and (simulated or not alignment.private):
        return None
    session: Session = yield AgreeOnKeys(name, terms)
    return session


def _attributes(terms: VerticalTerms) -> list[str]:
    """Return the sensitive attributes, without their crossing."""
    return [name for name in terms.groups if name != crossed_name(terms.groups)]


def _groups(terms: VerticalTerms, codes: dict[str, Integers]) -> pd.DataFrame | None:
    """Return groups by value, from their indices among the agreed groups."""
    if not codes:
        return None
    return pd.DataFrame({name: pd.Index(terms.groups[name]).take(places) for name, places in codes.items()})


def _as_held(terms: VerticalTerms, sensitive: pd.DataFrame | None) -> VerticalTerms:
    """Return the terms with group values of the holder's own table; JSON has only their text."""
    if sensitive is None:
        return terms
    found: dict[str, tuple[Hashable, ...]] = {}
    for name, values in terms.groups.items():
        # A crossing is not a column of the table, and is already text.
        column = sensitive[name].unique() if name in sensitive else ()
        held: dict[Hashable, Hashable] = {group_name(value): value for value in column}
        found[name] = tuple(held.get(value, value) for value in values)
    return terms if found == dict(terms.groups) else replace(terms, groups=found)
