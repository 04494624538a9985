"""Boosted trees on a federation whose second party has a slow line: 10 Mbit/s and 50 ms each way.

The table is generated, with the shape of the public bank-marketing table: 45,211 rows, seven numbers and nine
categories, 11.7 % positives. The label holder runs beside the server; the other party reaches the server through a
relay in this process, which holds bytes back by the line's rate and delay. Three times are printed: from the first
message of the job to its last, the job, and from submission to result. SecretFlow's own benchmark states 602 seconds of
training for a table of this size on this line, on machines of theirs.

    .venv-nvflare/bin/python benchmarks/slow_line.py
    .venv-nvflare/bin/python benchmarks/slow_line.py --solver subspace --rows 5000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import socket
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.cli.federation_client import start
from evenhand.jobs.federation.client import connect
from evenhand.runtime.nvflare.kits import provision

POSITIVE = 0.117


class Line:
    """A relay to a port on this machine, with a rate and a delay in each direction; all connections share the rate."""

    def __init__(self, port: int, mbit: float, delay: float) -> None:
        self._to, self._rate, self._delay = port, mbit * 1e6 / 8.0, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.carried = [0, 0]
        self._free, self._lock = [0.0, 0.0], threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                other = socket.create_connection(("127.0.0.1", self._to))
                for way, (source, target) in enumerate(((one, other), (other, one))):
                    held: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                    threading.Thread(target=self._take, args=(source, held, way), daemon=True).start()
                    threading.Thread(target=self._give, args=(target, held), daemon=True).start()

    def _take(self, source: socket.socket, held: queue.SimpleQueue[tuple[float, bytes]], way: int) -> None:
        content = b"-"
        while content:
            try:
                content = source.recv(16384)
            except OSError:
                content = b""
            with self._lock:
                self.carried[way] += len(content)
                sent = self._free[way] = max(self._free[way], time.monotonic()) + len(content) / self._rate
            held.put((sent + self._delay, content))
            # What the line has not yet taken stays with the sender.
            time.sleep(max(sent - time.monotonic() - 0.2, 0.0))

    def _give(self, target: socket.socket, held: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):
            while (one := held.get())[1]:
                time.sleep(max(one[0] - time.monotonic(), 0.0))
                target.sendall(one[1])
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def write_parties(folder: Path, rows: int) -> dict[str, Path]:
    """Write each party's table and file; eight columns each, of both kinds, and effects that cross parties."""
    rng = np.random.default_rng(11)
    numbers = rng.standard_t(4, size=(rows, 7))
    categories = np.stack([rng.integers(0, levels, rows) for levels in (12, 3, 4, 2, 2, 2, 3, 12, 4)], axis=1)
    score = np.tanh(numbers[:, 0]) + 0.8 * (numbers[:, 4] > 0.5) * (categories[:, 5] == 1) - 0.5 * numbers[:, 1]
    score = score + rng.normal(size=categories[:, 0].max() + 1)[categories[:, 0]] + rng.logistic(size=rows)
    label = np.where(score > np.quantile(score, 1.0 - POSITIVE), "yes", "no")
    ids = rng.permutation(rows)
    tables = {
        "bank": pd.DataFrame(numbers[:, :4]).add_prefix("n").join(pd.DataFrame(categories[:, :4]).add_prefix("c")),
        "telecom": pd.DataFrame(numbers[:, 4:]).add_prefix("m").join(pd.DataFrame(categories[:, 4:]).add_prefix("d")),
    }
    tables["bank"] = tables["bank"].assign(subscribed=label, sex=np.where(rng.random(rows) < 0.4, "f", "m"))
    paths = {}
    for name, table in tables.items():
        own = folder / name
        own.mkdir()
        kinds = {column: "category" for column in table if str(column)[0] in "cd"}
        table.assign(id=ids).sample(frac=1.0, random_state=3).to_csv(own / "table.csv", index=False)
        party: dict[str, Any] = {"name": name, "role": "passive", "table": "table.csv", "id": "id", "types": kinds}
        if name == "bank":
            party |= {"role": "active", "label": {"column": "subscribed", "positive": "yes"}, "sensitive": ["sex"]}
        paths[name] = own / "party.toml"
        paths[name].write_text(tomli_w.dumps({"party": party}))
    return paths


def measured(folder: Path, job: dict[str, Any], rows: int, mbit: float, delay: float) -> dict[str, Any]:
    """Run one job, and return how long it took and what the line carried."""
    parties = write_parties(folder, rows)
    members = [{"name": "bank", "role": "active"}, {"name": "telecom"}]
    (folder / "job.toml").write_text(tomli_w.dumps({"job": job, "party": members}))
    port = free_port()
    provision("line", "localhost", port, list(parties), folder / "kits")
    with ExitStack() as stack:
        line = stack.enter_context(contextlib.closing(Line(port, mbit, delay)))
        far = folder / "kits" / "telecom" / "startup" / "fed_client.json"
        far.write_text(far.read_text().replace(f":{port}", f":{line.port}"))
        for name, own in {"server": parties["bank"], **parties}.items():
            stack.callback(start(folder / "kits" / name, own, folder / "runs" / name, folder / f"{name}.log").stop)
            if name == "server":
                wait_until_open(port)
        before = list(line.carried)
        with connect(folder / "kits" / "admin", 120.0) as federation:
            federation.away(list(parties))
            began, took = time.perf_counter(), [0.0]

            def note(found: Any) -> None:
                took[0] = max(took[0], found.seconds)

            outcome = federation.submit(folder / "job.toml").wait(on_progress=note)
            whole = time.perf_counter() - began
        carried = [after - one for after, one in zip(line.carried, before, strict=True)]
    transcript = Path(outcome.folder) / "transcript.jsonl"
    times = [row["time"] for row in map(json.loads, transcript.read_text().splitlines()) if "time" in row]
    return {
        "rounds": outcome.result["certificate"]["rounds"],
        "auc": outcome.result["performance"]["test"][0]["metrics"]["AUC"][0],
        "whole": whole,
        "job": took[0],
        "messages": max(times) - min(times),
        "megabytes": [one / 1e6 for one in carried],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=45_211)
    parser.add_argument("--mbit", type=float, default=10.0)
    parser.add_argument("--delay", type=float, default=0.05, help="Seconds one way.")
    parser.add_argument("--solver", default="trees", choices=["trees", "subspace"])
    parser.add_argument("--constraint", action="store_true", help="Equal opportunity within .02 by the error rate.")
    given = parser.parse_args()
    job: dict[str, Any] = {"solver": given.solver}
    if given.constraint:
        job["constraint"] = {"kind": "equal-opportunity", "epsilon": 0.02, "measure": "error"}
    with tempfile.TemporaryDirectory() as scratch:
        found = measured(Path(scratch), job, given.rows, given.mbit, given.delay)
    to_server, to_party = found["megabytes"]
    print(f"{given.solver}, {given.rows:,} rows, {given.mbit:g} Mbit/s, {1e3 * given.delay:g} ms one way, two parties")
    print(f"  from the first message to the last   {found['messages']:6.1f} s, {found['rounds']} rounds")
    print(f"  job, from the start of its process   {found['job']:6.1f} s")
    print(f"  from submission to the result        {found['whole']:6.1f} s")
    print(f"  over the line                        {to_server:.2f} MB to the server, {to_party:.2f} MB from it")
    print(f"  AUC of held-out rows                 {found['auc']:.4f}")


if __name__ == "__main__":
    main()
