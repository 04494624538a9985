"""Result files: a page of Markdown, its figure, and the records both were made from."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.errors import RunError
from evenhand.reproductions.settings import Record
from evenhand.runtime.files import write_bytes

PACKAGES = ("evenhand", "numpy", "scipy", "scikit-learn", "fairlearn", "torch")


@dataclass(frozen=True)
class Page:
    """What a result file says."""

    ran: Sequence[str]
    """What was run, a sentence each."""
    tables: Sequence[tuple[str, str]]
    """Heading and Markdown of each table."""
    notes: Sequence[str]
    """A sentence for each thing to know when comparing."""
    checks: Sequence[str] = ()
    """Targets, and whether they were met."""
    figure: Callable[[Path], None] | None = field(default=None)


@dataclass(frozen=True)
class Recorded:
    """The numbers of a reproduction, and how they came about."""

    command: str
    seconds: float
    records: list[Record]
    versions: dict[str, str] = field(default_factory=lambda: _versions())

    def write(self, path: Path) -> None:
        lines = ",\n".join(json.dumps(record, default=float) for record in self.records)
        top = {"command": self.command, "seconds": self.seconds, "versions": self.versions}
        text = f'{json.dumps(top)[:-1]}, "records": [\n{lines}\n]}}\n'
        write_bytes(path, text.encode())

    @classmethod
    def read(cls, path: Path) -> Recorded:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(content["command"], content["seconds"], content["records"], content["versions"])
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path} holds no records to write a page from ({error}); run without --rewrite") from error


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        # torch is an extra.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write_page(name: str, title: str, recorded: Recorded, page: Page, out: Path) -> list[Path]:
    """Write the result files of a reproduction; returns their paths."""
    paths = [out / f"{name}.md", out / f"{name}.json"]
    recorded.write(paths[1])
    versions = ", ".join(f"{package} {number}" for package, number in recorded.versions.items())
    parts = [f"# {title}", f"    {recorded.command}", f"{versions}. {recorded.seconds:.0f} seconds in all."]
    parts += ["## What was run", bullets(page.ran)]
    if page.figure is not None:
        paths.append(out / f"{name}.png")
        page.figure(paths[-1])
        parts.append(f"![{title}]({name}.png)")
    for heading, table in page.tables:
        parts += [f"## {heading}", table]
    if page.checks:
        parts += ["## Targets", bullets(page.checks)]
    parts += ["## Where ours and the paper's differ, and why", bullets(page.notes)]
    write_bytes(paths[0], ("\n\n".join(parts) + "\n").encode())
    return paths


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: pd.Series, scale: float = 1.0, digits: int = 3) -> str:
    """Mean ± standard deviation over runs; the mean alone if there is one run."""
    numbers = scale * values.to_numpy(dtype=np.float64)
    mean = f"{numbers.mean():.{digits}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {numbers.std(ddof=1):.{digits}f}"


def means(records: pd.DataFrame, column: str) -> pd.Series:
    """Mean over runs of each (set, method)."""
    return records.groupby(["set", "method"], sort=False)[column].mean()
