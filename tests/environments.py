"""The unit tests under other Pythons and under the oldest libraries, each in an environment of its own.

    python tests/environments.py pythons    # every Python that pyproject.toml names, where this machine has it
    python tests/environments.py lowest     # each dependency, extras too, at the lowest version that is allowed

Environments are made beside .venv and kept; delete one to have it made anew. They have no torch, which is an extra and
by far the largest download: tests that need it are skipped and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "Programming Language :: Python :: "
EXTRAS = ("sql", "privacy", "skops", "trees")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def versions() -> list[str]:
    """The Pythons with a minor version among the classifiers."""
    return [line.removeprefix(PYTHON) for line in project()["classifiers"] if line.startswith(f"{PYTHON}3.")]


def lowest() -> list[str]:
    """Dependencies, and those of extras but torch, pinned to where their ranges begin."""
    extras = project()["optional-dependencies"]
    named = [*project()["dependencies"], *(one for name in EXTRAS for one in extras[name])]
    pins = []
    for requirement in map(Requirement, named):
        (begin,) = [part.version for part in requirement.specifier if part.operator == ">="]
        pins.append(f"{requirement.name}=={begin}")
    return pins


def interpreter(version: str) -> str | None:
    """A Python of this version: the running one, one on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [sys.executable, shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}*/bin/python"))]
    for candidate in filter(None, candidates):
        asked = [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return str(candidate)
    return None


def run(name: str, python: str, pins: Sequence[str], arguments: Sequence[str]) -> str:
    """Set up an environment and test in it; what came of it in a line."""
    folder = ROOT / f".venv-{name}"
    own = str(folder / "bin" / "python")
    if not folder.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    install = [
        own,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--editable",
        f"{ROOT}[test]",
        "--editable",
        f"{ROOT / 'reproductions'}",
        *pins,
    ]
    if subprocess.run(install, check=False, cwd=ROOT).returncode:
        return "FAILED: pip could not install it"
    tests = [own, "-m", "pytest", "-q", "-n", "2", "-m", "not soak", "-p", "no:cacheprovider", *arguments]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(tests, cwd=ROOT, env=os.environ | one_thread, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout[-8000:], flush=True)
    last = done.stdout.strip().splitlines()[-1:]
    return f"{'FAILED' if done.returncode else 'passed'}: {' '.join(last)}"


def main(kind: str, *arguments: str) -> int:
    if kind == "lowest":
        results = {"lowest": run("lowest", sys.executable, lowest(), arguments)}
        print("lowest versions:", ", ".join(lowest()))
    else:
        results = {}
        for version in versions():
            python = interpreter(version)
            results[version] = "not found here" if python is None else run(version, python, [], arguments)
    for name, result in results.items():
        print(f"{name}: {result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
