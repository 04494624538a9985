"""List the messages of a run: what a participant is told before it agrees to take part.

Everything here follows from the registry and from schemas. `tests/solvers/test_announced.py` compares it with the
transcripts of whole runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from evenhand.horizontal import cutting
from evenhand.horizontal.masked import messages as masked
from evenhand.privacy import hidden_align, key_exchange, private_align
from evenhand.protocol import agree, align, asking, enrol, leaving, measuring, presence, resuming, scoring
from evenhand.protocol.job import Protection
from evenhand.protocol.messages import Schema, Vocabulary
from evenhand.protocol.solver import Solver, Split
from evenhand.protocol.terms import HorizontalTerms, Terms, VerticalTerms
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, find
from evenhand.solvers.roles import choices_of_cut
from evenhand.vertical import finishing
from evenhand.vertical.protected import messages as protected

_LAYERS: Final[dict[tuple[Split, Protection], tuple[Vocabulary, ...]]] = {
    ("vertical", "masked"): (protected.MASKS, protected.CLOSING),
    ("vertical", "dealer"): (protected.MASKS, protected.CLOSING, protected.SHARES, protected.TRIPLES),
    ("vertical", "encrypted"): (protected.MASKS, protected.CLOSING, protected.SHARES, protected.CIPHERTEXTS),
    ("horizontal", "masked"): (masked.VOCABULARY,),
}
"""Messages of the layers that protect a solver's roles."""
_LABELS: Final = Vocabulary(agree.LABELS)
_CUT: Final = Vocabulary(agree.CUT)
_SUMMARIES: Final = Vocabulary(agree.SUMMARY, agree.AGREED)


def trained_with(solver: Solver[Any, Any], level: Protection) -> tuple[Vocabulary, ...]:
    """Return the messages of training at a level of protection, with the exchange of keys before it."""
    # Parties that mask in training mask their scores after it too.
    layers = _LAYERS.get((solver.split, level), (protected.CLOSING,) if solver.agrees_on_keys else ())
    keys = (key_exchange.VOCABULARY,) if layers else ()
    return *keys, solver.vocabulary, *layers


def announced(terms: Terms, *, private_ids: bool = False, left: bool = False, hidden: bool = False) -> list[Vocabulary]:
    """Return all messages that a run on these terms can send, from enrolling to measuring.

    Parameters
    ----------
    private_ids
        Whether parties find their common rows without showing ids. The terms do not say.
    left
        Whether all rows of the label holder are kept. The terms do not say.
    hidden
        Whether only a party itself learns which of these it has. The terms do not say.
    """
    return list(_announced(terms, private_ids, left, hidden))


def _announced(terms: Terms, private_ids: bool, left: bool, hidden: bool) -> Iterator[Vocabulary]:
    yield enrol.VOCABULARY
    if isinstance(terms, HorizontalTerms):
        solver = find("horizontal", terms.job.solver)
        yield _SUMMARIES
        after = [*([] if terms.job.rule is None else [cutting.VOCABULARY]), measuring.VOCABULARY]
    else:
        assert isinstance(terms, VerticalTerms)
        solver = find("vertical", terms.job.solver)
        yield hidden_align.VOCABULARY if hidden else private_align.VOCABULARY if private_ids else align.VOCABULARY
        if left:
            yield presence.HIDDEN if hidden else presence.VOCABULARY
        if len(terms.active) > 1:
            yield _LABELS
        if choices_of_cut(terms):
            yield _CUT
        if terms.job.lost_party == "continue":
            yield leaving.VOCABULARY
        asked = terms.job.label_privacy
        after = [finishing.VOCABULARY] if asked is not None and asked.finish else []
        after += [scoring.VOCABULARY, *_shared_scores(terms)]
        if terms.job.missing_party == "absent":
            after.append(presence.ABSENCES)
        if terms.hides_nu and not terms.shares_weights:
            after.append(protected.OWN_WEIGHTS)
    messages = trained_with(solver, terms.job.protection)
    if private_ids and key_exchange.VOCABULARY not in messages:
        yield key_exchange.VOCABULARY
    yield from messages
    yield from after
    yield from (resuming.CHECKPOINTING, resuming.VOCABULARY)


def announced_for_scores(terms: Terms) -> list[Vocabulary]:
    """Return the messages that are sent when a finished vertical run scores new rows."""
    shared = _shared_scores(terms) if isinstance(terms, VerticalTerms) else ()
    return [enrol.VOCABULARY, asking.VOCABULARY, scoring.VOCABULARY, protected.CLOSING, *shared]


def _shared_scores(terms: VerticalTerms) -> tuple[Vocabulary, ...]:
    """Return the messages that score rows where weights stay in shares."""
    if not terms.shares_weights:
        return ()
    products = protected.SCORE_TRIPLES if terms.dealer is not None else protected.SCORE_CIPHERTEXTS
    return protected.SCORE_SHARES, products


def vocabularies() -> list[Vocabulary]:
    """Return all vocabularies once: before, during and after training."""
    solvers: Sequence[Solver[Any, Any]] = [*VERTICAL.values(), *HORIZONTAL.values()]
    found = [
        *(enrol.VOCABULARY, align.VOCABULARY, private_align.VOCABULARY, hidden_align.VOCABULARY),
        presence.VOCABULARY,
        *(agree.VOCABULARY, key_exchange.VOCABULARY),
        leaving.VOCABULARY,
        *(one.vocabulary for one in solvers if one.split == "vertical"),
        *(
            protected.MASKS,
            protected.CLOSING,
            protected.SHARES,
            protected.OWN_WEIGHTS,
            protected.SCORE_SHARES,
            protected.TRIPLES,
            protected.SCORE_TRIPLES,
            protected.CIPHERTEXTS,
            protected.SCORE_CIPHERTEXTS,
            finishing.VOCABULARY,
        ),
        *(one.vocabulary for one in solvers if one.split == "horizontal"),
        masked.VOCABULARY,
        cutting.VOCABULARY,
        *(
            scoring.VOCABULARY,
            presence.ABSENCES,
            measuring.VOCABULARY,
            asking.VOCABULARY,
            resuming.CHECKPOINTING,
            resuming.VOCABULARY,
        ),
        key_exchange.SEALING,
    ]
    return list(dict.fromkeys(found))


def schemas() -> dict[str, Schema]:
    """Return every kind of message by name."""
    return {schema.kind: schema for vocabulary in vocabularies() for schema in vocabulary}
