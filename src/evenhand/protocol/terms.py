"""Terms: what the participants of a run know about each other before it begins.

Terms are public among the participants, and nothing else is shared. A role is built from the terms and from its owner's
data alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, Self, get_args

import numpy as np

from evenhand.constraints.binding import inequalities
from evenhand.constraints.kinds import KINDS, Constraint
from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.constraints.slices import Inequality, Slice
from evenhand.constraints.thresholds import ANY_SHARE, Band, selected
from evenhand.errors import InputError, ProtocolError
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER

# Names become file names.
NAME: Final = re.compile(r"\w[\w .-]{0,63}")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that is not a valid file name, or that is the server's."""
    if name == SERVER:
        raise InputError(f"a {kind}'s name is {name!r}, which is the server's own; choose another")
    if not NAME.fullmatch(name):
        raise InputError(
            f"a {kind}'s name is {name!r}; a name has letters, digits, blanks, '-', '_' and '.', and begins with a "
            "letter or digit"
        )


Part = Literal["active", "passive", "client", "dealer"]
_VERSION: Final = 1


@dataclass(frozen=True)
class Terms:
    """What every participant knows.

    Attributes
    ----------
    job
        What is trained, with the solver named (never ``"auto"``) and its constraints.
    participants
        All participants except the server by name, with their parts, in the order in which sums are taken.
    n_rows
        Number of training rows: aligned ones, or all clients' together; zero if no role needs it.
    groups
        The values of each sensitive attribute, in the order that numbers them.
    """

    job: Job
    participants: Mapping[str, Part]
    n_rows: int
    groups: Mapping[str, tuple[Hashable, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, part in self.participants.items():
            check_name("client" if part == "client" else "party", name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the participants that have data."""
        return tuple(name for name, part in self.participants.items() if part != "dealer")

    @cached_property
    def inequalities(self) -> tuple[Inequality, ...]:
        """The inequalities, in the order that numbers them."""
        return self._with_band(inequalities(self.job.constraints, self.groups, self.job.cut))

    def _with_band(self, rows: tuple[Inequality, ...]) -> tuple[Inequality, ...]:
        """Add the bound on the selected share, where a rule's cut is searched for: the last inequality."""
        return (*rows, selected(self.job.band, self.job.cut)) if self.job.searches else rows

    @property
    def regulariser(self) -> float:
        """μ of this run."""
        return self.job.regulariser(self.n_rows)

    def at_step(
        self, step: int, cut: float | None = None, band: Band = ANY_SHARE, group_cuts: tuple[float, ...] = ()
    ) -> Self:
        """Return the terms for a later training of the run, or for choosing a cut; the same at all participants.

        Parameters
        ----------
        cut, band, group_cuts
            The cut that the rule has chosen, bounds of the share above it, and cuts by group, for those that know them.
        """
        known = {} if cut is None else {"cut": cut, "band": band, "group_cuts": group_cuts}
        return replace(self, job=self.job.resolved(step=step, **known))

    # -- on the wire

    @cached_property
    def plain_job(self) -> Mapping[str, Any]:
        """The job as plain values for JSON."""
        apart = {"constraints", "options", "label_privacy", "weights", "allow_experimental"}
        apart |= {"cut", "class_weight", "rule", "closed", "cut_by", "group_cuts", "band", "step", "classes"}
        apart |= {"missing_party", "lost_party"}
        settings = [one.name for one in fields(self.job) if one.name not in apart]
        asked, rule = self.job.label_privacy, self.job.rule
        return {
            **{name: plain(getattr(self.job, name)) for name in settings},
            "constraints": [_plain_constraint(one) for one in self.job.constraints],
            "options": {name: plain(self.job.options[name]) for name in sorted(self.job.options)},
            **({} if asked is None else {"label_privacy": asked.to_plain()}),
            **({"weights": self.job.weights} if self.job.protection in ("dealer", "encrypted") else {}),
            **({"allow_experimental": True} if self.job.allow_experimental else {}),
            # A cut that a rule chooses is known after training, and to fewer participants.
            **({"cut": self.job.cut} if self.job.cut and rule is None else {}),
            **({} if rule is None else {"rule": {name: one for name, one in asdict(rule).items() if one is not None}}),
            **({"missing_party": self.job.missing_party} if self.job.missing_party != "refuse" else {}),
            **({"lost_party": self.job.lost_party} if self.job.lost_party != "end" else {}),
            **({} if self.job.closed is None else {"closed": _plain_constraint(self.job.closed)}),
            **({"cut_by": self.job.cut_by} if self.job.cut_by else {}),
            **({"step": self.job.step} if self.job.step else {}),
            **({} if self.job.class_weight is None else {"class_weight": plain(self.job.class_weight)}),
            **({"classes": list(self.job.classes)} if self.job.classes else {}),
        }

    @property
    def settled(self) -> dict[str, Any]:
        """What a draft already holds: later terms of the same run must not change it."""
        return {"job": self.plain_job, "participants": dict(self.participants)}

    def to_plain(self) -> dict[str, Any]:
        """Return the terms as plain values for JSON; other group values are named by their text."""
        return {
            "version": _VERSION,
            "job": self.plain_job,
            "participants": dict(self.participants),
            "n_rows": self.n_rows,
            "groups": {name: [group_name(value) for value in values] for name, values in self.groups.items()},
        }

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read terms from JSON; participants in one process share the result for the same text."""
        found = _read(cls, text)  # type: ignore[arg-type]
        assert isinstance(found, cls)
        return found

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """Read terms from another participant; raise a ProtocolError if they are invalid."""
        try:
            if content["version"] != _VERSION:
                raise ProtocolError(f"the terms are of version {content['version']!r}; this evenhand reads {_VERSION}")
            return cls(**cls._fields(content))
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise ProtocolError(f"these are not the terms of a run: {error}") from error

    @classmethod
    def _fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        participants = dict(content["participants"])
        if not all(part in get_args(Part) for part in participants.values()):
            raise ProtocolError(f"a participant's part is unknown: {participants}")
        return {
            "job": _job(json.dumps(content["job"])),
            "participants": participants,
            "n_rows": int(content["n_rows"]),
            "groups": {str(name): tuple(values) for name, values in content["groups"].items()},
        }

    @cached_property
    def digest(self) -> str:
        """Checksum of the terms: participants with the same digest agree on the same run.

        It covers the order of participants and of groups, which numbers them.
        """
        text = json.dumps(self.to_plain(), ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class VerticalTerms(Terms):
    """Terms of parties that hold different columns of the same rows.

    Attributes
    ----------
    warm
        Whether the run starts from the weights of an earlier one.
    """

    warm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if "active" not in self.participants.values():
            raise InputError("no party is active; the one that holds the labels must be")
        if list(self.participants.values()).count("dealer") > 1:
            raise InputError("two participants are dealers; one is enough, and each of them must be trusted")

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the parties that hold labels and groups; the first has the intercept."""
        return tuple(name for name, part in self.participants.items() if part == "active")

    @property
    def passive(self) -> tuple[str, ...]:
        return tuple(name for name, part in self.participants.items() if part == "passive")

    @property
    def dealer(self) -> str | None:
        """Name of the dealer, which has no data and provides randomness; None if there is none."""
        return next((name for name, part in self.participants.items() if part == "dealer"), None)

    @property
    def only_sums(self) -> bool:
        """Whether the server learns only sums over all passive parties."""
        return self.job.protection not in ("auto", "none")

    @property
    def hides_nu(self) -> bool:
        """Whether passive parties train on shares of their weights, and receive neither ν nor X_kᵀν."""
        return self.job.protection in ("dealer", "encrypted")

    @property
    def shares_weights(self) -> bool:
        """Whether weights of passive parties stay in shares after training, so that nobody knows them."""
        return self.hides_nu and self.job.weights == "shared"

    def without(self, gone: Collection[str], *, warm: bool) -> VerticalTerms:
        """Return the terms of the training that follows when some parties are gone."""
        rest = {name: part for name, part in self.participants.items() if name not in gone}
        return replace(self, participants=rest, warm=warm)

    def to_plain(self) -> dict[str, Any]:
        return super().to_plain() | {"warm": self.warm}

    @classmethod
    def _fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return super()._fields(content) | {"warm": bool(content["warm"])}


@dataclass(frozen=True)
class HorizontalTerms(Terms):
    """Terms of clients that hold different rows of the same columns.

    Attributes
    ----------
    shape
        Shape of one row of features.
    classes
        Number of classes, or None for labels ±1.
    noise
        The mechanism by which clients add noise to their updates, with all its numbers as plain values, and the ε and δ
        that they amount to where an ε is stated. Empty without noise; ``{"by_client": {…}}`` where clients differ.
    scope
        Where constraints hold, and with which bounds.
    server_rows
        Whether the server has rows of its own; a global constraint is then over these.
    slice_counts
        Number of rows of all clients in each slice of a global constraint; None if the solver does not need it.
    weights
        Total weight of all clients' rows, and of those in each slice of a global constraint; None if rows weigh alike.
    left_out
        For each client the inequalities (by number) that do not apply, because the client has no rows of a slice.
    """

    shape: tuple[int, ...] = ()
    classes: int | None = None
    noise: Mapping[str, Any] = field(default_factory=dict)
    scope: ConstraintScope = EVERYWHERE
    server_rows: bool = False
    slice_counts: Mapping[Slice, int] | None = None
    weights: tuple[float, Mapping[Slice, float]] | None = None
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def only_sums(self) -> bool:
        """Whether the server learns only sums of clients' answers."""
        return self.job.protection == "masked"

    @property
    def protected(self) -> bool:
        """Whether clients add noise to their updates."""
        return bool(self.noise)

    def noise_of(self, name: str) -> Mapping[str, Any]:
        """Return the mechanism of one client."""
        found: Mapping[str, Any] = self.noise.get("by_client", {name: self.noise}).get(name, {})
        return found

    @property
    def noise_covers(self) -> bool:
        """Whether every answer of training is clipped and has noise of its own, or a share of a sum's noise."""
        return self.noise.get("noise_multiplier", 0.0) > 0

    @property
    def epsilon(self) -> float | None:
        """The ε that all clients' messages together keep to; None if none is stated."""
        return self.noise.get("epsilon")

    @property
    def settled(self) -> dict[str, Any]:
        return super().settled | {
            "noise": plain(self.noise),
            "scope": plain(asdict(self.scope)),
            "server_rows": self.server_rows,
        }

    def inequalities_at(self, name: str) -> tuple[Inequality, ...]:
        """Return the inequalities with the bounds of this client or of the server, without missing slices."""
        asked = self.scope.constraints_of(name, self.job.constraints)
        rows = self.inequalities
        if asked != self.job.constraints:
            rows = self._with_band(inequalities(asked, self.groups, self.job.cut))
        return tuple(row for place, row in enumerate(rows) if place not in self.left_out.get(name, ()))

    def _with_band(self, rows: tuple[Inequality, ...]) -> tuple[Inequality, ...]:
        # The share is that of all clients' rows together.
        return super()._with_band(rows) if self.scope.scope == "global" and not self.server_rows else rows

    @property
    def shared_inequalities(self) -> tuple[Inequality, ...]:
        """The inequalities over all clients' data together."""
        return () if self.scope.scope == "local" or self.server_rows else self.inequalities_at(SERVER)

    def own_inequalities(self, name: str) -> tuple[Inequality, ...]:
        """Return the inequalities over this client's data alone, or over the server's."""
        holds = self.server_rows and self.scope.scope != "local" if name == SERVER else self.scope.scope != "global"
        return self.inequalities_at(name) if holds else ()

    @property
    def row_names(self) -> tuple[str, ...]:
        """All inequalities in words: each client's (with its name), the server's, and the shared ones."""
        own = [f"{name}: {row}" for name in (*self.names, SERVER) for row in self.own_inequalities(name)]
        return (*own, *map(str, self.shared_inequalities))

    def to_plain(self) -> dict[str, Any]:
        counts = self.slice_counts
        return super().to_plain() | {
            "shape": list(self.shape),
            "classes": self.classes,
            "noise": plain(self.noise),
            "scope": asdict(self.scope),
            "server_rows": self.server_rows,
            "slice_counts": None if counts is None else _listed(counts),
            "left_out": {name: list(rows) for name, rows in self.left_out.items()},
            **({} if self.weights is None else {"weights": [self.weights[0], _listed(self.weights[1])]}),
            # All clients know the cut that a rule has chosen, so that masks and codes of later steps depend on it.
            **(
                {"chosen": [self.job.cut, *self.job.band, *self.job.group_cuts]}
                if self.job.rule is not None and self.job.step
                else {}
            ),
        }

    @classmethod
    def _fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        counts, weights = content["slice_counts"], content.get("weights")
        return super()._fields(content) | {
            "shape": tuple(int(size) for size in content["shape"]),
            "classes": content["classes"],
            "noise": dict(content["noise"]),
            "scope": ConstraintScope(**content["scope"]),
            "server_rows": bool(content["server_rows"]),
            "slice_counts": None if counts is None else {Slice(*part): int(count) for *part, count in counts},
            "weights": None
            if weights is None
            else (float(weights[0]), {Slice(*part): float(weight) for *part, weight in weights[1]}),
            "left_out": {str(name): tuple(rows) for name, rows in content["left_out"].items()},
        }


def _listed(numbers: Mapping[Slice, float]) -> list[list[Any]]:
    """Return numbers of slices as JSON values."""
    return [[part.label, part.attribute, plain(part.group), number] for part, number in numbers.items()]


@lru_cache(maxsize=4)
def _read(kind: type[Terms], text: str) -> Terms:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("these are not the terms of a run: they are not JSON") from error
    return kind.from_plain(content)


@lru_cache(maxsize=4)
def _job(text: str) -> Job:
    """Read a job from JSON; the draft and the final terms of a run share the result."""
    job = json.loads(text)
    constraints = tuple(map(_read_constraint, job.pop("constraints")))
    closed = None if job.get("closed") is None else _read_constraint(job.pop("closed"))
    return Job(**{**job, "constraints": constraints, "closed": closed, "hidden": tuple(job["hidden"])})


def _plain_constraint(one: Constraint) -> dict[str, Any]:
    return {"kind": one.kind, **{name: plain(value) for name, value in asdict(one).items()}}


def _read_constraint(one: Mapping[str, Any]) -> Constraint:
    return KINDS[one["kind"]](**{name: value for name, value in one.items() if name != "kind"})


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: itself, a list or mapping of such values, or its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def group_name(value: Any) -> str | int | float | bool | None:
    """Return a group as JSON has it: a value that is no text, number or boolean is named by its text."""
    found: str | int | float | bool | None = str(value) if isinstance(value, (list, tuple)) else plain(value)
    return found
