"""A rule chooses the cut between organisations: the same cut and model as in one process, and nobody else learns it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import test_federation_clients as clients
from jobs import test_federation_sites as sites
from support.clinics import CLIENTS, write_clinics
from support.federation import Network, write_shops

from evenhand.constraints.thresholds import Ranked, Threshold
from evenhand.errors import JobError
from evenhand.horizontal.cutting import EDGES, LARGEST
from evenhand.jobs.federation.files import parse_federation_job
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients
from evenhand.jobs.tables import held_out
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.protocol.agree import CUT

PARITY = {"kind": "demographic-parity", "epsilon": 0.2, "measure": "positive"}
OF_LOSSES = {"kind": "loss-parity", "epsilon": 0.1}
RATE = {"threshold": "rate", "capacity": 0.25, "test_fraction": 0.2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("active", "job"),
    [
        (("bank",), {"max_rounds": 20, "constraint": PARITY}),
        # Random shares round otherwise in every run; where people are counted, that may change a decision.
        (("bank",), {"max_rounds": 6, "constraint": OF_LOSSES, "protection": "dealer"}),
        (("bank", "phone"), {"max_rounds": 5, "constraint": PARITY, "solver": "fairvfl"}),
        (("bank",), {"max_rounds": 20}),
    ],
)
def test_the_label_holders_side_chooses_the_cut(active: tuple[str, ...], job: dict[str, Any], tmp_path: Path) -> None:
    paths = write_shops(tmp_path, job | RATE, active)
    network = Network()
    ends = sites.run(paths, network)
    assert isinstance(ends["server"], dict), ends
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    # Shares of weights are in fixed point.
    for name in ("score", "chosen_on", "rule"):
        assert ends["server"]["cut"][name] == pytest.approx(together.result["cut"][name], abs=1e-4)
    for part, found in together.result["quality"].items():
        assert ends["server"]["quality"][part] == pytest.approx(found, abs=1e-4)
    assert ends["server"]["cut"]["rule"] == "rate"
    rows = together.result["performance"]["train"][0]
    # The rule saw scores of models without the row; on the training rows the share is near.
    assert abs(rows["selected"] / rows["rows"] - 0.25) < 0.08
    told = {one.receiver for one in network.sites["server"].transcript if one.kind == CUT.kind}
    assert told == set(active)


@pytest.mark.slow
@pytest.mark.parametrize("protection", ["none", "masked"])
def test_across_clients_the_cut_follows_from_summed_counts(protection: str, tmp_path: Path) -> None:
    """With a bound on rates and without, the rule selects as on the pooled scores, to the width of a bin."""
    for place, constraint in enumerate((PARITY, [])):
        folder = tmp_path / str(place)
        paths = write_clinics(folder, {"solver": "sqp", "protection": protection, "constraint": constraint} | RATE)
        ends = clients.run(paths)
        assert isinstance(ends["server"], dict), ends
        together = run_horizontal_job(read_job(paths["together"]), folder, folder / "run")  # type: ignore[arg-type]
        assert ends["server"]["cut"] == pytest.approx(together.result["cut"])
        for name in CLIENTS:
            np.testing.assert_array_equal(ends[name].state["weights"], together.folder.read_model("weights")["weights"])
            assert ends[name].terms.job.cut == ends["server"]["cut"]["score"]
        held = together.result["constraints"]["train"]
        assert all(one["estimate"] <= 0.2 + 1e-9 for one in held)
        kinds = {one.kind for one in together.run.transcript}
        assert "look at scores" in kinds
        # With masks, no client's counts reach the server.
        assert ("masked-answer" if protection == "masked" else "scores in bins") in kinds
        assert ("scores in bins" in kinds) == (protection == "none")
        if constraint:
            continue
        scores = score_new_clients(together.folder).scores
        used = scores[~scores["held_out"]]
        # The rule saw scores of models without the row; on the training rows the share is near.
        assert together.result["cut"]["chosen_on"] == "cross-fitted scores"
        assert abs((used["score"] > together.result["cut"]["score"]).mean() - 0.25) < 0.06


def test_counts_in_bins_choose_as_scores_do() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(-2.0, 1.0, 3000)
    signs = np.where(random.random(3000) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)
    rules = (
        Threshold("accuracy"),
        Threshold("cost", missed=10, false_alarm=1),
        Threshold("rate", capacity=0.05),
        Threshold("recall", target=0.6),
        Threshold("precision", target=0.3),
    )
    for rule in rules:
        edges = np.linspace(-LARGEST, LARGEST, EDGES)
        for _ in range(2):
            places = np.searchsorted(edges, scores)
            counts = [np.bincount(places[part], minlength=EDGES + 1) for part in (signs < 0, signs > 0)]
            ranked = Ranked.of_bins(edges, *counts)
            place = rule.place(ranked)
            cut, edges = ranked.cuts[place], np.linspace(*ranked.around(place), EDGES)
        wanted = rule.choose(signs, scores)
        assert abs(int((scores > cut).sum()) - int((scores > wanted).sum())) <= 1
        if rule.rule == "rate":
            assert (scores > cut).sum() <= 0.05 * 3000


def test_what_a_rule_cannot_do_is_refused_with_the_reason() -> None:
    parties = [{"name": "bank", "role": "active"}, {"name": "shop", "role": "passive"}]
    private = {"label_privacy": {"epsilon": 1.0, "finish": False}, "constraint": PARITY}
    job = {"split": "vertical", "threshold": "recall", "target": 0.5, **private}
    with pytest.raises(JobError, match="depend on true labels"):
        parse_federation_job({"job": job, "party": parties}, "job.toml")
    rate = {"split": "vertical", "threshold": "rate", "capacity": 0.2, **private}
    assert parse_federation_job({"job": rate, "party": parties}, "job.toml").to_job().searches == 2
    noisy = {
        "job": {"split": "horizontal", "solver": "fedavg", "threshold": "rate", "capacity": 0.2},
        "data": {"label": {"column": "sick"}},
        "client": [{"name": "north", "table": "a.csv"}, {"name": "south", "table": "b.csv"}],
        "privacy": {"mechanism": "clipped-gaussian", "clip": 1.0, "noise_multiplier": 1.0},
    }
    with pytest.raises(JobError, match=r"noise of \[privacy\] does not cover"):
        parse_horizontal(noisy, "job.toml")


@pytest.mark.slow
def test_a_cut_is_chosen_without_the_held_out_rows(tmp_path: Path) -> None:
    """Turn all labels of held-out rows around: the cut stays."""
    paths = write_shops(tmp_path, {"max_rounds": 20, "threshold": "accuracy", "test_fraction": 0.25})
    job = read_job(paths["together"])
    first = run_vertical_job(job, tmp_path, tmp_path / "first")  # type: ignore[arg-type]
    table = tmp_path / "bank" / "table.csv"
    lines = table.read_text().splitlines()
    place = lines[0].split(",").index("id")
    out = held_out([line.split(",")[place] for line in lines[1:]], 0.25, 0)
    swapped = [
        line.replace("yes", "?").replace("no", "yes").replace("?", "no") if away else line
        for line, away in zip(lines[1:], out, strict=True)
    ]
    table.write_text("\n".join([lines[0], *swapped]) + "\n")
    second = run_vertical_job(job, tmp_path, tmp_path / "second")  # type: ignore[arg-type]
    assert first.result["cut"] == second.result["cut"]
    assert first.result["quality"]["test"] != second.result["quality"]["test"]


def test_a_job_for_one_place_says_which_keys_move() -> None:
    parties = [
        {"name": "bank", "role": "active", "table": "bank.csv", "label": {"column": "repaid"}},
        {"name": "shop", "table": "shop.csv", "id": "customer"},
    ]
    with pytest.raises(JobError, match=r"Keep 'name', 'role' in each \[\[party\]\], and move its 'table', 'label'"):
        parse_federation_job({"job": {}, "party": parties}, "job.toml")
    clients = [{"name": "ghent", "table": "ghent.csv"}]
    with pytest.raises(JobError, match=r"Keep 'name' in each \[\[client\]\], and move its 'table' to \[party\]"):
        parse_federation_job({"job": {"split": "horizontal"}, "client": clients}, "job.toml")
