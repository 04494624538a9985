"""Audit a vertical run: every participant attacks with what it received and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from evenhand.auditing.attacks import VERTICAL, tried, untried
from evenhand.auditing.cases import Case
from evenhand.auditing.findings import Audit, Finding, Progress
from evenhand.auditing.views import READ, AuditInput, View
from evenhand.errors import InputError
from evenhand.protocol.roles import SERVER

MOST_ROWS: Final = 12_000
"""Maximum number of rows attacked; from larger runs a random sample is drawn."""


def audit_vertical(
    scene: AuditInput,
    *,
    coalitions: Sequence[Sequence[str]] = (),
    seed: int = 0,
    most_rows: int = MOST_ROWS,
    progress: Progress = lambda _: None,
) -> Audit:
    """Attack a run as every participant.

    Parameters
    ----------
    coalitions
        Names of parties (or the server) that collude, attacked beside each one alone.
    most_rows
        Maximum number of rows attacked.
    progress
        Called before each attack, with its name.
    """
    if unknown := sorted({name for names in coalitions for name in names} - {SERVER, *scene.columns}):
        raise InputError(f"{unknown[0]!r} takes no part in this run; the participants are {', '.join(scene.columns)}")
    rng = np.random.default_rng(seed)
    known = rng.permutation(len(scene.labels)) < len(scene.labels) // 2
    scene = replace(scene, known=known, rows=np.sort(rng.permutation(len(known))[:most_rows]))
    views = [View.of(scene, [name]) for name in scene.columns] + [View.of(scene, names) for names in coalitions]
    findings: list[Finding] = []
    for view in views:
        case = Case(view, rng)
        for attack in VERTICAL:
            progress(f"{view.name}: {attack.name}")
            findings += attack.findings(case)
    hidden = [view.name for view in views if view.name not in {one.who for one in findings}]
    remarks = [f"{name} was sent nothing about the rows of others" for name in hidden]
    if scene.again is None:
        remarks.append("no run was repeated without a person: randomised responses or ciphertexts would take too long")
    kinds = {one.kind for one in scene.messages}
    return Audit("vertical", scene.protection, findings, remarks, tried(VERTICAL, READ, kinds), untried(READ, kinds))
