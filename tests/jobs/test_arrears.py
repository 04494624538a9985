"""The bank's path of the tutorial: from three messy tables to a gap that is shown, and holds among new customers."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.data.examples import arrears
from evenhand.jobs.checking import check_job_file
from evenhand.jobs.drafted_text import draft_text
from evenhand.jobs.drafting import DraftTable, complete_draft, draft_job
from evenhand.jobs.folder import read_job
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.file import VerticalJobFile
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.report.verdicts import verdicts


def write(folder: Path, rows: int, seed: int) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    found = {}
    for name, table in arrears(rows, seed).items():
        found[name] = folder / f"{name}.csv"
        table.to_csv(found[name], **table.attrs.get("writing", {}))
    return found


def drafted(folder: Path, rows: int, seed: int) -> Path:
    """Write the tables and the job file that `init` drafts; leave out the year of birth, as `check` advises."""
    tables = [DraftTable.look(path) for path in write(folder, rows, seed).values()]
    text = draft_text(complete_draft(draft_job(tables, sensitive=["age", "region"])), folder)
    path = folder / "job.toml"
    path.write_text(text.replace('note = "leave out"', 'note = "leave out", born = "leave out"'), encoding="utf-8")
    return path


def proposed(path: Path) -> list[str]:
    """Return the constraints that `check` says these rows can show."""
    return check_job_file(read_job(path), path.parent).to_show().splitlines()[1:]


@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
def test_check_lists_bounds_that_the_rows_can_show(tmp_path: Path) -> None:
    path = drafted(tmp_path, 2500, 3)
    lines = proposed(path)
    assert [re.search('kind = "(.*?)"', line)[1] for line in lines][-1] == "demographic-parity"  # type: ignore[index]
    # A job with such a line is not told again, and a bound on losses has no such table.
    for line, told in ((lines[-1], False), ('constraint = { kind = "loss-parity" }', False), (None, True)):
        text = path.read_text(encoding="utf-8")
        path.write_text(text if line is None else re.sub("^constraint = .*", line, text, flags=re.MULTILINE))
        assert bool(proposed(path)) is told
        path.write_text(text)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [14, 15, 16])
def test_what_is_shown_holds_among_new_customers(seed: int, tmp_path: Path) -> None:
    """The default tables of the tutorial and two others: 30,000 customers of another seed are as the verdict says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = drafted(tmp_path, 7095, seed)
        text = re.sub("^constraint = .*", proposed(path)[-1], path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        path.write_text(text, encoding="utf-8")
        job = read_job(path)
        assert isinstance(job, VerticalJobFile)
        run = run_vertical_job(job, tmp_path, tmp_path / "run")
        (verdict,) = verdicts(run.result)
        new = write(tmp_path / "new", 30_000, 99)
        scored = score_new_parties(run.folder, tables=new, base=tmp_path).scores
    bank = pd.read_csv(new["bank"], sep=";", decimal=",", dtype={"customer": str}, index_col="customer")
    bank = bank.loc[scored.index].dropna(subset=["age", "arrears"])
    selected = (scored.loc[bank.index, "prediction"] == "yes").to_numpy()
    falls = (bank["arrears"] == "yes").to_numpy()
    # The job asks for a recall of .6, measured on about 400 training rows of that label: two standard errors are .05.
    assert selected[falls].mean() > 0.55
    groups = np.searchsorted([30, 60], bank["age"], side="right"), bank["region"].replace("isles", "west")
    rates = [pd.Series(selected).groupby(np.asarray(group)).mean() for group in groups]
    gap = max(float(np.ptp(one)) for one in rates)
    assert verdict.state in ("shown", "met")
    if verdict.state == "shown":
        assert gap <= verdict.train["asked"]
    if seed == 14:
        assert verdict.state == "shown"
    print(f"seed {seed}: {verdict.state}, gap {gap:.3f}, recall {selected[falls].mean():.3f}")
