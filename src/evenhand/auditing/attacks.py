"""All attacks of an audit, in one list: the idea, the messages that it reads, and its control; and what is not tried.

To add an attack, write a function from a `Case` to findings, and a control in `controls.py` on which it must succeed,
and name both here. To add a kind of message, say in `views.READ` (or `client_views.READ`) what its fields are, or say
in `NOT_TRIED` why no attack reads it. A test compares both with the schemas of all messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from evenhand.auditing import (
    cipher_attacks,
    column_attacks,
    controls,
    difference_attacks,
    gradient_attacks,
    histogram_attacks,
    row_attacks,
    separation,
    update_attacks,
    word_attacks,
)
from evenhand.auditing.controls import Trial
from evenhand.auditing.findings import Finding
from evenhand.errors import RunError


@dataclass(frozen=True)
class Attack:
    """An attack.

    Attributes
    ----------
    name
        Short name, in findings.
    reads
        Natures of the fields that it reads.
    run
        Returns findings about one attacker; its first docstring line is the idea.
    control
        Runs the attack on a problem where it must succeed.
    targets
        Kinds of labels that it is made for.
    """

    name: str
    reads: frozenset[str]
    run: Callable[[Any], Iterator[Finding]]
    control: Callable[[], Trial]
    targets: frozenset[str] = frozenset(("labels", "classes", "numbers"))

    @property
    def idea(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0]

    def findings(self, case: Any) -> Iterator[Finding]:
        """Yield the findings of the attack, each with the result of the control."""
        for one in self.run(case):
            yield replace(one, attack=self.name, control=outcome(self).value)

    def kinds(self, read: Mapping[str, Mapping[str, str]]) -> set[str]:
        """Return the kinds of messages that the attack reads."""
        return {kind for kind, fields in read.items() if self.reads & set(fields.values())}


@cache
def outcome(attack: Attack) -> Trial:
    """Run an attack on its control; raise an error if it does not succeed there."""
    found = attack.control()
    if found.value < 0.5 * (1.0 + found.floor):
        raise RunError(
            f"the attack {attack.name!r} reaches {found.value:.2f} on its control, not far above chance "
            f"({found.floor:.2f}): its result on a run would mean nothing"
        )
    return found


def _reads(*natures: str) -> frozenset[str]:
    return frozenset(natures)


_TWO: Final = frozenset(("labels",))
"""Attacks on ±1 only: they read the size of the logistic loss's derivative, or sums of ±1."""
VERTICAL: Final = (
    Attack("sign", _reads("derivative"), row_attacks.sign, controls.sign, frozenset(("labels", "classes"))),
    Attack("target", _reads("derivative"), row_attacks.number, controls.number, frozenset(("numbers",))),
    Attack("bit with score", _reads("derivative"), row_attacks.response, controls.response, _TWO),
    Attack("tilt", _reads("derivative"), row_attacks.tilt, controls.tilt),
    Attack("score", _reads("derivative"), row_attacks.score, controls.score, _TWO),
    Attack(
        "learned rows",
        _reads("derivative", "contribution", "category", "joint", "gradient"),
        row_attacks.everything,
        controls.everything,
    ),
    Attack("final weights", _reads(), row_attacks.final_weights, controls.final_weights, _TWO),
    Attack("known labels", _reads(), row_attacks.known_labels, controls.known_labels, _TWO),
    Attack("minimum norm", _reads("gradient"), gradient_attacks.least_norm, controls.minimum_norm, _TWO),
    Attack("leverage", _reads("gradient"), gradient_attacks.leverage, controls.leverage, _TWO),
    Attack("subset sums", _reads("gradient"), gradient_attacks.subset_sums, controls.subset_sums, _TWO),
    Attack("variance", _reads("contribution", "category", "joint"), column_attacks.variance, controls.variance),
    Attack(
        "learned columns",
        _reads("contribution", "category", "joint", "derivative"),
        column_attacks.learned_columns,
        controls.learned_columns,
    ),
    Attack(
        "nearest records",
        _reads("contribution", "joint", "derivative"),
        column_attacks.nearest_records,
        controls.nearest_records,
    ),
    Attack(
        "distinct values",
        _reads("contribution", "category", "joint"),
        column_attacks.distinct_values,
        controls.distinct,
    ),
    Attack("peaks", _reads("contribution"), column_attacks.peaks, controls.peaks),
    Attack("blind separation", _reads("contribution"), separation.two_valued, controls.blind_separation),
    Attack("differencing", _reads("step"), difference_attacks.differencing, controls.differencing, _TWO),
    Attack("words", _reads("words"), word_attacks.words, controls.words),
    Attack("noise", _reads("ciphertext"), cipher_attacks.noise, controls.noise),
)
HORIZONTAL: Final = (
    Attack("membership", _reads("model", "update", "slope"), update_attacks.membership, controls.membership),
    Attack(
        "learned membership", _reads("model", "update", "slope"), update_attacks.learned_membership, controls.membership
    ),
    Attack("inversion", _reads("model", "update", "slope"), update_attacks.inversion, controls.inversion),
    Attack("counts", _reads("counts"), histogram_attacks.counts, controls.counts),
    Attack("histograms", _reads("histogram"), histogram_attacks.histograms, controls.histograms, _TWO),
)

_AGREED: Final = "it holds what all participants agree on"
_NUMBERS: Final = "it holds a few numbers over all rows of a party; `differencing` shows what such numbers tell"
_KEYS: Final = "it holds public keys; the audit takes no key apart"
_OF_MODEL: Final = "it holds a part of the model or a request, from which nothing about single rows was derived"
_COUNTS: Final = "it holds exact counts or sums over slices; two runs that differ by one person tell that person"
_IDS: Final = "it holds ids, and the audit gives every attacker the ids of the common rows"
_ENCRYPTED: Final = "it is encrypted for others than its receiver"
_NOT_TRIED: Final[Mapping[str, str]] = {
    _AGREED: "offer, accepted, refused, outcome, agreed, checkpoint, saved, have, resume, exchange, scored, measured, "
    "model-received, vouched, present-agreed, pause, paused, go-on",
    _IDS: "ids, common-rows, unmatched, blinded-ids, fully-blinded-ids, labelled-ids, asked, held, taken, "
    "held-out, presence, holders-blinded-ids, own-blinded-ids, twice-blinded-ids, enough-rows, aligned",
    _KEYS: "public-key, public-keys, joining, column-count",
    _NUMBERS: "spectrum, gradient-norm, norms, go-back, full-pass, begin, finished, applied, proceed, staleness, "
    "next-triple, audited, score-triple, share-kept, absence-score, fairness, difference, share",
    _OF_MODEL: "leaf-values, routes, relation, score-request, trained-model, tilt, prox-al begin, prox-al finish, "
    "sqp finish, reach, sqp leave out, trees count, trees splits, trees values, trees finish, look at scores, "
    "common cut",
    _COUNTS: "summary, sums, rates, counts-by-group, prox-al summands, sqp left out, trees histograms, "
    "trees leaf sums, scores in bins",
    "it goes to those who hold the labels anyway": "labels, cut",
    "it stays in the organisation of the label holder": "own-columns, signs",
    "it is sent behind masks only, as masked words": "shared-direction, shared-scores",
    "its words are uniform to a receiver without the dealer's or the party's secret, and no attack combines them": (
        "corrections, hidden-shares, hidden-weights, audit, masked-scores, opened-shares, unmask"
    ),
    _ENCRYPTED: "sealed, encrypted-words, encrypted-coefficients, encrypted-weights",
}
NOT_TRIED: Final[Mapping[str, str]] = {
    kind: reason for reason, kinds in _NOT_TRIED.items() for kind in kinds.split(", ")
}
"""Kinds of messages that no attack reads, and why."""
BEYOND: Final = (
    "participants that do not follow the protocol",
    "the times at which messages arrive",
    "networks: rows are not reconstructed from their updates",
)
"""What no attack of an audit tries."""


def tried(
    attacks: Iterable[Attack], read: Mapping[str, Mapping[str, str]], kinds: Iterable[str]
) -> dict[str, list[str]]:
    """Return which of these kinds of messages each attack reads."""
    present = set(kinds)
    return {one.name: sorted(one.kinds(read) & present) for one in attacks}


def untried(read: Mapping[str, Mapping[str, str]], kinds: Iterable[str]) -> dict[str, str]:
    """Return those of these kinds of messages that no attack reads, and why."""
    return {kind: NOT_TRIED.get(kind, "no attack reads it") for kind in sorted(set(kinds)) if kind not in read}
