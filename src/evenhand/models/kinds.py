"""Models as objects with their settings: what estimators take as `model`, and job files as `model = { kind = ... }`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from evenhand.errors import InputError
from evenhand.protocol.job import CheckedOptions, Count, ModelName
from evenhand.protocol.solver import Split


@dataclass(frozen=True)
class ModelKind(CheckedOptions):
    """Base of the models: a name, and settings as fields."""

    kind: ClassVar[ModelName]
    splits: ClassVar[tuple[Split, ...]] = ("vertical", "horizontal")

    @property
    def job_fields(self) -> dict[str, Any]:
        """Return the fields of a job that describe the model; where and on which crops it computes is no part of it."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name in ("fit_intercept", "hidden")}
        return {"model": self.kind} | {name: tuple(one) if name == "hidden" else one for name, one in given.items()}

    def to_plain(self) -> Any:
        """Return the model as a job file writes it: its name, or a table if a setting is not the default."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        table = {name: list(one) if name == "hidden" else one for name, one in given.items()}
        return {"kind": self.kind, **table} if table else self.kind


@dataclass(frozen=True)
class Linear(ModelKind):
    """A linear model.

    Parameters
    ----------
    fit_intercept
        Whether there is an intercept, which is not regularised; vertically the first active party has it. Horizontal
        models always have one.
    """

    fit_intercept: bool = True
    kind: ClassVar[ModelName] = "linear"


@dataclass(frozen=True)
class BoostedTrees(ModelKind):
    """Boosted trees; how they grow is set with the solver's options (vertically it needs the extra `trees`).

    Parameters
    ----------
    fit_intercept
        Whether scores start from an intercept rather than from zero.
    """

    fit_intercept: bool = True
    kind: ClassVar[ModelName] = "trees"


@dataclass(frozen=True)
class MLP(ModelKind):
    """A multilayer perceptron with ReLU between its layers; vertically one at each party (extra `torch`).

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    """

    hidden: Sequence[Count] = (32, 16)
    kind: ClassVar[ModelName] = "mlp"


@dataclass(frozen=True)
class OwnModels(ModelKind):
    """Each party has a model of its own choice, which other participants do not learn; vertical only.

    Parameters
    ----------
    fit_intercept
        Whether scores have an intercept.
    """

    fit_intercept: bool = True
    kind: ClassVar[ModelName] = "own"
    splits: ClassVar[tuple[Split, ...]] = ("vertical",)


@dataclass(frozen=True)
class ResNet18(ModelKind):
    """A small ResNet-18 for images; horizontal only (extra `torch`).

    Parameters
    ----------
    crop
        Side of squares cut from images of bytes: at random places for training, from the middle otherwise. None shows
        whole images.
    device
        Device of torch, for instance ``"cuda"``.
    """

    crop: Count | None = None
    device: str = "cpu"
    kind: ClassVar[ModelName] = "resnet18"
    splits: ClassVar[tuple[Split, ...]] = ("horizontal",)


@dataclass(frozen=True)
class TorchModule(ModelKind):
    """A torch module of your own, in estimators only; horizontal only (extra `torch`).

    A module that is given as `model` itself equals ``TorchModule(module)``.

    Parameters
    ----------
    module
        A `torch.nn.Module`, which begins with its own weights, or a function without arguments that makes one. For
        K > 2 classes it has K outputs. It sees images of bytes as numbers from 0 to 1.
    crop, device
        As those of :class:`ResNet18`. Perceptrons are trained on the CPU only.
    """

    module: Callable[..., Any]
    crop: Count | None = None
    device: str = "cpu"
    kind: ClassVar[ModelName] = "module"
    splits: ClassVar[tuple[Split, ...]] = ("horizontal",)


NAMED: Final[dict[str, type[ModelKind]]] = {one.kind: one for one in (Linear, MLP, BoostedTrees, OwnModels, ResNet18)}
"""Models that are known by name."""


def as_model(given: Any, split: Split) -> ModelKind:
    """Return a model, which a user gives by name, as an object, or as a torch module."""
    known = {name: kind for name, kind in NAMED.items() if split in kind.splits}
    if isinstance(given, str) and given in known:
        return known[given]()
    if isinstance(given, ModelKind) and split in given.splits:
        if split == "horizontal" and isinstance(given, Linear) and not given.fit_intercept:
            raise InputError("model is Linear(fit_intercept=False); a horizontal linear model always has an intercept")
        return given
    own = split == "horizontal"
    if own and callable(given) and not (isinstance(given, type) and issubclass(given, ModelKind)):
        return TorchModule(given)
    names, objects = ", ".join(map(repr, known)), " or ".join(f"{kind.__name__}()" for kind in known.values())
    raise InputError(
        f"model is {given!r}, which is no model of {split} training; choose {names}, or give {objects}"
        + (", or a torch.nn.Module" if own else "")
    )


def module_of(model: ModelKind) -> Any:
    """Return the torch module of a model, or the function that makes one; None for a model that is known by name."""
    return getattr(model, "module", None)
