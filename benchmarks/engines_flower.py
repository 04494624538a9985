"""The rounds of engines.py on a real SuperLink with six SuperNodes on this machine: TLS, node keys, a process a visit.

Bare: the same bytes in Flower's messages, as many nodes at a time as by roles, sent back by an app without ours.
Flower's connections come and go, so bytes are counted on their way between nodes and SuperLink, not by the kernel.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from engines import PARTIES, SIZES, EchoServer, in_turns
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from evenhand.jobs.federation.files import RUNS
from evenhand.jobs.federation.flower import wait_for_nodes
from evenhand.jobs.federation.flower_app import AT_ONCE
from evenhand.protocol.roles import SERVER
from evenhand.runtime.flower.grid import GridPost, registered_nodes
from evenhand.runtime.flower.records import keep_state, kept_state, packets_in, to_records, value_in
from evenhand.runtime.site import Program, Site
from evenhand.runtime.stateless_site import NEVER_AGAIN, StatelessSite

TURNS, ROUNDS = 3, 1
FOUND = "echo.json"
PROJECT = f"""[project]
name = "echo"
version = "1.0.0"
description = "A benchmark"
dependencies = []

[tool.flwr.app]
publisher = "evenhand"

[tool.flwr.app.components]
serverapp = "echo.server:app"
clientapp = "echo.client:app"

[tool.flwr.app.config]
{AT_ONCE} = 0
"""

SERVER_APP = """import engines_flower

app = engines_flower.server
"""
# What is bare imports nothing of ours.
CLIENT_APP = """from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def send_back(message, context):
    return Message(message.content, reply_to=message)


@app.train()
def visit(message, context):
    import engines_flower

    return engines_flower.visit(message, context)
"""
server = ServerApp()


def visit(message: Message, context: Context) -> Message:
    name = value_in(message.content, "name", str)
    peers = [SERVER, *(one for one in PARTIES if one != name)]
    site = StatelessSite(name, peers, in_turns(name, TURNS, ROUNDS), time.time(), kept_state(context))
    answer = site.visit(packets_in(message.content))
    keep_state(context, site.snapshot())
    return Message(to_records(answer, word="", ended=site.ended), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    at_once = int(context.run_config[AT_ONCE])
    nodes = wait_for_nodes(grid, PARTIES, registered_nodes)
    post = GridPost(grid, nodes, at_once)
    site = Site(SERVER, PARTIES, post.transmit, links=NEVER_AGAIN, stopped=lambda: bool(post.words))

    def program() -> Program[dict[str, Any]]:
        yield EchoServer(1, 1)
        found = {str(size): {"bare": [], "roles": [], "spans": [], "said": 0, "visits": 0} for size in SIZES}
        for _ in range(TURNS):
            for size in SIZES:
                one: Any = found[str(size)]
                one["bare"] += [bare_round(grid, nodes, size, at_once) for _ in range(ROUNDS)]
                role, visits = EchoServer(size, ROUNDS), sum(post.visits.values())
                began, said = time.time(), site.transcript.total_bytes
                yield role
                one["roles"] += role.seconds
                one["spans"].append((began, time.time()))
                one["said"] += site.transcript.total_bytes - said
                one["visits"] += (sum(post.visits.values()) - visits) / (TURNS * ROUNDS)
        return found

    with post.serves(site), site:
        result = site.run(program())
    place = Path(os.environ[RUNS])
    place.mkdir(parents=True, exist_ok=True)
    (place / FOUND).write_text(json.dumps(result))


def bare_round(grid: Grid, nodes: Mapping[str, int], size: int, at_once: int) -> float:
    content = RecordDict({"echo": ConfigRecord({"bytes": np.random.default_rng(0).normal(size=size).tobytes()})})
    left, under_way, began = list(nodes.values()), set[str](), time.perf_counter()
    while left or under_way:
        while left and len(under_way) < at_once:
            message = Message(content, dst_node_id=left.pop(), message_type=MessageType.QUERY)
            under_way |= set(grid.push_messages([message]))
        for reply in grid.pull_messages(list(under_way)):
            if reply.has_error():
                raise RuntimeError(f"a bare message was lost: {reply.error.reason}")
            under_way.remove(reply.metadata.reply_to_message_id)
        time.sleep(0.1)
    return time.perf_counter() - began


class Counter:
    """Passes connections on to a port, and notes how many bytes went by, both ways, and when."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._seen: list[tuple[float, int]] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._answer, daemon=True).start()

    def within(self, spans: Iterable[tuple[float, float]]) -> int:
        return sum(count for first, last in spans for when, count in self._seen if first <= when <= last)

    def _answer(self) -> None:
        while True:
            caller, _ = self._door.accept()
            called = socket.create_connection(("127.0.0.1", self._to))
            for ends in ((caller, called), (called, caller)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 18):
                self._seen.append((time.time(), len(content)))
                sink.sendall(content)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def on_flower(out: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Start everybody, run the app and give what the server has found."""
    here = Path(__file__).resolve().parent
    sys.path.append(str(here.parent / "tests"))
    from support.superlink import SuperLink

    package = out / "app" / "echo"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").touch()
    (package / "server.py").write_text(SERVER_APP)
    (package / "client.py").write_text(CLIENT_APP)
    # Nobody has a file of its own: there is no table.
    link = SuperLink(out / "link", dict.fromkeys(PARTIES, Path(os.devnull)), Path(os.devnull))
    counter = Counter(link.port)
    link.dialled = counter.port
    os.environ["PYTHONPATH"] = f"{here}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with link:
        tell(f"a SuperLink and {len(PARTIES)} SuperNodes are running")
        _, status = link.run(package.parent)
        if status != "finished:completed":
            raise RuntimeError(f"the run ended as {status}:\n{link.log('superlink')[-3000:]}")
        found: dict[str, Any] = json.loads((link.folder / "runs superlink" / FOUND).read_text())
    return {size: one | {"wire": counter.within(one["spans"])} for size, one in found.items()}
