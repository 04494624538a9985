"""Job files: TOML that says what a person would say, checked key by key before anything is read or written."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from evenhand.constraints import KINDS, Constraint
from evenhand.data.addresses import redact
from evenhand.data.libsvm import is_libsvm
from evenhand.data.tables import TableSource
from evenhand.errors import InputError, JobError
from evenhand.job import Job, ModelName, RuntimeName
from evenhand.runtime.clock import VirtualClock
from evenhand.vertical.solvers import SOLVERS, check_job, solver_name

T = TypeVar("T")
_SQLITE: Final = "sqlite:///"


def _tables(value: Any) -> list[dict[str, Any]]:
    tables = value if isinstance(value, list) else [value]
    if not all(isinstance(table, dict) for table in tables):
        raise PydanticCustomError("tables", "Input should be a table such as { kind = ... }, or a list of them")
    return tables


def _plain(value: Any) -> str | int | float | bool:
    if not isinstance(value, (str, int, float, bool)):
        raise PydanticCustomError("plain", "Input should be text, a number, true or false")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class JobSection(_Strict):
    """`[job]`: what to train and how."""

    split: Literal["vertical"] = "vertical"
    solver: str = "auto"
    constraint: Annotated[list[dict[str, Any]], PlainValidator(_tables)] = Field(default_factory=list)
    model: ModelName = "linear"
    alpha: float | None = None
    max_rounds: int = 1000
    tol: float = 1e-4
    seed: int = Field(default=0, ge=0)
    fit_intercept: bool = True
    hidden: list[int] = Field(default_factory=lambda: [32, 16])
    options: dict[str, Any] = Field(default_factory=dict)
    scale: bool = True
    runtime: RuntimeName = "auto"
    test_fraction: float = Field(default=0.0, ge=0.0, lt=1.0)
    ids: Literal["equal", "inner"] = "equal"


class ClockSection(_Strict):
    """`[clock]`: speeds of machines and links, for the virtual clock."""

    speed: float = 1e9
    latency: float = 0.0
    bandwidth: float = float("inf")
    speeds: dict[str, float] = Field(default_factory=dict)
    latencies: dict[str, float] = Field(default_factory=dict)


class LabelSection(_Strict):
    """`label = { column = "defaulted", positive = "yes" }`."""

    column: str
    positive: Annotated[str | int | float | bool | None, PlainValidator(_plain)] = None


class PartySection(_Strict):
    """`[[party]]`: one party, its table and what it holds."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    role: Literal["active", "passive"] = "passive"
    table: str | None = None
    database: str | None = None
    sql: str | None = None
    id: str | None = None
    first_index: Literal[0, 1] = 1
    columns: list[str] | None = None
    label: LabelSection | None = None
    sensitive: list[str] = Field(default_factory=list)


class JobFile(_Strict):
    """A whole job file."""

    job: JobSection = Field(default_factory=JobSection)
    clock: ClockSection | None = None
    party: list[PartySection] = Field(min_length=1)

    def to_job(self) -> Job:
        section = self.job
        return Job(
            solver=section.solver,
            constraints=tuple(_constraint(one) for one in section.constraint),
            model=section.model,
            alpha=section.alpha,
            max_rounds=section.max_rounds,
            tol=section.tol,
            seed=section.seed,
            fit_intercept=section.fit_intercept,
            hidden=tuple(section.hidden),
            options=section.options,
        )

    def to_clock(self) -> VirtualClock | None:
        return None if self.clock is None else VirtualClock(**self.clock.model_dump())

    @property
    def label_party(self) -> PartySection:
        return next(party for party in self.party if party.label is not None)


def read_job(path: Path) -> JobFile:
    """Read and check a job file; whatever is wrong with it is a JobError that names file and key."""
    if not path.is_file():
        raise JobError(f"there is no job file {path}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: not valid TOML: {error}") from error
    return parse_job(content, str(path))


def parse_job(content: dict[str, Any], where: str) -> JobFile:
    try:
        job = JobFile.model_validate(content)
    except ValidationError as error:
        # Without the cause: pydantic quotes its input, which may be an address with a password.
        raise JobError("\n".join(f"{where}: {_explain(problem)}" for problem in error.errors())) from None
    try:
        _check_parties(job)
        _check_options(job.to_job())
        check_job(job.to_job())
        _check_clock(job)
    except InputError as error:
        raise JobError(f"{where}: {error}") from error
    return job


def _check_parties(job: JobFile) -> None:
    names = [party.name for party in job.party]
    for name in names:
        if names.count(name) > 1:
            raise JobError(f"two parties are called {name!r}; names must differ")
    if "server" in names:
        raise JobError("a party is called 'server', which is the server's own name; choose another")
    with_label = [party for party in job.party if party.label is not None]
    if len(with_label) != 1:
        raise JobError(f'{len(with_label)} parties have a label; exactly one must: label = {{ column = "..." }}')
    if with_label[0].role != "active":
        raise JobError(f'party {with_label[0].name!r} holds the label, so its role must be "active"')
    for number, party in enumerate(job.party):
        if party.table is None or not is_libsvm(party.table):
            if party.id is None:
                raise JobError(f"key party.{number}.id is missing; only a LIBSVM file's rows are known by number")
            if "first_index" in party.model_fields_set:
                raise JobError(f"party {party.name!r}: first_index goes with a table in LIBSVM's format")
        if party.sensitive and party.label is None:
            raise JobError(f"party {party.name!r} names sensitive columns; only the party with the label may")
        try:
            _check_columns(party)
            table_source(party, Path())
        except InputError as error:
            raise JobError(f"party {party.name!r}: {error}") from error


def _check_columns(party: PartySection) -> None:
    """Each column has one part to play; only sensitive ones may be features as well."""
    label = None if party.label is None else party.label.column
    named = {"columns": party.columns or [], "sensitive": party.sensitive, "label": [label] if label else []}
    for key, columns in named.items():
        if party.id in columns:
            raise JobError(f"{key} lists the id {party.id!r}, which says who a row is and nothing about them")
        if key != "label" and label in columns:
            raise JobError(f"{key} lists the label {label!r}; a model must not see it")
        for name in columns:
            if columns.count(name) > 1:
                raise JobError(f"{key} lists {name!r} twice")
    if party.columns == []:
        raise JobError("columns is empty; name at least one, or leave the key out to take all")


def _check_options(job: Job) -> None:
    name = solver_name(job)
    if name in SOLVERS:
        _build(SOLVERS[name].options, job.options, "job.options", f"solver {name!r}")


def _check_clock(job: JobFile) -> None:
    if job.clock is None:
        return
    names = ["server", *(party.name for party in job.party)]
    for key, table in {"speeds": job.clock.speeds, "latencies": job.clock.latencies}.items():
        for name in table:
            if name not in names:
                raise JobError(f"clock.{key} names {name!r}, which is no party{_near(name, names)}")
    job.to_clock()


def table_source(party: PartySection, base: Path) -> TableSource:
    """Where a party's table is; paths, an SQLite file's too, are relative to the job file's folder."""
    table, database = None, party.database
    if party.table is not None:
        if "://" in party.table:
            raise JobError(f"table is an address, {redact(party.table)}; give it as database, with sql")
        table = base / Path(party.table).expanduser()
    if database is not None and database.startswith(_SQLITE):
        database = f"{_SQLITE}{base / database.removeprefix(_SQLITE)}"
    return TableSource(table=table, database=database, sql=party.sql, id=party.id, first_index=party.first_index)


def _constraint(given: dict[str, Any]) -> Constraint:
    given = dict(given)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise JobError(f"job.constraint.kind is {kind!r}; choose one of {', '.join(KINDS)}")
    return _build(KINDS[kind], given, "job.constraint", kind)


def _build(what: type[T], given: Mapping[str, Any], where: str, owner: str) -> T:
    """A dataclass from a table of the file, with its types checked before its own checks run."""
    kinds = {field.name: get_type_hints(what)[field.name] for field in fields(what)}  # type: ignore[arg-type]
    for key, value in given.items():
        if key not in kinds:
            raise JobError(f"{where}: {owner} has no key {key!r}{_near(key, list(kinds))}")
        try:
            TypeAdapter(kinds[key]).validate_python(value, strict=True)
        except ValidationError as error:
            raise JobError(f"key {where}.{key}: {_said(*error.errors())}") from None
    try:
        return what(**given)
    except InputError as error:
        raise JobError(f"{where}: {error}") from error


def _explain(problem: Any) -> str:
    """One pydantic problem in words, with the key's full path."""
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key}{_near(path[-1], _known_keys(path[:-1]))}"
    if path == ["party"]:
        return "key party: a job needs at least one party, each under a heading [[party]]"
    if problem["type"] == "missing":
        return f"key {key} is missing"
    return f"key {key}: {_said(problem)}"


def _said(*problems: Any) -> str:
    """What pydantic says of one value, which is shown only where it is short and cannot hold a password."""
    text = " or ".join(problem["msg"] for problem in problems).replace(" or Input should be", " or")
    value = problems[0]["input"]
    if isinstance(value, str):
        value = redact(value)
    elif not isinstance(value, (bool, int, float)):
        return text
    return f"{text} (it is {value!r})"


def _known_keys(path: list[str]) -> list[str]:
    """The keys allowed at a place in the file."""
    section: type[BaseModel] = JobFile
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
            JobFile,
        )
    return list(section.model_fields)


def _near(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys are {', '.join(known)}"
