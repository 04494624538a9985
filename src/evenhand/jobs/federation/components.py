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

from evenhand.errors import EvenhandError, LostError, RunError, StoppedError
from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import End, party_part, server_part
from evenhand.jobs.federation.endings import Cause, Ending, cause_of, ending_of, read_cause, read_ending
from evenhand.jobs.federation.files import (
    CHECKPOINT_SECONDS,
    LEASE_SECONDS,
    PARTY_FILE,
    RUNS,
    AnyJob,
    FederationJob,
    parse_federation_job,
    run_place,
    this_site,
)
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.federation.notices import announcer, for_submitter, tell, tell_silence
from evenhand.jobs.federation.predicting import Answered, Question, answering_program, asked_run, asking_program
from evenhand.jobs.federation.sites import keep_shares
from evenhand.jobs.parsing import parsed
from evenhand.protocol.roles import SERVER, Report
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.flare_transport import FlareTransport, peers_of
from evenhand.runtime.nvflare.submitting import OUTCOME, PROGRESS
from evenhand.runtime.silence import SILENT
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

_RUN: Final = "run"
_WORD: Final = "evenhand-word"
"""Header of a party's answer: its ending."""
_FAREWELL: Final = 60.0
"""Seconds that the server waits for parties to confirm that their models are saved."""
_GATHERING: Final = 3.0
"""Seconds that the server waits for the parties' endings, and a party a little more for the cause of the end."""
_LEASE: Final = 120.0
"""Seconds after which a job ends that nobody follows, longer than a submitter tries to reach the server."""


class FederationServer(Controller):
    """Run the server of a job.

    Parameters
    ----------
    job
        The job as JSON.
    resume
        Name of the run to resume; empty for a new run.
    detach
        Whether the job goes on without its submitter.
    """

    def __init__(self, job: str, resume: str = "", detach: bool = False) -> None:
        super().__init__()
        self.job = job
        self.resume = resume
        self.detach = detach
        self._endings: dict[str, Ending] = {}
        self._ended: set[str] = set()
        self._reason = ""
        self._site: Site | None = None
        self._transport: FlareTransport | None = None
        self._last: Report = {}
        self._began = time.monotonic()
        self._lease = float(os.environ.get(LEASE_SECONDS) or _LEASE)
        self._asked_at: float | None = None

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
            cause = self._cause(error, abort_signal)
            content = {"error": cause.says, "again": cause.again, "names": list(cause.names)}
            tell(f"the run ended: {cause.says}")
        place.write_text(json.dumps(content), encoding="utf-8")
        if "error" in content:
            self.system_panic(str(content["error"]), fl_ctx)

    def _cause(self, error: EvenhandError, abort_signal: Signal) -> Cause:
        """Find out why the run ended, from everybody's endings, and tell the parties."""
        parties = _peers(self._transport)
        if isinstance(error, StoppedError) and self._is_abandoned():
            cause = Cause(f"nobody has followed the job for {self._lease:.0f} seconds, and it was not detached")
        else:
            if isinstance(error, LostError):
                self._gather(parties)
            cause = cause_of(error, self._endings, parties)
            cause = cause._replace(says=cause.says + self._reason)
        if self._transport is not None:
            self._transport.say(cause.to_bytes(), parties)
        return cause

    def _gather(self, parties: Sequence[str]) -> None:
        """Wait for the parties' endings; one that is missing sends none."""
        end = time.monotonic() + _GATHERING
        while self._transport is not None and time.monotonic() < end:
            for name, word in list(self._transport.words.items()):
                if name not in self._endings and (found := read_ending(word, [SERVER, *parties])) is not None:
                    self._endings[name] = found
            if all(name in self._endings for name in parties):
                return
            time.sleep(0.05)

    def _is_abandoned(self) -> bool:
        return not self.detach and time.monotonic() - (self._asked_at or self._began) > self._lease

    def _wait_for_submitter(self, abort_signal: Signal) -> None:
        """Begin only if the submitter still waits; a job may have been in the queue for long."""
        end = time.monotonic() + self._lease
        while not self.detach and self._asked_at is None:
            if abort_signal.triggered:
                raise StoppedError("the run was stopped from outside")
            if time.monotonic() > end:
                raise RunError("its submitter was gone when the job could start; submit it again, or with --detach")
            time.sleep(0.05)

    def _train(self, abort_signal: Signal, fl_ctx: FLContext) -> dict[str, Any]:
        runs = _servers_runs(fl_ctx.get_engine().get_workspace().get_root_dir())
        asked = _asked(self.job, runs, at_server=True)
        job = _parsed(self.job) if asked is None else asked[1]
        job_id, parties = fl_ctx.get_job_id(), _parts(job, asked)
        transport = self._transport = FlareTransport(fl_ctx.get_engine(), job_id, parties)
        run = self.resume or job_id
        self._wait_for_submitter(abort_signal)
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
                links=None if asked is None else asked[2].links,
                stopped=lambda: bool(abort_signal.triggered) or bool(self._endings) or self._is_abandoned(),
                on_report=folder.report,
                on_silence=tell_silence,
            )
            self._site = site
            self._mind_dead_jobs()
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
                self._wait_for_parties([one for one in parties if one not in site.without], abort_signal)
                folder.finish(result)
        return {"result": for_submitter(job, result), "folder": str(folder.folder.path), "run": run}

    def _wait_for_parties(self, parties: Sequence[str], abort_signal: Signal) -> None:
        """Wait until all parties confirm that their models are on disk; only then is the run finished."""
        end = time.monotonic() + _FAREWELL
        while missing := [name for name in parties if name not in self._ended]:
            if self._endings or abort_signal.triggered or time.monotonic() > end:
                said = f"training is complete, but {', '.join(missing)} did not confirm that its model is saved"
                raise LostError(said, missing)
            time.sleep(0.05)
        if self._endings:
            raise LostError("training is complete, but not every participant has saved its model")

    def _party_ended(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        name, result = client_task.client.name, client_task.result
        if result is None or result.get_return_code() != ReturnCode.OK:
            word = None if result is None else result.get_header(_WORD)
            told = None if word is None else read_ending(str(word).encode(), [SERVER, *_peers(self._transport)])
            told = told or Ending("it ended without a word; its own console says more", lost=True)
            reason = self._site.lose(name) if told.lost and self._site is not None else ""
            if reason is None:
                tell(f"{name} is gone: {told.says}; the run goes on without it")
            else:
                self._endings[name] = told
                self._reason = reason and f"; the run cannot go on without {name}: {reason}"
        self._ended.add(name)
        if self._site is not None:
            self._site.gone(name)

    def _mind_dead_jobs(self) -> None:
        """Go on without a party at once when FLARE reports that its process of the job is gone."""
        reported = self.communicator.process_dead_client_report

        def report(client_name: str, fl_ctx: FLContext) -> None:
            if self._site is not None and self._site.lose(client_name) is None:
                tell(f"{client_name} is gone: its process ended without a word; the run goes on without it")
            reported(client_name, fl_ctx)

        self.communicator.process_dead_client_report = report

    def _tell_progress(self, _topic: str, data: Any, _fl_ctx: FLContext) -> dict[str, Any]:
        """Say how far the job is; note that somebody follows it."""
        if isinstance(data, dict) and data.get("follows"):
            self._asked_at = time.monotonic()
        silences = {} if self._site is None else self._site.silences()
        return {
            "report": {name: value for name, value in self._last.items() if math.isfinite(value)},
            "resent": {} if self._site is None else self._site.resent(),
            "silent": {name: seconds for name, seconds in silences.items() if seconds > SILENT},
            "seconds": time.monotonic() - self._began,
        }


class FederationParty(Executor):
    """Run a party, client or dealer of a job; `job` and `resume` are those of the server's component."""

    def __init__(self, job: str, resume: str = "") -> None:
        super().__init__()
        self.job = job
        self.resume = resume
        self._transport: FlareTransport | None = None
        self._one_at_a_time = threading.Lock()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        if task_name != _RUN:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            with self._one_at_a_time:
                self._train(fl_ctx, abort_signal)
        except Exception as error:
            # The full error stays in this site's log. Others learn only its kind, because the text may quote a row.
            ending = ending_of(error)
            if not ending.lost:
                self.log_error(fl_ctx, f"{fl_ctx.get_prop(FLContextKey.CLIENT_NAME)} stopped: {error}")
            tell(f"the run ended: {self._cause(ending) if ending.lost else error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, {_WORD: ending.to_bytes().decode()})
        return make_reply(ReturnCode.OK)

    def _cause(self, ending: Ending) -> str:
        """Tell the server how the run ended here, and return what it says of the cause."""
        if self._transport is None:
            return ending.says
        self._transport.say(ending.to_bytes(), [SERVER])
        end = time.monotonic() + 2 * _GATHERING
        while time.monotonic() < end:
            word = self._transport.words.get(SERVER)
            if word is not None and (cause := read_cause(word, _peers(self._transport))) is not None:
                return cause.says
            time.sleep(0.05)
        return f"{ending.says}; the server has given no reason, it may be missing itself"

    def _train(self, fl_ctx: FLContext, abort_signal: Signal) -> None:
        env = this_site()
        asked, own = _asked(self.job, env.runs), env.own
        job = _parsed(self.job) if asked is None else asked[1]
        job_id, name, parties = fl_ctx.get_job_id(), own.party.name, _parts(job, asked)
        if fl_ctx.get_identity_name() != name:
            raise RunError(
                f"this start-up kit belongs to {fl_ctx.get_identity_name()}, but the party file belongs to {name}"
            )
        transport = self._transport = FlareTransport(fl_ctx.get_engine(), job_id, peers_of(name, parties))
        run = self.resume or job_id
        with side_folder(run_place(env.runs, run), name, job, env, bool(self.resume)) as folder:
            site = Site(
                name,
                peers_of(name, parties),
                transport.transmit,
                veto=own.policy.to_policy().veto,
                stopped=lambda: bool(abort_signal.triggered),
                on_report=folder.report,
                on_silence=tell_silence,
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


def _peers(transport: FlareTransport | None) -> list[str]:
    """Return the names of all other participants."""
    return [] if transport is None else transport.peers


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
    return folder, own, question


def _parts(job: AnyJob, asked: tuple[RunFolder, FederationJob, Question] | None) -> list[str]:
    """Return who takes part in a job, or in a question."""
    return list((job if asked is None else asked[2].asked_of(asked[1])).parts)


def _parsed(job: str) -> AnyJob:
    return parse_federation_job(json.loads(job), "job")
