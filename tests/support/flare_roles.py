"""Cases of the contract as a job of NVIDIA FLARE: what it starts at the server and at every party.

Every participant goes through all cases, in links of their own that stay alive to the end: others may be behind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from support.schedules import case_of

from evenhand.protocol.agree import AgreeClient, AgreeServer
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.state import State
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.runtime.nvflare.flare_transport import FlareTransport
from evenhand.runtime.site import Program, Site
from evenhand.training.run import one_blas_thread

COMPONENTS = ("support.flare_roles.CasesServer", "support.flare_roles.CasesParty")


def cases_job(names: Sequence[str], keep: Path) -> dict[str, Any]:
    """Cases of one set of participants; FLARE would take a text in one pair of braces for a variable of its own."""
    return {"cases": {"names": list(names), "keep": str(keep)}}


def parties_of(name: str) -> list[str]:
    return [one for one in case_of(name).make() if one != SERVER]


def _alone(role: Role) -> Program[None]:
    yield role


def _last(me: str, parties: Sequence[str]) -> Role:
    """When it has ended, everybody has come to the end of everything."""
    return AgreeServer(parties, lambda _: {}) if me == SERVER else AgreeClient(me, {})


class Cases:
    """All cases at one participant; what comes of them is written to a folder."""

    def __init__(self, job: str, me: str, fl_ctx: FLContext, stopped: Callable[[], bool]) -> None:
        content = json.loads(job)["cases"]
        self._names, self._keep, self._me = content["names"], Path(content["keep"]), me
        self.parties = parties_of(self._names[0])
        peers = [one for one in (SERVER, *self.parties) if one != me]
        self._cells = FlareTransport(fl_ctx.get_engine(), fl_ctx.get_job_id(), peers)
        self.sites = [
            Site(me, peers, partial(self._transmit, place), stopped=stopped) for place in range(len(self._names) + 1)
        ]

    def _transmit(self, place: int, peer: str, content: bytes) -> None:
        self._cells.transmit(peer, bytes([place]) + content)

    def _arrived(self, peer: str, content: bytes) -> None:
        self.sites[content[0]].arrived(peer, content[1:])

    def run(self, begin: Callable[[], None] = lambda: None) -> None:
        with ExitStack() as stack, one_blas_thread():
            for site in self.sites:
                stack.enter_context(site)
            self._cells.open(self._arrived)
            begin()
            for name, site in zip(self._names, self.sites, strict=False):
                role = case_of(name).make()[self._me]
                site.run(_alone(role))
                sent = [entry[1:5] for entry in site.transcript if entry.sender == self._me]
                (self._keep / f"{name} {self._me} sent").write_text(json.dumps(sent))
                (self._keep / f"{name} {self._me}").write_bytes(state_bytes(role.snapshot()))
            self.sites[-1].run(_alone(_last(self._me, self.parties)))


def what_came(name: str, keep: Path) -> tuple[Mapping[str, State], list[list[Any]]]:
    """Everybody's state at the end of a case, and what each has sent."""
    everybody = [SERVER, *parties_of(name)]
    states = {one: state_from((keep / f"{name} {one}").read_bytes(), keep) for one in everybody}
    return states, [sent for one in everybody for sent in json.loads((keep / f"{name} {one} sent").read_text())]


class CasesServer(Controller):
    """The server's part."""

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()
        self.job = job
        self._ended: set[str] = set()

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(self, *_: Any) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        cases = Cases(self.job, SERVER, fl_ctx, lambda: bool(abort_signal.triggered))

        def ended(client_task: ClientTask, fl_ctx: FLContext) -> None:
            self._ended.add(client_task.client.name)
            cases.sites[-1].gone(client_task.client.name)

        task = Task("run", Shareable(), result_received_cb=ended)
        cases.run(lambda: self.broadcast(task, fl_ctx, cases.parties, len(cases.parties)))
        while len(self._ended) < len(cases.parties) and not abort_signal.triggered:
            time.sleep(0.1)


class CasesParty(Executor):
    """A party's part."""

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()
        self.job = job

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        Cases(self.job, fl_ctx.get_identity_name(), fl_ctx, lambda: bool(abort_signal.triggered)).run()
        return make_reply(ReturnCode.OK)
