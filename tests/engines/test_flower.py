"""The contract on Flower's simulation: the same ends as in one process, for roles of every solver in lock-step."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.clinics import CLIENTS, write_clinics
from support.federation import servers_copy, write_shops
from support.schedules import ASYNCHRONOUS, NAMES, case_of

pytest.importorskip("flwr", reason="make flower runs these in an environment with Flower")

from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from evenhand.errors import RunError
from evenhand.jobs.federation.files import SiteEnv, site_env
from evenhand.jobs.federation.flower import client_app, server_app
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.protocol.roles import SERVER, Role
from evenhand.runtime.checkpointfiles import state_bytes
from evenhand.runtime.flower.grid import GridPost, registered_nodes
from evenhand.runtime.flower.records import keep_state, kept_state, packets_in, to_records, value_in
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.links import Packet
from evenhand.runtime.packets import packet_bytes
from evenhand.runtime.site import Program, Site
from evenhand.runtime.stateless_site import NEVER_AGAIN, StatelessSite
from evenhand.training.run import one_blas_thread

CARRIED = [name for name in NAMES if name not in ASYNCHRONOUS]
PARTIES = ["bank", "shop", "phone"]
FAIR = {"max_rounds": 20, "constraint": {"kind": "equal-opportunity", "epsilon": 0.05}, "test_fraction": 0.2}
QUIET = {"init_args": {"num_cpus": 2, "log_to_driver": False, "include_dashboard": False}}
pytestmark = [
    pytest.mark.timeout(600),
    # Flower's and Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def whose(message: Message, context: Context) -> Message:
    """A simulated node has no registered name; it says its number."""
    return Message(to_records([], place=int(context.node_config["partition-id"])), reply_to=message)


def asked(grid: Grid, parties: Iterable[str]) -> dict[str, int]:
    names = list(parties)
    while len(nodes := list(grid.get_node_ids())) < len(names):
        time.sleep(0.2)
    questions = [Message(to_records([]), dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
    replies = grid.send_and_receive(questions, timeout=300)
    places = {value_in(one.content, "place", int): one.metadata.src_node_id for one in replies}
    return {name: places[place] for place, name in enumerate(names)}


def simulate(server: Callable[[Grid, Context], None], client: ClientApp, nodes: int) -> None:
    failures: list[BaseException] = []

    def guarded(grid: Grid, context: Context) -> None:
        try:
            server(grid, context)
        except BaseException as error:
            failures.append(error)

    app = ServerApp()
    app.main()(guarded)
    client.query()(whose)
    run_simulation(app, client, nodes, backend_config=QUIET)  # type: ignore[arg-type]
    if failures:
        raise failures[0]


def alone(role: Role) -> Program[Role]:
    yield role
    return role


def visit_role(message: Message, context: Context) -> Message:
    """A party of one case after the other: a first visit is of the next case."""
    first = value_in(message.content, "visit", int) == 0
    state, name = kept_state(context), value_in(message.content, "name", str)
    number = 0 if state is None else int(state["case"]) + first
    roles = case_of(CARRIED[number]).make()
    peers = [one for one in roles if one != name]
    site: StatelessSite[Role] = StatelessSite(name, peers, alone(roles[name]), 0.0, None if first else state)
    with one_blas_thread():
        answer = site.visit(packets_in(message.content))
    keep_state(context, site.snapshot() | {"case": number})
    end = state_bytes(roles[name].snapshot()) if site.ended else b""
    return Message(to_records(answer, word="", ended=site.ended, end=end), reply_to=message)


class Watched(GridPost):
    """Takes down where parties' roles have ended."""

    def __init__(self, grid: Grid, nodes: dict[str, int]) -> None:
        super().__init__(grid, nodes)
        self.ends: dict[str, bytes] = {}

    def _came_back(self, site: Site, reply: Message) -> None:
        assert not reply.has_error(), reply.error
        if end := value_in(reply.content, "end", bytes):
            self.ends[self._in_flight[reply.metadata.reply_to_message_id][0]] = end
        super()._came_back(site, reply)


def run_roles(grid: Grid, name: str, nodes: list[int]) -> dict[str, bytes]:
    roles = case_of(name).make()
    parties = [one for one in roles if one != SERVER]
    post = Watched(grid, dict(zip(parties, nodes, strict=True)))
    site = Site(SERVER, parties, post.transmit, links=NEVER_AGAIN, stopped=lambda: bool(post.words))
    with post.serves(site), site:
        for party in parties:
            # Some begin without being told anything: whoever is asked for a sign of life is visited.
            post.transmit(party, packet_bytes(Packet(0, NEVER_AGAIN.window, asks=True)))
        try:
            site.run(alone(roles[SERVER]))
        finally:
            assert not post.words, name
    return {SERVER: state_bytes(roles[SERVER].snapshot()), **post.ends}


def test_roles_of_every_solver_in_lock_step_end_as_in_one_process() -> None:
    pytest.importorskip("lightgbm")
    ends: dict[str, dict[str, bytes]] = {}

    def serve(grid: Grid, _: Context) -> None:
        nodes = list(asked(grid, ["a", "b", "c"]).values())
        for name in CARRIED:
            ends[name] = run_roles(grid, name, nodes)

    client = ClientApp()
    client.train()(visit_role)
    simulate(serve, client, 3)
    for name in CARRIED:
        for role, mailbox in case_of(name).calm[0].mailboxes.items():
            assert ends[name][role] == state_bytes(mailbox.role.snapshot()), (name, role)


def file_of(files: dict[str, Path], runs: Path, context: Context) -> SiteEnv:
    name = [*PARTIES, "notary"][int(context.node_config["partition-id"])]
    return site_env(files[name], str(runs / name))


def run_shops(tmp_path: Path, job: dict[str, Any], active: tuple[str, ...] = ("bank", "phone")) -> dict[str, Path]:
    paths = write_shops(tmp_path / "sites", job, active)
    text, runs = paths["job"].read_text(), tmp_path / "runs"
    # Where the labels are: on the machine of the bank, beside its own node, from a copy of its table.
    copy = servers_copy(paths["bank"])
    server = server_app(text, asked, lambda: site_env(copy, str(runs / "bank")), paths["identity"])
    client = client_app(text, partial(file_of, paths, runs))
    simulate(server, client, 4 if "notary" in paths else 3)
    return paths


def side(tmp_path: Path, name: str) -> RunFolder:
    """The server's run is beside that of the bank, under a name of its own."""
    runs = (tmp_path / "runs" / ("bank" if name == SERVER else name)).iterdir()
    return RunFolder.open(next(one for one in runs if one.name.endswith("-server") == (name == SERVER)))


@pytest.mark.parametrize("ids", ["equal", "private"])
def test_a_job_on_everybodys_own_files_ends_as_in_one_process(ids: str, tmp_path: Path) -> None:
    """With private ids parties speak to each other, through the server."""
    paths = run_shops(tmp_path, FAIR | {"ids": ids})
    told = side(tmp_path, SERVER).result
    if ids == "private":
        paths["together"].write_text(paths["together"].read_text().replace('"private"', '"inner"'))
    together = run_vertical_job(read_job(paths["together"]), tmp_path / "sites", tmp_path / "run")  # type: ignore[arg-type]
    assert told["certificate"]["objective"] == pytest.approx(together.run.certificate.objective, rel=1e-5)
    for name in PARTIES:
        own = side(tmp_path, name)
        own.check()
        assert own.finished
        assert {path.name for path in (own.path / "parties").iterdir()} == {name}
        sent = own.read_lines("transcript.jsonl")
        assert all(name in (one["sender"], one["receiver"]) for one in sent)
        if ids == "equal":
            weights = state_bytes(together.folder.read_party(name, "weights"))
            assert state_bytes(own.read_party(name, "weights")) == weights


@pytest.mark.parametrize("ids", ["left", "hidden-left"])
def test_rows_that_not_everybody_has(ids: str, tmp_path: Path) -> None:
    """All rows of the label holder train, and parties tell what they add to rows that they lack, if scores need it."""
    missing = {"missing_party": "absent"} if ids == "left" else {}
    job = FAIR | {"ids": ids, **missing}
    paths = write_shops(tmp_path / "sites", job)
    for name, rows in (("shop", slice(0, 90)), ("phone", slice(30, None))):
        table = paths[name].with_name("table.csv")
        pd.read_csv(table).iloc[rows].to_csv(table, index=False)
    text, runs = paths["job"].read_text(), tmp_path / "runs"
    copy = servers_copy(paths["bank"])
    server = server_app(text, asked, lambda: site_env(copy, str(runs / "bank")), paths["identity"])
    simulate(server, client_app(text, partial(file_of, paths, runs)), 3)
    together = run_vertical_job(read_job(paths["together"]), tmp_path / "sites", tmp_path / "run")  # type: ignore[arg-type]
    told = side(tmp_path, SERVER).result
    assert told["certificate"]["objective"] == pytest.approx(together.run.certificate.objective, rel=1e-5)
    for name in PARTIES:
        weights = together.folder.read_party(name, "weights")["weights"]
        np.testing.assert_allclose(side(tmp_path, name).read_party(name, "weights")["weights"], weights, atol=1e-4)
    if missing:
        assert set(told["absence"]) == {"shop", "phone"}
        assert all(len(one) == 1 for one in told["absence"].values())


@pytest.mark.parametrize("solver", ["subspace", "trees"])
def test_the_others_go_on_without_a_node_that_fails(solver: str, tmp_path: Path) -> None:
    """Its node answers no visit from the second round on."""
    if solver == "trees":
        pytest.importorskip("lightgbm")
    kind = "direction" if solver == "subspace" else "leaves"
    job = FAIR | {"solver": solver, "max_rounds": 8, "lost_party": "continue", "protection": "none"}
    paths = write_shops(tmp_path / "sites", job)
    text, runs = paths["job"].read_text(), tmp_path / "runs"
    answers = client_app(text, partial(file_of, paths, runs))

    def fails(message: Message, context: Context) -> Message:
        for folder in (runs / "phone").glob("*"):
            if int(context.node_config["partition-id"]) == PARTIES.index("phone"):
                sent = [one for one in RunFolder.open(folder).read_lines("transcript.jsonl") if one["kind"] == kind]
                if sent:
                    raise RuntimeError("this node has no power")
        return answers(message, context)

    client = ClientApp()
    client.train()(fails)
    copy = servers_copy(paths["bank"])
    server = server_app(text, asked, lambda: site_env(copy, str(runs / "bank")), paths["identity"])
    simulate(server, client, 3)
    told = side(tmp_path, SERVER).result
    assert told["gone"] == [{"party": "phone", "round": 2}]
    assert told["certificate"]["without"] == "phone (gone in round 2)"
    for name in ("bank", "shop"):
        own = side(tmp_path, name)
        assert own.finished
        assert own.result["gone"] == ["phone"]
    assert not side(tmp_path, "phone").finished


@pytest.mark.parametrize("level", ["dealer", "encrypted"])
def test_weights_stay_in_shares_and_a_dealer_is_a_node_of_its_own(level: str, tmp_path: Path) -> None:
    """Roles are made anew at every visit, and go on with the secrets that they had."""
    paths = run_shops(tmp_path, FAIR | {"protection": level, "max_rounds": 3}, ("bank",))
    together = run_vertical_job(read_job(paths["together"]), tmp_path / "sites", tmp_path / "run")  # type: ignore[arg-type]
    # Shares are cut at random, so that weights agree to the precision of fixed point.
    weights, own = (run.read_party("bank", "weights")["weights"] for run in (together.folder, side(tmp_path, "bank")))
    np.testing.assert_allclose(own, weights, atol=1e-4)
    assert side(tmp_path, "shop").read_party("shop", "weights")["model"] == "share"
    if level == "dealer":
        assert side(tmp_path, "notary").finished


def clinic_of(files: dict[str, Path], runs: Path, context: Context) -> SiteEnv:
    name = CLIENTS[int(context.node_config["partition-id"])]
    return site_env(files[name], str(runs / name))


@pytest.mark.parametrize("solver", ["sqp", "fairfedavgalm"])
def test_a_job_across_rows_ends_as_in_one_process(solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if solver != "sqp":
        pytest.importorskip("torch")
    fair = {"kind": "equal-opportunity", "epsilon": 0.05}
    paths = write_clinics(tmp_path / "sites", {"solver": solver, "max_rounds": 3, "constraint": fair})
    text, runs = paths["job"].read_text(), tmp_path / "runs"
    monkeypatch.setenv("EVENHAND_RUNS", str(runs / SERVER))
    simulate(server_app(text, asked, identity=paths["identity"]), client_app(text, partial(clinic_of, paths, runs)), 3)
    together = run_horizontal_job(read_job(paths["together"]), tmp_path / "sites", tmp_path / "run")  # type: ignore[arg-type]
    weights = state_bytes(together.folder.read_model("weights"))
    for name in CLIENTS:
        assert state_bytes(side(tmp_path, name).read_model("weights")) == weights


def test_a_party_that_refuses_says_so_and_why_stays_with_it(tmp_path: Path) -> None:
    paths = write_shops(tmp_path / "sites", FAIR, ("bank", "phone"))
    with paths["shop"].open("a") as file:
        file.write('\n[policy]\nnever_send = ["direction"]\n')
    text, runs = paths["job"].read_text(), tmp_path / "runs"
    server = server_app(text, asked, lambda: site_env(paths["bank"], str(runs / SERVER)), paths["identity"])
    with pytest.raises(RunError, match=r"shop: it stopped \(RunError\); see the log on its own console"):
        simulate(server, client_app(text, partial(file_of, paths, runs)), 3)
    assert "direction" not in {one["kind"] for one in side(tmp_path, "shop").read_lines("transcript.jsonl")}


class Nobody:
    """A grid that takes messages, which nobody answers."""

    def __init__(self) -> None:
        self.pushed: list[Message] = []

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.pushed += messages
        return [f"m{len(self.pushed)}"]

    def pull_messages(self, _: list[str]) -> list[Message]:
        return []


@pytest.mark.parametrize(("at_once", "visited"), [(0, 3), (2, 2)])
def test_no_more_nodes_are_visited_at_once_than_was_said(at_once: int, visited: int) -> None:
    grid = Nobody()
    post = GridPost(grid, {"a": 1, "b": 2, "c": 3}, at_once)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        post.transmit(name, packet_bytes(Packet(0, NEVER_AGAIN.window, asks=True)))
    for name in post._ready():
        post._set_out(name)
    assert len(grid.pushed) == visited
    assert len(post._ready()) == 0


class Nodes:
    """A grid that knows these nodes."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def get_nodes(self) -> list[Any]:
        from flwr.proto.node_pb2 import NodeInfo

        return [NodeInfo(node_id=number, name=name) for number, name in enumerate(self._names, 7)]


def test_a_party_is_the_node_whose_key_was_registered_under_its_name() -> None:
    assert registered_nodes(Nodes("shop", "", "bank"), ["bank", "shop"]) == {"bank": 9, "shop": 7}
    with pytest.raises(RunError, match="no node is registered under the name of bank"):
        registered_nodes(Nodes("shop", ""), ["bank", "shop"])
    with pytest.raises(RunError, match="2 nodes are registered as shop"):
        registered_nodes(Nodes("shop", "shop"), ["shop"])


def test_the_app_that_is_written_builds(tmp_path: Path) -> None:
    from flwr.cli.build import build_fab_from_disk

    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.jobs.federation.flower_app import write_app

    paths = write_shops(tmp_path / "sites", FAIR)
    write_app(read_federation_job(paths["job"]), "shops", tmp_path / "app")
    assert build_fab_from_disk(tmp_path / "app")
    job = tomllib.loads((tmp_path / "app" / "evenhand_job" / "job.toml").read_text())
    assert {one["name"] for one in job["party"]} == set(PARTIES)
    assert all(set(one) == {"name", "role"} for one in job["party"])
