"""All kinds of messages there are, by family, and what each reveals."""

from __future__ import annotations

from functools import cache
from typing import Final

from evenhand.horizontal.averaging import messages as averaging
from evenhand.horizontal.masked import messages as masked
from evenhand.horizontal.prox_al import messages as prox_al
from evenhand.horizontal.sqp import messages as sqp
from evenhand.horizontal.trees import messages as histogram_trees
from evenhand.privacy import private_align
from evenhand.protocol import agree, align, asking, enrol, measuring, resuming, scoring
from evenhand.protocol.messages import Vocabulary
from evenhand.vertical import finishing
from evenhand.vertical import messages as vertical
from evenhand.vertical.protected import messages as protected
from evenhand.vertical.trees import messages as trees
from evenhand.vertical.vfb2 import messages as vfb2

FAMILIES: Final[dict[str, Vocabulary]] = {
    "Before training: enrolling": enrol.VOCABULARY,
    "Before training: aligning rows": align.VOCABULARY,
    "Before training: aligning rows privately": private_align.VOCABULARY,
    "Before training: agreeing": agree.VOCABULARY,
    "Between machines: checkpoints": resuming.CUTS,
    "Between machines: going on": resuming.VOCABULARY,
    "After training: asking for new people": asking.VOCABULARY,
    "After training: scoring": scoring.VOCABULARY,
    "After training: measuring across rows": measuring.VOCABULARY,
    "Vertical: subspace, FairVFL, FedBCD": vertical.VOCABULARY,
    "Vertical: masked, dealt and encrypted": protected.VOCABULARY,
    "Vertical: the label holder's own end": finishing.VOCABULARY,
    "Vertical: boosted trees": trees.VOCABULARY,
    "Vertical: VFB²": vfb2.VOCABULARY,
    "Horizontal: FedAvg and its fair relatives": averaging.VOCABULARY,
    "Horizontal: proximal augmented Lagrangian": prox_al.VOCABULARY,
    "Horizontal: SQP": sqp.VOCABULARY,
    "Horizontal: boosted trees": histogram_trees.VOCABULARY,
    "Horizontal: masked sums": masked.VOCABULARY,
}


@cache
def reveals() -> dict[str, str]:
    """What each kind of message reveals, in words."""
    return {schema.kind: schema.reveals for vocabulary in FAMILIES.values() for schema in vocabulary}
