"""What `make portable` makes of libraries that ignore a variable."""

from __future__ import annotations

import sys
from pathlib import Path

import portable
import pytest

USUAL = {"torch": "AVX2", "openblas": ["Haswell"], "numpy": ["X86_V3"], "numba": "ymm", "threads": [2, 2], "hash": 1}


@pytest.mark.parametrize(
    ("variable", "value", "found", "said"),
    [
        (portable.ATEN, "default", {"torch": "DEFAULT"}, None),
        (portable.ATEN, "avx512", {}, "torch took AVX2"),
        (portable.ATEN, "avx2", {"torch": None}, "torch is not installed"),
        (portable.OPENBLAS, "Nehalem", {"openblas": ["Nehalem"]}, None),
        (portable.OPENBLAS, "Haswell", {}, None),
        # Some have another name for it.
        (portable.OPENBLAS, "Prescott", {"openblas": ["Katmai"]}, None),
        (portable.OPENBLAS, "Zen", {}, "the library took Haswell"),
        (portable.NUMPY, "X86_V3 X86_V4", {"numpy": []}, None),
        (portable.NUMPY, "X86_V3 X86_V4", {}, "numpy went on with X86_V3"),
        (portable.NUMPY, "X86_V4", {}, "numpy uses none of it here (it uses X86_V3)"),
        (portable.NUMBA, "generic", {"numba": "xmm"}, None),
        (portable.NUMBA, "generic", {}, "numba compiled for registers ymm all the same"),
        (portable.THREADS, "2", {}, None),
        (portable.THREADS, "1", {"threads": [1, 2]}, "libraries took [1, 2] threads"),
    ],
)
def test_a_variable_without_effect_is_noticed(variable: str, value: str, found: dict, said: str | None) -> None:
    assert portable.without_effect(variable, value, USUAL | found, USUAL) == said


def test_a_process_that_ends_by_a_signal_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert portable.probe({}) == "the processor lacks it (ended by signal 4)"
    monkeypatch.setattr(portable, "PROBE", "raise ImportError('no such feature')")
    assert portable.probe({}) == "the libraries do not take it: ImportError: no such feature"


def test_failures_of_the_tests_are_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    failing = tmp_path / "test_failing.py"
    failing.write_text("import pytest\n\n@pytest.mark.portable\ndef test_failing():\n    assert False\n")
    monkeypatch.setattr(portable, "ROOMS", [str(failing)])
    monkeypatch.setattr(portable, "probe", lambda _: USUAL)
    monkeypatch.setattr(portable, "VALUES", {})
    monkeypatch.setattr(portable, "OLDEST", {})
    monkeypatch.setattr(portable, "weights_of_all", lambda _: {"double": {}, "inner": {}, "single": {}})
    monkeypatch.setattr(sys, "argv", ["portable.py"])
    assert portable.main() == 1
    printed = capsys.readouterr().out
    assert "NO" in printed
    assert "1 failed" in printed


@pytest.mark.parametrize(
    ("variables", "double", "single", "passed"),
    [
        ({portable.OPENBLAS: "Nehalem"}, 1e-13, 1e-7, True),
        ({portable.OPENBLAS: "Nehalem"}, 1e-11, 1e-7, False),
        ({portable.OPENBLAS: "Nehalem"}, 1e-13, 1e-5, False),
        ({portable.THREADS: "2"}, 0.0, 0.0, True),
        ({portable.THREADS: "2"}, 1e-15, 0.0, False),
        ({}, 0.0, 1e-9, False),
    ],
)
def test_weights_beyond_the_bounds_are_a_failure(
    variables: dict[str, str], double: float, single: float, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(double: float, single: float) -> portable.Weights:
        found = {"double": {"subspace": [1.0 + double, -0.5]}, "single": {"fedavg": [0.25, 1.0 + single]}}
        return {**found, "inner": {}}

    monkeypatch.setattr(portable, "weights_of_all", lambda _: weights(double, single))
    trial = portable.Trial(variables, passed=True)
    portable.judge(trial, weights(0.0, 0.0))
    assert trial.passed is passed


def test_trainings_that_end_in_an_error_are_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(portable, "RESULTS", tmp_path / "none.py")
    trial = portable.Trial({}, passed=True)
    portable.judge(trial, {"double": {}, "inner": {}, "single": {}})
    assert not trial.passed
    assert "none.py" in trial.apart
