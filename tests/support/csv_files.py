"""CSV files of every lawful writing, and tables to write: what a reader must not lose a row of."""

from __future__ import annotations

import random
from dataclasses import dataclass

WORDS = [
    "cook",
    "nurse",
    "Zoë",
    "名前",
    "naïve",
    "a b",
    " padded ",
    "it's",
    "5' 3",
    "NA",
    "null",
    "None",
    "-",
    "#",
    "//",
]
AWKWARD = [
    "#N/A",
    "# 3",
    "//x",
    "a,b",
    "a;b",
    "a|b",
    "a\tb",
    'say "hi"',
    '"',
    "two\nlines",
    "two\r\nlines",
    "\n",
    "tail ",
]

NAMES = ["id", "age", "Ort", "a b", "x,y", 'in "', "two\nlines", "#", "x", "y", "z", "été", "7"]


@dataclass(frozen=True)
class Writing:
    """How a table is written: what separates cells, ends lines and stands before and after the rest."""

    delimiter: str
    line_end: str
    bom: bool
    blank_at_end: int
    last_line_end: bool
    quote_all: bool


def random_writing(rng: random.Random) -> Writing:
    return Writing(
        delimiter=rng.choice([",", ",", ",", ";", "\t", "|"]),
        line_end=rng.choice(["\n", "\n", "\r\n", "\r"]),
        bom=rng.random() < 0.2,
        blank_at_end=rng.choice([0, 0, 0, 1, 3]),
        last_line_end=rng.random() < 0.8,
        quote_all=rng.random() < 0.2,
    )


def random_cells(rng: random.Random, rows: int) -> list[str]:
    """A column of one kind, with a few empty cells or cells of another kind in some."""
    kind = rng.choice(["whole", "code", "decimal", "date", "moment", "word", "awkward", "truth", "hash", "empty"])
    make = {
        "whole": lambda: str(rng.randrange(-999, 10**6)),
        "code": lambda: f"{rng.randrange(10**5):05d}",
        "decimal": lambda: repr(round(rng.gauss(0.0, 100.0), rng.randrange(8))),
        "date": lambda: f"{rng.randrange(1900, 2030)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
        "moment": lambda: f"2020-01-{rng.randrange(1, 29):02d} {rng.randrange(24):02d}:30:00",
        "word": lambda: rng.choice(WORDS),
        "awkward": lambda: rng.choice(AWKWARD),
        "truth": lambda: rng.choice(["true", "false"]),
        "hash": lambda: f"#{rng.randrange(99)}" if rng.random() < 0.3 else str(rng.randrange(99)),
        "empty": lambda: "",
    }[kind]
    cells = [make() for _ in range(rows)]
    if rng.random() < 0.3:
        for row in rng.sample(range(rows), k=rng.randint(1, max(1, rows // 4))):
            cells[row] = rng.choice(["", "", "#N/A", rng.choice(WORDS)])
    return cells


def random_table(rng: random.Random) -> dict[str, list[str]]:
    """A table of text; its first column is fit for an id in half of the cases."""
    rows, width = rng.choice([1, 2, 7, 40, 200]), rng.choice([1, 2, 3, 6, 12])
    names = rng.sample(
        ["id", "age", "Ort", "a b", "x,y", 'in "', "two\nlines", "#", "x", "y", "z", "été", "7"], k=width
    )
    table = {name: random_cells(rng, rows) for name in names}
    if rng.random() < 0.5:
        width = rng.choice([1, 6])
        table[names[0]] = [f"{number:0{width}d}" for number in rng.sample(range(10**4), k=rows)]
    return table


def written(table: dict[str, list[str]], writing: Writing) -> bytes:
    """A table as the bytes of a CSV file."""

    def cell(text: str) -> str:
        # An empty cell alone on its line would be a blank line.
        needed = any(sign in text for sign in '",;|\t\r\n') or (text == "" and len(table) == 1)
        return '"' + text.replace('"', '""') + '"' if needed or writing.quote_all else text

    lines = [list(table), *map(list, zip(*table.values(), strict=True))]
    text = writing.line_end.join(writing.delimiter.join(map(cell, line)) for line in lines)
    text += writing.line_end * (writing.last_line_end + writing.blank_at_end)
    return b"\xef\xbb\xbf" * writing.bom + text.encode()
