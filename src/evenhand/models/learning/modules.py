"""Torch modules of a party's own in training, and fitted (needs the `torch` extra)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import load, save

from evenhand.arrays import Array
from evenhand.errors import DataError, InputError, MissingExtraError
from evenhand.models.learning.base import Fitted, SavedLearner

BLOCK = 1024
"""Rows that go through a module at a time."""
Reads = Callable[[Any], Any]
"""Takes some of the party's rows; returns what the module takes of them."""


def torch_here() -> Any:
    """Import torch."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("A party's network", "torch") from error
    return torch


class ModuleFit(Fitted):
    """A trained module.

    Parameters
    ----------
    hidden
        Whether the output has the part of each input of its last linear layer, rather than their sum.
    read
        How it takes rows.
    width
        Number of columns that it was made for.
    """

    format: ClassVar = "module"

    def __init__(self, module: Any, hidden: bool, decay: float, device: str, read: Reads, width: int) -> None:
        self.module, self.hidden, self.decay, self.width = module, hidden, decay, width
        self.device, self.read = device, read

    def outputs(self, columns: Any) -> Array:
        torch = torch_here()
        from evenhand.models.stacked import one_thread

        seen: list[Any] = []
        last = last_layer(torch, self.module)
        hook = last.register_forward_hook(lambda _, inputs, __: seen.append((inputs[0] * last.weight[0]).cpu()))
        try:
            with one_thread(), torch.no_grad():
                given = []
                for start in range(0, columns.shape[0], BLOCK):
                    some = as_tensor(torch, self.read(_rows(columns, slice(start, start + BLOCK))), self.device)
                    given.append(numbers(self.module(some), len(some)).cpu())
                found = torch.cat(seen if self.hidden else given) if given else torch.zeros(0)
        finally:
            hook.remove()
        return np.asarray(found.numpy(), dtype=np.float64)

    def saved(self) -> SavedLearner:
        arrays = {name: one.detach().cpu().numpy() for name, one in self.module.state_dict().items()}
        about = {"shape": np.array([self.width, int(self.hidden)]), "decay": np.array([self.decay])}
        return SavedLearner(self.format, save({**arrays, **about}))

    @classmethod
    def of(cls, saved: SavedLearner, module: Any, device: str, read: Reads) -> ModuleFit:
        torch, found = torch_here(), load(saved.content)
        (width, hidden), decay = found.pop("shape").tolist(), float(found.pop("decay")[0])
        usable(torch, device)
        made = made_module(torch, module, int(width)).to(device).float()
        made.load_state_dict({name: torch.from_numpy(one) for name, one in found.items()})
        made.eval()
        return cls(made, bool(hidden), decay, device, read, int(width))


class ModuleTraining:
    """A module in training by torch's AdamW; takes tensors on its device.

    Parameters
    ----------
    warm
        Parameters to begin with, of which those of the last linear layer are set to zero.
    """

    def __init__(self, module: Any, decay: float, device: str, seed: int, width: int, warm: Any = None) -> None:
        self._torch = torch = torch_here()
        torch.manual_seed(seed)
        usable(torch, device)
        self.module, self.decay, self.device, self.width = made_module(torch, module, width), decay, device, width
        self.module.to(device).float()
        last = last_layer(torch, self.module)
        if warm is not None:
            self.module.load_state_dict(warm)
            with torch.no_grad():
                last.weight.zero_()
                if last.bias is not None:
                    last.bias.zero_()
        self._optimiser = torch.optim.AdamW(self.module.parameters(), weight_decay=decay)

    def step(self, columns: Any, response: Any, weight: Any, rate: float) -> None:
        # Batch normalisation needs more than one row.
        if len(response) < 2:
            return
        self.module.train()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad(set_to_none=True)
        rows, wanted, counts = (as_tensor(self._torch, one, self.device) for one in (columns, response, weight))
        loss = (counts * (numbers(self.module(rows), len(rows)) - wanted) ** 2).sum() / counts.sum()
        loss.backward()
        self._optimiser.step()

    def given(self, columns: Any) -> Any:
        """Return the module's number for each row."""
        self.module.eval()
        with self._torch.no_grad():
            rows = as_tensor(self._torch, columns, self.device)
            return numbers(self.module(rows), len(rows)).cpu().numpy()

    def kept(self) -> Any:
        """Return a copy of the parameters."""
        return {name: one.clone() for name, one in self.module.state_dict().items()}

    def restore(self, kept: Any) -> None:
        self.module.load_state_dict(kept)

    def fitted(self, hidden: bool, read: Reads) -> ModuleFit:
        self.module.eval()
        return ModuleFit(self.module, hidden, self.decay, self.device, read, self.width)


def as_tensor(torch: Any, given: Any, device: str) -> Any:
    """Return what was read as a tensor; numbers with a fraction become single precision."""
    found = given if isinstance(given, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(given))
    return found.to(device, torch.float32 if found.is_floating_point() else None)


def usable(torch: Any, device: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.zeros(1, device=device)
    # Builds without CUDA raise an AssertionError.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"device {device!r} cannot be used on this machine ({reason}); set device = 'cpu'") from error


def numbers(given: Any, rows: int) -> Any:
    """Return a number for each row; refuse other outputs."""
    if tuple(given.shape) not in ((rows,), (rows, 1)):
        raise DataError(f"its module gave an array of shape {tuple(given.shape)} for {rows} rows; one number is needed")
    return given.reshape(rows)


def last_layer(torch: Any, module: Any) -> Any:
    found = [one for one in module.modules() if isinstance(one, torch.nn.Linear)]
    if not found:
        raise DataError("its module has no linear layer to end with; add torch.nn.Linear(..., 1)")
    return found[-1]


def made_module(torch: Any, module: Callable[..., Any], width: int) -> Any:
    """Return a copy of a module, or what a function makes for a number of columns."""
    if isinstance(module, torch.nn.Module):
        return deepcopy(module)
    found = module(width)
    if not isinstance(found, torch.nn.Module):
        raise DataError(f"its function made a {type(found).__name__}; it must make a torch.nn.Module")
    return found


def _rows(columns: Any, some: Any) -> Any:
    return columns.iloc[some] if hasattr(columns, "iloc") else columns[some]
