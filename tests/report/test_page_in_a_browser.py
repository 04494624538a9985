"""Pages in a real browser: nothing complains, no text lies on other text, tabs and tables work, axe finds nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.data.tables.columns import Shape
from evenhand.report.page import write_page
from evenhand.report.record import RunRecord

WIDTHS = {"desktop": 1280, "phone": 390}
PEOPLE = ["plain", "fair", "across rows"]
KINDS: dict[str, list[str]] = {
    "audited": ["plain"],
    "rates": ["fair"],
    "sqp": ["across rows"],
    "averaging": ["averaging"],
    "trees": ["trees"],
    "limit": ["limit"],
    "learners": ["learners"],
    "cuts by group": ["cuts by group"],
    "classes": ["classes"],
    "classes across rows": ["classes across rows"],
    "many classes": ["many classes"],
    "numbers": ["numbers"],
    "bounds on numbers": ["numbers", *(f"numbers-{bound}" for bound in (0.5, 0.2, 0.1))],
    "many": ["many"],
    "several": PEOPLE,
    "frontier": ["plain", *(f"epsilon-{bound}" for bound in (0.2, 0.1, 0.05, 0.02))],
}
"""Runs on each page."""
LIKE_OTHERS = ("many classes", "classes across rows", "numbers", "learners", "cuts by group")
"""Pages that add little to what the others show; looked at in the soak."""
QUICK = [pytest.param(one, marks=[pytest.mark.soak] if one in LIKE_OTHERS else []) for one in KINDS]
OVERLAPS = """() => {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim() || node.parentElement.closest("script, style, title, .skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [];
    for (let up = node.parentElement; up; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== "visible") boxes.push(up.getBoundingClientRect());
    for (const box of range.getClientRects()) {
      const left = Math.max(box.left, ...boxes.map((one) => one.left));
      const right = Math.min(box.right, ...boxes.map((one) => one.right));
      // Boxes of letters are higher than the letters.
      const room = 0.2 * box.height;
      if (right - left > 2) found.push({ left, right, top: box.top + room, bottom: box.bottom - room, node });
    }
  }
  found.sort((one, other) => one.top - other.top);
  const said = [];
  found.forEach((one, place) => {
    for (let next = place + 1; next < found.length && found[next].top < one.bottom; next++) {
      const other = found[next];
      if (one.node !== other.node && other.left < one.right - 1 && one.left < other.right - 1)
        said.push(`${one.node.data.trim()} / ${other.node.data.trim()}`);
    }
  });
  return said;
}"""


@pytest.fixture(scope="module")
def records(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    folder = tmp_path_factory.mktemp("kinds")
    found = {name: RunRecord.read(path) for name, path in runs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hospitals = HospitalJob(folder / "averaging")
        hospitals.averaging(rounds=3)
        found["averaging"] = RunRecord.read(hospitals.run().folder.path)
        for name, settings in {
            "trees": {"solver": "trees", "max_rounds": 2, "constraint": {"kind": "equal-opportunity", "epsilon": 0.2}},
            "limit": {"constraint": {"kind": "neyman-pearson", "limit": 0.2, "measure": "error", "label": 1}},
            "learners": {"solver": "learners", "max_rounds": 2, "constraint": {"kind": "loss-parity", "epsilon": 0.2}},
            "cuts by group": {
                **{"threshold": "recall", "target": 0.6, "threshold_by": "sex", "max_rounds": 3},
                "constraint": {"kind": "equal-opportunity", "epsilon": 0.2, "measure": "error"},
            },
        }.items():
            if name == "trees":
                pytest.importorskip("lightgbm")
            job = SmallJob(folder / name, rows=300)
            job.frames["shop"]["joined"] = pd.date_range("2020-01-01", periods=300).to_numpy()
            job.content["job"] = {"test_fraction": 0.25, **settings}
            found[name] = replace(RunRecord.read(job.run().folder.path), name=name)
        found |= runs_of_other_targets(folder)
    for bound in (0.2, 0.1, 0.05, 0.02):
        found[f"epsilon-{bound}"] = at_bound(found["fair"], bound)
    found["many"] = with_many_groups(found["fair"])
    return found


def runs_of_other_targets(folder: Path) -> dict[str, RunRecord]:
    """Return runs of three and of eleven classes, and of counts under several bounds."""
    found = {}
    rng = np.random.default_rng(0)
    for name, labels in (("classes", 3), ("many classes", 11)):
        job, names = SmallJob(folder / name, rows=500), [f"kind {place} of travel" for place in range(labels)]
        age = pd.qcut(job.frames["bank"]["age"] + rng.normal(0, 8, 500), labels, labels=names).astype(str)
        job.frames["bank"]["outcome"] = age
        job.content["job"] = {
            "test_fraction": 0.3,
            "max_rounds": 4,
            "constraint": {"kind": "demographic-parity", "epsilon": 0.1},
        }
        job.party("bank")["label"] = {"column": "outcome", "classes": names}
        found[name] = replace(RunRecord.read(job.run().folder.path), name=name)
    hospitals = HospitalJob(folder / "classes across rows")
    for frame in hospitals.frames.values():
        frame["outcome"] = rng.choice(["well", "ill", "very ill"], len(frame))
    hospitals.content["data"]["label"] = {"column": "outcome", "classes": ["well", "ill", "very ill"]}
    hospitals.content["job"]["constraint"] = {"kind": "equalized-odds", "epsilon": 0.2, "measure": "error"}
    found["classes across rows"] = RunRecord.read(hospitals.run().folder.path)
    counts = SmallJob(folder / "numbers", rows=400)
    bank = counts.frames["bank"]
    bank["outcome"] = 1000.0 * rng.poisson(np.exp((bank["age"] - 48) / 30 + 0.4 * (bank["sex"] == "male")))
    counts.party("bank")["label"] = {"column": "outcome"}
    for name, bound in (("numbers", None), *((f"numbers-{one}", 1000.0 * one) for one in (0.5, 0.2, 0.1))):
        constraint = {} if bound is None else {"constraint": {"kind": "mean-prediction-parity", "epsilon": bound}}
        counts.content["job"] = {"loss": "poisson", "test_fraction": 0.25, "max_rounds": 5, **constraint}
        found[name] = replace(RunRecord.read(counts.run(name).folder.path), name=name)
    return found


def at_bound(record: RunRecord, bound: float) -> RunRecord:
    """Return a run as a frontier has it; points of bounds that hardly differ lie close together."""
    result = dict(record.result)
    held = {
        part: [{**one, "asked": bound, "estimate": bound} for one in found]
        for part, found in result["constraints"].items()
    }
    quality = {
        part: {**values, "equalized_odds": min(bound, 0.06), "accuracy": 0.75 + bound / 50}
        for part, values in result["quality"].items()
    }
    return replace(record, name=f"epsilon-{bound}", result=result | {"constraints": held, "quality": quality})


def with_many_groups(record: RunRecord) -> RunRecord:
    """Return a run of twelve groups with long names, fifteen links and small, large and negative numbers."""
    names = [f"a region with a rather long name, number {place}" for place in range(12)]
    groups = {
        part: [{**found[place % 2], "group": name} for place, name in enumerate(names)]
        for part, found in record.result["groups"].items()
    }
    values, ends = (-1234567.0, 1.23e-7, 2345678.0, 34567890.0, 456789012.0), tuple((k * 0.1, -0.3) for k in range(4))
    curve = Shape(values, ends, (0.001, 0.9, 0.05, 0.049), -2.0)
    curves = {"bank": {"a column with a rather long name": (curve,), "b": (curve._replace(missing=None),)}}
    history = record.history.assign(objective=np.linspace(1e-7, 3e-7, len(record.history)))
    traffic = pd.concat([record.traffic.replace({"shop": f"{'a shop with a name ' * 3}{k}"}) for k in range(5)])
    weights = {
        "bank": pd.DataFrame({"weight": [1e-5, -123456.7]}, index=["a column with a very long name " * 3, "b" * 90]),
        "shop": pd.DataFrame({"weight": [2.0]}, index=["x"]),
    }
    return replace(
        record,
        name="a run with a name that is long " * 2,
        history=history,
        traffic=traffic,
        weights=weights,
        shapes=curves,
        result=record.result | {"groups": groups},
    )


Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, records: dict[str, RunRecord], tmp_path: Path) -> Iterator[Open]:
    """A function that opens a page about these runs; the browser's complaints are an error."""
    complaints: list[str] = []
    pages = []

    def page_of(names: Sequence[str], width: str, scheme: str = "light", **settings: Any) -> Any:
        path = tmp_path / "report.html"
        write_page([records[name] for name in names], path)
        page = browser.new_page(viewport={"width": WIDTHS[width], "height": 900}, color_scheme=scheme, **settings)
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda sent: complaints.append(sent.url) if not sent.url.startswith("file:") else None)
        page.goto(path.as_uri())
        return page

    yield page_of
    for page in pages:
        page.close()
    assert complaints == []


def each_panel(page: Any) -> Iterator[None]:
    """Show one tab after another; a page of one run has none."""
    tabs = page.locator("[role=tab]")
    if tabs.count() == 0:
        yield
    for place in range(tabs.count()):
        tabs.nth(place).click()
        yield


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", QUICK)
def test_no_text_lies_on_other_text_and_nothing_runs_over_the_edge(kind: str, width: str, opened: Open) -> None:
    page = opened(KINDS[kind], width)
    for _ in each_panel(page):
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        boxes = page.eval_on_selector_all(
            "svg.chart", "all => all.map(one => one.getBoundingClientRect().toJSON()).filter(one => one.height)"
        )
        assert boxes
        assert all(box["width"] > 200 and box["height"] > 10 for box in boxes)


def assert_axe_finds_nothing(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize(("kind", "width", "scheme"), [("several", "desktop", "light"), ("rates", "phone", "dark")])
def test_axe_finds_nothing(kind: str, width: str, scheme: str, opened: Open) -> None:
    assert_axe_finds_nothing(opened(KINDS[kind], width, scheme))


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_on_any_page(kind: str, width: str, scheme: str, opened: Open) -> None:
    page = opened(KINDS[kind], width, scheme)
    for _ in each_panel(page):
        assert_axe_finds_nothing(page)


def test_runs_are_tabs_for_the_keyboard_too(opened: Open) -> None:
    page = opened(PEOPLE, "desktop")
    names = ["Comparison", *PEOPLE]
    tabs = page.get_by_role("tab")
    assert tabs.all_inner_texts() == names

    def shown() -> tuple[str, int]:
        chosen = page.locator("[role=tab][aria-selected=true]").inner_text()
        return chosen, page.locator("[role=tabpanel]:visible").count()

    assert shown() == ("Comparison", 1)
    tabs.first.focus()
    for key, place in (("ArrowRight", 1), ("End", 3), ("ArrowRight", 0), ("ArrowLeft", 3), ("Home", 0)):
        page.keyboard.press(key)
        assert shown() == (names[place], 1)
        assert page.evaluate("document.activeElement.textContent") == names[place]
    assert page.evaluate("document.documentElement.scrollHeight") < 2500


def test_without_a_script_every_run_is_there_to_read(opened: Open) -> None:
    page = opened(PEOPLE, "phone", java_script_enabled=False)
    assert page.locator("main > section:visible").count() == 4
    assert page.locator("nav a").count() == 4


def test_tables_sort_both_ways_and_hovering_tells(opened: Open) -> None:
    page = opened(["fair"], "desktop")
    table = page.locator("table.sortable").first
    heading = table.locator("thead th").nth(1)

    def shown() -> list[float]:
        cells = table.locator("tbody tr td:nth-child(2)")
        return [float(cell) for cell in cells.evaluate_all("all => all.map(one => one.dataset.sort)")]

    heading.locator("button").focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert shown() == sorted(shown())
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert shown() == sorted(shown(), reverse=True)
    dot = page.locator("circle.dot[data-tip]").last
    dot.scroll_into_view_if_needed()
    dot.hover()
    assert page.locator("#tip").inner_text() == dot.get_attribute("data-tip")


def test_values_of_the_certificate_are_explained_by_the_keyboard(opened: Open) -> None:
    page = opened(["fair"], "desktop")
    summary = page.locator("summary", has_text="complementarity")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("largest product of a multiplier and the slack").is_visible()
