"""Networks as learners: perceptrons without torch, parts of an output, and modules that read rows batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from evenhand.errors import InputError
from evenhand.models import NetworkLearner
from evenhand.models.learning.perceptron import LEAK, PerceptronFit, PerceptronTraining

ROWS = 300
RANDOM = np.random.default_rng(0)
COLUMNS = RANDOM.normal(size=(ROWS, 4))
RESPONSE = np.sin(2.0 * COLUMNS[:, 0]) + COLUMNS[:, 1] * (COLUMNS[:, 2] > 0)
WEIGHT = RANDOM.uniform(0.5, 1.0, ROWS)
ONCE: dict[str, Any] = {"warm": None, "seed": 1, "features": 1}


def test_steps_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    own = PerceptronTraining((4, 6, 3, 1), 0.3, np.random.default_rng(2))
    layers = own.fitted(hidden=False).layers
    linear = [torch.nn.Linear(*one.shape) for one, _ in layers]
    for module, (weights, intercepts) in zip(linear, layers, strict=True):
        module.weight.data, module.bias.data = torch.from_numpy(weights.T.copy()), torch.from_numpy(intercepts.copy())
    leaky = torch.nn.LeakyReLU(LEAK)
    network = torch.nn.Sequential(linear[0], leaky, linear[1], leaky, linear[2])
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.3)
    rows, response, weight = (one.astype(np.float32) for one in (COLUMNS, RESPONSE, WEIGHT))
    for start in range(0, ROWS, 30):
        part = slice(start, start + 30)
        own.step(rows[part], response[part], weight[part], 0.01)
        given = network(torch.from_numpy(rows[part]))[:, 0]
        counts = torch.from_numpy(weight[part])
        loss = (counts * (given - torch.from_numpy(response[part])) ** 2).sum() / counts.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    wanted = network(torch.from_numpy(rows))[:, 0].detach().numpy()
    np.testing.assert_allclose(own.given(rows), wanted, atol=2e-4)
    np.testing.assert_allclose(own.fitted(hidden=False).outputs(COLUMNS), wanted, atol=2e-4)


def test_a_network_learns_what_its_columns_tell() -> None:
    found = NetworkLearner().fit(COLUMNS, RESPONSE, WEIGHT, **ONCE)
    others = np.random.default_rng(3).normal(size=(ROWS, 4))
    wanted = np.sin(2.0 * others[:, 0]) + others[:, 1] * (others[:, 2] > 0)
    assert np.mean((found.outputs(others) - wanted) ** 2) < 0.5 * wanted.var()
    again = NetworkLearner().fit(sp.csr_matrix(COLUMNS), RESPONSE, WEIGHT, **ONCE)
    np.testing.assert_array_equal(again.outputs(COLUMNS), found.outputs(COLUMNS))


def test_rows_of_weight_zero_change_nothing() -> None:
    shown = np.arange(ROWS) % 3 > 0
    weight = np.where(shown, WEIGHT, 0.0)
    one = NetworkLearner(epochs=3).fit(COLUMNS, RESPONSE, weight, **ONCE)
    changed = np.where(shown[:, None], COLUMNS, 99.0)
    other = NetworkLearner(epochs=3).fit(changed, np.where(shown, RESPONSE, -99.0), weight, **ONCE)
    np.testing.assert_array_equal(one.outputs(COLUMNS), other.outputs(COLUMNS))


def test_features_are_the_parts_of_the_output() -> None:
    """Of sums over parties behind masks each part has the sign that it has in its party's output."""
    found = NetworkLearner(epochs=3).fit(COLUMNS, RESPONSE, WEIGHT, warm=None, seed=1, features=5)
    assert isinstance(found, PerceptronFit)
    whole = PerceptronFit(found.layers, hidden=False, decay=found.decay)
    parts = found.outputs(COLUMNS)
    assert parts.shape == (ROWS, 5)
    np.testing.assert_allclose(parts.sum(axis=1) + found.layers[-1][1], whole.outputs(COLUMNS), atol=1e-5)


def test_a_module_reads_images_from_disk_as_it_needs_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for place, one in enumerate(COLUMNS):
        np.save(tmp_path / f"{place}.npy", one.reshape(1, 2, 2))
    table = pd.DataFrame({"file": [str(tmp_path / f"{place}.npy") for place in range(ROWS)]})
    most: list[int] = []

    def read(rows: pd.DataFrame) -> np.ndarray:
        most.append(len(rows))
        return np.stack([np.load(file) for file in rows["file"]])

    def network(_: int) -> Any:
        layers = torch.nn.Conv2d(1, 8, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 1)
        return torch.nn.Sequential(*layers)

    learner = NetworkLearner(module=network, columns="raw", read=read, epochs=8, batch=32)
    found = learner.fit(table, RESPONSE, WEIGHT, **ONCE)
    assert 0 < max(most) <= 16 * 32
    assert np.corrcoef(found.outputs(table), RESPONSE)[0, 1] > 0.5
    again = learner.load(found.saved())
    np.testing.assert_array_equal(again.outputs(table), found.outputs(table))
    parts = learner.fit(table, RESPONSE, WEIGHT, warm=None, seed=1, features=8).outputs(table)
    assert parts.shape == (ROWS, 8)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"device": "cuda"}, "read and device are for a module"),
        ({"read": len}, "read and device are for a module"),
        ({"module": len, "read": len}, "columns = 'raw' and read belong together"),
        ({"module": len, "columns": "raw"}, "columns = 'raw' and read belong together"),
        ({"module": 3}, "give a torch.nn.Module"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        NetworkLearner(**settings)
