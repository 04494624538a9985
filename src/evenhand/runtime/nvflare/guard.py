"""Components of a site's own process that close what NVIDIA FLARE leaves open to admins and to other participants.

FLARE's authorisation covers some of the server's commands. Others, about its network of cells, need no right: they read
a party's host and load its line. Cells also take orders from each other: any participant could stop another's process.
A finished job's workspace, which its submitter downloads, holds the server's log of the job.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.job_def_manager import SimpleJobDefManager
from nvflare.apis.job_def import Job
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.net_agent import NetAgent
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.hci.conn import Connection
from nvflare.fuel.hci.proto import InternalCommands, MetaStatusValue, make_meta
from nvflare.fuel.hci.server.authz import AuthzFilter
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.private.fed.server.job_runner import JobRunner

from evenhand.runtime.nvflare.admin import GOES_ON
from evenhand.runtime.nvflare.kits import COMMANDS
from evenhand.runtime.nvflare.quiet import LOGS
from evenhand.runtime.nvflare.submitting import OUTCOME

_NETWORK: Final = "_net_manager:"
"""Channel on which cells take orders from each other: stop, change the root, report a process, test a line."""
_SHIELDED: Final = "shielded"
_CARRIED_OUT: Final = frozenset({*COMMANDS, *InternalCommands.commands} - {InternalCommands.LIST_SESSIONS})


class SiteGuard(FLComponent):
    """Refuse what no kit may ask for, in the process of a server or a party."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type != EventType.SYSTEM_BOOTSTRAP:
            return
        close_commands()
        let_jobs_decide()
        # The server makes its agent later, a party has made it.
        NetAgent.__init__ = _shielding(NetAgent.__init__)
        if (cell := getattr(fl_ctx.get_prop(FLContextKey.SITE_OBJ), "cell", None)) is not None:
            shield(cell)


def close_commands() -> None:
    """Let the server carry out no commands of admins but those that some kit has a right to."""
    authorise = AuthzFilter.pre_command

    @functools.wraps(authorise)
    def pre_command(self: AuthzFilter, conn: Connection, args: list[str]) -> bool:
        entry = conn.get_prop(ConnProps.CMD_ENTRY, None)
        if entry is not None and entry.name not in _CARRIED_OUT:
            told = f"command {entry.name} is closed in this federation"
            conn.append_error(told, meta=make_meta(MetaStatusValue.NOT_AUTHORIZED, told))
            return False
        return bool(authorise(self, conn, args))

    AuthzFilter.pre_command = pre_command


def let_jobs_decide() -> None:
    """Let the server's own process of a job decide what a party's failure means, where the job goes on without it.

    NVIDIA FLARE would end the job, or wait for minutes after its end for the party that is gone.
    """
    start = JobRunner._start_run

    @functools.wraps(start)
    def started(self: JobRunner, job_id: str, job: Job, *args: Any, **more: Any) -> None:
        start(self, job_id, job, *args, **more)
        if job.meta.get(GOES_ON):
            with self.lock:
                self._pending_client_outcomes.pop(job_id, None)

    JobRunner._start_run = started


def shield(cell: Any) -> None:
    """Let a cell take orders only from its parent: the process that has started this one."""
    core = getattr(cell, "core_cell", cell)
    parent = core.my_info.fqcn.rpartition(".")[0]
    for key, callback in list(core.req_reg.reg.items()):
        if key.startswith(_NETWORK) and not hasattr(callback.cb, _SHIELDED):
            channel, _, topic = key.partition(":")
            core.register_request_cb(channel, topic, _from_parent(callback.cb, parent))


def _from_parent(
    callback: Callable[[CellMessage], CellMessage | None], parent: str
) -> Callable[[CellMessage], CellMessage | None]:
    """Return a callback for orders that answers one origin."""

    @functools.wraps(callback)
    def answer(request: CellMessage) -> CellMessage | None:
        if not parent or request.get_header(MessageHeaderKey.ORIGIN) != parent:
            return make_reply(ReturnCode.INVALID_REQUEST, "closed in this federation")
        return callback(request)

    setattr(answer, _SHIELDED, True)
    return answer


def _shielding(made: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(made)
    def __init__(self: NetAgent, cell: Any, *args: Any, **kwargs: Any) -> None:
        made(self, cell, *args, **kwargs)
        shield(cell)

    return __init__


class JobStore(SimpleJobDefManager):
    """FLARE's store of jobs, which keeps of a finished job what its submitter may have: the outcome.

    The server's log of the job stays in its kit.
    """

    def save_workspace(self, jid: str, data: bytes | str | Sequence[str], fl_ctx: FLContext) -> Any:
        folders = [Path(one) for one in data] if isinstance(data, (list, tuple)) else []
        logs = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir()) / LOGS / jid
        with tempfile.TemporaryDirectory() as scratch:
            for folder in folders:
                for path in folder.glob("*"):
                    if path.name == OUTCOME:
                        shutil.copy(path, scratch)
                    elif path.is_file() and (path.suffix in (".txt", ".log") or path.name == "log.json"):
                        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
                        shutil.copy(path, logs)
            return super().save_workspace(jid, [scratch], fl_ctx)
