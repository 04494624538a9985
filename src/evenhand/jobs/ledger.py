"""A party's privacy ledger: what jobs have spent of its data's privacy, in a file beside the party's own files.

One line of JSON for each release. It is on disk before the release leaves the party, and never taken back.

- Randomised responses (`labels`, `groups`): a line for each draw, with the question and its ε. A later job with the
  same question and a smaller ε gets the same draw, lowered (`privacy/randomised_response.py`), and spends nothing.
- Noisy updates (`updates`): a line for each run, with the ε and δ of all its rounds. A resumed run has the same noise,
  and spends nothing more.
- Masked sums without noise (`sums`): a line for each set of participants whose sum a job has opened. Two sums over
  different sets can be subtracted, so another job with other participants is refused, unless the policy allows it
  (`least_summed`). Names are counted, not rows: if a participant changes its table between two jobs, the difference of
  their sums shows the change.
- Rounds of training (`rounds`): a line for each round that a participant answers, in any run or attempt. A round opens
  sums over the table's columns, and what several sums tell adds up over runs as it does within one. The policy's
  `most_rounds` bounds them all.

The ε of several lines is their sum. That is an upper bound by basic composition, whatever the mechanisms.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from filelock import FileLock

from evenhand.errors import ProtocolError, RunError
from evenhand.jobs.schema import TableSection
from evenhand.privacy.neighbours import smallest_sum
from evenhand.runtime.files import disk_error, open_private, sync_folder

LEDGER: Final = "privacy-ledger.jsonl"
Kind = Literal["labels", "groups", "updates", "sums", "rounds"]


@dataclass(frozen=True)
class Release:
    """One release.

    Attributes
    ----------
    kind
        ``"labels"`` and ``"groups"`` for randomised responses, ``"updates"`` for noisy updates, ``"sums"`` for the
        participants of a masked sum, ``"rounds"`` for a round of training.
    data
        The table, as the party's own file names it.
    what
        The question of a randomised response, the checksum of a run's noise, or the names of a sum's participants.
        Empty for a round.
    epsilon, delta
        What it spends.
    time
        When it was written.
    run
        Checksum of the run that opened a sum, or took a round.
    """

    kind: Kind
    data: str
    what: str
    epsilon: float
    delta: float = 0.0
    time: str = ""
    run: str = ""


class Ledger:
    """The ledger in one folder.

    Parameters
    ----------
    folder
        Folder of the party's own file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER
        self._known: list[Release] = []
        self._read = 0
        """Bytes of the file that the known lines are from."""

    def entries(self) -> Sequence[Release]:
        """Return all lines; refuse a damaged file, because what was spent is then unknown."""
        if self._read > (self.path.stat().st_size if self.path.exists() else 0):
            self._known, self._read = [], 0
        # Only what was added since: there is a line for each round.
        lines, self._read = _lines(self.path, self._read)
        self._known += [Release(**line) for line in lines]
        return self._known

    def spent(self, data: str, kind: Kind | None = None) -> float:
        """Return the ε that a table has spent, of all kinds or of one."""
        return sum(one.epsilon for one in self.entries() if one.data == data and kind in (None, one.kind))

    def draw(self, kind: Kind, data: str, question: str, epsilon: float, limits: Limits) -> float:
        """Return the ε at which responses to a question are drawn: that of an earlier draw, if it is large enough.

        The first draw for labels is at the policy's limit, so that any later job can use it.

        Parameters
        ----------
        question
            All that the draws depend on, except the rows. Another question is another draw.
        epsilon
            ε that the job asks for.
        """
        with self._locked():
            drawn = [one.epsilon for one in self.entries() if (one.data, one.what) == (data, question)]
            if enough := [one for one in drawn if one >= epsilon]:
                return min(enough)
            first = limits.labels if kind == "labels" and limits.labels is not None else 0.0
            new = Release(kind, data, question, max(epsilon, first))
            self._add(new, limits)
            return new.epsilon

    def spend(self, data: str, run: str, epsilon: float, delta: float, limits: Limits) -> None:
        """Record the ε of a run's updates, unless the same noise is recorded already."""
        with self._locked():
            if all((one.data, one.what) != (data, run) for one in self.entries()):
                self._add(Release("updates", data, run, epsilon, delta), limits)

    def add_sum(self, data: str, run: str, members: Iterable[str], least: int | None, *, nested: bool = False) -> None:
        """Record the participants of a masked sum; refuse them if sums of other runs were over others.

        No participant knows the sums that it was not in. So by default all runs on a table have the same participants:
        then no combination of sums holds fewer, whatever others have opened. Within a run, the terms decide
        (`Job.least_summed`).

        Parameters
        ----------
        run
            Checksum of the run; a resumed run has the same. Empty if a run has one set of participants.
        least
            The fewest participants that a combination of the sums known here may hold; None refuses other sets.
        nested
            Whether the run may lose participants for good, over all its attempts: of two of its sets one contains the
            other. Else attempts that lose one participant each would show what every one adds.
        """
        names = sorted(members)
        with self._locked():
            known = [one for one in self.entries() if (one.kind, one.data) == ("sums", data)]
            others = {one.what for one in known if not run or one.run != run}
            what = json.dumps(names, ensure_ascii=False)
            if nested:
                own = {one.what for one in known if one.run == run}
                others -= own
                self._check_nested(names, own)
            if others and what not in others:
                smallest = smallest_sum([names, *(json.loads(one.what) for one in known)])
                if least is None or smallest < least:
                    raise RunError(
                        f"a sum over {', '.join(names)} can be subtracted from earlier ones on {data}, which were over "
                        f"{'; '.join(', '.join(json.loads(one)) for one in sorted(others))}: the difference would show "
                        f"{smallest} of them. Train with the same participants, or set least_summed in [policy] to "
                        "the fewest that may be shown"
                    )
            if all(one.what != what or (nested and one.run != run) for one in known):
                self._add(Release("sums", data, what, 0.0, run=run), Limits())

    @staticmethod
    def _check_nested(names: Sequence[str], known: Iterable[str]) -> None:
        for one in known:
            other = set(json.loads(one))
            if not (other <= set(names) or other >= set(names)):
                raise RunError(
                    f"there was a sum over {', '.join(sorted(other))} earlier in this run, and one over "
                    f"{', '.join(names)} would show with it what single participants add: a run loses no other "
                    "parties in another attempt. Resume it once all parties are there"
                )

    def rounds(self, data: str, without: str = "") -> int:
        """Return the rounds that all runs on a table took, or all but one run."""
        return sum(one.kind == "rounds" and one.data == data and one.run != without for one in self.entries())

    def add_round(self, data: str, run: str, most: int | None) -> None:
        """Record a round before it is answered; refuse more than `most` over all runs on the table, if that is set."""
        with self._locked():
            # A damaged ledger is refused, also without a limit.
            taken = self.rounds(data)
            if most is not None and taken >= most:
                raise RunError(
                    f"{data} has taken {taken} rounds in all runs and attempts, and the policy's most_rounds is "
                    f"{most}: none is left, and this one is refused. evenhand ledger shows what each run took"
                )
            self._add(Release("rounds", data, "", 0.0, run=run), Limits())

    def _add(self, entry: Release, limits: Limits) -> None:
        asked: list[tuple[float | None, Kind | None, str]] = [
            (limits.labels if entry.kind == "labels" else None, "labels", "label_epsilon"),
            (limits.everything, None, "most_epsilon"),
        ]
        for most, kind, name in asked:
            if most is None:
                continue
            spent = self.spent(entry.data, kind)
            # Without the last digits, in which sums of floating-point numbers are not exact.
            if spent + entry.epsilon > most * (1 + 1e-9):
                raise RunError(
                    f"{entry.data} has spent ε = {spent:g}, this job would spend {entry.epsilon:g} more, and the "
                    f"policy's {name} is {most:g}. Use a smaller ε; evenhand ledger shows what was spent"
                )
        line = asdict(entry) | {"time": datetime.now(UTC).isoformat(timespec="seconds")}
        _append(self.path, line)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time read and add: a party and the server beside it use the same ledger."""
        with FileLock(self.path.with_name(f".{LEDGER}.lock"), mode=0o600):
            yield


@dataclass(frozen=True)
class Limits:
    """The most ε that a policy lets a table spend.

    Attributes
    ----------
    labels
        On randomised responses to its labels; None is any.
    everything
        In all; None is any.
    """

    labels: float | None = None
    everything: float | None = None


class AnsweredOnce:
    """What a client has answered in a run, on disk: an attempt that is resumed gets no second answer.

    Parameters
    ----------
    path
        File in the client's run folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = {line["question"]: line["content"] for line in _lines(path)[0]}

    def __call__(self, question: str, content: bytes) -> None:
        """Record a question before it is answered; refuse another content than an earlier attempt was asked with.

        Parameters
        ----------
        question
            Its place in the run, such as "model round 3".
        content
            All that the answer depends on.
        """
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        if question not in self._known:
            self._known[question] = digest
            _append(self._path, {"question": question, "content": digest})
        elif self._known[question] != digest:
            raise ProtocolError(
                f"{question} was answered before, in an earlier attempt, with another content; a question has one "
                "answer. Submit the job as a new run"
            )


def run_name(secret: bytes) -> str:
    """Return the name of a run in the ledger. Jobs cannot choose it: it follows from the party's own secret."""
    return hashlib.blake2b(secret, digest_size=8, person=b"evenhand run").hexdigest()


def data_name(section: TableSection, base: Path) -> str:
    """Return the name of a table in the ledger. Jobs cannot change it: it comes from the party's own file.

    A file has one name however its path is written: that from the folder of the ledger.
    """
    place = str(section.database)
    if section.database is None:
        place = os.path.relpath((base / str(section.table)).resolve(), base.resolve())
    return f"{place}: {section.sql}" if section.sql is not None else place


def _lines(path: Path, begin: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the lines from a place in bytes on, and where they end."""
    try:
        if not path.exists():
            return [], 0
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read()
        return [json.loads(line) for line in content.decode().split("\n") if line], begin + len(content)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); restore it, it says what was released before") from error


def _append(path: Path, line: dict[str, object]) -> None:
    """Append a line, and wait until it is on disk."""
    try:
        new = not path.exists()
        with open_private(path, "ab") as file:
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error
