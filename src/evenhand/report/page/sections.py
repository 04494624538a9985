"""The sections of a run's page, in order, for each kind of target. A section without content is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from evenhand.report.page.classes import class_groups, classes
from evenhand.report.page.exchange import exchange
from evenhand.report.page.leaks import leaks
from evenhand.report.page.markup import Markup
from evenhand.report.page.numbers import fit, residuals
from evenhand.report.page.particulars import particulars, weights
from evenhand.report.page.people import people, performance
from evenhand.report.page.presence import presence
from evenhand.report.page.rounds import rounds
from evenhand.report.page.shapes import shapes
from evenhand.report.page.values import values
from evenhand.report.record import RunRecord, Target

Section: TypeAlias = Callable[[RunRecord, str], Markup]
"""From a run and the identifier of its heading to the section."""
_ABOUT_THE_RUN: Final[tuple[Section, ...]] = (values, rounds, exchange, leaks, shapes, weights, particulars)
SECTIONS: Final[Mapping[Target, tuple[Section, ...]]] = {
    "binary": (performance, people, presence, *_ABOUT_THE_RUN),
    "classes": (classes, class_groups, presence, *_ABOUT_THE_RUN),
    "numbers": (fit, residuals, *_ABOUT_THE_RUN),
}
"""What a model predicts decides which metrics are shown; sections about the run are the same."""
RUNNING: Final[tuple[Section, ...]] = (rounds, exchange, particulars)
"""Sections of a run that has not finished."""
