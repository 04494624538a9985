"""Many parties, many rows, many clients: what a run costs when there is much of something.

    python benchmarks/load.py                      # all three, with 10⁶ rows
    python benchmarks/load.py rows --rows 10000000 # 10⁷ rows at six parties of ten columns; half an hour, 12 GB of disk

parties   50 parties and a server, each a process of its own, over TCP on loopback and the links of a deployment
rows      each party's peak memory from its Parquet file to its model, as a multiple of its own block of numbers.
          Parties are visited one after the other (`runtime/visits`), each visit a process of its own, so that one
          machine holds what six would.
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
from collections.abc import Callable
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
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.packets import only_acknowledges
from evenhand.runtime.site import Program, Site
from evenhand.runtime.statefiles import state_bytes, state_from
from evenhand.runtime.visits import VisitedSite
from evenhand.training.horizontal import train_clients
from evenhand.training.run import one_blas_thread
from evenhand.training.vertical import Holdings
from evenhand.vertical.problem import PartyColumns

MEGA = 2**20
LENGTH = struct.Struct("<I")


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


# -- 50 parties on loopback

PARTIES, PARTY_ROWS = 50, 2_000


class Wire:
    """One end of a TCP connection that carries packets."""

    def __init__(self, link: socket.socket) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = link
        self.sent = 0

    def send(self, content: bytes) -> None:
        # Who has hung up needs no more.
        with contextlib.suppress(OSError):
            self._link.sendall(LENGTH.pack(len(content)) + content)
        self.sent += LENGTH.size + len(content)

    def listen(self, arrived: Callable[[bytes], None]) -> None:
        with contextlib.suppress(OSError), self._link.makefile("rb") as stream:
            while len(head := stream.read(LENGTH.size)) == LENGTH.size:
                arrived(stream.read(LENGTH.unpack(head)[0]))


def alone(role: Any) -> Program[Any]:
    yield role
    return role


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

    with one_blas_thread():
        together = roles()
        began = time.perf_counter()
        InProcess(list(together.values())).run()
        inside = time.perf_counter() - began
        door = socket.create_server(("127.0.0.1", 0), backlog=PARTIES)
        address = door.getsockname()

        def take_part(name: str) -> Any:
            door.close()
            role = roles()[name]
            with socket.create_connection(address) as link:
                link.sendall(name.encode().ljust(8))
                wire = Wire(link)
                site = Site(name, [one for one in together if one != name], lambda _, content: wire.send(content))
                threading.Thread(target=wire.listen, args=(lambda one: site.arrived(SERVER, one),), daemon=True).start()
                for other in together:
                    if other not in (name, SERVER):
                        site.gone(other)
                with site:
                    site.run(alone(role))
            return {"weights": role.model.weights.tobytes().hex(), "peak": peak(), "sent": wire.sent}

        def serve() -> Any:
            role, wires = roles()[SERVER], {}
            for _ in range(PARTIES):
                link, _ = door.accept()
                wires[link.recv(8, socket.MSG_WAITALL).decode().strip()] = Wire(link)
            site = Site(SERVER, list(wires), lambda name, content: wires[name].send(content))

            def listen(name: str) -> None:
                wires[name].listen(partial(site.arrived, name))
                site.gone(name)

            listeners = [threading.Thread(target=listen, args=(name,), daemon=True) for name in wires]
            for listener in listeners:
                listener.start()
            began = time.perf_counter()
            with site:
                site.run(alone(role))
                seconds = time.perf_counter() - began
                # Until everybody has hung up: the last answers are yet to be acknowledged.
                for listener in listeners:
                    listener.join()
            sent, counted = sum(wire.sent for wire in wires.values()), site.transcript.total_bytes
            return {"seconds": seconds, "rounds": role.round, "sent": sent, "bytes": counted}

        server = forked(serve)
        parties = {name: forked(partial(take_part, name)) for name in together if name != SERVER}
        door.close()
        ends = {name: result_of(child) for name, child in parties.items()}
        told = result_of(server)
    same = all(ends[name]["weights"] == together[name].model.weights.tobytes().hex() for name in ends)
    wire = told["sent"] + sum(end["sent"] for end in ends.values())
    rounds, most = told["rounds"], max(end["peak"] for end in ends.values())
    print(f"parties: {PARTIES} of 2 columns, {PARTY_ROWS:,} rows, {rounds} rounds of subspace, TCP on loopback")
    print(f"  weights those of one process, bit for bit: {'yes' if same else 'NO'}")
    print(f"  a round      {1e3 * told['seconds'] / rounds:8.0f} ms; in one process {1e3 * inside / rounds:.0f} ms")
    print(f"  on the wire  {wire / MEGA:8.1f} MB, {wire / told['bytes']:.3f} × the transcript's")
    print(f"  resident     {most / MEGA:8.0f} MB at most in a party's process, most of it libraries that all share")
    if not same:
        raise SystemExit("the weights differ")


# -- 10⁷ rows

COLUMNS, HOLDERS, PIECE = 10, 6, 500_000


def write_tables(folder: Path, rows: int) -> dict[str, Path]:
    """Each party's table and own file; never more than a piece of them in memory."""
    true = np.random.default_rng(1).normal(size=HOLDERS * COLUMNS) / np.sqrt(HOLDERS * COLUMNS)
    files = {}
    for place in range(HOLDERS):
        name = f"party{place}"
        (folder / name).mkdir()
        writer = None
        for start in range(0, rows, PIECE):
            size = min(PIECE, rows - start)
            rng = np.random.default_rng([2, start])
            numbers = rng.normal(size=(size, HOLDERS * COLUMNS))
            own = numbers[:, place * COLUMNS : (place + 1) * COLUMNS]
            content: dict[str, Any] = {"id": np.arange(start, start + size)} | {
                f"x{k}": own[:, k] for k in range(COLUMNS)
            }
            if place == 0:
                sex = rng.random(size) < 0.4
                content |= {
                    "good": (numbers @ true + 0.3 * sex + rng.logistic(size=size) > 0).astype(int),
                    "sex": sex.astype(int),
                }
            piece = pa.table(content)
            writer = writer or pq.ParquetWriter(folder / name / "table.parquet", piece.schema)
            writer.write_table(piece)
        assert writer is not None
        writer.close()
        files[name] = folder / name
    return files


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
    job = FederationJob.model_validate({"job": {"max_rounds": 4, "constraint": constraint}, "party": members})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        child = forked(lambda: [str(path) for path in write_tables(folder, rows).values()])
        result_of(child)
        everybody = [SERVER, *(one["name"] for one in members)]
        mail: dict[str, list[tuple[str, str]]] = {name: [] for name in everybody}
        peaks, visits, began = dict.fromkeys(everybody, 0), 0, time.perf_counter()

        def visit(name: str, number: int) -> Any:
            before, path = peak(), folder / f"{name}.state"
            state = state_from(path.read_bytes(), path) if path.exists() else None
            base = folder / ("party0" if name == SERVER else name)
            peers = [one for one in everybody if one != name]
            program: Program[Any] = (
                server_program(job, sections("party0"), base, lambda: site.desk.transcript)
                if name == SERVER
                else party_program(job, sections(name), base)
            )
            site: VisitedSite[Any] = VisitedSite(name, peers, program, float(number), state)
            del state
            told = []
            for place, (to, content) in enumerate(
                site.visit((sender, Path(one).read_bytes()) for sender, one in mail[name])
            ):
                kept = folder / f"packet {number} {place}"
                kept.write_bytes(content)
                told.append((to, str(kept), only_acknowledges(content)))
            content = state_bytes(site.snapshot())
            path.write_bytes(content)
            rounds = site.result["certificate"]["rounds"] if name == SERVER and site.ended else 0
            return {"sends": told, "peak": peak() - before, "rounds": rounds}

        waiting, rounds = list(everybody), 0
        with one_blas_thread():
            while waiting:
                name = waiting.pop(0)
                told = result_of(forked(partial(visit, name, visits)))
                for _, path in mail[name]:
                    Path(path).unlink()
                mail[name], visits = [], visits + 1
                peaks[name], rounds = max(peaks[name], told["peak"]), rounds or told["rounds"]
                for to, path, silent in told["sends"]:
                    mail[to].append((name, path))
                    if not silent and to not in waiting:
                        waiting.append(to)
        seconds = time.perf_counter() - began
    parties = {name: size for name, size in peaks.items() if name != SERVER}
    most, least = max(parties.values()) / block, min(parties.values()) / block
    print(f"rows: {rows:,}, {HOLDERS} parties of {COLUMNS} columns (a block: {block / MEGA:,.0f} MB), {rounds} rounds")
    print(f"  peak memory of a party, from its table on: {least:.1f} to {most:.1f} × its block")
    print(f"  of the server {peaks[SERVER] / block:.1f} × a party's block ({peaks[SERVER] / rows:.0f} bytes a row)")
    print(f"  {visits} visits, each with its table read anew, in {seconds:,.0f} s")


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
