"""Job files of vertical runs: a table for each party, and who holds the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from evenhand.constraints.group_cuts import check_attribute
from evenhand.constraints.kinds import Label
from evenhand.data.tables.columns import Direction, NumbersRule, Rules
from evenhand.data.tables.readers import TableSource, is_libsvm
from evenhand.errors import JobError
from evenhand.jobs.label_keys import LabelSection, check_classes
from evenhand.jobs.parsing import Strict, every, key, once, parsed, under
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
from evenhand.jobs.vertical.learners import check_learner
from evenhand.models.kinds import OwnModels
from evenhand.protocol.job import Job, LostParty, MissingParty, RuntimeName, Weights
from evenhand.protocol.terms import Part
from evenhand.solvers.registry import VERTICAL, check_job, check_monotone, check_takes_weights, default_numbers, resolve
from evenhand.solvers.roles import vertical_terms
from evenhand.training.vertical_sources import HowAligned


class LabelPrivacySection(Strict):
    """`[job.label_privacy]`: the label holder shares its labels only as randomised responses."""

    epsilon: float = key("ε of each person's label.", 1.0)
    groups: float | None = key(
        "ε of each person's value of a sensitive attribute. By default groups are not randomised.", 2.0, None
    )
    finish: bool = key("Whether the label holder refits its own weights to the true labels at the end.", True, False)


class ClassWeightSection(Strict):
    """`class_weight = { positive = 5 }`: how much a row of each class weighs in the mean loss."""

    negative: float = key("Weight of a row with the negative label.", 1.0, 1.0)
    positive: float = key("Weight of a row with the positive label.", 5.0, 1.0)

    @property
    def pair(self) -> tuple[float, float]:
        return self.negative, self.positive


class VerticalJobSection(TrainingSection):
    """`[job]`: what to train and how."""

    split: Literal["vertical"] = key("Parties have different columns of the same people.", "vertical", "vertical")
    model: ModelTable = key(
        "Model of each party: `linear`, `mlp` (extra `torch`) or `trees` (extra `trees`); see [models](#models). `own` "
        "with solver `learners`: each party names its own.",
        {"kind": "mlp", "hidden": [64]},
        "linear",
    )
    max_rounds: int = key("Most communication rounds.", 50, 1000)
    tol: float | None = key(
        "When to stop. `subspace`: relative distance of the objective from the constrained optimum (1e-3). Others: "
        "stationarity gap (1e-4).",
        1e-4,
        None,
    )
    scale: bool = key("Whether each party standardises its numeric columns on its own training rows.", False, True)
    numbers: NumbersRule = key(
        "Numbers of parties that say nothing else: `curves`, `standard` or `bins`; see `numbers` of a party.",
        "standard",
        "auto",
    )
    runtime: RuntimeName = key(
        "How participants run: `messages` in turn, `interleaved` in one compiled loop (VFB²), `threads` at the same "
        "time (VFB², FairVFL, FedBCD). `auto` is `interleaved` where the solver can and there is no `[clock]`.",
        "threads",
        "auto",
    )
    ids: HowAligned = key(
        "`equal`: refuse tables with different ids. `inner`: keep the ids that all parties have. `left`: keep all ids "
        "of the label holder; a party adds one learned number where it has no row. `private` and `private-left`: as "
        "`inner` and `left`, by private set intersection. `hidden-left`: no message says which rows a party has.",
        "inner",
        "equal",
    )
    least_common: int = key("Fewest common ids; with fewer, the run ends and no party learns any.", 1000, 1, ge=1)
    missing_party: MissingParty = key(
        "Whether the model scores rows that a party lacks, or without a party that is away. `absent`: yes, the party "
        "adds the number that it has learned for rows that it lacks, and each score names its parties.",
        "absent",
        "refuse",
    )
    lost_party: LostParty = key(
        "Between organisations, what happens when a party is gone for good in the middle of training. `end`: the run "
        "ends, and can resume later. `continue`: the others train a model without that party.",
        "continue",
        "end",
    )
    extends: str | None = key(
        "Earlier run to start from, with parties that have joined or left since: a run folder, or between "
        "organisations the name of a run. Parties of that run keep their encoders, so keys of encoding stay as they "
        "were, and start from their weights; linear models only.",
        "runs/monday",
        None,
    )
    weights: Weights = key(
        "Where weights are trained in shares (`dealer`, `encrypted`): `shared` keeps them so, and nobody knows them. "
        "`party` gives each party its own, which tell it what any model tells of its labels.",
        "party",
        "shared",
    )
    class_weight: Literal["balanced"] | ClassWeightSection | None = key(
        "How much rows of each class weigh in the mean loss: `balanced`, or two numbers. Constraints count people.",
        {"positive": 5.0},
        None,
    )
    label_privacy: LabelPrivacySection | None = None

    @property
    def private_ids(self) -> bool:
        """Whether the server gets no list of ids."""
        return self.ids in ("private", "private-left", "hidden-left")

    @property
    def keeps_all(self) -> bool:
        """Whether all rows of the label holder are kept, also those that other parties lack."""
        return self.ids in ("left", "private-left", "hidden-left")

    @property
    def hides_presence(self) -> bool:
        """Whether no message says which rows of the label holder a party has."""
        return self.ids == "hidden-left"

    @property
    def finishes(self) -> bool:
        """Whether the label holder refits the model with its true labels after training."""
        return self.label_privacy is not None and self.label_privacy.finish

    def to_rules(self, party: PartySection, job: Job) -> Rules:
        """Return a party's rules of encoding, given the job as it is trained."""
        rules = party.to_rules(default_numbers(job, "vertical") if self.numbers == "auto" else self.numbers)
        return replace(rules, monotone=party.monotone)

    def as_job(self, monotone: bool = False, classes: Sequence[Label] = (), own: bool = False) -> Job:
        """Return what to train.

        Parameters
        ----------
        monotone
            Whether a party has monotone columns.
        classes
            All labels, if there are three or more.
        own
            Whether a party names a model of its own.
        """
        model = to_model(self.model, "vertical")
        if own and model.kind not in ("linear", "own"):
            raise JobError(f"key job.model is {model.kind!r}, but a party names a model of its own; set one of the two")
        if own and self.solver not in ("auto", "learners"):
            raise JobError(
                f"key job.solver is {self.solver!r}, but a party names a model of its own (key model); models of a "
                "party's own choice need solver = \"learners\"; set that, or remove the party's model"
            )
        if own and model.kind == "linear":
            model = OwnModels(fit_intercept=model.job_fields["fit_intercept"])
        if classes and isinstance(self.class_weight, ClassWeightSection):
            raise JobError(
                f"key job.class_weight: negative and positive are for two labels, and there are {len(classes)}; choose "
                '"balanced"'
            )
        asked = self.label_privacy
        job = self.to_job(
            solver=self.solver,
            max_rounds=self.max_rounds,
            label_privacy=None if asked is None else asked.model_dump(),
            weights=self.weights,
            missing_party=self.missing_party,
            lost_party=self.lost_party,
            class_weight=self.class_weight.pair
            if isinstance(self.class_weight, ClassWeightSection)
            else self.class_weight,
            classes=tuple(classes),
            **model.job_fields,
        )
        if monotone:
            job = replace(job, options={**job.options, "monotone": True})
        return resolve(job, self.tol)


class HeldLabelSection(LabelSection):
    """`label = { column = "defaulted", positive = "yes" }`: what the model predicts."""

    secret: str | None = key(
        "File with the key that randomised responses are drawn with; for `label_privacy`.", "labels.secret", None
    )


class PartySection(TableSection, EncodedSection, GroupedSection):
    """`[[party]]`: one party, its table and what it holds."""

    name: str = key("Name of the party, and of its folder in the run folder.", "bank")
    role: Literal["active", "passive"] = key(
        "`active` parties know the labels; the party with `label` must be active.", "active", "passive"
    )
    id: str | None = key("Column that identifies a person. Required, except for LIBSVM files.", "customer_id", None)
    first_index: Literal[0, 1] = key("Number of the first column of a LIBSVM file.", 0, 1)
    columns: list[str] | None = key(
        "Columns to use as features. By default all but id, label, weight and sensitive columns.",
        ["income", "age"],
        None,
    )
    label: HeldLabelSection | None = None
    sensitive: list[str] = key("Columns that define groups; only beside the label.", ["sex"], [])
    monotone: dict[str, Direction] = key(
        "Columns of numbers with which scores may only rise (`up`) or fall (`down`); for linear models with `subspace` "
        "and for trees.",
        {"income": "up"},
        {},
    )
    weight: str | None = key(
        "Column with the number of people that a row stands for; only beside the label.", "households", None
    )
    model: ModelTable | None = key(
        "The party's own model, with solver `learners`: `linear`, `curves`, `mlp`, `trees`, or a function of its own "
        "code, `package.module:function`, which gives a regressor or a torch module; see [learners](learners.md).",
        {"kind": "mlp", "epochs": 30},
        None,
    )


class VerticalJobFile(ClockedFile):
    """A complete job file of a vertical run."""

    job: VerticalJobSection = Field(default_factory=VerticalJobSection)
    party: list[PartySection] = Field(min_length=1)

    @once
    def to_job(self) -> Job:
        """Return what to train, with the solver named."""
        labels = (party.label for party in self.party if party.label is not None)
        classes = next((one.classes for one in labels if one.classes), ())
        own = any(party.model is not None for party in self.party)
        return self.job.as_job(any(party.monotone for party in self.party), classes, own)

    @property
    def label_party(self) -> PartySection:
        return next(party for party in self.party if party.label is not None)


def parse_vertical(content: dict[str, Any], where: str) -> VerticalJobFile:
    return parsed(VerticalJobFile, _check, content, where)


def _check(job: VerticalJobFile) -> None:
    every(
        lambda: _check_parties(job),
        lambda: _check_cut(job),
        lambda: _check_lost(job),
        lambda: check_training(job.to_job(), any(party.weight is not None for party in job.party)),
        lambda: check_extends(job.job, job.to_job()),
        lambda: check_hidden(job.job, job.to_job(), {party.name: party.role for party in job.party}),
        lambda: check_clock(job.clock, "party", [party.name for party in job.party]),
        *(partial(check_party, party, f"party.{number}") for number, party in enumerate(job.party)),
    )


def _check_lost(job: VerticalJobFile) -> None:
    if job.job.lost_party != "end":
        raise JobError(
            "key job.lost_party is for jobs between organisations: in one process no party can be gone in the middle "
            "of training; remove it"
        )


def _check_cut(job: VerticalJobFile) -> None:
    for party in job.party:
        if party.label is not None:
            with under("key job.threshold_by"):
                check_attribute(job.job.threshold_by, party.sensitive)


def _check_parties(job: VerticalJobFile) -> None:
    check_names("party", [party.name for party in job.party])
    with_label = [party for party in job.party if party.label is not None]
    if len(with_label) != 1:
        raise JobError(f'{len(with_label)} parties have a label; exactly one must: label = {{ column = "..." }}')
    if with_label[0].role != "active":
        raise JobError(f'party {with_label[0].name!r} holds the label, so its role must be "active"')


def check_party(party: PartySection, where: str) -> None:
    """Refuse contradictory keys in a party's section, in a job file or in the party's own file."""
    if party.table is None or not is_libsvm(party.table):
        if party.id is None:
            raise JobError(f"key {where}.id is missing; only LIBSVM files need no id, because their rows are numbered")
        if "first_index" in party.model_fields_set:
            raise JobError(f"party {party.name!r}: first_index is only for tables in LIBSVM format")
    if party.sensitive and party.label is None:
        raise JobError(f"party {party.name!r} names sensitive columns; only the party with the label may")
    if party.label is not None:
        check_classes(party.label, f"{where}.label")
    if party.incomplete == "drop" and party.label is None:
        raise JobError(f'party {party.name!r}: incomplete = "drop" is for the party with the label; remove it')
    if party.weight is not None and party.label is None:
        raise JobError(f"party {party.name!r} names a weight; only the party with the label may")
    if party.model is not None:
        check_learner(party.model, f"{where}.model")
    with under(f"party {party.name!r}"):
        check_columns(party)
        check_grouped(party, party.sensitive)
        table_source(party, Path())


def check_extends(section: VerticalJobSection, job: Job) -> None:
    """Refuse to start models other than linear ones from an earlier run."""
    if section.extends is not None and job.model != "linear":
        raise JobError(
            f"key job.extends starts from the weights of an earlier run, for linear models; the model is "
            f"{job.model!r}, which has no optimum to start near. Train anew, without extends"
        )


def check_hidden(section: VerticalJobSection, job: Job, parts: Mapping[str, Part]) -> None:
    """Refuse hidden presence where messages of training or scoring would tell it."""
    if not section.hides_presence:
        return
    terms, where = vertical_terms(job, parts, 0, {}), 'ids = "hidden-left"'
    if len(terms.active) > 1 or len(terms.passive) < 2 or not terms.only_sums:
        raise JobError(
            f"{where} hides who has which rows behind sums over passive parties: it needs one active party, two or "
            f"more passive ones (there are {len(terms.active)} and {len(terms.passive)}), and protection "
            f"masked, dealer or encrypted (it is {terms.job.protection!r})"
        )
    if section.missing_party == "absent":
        raise JobError(f'{where}: missing_party = "absent" tells who has which rows; remove it, or use "private-left"')


def check_training(job: Job, weighted: bool = False) -> None:
    """Refuse a job that its solver does not support."""
    if solver := VERTICAL.get(job.solver):
        check_monotone(job, solver)
        with under("job.options"):
            solver.settings(job)
    check_takes_weights(job) if weighted else check_job(job, "vertical")


def table_source(party: PartySection, base: Path) -> TableSource:
    """Return the location of a party's table; paths, also of SQLite files, are relative to the job file's folder."""
    return located(party, base, party.id, party.first_index, party.types, party.duplicates)
