"""Tests marked `portable` under other processors' kernels, as far as this machine has them.

    python tests/portable.py [--short] [arguments for pytest]

Libraries of numbers choose their kernels by the processor they find, and can be told to take those of another. Each
trial sets one variable (the last one all that make an old machine), runs the tests in a process of its own, and trains
with every solver to see how far the weights are from those with nothing set. Whether
a variable took effect is read back from the library, after a few sums with it: some are taken without a word and
ignored, some end at the first instruction that the processor lacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

ATEN, OPENBLAS, NUMPY = "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
NUMBA, THREADS, HASHES = "NUMBA_CPU_NAME", "OMP_NUM_THREADS", "PYTHONHASHSEED"
VALUES = {
    ATEN: ["default", "avx2", "avx512"],
    # Prescott is what OpenBLAS falls back to on a processor that it does not know.
    OPENBLAS: ["Prescott", "Nehalem", "Haswell", "SkylakeX", "Zen"],
    NUMPY: ["X86_V4", "X86_V3 X86_V4"],
    NUMBA: ["generic"],
    THREADS: ["1", "2"],
    HASHES: ["0", "1"],
}
OLDEST = {ATEN: "default", OPENBLAS: "Nehalem", NUMPY: "X86_V3 X86_V4", NUMBA: "generic", THREADS: "1", HASHES: "0"}
ROOMS = ["tests/horizontal", "tests/vertical", "tests/runtime", "tests/models"]
# A few of the tests, for every `make test`.
SHORT = ["-k", "company or restored_after_every_message", "tests/horizontal"]

RESULTS = Path(__file__).resolve().parent / "support" / "across_kernels.py"
# How far weights may be from those of another processor, as a share of the largest (docs/decisions/0012-bits.md): of
# solvers in double precision, of one whose inner iterations end at a tolerance, and of those in single precision.
ALLOWED = {"double": 1e-12, "inner": 1e-9, "single": 1e-6}

SAME = "the same as with nothing set"
PROBE = """
import json
import numba
import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info

found = {"hash": hash("evenhand"), "torch": None, "threads": []}
try:
    import torch
except ImportError:
    pass
else:
    found["torch"] = torch.backends.cpu.get_cpu_capability()
    found["threads"].append(torch.get_num_threads())
    rows = torch.linspace(-1.0, 1.0, 10_000).reshape(100, 100)
    torch.sigmoid(rows @ rows).exp().sum().item()
rows = np.linspace(-1.0, 1.0, 10_000).reshape(100, 100)
for kind in (np.float32, np.float64):
    np.exp(np.tanh((rows @ rows).astype(kind))) @ rows[0].astype(kind)
scipy.linalg.cho_factor(rows @ rows.T + np.eye(100))
@numba.njit
def products(left, right, out):
    for place in range(left.size):
        out[place] = left[place] * right[place]

products(rows[0], rows[1], rows[2])
machine_code = "".join(products.inspect_asm().values())
found["numba"] = max((width for width in ("xmm", "ymm", "zmm") if width in machine_code), default="")
libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
found["openblas"] = sorted({library.get("architecture", library["internal_api"]) for library in libraries})
found["threads"] += [library["num_threads"] for library in libraries]
found["numpy"] = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
print(json.dumps(found))
"""

Found = Mapping[str, Any]
Weights = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass
class Trial:
    """Variables to set, and what came of it."""

    variables: dict[str, str]
    passed: bool | None = None
    said: str = ""
    apart: str = ""

    @property
    def name(self) -> str:
        if self.variables == OLDEST:
            return "oldest machine: " + ", ".join(OLDEST.values())
        return ", ".join(f"{variable}={value}" for variable, value in self.variables.items()) or "nothing set"

    @property
    def environment(self) -> dict[str, str]:
        """This process's own, without what other trials set."""
        return {name: value for name, value in os.environ.items() if name not in VALUES} | self.variables


def without_effect(variable: str, value: str, found: Found, usual: Found) -> str | None:
    """Why a variable changed nothing, by what the libraries say with it and without it; None if it did its work."""
    if variable == ATEN and found["torch"] is None:
        return "torch is not installed"
    if variable == ATEN and found["torch"].lower() != value:
        return f"torch took {found['torch']}"
    if variable == OPENBLAS and found["openblas"] != [value] and found["openblas"] == usual["openblas"]:
        return f"the library took {', '.join(found['openblas'])}"
    if variable == NUMPY and not set(value.split()) & set(usual["numpy"]):
        return f"numpy uses none of it here (it uses {', '.join(usual['numpy']) or 'its baseline'})"
    if variable == NUMPY and set(value.split()) & set(found["numpy"]):
        return f"numpy went on with {', '.join(found['numpy'])}"
    if variable == NUMBA and found["numba"] == usual["numba"]:
        return f"numba compiled for registers {found['numba']} all the same"
    if variable == THREADS and set(found["threads"]) != {int(value)}:
        return f"libraries took {sorted(set(found['threads']))} threads"
    return None


def probe(environment: Mapping[str, str]) -> Found | str:
    """What the libraries say of themselves after a few sums, or why they did not come to that."""
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return f"the processor lacks it (ended by signal {-done.returncode})"
    if done.returncode:
        return f"the libraries do not take it: {done.stderr.strip().splitlines()[-1]}"
    found: Found = json.loads(done.stdout)
    return found


def untried(trial: Trial, usual: Found) -> str | None:
    """Why there is nothing to try, if there is not."""
    found = probe(trial.environment)
    if isinstance(found, str):
        return found
    reasons = [without_effect(variable, value, found, usual) for variable, value in trial.variables.items()]
    if any(reasons):
        return "; ".join(filter(None, reasons))
    if HASHES in trial.variables:
        again = probe(trial.environment)
        return None if found == again else "hashes differ from process to process all the same"
    same = all(found[key] == usual[key] for key in ("torch", "openblas", "numpy", "numba", "threads"))
    return SAME if same and trial.variables else None


def run(trial: Trial, arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "portable", "-p", "no:cacheprovider", *arguments]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, env=trial.environment, capture_output=True, text=True, check=False, cwd=root)
    lines = done.stdout.strip().splitlines()
    trial.passed = done.returncode == 0
    trial.said = lines[-1] if lines else "pytest said nothing"
    if not trial.passed:
        print(f"-- {trial.name}\n{done.stdout[-6000:]}{done.stderr[-2000:]}", flush=True)


def weights_of_all(environment: Mapping[str, str]) -> Weights | str:
    """The final weights of every solver by what is allowed for it, or why there are none."""
    done = subprocess.run([sys.executable, RESULTS], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr else f"ended by signal {-done.returncode}"
    found: Weights = json.loads(done.stdout)
    return found


def judge(trial: Trial, usual: Weights | str) -> None:
    """Train in the trial's environment, and compare with what comes out with nothing set."""
    found = weights_of_all(trial.environment)
    if isinstance(usual, str) or isinstance(found, str):
        trial.passed, trial.apart = False, str(found if isinstance(found, str) else usual)
        return
    # Threads and hashes are no reason for anything to differ.
    exact = trial.variables.keys() <= {THREADS, HASHES}
    largest = []
    for kind, allowed in ALLOWED.items():
        apart = {name: _apart(one, found[kind][name]) for name, one in usual[kind].items()}
        largest.append(f"{kind} {max(apart.values(), default=0.0):.1e}")
        for name, distance in apart.items():
            if distance > (0.0 if exact else allowed):
                trial.passed = False
                print(f"-- {trial.name}: the weights of {name} are {distance:.1e} from the usual", flush=True)
    trial.apart = ", ".join(largest)


def _apart(usual: Sequence[float], found: Sequence[float]) -> float:
    """The largest difference of two lists of weights, as a share of the largest weight."""
    # A baseline that finds nothing better than its start has weights of zero.
    return float(np.abs(np.subtract(usual, found)).max() / (np.abs(usual).max() or 1.0))


def main() -> int:
    arguments = sys.argv[1:]
    short = "--short" in arguments
    arguments = [argument for argument in arguments if argument != "--short"] + (SHORT if short else ROOMS)
    plain = Trial({})
    usual = probe(plain.environment)
    if isinstance(usual, str):
        print(f"not even with nothing set: {usual}")
        return 1
    single = [Trial({variable: value}) for variable, values in VALUES.items() for value in values]
    trials = [Trial(OLDEST)] if short else [plain, *single, Trial(OLDEST)]
    weights = None if short else weights_of_all(plain.environment)
    table = Table("kernels", "tried", "passed", "", "apart")
    for trial in trials:
        reason = untried(trial, usual)
        if reason is None:
            run(trial, arguments)
        if reason is None and weights is not None:
            judge(trial, weights)
        tried = "yes" if reason is None else "by the first" if reason == SAME else "no"
        passed = "" if trial.passed is None else "yes" if trial.passed else "NO"
        table.add_row(trial.name, tried, passed, reason or trial.said, trial.apart)
    about = f"torch {usual['torch']}, OpenBLAS {', '.join(usual['openblas'])}, numpy {', '.join(usual['numpy'])}"
    Console(width=150).print(f"With nothing set this machine takes: {about}.", table, sep="\n")
    return 0 if all(trial.passed is not False for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
