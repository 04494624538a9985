"""Submit jobs to a federation on NVIDIA FLARE, follow them, and ask what goes on in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from evenhand.errors import EvenhandError, LostError, MissingExtraError
from evenhand.jobs.federation.files import AnyJob, as_given, parse_federation_job, read_federation_job

if TYPE_CHECKING:
    from evenhand.runtime.nvflare.admin import JobRecord, Presence
    from evenhand.runtime.nvflare.submitting import JobProgress

PATIENCE = 60.0
"""Seconds to wait for a server or a party that is missing."""


class JobOutcome(NamedTuple):
    """What a finished job has come to.

    Attributes
    ----------
    run
        Name of the run folder at each side.
    result
        The server's result.
    folder
        The server's run folder.
    """

    run: str
    result: dict[str, Any]
    folder: str

    @property
    def shortfalls(self) -> list[str]:
        """Why the model is not what was asked for: not converged, or one label for every row."""
        found = self.result.get("shortfalls")
        if found is not None:
            return [str(one) for one in found]
        converged = self.result.get("certificate", {}).get("converged", True)
        return [] if converged else ["the solver did not converge"]


class Submission:
    """A job that was submitted.

    Leaving it as a context by an error cancels the job.

    Parameters
    ----------
    job_id
        FLARE's id of the job.
    run
        Name of the run folder at each side; a resumed run keeps the name that it had.
    aborts
        Whether waiting ends a job that is in the queue for a party that is missing for too long. A job that goes on by
        itself, or is somebody else's, waits for its parties whoever looks.
    """

    def __init__(self, federation: Federation, job_id: str, run: str, *, aborts: bool = True) -> None:
        self._federation = federation
        self._patience = federation.patience if aborts else None
        self.id = job_id
        self.run = run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.cancel()

    @property
    def status(self) -> str:
        """The job's state, as the server has it."""
        return self._federation.record(self.id).status

    def progress(self) -> JobProgress | None:
        """Return how far the job is; None if it does not run. Only `wait` keeps a job alive."""
        from evenhand.runtime.nvflare.submitting import progress_of

        return progress_of(self._federation.admin, self.id)

    def wait(
        self,
        on_status: Callable[[str], None] = lambda _: None,
        on_progress: Callable[[JobProgress], None] = lambda _: None,
    ) -> JobOutcome:
        """Wait for the end, and return the outcome or raise the error of a job that failed.

        Parameters
        ----------
        on_status
            Told each new state of the job, and who is missing.
        on_progress
            Told how far the job is, about once a second.
        """
        from evenhand.runtime.nvflare.submitting import outcome, wait_for_end

        wait_for_end(self._federation.admin, self.id, on_status, on_progress, self._patience)
        told = outcome(self._federation.admin, self.id)
        return JobOutcome(told["run"], told["result"], told["folder"])

    def cancel(self) -> None:
        """Abort the job, whether it waits or runs."""
        from evenhand.runtime.nvflare.submitting import abort

        abort(self._federation.admin, self.id)


class Federation:
    """A federation, by the admin's kit. Use it as a context manager, or close it.

    Parameters
    ----------
    kit
        Folder of the kit of a submitter, an operator or an admin.
    patience
        Seconds to wait for a server or a party that is missing.
    """

    def __init__(self, kit: str | Path, patience: float = PATIENCE) -> None:
        try:
            from evenhand.runtime.nvflare.admin import Admin
        except ModuleNotFoundError as error:
            raise MissingExtraError("a federation", "nvflare") from error
        self.patience = patience
        self.admin = Admin(Path(kit), patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.admin.close()

    def submit(
        self,
        job: AnyJob | str | Path | dict[str, Any],
        *,
        name: str | None = None,
        resume: str = "",
        detach: bool = False,
        on_missing: Callable[[str], None] = lambda _: None,
    ) -> Submission:
        """Submit a job once all its parties are there.

        Parameters
        ----------
        job
            A job, its file, or the content of one.
        name
            Name in the list of jobs; by default that of the file.
        resume
            Name of the run to resume.
        detach
            Whether the job goes on if nobody follows it. Otherwise it ends two minutes after the last question.
        on_missing
            Told which parties are waited for.
        """
        if isinstance(job, (str, Path)):
            name = name or Path(job).stem
            job = read_federation_job(Path(job))
        elif isinstance(job, dict):
            job = parse_federation_job(job, "job")
        content = as_given(job)
        return self.send(name or "job", content, list(job.parts), resume, detach=detach, on_missing=on_missing)

    def send(
        self,
        name: str,
        content: dict[str, Any],
        parties: list[str],
        resume: str = "",
        *,
        detach: bool = False,
        on_missing: Callable[[str], None] = lambda _: None,
    ) -> Submission:
        """Submit the content of a job, or a question to a finished run, once all these parties are there."""
        from evenhand.runtime.nvflare.admin import wait_for_parties
        from evenhand.runtime.nvflare.submitting import submit

        wait_for_parties(self.admin, parties, self.patience, on_missing)
        job_id = submit(self.admin, name, content, parties, resume, detach=detach)
        return Submission(self, job_id, resume or job_id, aborts=not detach)

    def attach(self, job_id: str) -> Submission:
        """Follow a job that was submitted elsewhere, by FLARE's id of it."""
        return Submission(self, self.record(job_id).id, job_id, aborts=False)

    def record(self, job_id: str) -> JobRecord:
        """Return the server's record of a job."""
        from evenhand.runtime.nvflare.admin import job_of

        return job_of(self.admin, job_id)

    def gone(self, job_id: str) -> list[str]:
        """Return the parties that were gone in the middle of a finished job, which its model is without."""
        from evenhand.runtime.nvflare.submitting import outcome

        try:
            told = outcome(self.admin, job_id)["result"]
        except EvenhandError:
            # The job was resumed as another one, or its record is deleted; the participants then refuse the question.
            return []
        return [one["party"] for one in told.get("gone", ())]

    def jobs(self) -> list[JobRecord]:
        """Return all jobs that the server has kept, the newest last."""
        from evenhand.runtime.nvflare.admin import jobs

        return jobs(self.admin)

    def parties(self) -> dict[str, Presence]:
        """Return which parties are there."""
        from evenhand.runtime.nvflare.admin import presence

        return presence(self.admin)

    def away(self, parties: Sequence[str]) -> list[str]:
        """Wait for parties, and return those that do not answer in time."""
        from evenhand.runtime.nvflare.admin import parties_away

        return list(parties_away(self.admin, parties, self.patience))

    def revoke(self, party: str, *, restore: bool = False) -> list[str]:
        """Keep a party out at once, or admit it again; return the jobs that were ended."""
        from evenhand.runtime.nvflare.admin import revoke

        return revoke(self.admin, party, restore=restore)


def connect(kit: str | Path, patience: float = PATIENCE) -> Federation:
    """Return a federation by the admin's kit; nothing is sent before it is asked.

    Examples
    --------
    >>> with connect("kits/admin") as federation:  # doctest: +SKIP
    ...     outcome = federation.submit("job.toml").wait()
    """
    return Federation(kit, patience)


def run_to_end(
    federation: Federation,
    job: AnyJob,
    name: str,
    on_status: Callable[[str], None],
    *,
    resume: str = "",
    retries: int = 0,
    on_progress: Callable[[JobProgress], None] = lambda _: None,
    on_submitted: Callable[[Submission], None] = lambda _: None,
) -> JobOutcome:
    """Submit a job and wait for its end; resume it when a participant was lost, up to `retries` times.

    An interruption aborts the job.
    """
    run = resume
    for left in reversed(range(retries + 1)):
        try:
            with federation.submit(job, name=name, resume=run, on_missing=on_status) as submission:
                run = submission.run
                on_submitted(submission)
                return submission.wait(on_status, on_progress)
        except LostError as error:
            if not left:
                advice = f"; resume with: --resume {run}" if run else ""
                raise LostError(f"{error}{advice}", error.missing) from error
            on_status(f"{error}; trying again")
    raise AssertionError("at least one attempt is made")
