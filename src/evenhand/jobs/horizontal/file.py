"""Job files of horizontal runs: a table for each client, and settings that all clients share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from evenhand.constraints.group_cuts import check_attribute
from evenhand.constraints.groups import crossed_name
from evenhand.constraints.scope import ConstraintScope, MissingSlices, Scope
from evenhand.constraints.thresholds import RULES
from evenhand.data.tables.readers import is_libsvm
from evenhand.errors import InputError, JobError, MissingExtraError
from evenhand.horizontal.problem import UpdateNoise
from evenhand.horizontal.summaries import learns_crossings
from evenhand.jobs.horizontal.noise import PrivacySection, rounded_up
from evenhand.jobs.label_keys import LabelSection, Plain, check_classes
from evenhand.jobs.parsing import every, key, once, parsed, under
from evenhand.jobs.schema import (
    ClockedFile,
    EncodedSection,
    GroupedSection,
    ModelTable,
    TableSection,
    TrainingSection,
    check_clock,
    check_columns,
    check_grouped,
    check_names,
    located,
    to_model,
)
from evenhand.models.kinds import ModelKind
from evenhand.printing import quoted, toml_key
from evenhand.privacy.accounting import NoGuaranteeError, privacy_statement
from evenhand.privacy.mechanism import described
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.solvers.registry import HORIZONTAL, check_job, choose_solver, stopping
from evenhand.training.protection import LEARNED_COLUMNS, LEARNED_GROUPS, LEARNED_LABELS

# Keys that jobs on pictures do not take: they have no features in tables, and a picture for every row.
_OF_FEATURES: Final = ("columns", "types", "missing", "max_levels", "encoder", "scale", "duplicates", "incomplete")


class HorizontalJobSection(TrainingSection):
    """`[job]`: what to train and how."""

    split: Literal["horizontal"] = key("Clients have rows of different people, with the same columns.", "horizontal")
    scope: Scope = key(
        "Rows that a constraint is about: all clients' together, each client's (`local`), or `both`. The last two are "
        "for `sqp` and `prox-al`.",
        "local",
        "global",
    )
    missing_slices: MissingSlices = key(
        "A client without rows in a slice of a local constraint: refuse it, or leave the constraint out there.",
        "leave out",
        "refuse",
    )
    model: ModelTable = key(
        "Shared model: `linear`, `mlp`, `trees`, or `resnet18` for images; see [models](#models).",
        {"kind": "mlp", "hidden": [64]},
        "linear",
    )
    start: str | None = key(
        "Safetensors file with initial weights; for averaging solvers.", "weights.safetensors", None
    )
    least_summed: int = key(
        "With masks: fewest clients in every sum that the server can form, differences of sums included. `1` accepts "
        "clients that drop out.",
        3,
        2,
        ge=1,
    )
    max_rounds: int | None = key(
        "Most communication rounds. By default 200 (`sqp`), 300 (`trees`), 100,000 (`prox-al`) or 100 (averaging).",
        50,
        None,
    )
    tol: float | None = key(
        "Stopping tolerance on stationarity and violation (1e-3); averaging solvers train all rounds, and it "
        "bounds the violation alone.",
        1e-4,
        None,
    )


class DataSection(EncodedSection, GroupedSection):
    """`[data]`: the columns that every client's table has, and how they are encoded."""

    label: LabelSection
    sensitive: list[str] = key("Columns that define groups.", ["sex"], [])
    columns: list[str] | None = key(
        "Columns to use as features. By default all but id, label, weight and sensitive columns.", ["age", "ward"], None
    )
    lacking_columns: Literal["refuse", "missing"] = key(
        "What to do if a client's table lacks feature columns. `missing`: features are those of all clients together, "
        "and a column that a client lacks is missing in all its rows.",
        "missing",
        "refuse",
    )
    id: str | None = key("Column that identifies a person. By default rows are numbered.", "patient", None)
    scale: bool = key("Whether numeric columns are standardised, over all clients.", False, True)
    encoder: str | None = key(
        "Encoder that the clients agreed on. By default it is fitted to sums over all clients' training rows.",
        "agreed.json",
        None,
    )
    groups: dict[str, list[Plain]] | None = key(
        "Groups of each sensitive attribute. By default clients send the groups that they have.",
        {"sex": ["female", "male"]},
        None,
    )
    weight: str | None = key(
        "Column with the weight of each row in means, such as its exposure; only with a `loss` of numbers.",
        "years",
        None,
    )
    file: str | None = key("Column with the file name of a row's image; for folders of images.", "jpg", None)
    size: int | None = key("Side that images of a folder are resized to.", 64, None, ge=1)

    @property
    def beside(self) -> list[str]:
        """Columns that every table has and that are no features: label, sensitive columns and weight."""
        return [self.label.column, *self.sensitive, *([] if self.weight is None else [self.weight])]


class ServerSection(TableSection):
    """`[server]`: rows that the server holds, and its own bound."""

    limit: float | None = key("Bound of the global constraint, in place of its ε or limit.", 0.4, None)

    @property
    def has_rows(self) -> bool:
        return self.table is not None or self.database is not None


class ClientSection(TableSection):
    """`[[client]]`: a client, its table, its images and its own bound."""

    name: str = key("Name of the client.", "ghent")
    images: str | None = key("Images of the table's rows: `.npy`, `.safetensors` or a folder.", "ghent.npy", None)
    limit: float | None = key("Bound of this client's local constraint, in place of its ε or limit.", 0.6, None)


class HorizontalJobFile(ClockedFile):
    """A complete job file of a horizontal run."""

    job: HorizontalJobSection
    data: DataSection
    server: ServerSection = Field(default_factory=ServerSection)
    client: list[ClientSection] = Field(min_length=1)
    privacy: PrivacySection | None = None

    @property
    def has_images(self) -> bool:
        """Whether rows are pictures; tables then hold only labels and groups."""
        return any(getattr(client, "images", None) is not None for client in self.client)

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None for two."""
        return None if self.data.label.classes is None else len(self.data.label.classes)

    @once
    def to_model(self) -> ModelKind:
        return to_model(self.job.model, "horizontal")

    @once
    def to_job(self) -> Job:
        """Return what to train, with the solver named."""
        section, model = self.job, self.to_model()
        solver = choose_solver(
            section.solver,
            model=model.kind,
            constrained=bool(section.constraint),
            two_classes=self.data.label.classes is None,
            protected=self.privacy is not None,
        )
        found = stopping(solver, section.options, section.tol, section.max_rounds)
        classes = tuple(self.data.label.classes or ())
        more = {"least_summed": section.least_summed, "classes": classes, **model.job_fields}
        return section.to_job(solver=solver, **found, **more)

    @once
    def to_scope(self) -> ConstraintScope:
        limits = {client.name: client.limit for client in self.client if client.limit is not None}
        if self.server.limit is not None:
            limits[SERVER] = self.server.limit
        return ConstraintScope(self.job.scope, limits or None, self.job.missing_slices)

    @once
    def to_protection(self) -> UpdateNoise | None:
        """Return the mechanism; if ε is given instead of a noise multiplier, compute the noise for it."""
        return None if self.privacy is None else self.privacy.to_mechanism(self.to_job().max_rounds, self._drawn)

    def _drawn(self) -> int:
        """Return the number of clients in a round."""
        return round(getattr(self._settings, "participation", 1.0) * len(self.client))

    def uncovered(self, columns_learned: bool) -> list[str]:
        """Return what clients say about their rows without noise: before the first round, and in measurements."""
        job, found = self.to_job(), [LEARNED_COLUMNS] if columns_learned else []
        if self.data.sensitive and (self.data.groups is None or learns_crossings(job.constraints, self.data.groups)):
            found.append(LEARNED_GROUPS)
        if self.data.label.classes is None and None in (self.data.label.positive, self.data.label.negative):
            found.append(LEARNED_LABELS)
        if job.solver == "fairfed" or job.options.get("report_every"):
            found.append("what clients measure on their rows (solver fairfed, or options.report_every)")
        return found

    @once
    def to_noise(self) -> dict[str, Any]:
        """Return the noise of the terms: the mechanism, δ, and the ε of the whole run if one can be stated."""
        if self.privacy is None:
            return {}
        mechanism, delta = self.to_protection(), self.privacy.delta
        try:
            others, rounds = self.uncovered(self.data.encoder is None), self.to_job().max_rounds
            epsilon = rounded_up(privacy_statement(mechanism, rounds, delta, unprotected=others).epsilon)
        except (NoGuaranteeError, MissingExtraError):
            epsilon = None
        return {**described(mechanism), "delta": delta, "epsilon": epsilon}

    @property
    def _settings(self) -> Any:
        """Return the solver's own options."""
        job = self.to_job()
        return HORIZONTAL[job.solver].settings(job)


def parse_horizontal(content: dict[str, Any], where: str) -> HorizontalJobFile:
    return parsed(HorizontalJobFile, _check, content, where)


def _check(job: HorizontalJobFile) -> None:
    every(
        lambda: _check_clients(job),
        lambda: check_clock(job.clock, "client", [client.name for client in job.client]),
        lambda: check_agreed(job),
        lambda: _check_images(job),
    )


def check_agreed(job: HorizontalJobFile) -> None:
    """Refuse contradictory keys; no table is needed for this."""
    every(lambda: check_columns(job.data), lambda: _check_grouped(job.data), lambda: _check_training(job))


def _check_grouped(data: DataSection) -> None:
    with under("[data]"):
        check_grouped(data, data.sensitive)
    for name, rule in data.merge.items():
        if isinstance(rule, str):
            raise JobError(
                f"key data.merge.{name} is {quoted(rule)}, but no client knows how many rows all have; name "
                f'the groups: merge = {{ {toml_key(name)} = {{ other = ["...", "..."] }} }}'
            )
    if data.duplicates != "refuse" and data.id is None:
        raise JobError(f"key data.duplicates is {data.duplicates!r}, but data.id names no column; add id")


def _check_training(job: HorizontalJobFile) -> None:
    check_classes(job.data.label, "data.label")
    trained = job.to_job()
    if job.data.weight is not None and trained.loss_function.classifies:
        raise JobError(
            f"key data.weight is {quoted(job.data.weight)}, and clients weigh rows only where the label is a number; "
            'remove it, or set loss in [job], for example loss = "poisson"'
        )
    if job.data.weight is not None and any(one.level is not None for one in trained.constraints):
        raise JobError("key data.weight is given, and a constraint has a confidence; remove one of them")
    if job.n_classes is not None and not HORIZONTAL[trained.solver].many_classes:
        raise JobError(f"data.label lists {job.n_classes} classes, but solver {trained.solver!r} supports only two")
    if job.n_classes is not None and job.job.threshold != 0.5:
        raise JobError(f"data.label lists {job.n_classes} classes; threshold is for two labels, so remove it")
    if job.job.threshold in RULES and job.privacy is not None:
        raise JobError(
            f"key job.threshold is {quoted(job.job.threshold)}: a rule needs counts of the clients' scores, which the "
            "noise of [privacy] does not cover; give a number"
        )
    with under("key job.threshold_by"):
        check_attribute(trained.cut_by, job.data.sensitive)
        if trained.cut_by and (job.job.scope != "global" or job.server.has_rows):
            raise JobError(
                "cuts by group are chosen over all clients' rows; use scope 'global', without rows at the server"
            )
    _check_groups(job.data, crosses=any(one.crosses for one in trained.constraints))
    for constraint in trained.constraints:
        if constraint.compares_groups and not job.data.sensitive:
            raise JobError(f"constraint {constraint.kind} compares groups: name the columns in data.sensitive")
    with under("job.options"):
        HORIZONTAL[trained.solver].settings(trained)
    check_job(
        trained,
        "horizontal",
        scope=job.to_scope(),
        has_server=job.server.has_rows,
        protected=job.privacy is not None,
    )
    job.to_scope().check(trained.constraints, [client.name for client in job.client])
    if job.privacy is not None:
        job.privacy.check(trained, job._drawn)


def _check_images(job: HorizontalJobFile) -> None:
    data, kind = job.data, job.to_model().kind
    if not job.has_images:
        if given := [name for name in ("file", "size") if getattr(data, name) is not None]:
            raise JobError(
                f"key data.{given[0]} is for pictures, but no client has any; add images to each [[client]], "
                "or remove the key"
            )
        if kind == "resnet18":
            raise JobError('job.model = "resnet18" needs pictures; add images to each [[client]]')
        return
    if lacking := [client.name for client in job.client if client.images is None]:
        raise JobError(
            f"client {lacking[0]!r} has no images, but other clients do; add images to every [[client]] or to none"
        )
    if kind != "resnet18":
        raise JobError(f'job.model is {kind!r}, but clients have pictures; use model = "resnet18"')
    if (data.file is None) != (data.size is None):
        raise JobError("set data.file (column of file names) and data.size (size of the pictures) together")
    if features := {*_OF_FEATURES} & data.model_fields_set:
        raise JobError(
            f"key data.{min(features)} is for tables without pictures, but this job trains on pictures; remove it"
        )
    if job.server.has_rows:
        raise JobError("[server] names a table, but with pictures the server has no rows; remove the table")


def _check_clients(job: HorizontalJobFile) -> None:
    check_names("client", [client.name for client in job.client])
    sections: dict[str, TableSection] = {f"client {one.name!r}": one for one in job.client}
    if job.server.has_rows or job.server.sql is not None:
        sections["[server]"] = job.server
    for owner, section in sections.items():
        try:
            located(section, Path(), job.data.id, types=job.data.types)
        except InputError as error:
            raise JobError(f"{owner}: {error}") from error
        if section.table is not None and is_libsvm(section.table):
            raise JobError(
                f"{owner}: {section.table} has numbered columns; tables of horizontal jobs need column names"
            )


def _check_groups(data: DataSection, crosses: bool) -> None:
    crossing = crossed_name(data.groups or {}) if crosses else None
    for attribute, values in (data.groups or {}).items():
        if attribute not in (*data.sensitive, crossing):
            raise JobError(f"data.groups has {attribute!r}, but data.sensitive does not list it")
        if len(set(values)) < 2 or len(set(values)) < len(values):
            raise JobError(f"data.groups.{attribute} is {quoted(values)}; list each of two or more groups once")
    if data.groups is not None and (lacking := [name for name in data.sensitive if name not in data.groups]):
        raise JobError(f"data.groups lists no groups of {lacking[0]!r}; add them")
