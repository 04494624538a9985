"""Flower apps of a job: the server's, and a party's, which handles one message at a time.

A party's process ends after every message. Its state is in Flower's `context.state`, which stays at its node, and
its records are in its run folder.
"""

from __future__ import annotations

import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from evenhand.data.tables.party_tables import SeenTable
from evenhand.errors import EvenhandError, RunError
from evenhand.jobs.federation.dispatch import End, party_part, server_part
from evenhand.jobs.federation.endings import public_error
from evenhand.jobs.federation.files import RUNS, AnyJob, ClientsJob, SiteEnv, parse_federation_job, run_place, this_site
from evenhand.jobs.federation.flower_app import AT_ONCE
from evenhand.jobs.federation.folders import SideFolder, side_folder, wait_until_free
from evenhand.jobs.federation.notices import announcer, for_submitter, result_tables
from evenhand.jobs.federation.sites import keep_shares
from evenhand.jobs.schema import located
from evenhand.protocol.roles import SERVER
from evenhand.protocol.state import State
from evenhand.runtime.files import hold
from evenhand.runtime.flower.grid import GridPost, registered_nodes
from evenhand.runtime.flower.records import keep_state, kept_state, packets_in, to_records, value_in
from evenhand.runtime.folder import RunFolder, is_run
from evenhand.runtime.site import Site
from evenhand.runtime.stateless_site import NEVER_AGAIN, StatelessSite
from evenhand.training.run import one_blas_thread

FindNodes: TypeAlias = Callable[[Grid, Iterable[str]], Mapping[str, int]]
_PATIENCE: Final = 60.0
"""Seconds that the server waits for nodes to connect."""


def server_app(
    job: str,
    find_nodes: FindNodes = registered_nodes,
    find: Callable[[], SiteEnv] = this_site,
    identity: Path | None = None,
) -> ServerApp:
    """Return the server's app for a job, which is given as the text of its file.

    Parameters
    ----------
    find_nodes
        Returns the node of each participant.
    find
        Returns the site environment with the label holder's file. Horizontal jobs have none.
    identity
        Folder of the server's own identity; None is the one that the environment names.
    """

    def main(grid: Grid, context: Context) -> None:
        at_once = int(context.run_config.get(AT_ONCE, 0))
        result = _serve(_parsed(job), grid, str(context.run_id), at_once, find_nodes, find, identity)
        console = Console(markup=False, emoji=False)
        for table in result_tables(for_submitter(_parsed(job), result)):
            console.print(table)

    app = ServerApp()
    app.main()(main)
    return app


def client_app(job: str, find: Callable[[Context], SiteEnv] = lambda _: this_site()) -> ClientApp:
    """Return a party's app for a job."""

    def train(message: Message, context: Context) -> Message:
        try:
            answer = _visited(_parsed(job), message.content, context, find(context))
        except Exception as error:
            print(f"this party stopped: {error}", file=sys.stderr, flush=True)
            answer = to_records([], word=public_error(error), ended=True)
        return Message(answer, reply_to=message)

    app = ClientApp()
    app.train()(train)
    return app


def _parsed(job: str) -> AnyJob:
    return parse_federation_job(tomllib.loads(job), "job.toml")


# -- the server


def _serve(
    job: AnyJob,
    grid: Grid,
    run: str,
    at_once: int,
    find_nodes: FindNodes,
    find: Callable[[], SiteEnv],
    identity: Path | None,
) -> dict[str, Any]:
    post = GridPost(grid, wait_for_nodes(grid, list(job.parts), find_nodes), at_once)
    runs = Path(os.environ.get(RUNS) or "runs") if isinstance(job, ClientsJob) else find().runs
    with side_folder(run_place(runs, run, at_server=True), SERVER, job, None, resume=False) as folder:
        site = Site(
            SERVER,
            list(job.parts),
            post.transmit,
            links=NEVER_AGAIN,
            stopped=lambda: bool(post.words),
            on_report=folder.report,
        )
        folder.transcript = site.transcript
        with folder.recorded(), post.serves(site), site, one_blas_thread():
            try:
                keep = partial(keep_shares, folder.folder)
                part = server_part(job, find, lambda: site.transcript, identity=identity, run=run, keep=keep)
                result = site.run(part)
            except EvenhandError as error:
                # Report the participant that stopped first: the others stopped because of it.
                why = "; ".join(f"{name}: {word}" for name, word in post.words.items()) or str(error)
                raise RunError(f"the run ended: {why}") from error
            folder.finish(result)
    return result


def wait_for_nodes(grid: Grid, parties: list[str], find_nodes: FindNodes) -> Mapping[str, int]:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return find_nodes(grid, parties)
        except RunError:
            if time.monotonic() > end:
                raise
        time.sleep(1.0)


# -- a party


def _visited(job: AnyJob, records: RecordDict, context: Context, env: SiteEnv) -> RecordDict:
    own, name = env.own, env.own.party.name
    state = kept_state(context)
    if value_in(records, "name", str) != name:
        raise RunError(f"this node has the party file of {name}, but is registered under another name")
    if state is None and value_in(records, "visit", int) > 0:
        raise RunError("this node was restarted and has lost the state of the run; submit the job again")
    # A dealer has no table.
    table = "" if own.party.role == "dealer" else SeenTable.of(located(own.party, env.base)).digest
    if state is not None and state["table"] != table:
        raise RunError("the table changed during the run; submit the job again")
    # Terms are shown once: only while the first role, which receives them, is still running.
    new = state is None or state["roles"] == 1
    secret = os.urandom(32) if state is None else bytes.fromhex(state["secret"])
    program = party_part(job, env, announcer(job, name) if new else None, secret=secret, run=str(context.run_id))
    peers = [one for one in (SERVER, *job.parts) if one != name]
    with one_blas_thread():
        visit: StatelessSite[End] = StatelessSite(name, peers, program, time.time(), state, own.policy.to_policy().veto)
        with _folder(job, env, str(context.run_id), state) as side:
            side.transcript = visit.endpoint.transcript
            with side.recorded():
                answer = visit.visit(packets_in(records))
                if visit.result is not None and not side.folder.finished:
                    side.finish(visit.result.write(side.folder))
            written = side.folder.written
    keep_state(context, visit.snapshot() | {"table": table, "written": written, "secret": secret.hex()})
    return to_records(answer, word="", ended=visit.ended)


@contextmanager
def _folder(job: AnyJob, env: SiteEnv, run: str, state: State | None) -> Iterator[SideFolder]:
    """Open the run folder, created at the first message; drop records of a message if its answer was lost."""
    path, name = run_place(env.runs, run), env.own.party.name
    # Flower may have abandoned a slow process that still writes here; its answer is ignored.
    wait_until_free(path)
    if state is None:
        if is_run(path):
            RunFolder.open(path).remove()
        with side_folder(path, name, job, env, resume=False) as new:
            yield new
        return
    with hold(path):
        folder = RunFolder.open(path)
        if not folder.finished:
            folder.go_on_at(state["written"])
        yield SideFolder(folder, name, resumed=False)
