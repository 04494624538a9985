"""`evenhand train`: help, exit codes, what it prints, and runs that are killed and go on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from support.tables import SmallJob, files, outcome, write_postgres

from evenhand.cli import train
from evenhand.errors import FELL_SHORT, EvenhandError


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path)


def assert_one_message(done: subprocess.CompletedProcess[str]) -> None:
    """An error is one message on stderr: nothing on stdout, no traceback."""
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["train"], ["predict"], ["demo"], ["data", "list"], ["data", "fetch"]])
def test_help_has_examples(here: Any, command: list[str]) -> None:
    done = here(*command, "--help")
    assert done.returncode == 0
    name = " ".join(command)
    assert re.search(rf"Examples?:\s+evenhand {name}", done.stdout), done.stdout


def test_help_of_the_whole_lists_commands_and_exit_codes(evenhand: Any) -> None:
    done = evenhand("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("demo", "train", "predict", "data", "Exit codes"):
        assert word in done.stdout
    codes = {int(code) for code in re.findall(r"\b(\d+)\s+\w", done.stdout.partition("Exit codes:")[2])}
    raised = {kind.exit_code for kind in _all_errors(EvenhandError) if kind is not EvenhandError}
    assert {0, FELL_SHORT, 130} | raised <= codes


def _all_errors(kind: type[EvenhandError]) -> set[type[EvenhandError]]:
    return {kind}.union(*(_all_errors(child) for child in kind.__subclasses__()))


def test_training_prints_tables_and_the_run_folder_last(evenhand: Any, here: Any, small: SmallJob) -> None:
    path = small.write()
    done = evenhand("train", "job.toml", "--out", "runs/monday", cwd=small.folder)
    # Twenty rounds do not reach a tolerance of zero: the last line says so, and the exit code.
    assert done.returncode == FELL_SHORT, done.stderr
    assert done.stdout.splitlines()[-1] == "runs/monday"
    assert done.stderr.splitlines()[-1].startswith("fell short: the solver did not converge in 20 rounds")
    for word in (
        "quality on test rows",
        "accuracy",
        "95 % interval",
        "± s.e.",
        "≤ 95 %",
        "where it is tightest",
        "DEO",
        "DFP",
        "DFN",
        "FR",
        "HM",
        "rounds",
        "bytes",
        "certificate",
    ):
        assert word in done.stdout
    # Progress goes to stderr.
    assert "20/20" in done.stderr
    assert (small.folder / "runs" / "monday" / "result.json").is_file()

    again = here("train", path, "--out", small.folder / "runs" / "monday")
    assert again.returncode == 4
    assert_one_message(again)
    assert "exists and is not empty" in again.stderr


def test_training_that_converges_and_tells_rows_apart_ends_with_zero(here: Any, small: SmallJob) -> None:
    small.content["job"] |= {"solver": "subspace", "options": {}, "max_rounds": 1000, "tol": 1e-4}
    done = here("train", small.write(), "--out", small.folder / "run")
    assert done.returncode == 0
    assert "fell short" not in done.stderr
    assert json.loads((small.folder / "run" / "result.json").read_text())["shortfalls"] == []


def test_one_label_for_every_row_is_told_by_the_last_line_and_the_exit_code(here: Any, small: SmallJob) -> None:
    # So strong a regulariser leaves nothing but the intercept.
    small.content["job"] |= {"solver": "subspace", "options": {}, "max_rounds": 1000, "tol": 1e-4, "alpha": 1e6}
    del small.content["job"]["constraint"]
    done = here("train", small.write(), "--out", small.folder / "run", "-q")
    assert done.returncode == FELL_SHORT
    assert re.match(r"fell short: the model gives all \d+ rows the same label, ", done.stderr.splitlines()[-1])
    again = here("train", small.path, "--out", small.folder / "run", "-q", "--resume")
    assert (again.returncode, again.stderr.splitlines()[-1]) == (FELL_SHORT, done.stderr.splitlines()[-1])


def test_quiet_prints_the_run_folder_alone(here: Any, small: SmallJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.folder)
    small.write()
    done = here("train", "job.toml", "--quiet")
    assert done.returncode == FELL_SHORT
    assert len(done.stderr.splitlines()) == 1, "only what it falls short of"
    # The folder has a name of its own where none is given.
    assert re.fullmatch(r"runs/job-\d{8}-\d{6}\n", done.stdout)
    assert (small.folder / done.stdout.strip() / "result.json").is_file()


def test_brackets_and_colons_in_paths_survive(here: Any, tmp_path: Path) -> None:
    path, out = SmallJob(tmp_path).write(), tmp_path / "[bold]x[/bold] \\[y] :smile:"
    assert here("train", path, "--out", out, "-q").stdout == f"{out}\n"
    assert f"{out} exists" in here("train", path, "--out", out).stderr


def unknown_key(small: SmallJob) -> None:
    small.content["job"]["solvr"] = "x"


def missing_table(small: SmallJob) -> None:
    small.party("shop")["table"] = "none.csv"


def negative_epsilon(small: SmallJob) -> None:
    small.content["job"]["constraint"]["epsilon"] = -1.0


def diverging(small: SmallJob) -> None:
    small.content["job"] |= {"options": {"step": 1e200}, "max_rounds": 50}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (unknown_key, 2, ["job.toml: unknown key job.solvr", "did you mean 'solver'?"]),
        (negative_epsilon, 2, ["job.toml: job.constraint: epsilon is -1.0"]),
        (missing_table, 2, ["party 'shop': there is no file"]),
        (diverging, 6, ["smaller step"]),
    ],
)
def test_an_error_is_one_message_and_its_code(
    here: Any, small: SmallJob, change: Callable[[SmallJob], None], code: int, words: list[str]
) -> None:
    change(small)
    done = here("train", small.write(), "--out", small.folder / "run", "-q")
    assert done.returncode == code
    assert_one_message(done)
    assert all(word in done.stderr for word in words), done.stderr
    assert not (small.folder / "run").exists()


def test_wrong_arguments_are_refused(here: Any, small: SmallJob) -> None:
    path = small.write()
    assert here("train").returncode == 2
    assert here("train", path, "--checkpoint-seconds", "-1").returncode == 2
    assert here("trian", path).returncode == 2
    done = here("train", path, "--resume")
    assert done.returncode == 2
    assert "--resume needs --out" in done.stderr
    done = here("train", path, "--resume", "--out", small.folder / "nwe")
    assert "there is no run in" in done.stderr
    done = here("train", small.folder / "none.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no job file" in done.stderr


def test_a_database_password_is_shown_nowhere(here: Any, small: SmallJob, postgres_url: str) -> None:
    shop = small.party("shop")
    del shop["table"]
    shop |= {"database": postgres_url, "sql": write_postgres(postgres_url, "shop", small.frames["shop"])}
    written = urlsplit(postgres_url).password
    assert written
    path, out = small.write(), small.folder / "run"
    done = here("train", path, "--out", out)
    assert done.returncode == FELL_SHORT, done.stderr
    shop["sql"] = "select * from nowhere"
    failed = here("train", small.write(), "--out", small.folder / "failed")
    assert failed.returncode == 2
    assert "nowhere" in failed.stderr
    said = done.stdout + done.stderr + failed.stdout + failed.stderr
    for secret in (written, unquote(written)):
        assert secret not in said
        for name, content in files(out).items():
            assert secret.encode() not in content, name


# -- interrupted


def lines(out: Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    while not reached():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def test_killed_runs_end_where_an_uninterrupted_one_does(start: Any, evenhand: Any, small: SmallJob) -> None:
    # So many rounds that the run cannot end between the sight of a line and the signal.
    small.content["job"] |= {"max_rounds": 400, "tol": 0.0}
    whole = small.run("whole")
    path, out = small.path, small.folder / "run"

    def interrupt(reached: Callable[[], bool], how: signal.Signals) -> subprocess.Popen[str]:
        again = ["--resume"] if out.exists() else []
        process = start("train", path, "--out", out, "--checkpoint-seconds", 0, *again, "-q")
        wait_for(process, reached)
        process.send_signal(how)
        process.wait()
        return process

    # As soon as there is a folder, then in the midst of rounds, each time further on.
    assert interrupt(out.exists, signal.SIGKILL).returncode == -signal.SIGKILL
    assert interrupt(lambda: lines(out) > 20, signal.SIGKILL).returncode == -signal.SIGKILL
    asked = interrupt(lambda: lines(out) > 80, signal.SIGINT)
    assert asked.returncode == 130
    message = asked.stderr.read()  # type: ignore[union-attr]
    assert f"interrupted; resume with: evenhand train {path} --out {out} --resume" in message
    assert "Traceback" not in message
    assert lines(out) < 400

    last = evenhand("train", path, "--out", out, "--resume", "-q")
    assert last.returncode == FELL_SHORT, last.stderr
    assert outcome(out) == outcome(whole.folder.path)


def test_an_interrupt_is_told_even_when_quiet(
    here: Any, small: SmallJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "run_with_progress", interrupted)
    done = here("train", small.write(), "--out", tmp_path / "my run", "-q")
    assert done.returncode == 130
    assert f"--out '{tmp_path / 'my run'}' --resume" in done.stderr
