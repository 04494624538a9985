"""Attacks on `dealer` and on the closing exchange: exact sums of labels, replays, pads used twice, partial scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from support.federation import Network, run_sites, write_shops
from support.problems import deal, small
from vertical.contract import CLOCK, make_job

from evenhand.errors import ProtocolError, RunError
from evenhand.jobs.federation.files import FederationJob, read_federation_job, read_party
from evenhand.jobs.federation.sites import server_program
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.training.run import one_blas_thread
from evenhand_reproductions.in_memory import Holdings

pytest.importorskip("nacl")
PROBLEM = small(2, rows=120)
PARTIES = ("bank", "shop", "phone")


def roles(labels: Any = PROBLEM.labels, **settings: Any) -> dict[str, Role]:
    given = {"protection": "dealer", "allow_experimental": True, "max_rounds": 4, "tol": 0.0, **settings}
    job = make_job("subspace", **given)
    held = Holdings.of(job, deal(PROBLEM, [[0], [1, 2], [3]]), labels, PROBLEM.sensitive).with_keys()
    server, others = held.roles()
    return {role.name: role for role in [server, *others]}


def heard(made: dict[str, Role]) -> list[Message]:
    runtime = InProcess(list(made.values()), CLOCK, Transcript(keep_messages=True))
    runtime.run()
    return list(runtime.transcript.messages or [])


def words(messages: list[Message]) -> Any:
    return np.concatenate([one[key].ravel() for one in messages for key in ("nu", "pull", "shares")]).view(np.uint8)


@pytest.mark.parametrize("flipped", [False, True])
def test_what_a_passive_party_gets_is_uniform_whatever_the_labels_are(flipped: bool) -> None:
    """Subset sums and differences of runs need X_kᵀν. No message holds it, and no layer opens it for a party."""
    messages = heard(roles(-PROBLEM.labels if flipped else PROBLEM.labels))
    told = [one for one in messages if one.receiver in ("p1", "p2")]
    assert {one.kind for one in told} == {"hidden-derivative", "hidden-coefficients"}
    # ν is behind the same words for both parties, which count once.
    found = words([one for one in told if one.kind == "hidden-derivative" and one.receiver == "p1"])
    assert chisquare(np.bincount(found, minlength=256)).pvalue > 1e-6


def test_nobody_opens_weights_unless_the_terms_say_so() -> None:
    """A direction is −H⁻¹ of the slope, and the party knows H. Weights are directions times coefficients."""
    assert not [one for one in heard(roles()) if one.kind == "weight-share"]
    told = [one for one in heard(roles(weights="party")) if one.receiver == "p1" and one.kind == "weight-share"]
    assert len(told) == 1
    assert told[0]["words"].shape == (2,)


def test_weights_of_a_single_step_are_given_to_nobody() -> None:
    with pytest.raises(RunError, match="would be exact sums of labels; they are not sent"):
        heard(roles(weights="party", max_rounds=1))
    heard(roles(max_rounds=1))


def test_a_number_is_answered_once() -> None:
    made = roles()
    asked: list[Message] = []
    queue = [message for role in made.values() for message in role.start()]
    while queue and not asked:
        message = queue.pop(0)
        queue += made[message.receiver].receive(message)
        if message.kind == "hidden-derivative" and message.receiver == "p1":
            asked.append(message)
    with pytest.raises(ProtocolError, match="has answered number 1; number 1 is refused"):
        made["p1"].receive(asked[0])


def test_a_resumed_run_hides_the_same_columns_behind_new_words() -> None:
    taken: list[dict[str, Any]] = []
    whole = InProcess(list(roles().values()), CLOCK, Transcript(keep_messages=True), lambda _: save())

    def save() -> None:
        taken.append(whole.snapshot())

    whole.run()
    sent = [_hidden(whole)]
    for _ in range(2):
        again = InProcess(list(roles().values()), CLOCK, Transcript(keep_messages=True))
        again.restore(taken[0])
        again.run()
        sent.append(_hidden(again))
    for place, one in enumerate(sent):
        for other in sent[:place]:
            assert not (one == other).any()


def _hidden(runtime: InProcess) -> Any:
    """Return the last hidden columns of a party."""
    found = [one for one in runtime.transcript.messages or [] if one.kind == "hidden-columns" and one.sender == "p1"]
    return found[-1]["words"]


@pytest.mark.parametrize("level", ["masked", "dealer", "encrypted"])
def test_after_training_no_passive_party_sends_its_own_scores(level: str, tmp_path: Path) -> None:
    job = {"solver": "subspace", "max_rounds": 3, "protection": level, "allow_experimental": True}
    paths = write_shops(tmp_path, job, ("bank",))
    content = read_federation_job(paths["job"])
    assert isinstance(content, FederationJob)
    network = Network()
    from evenhand.jobs.federation.dispatch import party_part
    from evenhand.jobs.federation.files import site_env

    with one_blas_thread():
        ends = run_sites(
            {
                "server": lambda site: server_program(
                    content,
                    read_party(paths["bank"]),
                    tmp_path / "bank",
                    lambda: site.transcript,
                    identity=paths["identity"],
                ),
                **{
                    name: (lambda one: lambda _: party_part(content, site_env(paths[one]), None))(name)
                    for name in content.parts
                },
            },
            network,
        )
    assert not [end for end in ends.values() if isinstance(end, Exception)], ends
    sent = {(entry.sender, entry.kind) for entry in network.sites["server"].transcript}
    assert ("shop", "masked-partial-scores") in sent
    assert not {("shop", "partial-scores"), ("phone", "partial-scores")} & sent
