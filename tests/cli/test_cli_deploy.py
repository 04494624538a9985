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


def test_the_service_has_no_privileges_and_a_limit() -> None:
    text = (DEPLOY / "evenhand@.service").read_text()
    said = re.findall(r"^(\w+)=(.*)$", text, flags=re.MULTILINE)
    wanted = {
        "User": "evenhand",
        "NoNewPrivileges": "true",
        "CapabilityBoundingSet": "",
        "ProtectSystem": "strict",
        "ReadOnlyPaths": "/srv/evenhand/own/party.toml",
        "SystemCallFilter": "@system-service",
        "MemorySwapMax": "0",
        "LimitCORE": "0",
    }
    assert set(wanted.items()) <= set(said)
    assert {"MemoryMax", "TasksMax"} <= dict(said).keys()
    assert all(
        path.startswith(("/srv/evenhand/kits/", "/srv/evenhand/own")) for path in dict(said)["ReadWritePaths"].split()
    )


def test_containers_have_no_privileges_and_a_limit() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert {"no-new-privileges:true", "seccomp=builtin"} <= set(service["security_opt"])
        assert service["user"].startswith("10001")
        assert service["mem_limit"] == service["memswap_limit"]
        assert service["pids_limit"] > 0
        # The party's own file holds its policy: the container cannot change it.
        mounted = [one for one in service["volumes"] if ":/home/evenhand/own" in one]
        assert mounted[-1].endswith(":ro"), name


def test_the_image_installs_nothing_that_is_not_locked() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:install|wheel) (.*)", text)
    assert len(installs) == 4
    assert all("--require-hashes" in one or "--no-deps" in one for one in installs)
    assert "--no-build-isolation" in installs[1]
    assert re.search(r"^USER 10001", text, flags=re.MULTILINE)
    assert "chmod a-s" in text
