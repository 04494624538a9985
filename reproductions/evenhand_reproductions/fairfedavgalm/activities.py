"""FairFedAvgALM, Table 6: many classes, judged on pairs of them; imSitu where its folder is given, else digit pairs.

A pair's rows are the test rows of its two labels. Accuracy is that of naming the label among all classes; DP and EO are
about how often the pair's first, positive, label is named, in each group. Beside them stands what the published code
computes under these names, which is what the paper prints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Booleans, Integers
from evenhand.constraints.kinds import Constraint, GroupAgainstOverall, LossParity
from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientRows
from evenhand.models.pictures import Pictures
from evenhand.protocol.job import Job
from evenhand_reproductions.data.biased import coloured
from evenhand_reproductions.data.clients import dirichlet_clients, rows_of_clients
from evenhand_reproductions.data.digits import load_digit_images
from evenhand_reproductions.data.images import ImageDataset
from evenhand_reproductions.data.imsitu import load_imsitu
from evenhand_reproductions.fairfedavgalm.numbers import METRICS
from evenhand_reproductions.fairfedavgalm.pages import MEASURED, paired
from evenhand_reproductions.fairfedavgalm.published_gaps import (
    published_demographic_parity,
    published_equal_opportunity,
)
from evenhand_reproductions.fairfedavgalm.tasks import small_convolutions
from evenhand_reproductions.in_memory import train_clients
from evenhand_reproductions.presets import preset_of, preset_options
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, counted, markdown_table, runs_of, spread

PRESET: Final = "fairfedavgalm-imsitu"
CLIENTS, ALPHA = 4, 2.0
PAIRS_SET, IMSITU = "digit-pairs", "imsitu"
RUNS: Final = {PAIRS_SET: 2, IMSITU: 3}
SHORTER: Final = {PAIRS_SET: {"step": 0.2, "step_decay_every": 15}}
"""Where a small network starts from nothing, in place of a ResNet that has seen ImageNet."""
ROUNDS: Final = {PAIRS_SET: 20, IMSITU: preset_of(PRESET, "fedavg").rounds}
ROWS, TEST_ROWS = 16_000, 40_000
"""Pairs of digits to train and to test on; of a hundred classes in two colours, so that few are left of each."""
AGREE: Final = 0.8
"""Share of a class's rows that are in its own colour: green where the left digit is 5 or more."""
METHODS: Final[Mapping[str, tuple[str, tuple[Constraint, ...]]]] = {
    "FedAvg": ("fedavg", ()),
    "FairFed": ("fairfed", ()),
    "FairALM-FedAvg": ("fairalm", (LossParity(0.0),)),
    "FPFL": ("fpfl", (GroupAgainstOverall(0.0),)),
    "FairFedAvgALM": ("fairfedavgalm", (LossParity(0.0),)),
}
SUBTASKS: Final = {
    IMSITU: (("cooking", "driving"), ("shaving", "moisturizing"), ("assembling", "hanging")),
    PAIRS_SET: (("50", "00"), ("72", "27"), ("94", "49")),
}
"""Positive and negative label."""
TABLE6: Final = {
    ("cooking", "driving"): "52.92 11.71 20.22 51.99 11.67 20.13 53.30 10.40 16.95 47.54 9.09 16.59 49.35 9.49 16.90",
    ("shaving", "moisturizing"): "38.85 6.40 11.80 37.77 5.78 10.78 35.69 3.69 7.49 32.03 3.37 5.83 32.24 3.44 5.94",
    ("assembling", "hanging"): "21.50 8.88 16.38 24.59 8.49 14.44 26.34 8.48 16.48 22.92 8.03 16.04 22.31 7.62 13.09",
}
"""Section 5.2, Table 6, in %: accuracy, DP and EO of each method."""


CUT: Final = ", in training at another random place at each visit"
ALM: Final = "FairFedAvgALM"
ALL_CLASSES: Final = {"all classes": "accuracy %", "groups apart": "the groups' accuracies apart, %"}


@dataclass(frozen=True, eq=False)
class ManyClasses:
    """Pictures with a class and a group each.

    `crop` is the side of what a model is shown of them: cut at another random place at each visit of a picture in
    training, as in Section 5.2, and out of the middle to judge.
    """

    train: ImageDataset
    test: ImageDataset
    crop: int
    network: Any
    description: str

    def deal(self, seed: int) -> list[ClientRows]:
        numbers = dirichlet_clients(self.train.labels, CLIENTS, ALPHA, seed)
        shown = Pictures(self.train.images, crop=self.crop)
        groups, labels = _groups(self.train), self.train.labels.astype(np.float64)
        return [
            ClientRows(f"client{place}", shown.take(rows), labels[rows], groups.iloc[rows].reset_index(drop=True))
            for place, rows in enumerate(rows_of_clients(numbers, CLIENTS))
        ]


def _groups(images: ImageDataset) -> pd.DataFrame:
    return pd.DataFrame({"group": np.array(images.group_names, dtype=object)[images.groups]})


def load(name: str, source: Path | None) -> ManyClasses:
    if name == PAIRS_SET:
        return digit_pairs(source)
    named = os.environ.get("EVENHAND_DATA")
    if source is None and not named:
        raise InputError("imsitu is not fetched: give a folder that holds imsitu/train.json with --source")
    images = load_imsitu((source or Path(str(named))) / "imsitu")
    parts = [images.take(np.flatnonzero(images.parts == part)) for part in (0, 2)]
    described = f"{images.description} Resized to 256 × 256 and cut to 224 × 224{CUT}. ResNet-18."
    return ManyClasses(parts[0], parts[1], 224, "resnet18", described)


def digit_pairs(source: Path | None) -> ManyClasses:
    """Two digits side by side, each squeezed to half its width: a hundred classes, in two colours."""
    digits = load_digit_images(source=source)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(digits.labels))
    cut = len(order) // 5
    made = [
        _pairs(digits.images, digits.labels, part, rows, rng)
        for part, rows in ((order[cut:], ROWS), (order[:cut], TEST_ROWS))
    ]
    side = made[0].images.shape[-1]
    crop = side - side // 7
    return ManyClasses(
        made[0],
        made[1],
        crop,
        partial(small_convolutions, (3, crop, crop), outputs=100),
        f"Digit pairs: two digits of {digits.source} side by side, {side} × {side}, 100 classes, {ROWS:,} training and "
        f"{TEST_ROWS:,} test rows of different digits; {100 * AGREE:.0f} % of the rows whose left digit is 5 or more "
        f"are green, as many of the others red; cut to {crop} × {crop}{CUT}. Two convolutions of 16 and 24 "
        "channels and a linear layer.",
    )


def _pairs(images: Any, labels: Integers, pool: Integers, rows: int, rng: np.random.Generator) -> ImageDataset:
    left, right = rng.choice(pool, rows), rng.choice(pool, rows)
    pictures = np.concatenate([images[left][:, :, ::2], images[right][:, :, ::2]], axis=2)
    classes = 10 * labels[left] + labels[right]
    sides = (labels[left] >= 5).astype(np.int64)
    groups = np.where(rng.random(rows) < AGREE, sides, 1 - sides)
    names = tuple(f"{number:02d}" for number in range(100))
    return ImageDataset(
        PAIRS_SET, coloured(pictures, groups), classes, groups, names, ("red", "green"), np.zeros(rows, np.int64), ""
    )


def compute(settings: Settings, meter: Meter) -> list[Record]:
    draws = settings.draws(RUNS)
    meter.expect(len(draws) * len(METHODS))
    tasks = {name: load(name, settings.source) for name in settings.sets}
    records: list[Record] = []
    for name, seed in draws:
        for method in METHODS:
            meter.at(f"{SETS[name]}, seed {seed}: {method}")
            records += _run(tasks[name], name, method, seed, settings.rounds_or(ROUNDS[name]))
    return records


def _run(task: ManyClasses, name: str, method: str, seed: int, rounds: int) -> list[Record]:
    solver, constraints = METHODS[method]
    options = {**preset_options(PRESET, solver), **SHORTER.get(name, {}), "report_every": 0}
    job = Job(solver, constraints, max_rounds=rounds, seed=seed, options=options)
    groups = {"group": sorted(task.train.group_names)}
    start = time.perf_counter()
    run = train_clients(job, task.deal(seed), model=task.network, groups=groups, classes=len(task.train.label_names))
    seconds = time.perf_counter() - start
    named = run.model.predict(Pictures(task.test.images, crop=task.crop)).argmax(axis=1)
    head = {"set": name, "seed": seed, "method": method, "rounds": rounds, "seconds": seconds}
    right = named == task.test.labels
    head |= {"task": task.description, "metric": options.get("metric"), "all classes": float(right.mean())}
    head["groups apart"], head["groups apart error"] = _gap(right, task.test.groups)
    return [{**head, "pair": list(pair), **judged(task.test, named, pair)} for pair in SUBTASKS[name]]


def judged(test: ImageDataset, named: Integers, pair: tuple[str, str]) -> dict[str, float]:
    """Accuracy, DP and EO on the rows of two labels, the first of them positive."""
    positive, negative = (test.label_names.index(label) for label in pair)
    rows = np.isin(test.labels, (positive, negative))
    labels, groups, called = test.labels[rows], test.groups[rows], named[rows] == positive
    found = {"accuracy": float((named[rows] == labels).mean())}
    for metric, inside in (("DP", np.ones(len(labels), dtype=bool)), ("EO", labels == positive)):
        found[metric], found[f"{metric} error"] = _gap(called[inside], groups[inside])
    given: Any = {"sensitive_features": test.groups, "pos_label": positive, "neg_label": negative}
    found["published DP"] = published_demographic_parity(test.labels, named, **given)
    found["published EO"] = published_equal_opportunity(test.labels, named, **given)
    return found


def _gap(called: Booleans, groups: Integers) -> tuple[float, float]:
    """How far a rate is apart in the two groups, and the standard error of that."""
    parts = [called[groups == group] for group in (0, 1)]
    rates = [float(part.mean()) for part in parts]
    variance = sum(rate * (1 - rate) / len(part) for rate, part in zip(rates, parts, strict=True))
    return abs(rates[0] - rates[1]), sqrt(variance)


def _table(part: pd.DataFrame, pair: tuple[str, str]) -> str:
    # Records of before the published quantities were taken do not have them.
    shown = {metric: title for metric, title in MEASURED.items() if metric in part and part[metric].notna().all()}
    rows = []
    for method, runs in part.groupby("method", sort=False):
        cells = [str(method)]
        for metric in shown:
            cells.append(spread(runs[metric], 100.0, 1))
            if pair in TABLE6 and metric in METRICS:
                cells.append(f"{printed(pair, str(method))[metric]:.2f}")
        rows.append(cells)
    header = ["method"]
    for metric, title in shown.items():
        header += [title, "paper"] if pair in TABLE6 and metric in METRICS else [title]
    return markdown_table(header, rows)


def printed(pair: tuple[str, str], method: str) -> dict[str, float]:
    """Table 6's numbers of a method, in %, by our names of what they are."""
    numbers = [float(number) for number in TABLE6[pair].split()]
    place = len(METRICS) * list(METHODS).index(method)
    return dict(zip(METRICS, numbers[place : place + len(METRICS)], strict=True))


def _over_all(part: pd.DataFrame) -> str:
    """What a pair has too few rows to tell, over the rows of all classes."""
    once = part.drop_duplicates(["seed", "method"])
    rows = [
        [str(method), *(spread(runs[name], 100.0, 1) for name in ALL_CLASSES), f"{runs['seconds'].mean():.0f}"]
        for method, runs in once.groupby("method", sort=False)
    ]
    return markdown_table(["method", *ALL_CLASSES.values(), "s a run"], rows)


def _against(records: pd.DataFrame) -> list[str]:
    """FairFedAvgALM against FedAvg over all pairs of a set."""
    lines = []
    over_pairs = records.groupby(["set", "seed", "method"], sort=False)[["DP", "EO", "accuracy"]].mean().reset_index()
    for name, part in over_pairs.groupby("set", sort=False):
        means = 100 * part.groupby("method")[["DP", "EO", "accuracy"]].mean()
        moves = ", ".join(
            f"{metric} {means[metric]['FedAvg']:.1f} → {means[metric]['FairFedAvgALM']:.1f}" for metric in means
        )
        lines.append(
            f"{SETS[str(name)]}, mean over the pairs, FairFedAvgALM against FedAvg: {moves}."
            f"{paired(part, 'FairFedAvgALM', 'FedAvg')}"
        )
        lines.append(_direction(records[records["set"] == name], str(name)))
    stand_in = records[(records["set"] == PAIRS_SET) & (records["method"] == "FedAvg")]
    if len(stand_in):
        lines.append(
            "Digit pairs: the paper's constraint is on the groups' mean losses. Under FedAvg their accuracies are only "
            f"{100 * stand_in['groups apart'].mean():.1f} points apart, so that there is little for it to act on; in "
            "the paper EO falls in each of the three pairs."
        )
    return lines


def _fairfed(records: pd.DataFrame) -> list[str]:
    """Which metric FairFed went by; older records, which do not say, are of the solver's default."""
    metrics = set(records["metric"]) if "metric" in records else set[Any]()
    if "equal-opportunity" in metrics:
        return [
            "FairFed goes by EO, as the paper says of imSitu (Section 5). Here one model is judged on all pairs, and "
            "the EO of a client is the largest over all classes; the published code takes that of one pair, in a run "
            "for each."
        ]
    return ["FairFed goes by DP, the largest over all classes, where the paper has EO on imSitu (Section 5)."]


def _direction(part: pd.DataFrame, name: str) -> str:
    """What FairFedAvgALM changes here and in the paper, mean over the pairs of each."""
    there = pd.DataFrame(
        {method: pd.DataFrame([printed(pair, method) for pair in TABLE6]).mean() for method in ("FedAvg", ALM)}
    )
    found = []
    for metric in METRICS:
        if metric in part and part[metric].notna().all():
            means = 100 * part.groupby("method")[metric].mean()
            ours, theirs = means[ALM] - means["FedAvg"], there[ALM][metric] - there["FedAvg"][metric]
            found.append(f"{MEASURED[metric][:-2]} {ours:+.1f} here, {theirs:+.1f} in the paper")
    why = (
        "The random draws are not the paper's, and nothing here is pretrained."
        if name == IMSITU
        else "Another task and another model: what can be compared is the direction, not the size."
    )
    return f"{SETS[name]}, from FedAvg to FairFedAvgALM, mean over the pairs: {'; '.join(found)}. {why}"


def constants(name: str) -> Record:
    return {
        "preset": PRESET,
        "crops": "anew at each visit",
        "FairFed": preset_options(PRESET, "fairfed")["metric"],
        "clients": CLIENTS,
        "alpha": ALPHA,
        "options": SHORTER.get(name, {}),
        "rounds": ROUNDS[name],
        "rows": (ROWS, TEST_ROWS) if name == PAIRS_SET else None,
        "agree": AGREE if name == PAIRS_SET else None,
    }


def page(records: pd.DataFrame) -> Page:
    preset = preset_of(PRESET, "fedavg")
    tables = []
    for name in records["set"].unique():
        tables.append((f"{SETS[name]}: all classes", _over_all(records[records["set"] == name])))
        for pair in SUBTASKS[name]:
            part = records[
                (records["set"] == name) & records["pair"].map(lambda given, pair=pair: tuple(given) == pair)
            ]
            tables.append((f"{SETS[name]}: {pair[0]} against {pair[1]}", _table(part, pair)))
    ran = [
        f"{CLIENTS} clients, α = {ALPHA:g}; the settings of supplement C.2 (preset `{PRESET}`: batches of 128, T = "
        f"{preset.rounds}, η_w = {preset.common['step']:g}).",
        "Nothing here is pretrained. The paper's ResNet-18 has learned on ImageNet before (Section 5.2).",
        *records.drop_duplicates("set")["task"],
    ]
    for name, part in records.groupby("set", sort=False):
        own = ", ".join(f"{key} = {value:g}" for key, value in SHORTER.get(str(name), {}).items())
        seconds = part.drop_duplicates(["seed", "method"])["seconds"].sum()
        ran.append(
            f"{SETS[str(name)]}: {runs_of(part['seed'])}, "
            f"{counted(part['rounds'].max(), 'round')}{f', {own}' if own else ''}; {seconds:.0f} s."
        )
    errors = 100 * records.groupby("set", sort=False)[["groups apart error", "DP error", "EO error"]].mean()
    notes = ["DP and EO are differences of rates within groups, on the test rows of a pair's two labels."]
    if "published DP" in records:
        notes.append(
            "Published DP and EO divide by the rows of both groups, as the published code does; that is what the paper "
            "prints."
        )
    notes += _fairfed(records)
    for name, error in errors.iterrows():
        notes.append(
            f"{SETS[str(name)]}: standard errors on the test rows are {error['DP error']:.1f} points for a pair's DP, "
            f"{error['EO error']:.1f} for its EO and {error['groups apart error']:.1f} for the difference of the "
            "groups' accuracies over all classes: smaller differences say nothing."
        )
    notes += _against(records)
    if IMSITU not in set(records["set"]):
        notes.append(
            "imSitu is not redistributed and was not at hand. With a folder FOLDER/imsitu the table is made by `--set "
            "imsitu --source FOLDER`, with ResNet-18 and crops of 224; what runs here shows that the experiment does, "
            "and what the methods do with a hundred classes."
        )
    return Page(ran, tables, notes)
