"""The files that make this a public project agree with pyproject.toml and with the Makefile."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

yaml = pytest.importorskip("yaml")  # comes with the extra "docs"
ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = {
    "dev.lock": ("browser", "docs", "lint", "mlflow", "test"),
    "image.lock": ("nvflare", "privacy", "sql", "trees"),
}


def pinned(lock: str) -> dict[str, list[str]]:
    """Return the versions that a lock file pins, by package; one package may have several, for several Pythons."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock, flags=re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    """Return the direct requirements of the package with these extras, extras of extras included."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    found = [Requirement(line) for line in lines]
    own = [one for one in found if one.name == PROJECT["name"]]
    inner = tuple(sorted({extra for one in own for extra in one.extras} - set(extras)))
    return [one for one in found if one.name != PROJECT["name"]] + (wanted(inner) if inner else [])


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_pins_every_direct_dependency_within_its_range(name: str) -> None:
    versions = pinned((ROOT / "requirements" / name).read_text(encoding="utf-8"))
    missing = [
        str(one)
        for one in wanted(LOCKS[name])
        if not any(one.specifier.contains(version) for version in versions.get(canonicalize_name(one.name), []))
    ]
    assert missing == [], "run `make lock`"


@pytest.mark.parametrize("name", [*LOCKS, "build.lock"])
def test_a_lock_file_has_hashes_for_everything_and_names_no_server(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    assert [entry.split(" ")[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert re.findall(r"https?:|file:|--(?:extra-)?index-url|--find-links", text) == []
    assert "torch" not in pinned(text)


def test_workflows_are_valid_and_call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    targets |= {"lowest", "pythons"}  # one rule has both
    called: set[str] = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] > 0 if any("make" in step.get("run", "") for step in job["steps"]) else True
            names = re.findall(r"make ([\w-]+|\$\{\{[^}]*\}\})", " ".join(step.get("run", "") for step in job["steps"]))
            for name in names:
                matrix = job.get("strategy", {}).get("matrix", {})
                called |= set(matrix[name[4:-3].strip().removeprefix("matrix.")]) if name.startswith("$") else {name}
    assert {"quick", "test", "docs", "dist", "federation", "flower"} <= called <= targets


def test_pythons_in_the_workflow_are_those_of_the_classifiers() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    stated = [line.split(" :: ")[-1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == stated


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]


@pytest.mark.parametrize("path", [".pre-commit-config.yaml", ".github/dependabot.yml"])
def test_other_settings_are_valid_yaml(path: str) -> None:
    assert yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["bug", "idea", "config"])
def test_issue_forms_have_a_body(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
    assert form.get("body") or form.get("contact_links")


def test_the_changelog_keeps_to_its_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE)[0] == "[Unreleased]"
    allowed = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, flags=re.MULTILINE)) <= allowed
