"""Curves on the page: what they add to the score, with the share of rows below."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import SmallJob

from evenhand.data import PartyEncoder
from evenhand.data.tables.columns import Shape
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord


def test_shapes_are_what_the_party_s_model_adds(tmp_path: Path) -> None:
    small = SmallJob(tmp_path, rows=300)
    small.content["job"].update(solver="subspace", options={}, test_fraction=0.0)
    small.party("shop")["numbers"] = {"spent": "bins"}
    gone = small.frames["bank"].index[:40]
    small.frames["bank"].loc[gone, "age"] = np.nan
    finished = small.run()
    record = RunRecord.read(finished.folder.path)
    shape = record.shapes["bank"]["age"][0]
    model, encoder = finished.run.models["bank"], small_encoder(finished.folder.path)
    frame = pd.DataFrame(
        {name: small.frames["bank"][name].iloc[:1].repeat(6).to_numpy() for name in encoder.columns_in}
    )
    frame["age"] = [*shape.values, np.nan]
    scores = model.predict(encoder.transform(frame))
    added = np.array([shape.ends[0][0], *(high for _, high in shape.ends), shape.missing])
    np.testing.assert_allclose(scores - scores[0], added - added[0], atol=1e-12)
    assert sum(shape.shares) == pytest.approx(1.0)
    known = small.frames["bank"]["age"].dropna()
    below = (known < shape.values[1]).mean() + (known == shape.values[1]).mean() / 2
    assert shape.shares[0] == pytest.approx(below, abs=1e-9)
    bins = record.shapes["shop"]["spent"][0]
    assert all(low == high for low, high in bins.ends)
    page = make_page([record])
    part = page[page.index(">Curves</h3>") : page.index(">Feature weights</h3>")]
    assert "<figcaption>age</figcaption>" in part
    assert "age missing" in part
    assert len(re.findall('class="rows"', part)) == sum(
        len(one.ends) for owner in record.shapes.values() for (one,) in owner.values()
    )


def test_curves_have_bands_of_every_party_and_none_of_randomised_labels(tmp_path: Path) -> None:
    small = SmallJob(tmp_path, rows=300)
    small.content["job"] = {"solver": "subspace", "test_fraction": 0.0}
    small.frames["shop"].loc[small.frames["shop"].index[:40], "spent"] = np.nan
    record = RunRecord.read(small.run().folder.path)
    for columns in record.shapes.values():
        for (shape,) in columns.values():
            assert shape.errors is not None
            assert len(shape.errors) == len(shape.ends)
            assert all(error > 0.0 for pair in shape.errors for error in pair)
    assert record.shapes["shop"]["spent"][0].missing_error is not None
    page = make_page([record])
    segments = [len(one.ends) for owner in record.shapes.values() for (one,) in owner.values()]
    assert page.count('class="band f0"') == sum(segments)
    assert "the true band is wider" in page
    small.content["job"]["label_privacy"] = {"epsilon": 3.0}
    page = make_page([RunRecord.read(small.run("private").folder.path)])
    assert 'class="band' not in page
    assert "the true band is wider" not in page


def small_encoder(path: Path) -> PartyEncoder:
    return PartyEncoder.from_json((path / "parties" / "bank" / "encoder.json").read_bytes())


def test_a_run_without_curves_has_no_such_section(tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    small.content["job"].update(solver="subspace", options={}, numbers="standard")
    record = RunRecord.read(small.run().folder.path)
    assert not record.shapes
    assert "Curves" not in make_page([record])


def test_only_the_largest_curves_are_drawn_and_all_are_in_the_table(tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    record = RunRecord.read(small.run().folder.path)
    many = {f"c{k}": (Shape((0.0, 1.0), ((0.0, float(k)),), (1.0,), None),) for k in range(30)}
    page = make_page([replace(record, shapes={"bank": many})])
    drawn = re.findall("<figcaption>(c[0-9]+)</figcaption>", page)
    assert drawn == [f"c{k}" for k in range(29, 17, -1)]
    assert all(f">c{k}</th>" in page for k in range(30))
