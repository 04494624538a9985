"""What models look at, side by side: Grad-CAM heat maps over pictures, as in Figure 1 of FairFedAvgALM.

Needs the extra ``torch`` (torch and captum).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from evenhand.arrays import Array, Integers
from evenhand.errors import InputError
from evenhand.runtime.files import make_folder, write_figure
from evenhand_reproductions.fairfedavgalm.heatmaps import decisions, gradcam, read_images, read_labels

if TYPE_CHECKING:
    import torch

HEAT = colormaps["plasma"]
# Width of a picture in inches: at 150 dots an inch, those of 128 x 128 pixels are enlarged to twice their size.
CELL = 1.7
OUTLINE = "0.6"


def gradcam_figure(
    models: Mapping[str, torch.nn.Module],
    images: Any,
    labels: npt.ArrayLike,
    *,
    out: Path | str,
    layer: str | Mapping[str, str] | None = None,
    label_names: Sequence[str] | None = None,
    pictures: npt.ArrayLike | None = None,
) -> None:
    """Draw a row for each image: the picture, then what each model looks at to tell the image's label; save as PNG.

    Above each heat map stands what the model takes the picture for, in red where that is not the label.

    Parameters
    ----------
    models
        By the name that heads the column. See :func:`gradcam` for models, images, labels and errors.
    out
        Where to write the picture; folders are made.
    layer
        One name for all models, or a name for each.
    label_names
        What the labels are called; their numbers by default.
    pictures
        What to show in place of ``images`` where those were standardised for the models: (images, height, width) or
        (images, height, width, 3), numbers from 0 to 1 or whole numbers from 0 to 255. By default ``images``, each
        stretched from its darkest to its brightest value.
    """
    if not models:
        raise InputError("there are no models to look at: give at least one, by name")
    batch, wanted = read_images(images), read_labels(labels)
    shown = _stretched(batch) if pictures is None else _pictures(pictures, (len(batch), *batch.shape[2:]))
    layers = dict.fromkeys(models, layer) if layer is None or isinstance(layer, str) else dict(layer)
    if unknown := layers.keys() ^ models.keys():
        raise InputError(f"layer and models do not name the same models: {', '.join(sorted(unknown))}")
    if label_names is not None and (wanted.min() < 0 or wanted.max() >= len(label_names)):
        raise InputError(f"label {wanted.max()} has no name: label_names holds {len(label_names)}")

    def called(label: int) -> str:
        return str(label) if label_names is None or label >= len(label_names) else label_names[label]

    # All is computed before anything is drawn or written.
    heats = {name: gradcam(model, batch, wanted, layer=layers[name]) for name, model in models.items()}
    taken = {name: decisions(model, batch) for name, model in models.items()}
    draw_heats(shown, wanted, heats, taken, out=out, called=called)


def draw_heats(
    shown: Sequence[Array],
    wanted: Integers,
    heats: Mapping[str, Array],
    taken: Mapping[str, Integers],
    *,
    out: Path | str,
    called: Callable[[int], str],
) -> None:
    """The figure of maps that are there already: pictures from 0 to 1, and each model's maps and decisions by name."""
    figure = Figure(figsize=(CELL * (1 + len(heats)) + 0.4, (CELL + 0.3) * len(shown) + 1.1), layout="constrained")
    axes = figure.subplots(len(shown), 1 + len(heats), squeeze=False)
    for row, picture in enumerate(shown):
        axes[row, 0].imshow(picture, cmap="gray", vmin=0, vmax=1)
        axes[row, 0].set_ylabel(fill(called(int(wanted[row])), 16), fontsize=10)
        for axis, (name, heat) in zip(axes[row, 1:], heats.items(), strict=True):
            axis.imshow(_overlaid(picture, heat[row]))
            decision = int(taken[name][row])
            colour = "black" if decision == wanted[row] else "tab:red"
            axis.set_title(fill(f"taken for {called(decision)}", 26), fontsize=8, color=colour, pad=3)
            if not heat[row].any():
                axis.set_xlabel("no evidence for the label", fontsize=8, color="dimgray", labelpad=2)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        # A picture that is white at its edge would otherwise have none on a white page.
        axis.spines[:].set(linewidth=0.6, color=OUTLINE)
    for axis, name in zip(axes[0], ["picture", *heats], strict=True):
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center", "va": "bottom"}
        axis.annotate(fill(name, 16), (0.5, 1), (0, 16), weight="bold", fontsize=10, **place)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), _legend()), ax=axes, location="bottom", aspect=30, shrink=0.8, pad=0.02
    )
    bar.set_ticks([0, 1], labels=["none", "most"])
    bar.set_label("evidence for the label at the left,\neach map on its own scale", fontsize=8, labelpad=-6)
    make_folder(Path(out).parent)
    write_figure(Path(out), figure)


def _overlaid(picture: Array, heat: Array) -> Array:
    """The heat map's colours over the picture in grey; clear where there is no evidence."""
    grey = picture if picture.ndim == 2 else picture.mean(axis=2)
    # Neither black nor white, so that the colours show everywhere.
    return _blended(0.15 + 0.7 * grey, heat)


def _blended(grey: Array, heat: Array) -> Array:
    opacity = 0.85 * np.sqrt(heat)[..., None]
    return opacity * HEAT(heat)[..., :3] + (1 - opacity) * grey[..., None]


def _legend() -> ListedColormap:
    """The colours as they look over a middle grey."""
    heat = np.linspace(0, 1, 256)
    return ListedColormap(list(_blended(np.full(256, 0.5), heat)))


def _stretched(batch: torch.Tensor) -> list[Array]:
    """Each image from 0 to 1; grey unless it has three channels."""
    values = batch.cpu().double().numpy()
    low, high = values.min(axis=(1, 2, 3), keepdims=True), values.max(axis=(1, 2, 3), keepdims=True)
    values = (values - low) / np.where(high > low, high - low, 1)
    return [image.transpose(1, 2, 0) if len(image) == 3 else image.mean(axis=0) for image in values]


def _pictures(pictures: npt.ArrayLike, shape: tuple[int, ...]) -> list[Array]:
    given = np.asarray(pictures)
    if given.shape not in (shape, (*shape, 3)):
        raise InputError(f"pictures have the shape {given.shape}: {shape} or {(*shape, 3)} is needed, as of the images")
    values = given / 255 if np.issubdtype(given.dtype, np.integer) else given.astype(np.float64)
    if not (values.min() >= 0 and values.max() <= 1):
        raise InputError("pictures go below 0 or above 1 (whole numbers: 255): undo the standardisation first")
    return list(values)
