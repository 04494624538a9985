"""A live PostgreSQL server: its password is in nothing that a command prints or leaves behind, however it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob, files, write_postgres

from evenhand.errors import FELL_SHORT

VARIABLE = "SHOP_PASSWORD"


class Shop:
    """A job whose shop keeps its table in the database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.password = urlsplit(url).password or ""
        self.small = SmallJob(folder)
        self.party = self.small.party("shop")
        del self.party["table"]
        self.party |= {"database": url, "sql": write_postgres(url, "shop", self.small.frames["shop"])}

    def named(self) -> str:
        """The address with the password as a variable."""
        return self.url.replace(self.password, f"${{{VARIABLE}}}")

    def assert_hidden(self, *done: subprocess.CompletedProcess[str], wrong: str = "") -> None:
        """No form of the password was printed, and none is in any file but the job's own."""
        left = b"".join(content for name, content in files(self.small.folder).items() if name != "job.toml")
        said = "".join(one.stdout + one.stderr for one in done).encode() + left
        for form in filter(None, (self.password, unquote(self.password), wrong, unquote(wrong))):
            assert form.encode() not in said, said


@pytest.fixture
def shop(tmp_path: Path, postgres_url: str) -> Shop:
    return Shop(tmp_path, postgres_url)


@pytest.mark.parametrize("inline", [True, False])
def test_a_run_that_ends_well(here: Any, shop: Shop, inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, shop.password)
    shop.party["database"] = shop.url if inline else shop.named()
    run = shop.small.folder / "run"
    trained = here("train", shop.small.write(), "--out", run)
    assert trained.returncode == FELL_SHORT, trained.stderr
    scored = here("predict", run)
    # A password that was written in the job file is not kept; one that was named is asked for again.
    assert scored.returncode == (2 if inline else 0), scored.stderr
    again = here("predict", run, "--job", shop.small.path)
    assert again.returncode == 0, again.stderr
    shop.assert_hidden(trained, scored, again)


def test_a_horizontal_run_that_ends_well(here: Any, tmp_path: Path, postgres_url: str) -> None:
    hospitals, shop = HospitalJob(tmp_path / "hospitals"), Shop(tmp_path, postgres_url)
    lyon = hospitals.client("lyon")
    del lyon["table"]
    lyon |= {"database": postgres_url, "sql": write_postgres(postgres_url, "lyon", hospitals.frames["lyon"])}
    done = here("train", hospitals.write(), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    hospitals.path.unlink()
    shop.assert_hidden(done)


WRONG = "not-it%40all"


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url, right: url.replace(right, WRONG), "password authentication failed"),
        (lambda url, right: url.replace("evenhand:", "nobody:"), 'failed for user "nobody"'),
        (lambda url, right: url.replace("/postgres", "/nowhere"), 'database "nowhere" does not exist'),
        (lambda url, right: f"{url.rpartition(':')[0]}:1/postgres", "Connection refused"),
        (lambda url, right: url.replace("127.0.0.1", f"{WRONG}.127.0.0.1"), "cannot read from"),
        (lambda url, right: f"{url}?pw={right}", "invalid URI query parameter"),
        (lambda url, right: url.replace(f":{right}@", f":{right}/"), "cannot read from"),
        (lambda url, right: url.replace("://", ":/"), "is not known"),
        (lambda url, right: url.replace(right, unquote(right)), "cannot be told apart"),
    ],
)
def test_a_server_that_refuses(
    here: Any, shop: Shop, change: Any, words: str, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = change(shop.url, shop.password)
    for password in (shop.password, unquote(shop.password), WRONG):
        if not inline and password in address:
            monkeypatch.setenv(VARIABLE, password)
            address = address.replace(password, f"${{{VARIABLE}}}")
    shop.party["database"] = address
    done = here("train", shop.small.write(), "--out", shop.small.folder / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    shop.assert_hidden(done, wrong=WRONG)


@pytest.mark.parametrize("sql", ["select * from nowhere", "selekt", "select 1; select 2", "delete from shop"])
def test_sql_that_fails(here: Any, shop: Shop, sql: str) -> None:
    shop.party["sql"] = sql
    done = here("train", shop.small.write(), "--out", shop.small.folder / "run")
    assert done.returncode == 2, done.stdout
    assert "party 'shop'" in done.stderr
    shop.assert_hidden(done)


@pytest.mark.parametrize("inline", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_run_that_is_killed_and_goes_on(start: Any, evenhand: Any, shop: Shop, inline: bool) -> None:
    shop.party["database"] = shop.url if inline else shop.named()
    shop.small.content["job"]["max_rounds"] = 60
    path, out = shop.small.write(), shop.small.folder / "run"
    arguments = ["train", path, "--out", out, "--resume"]
    process = start(*arguments, "--checkpoint-seconds", 0, **{VARIABLE: shop.password})
    lines = out / "metrics.jsonl"
    while not (lines.exists() and lines.read_bytes().count(b"\n") > 3):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    stdout, stderr = process.communicate()
    killed = subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)
    shop.assert_hidden(killed)
    ended = evenhand(*arguments, **{VARIABLE: shop.password})
    assert ended.returncode == FELL_SHORT, ended.stderr
    shop.assert_hidden(killed, ended)
