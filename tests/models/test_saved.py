"""Models in files: whatever a file holds, a model that scores rows or an error of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenhand.errors import RunError
from evenhand.models.linear import LinearModel
from evenhand.models.saved import from_state, to_state


def _state(**changes: Any) -> dict[str, Any]:
    model = LinearModel(np.zeros((0, 3)), 0.1, intercept=True)
    model.weights = np.arange(4.0)
    return {**to_state(model), **changes}


def test_a_model_comes_back() -> None:
    assert from_state(_state()).predict(np.eye(3)).tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": np.array(["linear"])},
        {"model": np.zeros(0)},
        {"model": ["linear"]},
        {"model": "mlp"},
        {"model": "mlp", "hidden": [10**30]},
        {"intercept": np.zeros(2)},
        {"intercept": None},
        {"columns": 3.0},
        {"columns": 10**30},
        {"columns": np.array(3)},
        {"weights": np.arange(4)},
        {"weights": np.zeros((2, 2))},
        {"weights": None},
        {"weights": np.zeros(7)},
    ],
)
def test_what_no_model_writes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="the weights file holds"):
        from_state(_state(**changes))
