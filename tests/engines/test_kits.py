"""Start-up kits are closed: nothing in them lets a job bring code, an admin a shell, or a log leave the site."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FqcnInfo
from nvflare.fuel.f3.cellnet.registry import Registry
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.security.security import COMMAND_CATEGORIES

from evenhand.errors import InputError
from evenhand.runtime.nvflare.flare_transport import FlareTransport
from evenhand.runtime.nvflare.kits import ROLES, provision, settle


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kits") / "kits"
    provision("shops", "localhost", 18002, ["bank", "shop"], out)
    return out


def test_there_is_a_kit_for_everybody_and_only_its_owner_can_read_it(kits: Path) -> None:
    assert {path.name for path in kits.iterdir()} == {"server", "bank", "shop", *ROLES, "authority"}
    for path in kits.rglob("*"):
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), path
    keys = {kit: [path.read_text() for path in (kits / kit).rglob("*.key")] for kit in ("server", "bank", "shop")}
    assert all(len(found) == 1 for found in keys.values())
    assert len({found[0] for found in keys.values()}) == 3


@pytest.mark.parametrize("kit", ["server", "bank", "shop"])
def test_a_site_runs_two_classes_of_ours_and_nothing_else(kits: Path, kit: str) -> None:
    resources = json.loads((kits / kit / "local" / "resources.json").read_text())
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert [path.rpartition(".")[2] for path in resources["class_allow_list"]] == [
        "FederationServer",
        "FederationParty",
    ]
    permissions = json.loads((kits / kit / "local" / "authorization.json").read_text())["permissions"]
    assert permissions.keys() == {role.flare for role in ROLES.values()}
    for rights in permissions.values():
        assert {rights[right] for right in ("byoc", "shell_commands", "clone_job")} == {"none"}
    # Each right is a command: FLARE's categories hold others, such as those that delete a site's logs.
    categories = set(COMMAND_CATEGORIES.values()) - {"download_job"}
    for name, role in ROLES.items():
        given = {right for right, whose in permissions[role.flare].items() if whose != "none"}
        assert given == set(role.rights), name
        assert not given & categories


def test_a_kit_of_an_older_version_is_guarded_when_it_starts(kits: Path, tmp_path: Path) -> None:
    for name in ("server", "bank"):
        kit = shutil.copytree(kits / name, tmp_path / name)
        for _ in range(2):
            settle(kit)
            found = json.loads((kit / "local" / "resources.json").read_text())["components"]
            assert [one["path"].rpartition(".")[2] for one in found].count("SiteGuard") == 1
        assert any(one["path"].endswith(".JobStore") for one in found) == (name == "server")


def test_no_log_leaves_a_site(kits: Path) -> None:
    resources = json.loads((kits / "bank" / "local" / "resources.json").read_text())
    assert resources["allow_log_streaming"] is False
    assert "SiteLogStreamer" not in json.dumps(resources["components"])


def test_the_server_keeps_its_jobs_in_its_kit(kits: Path) -> None:
    settle(kits / "server")
    text = (kits / "server" / "local" / "resources.json").read_text()
    assert str(kits / "server" / "jobs") in text
    assert "/tmp/nvflare" not in text


def test_jobs_that_an_older_version_kept_in_the_kit_are_moved_to_the_store(kits: Path, tmp_path: Path) -> None:
    kit, store = shutil.copytree(kits / "server", tmp_path / "server"), tmp_path / "store"
    (kit / "jobs" / "one").mkdir(parents=True)
    (kit / "jobs" / "one" / "meta").write_text("{}")
    for _ in range(2):
        settle(kit, store)
        assert (store / "jobs" / "one" / "meta").read_text() == "{}"
        assert not (kit / "jobs").exists()
        assert str(store / "jobs") in (kit / "local" / "resources.json").read_text()


def test_kits_are_never_written_over(kits: Path) -> None:
    with pytest.raises(InputError, match="never overwritten"):
        provision("shops", "localhost", 18002, ["bank", "shop"], kits)


class OneCell:
    """As much of FLARE's engine and cell as the transport uses; what it registers is called by hand."""

    core_cell = property(lambda self: self)
    my_info = FqcnInfo("bank.job-1")
    req_reg = Registry()

    def get_cell(self) -> OneCell:
        return self

    def __init__(self) -> None:
        self.calls: dict[str, Callable[[CellMessage], None]] = {}

    def register_request_cb(self, channel: str, topic: str, cb: Callable[[CellMessage], None]) -> None:
        self.calls[topic] = cb


def test_the_origin_of_a_packet_counts_not_what_it_says_of_itself() -> None:
    cell, got = OneCell(), list[tuple[str, bytes]]()
    transport = FlareTransport(cell, "job-1", ["server", "shop"])
    transport.open(lambda peer, content: got.append((peer, content)))
    for origin in ("shop.job-1", "shop.job-2", "phone.job-1", "shop", "server", "server.job-1", None):
        headers = {MessageHeaderKey.ORIGIN: origin, "peer_name": "shop", "client_name": "shop"}
        cell.calls["packet"](CellMessage(headers, b"packet"))
        cell.calls["word"](CellMessage(headers, f"the word of {origin}".encode()))
        cell.calls["word"](CellMessage(headers, b"x" * 10**6))
    assert [peer for peer, _ in got] == ["shop", "server"]
    assert transport.words == {"shop": b"the word of shop.job-1", "server": b"the word of server.job-1"}
    assert transport.strangers == ["shop.job-2", "phone.job-1", "shop", "server", "None"]
