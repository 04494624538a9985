"""What a kit, or another participant, cannot do to a federation that runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

import msgpack
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from support.shops import PARTIES, Shops, running_shops, wait_until
from typer.testing import CliRunner

import evenhand.federation
from evenhand.cli.app import app
from evenhand.cli.federation_client import start
from evenhand.runtime.nvflare.admin import Admin

pytestmark = pytest.mark.timeout(300)
FORBIDDEN = [
    *("shutdown client shop", "restart client shop", "shutdown server", "remove_client shop", "dead shop {job}"),
    *("configure_site_log client shop DEBUG", "configure_site_log server DEBUG", "configure_job_log {job} all DEBUG"),
    *("sys_info client shop", "sys_info server", "report_resources client shop", "report_env client shop"),
    *("process_info shop", "process_info server", "show_config_vars shop", "conns shop", "list_pools shop"),
    *("cells", "peers shop", "route shop", "speed server shop", "stress 1", "bulk 1", "change_root tcp://x"),
    *("get_job_log {job} server", "get_job_log {job} all", "download_job_components {job}", "list_job {job}"),
    *("delete_job {job}", "delete_workspace {job}", "clone_job {job}", "list_sessions", "register_study x"),
    *("cat shop log.txt", "tail server log.txt", "ls shop", "pwd server", "show_errors {job}", "reset_errors {job}"),
]


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with running_shops(tmp_path_factory.mktemp("guard")) as running:
        yield running


@pytest.fixture(scope="module")
def job(shops: Shops) -> str:
    """A finished job of the submitter's kit."""
    with evenhand.federation.connect(shops.folder / "kits" / "submitter", 60.0) as federation:
        submission = federation.submit(shops.paths["job"])
        submission.wait()
        return submission.run


@pytest.mark.parametrize("kit", ["submitter", "operator", "admin"])
def test_no_kit_stops_a_party_reads_a_host_or_a_log_or_turns_on_debugging(shops: Shops, job: str, kit: str) -> None:
    before = {name: running.processes()[0].pid for name, running in shops.running.items()}
    admin = Admin(shops.folder / "kits" / kit, 60.0)
    with contextlib.closing(admin):
        for words in [one.format(job=job) for one in FORBIDDEN]:
            # As the server would get it from a client of the attacker's own.
            told = admin.ask(lambda session, one=words: session.api.server_execute(one))  # type: ignore[misc]
            said = json.dumps(told, default=str)
            assert "closed in this federation" in said or "Unknown command" in said, (words, said[:300])
    assert before == {name: running.processes()[0].pid for name, running in shops.running.items()}


def test_a_submitter_downloads_the_outcome_and_no_log_and_the_server_keeps_it(
    shops: Shops, job: str, tmp_path: Path
) -> None:
    with Admin(shops.folder / "kits" / "submitter", 60.0) as admin:
        place = Path(admin.ask(lambda session: session.download_job_result(job, str(tmp_path))))
    assert {path.name for path in (place / "workspace").iterdir()} == {"outcome.json"}
    assert not [path for path in place.rglob("*") if "log" in path.name or "audit" in path.name]
    shown = CliRunner().invoke(app, ["federation", "logs", str(shops.folder / "kits" / "server"), job])
    assert shown.exit_code == 0, shown.output
    assert "INFO" in shown.output


HOSTILE = """
import threading, time
def attack(cell):
    from nvflare.fuel.f3.message import Message
    while not getattr(cell, "running", False):
        time.sleep(0.1)
    time.sleep(15.0)
    for target in ("bank", "server"):
        for topic in ("process_info", "stop", "stop_cell", "change_root"):
            told = cell.send_request("_net_manager", topic, target, Message(payload="tcp://x"), timeout=3.0)
            print("ATTACK", target, topic, told.headers.get("cn__return_code"), told.payload, flush=True)
    print("ATTACK over", flush=True)
def made(original):
    def init(self, cell, *args, **kwargs):
        original(self, cell, *args, **kwargs)
        if self.cell.my_info.fqcn == "shop":
            threading.Thread(target=attack, args=(self.cell,), daemon=True).start()
    return init
import sys
if "client_train" in " ".join(sys.orig_argv):
    from nvflare.fuel.f3.cellnet import net_agent
    net_agent.NetAgent.__init__ = made(net_agent.NetAgent.__init__)
"""


def test_a_participant_gives_no_orders_to_another(
    shops: Shops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOSTILE)
    before = {name: shops.running[name].processes()[0].pid for name in ("server", "bank")}
    shops.running["shop"].stop()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    shops.start("shop")
    monkeypatch.undo()
    log = shops.folder / "shop.log"
    try:
        wait_until(lambda: "ATTACK over" in log.read_text())
        tried = [line for line in log.read_text().splitlines() if line.startswith("ATTACK ") and "over" not in line]
        assert len(tried) == 8
        assert all(line.endswith(" invalid_request None") for line in tried), tried
        assert before == {name: shops.running[name].processes()[0].pid for name in before}
    finally:
        shops.running["shop"].stop()
        shops.start("shop")
    with evenhand.federation.connect(shops.folder / "kits" / "operator", 60.0) as federation:
        wait_until(lambda: all(one.answers for one in federation.parties().values()))


def relay(port: int, address: str) -> socket.socket:
    """Return a listener that carries connections on from another address of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError), one, other:
            while content := one.recv(65536):
                other.sendall(content)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                other = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def test_the_same_kit_elsewhere_does_not_put_out_the_party_that_is_there(shops: Shops, tmp_path: Path) -> None:
    kit = shutil.copytree(shops.folder / "kits" / "shop", tmp_path / "kit")
    (kit / "lock").unlink(missing_ok=True)
    (kit / "log.txt").unlink()
    with relay(shops.port, "127.0.0.2") as listener:
        path = kit / "startup" / "fed_client.json"
        path.write_text(path.read_text().replace(f":{shops.port}", f":{listener.getsockname()[1]}"))
        thief = start(kit, shops.paths["shop"], tmp_path / "runs", tmp_path / "thief.log")
        try:
            log = shops.folder / "server.log"
            wait_until(lambda: "shop is connected from 127.0.0.1; its kit runs in two places" in log.read_text())
            with evenhand.federation.connect(shops.folder / "kits" / "admin", 60.0) as federation:
                outcome = federation.submit(shops.paths["job"]).wait()
                assert federation.parties()["shop"].answers
        finally:
            thief.stop()
    assert shops.side("shop").path.name == outcome.run
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("kit", "name"), [("shop", "bank"), ("shop", "server.job"), ("submitter", "bank")])
def test_a_name_belongs_to_a_certificate(shops: Shops, kit: str, name: str) -> None:
    startup = shops.folder / "kits" / kit / "startup"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    payload = msgpack.packb({"endpoint_name": name, "timestamp": time.time()})
    frame = bytearray(PREFIX_LEN + len(payload))
    Prefix(len(frame), 0, Types.HELLO, 0, 0, 0, 0, 0).to_buffer(frame, 0)
    frame[PREFIX_LEN:] = payload
    with (
        socket.create_connection(("localhost", shops.port), 30.0) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secured,
    ):
        secured.sendall(frame)
        with contextlib.suppress(OSError):
            while secured.recv(65536):
                pass
    with evenhand.federation.connect(shops.folder / "kits" / "operator", 60.0) as federation:
        assert {found for found, one in federation.parties().items() if one.answers} == set(PARTIES)
