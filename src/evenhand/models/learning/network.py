"""Networks as learners: perceptrons, and torch modules of the party's own (needs the `torch` extra).

A part of the rows that the party was sent a response for tells it when to stop, and which weight decay to take. The
network of the next round begins with the hidden layers of the one before, and with a last layer of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from pydantic import Field
from safetensors.numpy import load, save

from evenhand.arrays import Array
from evenhand.errors import DataError, InputError, MissingExtraError
from evenhand.models.learning.base import Encoding, Fitted, PartyLearner, SavedLearner
from evenhand.models.learning.perceptron import PerceptronFit
from evenhand.protocol.job import Count, Positive

FEWEST_ROWS = 100
"""Rows below which none are set aside: the network is trained for a quarter of the epochs."""
DECAYS = (0.01, 0.3)
"""Weight decays of which the first round chooses one."""


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("A party's network", "torch") from error
    return torch


@dataclass(frozen=True)
class NetworkLearner(PartyLearner):
    """A network, trained by AdamW on the party's own rows.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of a perceptron. With several `features` the last one has that width.
    module
        A torch module that gives each row a number, or a function that makes one for a number of columns; None is a
        perceptron. With several `features` the input of its last linear layer is sent.
    epochs
        Most passes over the rows in a round.
    batch
        Rows of a step.
    learning_rate
        Of AdamW, at first; it falls to almost zero over the epochs.
    patience
        Epochs without progress on the rows set aside after which training ends with the best epoch.
    aside
        Share of the rows that decide when to stop, and which weight decay to take. With 0 the network is trained for
        all epochs, with the smallest weight decay; so it is for a quarter of them where there are fewer than 100 rows.
    device
        Device of torch, for instance ``"cuda"``.
    """

    hidden: tuple[Count, ...] = (32, 16)
    module: Any = None
    epochs: Count = 20
    batch: Count = 256
    learning_rate: Positive = 3e-3
    patience: Count = 4
    aside: Annotated[float, Field(ge=0.0, le=0.5)] = 0.15
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.module is not None and not callable(self.module):
            raise InputError(f"module is {self.module!r}; give a torch.nn.Module, or a function that makes one")

    def fit(
        self, columns: Any, response: Array, weight: Array, *, warm: Fitted | None, seed: int, features: int
    ) -> Fitted:
        torch = _torch()
        from evenhand.models.networks import seeded
        from evenhand.models.stacked import one_thread

        with one_thread(), seeded(seed):
            rows = _Rows(torch, columns, response, weight, self.device, np.random.default_rng(seed), self.aside)
            decay = getattr(warm, "decay", None)
            state = self._state(torch, warm)
            tried = []
            for one in (DECAYS if len(rows.held) else DECAYS[:1]) if decay is None else (decay,):
                torch.manual_seed(seed)
                module = self._begun(torch, columns.shape[1], features, state)
                loss = self._train(torch, module, rows, one, np.random.default_rng(seed))
                tried.append((loss, one, module))
            _, decay, module = min(tried, key=lambda found: found[0])
            return self._fitted(module, decay, features)

    def _begun(self, torch: Any, width: int, features: int, state: Any) -> Any:
        """Return the module that a round begins with."""
        module = self._made(torch, width, features).to(self.device).float()
        if state is not None:
            module.load_state_dict(state)
            last = _last(torch, module)
            with torch.no_grad():
                last.weight.zero_()
                if last.bias is not None:
                    last.bias.zero_()
        return module

    def _made(self, torch: Any, width: int, features: int) -> Any:
        if self.module is None:
            widths = (*self.hidden[:-1], features) if features > 1 else self.hidden
            layers: list[Any] = []
            for inputs, outputs in zip((width, *widths), widths, strict=False):
                layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
            return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 1))
        return made_module(torch, self.module, width)

    def _state(self, torch: Any, warm: Fitted | None) -> Any:
        if isinstance(warm, PerceptronFit):
            found = {}
            for place, (weights, intercepts) in enumerate(warm.layers):
                found[f"{2 * place}.weight"] = torch.from_numpy(np.ascontiguousarray(weights.T))
                found[f"{2 * place}.bias"] = torch.from_numpy(intercepts)
            return found
        return warm.module.state_dict() if isinstance(warm, ModuleFit) else None

    def _train(self, torch: Any, module: Any, rows: _Rows, decay: float, random: np.random.Generator) -> float:
        """Train the module, and leave it at its best epoch; return the loss of the rows set aside."""
        optimiser = torch.optim.AdamW(module.parameters(), lr=self.learning_rate, weight_decay=decay)
        few = not len(rows.held) and self.aside > 0.0
        epochs = max(1, self.epochs // 4) if few else self.epochs
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs, 0.05 * self.learning_rate)
        best, kept, futile = np.inf, None, 0
        for _ in range(epochs):
            module.train()
            order = torch.from_numpy(random.permutation(len(rows.used)))
            for start in range(0, len(order), self.batch):
                some = rows.used[order[start : start + self.batch]]
                # Batch normalisation needs more than one row.
                if len(some) < 2 <= len(order):
                    continue
                optimiser.zero_grad(set_to_none=True)
                loss = rows.loss(_numbers(module(rows.columns[some]), len(some)), some)
                loss.backward()
                optimiser.step()
            schedule.step()
            if not len(rows.held):
                continue
            module.eval()
            with torch.no_grad():
                given = [_numbers(module(rows.columns[part]), len(part)) for part in rows.held.split(self.batch * 16)]
                now = float(rows.loss(torch.cat(given), rows.held))
            if now < best:
                best, futile = now, 0
                kept = {name: one.clone() for name, one in module.state_dict().items()}
            else:
                futile += 1
            if futile >= self.patience:
                break
        if kept is not None:
            module.load_state_dict(kept)
        module.eval()
        return best

    def _fitted(self, module: Any, decay: float, features: int) -> Fitted:
        if self.module is not None:
            return ModuleFit(module, features > 1, decay, self.device)
        arrays = [one.detach().cpu().numpy() for one in module.parameters()]
        pairs = zip(arrays[::2], arrays[1::2], strict=True)
        return PerceptronFit([(np.ascontiguousarray(one.T), other) for one, other in pairs], features > 1, decay)

    def load(self, saved: SavedLearner) -> Fitted:
        if saved.format != ModuleFit.format or self.module is None:
            raise DataError(f"a model of kind {saved.format!r} is none of this learner's")
        torch, found = _torch(), load(saved.content)
        (width, hidden), decay = found.pop("shape").tolist(), float(found.pop("decay")[0])
        module = made_module(torch, self.module, int(width)).to(self.device).float()
        module.load_state_dict({name: torch.from_numpy(one) for name, one in found.items()})
        module.eval()
        return ModuleFit(module, bool(hidden), decay, self.device, int(width))

    encoding: ClassVar[Encoding] = "standard"


class ModuleFit(Fitted):
    """A trained torch module of the party's own.

    Parameters
    ----------
    hidden
        Whether the output is the input of its last linear layer.
    """

    format: ClassVar = "module"

    def __init__(self, module: Any, hidden: bool, decay: float, device: str, width: int = 0) -> None:
        self.module, self.hidden, self.decay, self.device, self.width = module, hidden, decay, device, width

    def outputs(self, columns: Any) -> Array:
        torch = _torch()
        from evenhand.models.stacked import one_thread

        self.width = columns.shape[1]
        seen: list[Any] = []
        hook = _last(torch, self.module).register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
        try:
            with one_thread(), torch.no_grad():
                dense = _dense(columns)
                given = []
                for start in range(0, len(dense), 1024):
                    part = torch.from_numpy(dense[start : start + 1024]).to(self.device)
                    given.append(_numbers(self.module(part), len(part)))
                found = torch.cat(seen if self.hidden else given) if given else torch.zeros(0)
        finally:
            hook.remove()
        return np.asarray(found.cpu().numpy(), dtype=np.float64)

    def saved(self) -> SavedLearner:
        arrays = {name: one.detach().cpu().numpy() for name, one in self.module.state_dict().items()}
        about = {"shape": np.array([self.width, int(self.hidden)]), "decay": np.array([self.decay])}
        return SavedLearner(self.format, save({**arrays, **about}))


class _Rows:
    """The rows of a fit as tensors, and which of them are set aside."""

    def __init__(
        self,
        torch: Any,
        columns: Any,
        response: Array,
        weight: Array,
        device: str,
        random: np.random.Generator,
        share: float,
    ) -> None:
        shown = random.permutation(np.flatnonzero(weight > 0.0))
        aside = int(share * len(shown)) if len(shown) >= FEWEST_ROWS else 0
        self.columns = torch.from_numpy(_dense(columns)).to(device)
        self.response = torch.from_numpy(response.astype(np.float32)).to(device)
        self.weight = torch.from_numpy(weight.astype(np.float32)).to(device)
        self.held, self.used = torch.from_numpy(shown[:aside]), torch.from_numpy(shown[aside:])

    def loss(self, given: Any, some: Any) -> Any:
        weight = self.weight[some]
        return (weight * (given - self.response[some]) ** 2).sum() / weight.sum()


def _dense(columns: Any) -> Any:
    found = columns.toarray() if sp.issparse(columns) else np.asarray(columns)
    return np.ascontiguousarray(found, dtype=np.float32)


def _numbers(given: Any, rows: int) -> Any:
    """Return a number for each row; refuse other outputs."""
    if tuple(given.shape) not in ((rows,), (rows, 1)):
        raise DataError(f"its module gave an array of shape {tuple(given.shape)} for {rows} rows; one number is needed")
    return given.reshape(rows)


def _last(torch: Any, module: Any) -> Any:
    found = [one for one in module.modules() if isinstance(one, torch.nn.Linear)]
    if not found:
        raise DataError("its module has no linear layer to end with; add torch.nn.Linear(..., 1)")
    return found[-1]


def made_module(torch: Any, module: Callable[..., Any], width: int) -> Any:
    """Return a copy of a module, or what a function makes for a number of columns."""
    import copy

    if isinstance(module, torch.nn.Module):
        return copy.deepcopy(module)
    found = module(width)
    if not isinstance(found, torch.nn.Module):
        raise DataError(f"its function made a {type(found).__name__}; it must make a torch.nn.Module")
    return found
