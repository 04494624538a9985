"""Networks: flat weights and back, running statistics, scores, and modules that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from evenhand.errors import InputError
from evenhand.models.networks import Network, ResNet18Network, make_module


def test_weights_and_statistics_go_out_and_come_back() -> None:
    torch.manual_seed(1)
    network = Network(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), (3,), None)
    assert network.weights.size == 3 * 4 + 4 + 4 + 4 + 4 + 1
    assert network.statistics.tolist() == [0.0] * 4 + [1.0] * 4
    weights = np.arange(network.weights.size, dtype=np.float32)
    statistics = np.array([1, 2, 3, 4, 5, 6, -0.5, 8], dtype=np.float32)
    weights.flags.writeable = False
    network.load(weights, statistics)
    np.testing.assert_array_equal(network.weights, weights)
    # A variance is not negative, whatever noise says.
    np.testing.assert_array_equal(network.statistics, [1, 2, 3, 4, 5, 6, 0, 8])


def test_frozen_weights_are_not_among_the_weights() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    module[0].requires_grad_(False)
    assert Network(module, (3,), None).weights.size == 5
    module[2].requires_grad_(False)
    with pytest.raises(InputError, match="no weights to train"):
        Network(module, (3,), None)


def test_two_outputs_give_their_difference() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    rows = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    outputs = module(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(Network(module, (3,), None).predict(rows), outputs[:, 1] - outputs[:, 0], rtol=1e-6)
    np.testing.assert_allclose(Network(module, (3,), 2).predict(rows), outputs, rtol=1e-6)


def test_scores_do_not_depend_on_how_many_rows_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(make_module("mlp", (6,), 1, (4,), seed=0), (6,), None)
    rows = np.random.default_rng(0).standard_normal((50, 6))
    whole = network.predict(rows)
    monkeypatch.setattr("evenhand.models.networks._EVALUATED_AT_ONCE", 40)
    assert len(list(network.chunks(50))) == 9
    np.testing.assert_allclose(network.predict(rows), whole, rtol=1e-5)
    assert network.predict(rows[:0]).shape == (0,)
    with pytest.raises(InputError, match=r"rows have the shape \(5,\)"):
        network.predict(rows[:, :5])


def test_named_modules_begin_where_the_seed_says_and_leave_torch_alone() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first, again, other = (Network(make_module("mlp", (3,), 1, (4,), seed), (3,), None).weights for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not Network(make_module("linear", (3,), 1, (), 5), (3,), None).weights.any()


def test_a_given_module_is_copied_and_a_function_is_called_under_the_seed() -> None:
    given = nn.Linear(3, 1)
    made = make_module(given, (3,), 1, (), 0)
    assert made is not given
    torch.testing.assert_close(made.weight, given.weight)
    one, two = (make_module(lambda: nn.Linear(3, 1), (3,), 1, (), seed) for seed in (4, 4))
    torch.testing.assert_close(one.weight, two.weight)
    with pytest.raises(InputError, match="made a str"):
        make_module(lambda: "no module", (3,), 1, (), 0)


class Strange(nn.Module):
    """Gives the same shape whatever goes in."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.scale = shape, nn.Parameter(torch.ones(()))

    def forward(self, rows: Tensor) -> Tensor:
        return self.scale * torch.ones((len(rows), *self.shape))


@pytest.mark.parametrize(("shape", "classes"), [((3,), None), ((1, 1), None), ((2,), 3), ((), 3)])
def test_an_output_of_the_wrong_shape_is_refused(shape: tuple[int, ...], classes: int | None) -> None:
    with pytest.raises(InputError, match="gives an output of shape"):
        Network(Strange(shape), (4,), classes)


def test_a_module_for_other_rows_is_refused() -> None:
    with pytest.raises(InputError, match=r"does not take rows of shape \(4,\)"):
        Network(nn.Linear(3, 1), (4,), None)
    with pytest.raises(InputError, match="resnet18 takes images"):
        make_module("resnet18", (4,), 1, (), 0)
    with pytest.raises(InputError, match="mlp takes rows of numbers"):
        make_module("mlp", (3, 8, 8), 1, (4,), 0)
    with pytest.raises(InputError, match="choose 'linear', 'mlp', 'resnet18'"):
        make_module("forest", (4,), 1, (), 0)


def test_resnet_has_the_papers_channels_and_takes_other_images() -> None:
    resnet = ResNet18Network(outputs=2)
    widths = [module.out_channels for module in resnet.modules() if isinstance(module, nn.Conv2d)]
    assert [widths[0], widths[5], widths[10], widths[-1]] == [64, 128, 256, 512]
    # The published ResNet-18 has 11,689,512 weights, of which 513,000 belong to its thousand outputs.
    assert sum(p.numel() for p in resnet.parameters()) == 11_689_512 - 513_000 + 2 * 513
    small = ResNet18Network(outputs=3, input_channels=1, channels=(4, 4, 8, 8), small_images=True)
    assert small(torch.zeros(2, 1, 28, 28)).shape == (2, 3)
