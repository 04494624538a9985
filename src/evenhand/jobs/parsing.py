"""Read TOML files and parse them into sections; every error names the file and the key, and shows no password."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand.data.tables.addresses import Scrubber
from evenhand.errors import InputError, JobError
from evenhand.printing import near, quoted, toml_text

Section = TypeVar("Section", bound=BaseModel)
T = TypeVar("T")


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


def once(method: Callable[[Section], T]) -> Callable[[Section], T]:
    """Cache a method's value for each section; sections never change."""
    name = f"once {method.__name__}"

    @wraps(method)
    def kept(self: Section) -> T:
        if name not in self.__dict__:
            self.__dict__[name] = method(self)
        found: T = self.__dict__[name]
        return found

    return kept


def read_toml(path: Path, what: str = "job file") -> dict[str, Any]:
    """Return the unchecked content of a job file or another TOML file."""
    if not path.is_file():
        raise JobError(f"there is no {what} {path}")
    try:
        # Windows editors put a byte order mark in front.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        problem = str(error)
    except OSError as error:
        raise JobError(f"{path} cannot be read: {error.strerror}") from error
    # Raise outside the handler: such errors contain the whole file, which may hold a password.
    raise JobError(f"{path}: not valid TOML: {problem}")


@contextmanager
def under(key: str) -> Iterator[None]:
    """Name the key of the file in errors about its value."""
    try:
        yield
    except InputError as error:
        raise JobError(f"{key}: {error}") from error


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
        raise SeveralProblems(list(dict.fromkeys(problem for error in found for problem in problems_of(error))))


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
        problems = _explained(error.errors(), section)
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


# What pydantic adds to a key's path for each kind of value that the key takes.
_KINDS: Final = re.compile(
    r"(str|int|float|bool|dict|list|literal|function-[a-z]+|constrained-[a-z]+|[A-Z]\w*Section)(\[.*\])?$"
)


def _explained(problems: Sequence[Any], whole: type[BaseModel]) -> list[str]:
    """Return pydantic's problems as sentences: one for each key, though it may take several kinds of values."""
    of_keys: dict[tuple[str, ...], list[Any]] = {}
    for problem in problems:
        steps = [str(part) for part in problem["loc"]]
        path = tuple(part for place, part in enumerate(steps) if place == 0 or not _KINDS.match(part))
        of_keys.setdefault(path, []).append(problem)
    # A value of one kind that is wrong inside is not wrong as a value of the other kinds.
    outer = {path for path in of_keys for other in of_keys if len(other) > len(path) and other[: len(path)] == path}
    return [_explain(path, found, whole) for path, found in of_keys.items() if path not in outer]


def _explain(path: tuple[str, ...], problems: Sequence[Any], whole: type[BaseModel]) -> str:
    """Return the problems of one key as a sentence, with the key's full path."""
    key, kind = ".".join(path), problems[0]["type"]
    if kind == "extra_forbidden":
        known = _known_keys(list(path[:-1]), whole)
        return f"unknown key {key}{_elsewhere(path, known, whole) or near(path[-1], known)}"
    if list(path) in (["party"], ["client"]):
        return f"key {key}: a job needs at least one {key}, each under a heading [[{key}]]"
    if kind == "missing":
        return f"key {key} is missing{_example(path, whole)}"
    return f"key {key}: {_said(*problems)}{_example(path, whole)}"


def _elsewhere(path: tuple[str, ...], known: Sequence[str], whole: type[BaseModel]) -> str:
    """Return the end of a message about a key that stands in the wrong section; empty if no section has it."""
    # Parties and clients first: the server's section has keys in common with them.
    for name, field in sorted(whole.model_fields.items(), key=lambda one: "list" not in str(one[1].annotation)):
        section = _section_of(field.annotation)
        if section is not None and path[-1] in section.model_fields and path[-1] not in known:
            heading = f"[[{name}]]" if "list" in str(field.annotation) else f"[{name}]"
            return f"; it belongs under {heading}"
    return ""


def _example(path: tuple[str, ...], whole: type[BaseModel]) -> str:
    """Return how to write a key that takes a list or a table."""
    names = [part for part in path if not part.isdigit()]
    section: type[BaseModel] | None = whole
    for name in names:
        if section is None or name not in section.model_fields:
            return ""
        field = section.model_fields[name]
        example = next(iter(field.examples or ()), None)
        if isinstance(example, (list, dict)):
            return f"; for instance {name} = {toml_text(example)}"
        section = _section_of(field.annotation)
    if names and section is not None:
        needed = {one: next(iter(field.examples or ()), "") for one, field in section.model_fields.items()}
        return f"; for instance {names[-1]} = {toml_text(dict(list(needed.items())[:1]))}"
    return ""


def _said(*problems: Any) -> str:
    """Return pydantic's message about one value; the value is shown only if it is short."""
    said = dict.fromkeys(problem["msg"].partition(" or instance of ")[0] for problem in problems)
    text = " or ".join(said).replace(" or Input should be", " or").replace("dictionary", "table")
    value = problems[-1]["input"]
    return f"{text} (it is {quoted(value)})" if isinstance(value, (str, bool, int, float)) else text


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a key holds, if it holds one."""
    kinds = (kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return next((kind for kind in kinds if issubclass(kind, BaseModel)), None)


def _known_keys(path: list[str], whole: type[BaseModel]) -> list[str]:
    """Return the allowed keys at a place in the file."""
    section = whole
    for part in path:
        if part.isdigit():
            continue
        section = _section_of(section.model_fields[part].annotation) or whole
    return list(section.model_fields)
