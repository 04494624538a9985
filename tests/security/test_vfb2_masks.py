"""Masks of VFB² come from keys that parties agree on anew, in every runtime, and cover the scores after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.federation import Network, run_sites, write_shops
from support.problems import deal, small

from evenhand.errors import ProtocolError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, site_env
from evenhand.privacy.compiled import next_mask
from evenhand.privacy.masks import mask_states
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.transcript import Transcript
from evenhand.solvers import roles as solver_roles
from evenhand.training.run import one_blas_thread
from evenhand.vertical.vfb2.messages import MASKED_TOTALS
from evenhand_reproductions.in_memory import Holdings, train_vertical

PROBLEM = small(seed=2, rows=40)
JOB = Job(solver="vfb2-svrg", max_rounds=1, tol=0.0, seed=7, options={"batch_size": 8})
BLOCKS = [[0], [1], [2], [3]]


def train(runtime: Any) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Return all words that parties sent for sums over all rows, and the models."""
    transcript = Transcript(keep_messages=True)
    parties = deal(PROBLEM, BLOCKS)
    run = train_vertical(JOB, parties, PROBLEM.labels, PROBLEM.sensitive, runtime=runtime, transcript=transcript)
    words = [one["sum"].view(np.uint64) for one in transcript.messages or () if one.kind == MASKED_TOTALS.kind]
    return words, {name: model.weights for name, model in run.models.items()}


@pytest.mark.parametrize("runtime", ["messages", "threads"])
def test_masks_do_not_follow_from_the_seed(runtime: str) -> None:
    """Everybody knows the job's seed. A leaf of the second tree sends its masks alone, so they can be compared."""
    words, _ = train(runtime)
    states = mask_states(JOB.seed, len(BLOCKS) + 1)
    drawn = {int(next_mask(states, party)) for party in range(len(BLOCKS)) for _ in range(len(PROBLEM.labels))}
    assert words
    assert not drawn & {int(word) for one in words for word in one}


def test_every_run_has_other_masks_and_the_same_model() -> None:
    (first, one), (second, other) = train("messages"), train("messages")
    assert not {int(word) for part in first for word in part} & {int(word) for part in second for word in part}
    for name, weights in one.items():
        np.testing.assert_array_equal(weights, other[name])


def test_without_keys_no_party_is_built() -> None:
    held = Holdings.of(JOB, deal(PROBLEM, BLOCKS), PROBLEM.labels, PROBLEM.sensitive)
    name, own = next(iter(held.parties.items()))
    with pytest.raises(ProtocolError, match="has agreed on no keys"):
        solver_roles.party(held.terms, name, own)


def test_after_training_the_server_learns_the_sum_of_scores_only(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"solver": "vfb2-svrg", "max_rounds": 2, "tol": 0.0, "options": {"batch_size": 32}})
    job, network = read_federation_job(paths["job"]), Network()

    def server(site: Any) -> Any:
        return server_part(job, lambda: site_env(paths["bank"]), lambda: site.transcript, identity=paths["identity"])

    def party(name: str) -> Any:
        return lambda _: party_part(job, site_env(paths[name]), None)

    with one_blas_thread():
        ends = run_sites({SERVER: server, **{name: party(name) for name in job.parts}}, network)
    assert not any(isinstance(end, Exception) for end in ends.values()), ends
    kinds = [entry.kind for entry in network.sites[SERVER].transcript]
    assert "partial-scores" not in kinds
    assert kinds.count("masked-partial-scores") == len(job.parts)
