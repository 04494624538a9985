"""Wrong inputs, one line each: a message that names what is wrong, the documented exit code, nothing left behind.

Whatever is wrong with a job is wrong for `train` and for `check`: both are tried.
"""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
from support import hospitals, tables

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Path_ = tuple[str | int, ...]

GONE = object()


def places(one: Any) -> str | None:
    """Names of cases that are the same in every process: of objects the number of the case must do."""
    return str(one)[:40] if isinstance(one, (str, tuple)) else None


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good tables, and a finished run of each split."""
    folder = tmp_path_factory.mktemp("ground")
    small = tables.SmallJob(folder / "vertical")
    small.content["job"]["max_rounds"] = 2
    small.run()
    hospitals.HospitalJob(folder / "horizontal").run()
    (folder / "unfinished").mkdir()
    (folder / "empty").mkdir()
    (folder / "taken").mkdir()
    (folder / "taken" / "file.txt").write_text("mine")
    (folder / "not.toml").write_text("[job\nsolver = ")
    (folder / "empty.toml").write_text("")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "list.toml").write_text('job = ["a"]\n')
    return folder


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    before = tables.files(ground)
    yield
    assert tables.files(ground) == before
    assert list(work.rglob("*")) == []


def refused(done: subprocess.CompletedProcess[str], code: int, message: str) -> None:
    assert (done.returncode, message in done.stderr) == (code, True), f"{done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr + done.stdout
    assert len(done.stderr) < 2000


def put(content: Any, path: Path_, value: Any) -> None:
    """Change a value deep in a job's content; GONE takes it out."""
    for part in path[:-1]:
        content = content[part] if isinstance(content, list) else content.setdefault(part, {})
    if value is GONE:
        del content[path[-1]]
    else:
        content[path[-1]] = value


BANK, SHOP = ("party", 0), ("party", 1)
EO = "equal-opportunity"
VERTICAL: list[tuple[Path_, Any, str]] = [
    (("jbo",), {}, "unknown key jbo"),
    (("job", "solvr"), "auto", "unknown key job.solvr; did you mean 'solver'?"),
    (("job", "solver"), "magic", "magic"),
    (("job", "solver"), 3, "key job.solver: Input should be a valid string (it is 3)"),
    (("job", "solver"), "sqp", "sqp"),
    (("job", "split"), "diagonal", "key job.split is 'diagonal'"),
    (("job", "split"), "horizontal", "key data is missing"),
    (("job", "model"), "forest", "key job.model"),
    (("job", "max_rounds"), 0, "max_rounds"),
    (("job", "max_rounds"), "many", "key job.max_rounds"),
    (("job", "max_rounds"), 2.5, "key job.max_rounds"),
    (("job", "tol"), -1.0, "tol"),
    (("job", "tol"), "small", "key job.tol"),
    (("job", "alpha"), -0.5, "alpha"),
    (("job", "alpha"), float("nan"), "alpha"),
    (("job", "seed"), -1, "key job.seed"),
    (("job", "test_fraction"), 1.0, "key job.test_fraction"),
    (("job", "test_fraction"), -0.1, "key job.test_fraction"),
    (("job", "test_fraction"), 0.999999, "holds out all"),
    (("job", "test_fraction"), 0.00001, "holds out none"),
    (("job", "model"), {"kind": "mlp", "hidden": [0]}, "hidden"),
    (("job", "model"), {"kind": "mlp", "hidden": "wide"}, "job.model: hidden"),
    (("job", "scale"), "yes", "key job.scale"),
    (("job", "model"), {"kind": "linear", "fit_intercept": 1}, "job.model: fit_intercept"),
    (("job", "runtime"), "cloud", "key job.runtime"),
    (("job", "ids"), "outer", "key job.ids"),
    (("job", "options"), {"stpe": 1.0}, "has no option 'stpe'; did you mean 'step'?"),
    (("job", "options"), {"step": "fast"}, "step"),
    (("job", "options"), {"step": -1.0}, "step"),
    (("job", "options"), [1], "key job.options"),
    (("job", "constraint"), {"kind": "fair"}, "job.constraint.kind is 'fair'; choose one of"),
    (("job", "constraint"), {}, "job.constraint.kind is None"),
    (("job", "constraint"), "fair", "Input should be a table"),
    (("job", "constraint"), {"kind": EO, "epsilon": -0.1}, "epsilon"),
    (("job", "constraint"), {"kind": EO, "epsilon": "small"}, "job.constraint: epsilon is 'small'"),
    (("job", "constraint"), {"kind": EO, "epsilon": float("inf")}, "epsilon"),
    (("job", "constraint"), {"kind": EO, "measure": "luck"}, "measure"),
    (("job", "constraint"), {"kind": EO, "eps": 0.1}, "has no option 'eps'; did you mean 'epsilon'?"),
    (("job", "constraint"), {"kind": EO, "confidence": 1.5}, "confidence"),
    (("job", "constraint"), {"kind": EO, "temperature": 0.0}, "temperature"),
    (("job", "constraint"), [{"kind": EO}, {"kind": "no"}], "kind is 'no'"),
    (("clock",), {"speed": 0.0}, "speed"),
    (("clock",), {"latency": -1.0}, "latency"),
    (("clock",), {"speeds": {"shpo": 1.0}}, "did you mean 'shop'?"),
    (("clock",), {"sped": 1.0}, "unknown key clock.sped"),
    (("party",), [], "a job needs at least one party"),
    (("party",), GONE, "a job needs at least one party"),
    (("party",), "bank", "party"),
    (("client",), [{"name": "a"}], "[[client]] needs"),
    ((*SHOP, "name"), GONE, "key party.1.name is missing"),
    ((*SHOP, "name"), "bank", "two parties are called 'bank'"),
    ((*SHOP, "name"), "", "key party.1.name"),
    ((*SHOP, "name"), "../shop", "key party.1.name"),
    ((*SHOP, "name"), "server", "key party.1.name"),
    ((*SHOP, "name"), 7, "key party.1.name"),
    ((*SHOP, "id"), GONE, "key party.1.id is missing"),
    ((*SHOP, "id"), "custmer", "no column 'custmer'"),
    ((*SHOP, "table"), GONE, "party 'shop': a table comes from either a file (table) or a database"),
    ((*SHOP, "table"), "nowhere.csv", "party 'shop': there is no file"),
    ((*SHOP, "table"), "shop.xlsx", "there is no file"),
    ((*SHOP, "table"), "*.csv", "looks like a pattern"),
    ((*SHOP, "table"), "https://example.org/shop.csv", "is an address"),
    ((*SHOP, "table"), ".", "is not a file"),
    ((*SHOP, "table"), "job.toml", "cannot tell the format from '.toml'"),
    ((*SHOP, "database"), "sqlite:///none.db", "give one of the two"),
    ((*SHOP, "sql"), "select 1", "sql goes with a database"),
    ((*SHOP, "role"), "lazy", "key party.1.role"),
    ((*SHOP, "label"), {"column": "visits"}, "2 parties have a label; exactly one must"),
    ((*SHOP, "sensitive"), ["visits"], "only the party with the label may"),
    ((*SHOP, "weight"), "visits", "party 'shop' names a weight; only the party with the label may"),
    ((*BANK, "weight"), "nothing", "weight column 'nothing' is not in the table"),
    ((*BANK, "weight"), 2, "key party.0.weight"),
    ((*SHOP, "columns"), [], "columns is empty"),
    ((*SHOP, "columns"), ["spnt"], "no column 'spnt'"),
    ((*SHOP, "columns"), ["spent", "spent"], "columns lists 'spent' twice"),
    ((*SHOP, "columns"), ["customer"], "columns lists the id 'customer'"),
    ((*SHOP, "first_index"), 0, "first_index is only for tables in LIBSVM format"),
    ((*SHOP, "types"), {"spent": "words"}, "key party.1.types.spent"),
    ((*SHOP, "types"), {"customer": "number"}, "types names 'customer', which is not a feature"),
    ((*SHOP, "types"), {"spent": "date"}, "column 'spent' holds number values, no dates"),
    ((*SHOP, "types"), {"spent": "leave out", "visits": "leave out"}, "no feature columns are left"),
    ((*SHOP, "missing"), "drop", "key party.1.missing"),
    ((*SHOP, "missing"), {"spent": "drop"}, "key party.1.missing"),
    ((*SHOP, "max_levels"), 0, "key party.1.max_levels"),
    ((*SHOP, "encoding"), "klingon", "encoding is 'klingon', which is unknown"),
    ((*SHOP, "delimiter"), ";;", "delimiter is ';;'"),
    ((*SHOP, "delimiter"), ";", "there is 'customer,spent,visits'"),
    ((*SHOP, "decimal"), "'", "key party.1.decimal"),
    ((*BANK, "label"), GONE, "0 parties have a label"),
    ((*BANK, "label"), {"column": "outcme"}, "label column 'outcme' is not in the table"),
    ((*BANK, "label"), {"column": "city"}, "has 3 different values"),
    ((*BANK, "label"), {"column": "outcome", "positive": "paid"}, "positive is 'paid', the values are"),
    ((*BANK, "label"), {"column": "outcome", "positive": [1]}, "key party.0.label.positive"),
    ((*BANK, "label"), {"positive": "repaid"}, "key party.0.label.column is missing"),
    ((*BANK, "label"), "outcome", "key party.0.label"),
    ((*BANK, "role"), "passive", 'its role must be "active"'),
    ((*BANK, "sensitive"), ["sx"], "no sensitive column 'sx'"),
    ((*BANK, "sensitive"), ["outcome"], "sensitive lists the label 'outcome'"),
    ((*BANK, "sensitive"), ["sex", "sex"], "sensitive lists 'sex' twice"),
    ((*BANK, "sensitive"), [], "compares groups"),
    ((*BANK, "columns"), ["outcome"], "columns lists the label 'outcome'; a model must not use it as a feature"),
]


@pytest.mark.parametrize(("path", "value", "message"), VERTICAL, ids=places)
def test_vertical_jobs(path: Path_, value: Any, message: str, ground: Path, here: Command, tmp_path: Path) -> None:
    content = copy.deepcopy(tables.job_content())
    for party in content["party"]:
        party["table"] = str(ground / "vertical" / party["table"])
    put(content, path, value)
    _both(here, tmp_path, content, message)


def _both(here: Command, tmp_path: Path, content: Any, message: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(tomli_w.dumps(content), encoding="utf-8")
    refused(here("check", job), 2, message)
    refused(here("train", job), 2, message)


HORIZONTAL: list[tuple[Path_, Any, str]] = [
    (("data",), GONE, "key data is missing"),
    (("data", "label"), GONE, "key data.label is missing"),
    (("data", "label"), {"column": "ward"}, "different values over all clients"),
    (("data", "label"), {"column": "nope"}, "no column 'nope'"),
    (("data", "label"), {"column": "outcome", "positive": "sick"}, "positive is 'sick'"),
    (("data", "sensitive"), ["sexx"], "'sexx'"),
    (("data", "sensitive"), [], "name the columns in data.sensitive"),
    (("data", "sensitive"), "sex", "key data.sensitive"),
    (("data", "columns"), ["age", "hair"], "'hair'"),
    (("data", "columns"), ["age", "age"], "columns lists 'age' twice"),
    (("data", "columns"), ["outcome"], "a model must not use it as a feature"),
    (("data", "id"), "nobody", "no column 'nobody'"),
    (("data", "id"), "ward", "occur more than once"),
    (("data", "encoder"), "none.json", "holds no encoder"),
    (("data", "groups"), {"sex": ["female"]}, "list each of two or more groups once"),
    (("data", "groups"), {"hair": ["red", "grey"]}, "data.groups has 'hair'"),
    (("data", "groups"), {"sex": ["female", "other"]}, "not among the agreed groups"),
    (("data", "missing"), "ignore", "key data.missing"),
    (("data", "types"), {"sex": "number"}, "types names 'sex'"),
    (("data", "types"), {"ward": "number"}, "and no numbers; types says it does"),
    (("job", "solver"), "subspace", "subspace"),
    (("job", "scope"), "nowhere", "key job.scope"),
    (("job", "missing_slices"), "guess", "key job.missing_slices"),
    (("job", "model"), "resnet", "key job.model"),
    (("job", "preset"), "best", "preset"),
    (("job", "tol"), -1.0, "tol"),
    (("job", "max_rounds"), -5, "max_rounds"),
    (("job", "options"), {"speed": 1}, "has no option 'speed'"),
    (("client", 0, "name"), "lyon", "two clients are called 'lyon'"),
    (("client", 0, "name"), "a/b", "key client.0.name"),
    (("client", 0, "table"), "none.csv", "client 'ghent': there is no file"),
    (("client", 0, "table"), "rows.libsvm", "tables of horizontal jobs need column names"),
    (("client", 0, "limit"), 0.1, "limit"),
    (("client", 0, "weight"), 2, "unknown key client.0.weight"),
    (("client",), [], "a job needs at least one client"),
    (("server",), {"limit": 0.1, "rows": 3}, "unknown key server.rows"),
    (("server",), {"table": "none.csv"}, "there is no file"),
    (("privacy",), {"mechanism": "luck"}, "key privacy.mechanism"),
    (("privacy",), {"mechanism": "gaussian"}, "privacy.weight_noise is missing"),
    (("privacy",), {"mechanism": "clipped-gaussian"}, "privacy.clip is missing"),
    (("privacy",), {"mechanism": "clipped-gaussian", "clip": 1.0}, "noise_multiplier or privacy.epsilon"),
    (("privacy",), {"mechanism": "gaussian", "weight_noise": 1.0, "clip": 1.0}, "privacy.clip is not used with"),
    (("privacy",), {"mechanism": "gaussian", "weight_noise": 1.0, "delta": 2.0}, "key privacy.delta"),
]


@pytest.mark.parametrize(("path", "value", "message"), HORIZONTAL, ids=places)
def test_horizontal_jobs(path: Path_, value: Any, message: str, ground: Path, here: Command, tmp_path: Path) -> None:
    content = copy.deepcopy(hospitals.job_content())
    for client in content["client"]:
        client["table"] = str(ground / "horizontal" / client["table"])
    put(content, path, value)
    _both(here, tmp_path, content, message)


Frame = pd.DataFrame
TABLES: list[tuple[str, Callable[[Frame], Frame] | bytes, str]] = [
    ("shop", lambda one: one.iloc[:0], "gives no rows"),
    ("shop", lambda one: one.iloc[:-3], "shop lacks 3 of bank's 120 ids"),
    ("shop", lambda one: pd.concat([one, one.iloc[:2]]), "occur more than once"),
    ("shop", lambda one: one.set_axis([None, *one.index[1:]]).rename_axis("customer"), "1 of 120 rows have no"),
    ("shop", lambda one: one.set_axis(range(len(one))).rename_axis("customer"), "lacks"),
    ("shop", lambda one: one.assign(spent=1e308 * (-1) ** one["visits"]), "too large to standardise"),
    ("shop", lambda one: one[[]], "no feature columns are left"),
    ("bank", lambda one: one.assign(outcome="repaid"), "has 1 different values"),
    ("bank", lambda one: one.assign(outcome=one["outcome"].where(one["age"] > 30)), "missing values; drop those rows"),
    ("bank", lambda one: one.assign(sex="female"), "one group"),
    ("bank", lambda one: one.assign(sex=one["sex"].where(one["age"] > 30)), "missing"),
    ("bank", lambda one: one.assign(outcome=range(len(one))), "has 120 different values"),
    ("shop", b"", "is empty"),
    ("shop", b"customer,spent\n", "gives no rows"),
    ("shop", b"customer,spent,spent\nc0000,1,2\n", "more than once"),
    ("shop", b"customer,,visits\nc0000,1,2\n", "column 2 has no name"),
    ("shop", b"customer,spent\nc0000,1,2\n", "line 2: 3 cells where the header has 2"),
    ("shop", b'customer,spent\n"c0000,1\n', "never closed"),
    ("shop", b"customer,spent\nc0000,\xff\n", "is not UTF-8"),
    ("shop", b"\x00\x01\x02", "shop"),
]


@pytest.mark.parametrize(("name", "change", "message"), TABLES, ids=places)
def test_tables(
    name: str, change: Callable[[Frame], Frame] | bytes, message: str, ground: Path, here: Command, tmp_path: Path
) -> None:
    content = copy.deepcopy(tables.job_content())
    for party in content["party"]:
        party["table"] = str((tmp_path if party["name"] == name else ground / "vertical") / party["table"])
    if isinstance(change, bytes):
        (tmp_path / f"{name}.csv").write_bytes(change)
    else:
        change(tables.people()[name]).to_csv(tmp_path / f"{name}.csv")
    _both(here, tmp_path, content, message)


LINES: list[tuple[str, int, str]] = [
    ("train", 2, "Missing argument"),
    ("trian job.toml", 2, "No such command"),
    ("train none.toml", 2, "there is no job file none.toml"),
    ("train {ground}", 2, "there is no job file"),
    ("train {ground}/not.toml", 2, "not valid TOML"),
    ("train {ground}/empty.toml", 2, "a job needs at least one party"),
    ("train {ground}/binary.toml", 2, "not valid TOML"),
    ("train {ground}/list.toml", 2, "key job"),
    ("train {ground}/vertical/job.toml --out {ground}/taken", 4, "exists and is not empty"),
    ("train {ground}/vertical/job.toml --out {ground}/vertical/run", 4, "exists and is not empty"),
    ("train {ground}/vertical/job.toml --out {ground}/not.toml", 4, "not.toml"),
    ("train {ground}/vertical/job.toml --resume", 2, "--resume needs --out"),
    ("train {ground}/vertical/job.toml --checkpoint-seconds -1", 2, "--checkpoint-seconds"),
    ("train {ground}/vertical/job.toml --checkpoint-seconds soon", 2, "--checkpoint-seconds"),
    ("train {ground}/vertical/job.toml --fast", 2, "No such option"),
    ("train {ground}/horizontal/job.toml --out {ground}/vertical/run --resume", 4, "another job file"),
    ("check", 2, "Missing argument"),
    ("check none.toml", 2, "there is no job file"),
    ("check {ground}/not.toml", 2, "not valid TOML"),
    ("init", 2, "name the tables"),
    ("init none.csv", 2, "there is no file none.csv"),
    ("init {ground}/taken/file.txt", 2, "cannot tell the format"),
    ("init {ground}/vertical/bank.csv --out {ground}/not.toml", 2, "exists"),
    ("init {ground}/vertical/bank.csv --out no/where.toml", 2, "the folder no for where.toml does not exist"),
    ("init {ground}/vertical/bank.csv --label nothing", 2, "no table has such a column"),
    ("init {ground}/vertical/bank.csv --sensitive nothing", 2, "bank has no column 'nothing'"),
    ("init {ground}/vertical/bank.csv --split both", 2, "choose vertical or horizontal"),
    ("init {ground}/vertical/shop.csv", 2, "name it with --label"),
    ("init {ground}/vertical/bank.csv {ground}/vertical/bank.csv", 2, "two files are named 'bank'"),
    ("init {ground}/vertical/bank.csv {ground}/horizontal/lyon.csv", 2, "--id bank=COLUMN"),
    ("predict", 2, "Missing argument"),
    ("predict none", 4, "is not a run folder"),
    ("predict {ground}/empty", 4, "is not a run folder"),
    ("predict {ground}/vertical/run --out scores.xlsx", 2, "must end in .csv or .parquet"),
    ("predict {ground}/vertical/run --out no/scores.csv", 2, "the folder no does not exist"),
    ("predict {ground}/vertical/run --out {ground}/vertical/bank.csv", 2, "exists"),
    ("predict {ground}/vertical/run --table bank", 2, "write it as NAME=FILE"),
    ("predict {ground}/vertical/run --table bank=none.csv", 2, "there is no file"),
    ("predict {ground}/vertical/run --table bnk={ground}/vertical/bank.csv", 2, "no party is called 'bnk'"),
    ("predict {ground}/vertical/run --table bank={ground}/vertical/shop.csv", 2, "no column"),
    ("predict {ground}/vertical/run --job none.toml", 2, "there is no job file"),
    ("predict {ground}/vertical/run --job {ground}/horizontal/job.toml", 2, "its split differs from that of the run"),
    ("predict {ground}/horizontal/run --table x={ground}/vertical/shop.csv", 2, "client 'x'"),
    ("report", 2, "Missing argument"),
    ("report none", 4, "none"),
    ("report {ground}/vertical/run --out {ground}/not.toml", 2, "exists"),
    ("report {ground}/vertical/run --out no/page.html", 2, "the folder no for page.html does not exist"),
    ("watch none", 4, "none"),
    ("audit none", 4, "none"),
    ("audit {ground}/not.toml", 2, "is a file"),
    ("frontier none.toml", 2, "there is no job file"),
    ("frontier {ground}/vertical/job.toml --epsilon -1", 2, "--epsilon"),
    ("data", 2, "Missing command"),
    ("data fetch nothing", 2, "nothing"),
    ("data example nothing", 2, "there is no example 'nothing'"),
    ("data example lending --out {ground}/vertical", 2, "bank.csv exists"),
    ("federation provision none.toml", 2, "there is no file of a federation none.toml"),
    ("federation submit none.toml --kit none", 2, "none.toml"),
    ("demo --epsilon -1", 2, "--epsilon"),
    ("demo --out {ground}/taken", 4, "exists and is not empty"),
]


@pytest.mark.parametrize(("line", "code", "message"), LINES, ids=[line[:60] for line, _, _ in LINES])
def test_command_lines(line: str, code: int, message: str, ground: Path, here: Command) -> None:
    refused(here(*line.format(ground=ground).split()), code, message)


def test_there_are_a_hundred_and_fifty() -> None:
    assert len(VERTICAL) + len(HORIZONTAL) + len(TABLES) + len(LINES) >= 150
