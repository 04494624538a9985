"""Neural networks that clients train together: torch modules with flat weights (needs the `torch` extra)."""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evenhand.arrays import Array, dense
from evenhand.errors import InputError
from evenhand.models.pictures import Pictures
from evenhand.models.stacked import StackedPerceptron, one_thread
from evenhand.printing import listed


class _Block(nn.Module):
    """Two 3 × 3 convolutions with batch normalisation, and a short cut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.path(images) + self.shortcut(images))


class ResNet18Network(nn.Module):
    """Four stages of two blocks each, with 64, 128, 256 and 512 channels by default.

    The first convolution is 7 × 7 with stride 2 and a pooling of stride 2 follows it, as for photographs;
    `small_images` takes a 3 × 3 convolution of stride 1 without pooling, for images of about 32 × 32.
    """

    def __init__(
        self,
        outputs: int = 1,
        input_channels: int = 3,
        channels: tuple[int, int, int, int] = (64, 128, 256, 512),
        small_images: bool = False,
    ) -> None:
        super().__init__()
        size, stride = (3, 1) if small_images else (7, 2)
        first: list[nn.Module] = [
            nn.Conv2d(input_channels, channels[0], size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(channels[0]),
            nn.ReLU(),
        ]
        if not small_images:
            first.append(nn.MaxPool2d(3, stride=2, padding=1))
        blocks: list[nn.Module] = []
        width = channels[0]
        for stage, wanted in enumerate(channels):
            blocks += [_Block(width, wanted, 1 if stage == 0 else 2), _Block(wanted, wanted, 1)]
            width = wanted
        self.features = nn.Sequential(*first, *blocks)
        self.head = nn.Linear(width, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.features(images).mean(dim=(2, 3))
        output: Tensor = self.head(pooled)
        return output


NAMES = ("linear", "mlp", "resnet18")


class Rows(Protocol):
    """Rows that can be read in batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


# Numbers in one forward pass when a model is only evaluated.
_EVALUATED_AT_ONCE = 2**22


def make_network(
    network: str | nn.Module | Callable[[], nn.Module],
    shape: tuple[int, ...],
    classes: int | None = None,
    hidden: tuple[int, ...] = (32, 16),
    seed: int = 0,
    device: str = "cpu",
) -> Network:
    """Make a network for rows of this shape, and for labels of ±1 or a number of classes."""
    module = make_module(network, shape, 1 if classes is None else classes, hidden, seed)
    return Network(module, shape, classes, device)


def make_module(
    network: str | nn.Module | Callable[[], nn.Module],
    shape: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...],
    seed: int,
) -> nn.Module:
    """Make a module by name or with the given function, or copy the given module.

    Named modules and functions start from weights drawn with `seed`; a given module keeps its own weights.
    """
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)
    with seeded(seed):
        if callable(network):
            module = network()
            if not isinstance(module, nn.Module):
                raise InputError(f"the model function made a {type(module).__name__}; it must make a torch.nn.Module")
            return module
        if network == "resnet18":
            if len(shape) != 3:
                raise InputError(f"resnet18 takes images (channels, height, width); a row has the shape {shape}")
            return ResNet18Network(outputs, shape[0])
        if network in ("linear", "mlp"):
            if len(shape) != 1:
                raise InputError(f"{network} takes rows of numbers; a row has the shape {shape}")
            widths = [shape[0], *(hidden if network == "mlp" else ()), outputs]
            return _perceptron(widths)
    raise InputError(f"the model is {network!r}; choose {', '.join(map(repr, NAMES))}, or give a torch.nn.Module")


def _perceptron(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    perceptron = nn.Sequential(*layers[:-1])
    if len(widths) == 2:
        # A convex problem needs no random start.
        for parameter in perceptron.parameters():
            nn.init.zeros_(parameter)
    return perceptron


_SEEDING = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and restore the caller's afterwards. Threads take turns: torch has one generator."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Network:
    """A torch module as flat weights, flat running statistics, and scores of rows.

    Scores are one number a row for labels of ±1 (positive means +1), or one for each class. A module may give a
    binary score as one output, or as the difference of two.

    Running statistics (of batch normalisation) are separate from the weights. They are averaged over clients with the
    same shares as weights, but have no gradient, clipping or regulariser.

    Rows of bytes are pictures: the module sees numbers from 0 to 1. Its outputs are on `device`; flat weights and
    evaluated scores are on the CPU.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, ...], classes: int | None, device: str = "cpu") -> None:
        if device != "cpu" and StackedPerceptron.like(module) is not None:
            raise InputError(
                f"device is {device!r}, and perceptrons are trained by numpy: leave it out, or give a torch.nn.Module "
                "that is more than layers in a row"
            )
        self.device = torch_device(device)
        self.module = module.float().eval().to(self.device)
        self.shape = shape
        self.classes = classes
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise InputError(f"{type(module).__name__} has no weights to train")
        buffers = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
        self._buffers = [buffer for _, buffer in buffers]
        self._variances = [buffer for name, buffer in buffers if name.endswith("running_var")]
        self.normalises_batches = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())
        self._check_output()

    @cached_property
    def stacked(self) -> StackedPerceptron | None:
        """The module's arithmetic for several weight vectors at once; None if it is not a plain perceptron."""
        return StackedPerceptron.like(self.module)

    def _check_output(self) -> None:
        try:
            with torch.no_grad():
                given = tuple(self.module(torch.zeros((2, *self.shape), device=self.device)).shape)
        except (RuntimeError, ValueError, TypeError) as error:
            raise InputError(
                f"{type(self.module).__name__} does not take rows of shape {self.shape}: {error}"
            ) from error
        wanted = [(2,), (2, 1), (2, 2)] if self.classes is None else [(2, self.classes)]
        if given not in wanted:
            raise InputError(
                f"{type(self.module).__name__} gives an output of shape {given} for 2 rows; expected "
                f"{' or '.join(map(str, wanted))}"
            )

    # -- flat weights

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        return _flat([parameter.detach() for parameter in self.parameters])

    @property
    def statistics(self) -> npt.NDArray[np.float32]:
        return _flat(self._buffers)

    def load(self, weights: npt.NDArray[np.float32], statistics: npt.NDArray[np.float32]) -> None:
        with torch.no_grad():
            _fill(self.parameters, weights)
            _fill(self._buffers, statistics)
            for variance in self._variances:
                # Noise on updates can push a small variance below zero.
                variance.clamp_(min=0.0)

    def load_named(self, tensors: Mapping[str, npt.NDArray[Any]], where: str) -> None:
        """Set all of the module's parameters and buffers by name; `where` names their source in messages."""
        own = {name: one for name, one in self.module.state_dict().items() if one.is_floating_point()}
        given = {name: one for name, one in tensors.items() if name in own or not name.endswith("num_batches_tracked")}
        if strange := sorted(own.keys() ^ given.keys()):
            raise InputError(
                f"{where}: {strange[0]!r} is {'not among its weights' if strange[0] in own else 'no part of the model'}"
                f"; a {type(self.module).__name__} has {listed(own, most=3)}"
            )
        for name, tensor in own.items():
            if tuple(tensor.shape) != given[name].shape:
                raise InputError(f"{where}: {name!r} has the shape {given[name].shape}, not {tuple(tensor.shape)}")
            if not np.isfinite(given[name]).all():
                raise InputError(f"{where}: {name!r} holds numbers that are not finite")
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(np.array(given[name], dtype=np.float32)))

    # -- scores

    def as_input(self, features: Tensor) -> Tensor:
        """Convert rows to the module's input."""
        moved = features.to(self.device)
        return moved.float().div_(255.0) if moved.dtype == torch.uint8 else moved

    def scores(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.module(self.as_input(features))
        return outputs if outputs.ndim == 1 else self.as_scores(outputs)

    def as_scores(self, outputs: Tensor) -> Tensor:
        """Convert outputs along the last axis to scores."""
        if self.classes is not None:
            return outputs
        return outputs[..., 0] if outputs.shape[-1] == 1 else outputs[..., 1] - outputs[..., 0]

    def as_outputs(self, pull: Tensor, width: int) -> Tensor:
        """Convert a derivative in the scores to one in `width` outputs along a last axis."""
        if self.classes is not None:
            return pull
        return pull.unsqueeze(-1) if width == 1 else torch.stack([-pull, pull], dim=-1)

    def chunks(self, rows: int) -> Iterator[slice]:
        size = max(1, _EVALUATED_AT_ONCE // math.prod(self.shape))
        for first in range(0, rows, size):
            yield slice(first, min(rows, first + size))

    def evaluate(self, features: Rows) -> Tensor:
        """Score rows in evaluation mode, in batches."""
        if self.module.training:
            self.module.eval()
        with torch.no_grad():
            parts = [self.scores(features[rows]).cpu() for rows in self.chunks(len(features))]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

    def predict(self, features: npt.ArrayLike) -> Array:
        """Scores of rows. A perceptron's are computed in double precision: whatever else is asked for at the same
        time, a row's score is the same to fifteen digits."""
        rows = self._as_rows(features)
        if tuple(rows.shape[1:]) != self.shape:
            raise InputError(f"rows have the shape {tuple(rows.shape[1:])}; the model was trained on {self.shape}")
        if len(rows) == 0:
            return np.zeros((0,) if self.classes is None else (0, self.classes))
        if isinstance(rows, Pictures):
            with torch.no_grad():
                parts = [self.evaluate(torch.from_numpy(rows[part])) for part in self.chunks(len(rows))]
            return np.asarray(torch.cat(parts).numpy(), dtype=np.float64)
        # torch warns about read-only arrays, although nothing writes here.
        given = torch.from_numpy(rows if rows.flags.writeable else rows.copy())
        scores: Any = self.evaluate(given) if self.stacked is None else self._precise(given, self.stacked)
        return np.asarray(scores.numpy(), dtype=np.float64)

    def _as_rows(self, features: Any) -> npt.NDArray[np.float32] | Pictures:
        """Keep bytes as bytes; crop larger pictures to the middle."""
        if isinstance(features, Pictures):
            return features
        rows = dense(features)
        if rows.dtype != np.uint8 or rows.ndim != 4:
            return np.ascontiguousarray(rows, dtype=np.float32)
        cut = rows.shape[2:] != self.shape[1:] and len(self.shape) == 3 and min(rows.shape[2:]) >= self.shape[1]
        return Pictures(rows, crop=self.shape[1] if cut else None)

    def _precise(self, rows: Tensor, stacked: StackedPerceptron) -> Tensor:
        weights = stacked.stack([self.weights]).double()
        with one_thread():
            outputs = [stacked.outputs(weights, rows[part].double()) for part in self.chunks(len(rows))]
        return self.as_scores(torch.cat(outputs))


def torch_device(name: str) -> torch.device:
    """Return torch's device of this name; refuse one that does not exist here."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise InputError(f"device is {name!r}, which torch cannot use here: {str(error).splitlines()[0]}") from error
    return device


def _flat(tensors: list[Tensor]) -> npt.NDArray[np.float32]:
    if not tensors:
        return np.zeros(0, dtype=np.float32)
    flat: Any = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu().numpy()
    return np.array(flat, dtype=np.float32)


def _fill(tensors: Sequence[Tensor], flat: npt.NDArray[np.float32]) -> None:
    first = 0
    for tensor in tensors:
        # A message's array may be read-only; torch warns, but the copy below never writes to it.
        part = flat[first : first + tensor.numel()].copy()
        tensor.copy_(torch.from_numpy(part).view_as(tensor))
        first += tensor.numel()
