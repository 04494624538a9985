"""Audits of runs: every participant attacks with what it received and what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from evenhand.auditing import client_views, views
from evenhand.auditing.attacks import HORIZONTAL, VERTICAL, Attack, tried, untried
from evenhand.auditing.cases import Case
from evenhand.auditing.client_views import ClientCase, HorizontalAuditInput
from evenhand.auditing.findings import Audit, Finding, Progress
from evenhand.auditing.views import AuditInput, Target, View
from evenhand.errors import InputError
from evenhand.horizontal.masked.messages import MASKED
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import Terms
from evenhand.solvers.roles import trainings

MOST_ROWS: Final = 12_000
"""Maximum number of rows attacked; from larger runs a random sample is drawn."""


def audit_vertical(
    scene: AuditInput,
    *,
    coalitions: Sequence[Sequence[str]] = (),
    seed: int = 0,
    most_rows: int = MOST_ROWS,
    attackers: Sequence[str] = (),
    progress: Progress = lambda _: None,
) -> Audit:
    """Attack a run as every participant.

    Parameters
    ----------
    coalitions
        Names of parties (or the server) that collude, attacked beside each one alone.
    most_rows
        Maximum number of rows attacked.
    attackers
        Parties that attack alone; by default every party does.
    progress
        Called before each attack, with its name.
    """
    _refuse_strangers(coalitions, scene.columns)
    rng = np.random.default_rng(seed)
    known = rng.permutation(len(scene.labels)) < len(scene.labels) // 2
    scene = replace(scene, known=known, rows=np.sort(rng.permutation(len(known))[:most_rows]))
    alone = [[name] for name in attackers or scene.columns]
    attacks, left_out = _made_for(VERTICAL, scene.target)
    attacking = [View.of(scene, names) for names in (*alone, *coalitions)]
    findings: list[Finding] = []
    for view in attacking:
        findings += _attacked(attacks, Case(view, rng), view.name, progress)
    hidden = [view.name for view in attacking if view.name not in {one.who for one in findings}]
    remarks = [f"{name} was sent nothing about the rows of others" for name in hidden]
    remarks += [*left_out, *_several(scene.terms)]
    if scene.again is None and scene.target == "labels":
        remarks.append("no run was repeated without a person: randomised responses or ciphertexts would take too long")
    kinds, read = {one.kind for one in scene.messages}, views.READ
    return Audit("vertical", scene.protection, findings, remarks, tried(attacks, read, kinds), untried(read, kinds))


def audit_horizontal(
    scene: HorizontalAuditInput,
    *,
    coalitions: Sequence[Sequence[str]] = (),
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Audit:
    """Attack a run as the server, alone and with colluding clients."""
    _refuse_strangers(coalitions, scene.clients)
    rng = np.random.default_rng(seed)
    findings: list[Finding] = []
    attacks, left_out = _made_for(HORIZONTAL, scene.target)
    for names in [(), *coalitions]:
        helpers = [name for name in scene.clients if name in names]
        who = " + ".join([SERVER, *helpers])
        for victim in scene.clients:
            if victim not in helpers:
                case = ClientCase(scene, who, victim, rng)
                findings += _attacked(attacks, case, f"{who} attacks {victim}", progress)
    remarks = [] if scene.linear else ["rows were not reconstructed: the ratio of weights and intercept is linear's"]
    remarks += [*left_out, *_several(scene.terms)]
    kinds, read = {one.kind for one in scene.messages}, client_views.READ
    if MASKED.kind in kinds:
        remarks.append(
            "the server was told sums over clients only; clients that tell it what they sent leave it the sum over "
            "the rest, and if one is left, that client's answer"
        )
    level = scene.terms.job.protection.replace("auto", "none")
    return Audit("horizontal", level, findings, remarks, tried(attacks, read, kinds), untried(read, kinds))


def _made_for(attacks: Sequence[Attack], target: Target) -> tuple[Sequence[Attack], list[str]]:
    """Return the attacks on labels of this kind, and a remark that names those on ±1."""
    used = [one for one in attacks if target in one.targets]
    others = [one.name for one in attacks if "labels" in one.targets and one not in used]
    said = {"classes": "several classes", "numbers": "numbers", "labels": ""}[target]
    return used, [f"not tried on {said}, because made for two labels: {', '.join(others)}"] if others else []


def _several(terms: Terms) -> list[str]:
    times = trainings(terms)
    return (
        [f"the run trains {times} times to choose the cut; messages of all trainings were attacked"]
        if times > 1
        else []
    )


def _refuse_strangers(coalitions: Sequence[Sequence[str]], participants: Iterable[str]) -> None:
    if unknown := sorted({name for names in coalitions for name in names} - {SERVER, *participants}):
        raise InputError(f"{unknown[0]!r} takes no part in this run; the participants are {', '.join(participants)}")


def _attacked(attacks: Sequence[Attack], case: Any, who: str, progress: Progress) -> list[Finding]:
    found: list[Finding] = []
    for attack in attacks:
        progress(f"{who}: {attack.name}")
        found += attack.findings(case)
    return found
