"""Damaged run folders: what the commands make of them."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.damage import DAMAGES
from support.hospitals import HospitalJob
from support.tables import SmallJob, outcome

from evenhand.cli import main
from evenhand.errors import FELL_SHORT, EvenhandWarning, RunError


class Stopped(Exception):
    """Stands for a kill."""


def stop_at_round(number: int) -> Callable[[dict[str, Any]], None]:
    def on_round(report: dict[str, Any]) -> None:
        if report["round"] >= number:
            raise Stopped

    return on_round


class Subject(NamedTuple):
    """A folder to spoil copies of, another of the same job on other rows, and the job file."""

    run: Path
    other: Path
    job: Path
    finished: bool


class Subjects:
    """Finished and interrupted runs of both splits, and what they come to when nothing is wrong."""

    def __init__(self, folder: Path) -> None:
        self.every: list[Subject] = []
        self._expected: dict[tuple[Path, str], Any] = {}
        for kind in (SmallJob, HospitalJob):
            jobs: list[Any] = [kind(folder / f"{kind.__name__}{seed}", seed=seed) for seed in (0, 1)]
            for job in jobs:
                job.content["job"]["max_rounds"] = 8
                job.run("finished")
                with contextlib.suppress(Stopped):
                    job.run("interrupted", on_round=stop_at_round(4), checkpoint_seconds=0.0)
                assert len(list((job.folder / "interrupted" / "checkpoints").iterdir())) == 2
            for state in ("finished", "interrupted"):
                run, other = (job.folder / state for job in jobs)
                self.every.append(Subject(run, other, jobs[0].path, state == "finished"))

    def expected(self, subject: Subject, command: str, scratch: Path) -> Any:
        key = (subject.run, command)
        if key not in self._expected:
            copy = shutil.copytree(subject.run, scratch)
            code, found, words = attempt(subject, command, copy)
            assert code in (0, FELL_SHORT), words
            self._expected[key] = found
            shutil.rmtree(copy)
        return self._expected[key]


def attempt(subject: Subject, command: str, run: Path) -> tuple[Any, Any, str]:
    """Let the command line go at a folder; its exit code, what came of it, and what it said."""
    train = ["train", str(subject.job), "--out", str(run), "--resume", "-q"]
    code, out, err = called(["predict", str(run)] if command == "predict" else train)
    if code not in (0, FELL_SHORT):
        return code, None, err
    return code, out if command == "predict" else outcome(run), err


def called(words: list[str]) -> tuple[Any, str, str]:
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["evenhand", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore", EvenhandWarning)
            main()
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def tried(subjects: Subjects, seed: int, scratch: Path) -> tuple[str, str]:
    """Spoil a folder as the seed says and let the command go at it; what came of it, and the story for a failure."""
    rng = np.random.default_rng(seed)
    subject = subjects.every[rng.integers(len(subjects.every))]
    command = "predict" if subject.finished and rng.random() < 0.5 else "resume"
    expected = subjects.expected(subject, command, scratch / "undamaged")
    run = shutil.copytree(subject.run, scratch / "run")
    try:
        damage = DAMAGES[rng.integers(len(DAMAGES))]
        where = damage(run, subject.other, rng)
        story = f"seed {seed}: {command} {subject.run.parent.name}/{subject.run.name}, {damage.__name__} {where}"
        try:
            code, found, words = attempt(subject, command, run)
        except Exception as error:
            return "traceback", f"{story}: {error!r}"
        story += f": exit {code} {words}"
        if code == RunError.exit_code and words.startswith("error: "):
            return "refused", story
        if code not in (0, FELL_SHORT):
            return "another error", story
        return "recovered" if found == expected else "silently wrong", story
    finally:
        shutil.rmtree(run)


def tally(subjects: Subjects, seeds: range, scratch: Path) -> tuple[Counter[str], list[str]]:
    """How often each came of it, and the stories of what must not be."""
    counts, wrong = Counter[str](), []
    for seed in seeds:
        came, story = tried(subjects, seed, scratch)
        counts[came] += 1
        if came not in ("refused", "recovered"):
            wrong.append(story)
    return counts, wrong
