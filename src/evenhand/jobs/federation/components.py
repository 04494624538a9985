"""What NVIDIA FLARE starts: the server's part of a job, and a party's. All that a closed site lets a job name."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from evenhand.errors import EvenhandError, RunError
from evenhand.jobs.federation.files import PARTY_FILE, RUNS, FederationJob, PartyFile, parse_federation_job, read_party
from evenhand.jobs.federation.folders import SideFolder
from evenhand.jobs.federation.saying import announce
from evenhand.jobs.federation.sites import party_program, server_program
from evenhand.protocol.roles import SERVER
from evenhand.runtime.nvflare.cells import FlareCells, peers_of
from evenhand.runtime.nvflare.submitting import OUTCOME
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

_RUN: Final = "run"
_WORD: Final = "evenhand-word"
_FAREWELL: Final = 30.0
"""Seconds for which the server waits for parties that have everything to say so."""


class FederationServer(Controller):
    """The server's part."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job = job
        self._words: dict[str, str] = {}
        self._ended: set[str] = set()
        self._site: Site | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        place = Path(fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id())) / OUTCOME
        content: dict[str, Any]
        try:
            content = {"result": self._train(abort_signal, fl_ctx)}
        except EvenhandError as error:
            content = {"error": self._why(error), "kind": type(error).__name__}
        place.write_text(json.dumps(content), encoding="utf-8")
        if "error" in content:
            self.system_panic(str(content["error"]), fl_ctx)

    def _why(self, error: EvenhandError) -> str:
        """Whoever stopped first says most; all others have only missed it."""
        return "; ".join(f"{name}: {word}" for name, word in self._words.items()) or str(error)

    def _train(self, abort_signal: Signal, fl_ctx: FLContext) -> dict[str, Any]:
        job, own, base = _read(self.job)
        job_id = fl_ctx.get_job_id()
        cells = FlareCells(fl_ctx.get_engine(), job_id, list(job.parts))
        folder = SideFolder.create(_runs(base), job_id, SERVER, job)
        site = Site(
            SERVER,
            list(job.parts),
            cells.transmit,
            stopped=lambda: bool(abort_signal.triggered) or bool(self._words),
            on_report=folder.report,
        )
        self._site = site
        with site, folder.recorded(site.transcript):
            cells.open(site.arrived)
            self.broadcast(
                Task(_RUN, Shareable(), result_received_cb=self._party_ended), fl_ctx, list(job.parts), len(job.parts)
            )
            with one_blas_thread():
                result = site.run(server_program(job, own, base, lambda: site.transcript))
            end = time.monotonic() + _FAREWELL
            while len(self._ended) < len(job.parts) and time.monotonic() < end and not abort_signal.triggered:
                time.sleep(0.05)
            folder.finish(result)
        return result

    def _party_ended(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        name, result = client_task.client.name, client_task.result
        if result is None or result.get_return_code() != ReturnCode.OK:
            word = None if result is None else result.get_header(_WORD)
            self._words[name] = str(word) if word else "it ended without a word; its own console says more"
        self._ended.add(name)
        if self._site is not None:
            self._site.gone(name)


class FederationParty(Executor):
    """A party's part."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job = job
        self._one_at_a_time = threading.Lock()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        if task_name != _RUN:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            with self._one_at_a_time:
                self._train(fl_ctx, abort_signal)
        except Exception as error:
            # What went wrong is told here; elsewhere only that something did. An error may quote a row.
            self.log_error(fl_ctx, f"{fl_ctx.get_prop(FLContextKey.CLIENT_NAME)} stopped: {error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, {_WORD: _outside_word(error)})
        return make_reply(ReturnCode.OK)

    def _train(self, fl_ctx: FLContext, abort_signal: Signal) -> None:
        job, own, base = _read(self.job)
        job_id, name = fl_ctx.get_job_id(), own.party.name
        if fl_ctx.get_identity_name() != name:
            raise RunError(f"this kit is that of {fl_ctx.get_identity_name()}, the file is that of {name}")
        cells = FlareCells(fl_ctx.get_engine(), job_id, peers_of(name, list(job.parts)))
        folder = SideFolder.create(_runs(base), job_id, name, job, own)
        veto = own.policy.to_policy().veto
        site = Site(
            name,
            peers_of(name, list(job.parts)),
            cells.transmit,
            veto=veto,
            stopped=lambda: bool(abort_signal.triggered),
            on_report=folder.report,
        )
        with site, folder.recorded(site.transcript), one_blas_thread():
            cells.open(site.arrived)
            end = site.run(party_program(job, own, base, announce))
            folder.finish_party(end)


def _outside_word(error: Exception) -> str:
    kind = type(error).__name__ if isinstance(error, EvenhandError) else "error"
    return f"it stopped ({kind}); its own console says why"


def _read(job: str) -> tuple[FederationJob, PartyFile, Path]:
    path = os.environ.get(PARTY_FILE)
    if not path:
        raise RunError("this site was started without a party's file; start it with: evenhand join or evenhand serve")
    return parse_federation_job(json.loads(job), "job"), read_party(Path(path)), Path(path).parent


def _runs(base: Path) -> Path:
    return Path(os.environ.get(RUNS) or base / "runs")
