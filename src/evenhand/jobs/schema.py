"""Schema of job files of both splits: strict sections, and error messages that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from evenhand.constraints.families import OF_NUMBERS, POWER, LossName
from evenhand.constraints.group_cuts import split_closed
from evenhand.constraints.kinds import KINDS, Constraint
from evenhand.constraints.thresholds import RULES, Threshold, as_threshold, fixed_cut
from evenhand.data.tables.addresses import Address
from evenhand.data.tables.columns import MissingRule, NumbersRule, Rules
from evenhand.data.tables.grouping import Grouping
from evenhand.data.tables.raw import Duplicates, TypeName
from evenhand.data.tables.readers import TableSource, require_file_name
from evenhand.errors import JobError
from evenhand.jobs.label_keys import LabelSection, as_plain
from evenhand.jobs.parsing import Strict, key, under
from evenhand.models.kinds import NAMED, ModelKind, as_model
from evenhand.printing import near, quoted
from evenhand.protocol.job import Job, Protection, check_option_names, check_options
from evenhand.protocol.roles import SERVER
from evenhand.protocol.solver import Split
from evenhand.protocol.terms import check_name
from evenhand.runtime.inprocess import VirtualClock


def as_tables(value: Any) -> list[dict[str, Any]]:
    tables = value if isinstance(value, list) else [value]
    if not all(isinstance(table, dict) for table in tables):
        raise PydanticCustomError("tables", "Input should be a table such as { kind = ... }, or a list of them")
    return tables


def as_model_table(value: Any) -> str | dict[str, Any]:
    if not isinstance(value, (str, dict)):
        raise PydanticCustomError("model", "Input should be a name, or a table such as { kind = ... }")
    return value


def as_address(value: Any) -> Address | None:
    if value is not None and not isinstance(value, (str, Address)):
        raise PydanticCustomError("address", "Input should be a database's address, as text")
    return None if value is None else Address.of(value)


# Record the address as it is shown, so that no run folder can hold a password.
DatabaseAddress = Annotated[
    Address | None,
    PlainValidator(as_address),
    PlainSerializer(lambda address: None if address is None else str(address)),
]
ConstraintTables = Annotated[list[dict[str, Any]], PlainValidator(as_tables)]
ModelTable = Annotated[str | dict[str, Any], PlainValidator(as_model_table)]


class ClockSection(Strict):
    """`[clock]`: simulate the time that a run would take on other machines and links."""

    speed: float = key("Floating-point operations per second of every participant.", 1e8, 1e9)
    latency: float = key("Seconds before a message arrives.", 0.02, 0.0)
    bandwidth: float = key("Bytes per second of every link.", 1e6, float("inf"))
    speeds: dict[str, float] = key("`speed` of single participants, by name.", {"shop": 1e8}, {})
    latencies: dict[str, float] = key("`latency` of single participants, by name.", {"shop": 0.2}, {})

    def to_clock(self) -> VirtualClock:
        return VirtualClock(**self.model_dump())


class TableSection(Strict):
    """A section with the location of a table."""

    table: str | None = key("File with the rows: CSV, Parquet, LIBSVM or DuckDB.", "bank.parquet", None)
    database: DatabaseAddress = key(
        "Address of an SQLite or PostgreSQL database; `${NAME}` is read from the environment.", "sqlite:///crm.db", None
    )
    sql: str | None = key(
        "One SELECT that returns the rows; for databases and DuckDB files.", "select id, age from people", None
    )
    encoding: str = key("Character encoding of a CSV file.", "cp1252", "utf-8")
    delimiter: str | None = key(
        "Separator of a CSV file's cells. By default the first of `,` `;` tab `|` in its first line.", ";", None
    )
    decimal: Literal[".", ","] = key("Decimal sign of a CSV file's numbers.", ",", ".")


class EncodedSection(Strict):
    """Keys of a section that say how features are encoded."""

    types: dict[str, TypeName] = key(
        "Type of columns, by name, instead of the type they look like.", {"zip": "category", "note": "leave out"}, {}
    )
    missing: MissingRule | dict[str, MissingRule] = key(
        "Missing values: `indicator` imputes them and adds a 0/1 feature, `refuse` raises an error. For all columns, "
        "or by column.",
        {"income": "refuse"},
        "indicator",
    )
    max_levels: int | None = key(
        "Most levels of a categorical column that get a feature of their own; the rest share one.", 100, None, ge=1
    )

    numbers: NumbersRule | dict[str, NumbersRule] = key(
        "Numbers: `curves` makes piecewise-linear curves of them, `standard` standardises them, `bins` makes 0/1 "
        "features. For all columns, or by column. `auto` is `curves` for `subspace`, and `standard` otherwise.",
        {"income": "standard"},
        "auto",
    )

    def to_rules(self, auto_numbers: NumbersRule = "standard") -> Rules:
        """Return the rules of encoding, given what ``numbers = "auto"`` is."""
        return Rules(self.missing, self.max_levels, self.numbers, auto_numbers)


class GroupedSection(Strict):
    """Keys of a section that say which rows count, and how sensitive columns become groups."""

    bands: dict[str, list[float]] = key(
        "Sensitive columns of numbers, each with the numbers at which a new band begins.", {"age": [30, 60]}, {}
    )
    merge: dict[str, str | dict[str, list[str]]] = key(
        'Sensitive columns in which groups are merged: `"under 50"` merges all with fewer rows into `other`, and the '
        "next smallest while that has fewer; a table names the groups. Across clients groups are merged by name.",
        {"region": "under 50"},
        {},
    )
    incomplete: Literal["refuse", "drop"] = key(
        "Rows without label or group: an error, or dropped and counted. Other parties of a vertical job have these "
        'rows too, so `drop` needs `ids = "inner"` there.',
        "drop",
        "refuse",
    )
    duplicates: Duplicates = key(
        "Rows with the same id: an error, the first or last of them, or one row with the sum of each number and the "
        "first of other values.",
        "sum",
        "refuse",
    )

    @property
    def grouping(self) -> Grouping:
        return Grouping(self.bands, self.merge)


def check_grouped(section: GroupedSection, sensitive: list[str]) -> None:
    """Refuse bands and merged groups of columns that are not sensitive, and rules that cannot be meant."""
    for name in ("bands", "merge"):
        if strange := [column for column in getattr(section, name) if column not in sensitive]:
            raise JobError(f"{name} names {strange[0]!r}, which sensitive does not list; add it there, or remove it")
    _ = section.grouping


class CostsSection(Strict):
    """`costs = { missed = 10, false_alarm = 1 }`: what wrong decisions cost."""

    missed: float = key("Cost of a positive row that is not selected.", 10.0, gt=0.0)
    false_alarm: float = key("Cost of a negative row that is selected.", 1.0, gt=0.0)


_NUMBERS_OF_RULES: Final[Mapping[str, tuple[str, str]]] = {
    "cost": ("costs", "costs = { missed = 10, false_alarm = 1 }"),
    "rate": ("capacity", "capacity = 0.05"),
    "recall": ("target", "target = 0.6"),
    "precision": ("target", "target = 0.6"),
}
"""Each rule's key, and an example."""


class TrainingSection(Strict):
    """Keys of `[job]` that both splits share."""

    split: str
    solver: str = key("Solver by name; `auto` chooses by model and constraint.", "trees", "auto")
    constraint: ConstraintTables = key(
        "Constraint, or a list of them; see [constraints](#constraints).",
        {"kind": "equalized-odds", "epsilon": 0.02, "measure": "error"},
        [],
    )
    alpha: float | None = key(
        "Weight μ of the regulariser (μ/2)‖θ‖². By default 2/n for n training rows, and 0 for averaging solvers.",
        0.001,
        None,
    )
    loss: LossName = key(
        "What the label is: `logistic` for two classes; for numbers `squared`, `poisson` for counts, `gamma` for "
        "amounts above zero, `tweedie` for amounts with zeros. The last three predict exp(score).",
        "poisson",
        "logistic",
    )
    power: float = key(
        "Of `tweedie`, between 1 and 2: the variance of a target with mean μ is proportional to μ to this power.",
        1.7,
        POWER,
    )
    seed: int = key("Seed of everything that is drawn at random.", 7, 0, ge=0)
    options: dict[str, Any] = key(
        "Options of the solver; see [options](#options-of-solvers).", {"exact_rates": False}, {}
    )
    protection: Protection = key(
        "How messages are hidden; see [privacy](privacy.md). `auto` is `masked` for `subspace` with two or more "
        "passive parties, and `none` otherwise.",
        "masked",
        "auto",
    )
    allow_experimental: bool = key(
        "Whether the job may use a `protection` that a known attack breaks; the error without it says which.",
        True,
        False,
    )
    test_fraction: float = key(
        "Share of the rows that are held out, so that verdicts are about new people; `0` trains on all rows. A hash of "
        "the id decides, so every party holds out the same rows. Without the key, tables of fewer than 200 rows hold "
        "out none.",
        0.25,
        0.2,
        ge=0.0,
        lt=1.0,
    )

    threshold: Annotated[str | float, PlainValidator(as_plain)] = key(
        "Where decisions are cut: a probability of the positive label, or the rule that chooses the cut after "
        "training: `accuracy`, `cost` (needs `costs`), `rate` (needs `capacity`), `recall` or `precision` (need "
        "`target`). Constraints bound rates at this cut.",
        "cost",
        0.5,
    )
    costs: CostsSection | None = None
    capacity: float | None = key(
        'With `threshold = "rate"`: share of the rows that can be selected.', 0.05, None, gt=0.0, le=1.0
    )
    target: float | None = key(
        'With `threshold = "recall"` or `"precision"`: the value to reach.', 0.6, None, gt=0.0, le=1.0
    )

    threshold_by: str = key(
        "Sensitive column with a cut for each group, at which the constraint's rate is equal in all groups. Needs a "
        "rule as `threshold` and one constraint on rates, which training then leaves to the cuts. Decisions then use "
        "the sensitive attribute, which is unlawful in some fields.",
        "sex",
        "",
    )

    @property
    def asks_for_test_rows(self) -> bool:
        """Whether the job file names a share to hold out, so that rows without it, or too few, are an error."""
        return "test_fraction" in self.model_fields_set

    def to_threshold(self) -> float | Threshold:
        """Return the probability or the rule of the cut."""
        given = {name: value for name in ("costs", "capacity", "target") if (value := getattr(self, name)) is not None}
        rule = self.threshold
        with under("key job.threshold"):
            if not isinstance(rule, str) or rule not in RULES:
                found = as_threshold(rule)
                if given:
                    name = next(iter(given))
                    rules = " or ".join(quoted(one) for one, (needed, _) in _NUMBERS_OF_RULES.items() if needed == name)
                    raise JobError(f"{name} goes with threshold = {rules}, but threshold is {rule}; remove one of them")
                return found
            needed, example = _NUMBERS_OF_RULES.get(rule, ("", ""))
            if needed and needed not in given:
                raise JobError(f"the rule {rule!r} needs {needed}; add it to [job], such as {example}")
            if others := [name for name in given if name != needed]:
                raise JobError(f"the rule {rule!r} does not use {others[0]}; remove that key")
            costs = {} if self.costs is None else self.costs.model_dump()
            return Threshold(rule, capacity=self.capacity, target=self.target, **costs)

    def to_job(self, **more: Any) -> Job:
        """Return the job, with the values of the split's own keys."""
        if (
            self.loss in OF_NUMBERS
            and {"threshold", "threshold_by", "costs", "capacity", "target"} & self.model_fields_set
        ):
            raise JobError(f"key job.threshold is for two classes, and targets of the {self.loss} loss are numbers")
        threshold = self.to_threshold()
        rule = threshold if isinstance(threshold, Threshold) else None
        given = [to_constraint(one) for one in self.constraint]
        with under("key job.threshold_by"):
            constraints, closed = split_closed(given, self.threshold_by, rule)
        return Job(
            loss=self.loss,
            power=self.power,
            cut=fixed_cut(threshold),
            rule=rule,
            closed=closed,
            cut_by=self.threshold_by,
            constraints=constraints,
            alpha=self.alpha,
            seed=self.seed,
            options=self.options,
            protection=self.protection,
            allow_experimental=self.allow_experimental,
            **more,
        )


class CardSection(Strict):
    """`[card]`: what the summary on top of the report says of the model and its data."""

    owner: str = key("Who answers for the model.", "credit risk team", "", max_length=500)
    use: str = key("What decisions the model is for.", "consumer loans up to 10,000", "", max_length=500)
    period: str = key("When the rows were recorded.", "2021 to 2024", "", max_length=500)


class ClockedFile(Strict):
    """A complete job file, with an optional virtual clock and model card."""

    clock: ClockSection | None = None
    card: CardSection | None = None

    def to_clock(self) -> VirtualClock | None:
        return None if self.clock is None else self.clock.to_clock()


class Columned(Protocol):
    """A section with the roles of a table's columns."""

    @property
    def id(self) -> str | None: ...
    @property
    def columns(self) -> list[str] | None: ...
    @property
    def label(self) -> LabelSection | None: ...
    @property
    def sensitive(self) -> list[str]: ...
    @property
    def types(self) -> dict[str, TypeName]: ...


def check_columns(section: Columned) -> None:
    """Refuse a column with two roles; only sensitive columns may also be features."""
    label = None if section.label is None else section.label.column
    weight = getattr(section, "weight", None)
    named = {
        "columns": section.columns or [],
        "sensitive": section.sensitive,
        "label": [label] if label else [],
        "weight": [weight] if weight else [],
    }
    for role, columns in named.items():
        if section.id in columns:
            raise JobError(
                f"{role} lists the id {section.id!r}, which identifies a row and is not a feature; remove it"
            )
        if role != "label" and label in columns:
            raise JobError(f"{role} lists the label {label!r}; a model must not use it as a feature")
        if role not in ("weight", "label") and weight in columns:
            raise JobError(f"{role} lists the weight {weight!r}, which is a sample weight and not a feature; remove it")
        for name in columns:
            if columns.count(name) > 1:
                raise JobError(f"{role} lists {name!r} twice")
    for name in section.types:
        if name in (section.id, label, *section.sensitive) and name not in (section.columns or []):
            raise JobError(f"types names {name!r}, which is not a feature; remove it")
        if section.columns is not None and name not in section.columns:
            raise JobError(f"types names {name!r}, but columns does not list it")
    if section.columns == []:
        raise JobError("columns is empty; name at least one column, or remove the key to use all columns")


def check_names(kind: Literal["party", "client"], names: list[str]) -> None:
    """Refuse names that cannot be folder names, and duplicate names."""
    for number, name in enumerate(names):
        with under(f"key {kind}.{number}.name"):
            check_name(kind, name)
        if names.count(name) > 1:
            both = "two parties" if kind == "party" else "two clients"
            raise JobError(f"{both} are called {name!r}; names must differ")


def check_clock(clock: ClockSection | None, kind: str, names: list[str]) -> None:
    """Refuse speeds and latencies of unknown participants."""
    if clock is None:
        return
    known = [SERVER, *names]
    for table, given in {"speeds": clock.speeds, "latencies": clock.latencies}.items():
        for name in given:
            if name not in known:
                raise JobError(f"clock.{table} names {name!r}, which is not a {kind}{near(name, known)}")
    clock.to_clock()


def located(
    section: TableSection,
    base: Path,
    id: str | None = None,
    first_index: Any = 1,
    types: Mapping[str, TypeName] | None = None,
    duplicates: Duplicates = "refuse",
) -> TableSource:
    """Return the location of a table; paths, also of SQLite files, are relative to the job file's folder."""
    table, database = None, section.database
    if section.table is not None:
        require_file_name(section.table)
        table = base / Path(section.table).expanduser()
    if database is not None:
        database = database.based(base)
    return TableSource(
        table=table,
        database=database,
        sql=section.sql,
        id=id,
        first_index=first_index,
        encoding=section.encoding,
        delimiter=section.delimiter,
        decimal=section.decimal,
        types=types or {},
        duplicates=duplicates,
    )


def to_constraint(given: dict[str, Any]) -> Constraint:
    given = dict(given)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise JobError(f"job.constraint.kind is {quoted(kind)}; choose one of {', '.join(KINDS)}")
    with under("job.constraint"):
        check_option_names(kind, KINDS[kind], given)
        return KINDS[kind](**given)


def to_model(given: str | dict[str, Any], split: Split) -> ModelKind:
    """Return the model of a job file: a name, or a table with its kind and settings."""
    table: dict[str, Any] = {"kind": given} if isinstance(given, str) else dict(given)
    kind, known = table.pop("kind", None), [name for name, one in NAMED.items() if split in one.splits]
    if kind not in known:
        raise JobError(f"key job.model is {quoted(kind)}; choose one of {', '.join(known)}")
    with under("job.model"):
        return as_model(check_options(f"model {kind!r}", NAMED[kind], table) if table else kind, split)
