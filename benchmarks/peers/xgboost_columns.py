"""Run XGBoost's federated column split on loopback, with a process for each party, and count the bytes.

Run by `benchmarks/trees_peers.py` with an interpreter that has ``xgboost<3.4`` (3.4 has no column split any more).
Takes a file of arrays and the number of trees; prints one line of JSON.

Every worker speaks to the server through a relay here, which counts bytes, and calls by their opening frames of HTTP/2.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import socket
import sys
import threading
import time

import numpy as np
import xgboost
import xgboost.federated
from sklearn.metrics import roc_auc_score
from xgboost.core import DataSplitMode

PREFACE, HEADERS = 24, 1


class Relay:
    """Passes bytes on both ways."""

    def __init__(self, target: int) -> None:
        self.target, self.bytes, self.calls = target, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            here, _ = self.listener.accept()
            there = socket.create_connection(("127.0.0.1", self.target))
            for one in (here, there):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pump, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(there, here, False), daemon=True).start()

    def pump(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        held, skip = b"", PREFACE
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                self.bytes += len(data)
                sink.sendall(data)
                if asks:
                    held, skip = self.count(held + data, skip)
            sink.shutdown(socket.SHUT_WR)

    def count(self, held: bytes, skip: int) -> tuple[bytes, int]:
        """Opening frames in what has come; `skip` is how much belongs to nothing that is looked at."""
        while True:
            gone = min(skip, len(held))
            held, skip = held[gone:], skip - gone
            if skip or len(held) < 9:
                return held, skip
            self.calls += held[3] == HEADERS
            skip = 9 + int.from_bytes(held[:3], "big")


def worker(rank: int, workers: int, port: int, path: str, trees: int, answers: multiprocessing.Queue) -> None:
    given = np.load(path)
    own = given["owner"] == rank
    settings = {
        "dmlc_communicator": "federated",
        "federated_server_address": f"127.0.0.1:{port}",
        "federated_world_size": workers,
        "federated_rank": rank,
    }
    parameters = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6, "eta": 0.1, "nthread": 1}
    start = time.perf_counter()
    with xgboost.collective.CommunicatorContext(**settings):
        label = given["y_train"] if rank == 0 else None
        rows = xgboost.DMatrix(given["train"][:, own], label, data_split_mode=DataSplitMode.COL, nthread=1)
        booster = xgboost.train(parameters, rows, num_boost_round=trees)
        seconds = time.perf_counter() - start
        usage = resource.getrusage(resource.RUSAGE_SELF)
        answers.put((rank, "fit", seconds, usage.ru_utime + usage.ru_stime))
        xgboost.collective.broadcast("fitted", 0)
        new = xgboost.DMatrix(given["test"][:, own], data_split_mode=DataSplitMode.COL, nthread=1)
        scores = booster.predict(new)
    answers.put((rank, "scores", scores, 0.0))


def wait_for(port: int) -> None:
    """Until somebody listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit("the federated server did not start")


def main() -> None:
    path, trees = sys.argv[1], int(sys.argv[2])
    given = np.load(path)
    workers = int(given["owner"].max()) + 1
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = multiprocessing.Process(target=xgboost.federated.run_federated_server, args=(workers, port), daemon=True)
    server.start()
    wait_for(port)
    relay, answers = Relay(port), multiprocessing.Queue()
    everybody = [
        multiprocessing.Process(target=worker, args=(rank, workers, relay.port, path, trees, answers))
        for rank in range(workers)
    ]
    for one in everybody:
        one.start()
    fits = [answers.get(timeout=900) for _ in range(workers)]
    sent, calls = relay.bytes, relay.calls
    told = [answers.get(timeout=900) for _ in range(workers)]
    scores = next(one[2] for one in told if one[0] == 0)
    for one in everybody:
        one.join()
    server.terminate()
    found = {
        "version": xgboost.__version__,
        "AUC": float(roc_auc_score(given["y_test"], scores)),
        "operations": calls / workers,
        "MB": sent / 1e6,
        "MB of prediction": (relay.bytes - sent) / 1e6,
        "seconds": max(one[2] for one in fits),
        "CPU": sum(one[3] for one in fits),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
