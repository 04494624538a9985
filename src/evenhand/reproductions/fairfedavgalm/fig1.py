"""FairFedAvgALM, Figure 1: what FedAvg's and FairFedAvgALM's models look at, by Grad-CAM.

The records keep the pictures and the models' weights, so that the figure can be drawn again without training.
"""

from __future__ import annotations

import base64
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Integers
from evenhand.data import as_floats
from evenhand.models.networks import make_network
from evenhand.reproductions.fairfedavgalm import pages
from evenhand.reproductions.fairfedavgalm.gradcam import gradcam_figure
from evenhand.reproductions.fairfedavgalm.methods import COMPARED, PaperSetting, fit, quality
from evenhand.reproductions.fairfedavgalm.numbers import TABLE2
from evenhand.reproductions.fairfedavgalm.tasks import CELLS, TrainingTask, small_convolutions
from evenhand.reproductions.settings import SETS, Meter, Record, Settings
from evenhand.reproductions.writing import Page

SETTING = PaperSetting("α = 1, N = 10")
EACH = 2
"""Pictures of each (label, group): the first of the test rows, not chosen by what they show."""


def compute(settings: Settings, meter: Meter) -> list[Record]:
    """One seed of each set: a figure is of one model each."""
    meter.expect(len(settings.sets) * len(COMPARED))
    records: list[Record] = []
    for name, task in pages.load_tasks(settings).items():
        pictures = task.test.take(_shown(task))
        for method in COMPARED:
            meter.at(f"{SETS[name]}: {method.name}")
            start = time.perf_counter()
            run = fit(task, method, SETTING, settings.seed, settings.rounds)
            seconds = time.perf_counter() - start
            records.append(
                {
                    "set": name,
                    "seed": settings.seed,
                    "condition": SETTING.name,
                    "method": method.name,
                    **quality(run, task.test),
                    "rounds": run.certificate.rounds,
                    "seconds": seconds,
                    "task": task.description,
                    "weights": _packed(run.weights),
                    "pictures": _packed(pictures.features),
                    "shape": list(pictures.features.shape),
                    "labels": (pictures.labels > 0).astype(int).tolist(),
                }
            )
    return records


def _shown(task: TrainingTask) -> Integers:
    cells = [(task.test.labels == label) & (task.test.groups == group) for label, group in CELLS[task.name]]
    return np.concatenate([np.flatnonzero(cell)[:EACH] for cell in cells])


def page(records: pd.DataFrame) -> Page:
    first = records["set"].iloc[0]
    chosen = records[records["set"] == first]
    notes = [
        "The paper's figure is of faces (CelebA), where FairFedAvgALM is said to look at smaller parts and away from "
        "what tells the sex. Here the sensitive hint is the digit's colour, which lies on the same pixels as its "
        "shape: a heat map can show where a model looks, not whether it looks at shape or colour there. The pictures "
        "neither confirm nor deny what the paper says of faces.",
        "What tells the models apart is the decision above each map, on red digits of 5 or more above all.",
        "Each map shows evidence for the true label on its own scale; it is empty where nothing speaks for that label.",
    ]
    ran = pages.ran(
        chosen,
        f"{EACH} pictures of each label and colour, the first of the test rows. The models are those of one run.",
    )
    return Page(ran, pages.tables(chosen, TABLE2), notes, figure=partial(_draw, chosen))


def _draw(records: pd.DataFrame, path: Path) -> None:
    shape = tuple(records["shape"].iloc[0])
    images = as_floats(_unpacked(records["pictures"].iloc[0], np.uint8).reshape(shape))
    models: dict[str, Any] = {}
    for record in records.to_dict("records"):
        network = make_network(partial(small_convolutions, shape[1:]), shape[1:])
        network.load(_unpacked(record["weights"], np.float32), network.statistics)
        models[str(record["method"])] = network.module
    gradcam_figure(
        models,
        images,
        records["labels"].iloc[0],
        out=path,
        label_names=("less than 5", "5 or more"),
        pictures=images.transpose(0, 2, 3, 1),
    )


def _packed(values: npt.NDArray[Any]) -> str:
    """An array's bytes as text, the lowest byte of a number first."""
    ordered = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(ordered.tobytes()).decode("ascii")


def _unpacked(text: str, kind: type[Any]) -> npt.NDArray[Any]:
    stored = np.frombuffer(base64.b64decode(text), dtype=np.dtype(kind).newbyteorder("<"))
    return stored.astype(kind)
