"""The page in a real browser: nothing complains, charts are drawn, tables sort, hovering tells, axe finds nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evenhand.report.page import write_page
from evenhand.report.record import RunRecord

WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def address(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page([RunRecord.read(run) for run in runs.values()], path)
    return path.as_uri()


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in ("light", "dark")], ids="-".join)
def page(request: pytest.FixtureRequest, browser: Any, address: str) -> Any:
    width, scheme = request.param
    opened = browser.new_page(viewport={"width": WIDTHS[width], "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda sent: complaints.append(sent.url) if not sent.url.startswith("file:") else None)
    opened.goto(address)
    yield opened
    assert complaints == []
    opened.close()


def test_every_chart_is_drawn_and_nothing_runs_over_the_edge(page: Any) -> None:
    boxes = page.eval_on_selector_all("svg.chart", "all => all.map(one => one.getBoundingClientRect().toJSON())")
    assert len(boxes) > 10
    assert all(box["width"] > 200 and box["height"] > 10 for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelectorAll('svg.chart polyline.line').length") >= 5


@pytest.mark.parametrize(
    "page",
    [
        ("desktop", "light"),
        ("phone", "dark"),
        pytest.param(("desktop", "dark"), marks=pytest.mark.soak),
        pytest.param(("phone", "light"), marks=pytest.mark.soak),
    ],
    indirect=True,
    ids="-".join,
)
def test_axe_finds_nothing(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for closed in page.query_selector_all("details"):
        closed.evaluate("one => { one.open = true }")
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()


def test_tables_sort_both_ways_and_hovering_tells(page: Any) -> None:
    table = page.locator("table.sortable").first
    heading = table.locator("thead th").nth(1)

    def shown() -> list[float]:
        return [
            float(cell)
            for cell in table.locator("tbody tr td:nth-child(2)").evaluate_all(
                "all => all.map(one => one.dataset.sort)"
            )
        ]

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
