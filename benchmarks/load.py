"""Measure the cost of a run with many parties, many rows or many clients.

    python benchmarks/load.py                      # all three, with 10⁶ rows
    python benchmarks/load.py rows --rows 10000000 # 10⁷ rows at six parties of ten columns; 6 GB of disk, 12 of memory

parties   50 parties and a server, each a process of its own, over TCP on loopback and the links of a deployment
rows      six parties and a server likewise: each party's peak memory from its Parquet file to its model, as a multiple
          of its own block of numbers
clients   1,000 clients on the virtual clock, on a wide-area network: a round on paper and by simulation
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import struct
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.constraints import EqualOpportunity
from evenhand.horizontal.problem import ClientRows
from evenhand.jobs.federation.files import FederationJob, PartyFile
from evenhand.jobs.federation.sites import party_program, server_program
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.runtime.links import LinkSettings
from evenhand.runtime.packets import Content
from evenhand.runtime.site import Program, Site
from evenhand.training.run import one_blas_thread
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings, train_clients

MEGA = 2**20
LENGTH = struct.Struct("<I")
LINKS = LinkSettings(linger=0.25, patience=3600.0)
"""As in a deployment, but that a machine which is busy with all of them at once is given time."""


def forked(work: Callable[[], Any]) -> tuple[int, int]:
    """Begin work in a process of its own; its number, and a pipe that will hold what it returns, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.write(writing, json.dumps(work()).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def result_of(child: tuple[int, int]) -> Any:
    with os.fdopen(child[1], "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child[0], 0)
    if status:
        raise SystemExit("a process failed; see above")
    return json.loads(content)


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def worked() -> float:
    """Seconds of processor time, since this process began."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- 50 parties on loopback

PARTIES, PARTY_ROWS = 50, 2_000


class Wire:
    """One end of a TCP connection that carries packets."""

    def __init__(self, link: socket.socket) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = link
        self._sending = threading.Lock()
        self.sent = 0

    def send(self, content: Content) -> None:
        # One packet at a time, whichever thread it comes from; who has hung up needs no more.
        with self._sending, contextlib.suppress(OSError):
            self._link.sendall(LENGTH.pack(len(content)))
            self._link.sendall(content)
            self.sent += LENGTH.size + len(content)

    def listen(self, arrived: Callable[[Content], None]) -> None:
        with contextlib.suppress(OSError), self._link.makefile("rb") as stream:
            while len(head := stream.read(LENGTH.size)) == LENGTH.size:
                arrived(stream.read(LENGTH.unpack(head)[0]))


def alone(role: Any) -> Program[Any]:
    yield role
    return role


def over_tcp(
    programs: Mapping[str, Callable[[Site], Program[Any]]], told: Callable[[str, Any, Site], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Everybody in a process of its own, over TCP on loopback: what `told` makes of each one's end, there."""
    parties = [name for name in programs if name != SERVER]
    door = socket.create_server(("127.0.0.1", 0), backlog=len(parties))
    address = door.getsockname()

    def take_part(name: str) -> Any:
        door.close()
        with socket.create_connection(address) as link:
            link.sendall(name.encode().ljust(8))
            wire = Wire(link)
            site = Site(
                name, [one for one in programs if one != name], lambda _, content: wire.send(content), links=LINKS
            )
            threading.Thread(target=wire.listen, args=(partial(site.arrived, SERVER),), daemon=True).start()
            for other in parties:
                if other != name:
                    site.gone(other)
            with site:
                end = site.run(programs[name](site))
        return told(name, end, site) | {"sent": wire.sent}

    def serve() -> Any:
        wires = {}
        for _ in parties:
            link, _ = door.accept()
            wires[link.recv(8, socket.MSG_WAITALL).decode().strip()] = Wire(link)
        site = Site(SERVER, parties, lambda name, content: wires[name].send(content), links=LINKS)

        def listen(name: str) -> None:
            wires[name].listen(partial(site.arrived, name))
            site.gone(name)

        listeners = [threading.Thread(target=listen, args=(name,), daemon=True) for name in wires]
        for listener in listeners:
            listener.start()
        began = time.perf_counter()
        with site:
            end = site.run(programs[SERVER](site))
            seconds = time.perf_counter() - began
            # Until everybody has hung up: the last answers are yet to be acknowledged.
            for listener in listeners:
                listener.join()
        sent = sum(wire.sent for wire in wires.values())
        return told(SERVER, end, site) | {"seconds": seconds, "sent": sent, "bytes": site.transcript.total_bytes}

    children = {SERVER: forked(serve)} | {name: forked(partial(take_part, name)) for name in parties}
    door.close()
    return {name: result_of(child) for name, child in children.items()}


def many_parties() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(PARTY_ROWS, 2 * PARTIES))
    labels = np.where(matrix @ rng.normal(size=2 * PARTIES) + rng.logistic(size=PARTY_ROWS) > 0, 1.0, -1.0)
    groups = pd.DataFrame({"group": np.where(rng.random(PARTY_ROWS) < 0.4, "a", "b")})
    columns = [PartyColumns(f"p{place}", matrix[:, 2 * place : 2 * place + 2], place == 0) for place in range(PARTIES)]
    job = Job(constraints=(EqualOpportunity(0.02),), alpha=1e-2, tol=1e-4, max_rounds=30)

    def roles() -> dict[str, Any]:
        server, parties = Holdings.of(job, columns, labels, groups).roles()
        return {role.name: role for role in [server, *parties]}

    def told(name: str, role: Any, _: Site) -> dict[str, Any]:
        if name == SERVER:
            return {"rounds": role.round}
        return {"weights": role.model.weights.tobytes().hex(), "peak": peak()}

    with one_blas_thread():
        together = roles()
        began = time.perf_counter()
        InProcess(list(together.values())).run()
        inside = time.perf_counter() - began
        ends = over_tcp({name: lambda _, name=name: alone(roles()[name]) for name in together}, told)
    server = ends.pop(SERVER)
    same = all(ends[name]["weights"] == together[name].model.weights.tobytes().hex() for name in ends)
    wire = server["sent"] + sum(end["sent"] for end in ends.values())
    rounds, most = server["rounds"], max(end["peak"] for end in ends.values())
    print(f"parties: {PARTIES} of 2 columns, {PARTY_ROWS:,} rows, {rounds} rounds of subspace, TCP on loopback")
    print(f"  weights those of one process, bit for bit: {'yes' if same else 'NO'}")
    print(f"  a round      {1e3 * server['seconds'] / rounds:8.0f} ms; in one process {1e3 * inside / rounds:.0f} ms")
    print(f"  on the wire  {wire / MEGA:8.1f} MB, {wire / server['bytes']:.3f} × the transcript's")
    print(f"  resident     {most / MEGA:8.0f} MB at most in a party's process, most of it libraries that all share")
    if not same:
        raise SystemExit("the weights differ")


# -- 10⁷ rows

COLUMNS, HOLDERS, PIECE = 10, 6, 500_000


def write_tables(folder: Path, rows: int) -> None:
    """Each party's table; never more than a piece of them in memory."""
    true = np.random.default_rng(1).normal(size=HOLDERS * COLUMNS) / np.sqrt(HOLDERS * COLUMNS)
    with contextlib.ExitStack() as open_files:
        writers: dict[str, pq.ParquetWriter] = {}
        for start in range(0, rows, PIECE):
            size = min(PIECE, rows - start)
            rng = np.random.default_rng([2, start])
            numbers = rng.normal(size=(size, HOLDERS * COLUMNS))
            sex = rng.random(size) < 0.4
            good = numbers @ true + 0.3 * sex + rng.logistic(size=size) > 0
            for place in range(HOLDERS):
                name = f"party{place}"
                own = numbers[:, place * COLUMNS : (place + 1) * COLUMNS]
                content: dict[str, Any] = {"id": np.arange(start, start + size)}
                content |= {f"x{k}": own[:, k] for k in range(COLUMNS)}
                if place == 0:
                    content |= {"good": good.astype(int), "sex": sex.astype(int)}
                piece = pa.table(content)
                if name not in writers:
                    (folder / name).mkdir()
                    # Numbers like these are not made smaller by trying.
                    plain = pq.ParquetWriter(
                        folder / name / "table.parquet", piece.schema, compression="none", use_dictionary=False
                    )
                    writers[name] = open_files.enter_context(plain)
                writers[name].write_table(piece)


def sections(name: str) -> PartyFile:
    own: dict[str, Any] = {"name": name, "role": "passive", "table": "table.parquet", "id": "id"}
    own["columns"] = [f"x{k}" for k in range(COLUMNS)]
    if name == "party0":
        own |= {"role": "active", "label": {"column": "good", "positive": 1}, "sensitive": ["sex"]}
    return PartyFile.model_validate({"party": own})


def many_rows(rows: int) -> None:
    block = 8 * rows * COLUMNS
    constraint = {"kind": "equal-opportunity", "epsilon": 0.02}
    members = [{"name": f"party{place}", "role": "passive" if place else "active"} for place in range(HOLDERS)]
    job = FederationJob.model_validate(
        {"job": {"max_rounds": 4, "constraint": constraint, "numbers": "standard"}, "party": members}
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        result_of(forked(partial(write_tables, folder, rows)))
        before: list[int] = []

        def server(site: Site) -> Program[Any]:
            before.append(peak())
            return server_program(job, sections("party0"), folder / "party0", lambda: site.transcript)

        def party(name: str, _: Site) -> Program[Any]:
            before.append(peak())
            return party_program(job, sections(name), folder / name)

        def told(name: str, end: Any, _: Site) -> dict[str, Any]:
            # In the process of this one, where nobody else has begun.
            rounds = end["certificate"]["rounds"] if name == SERVER else 0
            return {"peak": peak() - before[0], "rounds": rounds, "worked": worked()}

        names = [one["name"] for one in members]
        with one_blas_thread():
            ends = over_tcp({SERVER: server, **{name: partial(party, name) for name in names}}, told)
    processor = sum(end["worked"] for end in ends.values())
    of_server = ends.pop(SERVER)
    peaks = [end["peak"] / block for end in ends.values()]
    print(
        f"rows: {rows:,}, {HOLDERS} parties of {COLUMNS} columns (a block: {block / MEGA:,.0f} MB), "
        f"{of_server['rounds']} rounds; from tables to result {of_server['seconds']:,.0f} s, "
        f"{processor:,.0f} s of processor time in all"
    )
    print(f"  peak memory of a party, from its table on: {min(peaks):.1f} to {max(peaks):.1f} × its block")
    at_server = of_server["peak"]
    print(f"  of the server {at_server / block:.1f} × a party's block ({at_server / rows:.0f} bytes a row)")


# -- 1,000 clients

CLIENTS, FEATURES, TRIALS = 1_000, 20, 5
BANDWIDTH, SPEED = 1.25e6, 1e9


def many_clients() -> None:
    rng = np.random.default_rng(3)
    latencies = {f"c{place:04d}": float(10 ** rng.uniform(-1.9, -0.7)) for place in range(CLIENTS)}
    clock = VirtualClock(speed=SPEED, bandwidth=BANDWIDTH, latencies=latencies)
    true = rng.normal(size=FEATURES)
    clients = []
    for name in latencies:
        matrix = rng.normal(size=(20, FEATURES))
        clients.append(ClientRows(name, matrix, np.where(matrix @ true + rng.logistic(size=20) > 0, 1.0, -1.0), None))
    weights, slowest = FEATURES + 1, max(latencies.values())
    reach = f"{1e3 * min(latencies.values()):.0f} to {1e3 * slowest:.0f} ms, 10 Mbit/s each way"
    print(f"clients: {CLIENTS:,} of {len(clients[0].labels)} rows and {FEATURES} features; {reach}")
    # Bytes of the messages of a round, by docs/messages.md: down to a client, and the larger of those that go up.
    sizes = {
        "fedavg": (8 + 4 * weights, 16 + 4 * weights),
        "sqp": (8 + 8 * TRIALS * weights, 8 + 8 * TRIALS + 8 * weights + 2 * 8 * weights * (weights + 1) // 2),
    }
    print(f"  {'solver':<8}{'rounds':>7}{'on paper':>12}{'simulated':>12}{'ratio':>8}{'bytes a client and round':>27}")
    for solver, (down, up) in sizes.items():
        run = train_clients(Job(solver=solver, max_rounds=4), clients, clock=clock)
        paper = 2 * slowest + (down + up) / BANDWIDTH
        times = run.history["time"].to_numpy()
        # The last row of averaging is the closing exchange, which is no round.
        gaps = np.diff(times[:-1] if solver == "fedavg" else times)
        print(
            f"  {solver:<8}{run.certificate.rounds:>7}{1e3 * paper:>9.1f} ms{1e3 * gaps.mean():>9.1f} ms"
            f"{gaps.mean() / paper:>8.3f}{down + up:>27,}"
        )
    print("  what simulation adds to latency and bytes is arithmetic, at a thousand million multiplications a second")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("part", nargs="?", choices=["parties", "rows", "clients"])
    options.add_argument("--rows", type=int, default=1_000_000)
    given = options.parse_args()
    if given.part in (None, "parties"):
        many_parties()
    if given.part in (None, "rows"):
        many_rows(given.rows)
    if given.part in (None, "clients"):
        many_clients()


if __name__ == "__main__":
    main()
