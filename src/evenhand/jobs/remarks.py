"""What whoever trains should be told: bounds that nobody gave, and bounds that the test rows miss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.jobs.file import JobFile


def default_bounds(job: JobFile) -> list[str]:
    """Bounds that the job file leaves to the constraint's default."""
    said = []
    for given, constraint in zip(job.job.constraint, job.to_job().constraints, strict=True):
        for name in ("epsilon", "limit"):
            if name not in given and (value := getattr(constraint, name, None)) is not None:
                said.append(f"constraint {constraint.kind}: {name} is {value:g}, its default")
    return said


def beyond_bounds(result: Mapping[str, Any]) -> list[str]:
    """Where test rows have more than was asked for, and whether that may be chance."""
    said = []
    for one in result.get("constraints", {}).get("test", ()):
        value, error = one["estimate"], one["standard_error"]
        if value is None or value <= one["asked"]:
            continue
        line = f"on the test rows {one['constraint']} is {value:.3f}, {one['asked']:g} was asked for ({one['row']})"
        if error is not None:
            chance = "that may be chance" if value - one["asked"] <= 2 * error else "that is more than chance"
            line += f"; its standard error is {error:.3f}: {chance}"
        said.append(line)
    return said
