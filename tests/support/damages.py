"""Run folders to do damage to, seeded damage of every kind, and what the command makes of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w
from support.hospitals import HospitalJob
from support.tables import SmallJob, outcome

from evenhand.cli import main
from evenhand.errors import FELL_SHORT, EvenhandWarning, RunError

Random = np.random.Generator


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


# -- damage: each takes a folder, another run's, and chance, and returns what it did it to


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file())


def any_file(run: Path, rng: Random) -> Path:
    found = files_of(run)
    return found[rng.integers(len(found))]


def truncate(run: Path, other: Path, rng: Random) -> str:
    path = any_file(run, rng)
    content = path.read_bytes()
    path.write_bytes(content[: rng.integers(len(content) or 1)])
    return str(path.relative_to(run))


def flip_a_bit(run: Path, other: Path, rng: Random) -> str:
    path = any_file(run, rng)
    content = bytearray(path.read_bytes())
    place = rng.integers(len(content))
    content[place] ^= 1 << rng.integers(8)
    path.write_bytes(content)
    return f"{path.relative_to(run)} at {place}"


def noise(run: Path, other: Path, rng: Random) -> str:
    path = any_file(run, rng)
    content = bytearray(path.read_bytes())
    start = rng.integers(len(content))
    part = content[start : start + 64]
    content[start : start + 64] = rng.bytes(len(part))
    path.write_bytes(content)
    return f"{path.relative_to(run)} at {start}"


def change_a_digit(run: Path, other: Path, rng: Random) -> str:
    texts = [path for path in files_of(run) if path.suffix in (".json", ".jsonl", ".toml")]
    path = texts[rng.integers(len(texts))]
    content = bytearray(path.read_bytes())
    digits = [place for place, byte in enumerate(content) if chr(byte).isdecimal()]
    place = digits[rng.integers(len(digits))]
    content[place] = ord("0") + (content[place] - ord("0") + rng.integers(1, 10)) % 10
    path.write_bytes(content)
    return f"{path.relative_to(run)} at {place}"


def swap_within(run: Path, other: Path, rng: Random) -> str:
    """Two files of a name's ending change places: parties' weights, roles' states, checkpoints' manifests."""
    one = any_file(run, rng)
    others = [path for path in files_of(run) if path.suffix == one.suffix and path != one]
    if not others:
        return truncate(run, other, rng)
    two = others[rng.integers(len(others))]
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    return f"{one.relative_to(run)} and {two.relative_to(run)}"


def swap_alike(run: Path, other: Path, rng: Random) -> str:
    """Two files of one name in different folders change places: a party's or a checkpoint's for another's."""
    names = Counter(path.name for path in files_of(run))
    twice = sorted(name for name, count in names.items() if count > 1)
    if not twice:
        return swap_within(run, other, rng)
    name = twice[rng.integers(len(twice))]
    found = [path for path in files_of(run) if path.name == name]
    one, two = (found[place] for place in rng.choice(len(found), 2, replace=False))
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    return f"{one.relative_to(run)} and {two.relative_to(run)}"


def take_from_another_run(run: Path, other: Path, rng: Random) -> str:
    path = any_file(run, rng)
    name = path.relative_to(run)
    source = other / name
    if not source.exists():
        source = next(found for found in files_of(other) if found.suffix == path.suffix)
    shutil.copyfile(source, path)
    return str(name)


def take_a_folder_from_another_run(run: Path, other: Path, rng: Random) -> str:
    folders = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_dir())
    name = folders[rng.integers(len(folders))]
    if not (other / name).exists():
        return take_from_another_run(run, other, rng)
    shutil.rmtree(run / name)
    shutil.copytree(other / name, run / name)
    return str(name)


def delete(run: Path, other: Path, rng: Random) -> str:
    found = sorted(run.rglob("*"))
    path = found[rng.integers(len(found))]
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return str(path.relative_to(run))


def duplicate(run: Path, other: Path, rng: Random) -> str:
    """A file's content once more at its own end, or over another file."""
    path = any_file(run, rng)
    if rng.random() < 0.5:
        path.write_bytes(path.read_bytes() * 2)
        return f"{path.relative_to(run)} twice"
    target = any_file(run, rng)
    if target != path:
        shutil.copyfile(path, target)
    return f"{path.relative_to(run)} over {target.relative_to(run)}"


def disturb_lines(run: Path, other: Path, rng: Random) -> str:
    """A line of a text gone, double, or at another's place."""
    texts = [path for path in files_of(run) if path.suffix in (".json", ".jsonl", ".toml")]
    path = texts[rng.integers(len(texts))]
    lines = path.read_bytes().splitlines(keepends=True)
    one, two = rng.integers(len(lines), size=2)
    how = ("gone", "double", "moved")[rng.integers(3)]
    if how == "gone":
        del lines[one]
    elif how == "double":
        lines.insert(one, lines[one])
    else:
        lines[one], lines[two] = lines[two], lines[one]
    path.write_bytes(b"".join(lines))
    return f"{path.relative_to(run)} line {one} {how}"


def edit_a_key(run: Path, other: Path, rng: Random) -> str:
    """A key of a JSON or TOML file renamed, gone, or with another value; the file stays well formed."""
    texts = [path for path in files_of(run) if path.suffix in (".json", ".toml")]
    path = texts[rng.integers(len(texts))]
    toml = path.suffix == ".toml"
    content = tomllib.loads(path.read_text()) if toml else json.loads(path.read_bytes())
    inner, key = list(_keys(content))[rng.integers(len(list(_keys(content))))]
    how = ("renamed", "gone", "number", "text", "list", "turned around")[rng.integers(6)]
    value = inner.pop(key)
    if how == "renamed":
        inner[f"{key}x"] = value
    elif how == "turned around" and inner:
        twin = next(iter(inner))
        inner[key], inner[twin] = inner[twin], value
    elif how != "gone":
        inner[key] = {"number": 1, "text": "x"}.get(how, [])
    path.write_text(tomli_w.dumps(content) if toml else json.dumps(content))
    return f"{path.relative_to(run)} {key} {how}"


def _keys(content: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield content, key
            yield from _keys(value)
    elif isinstance(content, list):
        for value in content:
            yield from _keys(value)


def cut_a_party_out(run: Path, other: Path, rng: Random) -> str:
    path = run / "run.toml"
    path.write_text(path.read_text().rpartition("[[")[0])
    return "run.toml"


def claim_another_format(run: Path, other: Path, rng: Random) -> str:
    """Write another format into the manifest, with a digest that fits."""
    path = run / "manifest.json"
    content = json.loads(path.read_bytes()) | {"format": int(rng.integers(2, 10))}
    del content["digest"]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"digest": digest}))
    return "manifest.json"


DAMAGES: list[Callable[[Path, Path, Random], str]] = [
    truncate,
    flip_a_bit,
    noise,
    change_a_digit,
    change_a_digit,
    swap_within,
    swap_alike,
    take_from_another_run,
    take_a_folder_from_another_run,
    delete,
    duplicate,
    disturb_lines,
    edit_a_key,
    edit_a_key,
    cut_a_party_out,
    claim_another_format,
]
