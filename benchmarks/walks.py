"""Count the files and functions of evenhand that `evenhand train` uses.

Three jobs of 300 rows: vertical subspace, horizontal SQP and horizontal trees. Each is trained once to load what is
imported on the way, and once more with another seed and epsilon under a profile. Counted are files and functions that
were called, and how often each function that sets a run up was.

    python benchmarks/walks.py [--list] [NAME ...]

`--list` names the files, with the number of functions of each.
To compare with another checkout: PYTHONPATH=OTHER/src python benchmarks/walks.py
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

import evenhand
from evenhand.cli.app import app

ROWS = 300
SET_UP = (
    "Job.__post_init__",
    "check_job",
    "check_options",
    "Subspace.__post_init__",
    "SQP.__post_init__",
    "to_job",
    "inequalities",
    "bind",
    "vertical_terms",
    "horizontal_terms",
    "open_table",
)
LIST = "--list"
LABEL = {"column": "good", "positive": "yes"}


def write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(ROWS, 6))
    sex = np.where(rng.random(ROWS) < 0.4, "f", "m")
    good = numbers @ rng.normal(size=6) + (sex == "f") + rng.logistic(size=ROWS) > 0
    whole = pd.DataFrame(numbers, columns=list("abcdef")).assign(good=np.where(good, "yes", "no"), sex=sex)
    whole.insert(0, "id", [f"p{number:03d}" for number in range(ROWS)])
    for name, columns in {"bank": ["a", "b", "good", "sex"], "shop": ["c", "d"], "phone": ["e", "f"]}.items():
        whole[["id", *columns]].sample(frac=1.0, random_state=len(name)).to_csv(folder / f"{name}.csv", index=False)
    for number in range(3):
        whole.iloc[number::3].to_csv(folder / f"clinic{number}.csv", index=False)


def fair(seed: int, walk: int) -> dict[str, Any]:
    """Return a constraint with an epsilon of its own, so that nothing is remembered from the run before."""
    return {"kind": "equalized-odds", "epsilon": 0.05 + 0.001 * (2 * walk + seed)}


def vertical(seed: int) -> dict[str, Any]:
    parties: list[dict[str, Any]] = [
        {"name": name, "table": f"{name}.csv", "id": "id"} for name in ("bank", "shop", "phone")
    ]
    parties[0] |= {"role": "active", "label": LABEL, "sensitive": ["sex"]}
    job = {"split": "vertical", "solver": "subspace", "constraint": fair(seed, 0), "test_fraction": 0.2, "seed": seed}
    return {"job": job, "party": parties}


def horizontal(seed: int, walk: int, solver: str, **more: Any) -> dict[str, Any]:
    clients = [{"name": f"clinic{number}", "table": f"clinic{number}.csv"} for number in range(3)]
    job = {"split": "horizontal", "solver": solver, "test_fraction": 0.2, "seed": seed, **more}
    job["constraint"] = fair(seed, walk)
    data = {"columns": list("abcdef"), "label": LABEL, "sensitive": ["sex"], "id": "id"}
    return {"job": job, "data": data, "client": clients}


WALKS = {
    "vertical subspace": vertical,
    "horizontal sqp": lambda seed: horizontal(seed, 1, "sqp"),
    "horizontal trees": lambda seed: horizontal(seed, 2, "trees", max_rounds=20),
}


@contextlib.contextmanager
def counted(calls: Counter[CodeType]) -> Iterator[None]:
    """Count calls of functions of evenhand; bodies of modules and classes, comprehensions and lambdas are none."""
    top = str(Path(evenhand.__file__).parent)

    def seen(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        named = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and named and code.co_filename.startswith(top):
            calls[code] += 1

    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)


def walk(name: str, folder: Path) -> Counter[CodeType]:
    """Train twice, the second time under the profile."""
    calls: Counter[CodeType] = Counter()
    for seed in (0, 1):
        path = folder / "job.toml"
        path.write_text(tomli_w.dumps(WALKS[name](seed)))
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            with counted(calls) if seed else contextlib.nullcontext():
                app(["train", str(path), "--out", str(folder / f"{name} {seed}")], standalone_mode=False)
    return calls


def main() -> None:
    wanted = [name for name in sys.argv[1:] if name != LIST] or list(WALKS)
    with tempfile.TemporaryDirectory() as made:
        write_tables(Path(made))
        for name in wanted:
            calls = walk(name, Path(made))
            files = {code.co_filename for code in calls}
            print(f"{name}: {len(files)} files, {len(calls)} functions")
            by_name: Counter[str] = Counter()
            for code, number in calls.items():
                by_name[code.co_qualname.removesuffix(".__init__")] += number
            if LIST in sys.argv:
                names = Counter(Path(code.co_filename).relative_to(Path(evenhand.__file__).parent) for code in calls)
                print("\n".join(f"    {number:4} {path}" for path, number in sorted(names.items())))
            print("   ", ", ".join(f"{one} {by_name[one]}" for one in SET_UP if by_name[one]))


if __name__ == "__main__":
    main()
