"""List all kinds of messages."""

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
from evenhand.protocol.messages import Schema, Vocabulary
from evenhand.vertical import finishing
from evenhand.vertical import messages as vertical
from evenhand.vertical.protected import messages as protected
from evenhand.vertical.trees import messages as trees
from evenhand.vertical.vfb2 import messages as vfb2

VOCABULARIES: Final[tuple[Vocabulary, ...]] = (
    enrol.VOCABULARY,
    align.VOCABULARY,
    private_align.VOCABULARY,
    agree.VOCABULARY,
    resuming.CUTS,
    resuming.VOCABULARY,
    asking.VOCABULARY,
    scoring.VOCABULARY,
    measuring.VOCABULARY,
    vertical.VOCABULARY,
    protected.MASKS,
    protected.TRIPLES,
    protected.CIPHERTEXTS,
    finishing.VOCABULARY,
    trees.VOCABULARY,
    vfb2.VOCABULARY,
    averaging.VOCABULARY,
    prox_al.VOCABULARY,
    sqp.VOCABULARY,
    histogram_trees.VOCABULARY,
    masked.VOCABULARY,
)


@cache
def schemas() -> dict[str, Schema]:
    """Return every kind of message by name."""
    return {schema.kind: schema for vocabulary in VOCABULARIES for schema in vocabulary}
