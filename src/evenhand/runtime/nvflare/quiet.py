"""Keep FLARE's logs free of errors that are none, so that an ERROR line in a log means one."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

from evenhand.runtime.files import write_bytes

LOGS: Final = "logs"
"""Folder of the server's kit with its logs of jobs that have ended."""
_CONFIG: Final = "log_config.json"
# Whoever follows a job asks for its progress from the moment that its process is being started.
_EXPECTED: Final = ("no app command func for topic evenhand-progress", "STP=app_command")


class ExpectedErrors(logging.Filter):
    """Drop what FLARE logs when a job is asked before its process can answer."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not any(part in message for part in _EXPECTED)


def quieten(kit: Path) -> None:
    """Write the kit's settings of logs, unless its owner has some."""
    local = kit / "local"
    if (local / _CONFIG).exists() or not (local / f"{_CONFIG}.default").is_file():
        return
    settings: dict[str, Any] = json.loads((local / f"{_CONFIG}.default").read_text(encoding="utf-8"))
    settings["filters"]["expected"] = {"()": f"{__name__}.{ExpectedErrors.__name__}"}
    for handler in settings["handlers"].values():
        handler["filters"] = [*handler.get("filters", []), "expected"]
    write_bytes(local / _CONFIG, json.dumps(settings, indent=1).encode(), private=True)
