"""The peers of `horizontal.py`: FedAvg as each library implements it, on the same rows and settings.

Each script reads `rows.npz` and `settings.json` in its working folder and writes a time stamp for each round.
"""

from __future__ import annotations

COMMON = """
import json
import time

import numpy as np
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
SETTINGS = json.load(open("settings.json"))


def make_network():
    widths = [SETTINGS["columns"], *SETTINGS["hidden"], 1]
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def read_rows(place):
    with np.load("rows.npz") as rows:
        return torch.from_numpy(rows[f"features{place}"]), torch.from_numpy(rows[f"labels{place}"])


def write_answer(name, stamps, versions, network):
    # With the mean loss over everybody's rows, which shows that all clients were trained on.
    parts = [read_rows(place) for place in range(SETTINGS["clients"])]
    features, labels = (torch.cat(columns) for columns in zip(*parts))
    with torch.no_grad():
        loss = float(torch.nn.functional.binary_cross_entropy_with_logits(network(features)[:, 0], labels))
    json.dump({"stamps": stamps, "versions": versions, "loss": loss}, open(f"{name}.json", "w"))
"""

PFL = (
    COMMON
    + """
from importlib.metadata import version

from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = make_network()

    def loss(self, features, labels, eval=False):
        self.eval() if eval else self.train()
        return torch.nn.functional.binary_cross_entropy_with_logits(self.network(features)[:, 0], labels)

    def metrics(self, features, labels, eval=True):
        return {"loss": Weighted(float(self.loss(features, labels, eval)) * len(labels), len(labels))}


class Stamps(TrainingProcessCallback):
    def __init__(self):
        self.stamps = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.stamps.append(time.perf_counter())
        return False, Metrics()


people = list(range(SETTINGS["clients"]))
rows = {place: read_rows(place) for place in people}
# Tensors once and for all: the library makes a user's dataset anew whenever it is drawn.
users = FederatedDataset(
    lambda place: PyTorchTensorDataset(rows[place], user_id=str(place)), get_user_sampler("minimize_reuse", people)
)
module = Perceptron()
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
stamps = Stamps()
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=SETTINGS["rounds"],
        evaluation_frequency=10**6,
        train_cohort_size=SETTINGS["clients"],
        val_cohort_size=0,
    ),
    SimulatedBackend(training_data=users, val_data=users, postprocessors=[WeightByDatapoints()]),
    model,
    NNTrainHyperParams(
        local_num_epochs=1,
        local_learning_rate=SETTINGS["step"],
        local_batch_size=SETTINGS["batch"],
        local_max_grad_norm=SETTINGS["clip"],
    ),
    NNEvalHyperParams(local_batch_size=None),
    callbacks=[stamps],
)
write_answer("pfl", stamps.stamps, f"pfl {version('pfl')}, torch {torch.__version__}", module.network)
"""
)

# A module of its own: the process that plays the clients imports it, and keeps what it has read.
FLOWER_CLIENT = (
    COMMON
    + """
import functools

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

rows_of = functools.lru_cache(maxsize=None)(read_rows)
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    features, labels = rows_of(int(context.node_config["partition-id"]))
    network = make_network()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(network.parameters(), lr=SETTINGS["step"])
    for chosen in torch.randperm(len(labels)).split(SETTINGS["batch"]):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(network(features[chosen])[:, 0], labels[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), SETTINGS["clip"])
        optimiser.step()
    content = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(content=RecordDict(content), reply_to=message)
"""
)

FLOWER = (
    COMMON
    + """
from importlib.metadata import version

from flower_client import client_app
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

STAMPS, RESULTS = [], []


class Stamped(FedAvg):
    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed or len(replies) < SETTINGS["clients"]:
            raise RuntimeError(f"{len(replies)} replies, {len(failed)} of them failures: {failed[:1]}")
        result = super().aggregate_train(server_round, replies)
        STAMPS.append(time.perf_counter())
        return result


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    # Else a round may begin before all clients have registered.
    everybody = {"min_available_nodes": SETTINGS["clients"], "min_train_nodes": SETTINGS["clients"]}
    strategy = Stamped(fraction_evaluate=0.0, **everybody)
    RESULTS.append(strategy.start(grid, ArrayRecord(make_network().state_dict()), num_rounds=SETTINGS["rounds"]))


if __name__ == "__main__":
    # One processor: one client at a time, as with the others.
    run_simulation(
        server_app,
        client_app,
        num_supernodes=SETTINGS["clients"],
        backend_config={
            "init_args": {"num_cpus": 1, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    network = make_network()
    network.load_state_dict(RESULTS[0].arrays.to_torch_state_dict())
    versions = ", ".join(f"{name} {version(name)}" for name in ("flwr", "ray", "torch"))
    write_answer("flower", STAMPS, versions, network)
"""
)
