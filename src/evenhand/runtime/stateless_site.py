"""A participant that runs only during calls: each call restores it, delivers packets, and returns packets to send.

It is for engines that start a process for every message. Only a state lasts between two visits: that of each role of
the program so far, and of the endpoint. Roles that have ended are restored too, because later roles depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic

from evenhand.errors import RunError
from evenhand.privacy.key_exchange import KeyParty
from evenhand.protocol.roles import Report, Role, Sends
from evenhand.protocol.state import State
from evenhand.runtime.endpoint import Endpoint, Veto, no_veto
from evenhand.runtime.links import LinkSettings
from evenhand.runtime.packets import Content, packet_bytes
from evenhand.runtime.site import Program, Result

_EVER: Final = 1e12
NEVER_AGAIN: Final = LinkSettings(retry=_EVER, longest_retry=_EVER, ping=_EVER, patience=2 * _EVER)
"""Links over a transport that delivers everything or reports a failure: no retries, no pings."""


class StatelessSite(Generic[Result]):
    """One visit.

    Parameters
    ----------
    program
        The participant's program, from its beginning.
    now
        The time of this visit, in seconds of any clock that all visits share.
    state
        The state after the last visit; None at the first.
    veto
        The participant's own rule on outgoing messages.

    Attributes
    ----------
    ended
        Whether the program is at its end, with `result`.
    reports
        Rows of history that roles reported during this visit.
    """

    def __init__(
        self,
        name: str,
        peers: Sequence[str],
        program: Program[Result],
        now: float,
        state: State | None = None,
        veto: Veto = no_veto,
    ) -> None:
        self._endpoint = Endpoint(name, peers, NEVER_AGAIN, now, veto)
        self._program = program
        self._now = now
        self._past: list[State] = []
        self._role: Role | None = None
        self.ended = False
        self.result: Result | None = None
        self.reports: list[Report] = []
        if state is None:
            self._next_role()
        else:
            self._put_back(state)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def visit(self, packets: Iterable[tuple[str, Content]]) -> list[tuple[str, Content]]:
        """Take packets by sender, run as far as possible, and return packets to send, by receiver."""
        for sender, content in packets:
            packet = self._endpoint.opened(sender, content)
            if packet is not None:
                self._endpoint.arrive(self._now, sender, packet)
        self._endpoint.check_visits()
        while self._role is not None and self._goes_on(self._role):
            pass
        return [(peer, packet_bytes(packet)) for peer, packet in self._endpoint.due(self._now)]

    def _goes_on(self, role: Role) -> bool:
        if role.done:
            if isinstance(role, KeyParty):
                self._endpoint.secure(role.session)
            self._past.append(role.snapshot())
            self._next_role()
            return True
        message = self._endpoint.take(role)
        if message is not None:
            self._after(role, role.receive(message))
            return True
        before = role.effort
        sends = role.work()
        self._after(role, sends)
        return bool(sends) or role.effort != before

    def _next_role(self) -> None:
        role = self._advance()
        if role is not None:
            self._after(role, role.start())

    def _advance(self) -> Role | None:
        try:
            self._role = next(self._program)
        except StopIteration as end:
            self._role, self.ended, self.result = None, True, end.value
        return self._role

    def _after(self, role: Role, sends: Sends) -> None:
        self._endpoint.check_leaving(sends)
        self._endpoint.post(self._now, sends)
        role.take_opened()
        self.reports += role.take_reports()

    # -- between two visits

    def snapshot(self) -> State:
        states = [*self._past, *([] if self._role is None else [self._role.snapshot()])]
        state: State = {"roles": len(states), "ended": self.ended}
        for place, one in enumerate(states):
            state |= {f"roles.{place}.{name}": value for name, value in one.items()}
        return state | {f"endpoint.{name}": value for name, value in self._endpoint.snapshot().items()}

    def _put_back(self, state: State) -> None:
        try:
            roles = [_part(state, f"roles.{place}.") for place in range(state["roles"])]
            self._endpoint.restore(self._now, _part(state, "endpoint."))
            for place, one in enumerate(roles):
                role = self._advance()
                if role is None:
                    raise RunError("there are more states than roles")
                role.restore(one)
                if place < len(roles) - 1 or state["ended"]:
                    self._past.append(one)
                    if isinstance(role, KeyParty):
                        self._endpoint.go_on_secure(role.session)
            if state["ended"]:
                self._advance()
        except (RunError, LookupError, TypeError) as error:
            raise RunError(f"the state of the last visit is not one of this run ({error})") from error


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
