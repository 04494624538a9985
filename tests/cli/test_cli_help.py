"""Every command's --help says what it is, what each option does, and shows examples that can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.cli.app import app

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def commands(group: Any = None, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it."""
    group = typer.main.get_command(app) if group is None else group
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*name, word))
        else:
            yield (*name, word), command


ALL = dict(commands())
EXAMPLES = [
    (name, line.strip())
    for name, command in ALL.items()
    for line in (command.help or "").splitlines()
    if line.strip().startswith("evenhand ")
]


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_help_is_complete(name: tuple[str, ...], here: Command) -> None:
    done = here(*name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    command = ALL[name]
    assert len((command.help or "").split("\n")[0]) > 20
    for parameter in command.params:
        assert parameter.name == "help" or getattr(parameter, "help", None), f"{parameter.name} says nothing"
    assert any(words == name for words, _ in EXAMPLES), "there is no example"


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line[:70] for _, line in EXAMPLES])
def test_examples_are_words_the_command_understands(name: tuple[str, ...], line: str) -> None:
    """Whatever the files hold: options exist and values are of their kinds."""
    words = shlex.split(re.split(r"\s[|>#]", line)[0])[1:]
    assert tuple(words[: len(name)]) == name
    with ALL[name].make_context(name[-1], words[len(name) :]):
        pass


def test_examples_of_the_first_steps_do_what_they_say(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tables and job files of the names that examples use."""
    monkeypatch.chdir(tmp_path)
    small = SmallJob(tmp_path)
    small.content["job"]["max_rounds"] = 3
    small.write()
    small.frames["bank"].rename(columns={"outcome": "repaid", "sex": "origin"}).to_csv("bank.csv")
    small.frames["shop"].rename_axis("customer_no").reset_index().assign(customer=small.frames["shop"].index).to_csv(
        "shop.csv", index=False
    )
    small.frames["social"].to_csv("phone.csv")
    HospitalJob(tmp_path / "rows").write()
    (tmp_path / "rows" / "job.toml").rename("rows.toml")
    for name, other in {"north": "ghent", "south": "lyon"}.items():
        import pandas as pd

        pd.read_csv(tmp_path / "rows" / f"{other}.csv").to_parquet(f"{name}.parquet")
    for _, line in EXAMPLES:
        words = shlex.split(line)[1:]
        if words[0] == "init":
            done = here(*words, *([] if "--out" in words else ["--out", f"{len(words)}.toml"]))
            assert done.returncode == 0, f"{line}: {done.stderr}"
    small.write()
    for line in (
        "check job.toml",
        "train job.toml --out runs/monday",
        "watch runs/monday",
        "report runs/monday",
        "doctor",
    ):
        assert f"evenhand {line}" in [example for _, example in EXAMPLES]
        done = here(*line.split())
        assert done.returncode in (0, 9), f"{line}: {done.stderr}"
    done = here("predict", "runs/monday")
    assert done.returncode == 0
