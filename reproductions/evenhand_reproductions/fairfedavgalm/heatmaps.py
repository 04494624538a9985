"""Where in an image a model finds evidence for a label: Grad-CAM (needs the extra ``torch``: torch and captum)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Integers
from evenhand.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import torch


def gradcam(model: torch.nn.Module, images: Any, labels: npt.ArrayLike, *, layer: str | None = None) -> Array:
    """Where in each image the model finds evidence for the image's label: (images, height, width), 0 to 1.

    Each map is scaled by its own largest value; it is all 0 where nothing speaks for the label. Grad-CAM weighs each
    channel by its mean derivative over the map, which tells most about networks that average the map before their last
    layer, as ResNets do.

    Parameters
    ----------
    model
        A network that takes ``images`` and returns a score for each label, or one score a row that is for label 1 if
        positive and for label 0 if negative. Its mode, gradients and running means are left as they were.
    images
        What the model takes, (images, channels, height, width).
    labels
        Of each image, the number of the label to look for evidence of.
    layer
        Name of the layer whose output is weighed, such as ``"layer4"``; by default what the last convolution's output
        has become after normalisation and activation.

    Raises
    ------
    InputError
        If shapes do not fit, a label is none of the model's, or the model has no such layer or no convolution.
    MissingExtraError
        If torch or captum is not installed.
    """
    torch, attr = _torch_and_captum()
    batch, wanted = read_images(images), read_labels(labels)
    if len(wanted) != len(batch):
        raise InputError(f"there are {len(batch)} images and {len(wanted)} labels: give a label for each image")
    device = _device(model, batch)
    batch, target = batch.to(device), torch.as_tensor(wanted, device=device)
    with _in_evaluation(model):
        _check_labels(_scores(torch, model, batch), wanted)
        chosen = _last_feature_map(torch, model, batch) if layer is None else _layer(model, layer)

        def evidence(inputs: Any) -> Any:
            scores = model(inputs).reshape(len(inputs), -1)
            if scores.shape[1] == 1:
                return scores[:, 0] * (2 * target - 1)
            return scores.gather(1, target[:, None])[:, 0]

        with torch.enable_grad():
            maps = attr.LayerGradCam(evidence, chosen).attribute(batch, relu_attributions=True)
        if not isinstance(maps, torch.Tensor) or maps.ndim != 4:
            raise InputError(f"the output of layer {layer!r} is no picture: name a layer that still has one")
        maps = attr.LayerAttribution.interpolate(maps, tuple(batch.shape[2:]), "bilinear").detach()
    heat: Array = maps[:, 0].cpu().numpy().astype(np.float64)
    largest = heat.max(axis=(1, 2), keepdims=True)
    return np.divide(heat, largest, out=np.zeros_like(heat), where=largest > 0)


def decisions(model: torch.nn.Module, images: Any) -> Integers:
    """The label the model takes each image for."""
    torch, _ = _torch_and_captum()
    batch = read_images(images)
    with _in_evaluation(model):
        scores = _scores(torch, model, batch.to(_device(model, batch)))
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)


def _device(model: torch.nn.Module, batch: torch.Tensor) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), batch.device)


def read_images(images: Any) -> torch.Tensor:
    torch, _ = _torch_and_captum()
    batch = torch.as_tensor(images)
    if batch.ndim != 4 or 0 in batch.shape:
        raise InputError(f"images have the shape {tuple(batch.shape)}: (images, channels, height, width) is needed")
    if not (batch.is_floating_point() and bool(torch.isfinite(batch).all())):
        raise InputError("images are not finite floating-point numbers: give what the models were trained on")
    return batch.detach()


def read_labels(labels: npt.ArrayLike) -> Integers:
    numbers = np.asarray(labels)
    if numbers.ndim != 1 or numbers.size == 0 or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError("labels are not a list of whole numbers: give the number of a label for each image")
    return numbers.astype(np.int64)


def _check_labels(scores: Array, labels: Integers) -> None:
    known = max(scores.shape[1], 2)
    if wrong := sorted({int(label) for label in labels if not 0 <= label < known}):
        raise InputError(f"labels {wrong} are none of the model's {known}: they are numbered from 0")


def _last_feature_map(torch: Any, model: torch.nn.Module, batch: torch.Tensor) -> torch.nn.Module:
    """What the last convolution's output has become before anything changes its height and width.

    In the order of running, which need not be that of definition; in a ResNet it is the output of the last stage. A
    map before its activation would do badly: a negative value there, which the model ignores, would count.
    """
    ran: list[tuple[torch.nn.Module, torch.Size]] = []

    def record(module: torch.nn.Module, _: Any, output: Any) -> None:
        ran.append((module, output.shape if isinstance(output, torch.Tensor) else torch.Size()))

    hooks = [module.register_forward_hook(record) for module in model.modules()]
    try:
        _scores(torch, model, batch[:1])
    finally:
        for hook in hooks:
            hook.remove()
    convolutions = [place for place, (module, _) in enumerate(ran) if isinstance(module, torch.nn.Conv2d)]
    # Those of 1 x 1 only mix channels, often on a side branch.
    wide = [place for place in convolutions if ran[place][0].kernel_size != (1, 1)]
    if not convolutions:
        raise InputError("the model runs no two-dimensional convolution: name a layer with layer=")
    last = (wide or convolutions)[-1]
    modules = [module for module, _ in ran]
    # A module that runs at several places has no one output.
    after = [
        module
        for module, shape in ran[last:]
        if len(shape) == 4 and shape[2:] == ran[last][1][2:] and modules.count(module) == 1
    ]
    return after[-1] if after else modules[last]


def _layer(model: torch.nn.Module, name: str) -> torch.nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        names = ", ".join(found for found, _ in model.named_children())
        raise InputError(f"the model has no layer {name!r}: its parts are {names}") from error


@contextmanager
def _in_evaluation(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode: running means stay as they are, nothing is dropped; each module's own mode comes back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _scores(torch: Any, model: torch.nn.Module, batch: torch.Tensor) -> Array:
    with torch.no_grad():
        scores: Array = model(batch).reshape(len(batch), -1).cpu().double().numpy()
    return scores


def _torch_and_captum() -> tuple[Any, Any]:
    try:
        import torch
        from captum import attr
    except ImportError as error:
        raise MissingExtraError("Grad-CAM", "torch", "evenhand-reproductions") from error
    return torch, attr
