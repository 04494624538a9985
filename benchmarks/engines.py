"""Round trips on each engine: a server sends n doubles to six parties, and every one sends them back.

In one process; on a provisioned NVIDIA FLARE federation on this machine (mutual TLS, a process for everybody); and on a
Flower SuperLink with SuperNodes (engines_flower.py), which starts a process whenever it visits a party. On both: bare
(the same bytes in the engine's own messages and nothing else), and by roles, links and packets as every job runs. Turns
alternate within one run, and medians are compared. Bytes on the wire are what the kernel has counted on the server's
port during the turns by roles, beside the transcript's own arithmetic.

Each engine has an environment of its own, and what is not installed is not measured; so once in each:

    .venv-nvflare/bin/python benchmarks/engines.py
    .venv-flower/bin/python benchmarks/engines.py
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

try:
    from nvflare.apis.controller_spec import Task
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.shareable import Shareable, make_reply
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.f3.message import Message as CellMessage
except ModuleNotFoundError:
    Controller = Executor = object

from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Follower, Role, Sends
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.site import Program, Site

PARTIES = [f"party{number}" for number in range(6)]
SIZES = (1, 40_000, 1_000_000)
TURNS, ROUNDS = 10, 8
PORT = "EVENHAND_BENCHMARK_PORT"
ECHO = Schema("echo", {"numbers": Field("f8", ("n",))}, reveals="Nothing: a benchmark.")


class EchoServer(Role):
    """Sends numbers to everybody, so many times, and notes how long it takes until all are back."""

    vocabulary = Vocabulary(ECHO)

    def __init__(self, size: int, rounds: int) -> None:
        super().__init__(SERVER, {"n": size})
        self._numbers, self._left, self._here = np.random.default_rng(0).normal(size=size), rounds, 0
        self.seconds: list[float] = []

    def start(self) -> Sends:
        self._began = time.perf_counter()
        return [ECHO.message(SERVER, name, numbers=self._numbers) for name in PARTIES]

    def handle(self, message: Message) -> Sends:
        self._here += 1
        if self._here < len(PARTIES):
            return ()
        self.seconds.append(time.perf_counter() - self._began)
        self._here, self._left = 0, self._left - 1
        self.done = self._left == 0
        return () if self.done else self.start()


class EchoParty(Follower):
    vocabulary = Vocabulary(ECHO)
    kept = frozenset({"_left"})

    def __init__(self, name: str, size: int, rounds: int) -> None:
        super().__init__(name, {"n": size})
        self._left = rounds

    def handle(self, message: Message) -> Sends:
        self._left -= 1
        self.done = self._left == 0
        return [ECHO.message(self.name, SERVER, numbers=message["numbers"])]


def in_turns(name: str, turns: int, rounds: int) -> Program[None]:
    """What a party does on an engine."""
    yield EchoParty(name, 1, 1)
    for _ in range(turns):
        for size in SIZES:
            yield EchoParty(name, size, rounds)


class BareEcho:
    """The same bytes over FLARE's cells, without order, acknowledgement or retry."""

    def __init__(self, cell: Any, job_id: str) -> None:
        self._cell, self._job = cell, job_id
        self._news, self._here = threading.Condition(), 0
        cell.register_request_cb(channel="bare", topic="there", cb=self._send_back)
        cell.register_request_cb(channel="bare", topic="back", cb=self._take)

    def _post(self, topic: str, target: str, content: Any) -> None:
        message = CellMessage(payload=content)
        self._cell.fire_and_forget(channel="bare", topic=topic, targets=target, message=message, optional=True)

    def _send_back(self, request: Any) -> None:
        self._post("back", request.get_header(MessageHeaderKey.ORIGIN), bytes(request.payload))

    def _take(self, request: Any) -> None:
        with self._news:
            self._here += 1
            self._news.notify_all()

    def rounds(self, size: int, count: int) -> list[float]:
        content, seconds = np.random.default_rng(0).normal(size=size).tobytes(), []
        for _ in range(count):
            self._here, began = 0, time.perf_counter()
            for name in PARTIES:
                self._post("there", f"{name}.{self._job}", content)
            with self._news:
                if not self._news.wait_for(lambda: self._here == len(PARTIES), 60):
                    raise RuntimeError("a bare message was lost")
            seconds.append(time.perf_counter() - began)
        return seconds


class EchoController(Controller):  # type: ignore[misc, valid-type]
    """The server's part of the benchmark, as FLARE starts it."""

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()

    def start_controller(self, fl_ctx: Any) -> None:
        pass

    def stop_controller(self, fl_ctx: Any) -> None:
        pass

    def process_result_of_unknown_task(self, *_: Any) -> None:
        pass

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        from evenhand.runtime.nvflare.flare_transport import FlareTransport
        from evenhand.runtime.nvflare.submitting import OUTCOME

        engine, job_id = fl_ctx.get_engine(), fl_ctx.get_job_id()
        cells, bare = FlareTransport(engine, job_id, PARTIES), BareEcho(engine.get_cell().core_cell, job_id)
        site = Site(SERVER, PARTIES, cells.transmit, stopped=lambda: bool(abort_signal.triggered))
        with site:
            cells.open(site.arrived)
            self.broadcast(Task("run", Shareable()), fl_ctx, PARTIES, len(PARTIES))
            found = site.run(self._program(site, bare))
            time.sleep(2.0)
        place = Path(engine.get_workspace().get_run_dir(job_id)) / OUTCOME
        place.write_text(json.dumps({"result": found}))

    def _program(self, site: Site, bare: BareEcho) -> Program[dict[str, Any]]:
        # Everybody is there once this has come back.
        yield EchoServer(1, 1)
        found = {str(size): {"bare": [], "roles": [], "wire": 0, "said": 0} for size in SIZES}
        for _ in range(TURNS):
            for size in SIZES:
                one: Any = found[str(size)]
                one["bare"] += bare.rounds(size, ROUNDS)
                role, wire, said = EchoServer(size, ROUNDS), on_the_wire(), site.transcript.total_bytes
                yield role
                one["roles"] += role.seconds
                one["wire"] += on_the_wire() - wire
                one["said"] += site.transcript.total_bytes - said
        return found


class EchoExecutor(Executor):  # type: ignore[misc, valid-type]
    """A party's part."""

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        from evenhand.runtime.nvflare.flare_transport import FlareTransport, peers_of

        engine, job_id, name = fl_ctx.get_engine(), fl_ctx.get_job_id(), fl_ctx.get_identity_name()
        peers = peers_of(name, PARTIES)
        cells = FlareTransport(engine, job_id, peers)
        BareEcho(engine.get_cell().core_cell, job_id)
        site = Site(name, peers, cells.transmit, stopped=lambda: bool(abort_signal.triggered))
        with site:
            cells.open(site.arrived)
            site.run(in_turns(name, TURNS, ROUNDS))
            time.sleep(2.0)
        return make_reply(ReturnCode.OK)


def on_the_wire() -> int:
    """Bytes that have gone over the server's port so far, both ways, as the kernel has counted them."""
    shown = subprocess.run(["ss", "-tinH", f"sport = :{os.environ[PORT]}"], capture_output=True, text=True, check=True)
    return sum(int(found) for found in re.findall(r"bytes_(?:sent|received):(\d+)", shown.stdout))


def in_process(_: Path, __: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    for size in SIZES:
        server = EchoServer(size, TURNS * ROUNDS)
        InProcess([server, *(EchoParty(name, size, TURNS * ROUNDS) for name in PARTIES)]).run()
        found[str(size)] = {"roles": server.seconds}
    return found


def on_flare(out: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    from evenhand.cli.demo_federation import free_port, wait_until_open
    from evenhand.runtime.nvflare.admin import Admin, wait_for_parties
    from evenhand.runtime.nvflare.kits import provision
    from evenhand.runtime.nvflare.running import RunningKit
    from evenhand.runtime.nvflare.submitting import outcome, submit, wait_for_end

    here, port = Path(__file__).resolve(), free_port()
    components = (f"{here.stem}.EchoController", f"{here.stem}.EchoExecutor")
    kits = provision("bench", "localhost", port, PARTIES, out / "kits")
    settings = {"PYTHONPATH": f"{here.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", PORT: str(port)}
    running = []
    try:
        for kit in kits[: 1 + len(PARTIES)]:
            resources = kit / "local" / "resources.json"
            # The site's own setting; this benchmark is its own site.
            content = json.loads(resources.read_text())
            content["class_allow_list"] = list(components)
            resources.write_text(json.dumps(content))
            running.append(RunningKit(kit, settings, out / f"{kit.name}.log"))
            if kit.name == "server":
                wait_until_open(port)
        with Admin(kits[-1]) as admin:
            wait_for_parties(admin, PARTIES, 120)
            tell(f"a server and {len(PARTIES)} parties are running")
            job_id = submit(admin, "echo", {}, PARTIES, components=components)
            wait_for_end(admin, job_id, tell)
            found: dict[str, Any] = outcome(admin, job_id)["result"]
    finally:
        for one in running:
            one.stop()
    return found


def on_flower(out: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    import engines_flower

    return engines_flower.on_flower(out, tell)


ENGINES = {
    "in process": ("evenhand", in_process, ".venv"),
    "NVIDIA FLARE": ("nvflare", on_flare, ".venv-nvflare"),
    "Flower": ("flwr", on_flower, ".venv-flower"),
}
"""By name: the package that it needs, how it is measured, and the environment that `make` sets up for it."""


def main() -> None:
    found = {}
    for name, (package, measure, _) in ENGINES.items():
        if find_spec(package) is not None:
            with tempfile.TemporaryDirectory() as folder:
                found[name] = measure(Path(folder), print)
    print(f"median seconds of a round trip to {len(PARTIES)} parties; ratio: to the bare engine's")
    titles = f"{'engine':>12} {'doubles':>9} {'rounds':>6} {'by roles':>9}"
    print(f"{titles} {'bare':>9} {'ratio':>6} {'wire/said':>9} {'visits':>6}")
    for name, (_, _, place) in ENGINES.items():
        if name not in found:
            print(
                f"{name:>12} is not installed here: make {place}/installed && {place}/bin/python {' '.join(sys.argv)}"
            )
            continue
        for size in SIZES:
            print(f"{name:>12} {size:>9,} {row(found[name][str(size)])}")


def row(one: Mapping[str, Any]) -> str:
    roles = statistics.median(one["roles"])
    shown = f"{len(one['roles']):>6} {roles:>9.3g}"
    if "bare" in one:
        bare = statistics.median(one["bare"])
        shown += f" {bare:>9.3g} {roles / bare:>6.2f} {one['wire'] / one['said']:>9.3f}"
    return f"{shown} {one['visits']:>6.3g}" if "visits" in one else shown


if __name__ == "__main__":
    main()
