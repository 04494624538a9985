"""Write a job as a Flower app: a folder for `flwr run`, with the job and two lines of code that import this package."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import tomli_w

from evenhand.errors import InputError, JobError
from evenhand.jobs.federation.files import AnyJob, ClientsJob, as_given
from evenhand.runtime.files import make_folder, write_bytes
from evenhand.solvers.registry import VERTICAL

FLOWER: Final = "flwr>=1.41,<1.43"
AT_ONCE: Final = "visits-at-once"
"""Run setting: maximum number of nodes that compute at the same time, if several share a machine; 0 for no limit."""
_PACKAGE: Final = "evenhand_job"
_CODE: Final = '''"""Written by `evenhand federation flower`: {part} of the job beside it."""

from pathlib import Path

from evenhand.jobs.federation.flower import {make}

app = {make}(Path(__file__).with_name("job.toml").read_text(encoding="utf-8"))
'''


def write_app(job: AnyJob, name: str, out: Path) -> None:
    """Write the Flower app of a job; refuse a folder that is not empty, and solvers that Flower cannot run."""
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; choose another folder")
    solver = None if isinstance(job, ClientsJob) else VERTICAL.get(job.to_job().solver)
    if solver is not None and "flower" not in solver.runtimes:
        raise JobError(
            f"key job.solver: {solver.name} needs messages between parties while they compute, which Flower does "
            "not deliver; choose 'subspace' or 'fairvfl', or submit the job to NVIDIA FLARE"
        )
    contents = {
        "pyproject.toml": tomli_w.dumps(_project(name)),
        f"{_PACKAGE}/__init__.py": "",
        f"{_PACKAGE}/server.py": _CODE.format(part="the server app", make="server_app"),
        f"{_PACKAGE}/client.py": _CODE.format(part="a party's app", make="client_app"),
        f"{_PACKAGE}/job.toml": tomli_w.dumps(as_given(job)),
    }
    make_folder(out)
    make_folder(out / _PACKAGE)
    for path, text in contents.items():
        write_bytes(out / path, text.encode())


def _project(name: str) -> dict[str, Any]:
    own = version("evenhand").split(".dev")[0]
    components = {"serverapp": f"{_PACKAGE}.server:app", "clientapp": f"{_PACKAGE}.client:app"}
    return {
        "project": {
            "name": name,
            "version": "1.0.0",
            "description": "A job of evenhand",
            # Every node must have this installed already: nothing is installed for a job.
            "dependencies": [FLOWER, f"evenhand>={own}.dev0"],
        },
        "tool": {"flwr": {"app": {"publisher": "evenhand", "components": components, "config": {AT_ONCE: 0}}}},
    }
