"""Stacked perceptrons against torch's own modules and autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch import nn

from evenhand.models.stacked import LANES, Passes, StackedPerceptron, one_thread

SHAPES = {
    "linear": lambda: nn.Sequential(nn.Linear(5, 1)),
    "relu": lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1)),
    "tanh": lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)),
    "no bias": lambda: nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)),
    "ends in an activation": lambda: nn.Sequential(nn.Linear(5, 2), nn.Tanh()),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_forward_and_backward_are_those_of_each_module(kind: str) -> None:
    torch.manual_seed(0)
    modules = [SHAPES[kind]() for _ in range(3)]
    stacked = StackedPerceptron.like(modules[0])
    assert stacked is not None
    flat = torch.stack([nn.utils.parameters_to_vector(module.parameters()).detach() for module in modules])
    features = torch.randn(3, 7, 5)
    gradient = torch.full_like(flat, float("nan"))
    passes = Passes(stacked, flat, 7, gradient)
    for _ in range(2):
        # Passes are made again and again in the same memory.
        found = passes.forward(features)
        pull = torch.randn_like(found)
        passes.backward(pull)
    for place, module in enumerate(modules):
        outputs = module(features[place])
        torch.testing.assert_close(found[place], outputs)
        slopes = torch.autograd.grad(outputs, list(module.parameters()), pull[place])
        torch.testing.assert_close(gradient[place], torch.cat([slope.reshape(-1) for slope in slopes]))


def tied() -> nn.Module:
    one = nn.Linear(5, 5)
    return nn.Sequential(one, nn.ReLU(), one)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 1))
    module[0].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(5, 1),
        nn.Sequential(nn.Flatten(), nn.Linear(5, 1)),
        nn.Sequential(nn.ReLU(), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
        nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 1)),
        tied(),
        frozen(),
    ],
)
def test_other_modules_are_left_to_themselves(module: nn.Module) -> None:
    assert StackedPerceptron.like(module) is None


def test_a_stack_is_padded_to_whole_lanes_and_starts_on_a_boundary() -> None:
    stacked = StackedPerceptron.like(SHAPES["relu"]())
    assert stacked is not None
    flat = stacked.stack([np.arange(stacked.size, dtype=np.float32)] * 3)
    assert flat.shape == (3, LANES * 2)
    assert stacked.size == 43
    assert not flat[:, stacked.size :].any()
    assert all(client.data_ptr() % 64 == 0 for client in flat)


def test_one_thread_is_for_the_time_being_and_overflow_is_no_news() -> None:
    before = torch.get_num_threads()
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
            assert all(library["num_threads"] == 1 for library in threadpool_info() if library["user_api"] == "blas")
        assert torch.get_num_threads() == 1
        assert np.isinf(np.full(1, 1e38, dtype=np.float32) * np.float32(10.0))
    assert torch.get_num_threads() == before
