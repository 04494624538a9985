"""Every kind of message is read by an attack of the audit, or listed with the reason why none reads it."""

from __future__ import annotations

from evenhand.auditing import client_views, views
from evenhand.auditing.attacks import NOT_TRIED
from evenhand.solvers.announcing import schemas
from evenhand.solvers.registry import HORIZONTAL, VERTICAL

READ = {**views.READ, **client_views.READ}


def test_every_kind_is_read_or_has_a_reason() -> None:
    own, foreign = set[str](), set[str]()
    for solver in [*VERTICAL.values(), *HORIZONTAL.values()]:
        # Methods of the reproductions may be registered too.
        kinds = foreign if solver.options.__module__.startswith("evenhand_reproductions") else own
        kinds |= {schema.kind for schema in solver.vocabulary}
    kinds = set(schemas()) - (foreign - own)
    new = {kind for kind in kinds if kind not in READ and kind not in NOT_TRIED}
    assert not new, "say in views.READ or client_views.READ what these fields are, or in attacks.NOT_TRIED why not"
    assert not READ.keys() & NOT_TRIED.keys()
    assert READ.keys() | NOT_TRIED.keys() == kinds
