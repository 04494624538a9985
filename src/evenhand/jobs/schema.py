"""Schema of job files of both splits: strict sections, and error messages that name the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from evenhand.constraints.kinds import KINDS, Constraint
from evenhand.data.tables.addresses import Address
from evenhand.data.tables.as_types import TypeName
from evenhand.data.tables.columns import MissingRule, Rules
from evenhand.data.tables.readers import TableSource, require_file_name
from evenhand.data.tables.redaction import Scrubber
from evenhand.errors import InputError, JobError
from evenhand.printing import quoted
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import check_name
from evenhand.runtime.inprocess import VirtualClock

T = TypeVar("T")
Section = TypeVar("Section", bound=BaseModel)
File = TypeVar("File", bound=BaseModel)


def as_tables(value: Any) -> list[dict[str, Any]]:
    tables = value if isinstance(value, list) else [value]
    if not all(isinstance(table, dict) for table in tables):
        raise PydanticCustomError("tables", "Input should be a table such as { kind = ... }, or a list of them")
    return tables


def as_plain(value: Any) -> str | int | float | bool:
    if not isinstance(value, (str, int, float, bool)):
        raise PydanticCustomError("plain", "Input should be text, a number, true or false")
    return value


def as_address(value: Any) -> Address | None:
    if value is not None and not isinstance(value, (str, Address)):
        raise PydanticCustomError("address", "Input should be a database's address, as text")
    return None if value is None else Address.of(value)


def _recorded(address: Address | None) -> str | None:
    return None if address is None else str(address)


def key(meaning: str, example: Any, default: Any = ..., **limits: Any) -> Any:
    """Declare a key by its meaning in a sentence, an example value and its default; `docs/job-keys.md` shows them."""
    return Field(default, description=meaning, examples=[example], **limits)


class Strict(BaseModel):
    """A section that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def __copy__(self) -> Self:
        """Copy the keys only: values cached by `once` may not fit the copy."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


def once(method: Callable[[File], T]) -> Callable[[File], T]:
    """Cache a method's value for each section; sections never change."""
    name = f"once {method.__name__}"

    @wraps(method)
    def kept(self: File) -> T:
        if name not in self.__dict__:
            self.__dict__[name] = method(self)
        found: T = self.__dict__[name]
        return found

    return kept


# Record the address as it is shown, so that no run folder can hold a password.
DatabaseAddress = Annotated[Address | None, PlainValidator(as_address), PlainSerializer(_recorded)]
ConstraintTables = Annotated[list[dict[str, Any]], PlainValidator(as_tables)]


class ClockSection(Strict):
    """`[clock]`: simulate the time that a run would take on other machines and links."""

    speed: float = key("Floating-point operations per second of every participant.", 1e8, 1e9)
    latency: float = key("Seconds before a message arrives.", 0.02, 0.0)
    bandwidth: float = key("Bytes per second of every link.", 1e6, float("inf"))
    speeds: dict[str, float] = key("`speed` of single participants, by name.", {"shop": 1e8}, {})
    latencies: dict[str, float] = key("`latency` of single participants, by name.", {"shop": 0.2}, {})


class LabelSection(Strict):
    """`label = { column = "defaulted", positive = "yes" }`: what the model predicts."""

    column: str = key("Column that holds the label.", "defaulted")
    positive: Annotated[str | int | float | bool | None, PlainValidator(as_plain)] = key(
        "The label that counts as positive. By default the larger of the two, in sorted order.", "yes", None
    )
    classes: list[Annotated[str | int | float | bool, PlainValidator(as_plain)]] | None = key(
        "All labels, if there are three or more; for averaging solvers across clients.", ["A", "B", "C"], None
    )


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

    def to_rules(self) -> Rules:
        return Rules(self.missing, self.max_levels)


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
    seed: int = key("Seed of everything that is drawn at random.", 7, 0, ge=0)
    hidden: list[int] = key('Widths of the hidden layers; for `model = "mlp"`.', [64], [32, 16])
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
        "Share of the rows that are held out. A hash of the id decides, so every party holds out the same rows.",
        0.25,
        0.0,
        ge=0.0,
        lt=1.0,
    )

    def to_job(self, **more: Any) -> Job:
        """Return the job, with the values of the split's own keys."""
        return Job(
            constraints=tuple(to_constraint(one) for one in self.constraint),
            alpha=self.alpha,
            seed=self.seed,
            hidden=tuple(self.hidden),
            options=self.options,
            protection=self.protection,
            allow_experimental=self.allow_experimental,
            **more,
        )


class ClockedFile(Strict):
    """A whole job file, with an optional virtual clock."""

    clock: ClockSection | None = None

    def to_clock(self) -> VirtualClock | None:
        return to_clock(self.clock)


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


def read_toml(path: Path, what: str = "job file") -> dict[str, Any]:
    """Return the unchecked content of a job file or another TOML file."""
    if not path.is_file():
        raise JobError(f"there is no {what} {path}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problem = str(error)
    except OSError as error:
        raise JobError(f"{path} cannot be read: {error.strerror}") from error
    # Raise outside the handler: such errors contain the whole file, which may hold a password.
    raise JobError(f"{path}: not valid TOML: {problem}")


class SeveralProblems(JobError):
    """Several problems at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def every(*checks: Callable[[], None]) -> None:
    """Run all checks, even if some fail; then raise all problems together."""
    found: list[InputError] = []
    for check in checks:
        try:
            check()
        except InputError as error:
            found.append(error)
    if len(found) == 1:
        raise found[0]
    if found:
        raise SeveralProblems([problem for error in found for problem in problems_of(error)])


def problems_of(error: Exception) -> list[str]:
    return error.problems if isinstance(error, SeveralProblems) else [str(error)]


def parsed(section: type[Section], check: Callable[[Section], None], content: dict[str, Any], where: str) -> Section:
    """Return a file as its sections; every problem is a JobError that names file and keys, and shows no password.

    Parameters
    ----------
    check
        Raises an InputError for problems that no single section can see.
    """
    try:
        job = section.model_validate(content)
        check(job)
    except ValidationError as error:
        problems = [_explain(problem, section) for problem in error.errors()]
    except InputError as error:
        problems = problems_of(error)
    else:
        return job
    # Raise outside the handler: pydantic's error contains its input, which may be an address with a password. An
    # address under the wrong key is not shown either.
    scrub = Scrubber.of_addresses(_texts(content))
    raise SeveralProblems([f"{where}: {scrub(problem)}" for problem in problems])


def _texts(content: Any) -> Iterator[str]:
    """Yield every text in a file's content; without recursion, because nesting may exceed the recursion limit."""
    rest = [content]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            rest += [*one, *one.values()]
        elif isinstance(one, list):
            rest += one


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
    for key, columns in named.items():
        if section.id in columns:
            raise JobError(f"{key} lists the id {section.id!r}, which says who a row is and nothing about them")
        if key != "label" and label in columns:
            raise JobError(f"{key} lists the label {label!r}; a model must not see it")
        if key not in ("weight", "label") and weight in columns:
            raise JobError(f"{key} lists the weight {weight!r}, which says how much a row counts and nothing about it")
        for name in columns:
            if columns.count(name) > 1:
                raise JobError(f"{key} lists {name!r} twice")
    for name in section.types:
        if name in (section.id, label, *section.sensitive) and name not in (section.columns or []):
            raise JobError(f"types names {name!r}, which is no feature; it is for features only")
        if section.columns is not None and name not in section.columns:
            raise JobError(f"types names {name!r}, which columns does not list")
    if section.columns == []:
        raise JobError("columns is empty; name at least one, or leave the key out to take all")


def check_names(kind: Literal["party", "client"], names: list[str]) -> None:
    """Refuse names that cannot be folder names, and duplicate names."""
    for number, name in enumerate(names):
        try:
            check_name(kind, name)
        except InputError as error:
            raise JobError(f"key {kind}.{number}.name: {error}") from error
        if names.count(name) > 1:
            both = "two parties" if kind == "party" else "two clients"
            raise JobError(f"{both} are called {name!r}; names must differ")


def check_clock(clock: ClockSection | None, kind: str, names: list[str]) -> None:
    """Refuse speeds and latencies of unknown participants."""
    if clock is None:
        return
    known = [SERVER, *names]
    for key, table in {"speeds": clock.speeds, "latencies": clock.latencies}.items():
        for name in table:
            if name not in known:
                raise JobError(f"clock.{key} names {name!r}, which is no {kind}{near(name, known)}")
    to_clock(clock)


def to_clock(clock: ClockSection | None) -> VirtualClock | None:
    return None if clock is None else VirtualClock(**clock.model_dump())


def located(
    section: TableSection,
    base: Path,
    id: str | None = None,
    first_index: Any = 1,
    types: Mapping[str, TypeName] | None = None,
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
    )


def to_constraint(given: dict[str, Any]) -> Constraint:
    given = dict(given)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise JobError(f"job.constraint.kind is {quoted(kind)}; choose one of {', '.join(KINDS)}")
    return build(KINDS[kind], given, "job.constraint", kind)


def build(what: type[T], given: Mapping[str, Any], where: str, owner: str, make: Callable[[], T] | None = None) -> T:
    """Make a dataclass from a table of the file; check types before the dataclass's own checks run.

    Parameters
    ----------
    make
        Function that makes the dataclass; None calls the class itself.
    """
    kinds = {field.name: get_type_hints(what)[field.name] for field in fields(what)}  # type: ignore[arg-type]
    for key, value in given.items():
        if key not in kinds:
            raise JobError(f"{where}: {owner} has no key {key!r}{near(key, list(kinds))}")
        try:
            TypeAdapter(kinds[key]).validate_python(value, strict=True)
        except ValidationError as error:
            raise JobError(f"key {where}.{key}: {_said(*error.errors())}") from None
    try:
        return what(**given) if make is None else make()
    except InputError as error:
        raise JobError(f"{where}: {error}") from error


def _explain(problem: Any, whole: type[BaseModel]) -> str:
    """Return one pydantic problem as a sentence, with the key's full path."""
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key}{near(path[-1], _known_keys(path[:-1], whole))}"
    if path in (["party"], ["client"]):
        return f"key {key}: a job needs at least one {key}, each under a heading [[{key}]]"
    if problem["type"] == "missing":
        return f"key {key} is missing"
    return f"key {key}: {_said(problem)}"


def _said(*problems: Any) -> str:
    """Return pydantic's message about one value; the value is shown only if it is short."""
    text = " or ".join(problem["msg"] for problem in problems).replace(" or Input should be", " or")
    value = problems[0]["input"]
    return f"{text} (it is {quoted(value)})" if isinstance(value, (str, bool, int, float)) else text


def _known_keys(path: list[str], whole: type[BaseModel]) -> list[str]:
    """Return the allowed keys at a place in the file."""
    section = whole
    for part in path:
        if part.isdigit():
            continue
        annotation = section.model_fields[part].annotation
        section = next(
            (
                kind
                for kind in (annotation, *get_args(annotation))
                if isinstance(kind, type) and issubclass(kind, BaseModel)
            ),
            whole,
        )
    return list(section.model_fields)


def near(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys are {', '.join(known)}"
