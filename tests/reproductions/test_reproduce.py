"""Tiny versions of every reproduction, the registry, and the command's refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.data import load
from evenhand.errors import InputError
from evenhand_reproductions import REPRODUCTIONS, convergence, experiments, find, postprocessing
from evenhand_reproductions.experiments import FairVFLProblem, Fit
from evenhand_reproductions.fairvfl import fig1, neural, table2
from evenhand_reproductions.papers import FIRST_TABLE1, TABLE1, TABLE2, fair
from evenhand_reproductions.recording import Making, Recorded, as_written
from evenhand_reproductions.settings import Settings
from evenhand_reproductions.writing import runs_of

# A grid of two settings has nothing but edges.
pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.GridEdgeWarning")

FAIRVFL = [name for name in REPRODUCTIONS if name.startswith("fairvfl")]
SETS = dict.fromkeys(FAIRVFL, "compas") | {"fairvfl-table2": "communities-crime"}


@pytest.mark.parametrize("name", FAIRVFL)
def test_a_tiny_reproduction_leaves_page_records_and_figure(name: str, tiny: Any) -> None:
    if name == "fairvfl-table2":
        pytest.importorskip("torch")
    folder = tiny(name, SETS[name])
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert f"    python -m evenhand_reproductions {name} --as-asked\n" in text
    assert "## What was run" in text
    assert "numpy" in text
    assert "nan" not in text
    figure = "fig" in name or name in ("fairvfl-table2", "fairvfl-learners", "fairvfl-theorem", "fairvfl-async")
    expected = {f"{name}.md", f"{name}.json"} | ({f"{name}.png"} if figure else set())
    assert {path.name for path in folder.iterdir()} == expected
    records = json.loads((folder / f"{name}.json").read_text())["records"]
    assert {record["set"] for record in records} == {SETS[name]}
    assert {record["seed"] for record in records} == {10}
    if figure:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "paper"), [("fairvfl-table1", TABLE1), ("fairvfl-v1-table1", FIRST_TABLE1)])
def test_a_table_has_the_papers_numbers_beside_ours(name: str, paper: Any, tiny: Any) -> None:
    folder = tiny(name, SETS[name])
    lines = (folder / f"{name}.md").read_text(encoding="utf-8").splitlines()
    records = pd.DataFrame(json.loads((folder / f"{name}.json").read_text())["records"]).set_index("method")
    for method, rows in paper.items():
        cells = next(line for line in lines if line.startswith(f"| {method} |")).strip("| ").split(" | ")
        assert [float(cell) for cell in cells[2:7:2]] == list(rows[SETS[name]])
        assert float(cells[1]) == pytest.approx(100 * records.at[method, "accuracy"], abs=0.06)


def test_the_command_runs_and_rewrites(command: Any, sets_folder: Path, tmp_path: Path) -> None:
    options = ["--runs", 1, "--rounds", 5, "--set", "compas"]
    code, out, errors = command("fairvfl-fig1", *options, "--source", sets_folder, "--out", tmp_path)
    assert code == 0, errors
    assert out.split() == [str(tmp_path / f"fairvfl-fig1.{ending}") for ending in ("md", "json", "png")]
    text = (tmp_path / "fairvfl-fig1.md").read_text(encoding="utf-8")
    assert "    python -m evenhand_reproductions fairvfl-fig1 --runs 1 --rounds 5 --set compas\n" in text
    code, _, errors = command("fairvfl-fig1", "--rewrite", "--out", tmp_path)
    assert code == 0, errors
    assert (tmp_path / "fairvfl-fig1.md").read_text(encoding="utf-8") == text


@pytest.fixture
def two_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the figure's six levels: enough for what is kept, replaced and refused."""
    monkeypatch.setattr(fig1, "LEVELS", {name: fig1.LEVELS[name] for name in ("FedBCD", "ε=0.01")})


@pytest.mark.usefixtures("two_levels")
def test_a_part_run_again_takes_its_own_place_and_leaves_the_rest(
    command: Any, sets_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = ["fairvfl-fig1", "--runs", 1, "--rounds", 5, "--source", sets_folder]
    sets = ["--set", "compas", "--set", "communities-crime"]
    code, out, errors = command(*whole, *sets)
    assert code == 0, errors
    # A part never goes where the whole page is, unless it is sent there.
    assert not (tmp_path / "reproductions").exists()
    folder = tmp_path / "runs" / "reproductions"
    assert out.split()[0] == str(Path("runs/reproductions/fairvfl-fig1.md"))
    full = json.loads((folder / "fairvfl-fig1.json").read_text())
    code, _, errors = command(*whole, "--set", "communities-crime", "--out", folder)
    assert code == 0, errors
    again = json.loads((folder / "fairvfl-fig1.json").read_text())
    assert again["records"] == full["records"]
    part = ["python -m evenhand_reproductions fairvfl-fig1 --runs 1 --rounds 5 --set communities-crime"]
    assert [one["commands"] for one in again["made"]] == [full["made"][0]["commands"], part]
    assert [one["draws"] for one in again["made"]] == [{"compas": [10]}, {"communities-crime": [10]}]
    page = (folder / "fairvfl-fig1.md").read_text(encoding="utf-8")
    assert (
        "    python -m evenhand_reproductions fairvfl-fig1 --runs 1 --rounds 5 --set compas --set communities-crime\n"
        in page
    )
    assert f"    {part[0]}\n" in page
    assert " seconds in all, with runs that were replaced since.\n" in page
    code, _, _ = command(*whole, "--seed", 11, "--set", "compas", "--out", folder)
    more = json.loads((folder / "fairvfl-fig1.json").read_text())["records"]
    assert code == 0
    assert [record for record in more if record["seed"] == 10] == full["records"]
    assert {(record["set"], record["seed"]) for record in more if record["seed"] != 10} == {("compas", 11)}


def made(command: str, *seeds: int, version: str = "0.2.0", **constants: Any) -> Recorded:
    by = Making([command], 1.0, {"evenhand": version}, {"compas": list(seeds)})
    return Recorded([by], [{"set": "compas", "seed": seed} for seed in seeds], constants=constants)


def test_a_page_names_every_version_and_command_its_records_are_of_and_no_other() -> None:
    both = made("first", 10, 11, version="0.1.0").with_part(made("second", 11))
    assert both.versions == {"evenhand": ["0.1.0", "0.2.0"]}
    assert [(one.commands, one.draws, one.replaced) for one in both.made] == [
        (["first"], {"compas": [10]}, True),
        (["second"], {"compas": [11]}, False),
    ]
    after = both.with_part(made("third", 10))
    assert after.versions == {"evenhand": ["0.2.0"]}
    assert [one.commands for one in after.made] == [["second"], ["third"]]
    assert sum(one.seconds for one in after.made) == 2.0


def test_records_of_files_that_do_not_say_which_command_made_what(tmp_path: Path) -> None:
    records = [{"set": "compas", "seed": seed} for seed in (10, 11)]
    top = {"command": "first", "seconds": 3.0, "versions": {"evenhand": "0.1.0 and 0.2.0"}, "parts": ["second"]}
    (tmp_path / "old.json").write_text(json.dumps(top | {"records": records}))
    found = Recorded.read(tmp_path / "old.json")
    (one,) = found.made
    assert one.commands == ["first", "second"]
    assert one.draws == {"compas": [10, 11]}
    assert found.versions == {"evenhand": ["0.1.0", "0.2.0"]}
    found.write(tmp_path / "new.json")
    assert Recorded.read(tmp_path / "new.json") == found


@pytest.mark.usefixtures("two_levels")
def test_records_of_other_rounds_are_not_mixed(command: Any, sets_folder: Path, tmp_path: Path) -> None:
    asked = ["fairvfl-fig1", "--runs", 1, "--set", "compas", "--source", sets_folder, "--out", tmp_path]
    assert command(*asked, "--rounds", 5)[0] == 0
    before = (tmp_path / "fairvfl-fig1.json").read_bytes()
    code, _, errors = command(*asked, "--rounds", 6)
    assert code == 4
    assert "another number of rounds (5, now 6)" in errors
    assert (tmp_path / "fairvfl-fig1.json").read_bytes() == before


@pytest.mark.usefixtures("two_levels")
def test_records_of_other_settings_are_not_mixed(
    command: Any, sets_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["fairvfl-fig1", "--rounds", 5, "--set", "compas", "--source", sets_folder, "--out", tmp_path]
    assert command(*asked, "--runs", 2)[0] == 0
    before = (tmp_path / "fairvfl-fig1.json").read_bytes()
    steps = {**experiments.PUBLISHED, "dual_step": 0.2}
    monkeypatch.setattr(experiments, "PUBLISHED", steps)
    code, _, errors = command(*asked, "--runs", 1)
    assert code == 4
    assert "made with other settings (steps {" in errors.replace("\n", " ")
    assert "'dual_step': 0.1, 'damping': 0.001}, now {" in " ".join(errors.split())
    assert (tmp_path / "fairvfl-fig1.json").read_bytes() == before
    # All seeds anew, by their number or by asking for the whole set: nothing is left to disagree with.
    for more in (["--runs", 3], []):
        assert command(*asked, *more)[0] == 0
        after = json.loads((tmp_path / "fairvfl-fig1.json").read_text())
        assert after["constants"]["compas"]["steps"] == steps
        assert {record["seed"] for record in after["records"]} == (set(range(10, 13)) if more else {10})


def test_what_was_not_written_down_is_not_known_by_a_part_of_it() -> None:
    old, part = made("first", 10), made("second", 11, compas={"rows": 250})
    old.check_takes(Settings(runs=1, seed=11, sets=("compas",)), part.constants, Path("page.json"))
    assert old.with_part(part).constants == {}
    assert old.with_part(part, ["compas"]).constants == part.constants
    assert old.with_part(part, ["compas"]).records == part.records
    assert part.with_part(made("third", 12, compas={"rows": 250})).constants == part.constants


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ([10], "1 run (seed 10)"),
        ([12, 10, 11, 10], "3 runs (seeds 10-12)"),
        ([10, 12], "2 runs (seeds 10, 12)"),
    ],
)
def test_runs_are_said_as_they_are(seeds: list[int], said: str) -> None:
    assert runs_of(pd.Series(seeds)) == said


def curve(method: str, objectives: list[float], deo: float) -> pd.DataFrame:
    rounds = range(1, len(objectives) + 1)
    head = {"set": "compas", "level": "ε=0.01", "method": method, "seed": 10}
    return pd.DataFrame(
        [head | {"round": at, "objective": one, "DEO": deo} for at, one in zip(rounds, objectives, strict=True)]
    )


def test_a_curve_that_never_gets_as_low_as_the_slower_one_is_said_to() -> None:
    slow = curve("slow", [0.9, 0.8, 0.7, 0.6], 0.01)
    (line,) = convergence.first_below(pd.concat([slow, curve("fast", [0.7, 0.6, 0.5], 0.0)]), "ε=0.01", "slow", "fast")
    assert line.endswith("fast is there, or lower, by round 2, and ends at 0.5000.")
    (line,) = convergence.first_below(
        pd.concat([slow, curve("fast", [0.7, 0.61, 0.62], 0.0)]), "ε=0.01", "slow", "fast"
    )
    assert line == (
        "COMPAS, ε=0.01: slow ends at 0.6000 after 4 rounds; fast never gets as low: it is lowest at 0.6100, in round "
        "2, and ends at 0.6200 after 3, with a DEO of 0.0000 where slow has 0.0100."
    )


def neural_records(**objectives: tuple[float, float, float]) -> pd.DataFrame:
    """Of each method: the objective at the end and half way, and the DEO of the training rows."""
    names = ["FedBCD", table2.PLAIN, *map(fair, table2.EPSILONS), *map(table2.ours, table2.EPSILONS)]
    head = {"set": "compas", "seed": 10, "rounds": 50, "accuracy": 0.8, "train accuracy": 0.9}
    rows = []
    for name in names:
        end, half, deo = objectives.get(name, (0.5, 0.5, 0.005))
        rows.append(head | {"method": name, "objective": end, "half way": half, "train DEO": deo})
    return pd.DataFrame(rows)


def test_the_neural_table_says_which_gap_was_reached() -> None:
    (line,) = table2._ends(neural_records(**{fair(0.01): (0.4, 0.5, 0.01004), table2.ours(0.01): (0.4, 0.5, 0.0185)}))
    assert "FairVFL(ε=0.01) 0.4000 at a DEO of 0.0100 after 50 rounds" in line
    assert "Adam and penalty (ε=0.01) 0.4000 at a DEO of 0.0185 (above the bound) after 50 rounds" in line


def test_a_bound_that_ends_below_no_bound_is_explained() -> None:
    assert table2._below_free(neural_records()) == []
    (line,) = table2._below_free(neural_records(FedBCD=(0.5, 0.6, 0.1), **{fair(0.1): (0.45, 0.6, 0.1)}))
    assert "FairVFL(ε=0.1) ends at 0.4500, below FedBCD's 0.5000" in line
    assert "neither is at rest" in line
    assert "fell by 25.0 % and 16.7 %" in line
    (line,) = table2._below_free(neural_records(**{table2.ours(0.5): (0.45, 0.45, 0.1)}))
    assert "a network has many minima" in line


def test_bounds_are_compared_with_no_bound_on_the_same_seeds() -> None:
    first = neural_records(FedBCD=(0.5, 0.5, 0.1))
    later = neural_records(FedBCD=(0.7, 0.7, 0.1)).assign(seed=11)
    # The bound ends above FedBCD on its only seed, below FedBCD's mean of two.
    part = pd.concat([first, later[later["method"] == "FedBCD"]])
    assert table2._below_free(part) == []


def test_a_bound_that_the_free_fit_keeps_is_not_trained_again(sets_folder: Path) -> None:
    pytest.importorskip("torch")
    problem = experiments.make_problem(load("compas", source=sets_folder), "journal", 10)
    rounds = 6
    for train in (neural.steps, neural.adam):
        free = train(problem, experiments.NEVER_BINDS, rounds)
        largest = max(value for _, _, value in experiments.thinned(free))
        assert neural.bound_or_free(train, problem, 1.01 * largest, rounds, free) is free
        same = train(problem, 1.01 * largest, rounds)
        assert experiments.thinned(same) == experiments.thinned(free)
        other = neural.bound_or_free(train, problem, 0.5 * largest, rounds, free)
        assert experiments.thinned(other) != experiments.thinned(free)


def test_means_of_curves_are_of_rounds_that_all_runs_have() -> None:
    points = pd.concat([curve("slow", [0.9, 0.8, 0.7], 0.01), curve("slow", [0.9, 0.8], 0.01).assign(seed=11)])
    kept = convergence.in_all_runs(points)
    assert sorted(kept["round"]) == [1, 1, 2, 2]


def test_the_papers_tables_are_whole() -> None:
    for table in (TABLE1, TABLE2, FIRST_TABLE1):
        assert all(set(row) == {"adult", "compas", "communities-crime"} for row in table.values())
    assert TABLE1[fair(1e-3)]["adult"] == (81.41, 0.01, 0.08)
    assert TABLE2["FedBCD + CEO"]["compas"] == (64.44, 0.11, 0.13)
    assert FIRST_TABLE1[fair(0.01)]["communities-crime"] == (84.9, 94.4, 89.4)
    # HM is the harmonic mean of the two other columns, up to the runs' spread.
    for row in FIRST_TABLE1.values():
        assert all(2 * ac * fr / (ac + fr) == pytest.approx(hm, abs=0.25) for ac, fr, hm in row.values())


def test_registry() -> None:
    pytest.importorskip("torch", reason="some of the reproductions are of networks")
    for name, entry in REPRODUCTIONS.items():
        assert entry.name == name == find(name).name
        experiment = entry.load()
        assert callable(experiment.compute)
        assert callable(experiment.page)
        for one in entry.sets:
            constants = experiment.constants(one)
            assert constants
            assert as_written(as_written(constants)) == as_written(constants)
    with pytest.raises(InputError, match=r"no reproduction 'table9'; there is fairvfl-table1, "):
        find("table9")


def test_settings() -> None:
    assert Settings().draws({"adult": 1, "compas": 2, "communities-crime": 0}) == [
        ("adult", 10),
        ("compas", 10),
        ("compas", 11),
    ]
    assert Settings(runs=1, sets=("compas",), seed=3).draws(5) == [("compas", 3)]
    with pytest.raises(InputError, match="no set 'german' in the papers"):
        Settings(sets=("german",))


def test_the_command_lists_names_and_refuses_others(command: Any, tmp_path: Path) -> None:
    code, out, _ = command("--help")
    assert code == 0
    for name in REPRODUCTIONS:
        assert name in out
    code, _, errors = command("table9", "--out", tmp_path / "results")
    assert code == 2
    assert "fairvfl-v1-fig2" in errors
    code, _, errors = command("fairvfl-fig1", "--rewrite", "--out", tmp_path / "results")
    assert code == 4
    assert "run without --rewrite" in errors
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_sure_to_the_last_bit_is_post_processed_too() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice([-1, 1], size=80)
    # Chances of 1 - exp(-99) are 1 in double precision.
    scores = 99.0 * np.where(rng.random(80) < 0.1, -labels, labels)
    groups = pd.DataFrame({"sex": rng.choice(["f", "m"], size=80)})
    column = [scores[:, None]]
    problem = FairVFLProblem("compas", 10, False, column, column, labels, labels, groups, groups)

    class Sure:
        def decision_function(self, matrices: Any) -> Any:
            return matrices[0][:, 0]

    found = postprocessing.calibrated(problem, Fit(Sure(), 0.0))
    assert 0.0 < found["accuracy"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nothing"], "there is no reproduction 'nothing'"),
        (["fairvfl-table1", "--set", "moon"], "moon"),
        (["fairvfl-table1", "--runs", "0"], "--runs"),
    ],
)
def test_wrong_arguments_are_named_and_end_with_exit_code_2(command: Any, arguments: list[str], named: str) -> None:
    code, _, errors = command(*arguments)
    assert code == 2
    assert named in errors
