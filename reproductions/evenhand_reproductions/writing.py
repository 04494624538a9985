"""Result files: a page of Markdown, its figure, and the records both were made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.runtime.files import write_bytes
from evenhand_reproductions.recording import Recorded


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


def write_page(name: str, title: str, recorded: Recorded, page: Page, out: Path) -> list[Path]:
    """Write the result files of a reproduction; returns their paths."""
    paths = [out / f"{name}.md", out / f"{name}.json"]
    recorded.write(paths[1])
    commands = [command for one in recorded.made for command in one.commands]
    parts = [f"# {title}", "\n".join(f"    {command}" for command in commands)]
    versions = ", ".join(f"{package} {' and '.join(numbers)}" for package, numbers in recorded.versions.items())
    more = ", with runs that were replaced since" if any(one.replaced for one in recorded.made) else ""
    parts += [f"{versions}. {sum(one.seconds for one in recorded.made):.0f} seconds in all{more}."]
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


def counted(number: int, what: str = "run") -> str:
    """3 runs, 1 run."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def seeds_of(seeds: Iterable[int]) -> str:
    """Seeds 10-12, or seed 10; one by one where some between are missing."""
    found = sorted({int(seed) for seed in seeds})
    if len(found) == 1:
        return f"seed {found[0]}"
    whole = found == list(range(found[0], found[-1] + 1))
    return f"seeds {found[0]}-{found[-1]}" if whole else f"seeds {', '.join(map(str, found))}"


def runs_of(seeds: Iterable[int], what: str = "run") -> str:
    """3 runs (seeds 10-12)."""
    found = {int(seed) for seed in seeds}
    return f"{counted(len(found), what)} ({seeds_of(found)})"


def means(records: pd.DataFrame, column: str) -> pd.Series:
    """Mean over runs of each (set, method)."""
    return records.groupby(["set", "method"], sort=False)[column].mean()
