"""Build roles with the protection that the terms name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from evenhand.arrays import Matrix
from evenhand.errors import InputError
from evenhand.models.base import Scorer
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.key_exchange import Session
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.scoring import VOCABULARY as SCORING
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import Party, PartyData, ServerData, outputs
from evenhand.vertical.protected.dealing import DealtParty, DealtServer
from evenhand.vertical.protected.dealt_scores import DealtScoreParty, DealtScoreServer, ScoreDealer
from evenhand.vertical.protected.guarding import check_columns, check_covers
from evenhand.vertical.protected.layer import Layer
from evenhand.vertical.protected.masking import MaskedParty, TogetherServer
from evenhand.vertical.protected.messages import CLOSING, SCORE_CIPHERTEXTS, SCORE_SHARES, SCORE_TRIPLES
from evenhand.vertical.protected.scoring import shares_of
from evenhand.vertical.protected.sharing_server import SharedServer
from evenhand.vertical.protected.triples import DealerRole
from evenhand.vertical.server import Server

_TOGETHER: Final = "together"
_SCORING: Final = Vocabulary(*SCORING, *CLOSING, *SCORE_SHARES, *SCORE_TRIPLES, *SCORE_CIPHERTEXTS)


def protected_server(terms: VerticalTerms, own: ServerData, solver: Solver[Server, Party]) -> Role:
    """Return the server's role in its layers. The solver sees all passive parties as one."""
    holder, members = terms.active[0], terms.passive
    together = _together(terms)
    session = _session_of(SERVER, own.session)
    inner: Role = solver.server(replace(terms, participants={holder: "active", together: "passive"}), own)
    if terms.job.protection == "dealer":
        inner = DealtServer(inner, terms, together, _dealer_of(terms), session)
    elif terms.job.protection == "encrypted":
        # Loads the compiler, which takes a second.
        from evenhand.vertical.protected.encrypting import EncryptedServer

        inner = EncryptedServer(inner, terms, together, session)
    return TogetherServer(inner, members, together, session)


def protected_party(terms: VerticalTerms, name: str, own: PartyData, solver: Solver[Server, Party]) -> Role:
    """Return a party's role in its layers. On shared weights, its columns are rounded to the grid of the products."""
    session = _session_of(name, own.session)
    inner: Role
    if name in terms.passive and len(terms.passive) > 1:
        check_covers(name, own.matrix)
    if name not in terms.passive or not terms.hides_nu:
        inner = solver.participant(terms, name, own)
    else:
        check_columns(name, own.matrix)
        inner = _shared_party(terms, name, own, session)
    return MaskedParty(inner, terms.passive, session, terms.digest)


def _shared_party(terms: VerticalTerms, name: str, own: PartyData, session: Session) -> Role:
    if terms.job.protection == "dealer":
        return DealtParty(terms, name, own, _dealer_of(terms), session)
    from evenhand.vertical.protected.encrypting import EncryptedParty

    return EncryptedParty(terms, name, own, session)


def scoring_server(
    terms: VerticalTerms,
    rows: int,
    session: Session | None,
    shares: Mapping[str, WeightShare] | None = None,
    batch: int = 0,
) -> Role:
    """Return the server's role in scoring common rows where only sums arrive; `innermost` of it has the scores.

    Parameters
    ----------
    shares
        The server's shares of the passive parties' weights, where nobody has the weights.
    batch
        Number of the exchange in the session. Each has its own masks and triples.
    """
    members = _summed(terms)
    alone = [name for name in terms.names if name not in members]
    inner: ScoreServer | Layer = ScoreServer((*alone, _together(terms)), rows, outputs=outputs(terms))
    keys = _session_of(SERVER, session)
    if terms.shares_weights and isinstance(inner, ScoreServer):
        inner = _shared_scores(inner, terms, shares_of(shares or {}, terms.passive), keys, _scores(terms, batch))
    role = TogetherServer(inner, members, _together(terms), keys, CLOSING)
    role.vocabulary = _SCORING
    return role


def _shared_scores(
    scores: ScoreServer, terms: VerticalTerms, own: Mapping[str, WeightShare], keys: Session, context: str
) -> Layer:
    if terms.job.protection == "dealer":
        return DealtScoreServer(scores, own, _together(terms), _dealer_of(terms), keys, context)
    from evenhand.vertical.protected.encrypted_scores import EncryptedScoreServer

    return EncryptedScoreServer(scores, own, _together(terms), keys, context)


def scoring_party(
    terms: VerticalTerms,
    name: str,
    model: Scorer,
    matrix: Matrix,
    session: Session | None,
    batch: int = 0,
    people: str = "",
) -> Role:
    """Return a party's role in scoring common rows: a party that is summed sends its scores, or share, masked.

    Parameters
    ----------
    people
        Checksum of who is scored, as the party was told. Masks cancel only among parties that were told the same.
    """
    keys, context = _session_of(name, session), _scores(terms, batch)
    inner: Role
    if isinstance(model, WeightShare) and terms.job.protection == "encrypted":
        from evenhand.vertical.protected.encrypted_scores import EncryptedScoreParty

        inner = EncryptedScoreParty(name, model, matrix, keys, context)
    elif isinstance(model, WeightShare):
        inner = DealtScoreParty(name, model, matrix, _dealer_of(terms), keys, context)
    else:
        inner = ScoreParty(name, model.predict(matrix))
    role = MaskedParty(inner, _summed(terms), keys, f"{context} {people}", CLOSING)
    role.vocabulary = _SCORING
    return role


def scoring_dealer(terms: VerticalTerms, session: Session | None, batch: int = 0) -> Role:
    """Return the dealer's role in scoring common rows."""
    name = _dealer_of(terms)
    role = ScoreDealer(name, terms.passive, _session_of(name, session), _scores(terms, batch))
    role.vocabulary = _SCORING
    return role


def server_shares(role: Role) -> dict[str, WeightShare]:
    """Return what the server keeps of the parties' weights, from its role in training."""
    while isinstance(role, Layer) and not isinstance(role, SharedServer):
        role = role.inner
    return role.weight_shares if isinstance(role, SharedServer) else {}


def _scores(terms: VerticalTerms, batch: int) -> str:
    return f"scores {batch} {terms.digest}"


def dealer(terms: VerticalTerms, session: Session | None) -> DealerRole:
    """Return the role of the third party, which has no data."""
    name = _dealer_of(terms)
    role = DealerRole(name, terms, _session_of(name, session))
    role.round_limit = terms.job.max_rounds
    return role


def _summed(terms: VerticalTerms) -> tuple[str, ...]:
    """Return the parties with scores that the server learns as a sum: under VFB² all, as in training."""
    return terms.passive if terms.only_sums else terms.names


def _together(terms: VerticalTerms) -> str:
    """Return the name that stands for all parties that are summed."""
    return _TOGETHER if terms.active[0] != _TOGETHER else f"{_TOGETHER} "


def _session_of(name: str, session: Session | None) -> Session:
    if session is None:
        raise InputError(f"{name} has agreed on no keys, which protection needs; agree on them before training")
    return session


def _dealer_of(terms: VerticalTerms) -> str:
    if terms.dealer is None:
        raise InputError(
            "protection 'dealer' needs a dealer, and the terms name none; add a participant with role 'dealer'"
        )
    return terms.dealer
