"""`never_send` holds for what masks and encryption hide, and its words are checked."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.clinics import write_clinics
from support.federation import Network, run_sites, write_shops

pytest.importorskip("nacl")

from evenhand.errors import JobError, RunError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, read_party, site_env
from evenhand.protocol.messages import Message
from evenhand.protocol.policy import OwnPolicy
from evenhand.solvers.announcing import schemas
from evenhand.training.run import one_blas_thread

FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}


def run(paths: dict[str, Path], policies: dict[str, OwnPolicy]) -> tuple[dict[str, Any], Network]:
    job, network = read_federation_job(paths["job"]), Network()
    own = {name: site_env(paths[name]) for name in job.parts}
    server = site_env(paths.get("server", paths[next(iter(own))]))

    def program(name: str) -> Any:
        return lambda _: party_part(job, own[name], lambda _: None, None)

    with one_blas_thread():
        ends = run_sites(
            {
                "server": lambda site: server_part(
                    job, lambda: server, lambda: site.transcript, None, paths.get("identity")
                )
            }
            | {name: program(name) for name in own},
            network,
            {name: policy.veto for name, policy in policies.items()},
        )
    return ends, network


@pytest.mark.parametrize(
    ("level", "kind"),
    [*product(["masked", "dealer"], ["direction", "gradient-norm"]), ("encrypted", "direction")],
)
def test_masks_do_not_bring_out_what_a_party_keeps(kind: str, level: str, tmp_path: Path) -> None:
    job = {"solver": "subspace", "max_rounds": 1, "protection": level, "constraint": FAIR, "allow_experimental": True}
    ends, network = run(write_shops(tmp_path, job), {"shop": OwnPolicy(never_send=[kind])})
    assert isinstance(ends["shop"], RunError)
    assert f"messages of kind '{kind}' never leave it" in str(ends["shop"])
    masked = [entry for entry in network.sites["shop"].transcript if entry.kind == "masked" and entry.sender == "shop"]
    assert kind != "direction" or not masked


def test_clients_keep_what_their_sums_would_hold(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2, "protection": "masked"})
    first = next(iter(read_federation_job(paths["job"]).parts))
    ends, _ = run(paths, {first: OwnPolicy(never_send=["update"])})
    assert "messages of kind 'update' never leave it" in str(ends[first])


def test_what_hides_what_hides_something_is_seen_through() -> None:
    inner = Message("shop", "server", "direction", {})
    once = Message("shop", "server", "masked", {}).hiding([inner])
    twice = Message("shop", "server", "sealed", {}).hiding([once, Message("shop", "server", "scores", {})])
    assert twice.inside == ("masked", "direction", "scores")
    for kind in ("sealed", "masked", "direction", "scores"):
        assert OwnPolicy(never_send=[kind]).veto(twice)
    assert OwnPolicy(never_send=["labels"]).veto(twice) is None


def test_a_kind_that_does_not_exist_is_no_policy(tmp_path: Path) -> None:
    own = tmp_path / "party.toml"
    text = '[party]\nname = "shop"\ntable = "t.csv"\nid = "id"\n[policy]\nnever_send = ["{}"]\n'
    own.write_text(text.format("partial_scores"))
    with pytest.raises(JobError, match=r"policy\.never_send names 'partial_scores', which is no kind of message"):
        read_party(own)
    for kind in schemas():
        own.write_text(text.format(kind))
        assert read_party(own).policy.never_send == [kind]
