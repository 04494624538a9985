"""Run folders from outside: one training at a time, changed files told, nothing lost for want of disk or memory."""

from __future__ import annotations

import ast
import itertools
import json
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob, files, outcome

from evenhand.errors import FELL_SHORT
from evenhand.runtime.manifest import Manifest, entry

LONG = 150


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path)


def without_warnings(words: str) -> str:
    """What was told, but for the warning that so few rows say little about the bound, and so few rounds did not do."""
    expected = ("warning: too few rows", "fell short: the solver did not converge")
    return "".join(line for line in words.splitlines(keepends=True) if not line.startswith(expected))


def assert_refused(done: subprocess.CompletedProcess[str], code: int = 4) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert without_warnings(done.stderr).startswith("error: ")
    assert "Traceback" not in done.stderr


def wait_for_rounds(process: subprocess.Popen[str], out: Path, rounds: int) -> None:
    path = out / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") > rounds):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


# -- one training at a time


def test_a_second_training_is_refused_and_told_who_is_there(start: Any, here: Any, small: SmallJob) -> None:
    small.content["job"]["max_rounds"] = LONG
    whole, out = small.run("whole"), small.folder / "run"
    first = start("train", small.path, "--out", out, "--checkpoint-seconds", 0, "-q")
    wait_for_rounds(first, out, 5)
    # It may not end meanwhile.
    first.send_signal(signal.SIGSTOP)
    for resume in ([], ["--resume"]):
        second = here("train", small.path, "--out", out, "-q", *resume)
        assert_refused(second)
        assert (
            f"{out} is being written by another training (process {first.pid} on {socket.gethostname()}, since 2"
            in (second.stderr)
        )
    first.send_signal(signal.SIGCONT)
    assert without_warnings(first.communicate()[1]) == ""
    assert outcome(out) == outcome(whole.folder.path)


def test_of_two_that_begin_at_once_one_trains(start: Any, small: SmallJob) -> None:
    whole, out = small.run("whole"), small.folder / "run"
    both = [start("train", small.path, "--out", out, "--checkpoint-seconds", 0, "-q") for _ in range(2)]
    told = {without_warnings(process.communicate()[1]): process.returncode for process in both}
    assert sorted(told.values()) == [4, FELL_SHORT], told
    assert "" in told
    assert any(re.search("is being written by another training|exists and is not empty", words) for words in told)
    assert outcome(out) == outcome(whole.folder.path)


def test_a_killed_training_holds_nothing(start: Any, here: Any, small: SmallJob) -> None:
    small.content["job"]["max_rounds"] = LONG
    whole, out = small.run("whole"), small.folder / "run"
    first = start("train", small.path, "--out", out, "--checkpoint-seconds", 0, "-q")
    wait_for_rounds(first, out, 5)
    first.kill()
    first.wait()
    assert json.loads((out / "lock").read_text())["pid"] == first.pid
    done = here("train", small.path, "--out", out, "--resume", "-q")
    assert (done.returncode, without_warnings(done.stderr)) == (FELL_SHORT, "")
    assert outcome(out) == outcome(whole.folder.path)


# -- resuming what has finished


def test_resuming_a_finished_run_says_so_and_is_no_error(here: Any, small: SmallJob) -> None:
    small.run()
    before, out = files(small.folder / "run"), small.folder / "run"
    done = here("train", small.path, "--out", out, "--resume")
    assert (done.returncode, done.stdout) == (FELL_SHORT, f"{out}\n"), "as the run itself ended"
    assert without_warnings(done.stderr) == f"the run in {out} has already finished\n"
    assert files(out) == before
    small.content["job"]["max_rounds"] = 7
    assert_refused(here("train", small.write(), "--out", out, "--resume"))


# -- folders that were changed


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one job on different rows, vertical ones and horizontal ones."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        SmallJob(folder / f"vertical{seed}", seed=seed).run(folder / f"vertical-{seed}")
        HospitalJob(folder / f"horizontal{seed}", seed=seed).run(folder / f"horizontal-{seed}")
    return folder


def digit_of_a_mean(run: Path, other: Path) -> Path:
    [path, *_] = sorted(run.glob("*/shop/encoder.json")) or sorted(run.glob("model/encoder.json"))
    content = path.read_text()
    found = re.search(r'"means?": (?:\[\s*)?-?\d*(\d)', content)
    assert found is not None
    changed = content[: found.start(1)] + str((int(found[1]) + 1) % 10) + content[found.end(1) :]
    assert len(changed) == len(content)
    assert changed != content
    path.write_text(changed)
    return path


def weights_of_another_run(run: Path, other: Path) -> Path:
    [path, *_] = sorted(run.rglob("weights.safetensors"))
    shutil.copy(other / path.relative_to(run), path)
    return path


def weights_of_another_run_and_a_manifest_to_fit(run: Path, other: Path) -> Path:
    path = weights_of_another_run(run, other)
    manifest, name = Manifest.read(run), path.relative_to(run).as_posix()
    manifest.files[name] = entry(manifest.files[name].owner, path.read_bytes())
    manifest.write(run)
    return path


def weights_of_another_party(run: Path, other: Path) -> Path:
    shutil.copy(run / "parties" / "social" / "weights.safetensors", run / "parties" / "shop" / "weights.safetensors")
    return run / "parties" / "shop" / "weights.safetensors"


def description_without_its_last_section(run: Path, other: Path) -> Path:
    path = run / "run.toml"
    path.write_text(path.read_text().rpartition("[[")[0])
    return path


def labels_turned_around(run: Path, other: Path) -> Path:
    path = run / "result.json"
    path.write_text(
        path.read_text().replace('"negative"', '"x"').replace('"positive"', '"negative"').replace('"x"', '"positive"')
    )
    return path


def no_manifest(run: Path, other: Path) -> Path:
    (run / "manifest.json").unlink()
    return run / "manifest.json"


def manifest_of_another_run(run: Path, other: Path) -> Path:
    shutil.copy(other / "manifest.json", run / "manifest.json")
    return run


CHANGES = [
    digit_of_a_mean,
    weights_of_another_run,
    weights_of_another_run_and_a_manifest_to_fit,
    description_without_its_last_section,
    labels_turned_around,
    no_manifest,
    manifest_of_another_run,
]


@pytest.mark.parametrize(
    ("split", "change"),
    [*itertools.product(["vertical", "horizontal"], CHANGES), ("vertical", weights_of_another_party)],
)
def test_a_changed_folder_scores_nothing(
    here: Any, two_runs: Path, tmp_path: Path, split: str, change: Callable[[Path, Path], Path]
) -> None:
    run = shutil.copytree(two_runs / f"{split}-0", tmp_path / "run")
    assert here("predict", run, "--out", tmp_path / "scores.csv").returncode == 0
    named = change(run, two_runs / f"{split}-1")
    (tmp_path / "scores.csv").unlink()
    done = here("predict", run, "--out", tmp_path / "scores.csv")
    assert_refused(done)
    assert str(named) in done.stderr
    assert not (tmp_path / "scores.csv").exists()


def test_a_party_cut_out_of_the_description_does_not_go_on(here: Any, start: Any, small: SmallJob) -> None:
    small.content["job"]["max_rounds"] = LONG
    out = small.folder / "run"
    process = start("train", small.write(), "--out", out, "--checkpoint-seconds", 0, "-q")
    wait_for_rounds(process, out, 5)
    process.kill()
    process.wait()
    description_without_its_last_section(out, out)
    del small.content["party"][2]
    done = here("train", small.write(), "--out", out, "--resume")
    assert_refused(done)
    assert f"{out / 'run.toml'} differs from what the run wrote" in done.stderr


# -- rights


def test_nobody_else_may_read_a_run_whatever_the_umask(evenhand: Any, small: SmallJob) -> None:
    small.content["job"]["max_rounds"] = 3
    small.write()
    script = "import os; os.umask(0); from evenhand.cli import main; main()"
    words = ["train", str(small.path), "--out", str(small.folder / "run"), "-q"]
    assert subprocess.run([sys.executable, "-c", script, *words], capture_output=True).returncode == FELL_SHORT
    found = {
        path: stat.S_IMODE(path.stat().st_mode) for path in [small.folder / "run", *(small.folder / "run").rglob("*")]
    }
    assert found == {path: 0o700 if path.is_dir() else 0o600 for path in found}
    assert len(found) > 12


# -- too little disk


def limited(limit: int, size: int, *words: object) -> subprocess.CompletedProcess[str]:
    """The command under a limit of the operating system."""

    def set_limit() -> None:
        resource.setrlimit(limit, (size, size))

    # Without bytecode, which Python would write cut off to where the next process finds it.
    command = [sys.executable, "-B", "-m", "evenhand", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=set_limit)


@pytest.mark.parametrize("size", [100, 2_000, 30_000])
def test_files_that_may_not_grow_end_the_run_and_it_goes_on_later(here: Any, small: SmallJob, size: int) -> None:
    small.content["job"]["max_rounds"] = 60
    whole, out = small.run("whole"), small.folder / "run"
    done = limited(resource.RLIMIT_FSIZE, size, "train", small.path, "--out", out, "--checkpoint-seconds", 0, "-q")
    assert_refused(done, 8)
    assert "ulimit -f" in done.stderr
    assert "--resume" in done.stderr
    assert out.exists() == (size > 100), "nothing is left of a run that recorded no round"
    assert not [path for path in out.rglob("*") if path.name.endswith(".partial") or path.name == "lock"]
    assert here("train", small.path, "--out", out, "--resume", "-q").returncode == FELL_SHORT
    assert outcome(out) == outcome(whole.folder.path)


FULL = """
import subprocess, sys
disk, job, copy = sys.argv[1:]
def run(*words): return subprocess.run(words, capture_output=True, text=True)
assert run("mount", "-t", "tmpfs", "-o", "size=64k", "none", disk).returncode == 0
train = [sys.executable, "-m", "evenhand", "train", job, "--out", disk + "/run"]
train += ["--checkpoint-seconds", "0", "-q", "--resume"]
full = run(*train)
left = run("find", disk, "-name", "*.partial").stdout
run("mount", "-o", "remount,size=16m", disk)
again = run(*train)
run("cp", "-r", disk + "/run", copy)
print(repr((full.returncode, full.stdout, full.stderr, left, again.returncode, again.stderr)))
"""


def test_a_full_disk_ends_the_run_and_it_goes_on_when_there_is_room(small: SmallJob, tmp_path: Path) -> None:
    small.content["job"]["max_rounds"] = 60
    whole, disk = small.run("whole"), tmp_path / "disk"
    disk.mkdir()
    own_mounts = ["unshare", "--map-root-user", "--mount"]
    try:
        subprocess.run([*own_mounts, "mount", "-t", "tmpfs", "none", str(disk)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no small disk can be mounted here: {error}")
    script = [sys.executable, "-c", FULL, str(disk), str(small.path), str(tmp_path / "copy")]
    done = subprocess.run([*own_mounts, *script], capture_output=True, text=True, check=True)
    code, out, err, left, again, words = ast.literal_eval(done.stdout)
    assert (code, out) == (8, ""), err
    assert "\nerror: cannot write " in "\n" + without_warnings(err)
    assert "the disk is full" in err
    assert left == ""
    assert (again, without_warnings(words)) == (FELL_SHORT, "")
    assert outcome(tmp_path / "copy") == outcome(whole.folder.path)


def test_scores_that_do_not_fit_leave_no_file(two_runs: Path, tmp_path: Path) -> None:
    words = ["predict", two_runs / "vertical-0", "--out", tmp_path / "scores.csv"]
    done = limited(resource.RLIMIT_FSIZE, 1000, *words)
    assert_refused(done, 8)
    assert list(tmp_path.iterdir()) == []


# -- too little memory


def test_too_little_memory_is_told_before_libraries_crash_for_it(small: SmallJob) -> None:
    done = limited(resource.RLIMIT_AS, 600_000_000, "train", small.write(), "--out", small.folder / "run")
    assert_refused(done, 8)
    assert "0.60 GB" in done.stderr
    assert "takes 1.5 GB" in done.stderr
    assert not (small.folder / "run").exists()
