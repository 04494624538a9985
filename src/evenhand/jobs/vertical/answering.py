"""What a job's randomised responses are drawn from: the label holder's own secret, kept in a file of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Hashable, Iterable
from pathlib import Path

from evenhand.errors import JobError
from evenhand.jobs.vertical.file import HeldLabelSection, LabelPrivacySection
from evenhand.privacy.randomised_response import SECRET_BYTES, AnswerKey
from evenhand.runtime.files import PARTIAL, write_new


def answer_key(
    asked: LabelPrivacySection | None, label: HeldLabelSection | None, base: Path, seed: int, ids: Iterable[Hashable]
) -> AnswerKey:
    """From the file that the label's section names; without one, from the job's seed, as a simulation has it."""
    if asked is None:
        # Nothing is drawn: a list of everybody would only lie about.
        return AnswerKey.from_seed(seed)
    if label is None or label.secret is None:
        return AnswerKey.from_seed(seed, ids)
    name = f"{label.column} = {label.positive}"
    return AnswerKey(kept_secret(base / Path(label.secret).expanduser()), ids, label=name)


def kept_secret(path: Path) -> bytes:
    """The secret in a file, which is made where there is none: it must outlast every run on the same labels."""
    try:
        if not path.exists():
            _make(path)
        found = path.read_bytes()
    except OSError as error:
        raise JobError(f"the secret of the labels, {path}, cannot be read or made: {error.strerror}") from error
    if len(found) != SECRET_BYTES:
        raise JobError(f"{path} holds {len(found)} bytes, not the {SECRET_BYTES} of a secret; name another file")
    return found


def _make(path: Path) -> None:
    """Whole or not at all; of two who make it at once, as a party and the server beside it may, one is second."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        write_new(temporary, secrets.token_bytes(SECRET_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
