"""Audit a horizontal run: the server, alone or with colluding clients, attacks what clients sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.auditing.attacks import HORIZONTAL, tried, untried
from evenhand.auditing.client_views import READ, ClientCase, HorizontalAuditInput
from evenhand.auditing.findings import Audit, Finding, Progress
from evenhand.errors import InputError
from evenhand.horizontal.masked.messages import MASKED
from evenhand.protocol.roles import SERVER


def audit_horizontal(
    scene: HorizontalAuditInput,
    *,
    coalitions: Sequence[Sequence[str]] = (),
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Audit:
    """Attack a run as the server, alone and with colluding clients."""
    if unknown := sorted({name for names in coalitions for name in names} - {SERVER, *scene.clients}):
        raise InputError(f"{unknown[0]!r} takes no part in this run; the participants are {', '.join(scene.clients)}")
    rng = np.random.default_rng(seed)
    findings: list[Finding] = []
    for names in [(), *coalitions]:
        helpers = [name for name in scene.clients if name in names]
        who = " + ".join([SERVER, *helpers])
        for victim in scene.clients:
            if victim not in helpers:
                case = ClientCase(scene, who, victim, rng)
                for attack in HORIZONTAL:
                    progress(f"{who} attacks {victim}: {attack.name}")
                    findings += attack.findings(case)
    remarks = [] if scene.linear else ["rows were not reconstructed: the ratio of weights and intercept is linear's"]
    kinds = {one.kind for one in scene.messages}
    if MASKED.kind in kinds:
        remarks.append(
            "the server was told sums over clients only; clients that tell it what they sent leave it the sum over "
            "the rest, and if one is left, that client's answer"
        )
    level = scene.terms.job.protection.replace("auto", "none")
    return Audit("horizontal", level, findings, remarks, tried(HORIZONTAL, READ, kinds), untried(READ, kinds))
