"""What `make portable` makes of libraries that ignore a variable."""

from __future__ import annotations

import sys

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


def test_failures_of_the_tests_are_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(portable, "probe", lambda _: USUAL)
    monkeypatch.setattr(portable, "VALUES", {})
    monkeypatch.setattr(portable, "OLDEST", {})
    monkeypatch.setattr(sys, "argv", ["portable.py", "--no-such-argument"])
    assert portable.main() == 1
    assert "NO" in capsys.readouterr().out
