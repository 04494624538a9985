"""What the files of deploy/ run is there: commands and options by their names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("name", ["compose.yml", "Dockerfile", "evenhand@.service", "evenhand-server.service"])
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


UNITS = ["evenhand@.service", "evenhand-server.service"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_calls_the_units_closed(name: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    words = [analyze, "security", "--offline=true", "--threshold=30", str(DEPLOY / name)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if "Overall exposure level" not in done.stdout:
        pytest.skip(f"this systemd-analyze cannot look at a file: {done.stderr[-200:]}")
    # The threshold is ten times the level: 3.0.
    assert done.returncode == 0, done.stdout[-2000:]


def test_both_units_are_as_closed_as_each_other() -> None:
    one, other = ((DEPLOY / name).read_text().partition("# No privileges")[2] for name in UNITS)
    assert one == other


def test_plain_manifests_are_those_of_the_chart() -> None:
    done = subprocess.run(
        [sys.executable, str(DEPLOY / "render.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def manifests(name: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text()))
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


@pytest.mark.parametrize("name", ["server", "party"])
def test_pods_have_no_privileges_and_limits(name: str) -> None:
    """The rules of Kubernetes' restricted profile, and more."""
    found = manifests(name)
    stateful = found["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1, "a kit runs once"
    pod = stateful["template"]["spec"]
    assert stateful["selector"]["matchLabels"].items() <= stateful["template"]["metadata"]["labels"].items()
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {one["name"]: one for one in pod["volumes"]}
    for container in (*pod["initContainers"], *pod["containers"]):
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"] == {"drop": ["ALL"]}
        for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
            assert amounts.keys() >= {"cpu", "memory"}
        mounts = {one["name"]: one for one in container["volumeMounts"]}
        assert mounts.keys() <= volumes.keys()
        # Secrets and the party's file, which holds its policy, cannot be changed.
        for one in mounts.keys() & {"kit", "own"}:
            assert mounts[one]["readOnly"] is True
    (main,) = pod["containers"]
    assert "kit" not in {one["name"] for one in main["volumeMounts"]}, "the main container writes to a copy"
    assert {"readinessProbe", "livenessProbe"} <= main.keys()
    assert main["image"].partition(":")[2] not in ("", "latest")


@pytest.mark.parametrize("name", ["server", "party"])
def test_commands_in_pods_are_there(name: str) -> None:
    (main,) = manifests(name)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    _, command, *words = main["args"]
    options = {option for one in COMMANDS["federation"].commands[command].params for option in one.opts}
    assert {word for word in words if word.startswith("--")} <= options
    probe = main["readinessProbe"]
    if name == "party":
        assert probe["exec"]["command"][:2] == ["evenhand", "doctor"]
    else:
        assert probe["tcpSocket"]["port"] in [one["name"] for one in main["ports"]]
        assert "--store" in words, "jobs lie outside the kit, which is a copy"


def test_networks_let_parties_connect_to_the_server_and_nothing_else() -> None:
    server, party = (manifests(name)["NetworkPolicy"]["spec"] for name in ("server", "party"))
    for one in (server, party):
        assert set(one["policyTypes"]) == {"Ingress", "Egress"}
    assert server["egress"] == []
    assert [port["port"] for rule in server["ingress"] for port in rule["ports"]] == [8002]
    assert party["ingress"] == []
    assert {port["port"] for rule in party["egress"] for port in rule["ports"]} == {8002, 53}
    assert manifests("server")["Service"]["spec"]["ports"][0]["port"] == 8002
    assert "Service" not in manifests("party")


def test_only_what_is_installed_reaches_the_build() -> None:
    lines = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert {word for one in copied for word in one.split()} <= {rule[1:] for rule in rules if rule.startswith("!")}
