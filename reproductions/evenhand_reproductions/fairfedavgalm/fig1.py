"""FairFedAvgALM, Figure 1: what FedAvg's and FairFedAvgALM's models look at, by Grad-CAM.

The records keep the pictures and the maps, so that the figure can be drawn again without training.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.data.images import as_floats
from evenhand.horizontal.problem import Single
from evenhand_reproductions.fairfedavgalm import methods, pages
from evenhand_reproductions.fairfedavgalm.gradcam import draw_heats
from evenhand_reproductions.fairfedavgalm.heatmaps import decisions, gradcam
from evenhand_reproductions.fairfedavgalm.methods import COMPARED, PaperSetting, fit, quality
from evenhand_reproductions.fairfedavgalm.numbers import TABLE2
from evenhand_reproductions.fairfedavgalm.tasks import TaskRows, TrainingTask
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, counted, markdown_table, spread

SETTING: Final = PaperSetting("α = 1, N = 10")
EACH: Final = 2
"""Pictures of each (label, group): the first of the test rows, not chosen by what they show."""
MEASURED: Final = 400
"""Test rows that the share of the heat on the frame is taken over: the first."""
RUNS: Final = {"framed-digits": 5, "biased-digits": 1, "symmetric-digits": 1, "celeba": 1}
CELLS_ACROSS: Final = 8
"""Of the last feature map."""
RING: Final = 1 - ((CELLS_ACROSS - 2) / CELLS_ACROSS) ** 2
"""Share of the area that its outermost cells have."""
SHARES: Final = "shares on the frame"
"""Of each picture; None where the model has no map of it."""
FRAMED: Final = "framed-digits"
LABELS: Final = {"celeba": ("not attractive", "attractive")}
DIGITS: Final = ("less than 5", "5 or more")


def compute(settings: Settings, meter: Meter) -> list[Record]:
    """Several seeds of each set; the pictures are of the first, because a figure is of one model each."""
    draws = settings.draws(RUNS)
    meter.expect(len(draws) * len(COMPARED))
    tasks = pages.load_tasks(settings)
    return [record for name, seed in draws for record in _fits(tasks[name], name, seed, settings, meter)]


def _fits(task: TrainingTask, name: str, seed: int, settings: Settings, meter: Meter) -> Iterator[Record]:
    for method in COMPARED:
        meter.at(f"{SETS[name]}: {method.name}, seed {seed}")
        start = time.perf_counter()
        run = fit(task, method, SETTING, seed, settings.rounds)
        network: Any = run.model
        seconds = time.perf_counter() - start
        yield {
            "set": name,
            "seed": seed,
            "condition": SETTING.name,
            "method": method.name,
            **quality(run, task.test),
            "rounds": run.certificate.rounds,
            "seconds": seconds,
            "task": task.description,
            **_looks(network.module, task),
            **(_drawn(network.module, task) if seed == settings.seed else {}),
        }


def _drawn(module: Any, task: TrainingTask) -> Record:
    """The pictures of the figure, the model's maps of them and its decisions."""
    pictures = task.test.take(_shown(task))
    return {
        "heat": _packed(gradcam(module, pictures.inputs, _labels(pictures)).astype(np.float32)),
        "decisions": decisions(module, pictures.inputs).tolist(),
        "pictures": _packed(pictures.features),
        "shape": list(pictures.features.shape),
        "labels": _labels(pictures).tolist(),
    }


def _labels(rows: TaskRows) -> Integers:
    return (rows.labels > 0).astype(np.int64)


def _shown(task: TrainingTask) -> Integers:
    cells = [
        (task.test.labels == label) & (task.test.groups == group)
        for label in (-1, 1)
        for group in sorted(task.test.groups.unique())
    ]
    return np.concatenate([np.flatnonzero(cell)[:EACH] for cell in cells])


def _looks(module: Any, task: TrainingTask) -> Record:
    """Of the evidence for the true label: how much lies on the frame, and on how many pictures there is none.

    The maps are as coarse as the network's last layer: its outermost cells hold the frame and hardly any digit.
    """
    if task.name != FRAMED:
        return {}
    rows = task.test.take(np.arange(min(MEASURED, len(task.test))))
    heat = gradcam(module, rows.inputs, _labels(rows))
    ring = heat.shape[-1] // CELLS_ACROSS
    total, inside = heat.sum(axis=(1, 2)), heat[:, ring:-ring, ring:-ring].sum(axis=(1, 2))
    some = total > 0
    on_frame = np.divide(total - inside, total, out=np.full(len(total), np.nan), where=some)
    return {
        "on the frame": float(on_frame[some].mean()),
        "no evidence": float((~some).mean()),
        SHARES: [None if np.isnan(share) else round(float(share), 5) for share in on_frame],
    }


def constants(name: str) -> Record:
    return methods.constants(name, pictures=EACH, measured=MEASURED)


def page(records: pd.DataFrame) -> Page:
    first = str(records["set"].iloc[0])
    chosen = records[records["set"] == first]
    notes = ["Each map shows evidence for the true label on its own scale; it is empty where nothing speaks for it."]
    if first == FRAMED:
        notes += [
            "The paper's figure is of faces (CelebA), where FairFedAvgALM is said to look at smaller parts and away "
            "from what tells the sex. Here the sensitive mark is a frame, which lies on other pixels than the digit: "
            "how much of the evidence lies on it can be counted. (Maps are as coarse as the network's last layer, 8 × "
            f"8: what is counted are the outermost cells, which hold the frame and hardly any digit. They are "
            f"{100 * RING:.0f} % of the picture: that is what evidence spread evenly would have there.)",
            f"The page has {counted(chosen['seed'].nunique())}; ± below is the standard error over them. The first "
            "page had one run and compared means over different pictures; the statistic was changed after its verdict "
            "had been seen, and the verdict then was the other one. So both statistics are shown, and a method is "
            "only said to look away from the frame, or at it, if both say so by two standard errors.",
            *_framed(chosen),
        ]
    elif first != "celeba":
        notes.append("The colour lies on the same pixels as the shape: a map cannot tell which of them a model sees.")
    more = (
        f"{EACH} pictures of each label and group, the first of the test rows. The models are those of the first seed."
    )
    tables = pages.tables(chosen, TABLE2)
    if first == FRAMED:
        tables.append((f"Where the evidence lies, on the first {MEASURED} test rows", _frame_table(chosen)))
    return Page(pages.ran(chosen, more), tables, notes, figure=partial(_draw, chosen))


def _frame_table(records: pd.DataFrame) -> str:
    rows = []
    for method, runs in records.groupby("method", sort=False):
        shares, empty = (spread(runs[name], 100.0, 1) for name in ("on the frame", "no evidence"))
        rows.append([str(method), shares, f"{100 * RING:.1f}", empty])
    header = ["method", "share of the heat on the frame, %", "of the area, %", "pictures without any heat, %"]
    return markdown_table(header, rows)


def _framed(records: pd.DataFrame) -> list[str]:
    """Who has less of its evidence on the frame: on pictures of which both have a map, and on all with a map."""
    if SHARES not in records:
        return [
            "The shares are means over the pictures of which a method has a map, and these are not the same for all: "
            "records of this run do not tell them apart, so that the methods cannot be compared by them."
        ]
    plain, *others = records["method"].unique()
    return [_compared(str(name), str(plain), records) for name in others]


def _compared(name: str, plain: str, records: pd.DataFrame) -> str:
    common, each, pictures = [], [], []
    for _, runs in records.groupby("seed"):
        own, theirs = (np.array(runs.loc[runs["method"] == one, SHARES].iloc[0], np.float64) for one in (name, plain))
        both = ~np.isnan(own) & ~np.isnan(theirs)
        if both.sum() < 2:
            return f"{name} and {plain} have maps of hardly any picture in common."
        pictures.append(int(both.sum()))
        common.append(100 * float((own - theirs)[both].mean()))
        each.append(100 * float(np.nanmean(own) - np.nanmean(theirs)))
    found = [_difference(values) for values in (common, each)]
    signs = {sign for _, sign in found}
    verdicts = {-1: "it looks away from the sensitive mark", 1: "it looks more at the sensitive mark"}
    verdict = verdicts.get(signs.pop() if len(signs) == 1 else 0, "these runs do not tell where it looks")
    return (
        f"{name} less {plain}, share of the evidence on the frame in points: {found[0][0]} on the pictures of which "
        f"both have a map ({min(pictures)} to {max(pictures)} of {len(own)} a run), {found[1][0]} on all of which each "
        f"has one: {verdict}."
    )


def _difference(values: list[float]) -> tuple[str, int]:
    """Return mean and standard error over seeds in words, and the sign if it is clear by two standard errors."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:+.1f} (one run)", 0
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return f"{mean:+.1f} ± {error:.1f}", int(np.sign(mean)) if abs(mean) > 2 * error else 0


def _draw(records: pd.DataFrame, path: Path) -> None:
    records = records[records["heat"].notna()]
    shape = tuple(records["shape"].iloc[0])
    images = as_floats(_unpacked(records["pictures"].iloc[0], np.uint8).reshape(shape))
    names = LABELS.get(str(records["set"].iloc[0]), DIGITS)
    heats, taken = {}, {}
    for record in records.to_dict("records"):
        method = str(record["method"])
        heats[method] = _unpacked(record["heat"], np.float32).reshape(shape[0], *shape[2:]).astype(np.float64)
        taken[method] = np.array(record["decisions"], dtype=np.int64)
    labels = np.array(records["labels"].iloc[0], dtype=np.int64)
    draw_heats(_pictures(images), labels, heats, taken, out=path, called=lambda label: names[label])


def _pictures(images: Single) -> list[Array]:
    """One channel is grey; three are colours along the last axis."""
    return [(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).astype(np.float64) for image in images]


def _packed(values: npt.NDArray[Any]) -> str:
    """An array's bytes as text, the lowest byte of a number first."""
    ordered = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(ordered.tobytes()).decode("ascii")


def _unpacked(text: str, kind: type[Any]) -> npt.NDArray[Any]:
    stored = np.frombuffer(base64.b64decode(text), dtype=np.dtype(kind).newbyteorder("<"))
    return stored.astype(kind)
