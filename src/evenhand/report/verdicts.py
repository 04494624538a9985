"""Judge the constraints of a finished run: on its training rows, and for new people.

A bound that holds on the training rows may not hold for others. So a verdict is good only if rows that the model has
not seen support it:

| state | rule |
|---|---|
| missed | the value on the training rows is above the bound, or the solver says so of leave-one-out scores |
| contradicted | on held-out rows the value exceeds the bound by two standard errors, or more as the worst of many |
| shown | the 95 % bound from held-out rows, or the proof asked for with `confidence`, is within the bound |
| met | none of these: met on the training rows, but not shown for new people |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from evenhand.constraints.group_cuts import MEANING
from evenhand.constraints.kinds import KINDS
from evenhand.constraints.proving import critical_value
from evenhand.constraints.thresholds import RULES
from evenhand.metrics.majority import below_majority as below

State: TypeAlias = Literal["missed", "contradicted", "met", "shown"]
HEADLINES: Final[Mapping[State, str]] = {
    "missed": "Not met on the training rows",
    "contradicted": "Contradicted by held-out rows",
    "met": "Met on the training rows, not shown for new people",
    "shown": "Shown for new people",
}
"""The states, worst first, in words."""
MEANS: Final = {
    "loss": "mean loss",
    "error": "error rate",
    "positive": "selection rate",
    "prediction": "mean prediction",
}
"""What the mean of each measure is called."""
_ORDER: Final = tuple(HEADLINES)
FEW: Final = 5
"""Nearly nobody: fewer than a fifth of as many rows as are positive. Nearly everybody: the same of negatives."""


@dataclass(frozen=True)
class Judgement:
    """How one constraint came out: its entries in the result for training and held-out rows, and its state."""

    train: Mapping[str, Any]
    test: Mapping[str, Any] | None
    state: State

    @property
    def is_gap(self) -> bool:
        """Whether the bound applies to differences between groups, and not to each value on its own."""
        kind = KINDS.get(self.train["constraint"])
        return kind is not None and kind.compares_groups and not any(one.name == "limit" for one in fields(kind))

    @property
    def quantity(self) -> str:
        """What the bound applies to: a gap between groups, or one value."""
        if self.is_gap:
            return "largest gap"
        return MEANS[self.train["measure"]]


def verdicts(result: Mapping[str, Any]) -> list[Judgement]:
    """Judge each constraint that was measured on the training rows."""
    held, proofs = result.get("constraints", {}), result.get("proofs") or ()
    violated, left = _violated_left_out(result), list(held.get("test", ()))
    found = []
    for train in held.get("train", ()):
        # A constraint that could not be measured on the few held-out rows has no entry there.
        test = next((left.pop(place) for place, one in enumerate(left) if _is_same(one, train)), None)
        proven = bool(proofs) and all(one["holds"] for one in proofs)
        found.append(Judgement(train, test, _judge(train, test, violated, proven)))
    return found


def worst(found: list[Judgement]) -> State | None:
    """Return the worst state of all constraints; None without constraints."""
    return min((one.state for one in found), key=_ORDER.index, default=None)


def judged_left_out(result: Mapping[str, Any]) -> bool:
    """Return whether the solver judged the model on leave-one-out scores, as trees do."""
    return "violation on training rows" in result.get("statistics", {})


def certified_values(result: Mapping[str, Any]) -> str:
    """Return the three numbers of the certificate, for the inequality that is nearest to its bound or beyond it.

    These are its value on the training rows, its value on rows that models had not seen (cross-fitted, or left out one
    by one), and what was asked. Empty if the solver states none.
    """
    stated = result.get("statistics", {}).get("constraints") or ()
    if not stated:
        return ""
    one = max(stated, key=_excess)
    train, unseen = one["training rows"], one["held-out rows"]
    lower, upper = one["asked"]
    asked = (
        f"at most {upper:.3g}"
        if lower is None
        else f"at least {lower:.3g}"
        if upper is None
        else f"{lower:.3g} to {upper:.3g}"
    )
    there = "not estimated on rows left out of training" if unseen is None else f"{unseen:.3f} on rows left out of it"
    return f"certificate: {one['row']} is {train:.3f} on the training rows and {there}; {asked} was asked"


def _excess(one: Mapping[str, Any]) -> float:
    value = one["training rows"] if one["held-out rows"] is None else one["held-out rows"]
    lower, upper = one["asked"]
    return max(-math.inf if lower is None else lower - value, -math.inf if upper is None else value - upper)


def holds(one: Mapping[str, Any]) -> bool:
    """Return whether a constraint's value is within its bound, to the solver's precision."""
    return one["estimate"] is not None and one["estimate"] <= one["asked"] + 1e-6 + 1e-4 * abs(one["asked"])


def contradictions(result: Mapping[str, Any]) -> list[str]:
    """Say which constraints held-out rows contradict, with the value and its standard error."""
    return [
        f"held-out rows contradict the constraint: {one.test['row']} is {one.test['estimate']:.3f} with a standard "
        f"error of {one.test['standard_error'] or 0.0:.3f}, and {one.test['asked']:g} was asked. Use more rows, a "
        "narrower bound than the one that is to hold, or confidence in the constraint"
        for one in verdicts(result)
        if one.state == "contradicted" and one.test is not None
    ]


def in_short(result: Mapping[str, Any], constrained: bool) -> str:
    """Return the outcome of a run in a few words."""
    found = verdicts(result)
    asked = "; ".join(f"{one.train['constraint'].replace('-', ' ')} within {one.train['asked']:g}" for one in found)
    ended = "" if result["certificate"]["converged"] else ", not converged"
    state = worst(found)
    if state is None:
        return ("no constraint" if not constrained else "the constraint was not measured") + ended
    words = HEADLINES[state]
    return f"{asked}: {words[0].lower()}{words[1:]}{ended}"


def _judge(train: Mapping[str, Any], test: Mapping[str, Any] | None, violated: bool, proven: bool) -> State:
    if violated or not holds(train):
        return "missed"
    if test is None or test["estimate"] is None:
        return "shown" if proven else "met"
    if test["estimate"] - _errors(test) * (test["standard_error"] or 0.0) > test["asked"]:
        return "contradicted"
    within = test["bound"] is not None and test["bound"] <= test["asked"]
    return "shown" if within or (proven and holds(test)) else "met"


_TWO_ERRORS: Final = 0.9545
"""Probability that one value is within two standard errors."""


def _errors(test: Mapping[str, Any]) -> float:
    """Return by how many standard errors chance seldom takes the worst of a constraint's values beyond the bound."""
    return critical_value(_TWO_ERRORS, test.get("comparisons", 1))


def _violated_left_out(result: Mapping[str, Any]) -> bool:
    """Return whether the solver found a violation on leave-one-out scores; one per cent of the bound is precision."""
    if not judged_left_out(result):
        return False
    least = min((abs(one["asked"]) for one in result["constraints"]["train"]), default=0.0)
    return bool(result["certificate"]["violation"] > 1e-6 + 1e-2 * least)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[key] == other[key] for key in ("constraint", "measure", "asked"))


# -- remarks, for the terminal and the page


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know before using the model: few or many selected, bounds exceeded."""
    found = (went_without(result), by_group(result), selects_few(result), below_majority(result), beyond_bounds(result))
    return [said for each in found for said in each]


def went_without(result: Mapping[str, Any]) -> list[str]:
    """Remark on parties that were gone for good in the middle of training."""
    return [
        f"the model is without {one['party']}, which was gone in round {one['round']} of training: its certificate and "
        "all that is measured here are of the parties that are left"
        for one in result.get("gone", ())
    ]


def by_group(result: Mapping[str, Any]) -> list[str]:
    """Remark on cuts by group: what they mean, and where they are."""
    cut = result.get("cut", {})
    if cut.get("by") is None:
        return []
    cuts = ", ".join(f"{group} above {score:.3f}" for group, score in cut["groups"].items())
    return [
        f"there is a cut for each group of {cut['by']!r} ({cuts}), so {MEANING}. New rows need their group; rows of no "
        f"known group get the general cut, {cut['score']:.3f}"
    ]


def selects_few(result: Mapping[str, Any]) -> list[str]:
    """Remark on a cut at which nearly nobody or nearly everybody is selected, compared with the share of positives."""
    parts = result.get("performance") or {}
    part = "test" if "test" in parts else "train"
    if not parts.get(part):
        return []
    one, cut = parts[part][0], result.get("cut", {})
    rows, positives, selected = one["rows"], one["positives"], one["selected"]
    if cut.get("rule") == "rate":
        allowed = int((cut.get("asked") or 0.0) * rows)
        return _against_capacity(selected, rows, allowed, result.get("constraints", {}).get(part, ()))
    few, many = FEW * selected < positives, FEW * (rows - selected) < rows - positives
    if not (few or many):
        return []
    who = "nearly nobody" if few else "nearly everybody"
    where = "held-out" if part == "test" else "training"
    rule = result.get("cut", {}).get("rule", "")
    advice = (
        f"The rule {rule!r} chose this cut; look at its numbers"
        if rule in RULES
        else 'Choose the cut with threshold in [job], such as "cost" or "recall"'
    )
    return [
        f"{who} is selected: {selected:,} of the {rows:,} {where} rows, where {positives:,} are positive; "
        f"{one['hits']:,} of these are found. {advice}"
    ]


def below_majority(result: Mapping[str, Any]) -> list[str]:
    """Remark on a model that is right less often than the commoner label for everybody, and say what that may mean."""
    parts = result.get("performance") or {}
    part = "test" if "test" in parts else "train"
    if not parts.get(part):
        return []
    one = parts[part][0]
    rows, positives, selected, hits = (one[name] for name in ("rows", "positives", "selected", "hits"))
    right, common = hits + (rows - positives) - (selected - hits), max(positives, rows - positives)
    where = "held-out" if part == "test" else "training"
    bounded = result.get("constraints", {}).get(part, ())
    said = below(right, common, rows, where, (one["constraint"] for one in bounded))
    return [said] if said else []


def _against_capacity(selected: int, rows: int, allowed: int, bounded: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remark on a capacity that is exceeded, or hardly used, beyond what chance does; with the bounds beside it."""
    if abs(selected - allowed) <= max(1.0, 3.0 * math.sqrt(allowed)):
        return []
    what = "more rows are selected than" if selected > allowed else "fewer rows are selected than"
    gaps = "; ".join(
        f"{one['row']} is {one['estimate']:.3f}, where {one['asked']:g} is asked"
        for one in bounded
        if one["estimate"] is not None
    )
    both = (
        f" Beside it, {gaps}. Rates are also equal where nobody or everybody is selected: widen the bound"
        if gaps
        else ""
    )
    return [f"{what} the capacity allows: {selected:,} of {rows:,} rows, where it allows {allowed:,}.{both}"]


def beyond_bounds(result: Mapping[str, Any]) -> list[str]:
    """Return a remark for each bound that the held-out rows exceed, and whether this may be chance."""
    said = []
    for one in result.get("constraints", {}).get("test", ()):
        value, error = one["estimate"], one["standard_error"]
        if value is None or value <= one["asked"]:
            continue
        line = (
            f"{one['row']}: {value:.3f} on the held-out rows, above the bound of {one['asked']:g} ({one['constraint']})"
        )
        if error is not None:
            likely = value - one["asked"] <= _errors(one) * error
            chance = "this may be chance" if likely else "this is unlikely to be chance"
            compared = one.get("comparisons", 1)
            worst_of = f", and it is the worst of {compared}" if compared > 1 else ""
            line += f"; the standard error is {error:.3f}{worst_of}, so {chance}"
        said.append(line)
    return said
