"""Job files of either split."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from evenhand.data.tables.redaction import shown_file
from evenhand.errors import JobError
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.schema import read_toml
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.printing import quoted

JobFile: TypeAlias = VerticalJobFile | HorizontalJobFile


def read_job(path: Path) -> JobFile:
    """Read and check a job file; whatever is wrong with it is a JobError that names file and key."""
    content = read_toml(path)
    section = content.get("job")
    if isinstance(section, dict) and section.get("split") == "horizontal":
        return parse_horizontal(content, str(path))
    if isinstance(section, dict) and section.get("split", "vertical") != "vertical":
        split = section["split"]
        said = quoted(shown_file(split) if isinstance(split, str) else split)
        raise JobError(f"{path}: key job.split is {said}; choose 'vertical' or 'horizontal'")
    if "client" in content:
        raise JobError(f'{path}: [[client]] goes with split = "horizontal" in [job]')
    return parse_vertical(content, str(path))
