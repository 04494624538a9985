"""What job files of both kinds of split are checked with: strict sections, and messages that name the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from evenhand.constraints.kinds import KINDS, Constraint
from evenhand.data.tables.addresses import redact
from evenhand.data.tables.readers import TableSource
from evenhand.errors import InputError, JobError
from evenhand.protocol.names import check_name
from evenhand.protocol.roles import SERVER
from evenhand.runtime.clock import VirtualClock

T = TypeVar("T")
Section = TypeVar("Section", bound=BaseModel)
_SQLITE: Final = "sqlite:///"


def as_tables(value: Any) -> list[dict[str, Any]]:
    tables = value if isinstance(value, list) else [value]
    if not all(isinstance(table, dict) for table in tables):
        raise PydanticCustomError("tables", "Input should be a table such as { kind = ... }, or a list of them")
    return tables


def as_plain(value: Any) -> str | int | float | bool:
    if not isinstance(value, (str, int, float, bool)):
        raise PydanticCustomError("plain", "Input should be text, a number, true or false")
    return value


class Strict(BaseModel):
    """A section that knows its keys and takes no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


ConstraintTables = Annotated[list[dict[str, Any]], PlainValidator(as_tables)]


class ClockSection(Strict):
    """`[clock]`: speeds of machines and links, for the virtual clock."""

    speed: float = 1e9
    latency: float = 0.0
    bandwidth: float = float("inf")
    speeds: dict[str, float] = Field(default_factory=dict)
    latencies: dict[str, float] = Field(default_factory=dict)


class LabelSection(Strict):
    """`label = { column = "defaulted", positive = "yes" }`."""

    column: str
    positive: Annotated[str | int | float | bool | None, PlainValidator(as_plain)] = None


class Located(Protocol):
    """A section that says where a table is."""

    @property
    def table(self) -> str | None: ...
    @property
    def database(self) -> str | None: ...
    @property
    def sql(self) -> str | None: ...


class Columned(Protocol):
    """A section that says what columns of a table are there for."""

    @property
    def id(self) -> str | None: ...
    @property
    def columns(self) -> list[str] | None: ...
    @property
    def label(self) -> LabelSection | None: ...
    @property
    def sensitive(self) -> list[str]: ...


def read_toml(path: Path) -> dict[str, Any]:
    """A job file's content, not yet checked."""
    if not path.is_file():
        raise JobError(f"there is no job file {path}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: not valid TOML: {error}") from error


def validated(section: type[Section], content: dict[str, Any], where: str) -> Section:
    """A whole file as its sections; whatever is wrong is a JobError that names file and keys."""
    try:
        return section.model_validate(content)
    except ValidationError as error:
        # Without the cause: pydantic quotes its input, which may be an address with a password.
        raise JobError("\n".join(f"{where}: {_explain(problem, section)}" for problem in error.errors())) from None


def check_columns(section: Columned) -> None:
    """Each column has one part to play; only sensitive ones may be features as well."""
    label = None if section.label is None else section.label.column
    named = {"columns": section.columns or [], "sensitive": section.sensitive, "label": [label] if label else []}
    for key, columns in named.items():
        if section.id in columns:
            raise JobError(f"{key} lists the id {section.id!r}, which says who a row is and nothing about them")
        if key != "label" and label in columns:
            raise JobError(f"{key} lists the label {label!r}; a model must not see it")
        for name in columns:
            if columns.count(name) > 1:
                raise JobError(f"{key} lists {name!r} twice")
    if section.columns == []:
        raise JobError("columns is empty; name at least one, or leave the key out to take all")


def check_names(kind: Literal["party", "client"], names: list[str]) -> None:
    """Refuse names that cannot be a folder's, and one name for two."""
    for number, name in enumerate(names):
        try:
            # Redacted: it may be an address that was put in the wrong place, and no name has what takes a password's.
            check_name(kind, redact(name))
        except InputError as error:
            raise JobError(f"key {kind}.{number}.name: {error}") from error
        if names.count(name) > 1:
            both = "two parties" if kind == "party" else "two clients"
            raise JobError(f"{both} are called {name!r}; names must differ")


def check_clock(clock: ClockSection | None, kind: str, names: list[str]) -> None:
    """Refuse speeds and latencies of somebody who is not there."""
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


def located(section: Located, base: Path, id: str | None = None, first_index: Any = 1) -> TableSource:
    """Where a table is; paths, an SQLite file's too, are relative to the job file's folder."""
    table, database = None, section.database
    if section.table is not None:
        if "://" in section.table:
            raise JobError(f"table is an address, {redact(section.table)}; give it as database, with sql")
        table = base / Path(section.table).expanduser()
    if database is not None and database.startswith(_SQLITE):
        database = f"{_SQLITE}{base / database.removeprefix(_SQLITE)}"
    return TableSource(table=table, database=database, sql=section.sql, id=id, first_index=first_index)


def to_constraint(given: dict[str, Any]) -> Constraint:
    given = dict(given)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise JobError(f"job.constraint.kind is {kind!r}; choose one of {', '.join(KINDS)}")
    return build(KINDS[kind], given, "job.constraint", kind)


def build(what: type[T], given: Mapping[str, Any], where: str, owner: str) -> T:
    """A dataclass from a table of the file, with its types checked before its own checks run."""
    kinds = {field.name: get_type_hints(what)[field.name] for field in fields(what)}  # type: ignore[arg-type]
    for key, value in given.items():
        if key not in kinds:
            raise JobError(f"{where}: {owner} has no key {key!r}{near(key, list(kinds))}")
        try:
            TypeAdapter(kinds[key]).validate_python(value, strict=True)
        except ValidationError as error:
            raise JobError(f"key {where}.{key}: {_said(*error.errors())}") from None
    try:
        return what(**given)
    except InputError as error:
        raise JobError(f"{where}: {error}") from error


def _explain(problem: Any, whole: type[BaseModel]) -> str:
    """One pydantic problem in words, with the key's full path."""
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
    """What pydantic says of one value, which is shown only where it is short and cannot hold a password."""
    text = " or ".join(problem["msg"] for problem in problems).replace(" or Input should be", " or")
    value = problems[0]["input"]
    if isinstance(value, str):
        value = redact(value)
    elif not isinstance(value, (bool, int, float)):
        return text
    return f"{text} (it is {value!r})"


def _known_keys(path: list[str], whole: type[BaseModel]) -> list[str]:
    """The keys allowed at a place in the file."""
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
