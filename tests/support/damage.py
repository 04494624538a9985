"""Seeded damage of every kind: to bytes, and to run folders."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

Random = np.random.Generator


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one kind of damage; by chance it may be unchanged."""
    if not content:
        return content
    kind = rng.choice(["cut", "bits", "extremes", "moved", "removed", "end", "noise"])
    changed = bytearray(content)
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    if kind == "bits":
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == "extremes":
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 127, 128, 255])
    elif kind == "noise":
        start = rng.randrange(len(changed))
        changed[start : start + 64] = rng.randbytes(len(changed[start : start + 64]))
    elif kind == "end":
        # Where formats such as Parquet say how much of what there is.
        for _ in range(rng.randint(1, 4)):
            changed[-rng.randint(1, min(400, len(changed)))] = rng.randrange(256)
    else:
        start = rng.randrange(len(changed))
        end = min(len(changed), start + rng.randint(1, 40))
        source = rng.randrange(len(changed))
        changed[start:end] = b"" if kind == "removed" else content[source : source + end - start]
    return bytes(changed)


# -- damage to run folders: each function takes a folder, another run's folder and a generator, and says what it changed


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file())


def any_file(run: Path, rng: Random) -> Path:
    found = files_of(run)
    return found[rng.integers(len(found))]


def damage_bytes(run: Path, other: Path, rng: Random) -> str:
    """Damage the content of one file."""
    path = any_file(run, rng)
    path.write_bytes(damaged(path.read_bytes(), random.Random(int(rng.integers(2**32)))))
    return str(path.relative_to(run))


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
        return damage_bytes(run, other, rng)
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
    damage_bytes,
    damage_bytes,
    damage_bytes,
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
