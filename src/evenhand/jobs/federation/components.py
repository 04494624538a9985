"""Components that NVIDIA FLARE starts: the server's and a party's. A locked-down site allows a job only these."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from evenhand.errors import EvenhandError, LostError, RunError
from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import End, party_part, server_part
from evenhand.jobs.federation.files import (
    CHECKPOINT_SECONDS,
    PARTY_FILE,
    RUNS,
    AnyJob,
    FederationJob,
    parse_federation_job,
    run_place,
    this_site,
)
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.federation.notices import announcer, for_submitter, public_error
from evenhand.jobs.federation.predicting import Answered, Question, answering_program, asked_run, asking_program
from evenhand.jobs.federation.sites import keep_shares
from evenhand.jobs.parsing import parsed
from evenhand.protocol.roles import SERVER, Report
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.flare_transport import FlareTransport, peers_of
from evenhand.runtime.nvflare.submitting import OUTCOME, PROGRESS
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

_RUN: Final = "run"
_WORD: Final = "evenhand-word"
_LOST: Final = "evenhand-lost"
"""Header: whether a party stopped only because another participant did."""
_FAREWELL: Final = 60.0
"""Seconds that the server waits for parties to confirm that their models are saved."""


class FederationServer(Controller):
    """Run the server of a job.

    Parameters
    ----------
    job
        The job as JSON.
    resume
        Name of the run to resume; empty for a new run.
    """

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()
        self.job = job
        self.resume = resume
        self._words: dict[str, str] = {}
        self._lost: list[str] = []
        self._ended: set[str] = set()
        self._site: Site | None = None
        self._last: Report = {}

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(PROGRESS, self._tell_progress)

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
            content = self._train(abort_signal, fl_ctx)
        except EvenhandError as error:
            # Report the server's own error, else the first participant's: the others stopped because of it.
            lost = isinstance(error, LostError)
            said = "; ".join(f"{name}: {word}" for name, word in self._words.items()) if lost else ""
            content = {"error": said or str(error), "again": lost and len(self._lost) == len(self._words)}
        place.write_text(json.dumps(content), encoding="utf-8")
        if "error" in content:
            self.system_panic(str(content["error"]), fl_ctx)

    def _train(self, abort_signal: Signal, fl_ctx: FLContext) -> dict[str, Any]:
        runs = _servers_runs(fl_ctx.get_engine().get_workspace().get_root_dir())
        asked = _asked(self.job, runs, at_server=True)
        job = _parsed(self.job) if asked is None else asked[1]
        job_id, parties = fl_ctx.get_job_id(), list(job.parts)
        transport = FlareTransport(fl_ctx.get_engine(), job_id, parties)
        run = self.resume or job_id
        with side_folder(
            run_place(runs, run, at_server=True),
            SERVER,
            job,
            None,
            bool(self.resume),
            self._last.update,
        ) as folder:
            site = Site(
                SERVER,
                parties,
                transport.transmit,
                stopped=lambda: bool(abort_signal.triggered) or bool(self._words),
                on_report=folder.report,
            )
            self._site = site
            checkpoints = CheckpointManager(
                site, folder, parties, float(os.environ.get(CHECKPOINT_SECONDS) or 10.0), run
            )
            with site, folder.recorded():
                transport.open(site.arrived)
                self.broadcast(
                    Task(_RUN, Shareable(), result_received_cb=self._party_ended), fl_ctx, parties, len(parties)
                )
                with one_blas_thread():
                    part = (
                        asking_program(*asked)
                        if asked
                        else server_part(
                            job,
                            this_site,
                            lambda: site.transcript,
                            checkpoints,
                            keep=partial(keep_shares, folder.folder),
                        )
                    )
                    result = site.run(part)
                self._wait_for_parties(parties, abort_signal)
                folder.finish(result)
        return {"result": for_submitter(job, result), "folder": str(folder.folder.path)}

    def _wait_for_parties(self, parties: Sequence[str], abort_signal: Signal) -> None:
        """Wait until all parties confirm that their models are on disk; only then is the run finished."""
        end = time.monotonic() + _FAREWELL
        while missing := [name for name in parties if name not in self._ended]:
            if self._words or abort_signal.triggered or time.monotonic() > end:
                raise LostError(
                    f"training is complete, but {', '.join(missing)} did not confirm that its model is saved"
                )
            time.sleep(0.05)
        if self._words:
            raise RunError("training is complete, but not every participant has saved its model")

    def _party_ended(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        name, result = client_task.client.name, client_task.result
        if result is None or result.get_return_code() != ReturnCode.OK:
            word = None if result is None else result.get_header(_WORD)
            self._words[name] = str(word) if word else "it ended without a word; its own console says more"
            if not word or result.get_header(_LOST):
                self._lost.append(name)
        self._ended.add(name)
        if self._site is not None:
            self._site.gone(name)

    def _tell_progress(self, _topic: str, _data: Any, _fl_ctx: FLContext) -> dict[str, Any]:
        """Answer the submitter of the job."""
        return {name: value for name, value in self._last.items() if math.isfinite(value)}


class FederationParty(Executor):
    """Run a party, client or dealer of a job; the parameters are those of the server's component."""

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()
        self.job = job
        self.resume = resume
        self._one_at_a_time = threading.Lock()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        if task_name != _RUN:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            with self._one_at_a_time:
                self._train(fl_ctx, abort_signal)
        except Exception as error:
            # The full error stays in this site's log. Others learn only its kind, because the text may quote a row.
            self.log_error(fl_ctx, f"{fl_ctx.get_prop(FLContextKey.CLIENT_NAME)} stopped: {error}")
            headers = {_WORD: public_error(error), _LOST: isinstance(error, LostError)}
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, headers)
        return make_reply(ReturnCode.OK)

    def _train(self, fl_ctx: FLContext, abort_signal: Signal) -> None:
        env = this_site()
        asked, own = _asked(self.job, env.runs), env.own
        job = _parsed(self.job) if asked is None else asked[1]
        job_id, name, parties = fl_ctx.get_job_id(), own.party.name, list(job.parts)
        if fl_ctx.get_identity_name() != name:
            raise RunError(
                f"this start-up kit belongs to {fl_ctx.get_identity_name()}, but the party file belongs to {name}"
            )
        transport = FlareTransport(fl_ctx.get_engine(), job_id, peers_of(name, parties))
        run = self.resume or job_id
        with side_folder(run_place(env.runs, run), name, job, env, bool(self.resume)) as folder:
            site = Site(
                name,
                peers_of(name, parties),
                transport.transmit,
                veto=own.policy.to_policy().veto,
                stopped=lambda: bool(abort_signal.triggered),
                on_report=folder.report,
            )
            checkpoints = CheckpointManager(site, folder, parties, math.inf, run)
            with site, folder.recorded(), one_blas_thread():
                transport.open(site.arrived)
                end: End | Answered
                if asked is None:
                    end = site.run(party_part(job, env, announcer(job, name), checkpoints))
                else:
                    end = site.run(answering_program(*asked, own, env.base, announcer(job, name, scores=True)))
                folder.finish(end.write(folder.folder))


def _servers_runs(kit: str) -> Path:
    """Return the folder of runs; the server of a horizontal job has no party file and uses a setting, or its kit."""
    return this_site().runs if os.environ.get(PARTY_FILE) else Path(os.environ.get(RUNS) or Path(kit) / "runs")


def _asked(job: str, runs: Path, *, at_server: bool = False) -> tuple[RunFolder, FederationJob, Question] | None:
    """Return the finished run, its job and the question, if this job asks for scores; else None."""
    content = json.loads(job)
    if "question" not in content:
        return None
    question = parsed(Question, lambda _: None, content["question"], "question")
    folder, own = asked_run(run_place(runs, question.run, at_server=at_server))
    return folder, question.asked_of(own), question


def _parsed(job: str) -> AnyJob:
    return parse_federation_job(json.loads(job), "job")
