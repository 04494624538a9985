"""One participant where it is: what its roles hold is let go in time."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
from support.federation import Network, run_sites

from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import Role, Sends
from evenhand.runtime.site import Program, Site, give_back

NUMBERS = Schema("numbers", {"numbers": Field("f8", (None,))}, direction=PARTICIPANT_TO_SERVER, reveals="Nothing.")


class Telling(Role):
    """Says some numbers to somebody, or waits for them and opens them."""

    vocabulary = Vocabulary(NUMBERS)

    def __init__(self, name: str, to: str | None = None) -> None:
        super().__init__(name, {})
        self._to = to
        self.done = to is not None

    def start(self) -> Sends:
        return [] if self._to is None else [NUMBERS.message(self.name, self._to, numbers=np.ones(10))]

    def handle(self, message: Message) -> Sends:
        self.opened.append(message)
        self.done = True
        return ()


def test_a_role_that_is_done_and_what_it_sent_are_let_go_before_the_next_is_made() -> None:
    """Between two roles tables are read and encoded: lists of many millions of ids must not lie beside them."""
    gone: dict[str, bool] = {}

    def program(name: str, *to: str) -> Any:
        def of(site: Site) -> Program[None]:
            role = Telling(name, *to)
            known = weakref.ref(role)
            yield role
            del role
            gc.collect()
            gone[name] = known() is None

        return of

    ends = run_sites({"a": program("a", "b"), "b": program("b")}, Network())
    assert ends == {"a": None, "b": None}
    assert gone == {"a": True, "b": True}


def test_what_a_role_has_opened_is_not_heaped_up() -> None:
    def program(role: Role) -> Any:
        def of(site: Site) -> Program[Role]:
            yield role
            return role

        return of

    hears = Telling("b")
    ends = run_sites({"a": program(Telling("a", "b")), "b": program(hears)}, Network())
    assert ends["b"] is hears
    assert hears.opened == []


def test_memory_is_given_back_wherever_this_runs() -> None:
    give_back()
