"""Every key of a job file has a meaning and an example that its own schema accepts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

DOCS = Path(__file__).resolve().parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("job_keys", DOCS / "job_keys.py")
assert SPEC is not None
assert SPEC.loader is not None
job_keys = importlib.util.module_from_spec(SPEC)
sys.modules["job_keys"] = job_keys
SPEC.loader.exec_module(job_keys)

FILES: list[type[BaseModel]] = [*job_keys.FILES.values(), *(changed for changed, _ in job_keys.DIFFERENCES.values())]
KEYS = {
    f"{file.__name__} {heading} {name}": field
    for file in FILES
    for heading, section in job_keys.sections(file)
    for name, field in job_keys.own_keys(section)
}


@pytest.mark.parametrize("field", KEYS.values(), ids=KEYS.keys())
def test_a_key_has_a_meaning_and_a_valid_example(field: FieldInfo) -> None:
    assert field.description
    assert field.description.endswith(".")
    (example,) = field.examples or []
    kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    TypeAdapter(kind).validate_python(example, strict=True)


def test_every_option_of_a_solver_has_a_meaning() -> None:
    page = job_keys.job_keys_page()
    options = page.split("## Options of solvers")[1].split("\n## ")[0]
    assert [
        line for line in options.splitlines() if line.startswith("| `") and line.split(" | ")[1].strip() == ""
    ] == []


def test_between_organisations_only_differences_are_listed() -> None:
    page = job_keys.job_keys_page()
    part = page.split("## Between organisations: a vertical `job.toml`")[1].split("\n## ")[0]
    assert "`text_ids`" in part
    assert "`test_fraction`" not in part
