"""Walk through tutorials as a reader would: `python docs/walkthrough.py docs/tutorials/hospitals.md ...`

In an empty folder, from the top of the page down: a block with a title is written to a file of that name, each line of
a `console` block that begins with `$` is typed, a `python` block is run. What was printed is put into the page; with
--check it is compared with what the page says, where numbers may differ by a hundredth, as another processor rounds.
With --picture the HTML page a tutorial wrote last becomes its picture (needs chromium).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(?P<kind>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
RULE = re.compile(r"[─━╸╺]+")


class Step(NamedTuple):
    """A command and what it printed."""

    command: str
    output: str


def steps(body: str) -> list[Step]:
    """What a `console` block types, and what it shows below each."""
    found = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    return [Step(*one.split("\n", 1)) for one in found]


def run(command: str | list[str], folder: Path) -> str:
    """What is printed; a command that fails ends the walk."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {**os.environ, "PATH": path, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        command, cwd=folder, env=settings, shell=isinstance(command, str), capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"$ {command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n") + "\n"


def walked(page: str, folder: Path) -> str:
    """The page with what was printed just now."""

    def block(found: re.Match[str]) -> str:
        kind, title, body = found["kind"], found["title"], found["body"]
        if title:
            (folder / title).write_text(body, encoding="utf-8")
        elif kind == "console":
            typed = [(step.command, run(step.command, folder)) for step in steps(body)]
            body = "".join(f"$ {command}\n{'' if output == chr(10) else output}" for command, output in typed)
        elif kind == "python":
            run([sys.executable, "-c", body], folder)
        head = f'{kind} title="{title}"' if title else kind
        return f"```{head}\n{body}```"

    return FENCE.sub(block, page)


def differences(said: str, printed: str) -> Iterator[str]:
    """Lines that say something else, whatever their spaces and rules, and numbers off by more than a hundredth."""
    for old, new in zip_longest(_lines(said), _lines(printed), fillvalue=""):
        numbers = [_numbers(line) for line in (old, new)]
        same = NUMBER.sub("0", old) == NUMBER.sub("0", new) and all(
            abs(one - other) <= 0.01 * max(1.0, abs(one)) for one, other in zip(*numbers, strict=False)
        )
        if not same:
            yield f"- {old}\n+ {new}"


def _lines(text: str) -> list[str]:
    lines = (" ".join(RULE.sub("─", line).split()) for line in text.splitlines())
    return [line for line in lines if line not in ("", "─")]


def _numbers(line: str) -> list[float]:
    return [float(found.replace(",", "")) for found in NUMBER.findall(line)]


def picture(page: Path, target: Path) -> None:
    """The top of an HTML page as a picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1000, "height": 1200})
        opened.goto(page.as_uri())
        height = min(1200, opened.evaluate("Math.ceil(document.body.getBoundingClientRect().height)"))
        opened.screenshot(path=target, clip={"x": 0, "y": 0, "width": 1000, "height": height})
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--picture", action="store_true")
    given = parser.parse_args()
    wrong = []
    for page in given.pages:
        said = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            printed = walked(said, Path(folder))
            if given.check:
                wrong += [f"{page}:\n{one}" for one in differences(said, printed)]
                continue
            page.write_text(printed, encoding="utf-8")
            if given.picture:
                made = max(Path(folder).rglob("*.html"), key=lambda path: path.stat().st_mtime)
                picture(made, page.with_suffix(".png"))
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
