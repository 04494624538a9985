"""The page about runs: what it says, that nothing on it can be mistaken for markup, and that it stays small."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import SmallJob

from evenhand.cli import main
from evenhand.errors import InputError, RunError
from evenhand.metrics.performance import wilson
from evenhand.report.frontier import best_balance
from evenhand.report.labels import spread
from evenhand.report.page import make_page
from evenhand.report.page.charts import Axis, number
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import HEADLINES, verdicts


class Reader(HTMLParser):
    """Words of a page, its elements, and whether every element is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_what_was_asked_for_and_whether_it_was_met_is_said_first(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    text = Reader(make_page([record])).text
    (train,), (test,) = (record.result["constraints"][part] for part in ("train", "test"))
    verdict = f"{HEADLINES[verdicts(record.result)[0].state]}."
    rows = {part: record.rows(part) for part in ("train", "test")}
    assert sum(filter(None, rows.values())) == 400
    said = f"{verdict} Requested: equalized odds on error rates, within 0.05. On the {rows['train']} training rows"
    assert f"{said} the largest gap is {number(train['estimate'])}." in text
    assert (
        f"On {rows['test']} held-out rows it is {number(test['estimate'])} ± {number(test['standard_error'])}" in text
    )
    assert text.index(verdict) < text.index("Group metrics on held-out rows")


def test_a_missed_constraint_and_an_unfinished_search_are_said(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    held = {part: [{**one, "asked": 1e-9} for one in found] for part, found in record.result["constraints"].items()}
    certificate = {**record.result["certificate"], "converged": False}
    page = make_page([replace(record, result={**record.result, "constraints": held, "certificate": certificate})])
    assert 'class="answer missed"' in page
    assert "Not met on the training rows." in page
    assert "Not converged." in page


def test_counts_rates_and_links_are_those_of_the_run(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    text = Reader(make_page([record])).text
    groups = record.result["groups"]["test"]
    for one in groups:
        rows = sum(value for name, value in one.items() if name.endswith(("positives", "negatives")))
        assert f"sex {one['group']} {rows} {one['true_positives']} {one['false_negatives']}" in text
        assert sum(cell[0] for cell in one["calibration"]) == rows
    assert f"{record.result['messages']:,} messages" in text
    assert record.traffic["nbytes"].sum() == record.result["bytes"]
    assert "city=Ghent" in text
    for entry in record.files.values():
        assert entry.sha256 in text
    assert "discloses labels" in text


@pytest.mark.parametrize("names", [["plain"], ["fair"], ["across rows"], ["plain", "fair"]])
def test_every_page_is_whole_and_fetches_nothing(names: list[str], runs: dict[str, Path]) -> None:
    page = make_page([RunRecord.read(runs[name]) for name in names])
    reader = Reader(page)
    # The name of the SVG language is no address that is opened.
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert not any(name in ("src", "srcset") for _, given in reader.seen for name in given)
    assert all((given.get("href") or "#").startswith("#") for _, given in reader.seen)
    identifiers = [given["id"] for _, given in reader.seen if "id" in given]
    assert len(identifiers) == len(set(identifiers))
    targets = {(given["href"] or "")[1:] for _, given in reader.seen if "href" in given}
    assert targets <= set(identifiers)
    assert "nan" not in reader.text.split()
    levels = [int(tag[1]) for tag, _ in reader.seen if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_what_an_audit_found_is_said(runs: dict[str, Path]) -> None:
    assert "evenhand audit fair" in Reader(make_page([RunRecord.read(runs["fair"])])).text
    audited = RunRecord.read(runs["plain"])
    assert audited.audit is not None
    sentences = [words for found in audited.audit["participants"].values() for words in found["sentences"]]
    text = Reader(make_page([audited])).text
    assert any("with certainty" in words for words in sentences)
    assert all(words in text for words in sentences)


def test_columns_of_trees_are_shown_by_what_they_gained(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    job = SmallJob(tmp_path, rows=300)
    job.content["job"] = {"solver": "trees", "max_rounds": 2}
    record = RunRecord.read(job.run(tmp_path / "run").folder.path)
    assert {name: list(found.index) for name, found in record.importances.items()} == {
        "bank": ["age", "city"],
        "shop": ["spent", "visits"],
        "social": ["friends"],
    }
    assert record.importances["shop"]["spent"] > 0
    assert "Gain of splits on the columns of shop" in Reader(make_page([record])).text


def test_names_are_text_whatever_they_hold(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    nasty = "<script>alert(1)</script>\x1b]0;x\"'&"
    traffic = record.traffic.replace({"shop": nasty})
    weights = {nasty: pd.DataFrame({"weight": [1.0, -2.0]}, index=[nasty, "b"])}
    groups = {part: [{**one, "group": nasty} for one in found] for part, found in record.result["groups"].items()}
    changed = replace(record, name=nasty, traffic=traffic, weights=weights, result={**record.result, "groups": groups})
    page = make_page([changed, record])
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert [tag for tag, _ in Reader(page).seen].count("script") == 1


def test_a_thousand_rounds_of_fifty_parties_make_a_small_page(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    rng = np.random.default_rng(0)
    history = pd.DataFrame({"round": np.arange(1000), "objective": rng.random(1000)})
    more = {f"value[row {place}]": rng.normal(size=1000) for place in range(40)}
    history = pd.concat([history, pd.DataFrame(more)], axis=1)
    kinds = record.traffic["kind"].unique()
    links = [
        (a, b, kind, 1000, 10**6)
        for p in range(50)
        for a, b in (("server", f"p{p}"), (f"p{p}", "server"))
        for kind in kinds
    ]
    traffic = pd.DataFrame(links, columns=list(record.traffic.columns))
    index = [f"x{k}" for k in range(200)]
    weights = {f"p{place}": pd.DataFrame({"weight": rng.normal(size=200)}, index=index) for place in range(50)}
    page = make_page([replace(record, history=history, traffic=traffic, weights=weights)])
    assert len(page.encode()) < 5e6
    assert "34 more constraints" in page


def test_runs_without_groups_or_tests_have_a_page_too(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["plain"])
    bare = {
        "certificate": record.result["certificate"],
        "quality": {"train": {"accuracy": 0.75}},
        "intervals": {},
        "bytes": 12,
        "messages": 1,
    }
    without = replace(record, result=bare, weights={}, history=pd.DataFrame(), files={})
    page = make_page([without])
    assert "Accuracy on the training rows: 75.0 %" in Reader(page).text
    both = make_page([without, replace(without, name="other")])
    # Nobody needs columns of gaps between groups that there are none of.
    assert "accuracy<" in both
    assert ">DFP" not in both
    assert "recall" in make_page([record, replace(record, name="other")])
    with pytest.raises(InputError, match="no run to report on"):
        make_page([])


def test_the_command_writes_once_and_says_where(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["evenhand", "report", *map(str, arguments)])
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code or 0
        return (int(str(code)), *capsys.readouterr())

    out = tmp_path / "page.html"
    assert command(runs["plain"], runs["fair"], "--out", out) == (0, f"{out}\n", "")
    before = out.read_bytes()
    code, _, errors = command(runs["plain"], "--out", out)
    assert (code, out.read_bytes()) == (2, before)
    assert "--overwrite" in errors
    assert command(runs["plain"], "--out", out, "--overwrite")[0] == 0
    assert out.read_bytes() != before
    assert command(runs["plain"], "--out", tmp_path / "nowhere" / "page.html")[0] == 2
    assert command(tmp_path, "--out", tmp_path / "other.html")[0] == RunError.exit_code
    assert command(runs["plain"], "--out", out, "--serve")[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]


@pytest.mark.parametrize("heights", [[1.0, 1.0, 1.0], [9.9, 9.8, 0.1, 5.0], [3.0], [0.0, 10.0], [10.0] * 5])
def test_labels_keep_their_distance_and_their_order(heights: list[float]) -> None:
    found = spread(heights, 2.0, 0.0, 10.0)
    assert all(0.0 <= level <= 10.0 for level in found)
    assert all(after - before >= 2.0 - 1e-9 for before, after in pairwise(sorted(found)))
    assert np.argsort(found, kind="stable").tolist() == np.argsort(heights, kind="stable").tolist()


def test_a_bound_that_changes_nothing_is_not_ringed() -> None:
    points = {"0.2": (0.05, 0.9), "0.1": (0.05, 0.9), "0.02": (0.03, 0.8)}
    assert best_balance(points) == "0.2"
    assert best_balance(points, (0.05, 0.9)) == "0.02"
    assert best_balance({"0.2": (0.05, 0.9)}, (0.05, 0.9)) is None


@pytest.mark.parametrize(("count", "out_of"), [(0, 10), (10, 10), (3, 7), (1, 1), (500, 1000)])
def test_intervals_of_shares_are_wilsons(count: int, out_of: int) -> None:
    """Against the definition: the shares p with |p̂ − p| ≤ 1.96 √(p(1−p)/n)."""
    share, low, high = wilson(count, out_of)
    assert share == count / out_of
    p = np.linspace(0.0, 1.0, 200_001)
    inside = p[np.abs(share - p) <= 1.96 * np.sqrt(p * (1 - p) / out_of) + 1e-12]
    assert (low, high) == pytest.approx((inside.min(), inside.max()), abs=1e-4)
    assert wilson(0, 0)[0] is None


@pytest.mark.parametrize("values", [[0.0, 1.0], [5.0], [-1e-9, 2e-9], [1e12, 3e12], [np.nan, 2.0], []])
def test_axes_have_round_ticks_within_them(values: list[float]) -> None:
    axis = Axis.over(values, 0.0, 100.0)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert all(0.0 <= axis.at(value) <= 100.0 for value in values if np.isfinite(value))
