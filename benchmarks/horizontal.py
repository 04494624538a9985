"""Seconds a round of FedAvg: ours, pfl-research 0.6 and Flower's simulation; and what FairFedAvgALM adds to ours.

Adult (10 clients of 2,800 rows, labels skewed by Dirichlet(1)), a perceptron with hidden layers of 32 and 16, one local
epoch, batches of 128, SGD with gradients clipped at 1, every client in every round. All train the same network on the
same rows with one torch thread, one after another, and nothing but training is timed: no evaluation at the peers, no
measurements for the history at ours (with them, as by default, is shown as well). A round's time is the median after a
warm-up, of the least disturbed of several runs. What FairFedAvgALM adds is in seconds of the processor, which other
work on the machine disturbs less: the median over runs of its round over FedAvg's in the run before.

The peers live in virtual environments of their own, made by pip in the folder given unless they are there already;
without a folder they are left out.

    python benchmarks/horizontal.py [--peers FOLDER] [--source FOLDER] [--rounds 30] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from horizontal_peers import FLOWER, FLOWER_CLIENT, PFL
from rich.console import Console
from rich.table import Table

from evenhand import __version__
from evenhand.horizontal.problem import ClientRows
from evenhand.models.stacked import one_thread
from evenhand.protocol.job import Job
from evenhand_reproductions.fairfedavgalm.tasks import load_task
from evenhand_reproductions.in_memory import train_clients

CLIENTS, ROWS, BATCH, STEP, CLIP = 10, 2_800, 128, 0.1, 1.0
HIDDEN = (32, 16)
WARM_UP = 3
TORCH = "torch==2.13.0"
PEERS = {
    "pfl": (["pfl==0.6.*", TORCH], PFL),
    "flower": (["flwr[simulation]>=1.41,<1.42", TORCH], FLOWER),
}
TITLES = {"pfl": "pfl-research", "flower": "Flower simulation"}
WANTED = {"pfl": 2.5, "flower": 5.0}
ASKED = {"all": 1.35, "batches": 1.1}
"""At most so many times FedAvg's round, by what the step of the multipliers goes by."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
OURS = {
    "evenhand, FedAvg": ("fedavg", {"report_every": 0}),
    "evenhand, FairFedAvgALM": ("fairfedavgalm", {"report_every": 0}),
    "evenhand, FairFedAvgALM, dual step from batches": (
        "fairfedavgalm",
        {"report_every": 0, "dual_rows": "batches"},
    ),
    "evenhand, FedAvg, measuring every round (default)": ("fedavg", {}),
    "evenhand, FairFedAvgALM, measuring every round (default)": ("fairfedavgalm", {}),
}
PLAIN, FAIR, FAIR_BATCHES, MEASURED, FAIR_MEASURED = OURS


def main() -> None:
    given = arguments()
    clients = load_task("adult", given.source).deal(10, clients=CLIENTS, rows=ROWS, alpha=1.0)
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {name: [] for name in OURS}
    losses: dict[str, float] = {}
    versions = {PLAIN: f"evenhand {__version__}, torch {torch.__version__}"}
    with tempfile.TemporaryDirectory() as folder:
        data = write_rows(clients, Path(folder), given.rounds)
        wanted = [name for name in PEERS if name in given.only] if given.peers else []
        pythons = {name: environment(name, given.peers) for name in wanted}
        # In turn, so that a change in what else the machine does meets all of them.
        for _ in range(given.repeats):
            for name in OURS:
                wall, processor, losses[name] = ours(name, clients, given.rounds)
                seconds.setdefault(name, []).append(wall)
                cpu[name].append(processor)
            for name, python in pythons.items():
                answer = peer(name, python, data)
                if answer is not None:
                    seconds.setdefault(TITLES[name], []).append(round_seconds(answer["stamps"]))
                    versions[TITLES[name]] = answer["versions"]
                    losses[TITLES[name]] = answer["loss"]
    report({name: min(times) for name, times in seconds.items()}, losses, versions, given)
    report_fairness(cpu)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments, made if missing")
    parser.add_argument("--only", nargs="*", choices=list(PEERS), default=list(PEERS), help="which peers to run")
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds of each run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the least disturbed counts")
    return parser.parse_args()


def ours(name: str, clients: list[ClientRows], rounds: int) -> tuple[float, float, float]:
    """Seconds a round, those of the processor, and the mean loss over everybody's rows at the end."""
    solver, options = OURS[name]
    settings = {"batch_size": BATCH, "step": STEP, "step_decay_every": None, "clip": CLIP, **options}
    job = Job(solver=solver, model="mlp", hidden=HIDDEN, max_rounds=WARM_UP + rounds + 1, options=settings)
    stamps: list[tuple[float, float]] = []
    with one_thread():
        run = train_clients(job, clients, on_round=lambda _: stamps.append((time.perf_counter(), time.process_time())))
    margins = np.concatenate([client.labels * run.model.predict(client.features) for client in clients])
    # The last row of history belongs to the closing exchange, which happens once.
    wall, processor = (round_seconds(times[:-1]) for times in zip(*stamps, strict=True))
    return wall, processor, float(np.logaddexp(0.0, -margins).mean())


def round_seconds(stamps: Sequence[float]) -> float:
    return float(np.median(np.diff(stamps[WARM_UP:])))


def write_rows(clients: list[ClientRows], folder: Path, rounds: int) -> Path:
    arrays: dict[str, Any] = {}
    for place, client in enumerate(clients):
        arrays[f"features{place}"] = client.features
        arrays[f"labels{place}"] = (client.labels > 0).astype(np.float32)
    np.savez(folder / "rows.npz", **arrays)
    settings = {"clients": CLIENTS, "batch": BATCH, "step": STEP, "clip": CLIP, "hidden": HIDDEN}
    settings |= {"columns": clients[0].features.shape[1], "rounds": WARM_UP + rounds + 1}
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


def environment(name: str, folder: Path) -> Path:
    """The peer's own Python; its environment is made by pip unless it is there."""
    place = folder.resolve() / name
    python = place / "bin" / "python"
    if not python.exists():
        print(f"making {place} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS[name][0]], check=False)
        if done.returncode:
            print(f"{TITLES[name]} could not be installed (pip says why above); it is left out", file=sys.stderr)
    return python


def peer(name: str, python: Path, data: Path) -> dict[str, Any] | None:
    """Run the peer's script beside the data; its answer is a file with a time stamp for each round."""
    # Not by the peer's own name, which would hide the library from the script.
    script = data / f"run_{name}.py"
    script.write_text(PEERS[name][1])
    (data / "flower_client.py").write_text(FLOWER_CLIENT)
    answer = data / f"{name}.json"
    answer.unlink(missing_ok=True)
    done = subprocess.run(
        [str(python), str(script)],
        cwd=data,
        env={**os.environ, **QUIET, "PYTHONPATH": str(data)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or not answer.exists():
        last = "\n".join(done.stdout.splitlines()[-15:])
        print(f"{TITLES[name]} did not run and is left out; its last words:\n{last}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def report(
    seconds: dict[str, float], losses: dict[str, float], versions: dict[str, str], given: argparse.Namespace
) -> None:
    title = f"seconds a round, Adult, {CLIENTS} clients × {ROWS:,} rows, one torch thread"
    table = Table("", "ms a round", "times ours (FedAvg)", "loss at the end", "versions", title=title)
    for name, value in seconds.items():
        ratio = f"{value / seconds[PLAIN]:.2f}"
        table.add_row(name, f"{1000 * value:.1f}", ratio, f"{losses[name]:.3f}", versions.get(name, ""))
    console = Console(width=160)
    console.print(table)
    console.print(
        f"Median of {given.rounds} rounds after {WARM_UP + 1}, then the least of {given.repeats} runs in turn."
    )
    for name, wanted in WANTED.items():
        if TITLES[name] in seconds:
            ratio = seconds[TITLES[name]] / seconds[PLAIN]
            print(f"ours against {TITLES[name]}: {ratio:.1f} times faster (wanted: at least {wanted})")
        else:
            print(f"ours against {TITLES[name]}: not measured")


def report_fairness(cpu: dict[str, list[float]]) -> None:
    table = Table("what FairFedAvgALM's round costs", "ms of processor", "times FedAvg's", "asked")
    for fair, plain, rows in ((FAIR, PLAIN, "all"), (FAIR_BATCHES, PLAIN, "batches"), (FAIR_MEASURED, MEASURED, "all")):
        ratio = np.median(np.array(cpu[fair]) / np.array(cpu[plain]))
        table.add_row(fair, f"{1000 * np.median(cpu[fair]):.1f}", f"{ratio:.2f}", f"at most {ASKED[rows]}")
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
