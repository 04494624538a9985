"""Run the demo on a real federation: a server and six parties as separate processes on this machine."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from rich.console import Console

from evenhand.errors import RunError

if TYPE_CHECKING:
    from evenhand.runtime.folder import RunFolder

_PATIENCE = 90.0


def run_federation(jobs: Mapping[str, Path], out: Path, console: Console) -> dict[str, Any]:
    """Run each job on a federation and in this process, and return the results by name.

    Raise an error unless the parties' weights are the same both ways, bit for bit.
    """
    from evenhand.cli.federation_client import start
    from evenhand.cli.train import run_with_progress
    from evenhand.jobs.federation.client import connect, run_to_end
    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.jobs.folder import read_job
    from evenhand.runtime.nvflare.kits import provision

    parties, public = split_files(jobs, out)
    port = free_port()
    console.print(f"Certificates and kits for a server and {len(parties)} parties ...")
    provision("demo", "localhost", port, list(parties), out / "kits")
    results = {}

    def tell(status: str) -> None:
        console.print(f"  {status}")

    with ExitStack() as stack:
        server_file = next(path for path in parties.values() if "label" in tomllib.loads(path.read_text())["party"])
        kits = {"server": server_file, **parties}
        for name, file in kits.items():
            running = start(out / "kits" / name, file, out / name / "runs", out / f"{name}.log")
            stack.callback(running.stop)
            if name == "server":
                wait_until_open(port)
        console.print(f"One server and {len(parties)} parties run as separate processes.")
        for name, path in public.items():
            before = {party: set(_runs(out / party)) for party in parties}
            with connect(out / "kits" / "admin", _PATIENCE) as federation:
                results[name] = run_to_end(federation, read_federation_job(path), name, tell).result
            alone = run_with_progress(read_job(jobs[name]), jobs[name].parent, out / name, title="alone")
            sides = {party: (set(_runs(out / party)) - before[party]).pop() for party in parties}
            _require_same(sides, alone.folder)
            console.print(f"{name}: all {len(parties)} parties' weights equal those of one process, bit for bit.")
        console.print("Stopping ...")
    return results


def split_files(jobs: Mapping[str, Path], out: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Write each party's table and file to its own folder, and job files without anything private."""
    contents = {name: tomllib.loads(path.read_text(encoding="utf-8")) for name, path in jobs.items()}
    parties, public = {}, {}
    for party in next(iter(contents.values()))["party"]:
        own = out / party["name"]
        own.mkdir(mode=0o700)
        table = out / party["table"]
        shutil.copy(table, own / table.name)
        parties[party["name"]] = own / "party.toml"
        parties[party["name"]].write_text(tomli_w.dumps({"party": party | {"table": table.name}}), encoding="utf-8")
    for name, content in contents.items():
        members = [{"name": one["name"], "role": one.get("role", "passive")} for one in content["party"]]
        public[name] = out / f"{name}-federation.toml"
        public[name].write_text(tomli_w.dumps({"job": content["job"], "party": members}), encoding="utf-8")
    return parties, public


def _require_same(sides: Mapping[str, Path], alone: RunFolder) -> None:
    from evenhand.runtime.checkpointfiles import state_bytes
    from evenhand.runtime.folder import RunFolder

    for party, path in sides.items():
        one, other = RunFolder.open(path).read_party(party, "weights"), alone.read_party(party, "weights")
        if state_bytes(one) != state_bytes(other):
            raise RunError(f"{party}'s weights in {path} differ from those in {alone.path}")


def _runs(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (folder / "runs").iterdir()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until_open(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1.0):
            return
        time.sleep(0.2)
    raise RunError(f"the server did not open port {port} within {_PATIENCE:.0f} seconds; see its log")
