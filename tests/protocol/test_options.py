"""A solver's options from names and values."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from evenhand.errors import InputError
from evenhand.protocol.job import check_options


@dataclass(frozen=True)
class Options:
    steps: int = 3
    pace: str = "exact"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError("steps must be at least 1")


def test_known_names_become_options() -> None:
    assert check_options("walk", Options, {"steps": 5}) == Options(steps=5)
    assert check_options("walk", Options, {}) == Options()


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="walk has no option 'speed'; choose one of steps, pace"):
        check_options("walk", Options, {"steps": 5, "speed": 1})


def test_a_wrong_value_refuses_itself() -> None:
    with pytest.raises(InputError, match="at least 1"):
        check_options("walk", Options, {"steps": 0})
