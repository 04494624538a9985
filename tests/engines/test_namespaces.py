"""docs/deploy.md, word for word: three organisations in network namespaces, each with its own files and no others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

import psutil
from support.shops import wait_until

from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.runtime.checkpointfiles import state_bytes
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.running import end_all

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy.md"
SITES = {"bank": "10.231.7.1", "shop": "10.231.7.2", "phone": "10.231.7.3"}
BRIDGE = "evh-bridge"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def namespaces() -> Iterator[None]:
    """A namespace for each organisation, with one line to a bridge between them."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("namespaces need root, and iproute2 and unshare")
    with ExitStack() as stack:
        try:
            ip("link", "add", BRIDGE, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"namespaces cannot be made here: {error.stderr.strip()}")
        stack.callback(ip, "link", "del", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name, address in SITES.items():
            ip("netns", "add", f"evh-{name}")
            stack.callback(ip, "netns", "del", f"evh-{name}")
            ip("link", "add", f"evh-{name}", "type", "veth", "peer", "name", "eth0", "netns", f"evh-{name}")
            ip("link", "set", f"evh-{name}", "master", BRIDGE, "up")
            ip("-n", f"evh-{name}", "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", f"evh-{name}", "link", "set", "eth0", "up")
            ip("-n", f"evh-{name}", "link", "set", "lo", "up")
        yield


def written(name: str) -> str:
    """A file as the page shows it."""
    found = re.search(rf"^    # {re.escape(name)}[^\n]*\n(?:    [^\n]*\n|\n)*", DEPLOY.read_text(), re.MULTILINE)
    assert found, name
    return re.sub("^    ", "", found.group().partition("\n\n    evenhand")[0], flags=re.MULTILINE)


def commands() -> list[str]:
    return [line.split("#")[0].strip() for line in DEPLOY.read_text().splitlines() if line.startswith("    evenhand ")]


class Site:
    """One organisation: its namespace, its folder, and nothing else of those beside it."""

    def __init__(self, name: str, everything: Path) -> None:
        self.name, self.folder, self._all = name, everything / name, everything
        self.folder.mkdir()
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{SITES['bank']} fl.bank.example\n")

    def run(self, command: str, log: str) -> subprocess.Popen[bytes]:
        words = command.replace("evenhand", f"{Path(sys.executable).parent}/evenhand", 1)
        steps = [
            f"mount --bind {self.folder}/hosts /etc/hosts",
            f"mount --bind {self.folder} /mnt",
            f"mount -t tmpfs none {self._all}",
            "cd /mnt",
            f"ls {self._all} | wc -l",
            f"exec {words}",
        ]
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(
                ["ip", "netns", "exec", f"evh-{self.name}", "unshare", "--mount", "bash", "-c", " && ".join(steps)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self, log: str) -> str:
        path = self.folder / log
        return path.read_text(errors="replace") if path.exists() else ""


def write_tables(sites: dict[str, Site]) -> None:
    """1,300 customers; the page's policy wants a thousand in common."""
    rng = np.random.default_rng(1)
    n = 1300
    ids = [f"k{number:05d}" for number in rng.permutation(n)]
    numbers = rng.normal(size=(n, 5))
    sex = np.where(rng.random(n) < 0.4, "f", "m")
    bad = numbers.sum(axis=1) + (sex == "f") + rng.logistic(size=n) > 0
    bank = {"customer_id": ids, "income": numbers[:, 0], "debt": numbers[:, 1], "sex": sex}
    shop = {"visits": numbers[:, 2], "spent": numbers[:, 3], "town": rng.choice(["x", "y"], n), "customer_id": ids}
    frames = {
        "bank": pd.DataFrame({**bank, "defaulted": np.where(bad, "yes", "no")}),
        "shop": pd.DataFrame(shop),
        "phone": pd.DataFrame({"calls": numbers[:, 4], "customer_id": ids}),
    }
    for name, site in sites.items():
        frames[name].sample(frac=1.0, random_state=7).to_parquet(site.folder / "customers.parquet")


def write_files(sites: dict[str, Site]) -> None:
    shops_own = tomllib.loads(written("party.toml"))
    for name, site in sites.items():
        own = tomllib.loads(written("party.toml"))
        if name != "shop":
            own["party"] |= {"name": name, "columns": ["income", "debt"] if name == "bank" else ["calls"]}
        if name == "bank":
            label = {"column": "defaulted", "positive": "yes"}
            own["party"] |= {"role": "active", "label": label, "sensitive": ["sex"]}
        assert own["policy"] == shops_own["policy"]
        (site.folder / "party.toml").write_text(tomli_w.dumps(own))
    (sites["bank"].folder / "federation.toml").write_text(written("federation.toml"))
    (sites["bank"].folder / "job.toml").write_text(written("job.toml"))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_page_is_walked_through_and_a_line_that_is_cut_and_healed_costs_only_time(
    namespaces: None, tmp_path: Path
) -> None:
    everything = tmp_path / "sites"
    everything.mkdir()
    sites = {name: Site(name, everything) for name in SITES}
    write_tables(sites)
    write_files(sites)
    provision, serve, join, submit = (
        next(one for one in commands() if one.startswith(f"evenhand federation {word} "))
        for word in ("provision", "serve", "join", "submit")
    )
    bank = sites["bank"]
    assert bank.run(provision, "provision.log").wait(120) == 0, bank.said("provision.log")
    for name in ("shop", "phone"):
        (sites[name].folder / "kits").mkdir()
        shutil.move(bank.folder / "kits" / name, sites[name].folder / "kits" / name)
    running = [bank.run(serve, "serve.log")]
    try:
        time.sleep(8.0)
        running += [site.run(join.replace("kits/shop", f"kits/{name}"), "join.log") for name, site in sites.items()]
        submitted = bank.run(f"{submit} --patience 120 --retries 3 --result result.json", "submit.log")
        running.append(submitted)
        wait_until(lambda: "terms of this run" in sites["shop"].said("join.log"))
        ip("link", "set", "evh-shop", "down")
        time.sleep(20.0)
        ip("link", "set", "evh-shop", "up")
        assert submitted.wait(400) == 0, bank.said("submit.log")
    finally:
        family = [
            one for each in running if psutil.pid_exists(each.pid) for one in psutil.Process(each.pid).children(True)
        ]
        end_all([*(psutil.Process(each.pid) for each in running if psutil.pid_exists(each.pid)), *family], 20.0)
        for each in running:
            each.wait()
    assert bank.said("serve.log").splitlines()[0].strip() == "0", "a site saw the others' files"
    _compare(sites, tmp_path)


def _compare(sites: dict[str, Site], tmp_path: Path) -> None:
    """With the same job in one process."""
    job = tomllib.loads(written("job.toml"))
    parties = [tomllib.loads((site.folder / "party.toml").read_text())["party"] for site in sites.values()]
    together = [one | {"table": str(sites[one["name"]].folder / one["table"])} for one in parties]
    (tmp_path / "together.toml").write_text(tomli_w.dumps({"job": job["job"], "party": together}))
    alone = run_vertical_job(read_job(tmp_path / "together.toml"), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name, site in sites.items():
        side = RunFolder.open(
            next(path for path in (site.folder / "runs").iterdir() if (path / "parties" / name).exists())
        )
        assert state_bytes(side.read_party(name, "weights")) == state_bytes(alone.folder.read_party(name, "weights"))
