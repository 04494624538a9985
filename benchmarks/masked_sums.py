"""Measure the cost of masked sums across clients: `python benchmarks/masked_sums.py`.

Seconds of one client's processor for a sum of a million numbers (short ones, a word each), by the number of clients;
of the server for taking the masks off, with and without clients that went away; and a whole run of `sqp` and of
`fedavg`-like averaging beside the same run without masks, in one process, interleaved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from evenhand.horizontal.problem import ClientRows
from evenhand.privacy.fixed_point import encode
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.neighbours import Company, degree
from evenhand.privacy.pairwise import new_secret, public_half
from evenhand.privacy.secret_sums import Member, left_over
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import train_clients


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def one_sum(clients: int, size: int, gone: int) -> tuple[float, float, float]:
    """A client's seconds, the server's, and how many bytes of shares a client sends."""
    names = [str(place) for place in range(clients)]
    secrets = {name: new_secret() for name in names}
    keys = {name: public_half(secret) for name, secret in secrets.items()}
    sessions = [Session(name, secret, keys, b"run") for name, secret in secrets.items()]
    company = Company(tuple(range(clients)), "benchmark")
    first = Member(0, sessions[0], names, "terms")
    values = np.random.default_rng(0).normal(size=size).astype(np.float32)

    def answer() -> None:
        encode(values, parties=clients) + first.mask(company, size)
        first.sealed(company)

    client = seconds(answer)
    present = list(range(gone, clients))
    people = {place: Member(place, sessions[place], names, "terms") for place in present}
    boxes = {
        place: dict(zip(company.neighbours(place), people[place].sealed(company), strict=True)) for place in present
    }
    told = {}
    for place in present:
        near = [other for other in company.neighbours(place) if other in boxes]
        told[place] = people[place].opened(company, present, [boxes[other][place] for other in near])
    server = seconds(lambda: left_over(company, size, present, told))
    return client, server, float(sum(map(len, first.sealed(company))))


def whole_runs(solver: str, rounds: int, repeats: int) -> tuple[float, float, int, int]:
    """Seconds without masks and with them, interleaved; and the bytes of each."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=30)
    clients = []
    for name in range(10):
        rows = rng.normal(size=(1000, 30))
        labels = np.where(rows @ weights + rng.logistic(size=1000) > 0, 1.0, -1.0)
        clients.append(ClientRows(f"c{name}", rows, labels))
    spent, sent = {"none": 0.0, "masked": 0.0}, {"none": 0, "masked": 0}
    for _ in range(repeats):
        for protection in ("none", "masked"):
            job = Job(solver=solver, max_rounds=rounds, protection=protection)  # type: ignore[arg-type]
            start = time.process_time()
            sent[protection] = train_clients(job, clients).transcript.total_bytes
            spent[protection] += time.process_time() - start
    return spent["none"], spent["masked"], sent["none"], sent["masked"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"a sum of {options.size:,} numbers; seconds of processor")
    print(f"{'clients':>8} {'neighbours':>11} {'gone':>5} {'client':>8} {'server':>8} {'shares, kB':>11}")
    for clients, gone in ((10, 0), (10, 2), (30, 0), (100, 0), (100, 5)):
        client, server, shares = one_sum(clients, options.size, gone)
        print(f"{clients:>8} {degree(clients):>11} {gone:>5} {client:>8.3f} {server:>8.3f} {shares / 1e3:>11.1f}")
    print("whole runs, ten clients of 1,000 rows and 30 columns")
    for solver, rounds in (("sqp", 50), ("fedavg", 20)):
        plain, masked, before, after = whole_runs(solver, rounds, options.repeats)
        print(f"{solver:>8}: {masked / plain:.2f} times the time, {after / before:.2f} times the bytes")


if __name__ == "__main__":
    main()
