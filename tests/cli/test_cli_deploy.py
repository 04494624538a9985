"""What the files of deploy/ run is there: commands and options by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from evenhand.cli.app import app

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def said(name: str) -> list[list[str]]:
    """The words after `evenhand` of every command in a file."""
    text = (DEPLOY / name).read_text()
    if name == "compose.yml":
        return [re.findall(r'"([^"]*)"', line) for line in re.findall(r"command: \[(.*)\]", text)]
    if name == "Dockerfile":
        return [re.findall(r'"([^"]*)"', text[text.rindex("CMD [") :])[1:]]
    return [line.split()[1:] for line in re.findall(r"ExecStart=(.*)", text)]


@pytest.mark.parametrize("name", ["compose.yml", "Dockerfile", "evenhand@.service"])
def test_commands_and_options_are_there(name: str) -> None:
    found = said(name)
    assert found
    for command, *words in found:
        entry = COMMANDS[command]
        if command == "federation":
            entry = entry.commands[words.pop(0)]
        options = {option for one in entry.params for option in one.opts}
        assert {word for word in words if word.startswith("--")} <= options, (name, command)
